"""Many contexts, contexts made and ended over and over, and creations that fail: everything comes back."""

from __future__ import annotations

import pytest

from support.child import run_child
from support.machine import two_cpus

FOOTPRINT = """
import gc, os, time

def footprint():
    gc.collect()
    with open("/proc/self/statm") as statm:
        megabytes = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    with open("/proc/self/maps") as maps:
        mappings = sum(1 for _ in maps)
    return {
        "megabytes": megabytes,
        "mappings": mappings,
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }
"""


@pytest.mark.timeout(180)
def test_64_contexts_with_numpy_at_once() -> None:
    run_child(
        """
        import time, vlcs
        def compute(n):
            import numpy as np
            return float((np.arange(1000) * n).sum())
        contexts = []
        for n in range(64):
            contexts.append(vlcs.VLC(f"c{n}", cpus=None))
            assert contexts[-1].run(compute, n) == 499500.0 * n
        assert vlcs.limits().contexts == 64
        for n, context in enumerate(contexts):  # all still work
            assert context.run(compute, -n) == -499500.0 * n
        for context in contexts:
            context.close()
        assert vlcs.limits().contexts == 0
        """,
        timeout=170,
    )


@pytest.mark.preload
@pytest.mark.timeout(180)
def test_8_contexts_with_torch() -> None:
    run_child(
        """
        import vlcs
        def compute(n):
            import torch
            x = torch.full((64, 64), float(n), requires_grad=True)
            (x @ x).sum().backward()
            return float(x.grad[0, 0])
        contexts = [vlcs.VLC(f"c{n}") for n in range(8)]
        for n, context in enumerate(contexts):
            assert context.run(compute, n) == 128.0 * n
        futures = [context.submit(compute, 1) for context in contexts]
        assert [future.result() for future in futures] == [128.0] * 8
        """,
        timeout=170,
        preload=True,
    )


@pytest.mark.timeout(300)
def test_100_numpy_interpreters_made_and_ended() -> None:
    run_child(
        FOOTPRINT
        + """
import vlcs
def compute():
    import numpy as np
    return float(np.linalg.norm(np.ones((300, 300)) @ np.ones((300, 300))))
for turn in range(1, 101):
    context = vlcs.VLC("again")
    assert context.run(compute) == 90000.0
    context.close()
    if turn == 10:
        tenth = footprint()
last = footprint()
print(tenth, last)
assert last["megabytes"] < tenth["megabytes"] + 10, (tenth, last)
assert last["threads"] <= tenth["threads"] and last["descriptors"] <= tenth["descriptors"], (tenth, last)
assert last["mappings"] <= tenth["mappings"] + 20, (tenth, last)
""",
        timeout=280,
    )


def test_native_contexts_made_and_ended() -> None:
    run_child(
        FOOTPRINT
        + """
import vlcs
for turn in range(1, 61):
    context = vlcs.VLC("again", interpreter=False)
    context.load_library("libstdc++.so.6")
    context.load_library("libz.so.1").zlibVersion
    context.close()
    if turn == 10:
        tenth = footprint()
last = footprint()
assert last["megabytes"] < tenth["megabytes"] + 2, (tenth, last)
assert {**last, "megabytes": 0} == {**tenth, "megabytes": 0}, (tenth, last)
""",
        timeout=60,
    )


def test_a_failed_creation_leaves_nothing_behind() -> None:
    first, _ = two_cpus()
    run_child(
        FOOTPRINT
        + """
import sys, vlcs
from vlcs._core import _instance
vlcs.VLC("warm", cpus=sys.argv[1]).close()
affinity = os.sched_getaffinity(0)
# An interpreter that starts, runs code of ours that loads libraries, and fails then.
broken = "import threading, ctypes, hashlib\\nraise RuntimeError('made to fail')"
sources = {"cpus": None, "python": None, "bootstrap": broken}
options = {"cpus": {"cpus": {1022}}, "python": {"python": "/nonexistent"}, "bootstrap": {}}
whole = _instance._guest_source

def fail(kind):
    if sources[kind]:
        _instance._guest_source = lambda: sources[kind]
    try:
        vlcs.VLC("failing", **options[kind])
    except Exception as error:
        assert isinstance(error, vlcs.VLCError), repr(error)
        assert kind != "bootstrap" or "made to fail" in str(error), repr(error)
    else:
        sys.exit("made all the same")

for kind in options:
    for turn in range(12):
        fail(kind)
        if turn == 3:
            before = footprint()
    after = footprint()
    seen = kind, before, after
    assert vlcs.contexts() == [] and vlcs.limits().contexts == 0, kind
    assert (after["threads"], after["descriptors"]) == (before["threads"], before["descriptors"]), seen
    assert after["megabytes"] < before["megabytes"] + 2 and after["mappings"] <= before["mappings"] + 4, seen
    assert os.sched_getaffinity(0) == affinity, kind
_instance._guest_source = whole
with vlcs.VLC("failing", cpus=sys.argv[1]) as again:
    assert again.run(len, "works") == 5
""",
        timeout=60,
        args=[str(first)],
    )


def test_close_waits_and_says_for_what() -> None:
    run_child(
        """
        import time, vlcs
        a = vlcs.VLC("a")
        slow = a.submit(time.sleep, 1.0)
        time.sleep(0.1)
        try:
            a.close(timeout=0.2)
        except vlcs.BusyError as error:
            assert "'a'" in str(error) and "sleep" in str(error) and "close() again" in str(error), error
            assert isinstance(error, TimeoutError)
        else:
            raise SystemExit("closed a context that is busy")
        assert a.closed
        try:
            a.run(len, "x")
        except vlcs.StateError as error:
            assert "closed" in str(error)
        a.close()
        assert slow.result(0) is None
        assert vlcs.limits().contexts == 0

        # Jobs that were accepted still run.
        b = vlcs.VLC("b")
        futures = [b.submit(pow, n, 2) for n in range(50)]
        b.close()
        assert [future.result(0) for future in futures] == [n * n for n in range(50)]
        """,
        timeout=30,
    )
