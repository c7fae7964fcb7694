"""Fork (F1): the host's and a context's, with every library that forks; what lives in the child."""

from __future__ import annotations

import pytest

from support.child import run_child

# What starts children in Python, run once in the host and once in a guest.
START = """
import os, threading, time

def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))

def check(condition, code):
    if not condition:
        os._exit(code)

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_every_method_of_a_context_left_behind_says_so() -> None:
    run_child(
        START
        + """
import asyncio, inspect, signal, sys, vlcs
a, b = vlcs.VLC("a"), vlcs.VLC("b", interpreter=False)
module = a.import_module("collections")
counter = module.Counter("abca")
library = a.load_library("libz.so.1")
pending = a.submit(busy, 1)
queued = a.submit(busy, 0)
block = vlcs.VLC("block")
arguments = {"run": (len, "x"), "submit": (len, "x"), "import_module": ("json",),
             "load_library": ("libz.so.1",), "resize": (None,), "stats": (), "remote": ([],), "threads": (),
             "set_memory": ("local",), "migrate_memory": (), "libraries": (), "verify": (),
             "wrap": (len,), "__enter__": ()}
public = {name for name, _ in inspect.getmembers(vlcs.VLC, callable)
          if not name.startswith("_") or name == "__enter__"}
assert public == {*arguments, "close", "run_async", "task"}, public
calls = [lambda: library.zlibVersion(), lambda: library.crc32, lambda: module.OrderedDict(),
         lambda: module.namedtuple, lambda: counter.most_common(1), lambda: len(counter),
         lambda: pending.result(5), lambda: queued.result(5)]
for vlc in (a, b):
    calls += [lambda m=getattr(vlc, name), a=args: m(*a) for name, args in arguments.items()]
    calls += [lambda v=vlc: v.task(len)("x"), lambda v=vlc: asyncio.run(v.run_async(len, "x"))]
with block:
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        for number, call in enumerate(calls):
            try:
                call()
            except vlcs.StateError as error:
                check("fork" in str(error) and ("'a'" in str(error) or "'b'" in str(error)), 20)
            except AttributeError:
                check(number == 1, 21)
            else:
                check(False, 30 + number)
        for vlc in (a, b):
            check(vlc.closed and vlc.cpus == () and "orphaned" in repr(vlc), 22)
            vlc.close()
        check(vlcs.contexts() == [] and vlcs.limits().contexts <= 1, 23)
        sys.exit(7)  # leaves the block of a context that stayed behind
assert ended(pid) == 7, pid
assert a.run(len, "on") == 2 and pending.result() is None and queued.result() is None
""",
        timeout=60,
    )


# In the child of a fork by a context all of it works, also what needs new threads, libraries, exit handlers.
LIVES = """
def lives(a, others):
    import numpy
    check(vlcs.contexts() == [a] and not a.closed, 11)
    check(a.run(len, "abc") == 3 and a.submit(len, "abcd").result(20) == 4, 12)
    check(a.run(math) == 1e6 and a.submit(math).result(20) == 1e6, 13)
    array = numpy.arange(1 << 18)
    check(a.run(double, array)[3] == 6 and a.run(numpy.cumsum, array)[4] == 10, 14)
    check(a.run(thread) == [1] and a.submit(thread).result(20) == [1], 15)
    check(a.load_library("libz.so.1").zlibVersion and a.stats().threads >= 1, 16)
    for other in others:
        try:
            other.run(len, "x")
        except vlcs.StateError as error:
            check("fork" in str(error), 17)
        else:
            check(False, 18)
        with vlcs.VLC(other.name) as new:
            check(new.run(len, "new") == 3, 19)
        new.close()

def math():
    import numpy
    return float((numpy.ones((100, 100)) @ numpy.ones((100, 100))).sum())

def double(array):
    return array * 2

def thread():
    import threading, wave  # a module that nobody has imported
    found = []
    thread = threading.Thread(target=found.append, args=[1])
    thread.start()
    thread.join()
    return found

def fork():
    import os
    print("before")
    pid = os.fork()
    print("child" if pid == 0 else "parent")
    return pid

def at_exit(words):
    import atexit
    atexit.register(print, words)
"""


@pytest.mark.parametrize("close", [False, True])
def test_the_context_that_forks_lives_in_the_child_beside_busy_ones(close: bool) -> None:
    finished = run_child(
        START
        + LIVES
        + """
import signal, sys, threading, vlcs
a, b = vlcs.VLC("a"), vlcs.VLC("b")
a.run(math)
a.run(at_exit, "end of a")
b.run(at_exit, "end of b")
threading.Thread(target=busy, args=[2], daemon=True).start()  # holds the host's GIL, mostly
jobs = [b.submit(busy, 1.5), a.submit(busy, 1.5)]
for _ in range(3):
    pid = a.run(fork)
    if pid == 0:
        signal.alarm(30)
        for job in jobs:
            if not job.done():
                check(isinstance(job.exception(5), vlcs.StateError), 20)
        lives(a, [b])
        if sys.argv[1] == "True":
            a.close()
        sys.exit(7)
    assert ended(pid) == 7
    assert a.run(len, "on") == 2 and b.run(len, "on") == 2
