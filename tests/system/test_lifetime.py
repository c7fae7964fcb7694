"""Many contexts, contexts made and ended over and over, and creations that fail: everything comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.machine import two_cpus

if TYPE_CHECKING:
    from support.libraries import Builder

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
        _instance._guest_source = lambda _name: sources[kind]
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


def test_ctrl_c_at_any_moment_of_a_creation_leaves_nothing() -> None:
    run_child(
        """
        import os, signal, sys, threading, time, vlcs
        for options in ({}, {"interpreter": False}):
            vlcs.VLC("warm", **options).close()
            start = time.monotonic()
            vlcs.VLC("warm", **options).close()
            whole = time.monotonic() - start
            for turn in range(40):
                made = None
                timer = threading.Timer(whole * turn / 40, os.kill, [os.getpid(), signal.SIGINT])
                try:
                    timer.start()
                    made = vlcs.VLC("name", **options)
                    timer.join()  # the signal is sent, however slow the machine
                    time.sleep(5)
                except KeyboardInterrupt as error:
                    assert error.__context__ is None, repr(error.__context__)
                else:
                    sys.exit(f"lost: {options}, turn {turn} of {whole:.3f} s")
                if made is not None:
                    made.close()
                assert vlcs.contexts() == [] and vlcs.limits().contexts == 0, turn
        """,
        timeout=100,
    )


def test_a_creation_without_threads_to_have_leaves_nothing(build: Builder) -> None:
    run_child(
        """
        import ctypes, sys, vlcs
        refuse = ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[1]), "refuse_threads")
        for _ in range(3):
            refuse.value = 1
            try:
                vlcs.VLC("name")
            except vlcs.SystemRefusedError as error:
                assert "cannot make thread" in str(error) and error.__context__ is None, error
            refuse.value = 0
            assert vlcs.contexts() == [] and vlcs.limits().contexts == 0
            with vlcs.VLC("name") as again:
                assert again.run(len, "works") == 5
            again.close()
        """,
        timeout=30,
        env={"LD_PRELOAD": str(build("refuse_threads.c", "librefuse_threads.so"))},
        args=[str(build("refuse_threads.c", "librefuse_threads.so"))],
    )


def test_exceptions_of_signal_handlers_leave_no_call_behind(build: Builder) -> None:
    run_child(
        """
        import os, signal, sys, time, vlcs
        a = vlcs.VLC("a", cpus="0", interpreter=False)
        add = a.load_library(sys.argv[1]).counter_next
        affinity = os.sched_getaffinity(0)
        class Interrupt(BaseException): pass
        def interrupt(*_): raise Interrupt
        def handle(*_): add()
        for handler in (handle, interrupt):
            signal.signal(signal.SIGALRM, handler)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0003)
                    for _ in range(1000):
                        add()
                        a.run(add)
                except Interrupt:
                    pass
                assert a._instance.gate.inside() == []
                assert a.stats().visitors == 0 and os.sched_getaffinity(0) == affinity
        signal.setitimer(signal.ITIMER_REAL, 0)
        a.close(timeout=1)
        """,
        timeout=30,
        args=[str(build("counter.c", "libcounter.so"))],
    )


@pytest.mark.parametrize("held", [True, False])
def test_blocks_left_out_of_turn_are_told_and_left_all_the_same(held: bool) -> None:
    first, second = two_cpus()
    run_child(
        """
        import asyncio, os, sys, threading, vlcs
        held, first, second = sys.argv[1] == "True", *sys.argv[2:]
        a = vlcs.VLC("a", cpus=first, interpreter=False)
        b = vlcs.VLC("b", cpus=second, interpreter=False)
        affinity = os.sched_getaffinity(0)
        async def use(vlc, seconds):
            with vlc:
                await asyncio.sleep(seconds)
        async def both():
            return await asyncio.gather(use(a, 0.1), use(b, 0.2), return_exceptions=True)
        error, nothing = asyncio.run(both())
        assert isinstance(error, vlcs.StateError) and "no `await`" in str(error), error
        assert nothing is None and os.sched_getaffinity(0) == affinity

        def block():
            with a:
                yield
        generator = block()
        next(generator)
        errors = []
        def close():
            try:
                generator.close()
            except vlcs.StateError as error:
                errors.append(error)
        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        assert len(errors) == 1 and "no `yield`" in str(errors[0]), errors
        if held:
            with b:
                pass
            assert os.sched_getaffinity(0) == affinity
        a.close(timeout=1)
        b.close(timeout=1)
        assert os.sched_getaffinity(0) == affinity and vlcs.limits().contexts == 0
        """,
        timeout=30,
        args=[str(held), str(first), str(second)],
    )


def test_contexts_leave_no_objects_in_the_host() -> None:
    """Not even names: CPython's cache of attributes keeps each new string that is looked up."""
    run_child(
        """
        import gc, sys, vlcs
        def once():
            vlc = vlcs.VLC("again")
            with vlc:
                assert vlc.run(len, "x") == 1
            vlc.close()
        def blocks():
            gc.collect()
            return sys.getallocatedblocks()
        for _ in range(30):  # CPython's own caches fill meanwhile
            once()
        before = blocks()
        for _ in range(60):
            once()
        assert blocks() - before < 60, blocks() - before
        """,
        timeout=60,
    )


@pytest.mark.parametrize("kind", ["library", "run", "module", "block"])
def test_the_exception_of_a_signal_handler_is_never_lost(build: Builder, kind: str) -> None:
    """Not in a finalizer, where Python drops it; and the thread is outside then, whenever it comes."""
    run_child(
        """
        import os, random, signal, sys, time, traceback, vlcs
        kind, path = sys.argv[1:]
        class Interrupt(BaseException): pass
        def interrupt(_, frame):
            global where
            where = traceback.extract_stack(frame)
            raise Interrupt
        signal.signal(signal.SIGALRM, interrupt)
        a = vlcs.VLC("a", cpus="0", interpreter=kind not in {"library", "block"})
        def block():
            with a:
                pass
        work = {
            "library": lambda: a.load_library(path).counter_next,
            "run": lambda: lambda _: a.run(len, "x"),
            "module": lambda: lambda _, module=a.import_module("collections"): module.Counter("ab"),
            "block": lambda: lambda _: block(),
        }[kind]()
        work(1)
        affinity = os.sched_getaffinity(0)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            where = None
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.002))
                while True:
                    work(1)
                    assert where is None, where.format()
            except Interrupt:
                pass
            assert os.sched_getaffinity(0) == affinity
            assert a._instance.gate.inside() == []
        a.close()
        """,
        timeout=60,
        args=[kind, str(build("counter.c", "libcounter.so"))],
    )
