"""Ctrl-C, SIGTERM and wake-ups (F3, R11) in each kind of call: what is interrupted, and when."""

from __future__ import annotations

import signal

import pytest

from support.child import run_child

START = """
import asyncio, os, signal, sys, threading, time, vlcs

def press(after, number=signal.SIGINT):
    threading.Timer(after, os.kill, [os.getpid(), number]).start()

def interrupted(call, *args):
    start = time.monotonic()
    try:
        call(*args)
    except KeyboardInterrupt:
        return time.monotonic() - start
    raise SystemExit("not interrupted")

def sleep(seconds):
    import time
    time.sleep(seconds)

def endless():
    while True:
        pass
"""


def test_ctrl_c_in_each_kind_of_call() -> None:
    run_child(
        START
        + """
def numpy_loop():
    import numpy
    x = numpy.ones((200, 200))
    while True:
        x = (x @ x) / 200
def ticking():
    import asyncio
    async def tick():
        while True:
            await asyncio.sleep(0.02)
    asyncio.run(tick())
def waiting(seconds):
    import asyncio
    asyncio.run(asyncio.sleep(seconds))
a = vlcs.VLC("a")
a.run(__import__, "numpy")
for work in (numpy_loop, endless, ticking):
    press(0.3)
    assert interrupted(a.run, work) < 2, work
for work in (sleep, waiting):  # what blocks in C ends first
    press(0.3)
    assert 1 <= interrupted(a.run, work, 1.0) < 2.5, work
press(0.3)
press(0.9)  # twice: each is one exception
assert interrupted(a.run, endless) < 0.9
assert interrupted(time.sleep, 5) < 2
job = a.submit(sleep, 1.5)
press(0.3)
assert interrupted(job.result) < 1.2  # who waits is interrupted; the job is not
assert job.running() and job.result() is None
assert a.run(len, "on") == 2
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""",
        timeout=60,
    )


def test_ctrl_c_in_asyncio_of_the_host() -> None:
    run_child(
        START
        + """
a = vlcs.VLC("a")
jobs = []
async def future():
    jobs.append(a.submit(sleep, 1.5))
    await asyncio.wrap_future(jobs[0])
async def executor():
    await asyncio.get_running_loop().run_in_executor(None, a.run, sleep, 1.5)
press(0.3)
assert interrupted(asyncio.run, future()) < 1.2
assert jobs[0].running() and jobs[0].result() is None
press(0.3)
assert 1 < interrupted(asyncio.run, executor()) < 4  # asyncio.run waits for its threads, as for any function
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""",
        timeout=60,
    )


@pytest.mark.parametrize("work", ["a.run(endless)", "a.run(sleep, 20)", "a.submit(endless).result()"])
def test_sigterm_ends_the_process_whatever_it_is_in(work: str) -> None:
    run_child(
        START
        + f"""
a = vlcs.VLC("a")
press(0.3, signal.SIGTERM)
{work}
""",
        timeout=20,
        code=-signal.SIGTERM,
    )


def test_handlers_of_the_host_run_where_python_runs() -> None:
    finished = run_child(
        START
        + """
import socket
a = vlcs.VLC("a")
reader, writer = socket.socketpair()
writer.setblocking(False)
signal.set_wakeup_fd(writer.fileno())
times = {}
signal.signal(signal.SIGUSR1, lambda *_: times.setdefault("handler", time.monotonic()))
def wait():
    reader.recv(1)
    times["wake-up"] = time.monotonic()
waiter = threading.Thread(target=wait)
waiter.start()
press(0.2, signal.SIGUSR1)
start = time.monotonic()
a.run(sleep, 1.5)
waiter.join()
assert times["wake-up"] - start < 1.2  # written at once
assert times["handler"] - start >= 1.5  # when the call returns

def on_term(*_):
    print("handled")
    sys.exit(9)
signal.signal(signal.SIGTERM, on_term)
press(0.2, signal.SIGTERM)
a.submit(sleep, 1.5).result()  # who waits for a future runs handlers at once
""",
        timeout=30,
        code=9,
    )
    assert finished.lines == ["handled"]