for vlc in (a, b):
    vlc.close()
""",
        timeout=100,
        args=[str(close)],
    )
    assert finished.lines.count("child") == finished.lines.count("parent") == 3
    assert finished.lines.count("end of a") == 4  # in each child too, and once in the parent
    assert finished.lines.count("end of b") == 1
    assert not finished.stderr, finished.stderr


def test_forks_of_a_contexts_own_threads_end_with_them() -> None:
    finished = run_child(
        START
        + """
import sys, vlcs
def forks(ending, in_thread):
    import os, sys, threading
    codes = []
    def fork():
        pid = os.fork()
        if pid:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        elif ending == "exit":
            os._exit(5)
        elif ending == "raise":
            sys.exit(6)
        else:
            print("in the child")
    if in_thread:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    else:
        fork()
    return codes
a, b = vlcs.VLC("a", threads=2), vlcs.VLC("b")
b.submit(busy, 1.5)
for ending, code in (("exit", 5), ("raise", 0), ("return", 0)):
    assert a.submit(forks, ending, False).result() == [code], ending  # as a thread of any program
    assert a.run(forks, ending, True) == [code], ending
try:
    codes = a.run(forks, "raise", False)
except SystemExit as error:  # in the child it comes home on this thread
    assert error.code == 6
    raise
assert codes == [6]
""",
        timeout=60,
    )
    assert finished.lines == ["in the child"] * 2
    assert "Traceback" not in finished.stderr


PROGRAMS = """
def programs():
    import os, pty, subprocess, sys, threading
    assert subprocess.check_output([sys.executable, "-c", "print(6 * 7)"]) == b"42\\n"
    assert subprocess.run(["sh", "-c", "exit 3"], preexec_fn=lambda: os.nice(0)).returncode == 3
    assert subprocess.run(["sh", "-c", "exit 3"], start_new_session=True).returncode == 3
    ended = lambda pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], os.environ)) == 4
    assert ended(os.posix_spawnp("sh", ["sh", "-c", "exit 4"], {"PATH": "/bin"})) == 4
    pid, terminal = pty.fork()
    if pid == 0:
        print("in a terminal", flush=True)
        os._exit(5)
    assert b"in a terminal" in os.read(terminal, 100)
    assert ended(pid) == 5
    assert os.waitstatus_to_exitcode(os.system("exit 6")) == 6
    return "started"
"""


def test_programs_are_started_beside_contexts_and_in_them() -> None:
    run_child(
        START
        + PROGRAMS
        + """
import vlcs
a, b = vlcs.VLC("a"), vlcs.VLC("b")
job = b.submit(busy, 2)
assert programs() == a.run(programs) == a.submit(programs).result() == "started"
job.result()
""",
        timeout=60,
    )


POOLS = """
def pools(method):
    import concurrent.futures, multiprocessing, operator, os, sys
    start = multiprocessing.get_context(method)
    with start.Pool(2) as pool:
        assert pool.starmap(operator.add, [(1, 2), (3, 4)]) == [3, 7]
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=start) as pool:
        assert list(pool.map(operator.neg, range(4))) == [0, -1, -2, -3]
    queue = start.Queue()
    processes = [start.Process(target=queue.put, args=(5,)), start.Process(target=sys.exit, args=(6,)),
                 start.Process(target=print, args=("words of", method))]
    for process in processes:
        process.start()
    assert queue.get(timeout=30) == 5
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_beside_contexts_and_in_them(method: str) -> None:
    finished = run_child(
        START
        + POOLS
        + """
import sys, vlcs
a, b = vlcs.VLC("a"), vlcs.VLC("b")
a.run(__import__, "numpy")
job = b.submit(busy, 2)
method = sys.argv[1]
assert pools(method) == a.run(pools, method) == a.submit(pools, method).result() == [0, 6, 0]
job.result()
assert a.run(len, "on") == 2
""",
        timeout=100,
        args=[method],
        env={"PYTHONUNBUFFERED": None},
    )
    assert finished.lines == [f"words of {method}"] * 3
    assert not finished.stderr, finished.stderr


def test_dataloader_workers_beside_contexts_and_in_them() -> None:
    run_child(
        START
        + """
import vlcs
def load():
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    data = TensorDataset(torch.arange(64, dtype=torch.float32).reshape(32, 2))
    total = 0.0
    for persistent in (False, True):
        loader = DataLoader(data, batch_size=8, num_workers=2, persistent_workers=persistent)
        for _ in range(2):
            total += sum(float(batch.sum()) for batch, in loader)
        del loader
    return total
a = vlcs.VLC("a")
assert a.run(load) == a.submit(load).result() == load() == 8064.0
""",
        timeout=100,
    )


