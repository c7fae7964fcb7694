"""Control groups of contexts on the kernel that runs here, of either version (tests/vm has version 2)."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.machine import control_groups, two_cpus, usable_cpus
from vlcs._core import _cgroup, _kernel_text

if TYPE_CHECKING:
    from pathlib import Path

    from support.libraries import Builder


def left(folders: list[Path]) -> list[str]:
    """Groups of contexts that are there, of all processes."""
    return [folder.name for above in folders for folder in above.glob("vlcs-*")]


GROUPS = """
def groups(thread):
    return [line.rpartition("/")[2] for line in open(f"/proc/self/task/{thread}/cgroup").read().splitlines()
            if "/vlcs-" in line]
"""


def test_every_thread_of_a_context_is_in_its_groups() -> None:
    folders = control_groups(weight=200, quota=1, confine=True)
    finished = run_child(
        GROUPS
        + """
import os, json, threading, vlcs

def work():
    import numpy as np, threading
    from sklearn.cluster import KMeans
    x = np.ones((600, 600))
    (x @ x).sum()
    KMeans(2, n_init=1).fit(x[:, :3])
    keep = threading.Event()
    threading.Thread(target=keep.wait, daemon=True).start()

vlc = vlcs.VLC("a", weight=200, quota=1, confine=True, threads=2)
before = set(map(int, os.listdir("/proc/self/task"))) - set(vlc.threads())
vlc.submit(work).result()
vlc.run(work)
own = vlc.threads()
assert len(own) >= 4, own  # two of submit, and one of each work
names = {tuple(groups(thread)) for thread in own}
assert len(names) == 1 and len(names.pop()) in (1, 2), names
assert not any(groups(thread) for thread in before)
assert groups(threading.get_native_id()) == []
found = vlc.verify()
assert found.holds and set(found.threads) == set(own), found
report = vlc.slice.report()
for name in ("cpus", "weight", "quota", "confine"):
    assert report[name]["state"] == "enforced", report[name]
    assert name == "cpus" or "keeps its own" in report[name]["reason"]
moved = own[-1]
for folder in FOLDERS:
    name = "cgroup.threads" if os.path.exists(f"{folder}/cgroup.threads") else "tasks"
    with open(f"{folder}/{name}", "w") as file:
        file.write(str(moved))