def test_faulthandlers_other_functions_in_a_guest() -> None:
    finished = run_child(
        START
        + """
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append("host"))
def later(**options):
    import faulthandler, time
    faulthandler.dump_traceback_later(0.2, file=2, **options)
    def where_it_is():
        time.sleep(0.6)
    where_it_is()
    faulthandler.cancel_dump_traceback_later()
def register():
    import faulthandler, os, signal
    faulthandler.register(signal.SIGUSR1, file=2)
    os.kill(os.getpid(), signal.SIGUSR1)
    return faulthandler.unregister(signal.SIGUSR1)
a = vlcs.VLC("a")
a.run(later)
a.submit(later).result()
assert a.submit(register).result()
assert seen == ["host"], seen
a.run(later, exit=True)
""",
        timeout=30,
        code=1,
    )
    assert finished.stderr.count("Timeout (0:00:00.200000)!") == 3
    assert finished.stderr.count("in where_it_is") == 3


def test_numba_in_host_and_contexts_and_a_fault_in_its_code() -> None:
    finished = run_child(
        """
        import faulthandler, vlcs
        def work(n):
            import faulthandler, numba, numpy
            faulthandler.enable()
            @numba.njit
            def total(x):
                t = 0.0
                for i in range(x.size):
                    t += x[i]
                return t
            return total(numpy.ones(n))
        def crash():
            import numba, numpy
            @numba.njit
            def bad(x):
                return x[1 << 40]
            bad(numpy.ones(3))
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        assert [a.submit(work, 3).result(), b.run(work, 4), work(5)] == [3, 4, 5]
        a.close()
        assert [b.run(work, 6), work(7)] == [6, 7]
        b.run(crash)
        """,
        timeout=100,
        code=-signal.SIGSEGV,
    )
    assert "in crash" in finished.stderr


def test_ctrl_c_at_any_moment_of_a_call() -> None:
    run_child(
        START
        + """
import gc, operator, random, numpy as np
from typing import cast
a, b = vlcs.VLC("a"), vlcs.VLC("b")
array = np.arange(1000.0).reshape(20, 50)
class Own:
    def __init__(self, x): self.x = x
def fail(): raise ValueError("there")
def raises(kinds, call, *args):
    try: call(*args)
    except kinds: return True
fractions = a.import_module("fractions")
kinds = [
    lambda n: a.run(operator.add, n, 1) == n + 1,
    lambda n: a.run(list, ("x", n, {"y": 1.5})) == ["x", n, {"y": 1.5}],
    lambda n: a.run(cast, None, array)[1, 0] == 50,
    lambda n: a.run(cast, None, [array[::2], object])[0][1, 0] == 100,
    lambda n: a.run(cast, None, Own(n)).x == n,
    lambda n: a.run(lambda own: sum(range(2000)) and own.x, Own(n)) == n,
    lambda n: raises(ZeroDivisionError, a.run, operator.truediv, 1, 0),
    lambda n: raises(ValueError, a.run, fail),
    lambda n: a.submit(operator.mul, n, 2).result() == 2 * n,
    lambda n: fractions.Fraction(n, n + 1).numerator == n,
    lambda n: b.run(cast, None, a.run(np.arange, 10))[-1] == 9,
    lambda n: raises(vlcs.PicklingError, a.run, cast, None, threading.Lock()),
    lambda n: a.run(print, end="") is None,
]
for vlc in (a, b):  # what an import leaves that is interrupted is no concern of ours
    vlc.run(exec, "import cloudpickle, numpy, traceback")
for kind in kinds:
    kind(1)
chance = random.Random(0)
begun, seen, ended = threading.Event(), threading.Event(), threading.Event()
def pressing():
    chance = random.Random(1)
    begun.wait()
    while not ended.wait(chance.random() * 0.004):
        seen.clear()
        os.kill(os.getpid(), signal.SIGINT)
        seen.wait()  # the next would end the handling of this one
presser = threading.Thread(target=pressing)
presser.start()
calls = interrupts = 0
end = time.monotonic() + 5
while not ended.is_set():
    try:
        begun.set()
        while time.monotonic() < end:
            calls += 1
            kind = chance.randrange(len(kinds))
            assert kinds[kind](calls), kind
        ended.set()
    except KeyboardInterrupt:
        interrupts += 1
        seen.set()
    except BaseException:
        ended.set()
        seen.set()
        raise
while presser.is_alive():
    try: presser.join()
    except KeyboardInterrupt: seen.set()
assert interrupts > 50 and calls > interrupts, (calls, interrupts)
for vlc in (a, b):
    vlc.run(gc.collect)
gc.collect()
for vlc in (a, b):
    vlc.run(len, "")
    assert vlc.stats().leases == 0
""",
        timeout=60,
    )