def test_workers_that_a_server_forks_make_contexts_of_their_own() -> None:
    finished = run_child(
        START
        + """
import signal, sys, vlcs
def math():
    import numpy
    return float((numpy.ones((100, 100)) @ numpy.ones((100, 100))).sum())
old = []
def generation(depth):
    new = [vlcs.VLC(name) for name in "abc"]
    assert [vlc.run(math) for vlc in new] == [1e6] * 3
    assert vlcs.contexts() == new
    old.extend(new)
    if depth < 3:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            for vlc in old:
                try:
                    vlc.run(len, "x")
                except vlcs.StateError as error:
                    check("fork" in str(error), 3)
                else:
                    check(False, 4)
            generation(depth + 1)
            sys.exit(10 + depth)
        assert ended(pid) == 10 + depth
    assert [vlc.submit(math).result() for vlc in new] == [1e6] * 3
    print("generation", depth)
generation(0)
""",
        timeout=100,
    )
    assert finished.lines == [f"generation {depth}" for depth in (3, 2, 1, 0)]
    assert not finished.stderr, finished.stderr


def test_contexts_left_behind_hold_no_static_tls() -> None:
    run_child(
        START
        + """
import sys, vlcs
kept, used = [], []
for generation in range(3):
    for number in range(3):
        kept.append(vlcs.VLC(f"{number}", interpreter=False, resident=False))
        kept[-1].load_library("libgomp.so.1")
    limits = vlcs.limits()
    used.append(limits.static_tls_used)
    assert used[0] == used[-1] > limits.static_tls_total / 2, (used, limits)
    pid = os.fork()
    if pid:
        sys.exit(ended(pid))
""",
        timeout=60,
    )


def test_a_lock_of_threading_that_another_thread_holds() -> None:
    run_child(
        START
        + """
import signal, vlcs
def fork():
    import os, signal, threading
    with getattr(threading, "_shutdown_locks_lock", threading.Lock()):  # up to Python 3.12
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            thread = threading.Thread(target=print, args=["in the child"])
            thread.start()
            thread.join()
            os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
a = vlcs.VLC("a")
with getattr(threading, "_shutdown_locks_lock", threading.Lock()):
    assert a.run(fork) == a.submit(fork).result() == 5
""",
        timeout=60,
    )


HAMMER = """
import signal, sys, threading, vlcs
a, b = vlcs.VLC("a"), vlcs.VLC("b", threads=2)
stop = threading.Event()

def threads():
    import os, threading, time
    started = [threading.Thread(target=os.getenv, args=["HOME"]) for _ in range(3)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    os.environ["X"] = "1"
    time.tzset()

def array(size):
    return memoryview(bytearray(size))

def whole_life(**options):
    vlc = vlcs.VLC(**options)
    vlc.load_library("libz.so.1").zlibVersion()
    vlc.close()

def block():
    with b:
        pass

works = [
    lambda: a.run(len, "abc"),
    lambda: b.submit(len, "abc").result(),
    lambda: a.run(threads),
    lambda: b.run(threads),
    lambda: b.run(array, 1 << 21),
    lambda: b.run(array, 100),
    lambda: b.run(bytes, array(1 << 20)),
    lambda: a.run(print, end=""),
    lambda: b.load_library("libz.so.1"),
    lambda: b.resize(1),
    b.stats,
    block,
    whole_life,
    lambda: whole_life(interpreter=False),
]

def repeat(work):
    while not stop.is_set():
        work()

def fork():
    import os
    return os.fork()

def survives(by_guest):
    for vlc in [b] if by_guest else [a, b]:
        for call in (lambda: vlc.run(len, "x"), lambda: vlc.submit(len, "x"), vlc.__enter__, vlc.stats):
            try:
                call()
            except vlcs.StateError:
                continue
            check(False, 3)
        vlc.close()
    if by_guest:
        check(a.run(len, "x") == 1 and a.submit(len, "x").result(20) == 1, 4)
        a.run(threads)
        check(len(a.run(array, 1 << 21)) == 1 << 21, 5)
        a.close()
    whole_life(interpreter=False)
"""


@pytest.mark.parametrize("by_guest", [False, True])
def test_forks_find_no_lock_held_whatever_other_threads_do(by_guest: bool) -> None:
    run_child(
        START
        + HAMMER
        + """
by_guest = sys.argv[1] == "True"
hammers = [threading.Thread(target=repeat, args=[work], daemon=True) for work in works]
for hammer in hammers:
    hammer.start()
end = time.monotonic() + 4
while time.monotonic() < end:
    pid = a.run(fork) if by_guest else os.fork()
    if pid == 0:
        signal.alarm(20)  # a hang
        survives(by_guest)
        os._exit(0)
    code = ended(pid)
    assert code == 0, code
stop.set()
for hammer in hammers:
    hammer.join()
assert a.run(len, "on") == 2 and b.run(len, "on") == 2
""",
        timeout=100,
        args=[str(by_guest)],
    )