found = vlc.verify()
assert not found.holds and len(found.differences) == len(FOLDERS), found
assert all(words.startswith(f"thread {moved} is in the control group /") for words in found.differences)
vlc.close()
print(json.dumps(report["quota"]))
""".replace("FOLDERS", repr([str(folder) for folder in folders])),
        timeout=60,
    )
    assert json.loads(finished.lines[-1])["granted"] == "1 CPUs"
    assert left(folders) == []


def test_a_cpuset_holds_against_system_calls_that_a_library_makes_itself(build: Builder) -> None:
    first, second = two_cpus()
    control_groups(confine=True)
    run_child(
        """
        import errno, os, sys, vlcs
        first, second, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
        before = os.sched_getaffinity(0)
        free = vlcs.VLC("free", cpus={first}, interpreter=False)
        library = free.load_library(path)
        held = vlcs.VLC("held", cpus={first}, confine=True, interpreter=False)
        held_library = held.load_library(path)

        assert free.submit(library.escape_to, second).result() == 0
        found = free.verify()
        assert list(found.outside.values()) == [(second,)] and not found.holds, found
        assert free.slice.report()["cpus"]["state"] == "advisory"

        refused = -errno.EINVAL
        assert held.submit(held_library.escape_to, second).result() == refused
        assert held.submit(held_library.escape_on_thread, second).result() == refused
        assert held_library.escape_on_thread(second) == refused  # also where a visitor makes it
        assert held.submit(held_library.escape_to, first).result() == 0
        assert held.verify().holds
        line = held.slice.report()["cpus"]
        assert line["state"] == "enforced" and "one that calls in" in line["reason"], line
        with held:  # as the report says
            assert held_library.escape_to(second) == 0
        assert os.sched_getaffinity(0) == before

        resident = vlcs.VLC("resident", cpus={first}, confine=True, interpreter=False, resident=True)
        assert resident.load_library(path).escape_to(second) == refused
        assert "runs on threads of its own" in resident.slice.report()["cpus"]["reason"]
        """,
        timeout=30,
        args=[str(first), str(second), str(build("escape.c", "libescape.so"))],
    )


def test_a_quota_holds_while_another_context_runs_free() -> None:
    (folder,) = control_groups(quota=0.2)
    finished = run_child(
        """
        import json, sys, threading, time, vlcs

        def burn(seconds):
            import time
            end, count = time.monotonic() + seconds, 0
            while time.monotonic() < end:
                count += 1
            return count

        held, free = vlcs.VLC("held", quota=0.2, threads=2), vlcs.VLC("free", threads=1)
        for vlc in (held, free):
            vlc.submit(burn, 0).result()
        before, begin = [vlc.stats().cpu_time for vlc in (held, free)], time.monotonic()
        for future in [held.submit(burn, 2), held.submit(burn, 2), free.submit(burn, 2)]:
            future.result()
        wall = time.monotonic() - begin
        used = [vlc.stats().cpu_time - start for vlc, start in zip((held, free), before)]
        import glob
        (stat,) = glob.glob(f"{sys.argv[1]}/vlcs-*-{__import__('os').getpid()}-*/cpu.stat")
        throttled = int(dict(line.split() for line in open(stat))["nr_throttled"])
        print(json.dumps({"wall": wall, "held": used[0], "free": used[1], "throttled": throttled}))
        """,
        timeout=60,
        args=[str(folder)],
    )
    found = json.loads(finished.lines[-1])
    # A period of 100 ms may be begun before and after, and a CPU takes 5 ms at a time.
    assert found["held"] <= 0.2 * (found["wall"] + 0.2) + 0.01 * len(usable_cpus()), found
    assert found["throttled"] >= 5, found
    assert found["free"] > 0, found  # how much depends on what else runs on this machine


def test_weights_divide_a_cpu() -> None:
    control_groups(weight=100)
    finished = run_child(
        """
        import json, sys, time, vlcs

        def burn(seconds):
            import time
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass

        cpu = {int(sys.argv[1])}
        light = vlcs.VLC("light", cpus=cpu, weight=100)
        import warnings
        warnings.simplefilter("ignore", vlcs.OverlapWarning)
        heavy = vlcs.VLC("heavy", cpus=cpu, weight=400)
        for vlc in (light, heavy):
            vlc.submit(burn, 0).result()
        before = [vlc.stats().cpu_time for vlc in (light, heavy)]
        for future in [light.submit(burn, 3), heavy.submit(burn, 3)]:
            future.result()
        print(json.dumps([vlc.stats().cpu_time - start for vlc, start in zip((light, heavy), before)]))
        """,
        timeout=60,
        args=[str(usable_cpus()[0])],
    )
    light, heavy = json.loads(finished.lines[-1])
    assert 3 < heavy / light < 5, (light, heavy)


def test_the_cpuset_follows_a_resize_while_threads_begin() -> None:
    first, second = two_cpus()
    control_groups(confine=True)
    run_child(
        """
        import sys, vlcs
        first, second = map(int, sys.argv[1:])
        vlc = vlcs.VLC(cpus={first}, confine=True)

        def begin(count):
            import threading
            leave, started = threading.Event(), threading.Barrier(count + 1)
            threading.leave = leave

            def wait():
                started.wait()
                leave.wait()

            for _ in range(count):
                threading.Thread(target=wait, daemon=True).start()
            started.wait()

        def end():
            import threading
            threading.leave.set()

        resized = 0
        for _ in range(10):
            future = vlc.submit(begin, 12)
            while not future.done():
                vlc.resize(({first}, {second}, {first, second})[resized % 3])
                resized += 1
            future.result()
            found = vlc.verify()
            assert len(found.threads) >= 13 and found.holds, found
            vlc.submit(end).result()
        assert resized >= 10, resized
        vlc.resize({second})
        assert vlc.slice.report()["confine"]["granted"] == f"CPU {second}"
        """,
        timeout=60,
        args=[str(first), str(second)],
    )


def test_nothing_is_left_by_a_failed_creation_or_at_exit() -> None:
    folders = control_groups(quota=1, confine=True)
    run_child(
        """
        import sys, vlcs
        from pathlib import Path
        left = lambda: [name for above in sys.argv[1:] for name in Path(above).glob("vlcs-*")]
        first = vlcs.VLC("a", interpreter=False)
        try:
            vlcs.VLC("a", quota=1, confine=True, interpreter=False)
        except vlcs.ArgumentError:
            assert left() == [], left()
        else:
            raise AssertionError
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                vlcs.VLC("b", quota=1, confine=True, gpu=1, interpreter=False)
            except vlcs.UnavailableWarning:
                assert left() == [], left()
            else:
                raise AssertionError
        stays = vlcs.VLC("stays", quota=1, confine=True)
        stays.submit(print, "works").result()
        assert len(left()) == len(sys.argv) - 1
        raise SystemExit(7)
        """,
        timeout=30,
        args=list(map(str, folders)),
        code=7,
    )
    assert left(folders) == []


def test_what_a_killed_process_leaves_is_removed_by_the_next() -> None:
    folders = control_groups(quota=1, confine=True)
    make = "import os, signal, vlcs; vlc = vlcs.VLC('a', quota=1, confine=True); vlc.submit(int).result()\n"
    run_child(f"{make}os.kill(os.getpid(), signal.SIGKILL)", timeout=30, code=-signal.SIGKILL)
    assert len(left(folders)) == len(folders)
    run_child(f"{make}assert len(os.listdir('/proc/self/task')) > 1", timeout=30)
    assert left(folders) == []


def test_children_of_fork_leave_their_parents_groups() -> None:
    folders = control_groups(quota=1, confine=True)
    run_child(
        GROUPS
        + """
import os, sys, threading, vlcs
from pathlib import Path
left = lambda: [name for above in sys.argv[1:] for name in Path(above).glob("vlcs-*")]
vlc = vlcs.VLC("a", quota=1, confine=True)
vlc.submit(int).result()
mine = left()

def fork_inside():
    import os, sys, threading
    child = os.fork()
    if not child:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
        os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

assert vlc.submit(fork_inside).result() == 3
assert left() == mine
child = os.fork()
if not child:
    own = vlcs.VLC("b", quota=1, confine=True)
    own.submit(int).result()
    assert own.verify().holds and len(left()) == 2 * len(mine), left()
    own.close()
    sys.exit(4)  # runs the exit handlers
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
assert left() == mine
assert vlc.verify().holds
vlc.close()
assert left() == []
""",
        timeout=30,
        args=list(map(str, folders)),
    )


def test_programs_that_a_context_starts_share_its_groups_and_outlive_them() -> None:
    folders = control_groups(quota=1)
    run_child(
        GROUPS
        + """
import os, signal, sys, vlcs
vlc = vlcs.VLC("a", quota=1)

def start():
    import subprocess
    return subprocess.Popen(["sleep", "60"]).pid

group = lambda pid: [line for line in open(f"/proc/{pid}/cgroup").read().splitlines() if "/vlcs-" in line]
pid = vlc.submit(start).result()
try:
    assert len(group(pid)) == 1, group(pid)
    vlc.close()
    assert group(pid) == [], group(pid)
finally:
    os.kill(pid, signal.SIGKILL)
""",
        timeout=30,
    )
    assert left(folders) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="no-setuid: only root may become another user")
def test_groups_that_may_not_be_written_are_unavailable_and_nothing_is_changed() -> None:
    control_groups(quota=1)
    run_child(
        GROUPS
        + """
import os, warnings, vlcs
os.setuid(65534)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    vlc = vlcs.VLC("a", weight=50, quota=1, confine=True, interpreter=False)
assert [str(warning.message).partition(" of ")[0] for warning in caught] == [
    "weight=50", "quota=1.0", "confine=True"
], caught
for name in ("weight", "quota", "confine"):
    line = vlc.slice.report()[name]
    assert (line["state"], line["granted"]) == ("unavailable", None), line
    assert "may not make control groups below its own" in line["reason"], line
    assert "Delegate=yes" in line["cure"], line
assert not any(groups(thread) for thread in vlc.threads())
assert vlc.verify().holds
""",
        timeout=30,
    )


def test_a_thread_of_a_confined_context_stays_on_its_cpus_in_calls_of_others() -> None:
    first, second = two_cpus()
    control_groups(confine=True)
    run_child(
        """
        import os, sys, threading, vlcs
        first, second = map(int, sys.argv[1:])
        confined = vlcs.VLC("confined", cpus=[first], confine=True)
        other = vlcs.VLC("other", cpus=[second])

        def visit():
            thread = threading.get_native_id()
            with other:
                inside = os.sched_getaffinity(0)
            return thread, inside, os.sched_getaffinity(0)

        def call(function):
            return function()

        thread, inside, after = confined.submit(call, vlcs.remote(visit)).result()
        assert thread in confined.threads()
        assert (inside, after) == ({first}, {first}), (inside, after)
        assert vlcs.VLC("third", cpus=[second]).verify().holds and confined.verify().holds
        with other:
            assert os.sched_getaffinity(0) == {second}
        """,
        timeout=30,
        args=[str(first), str(second)],
    )


def test_threads_begin_in_a_threaded_group_of_version_2() -> None:
    """Also where version 2 has no controllers to give, beside version 1: how threads join is the same."""
    found = [seat.folders[0] for seat in _cgroup.seats() if seat.version == 2 and seat.folders]
    if not found or not _kernel_text.is_writable(found[0]):
        pytest.skip("no-control-groups: version 2 is not mounted, or may not be written")
    run_child(
        """
        import sys, threading
        from pathlib import Path
        from vlcs._core import _native
        from vlcs._core._group import Group
        group = Group(Path(sys.argv[1]), "cgroup.threads")
        try:
            group.set("cgroup.type", "threaded")
            context = _native.Context(name=None, cpus=None, env=(), share=(), threads=3, heap=0, residence=0,
                                      scheduling=0, nice=None, groups=(group.file,), memory=0, nodes=None,
                                      memory_limit=0, huge_pages=0)
            arrived = threading.Barrier(4, timeout=10)
            for thread in range(3):
                context.submit(arrived.wait, thread)
            arrived.wait()
            threads = context.threads()
            assert len(threads) == 3 and set(threads) == group.threads(), (threads, group.threads())
            context.destroy()
        finally:
            assert group.remove()
        """,
        timeout=30,
        args=[str(found[0])],
    )
