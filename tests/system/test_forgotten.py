"""Contexts that nobody closes: once nothing refers to them, they are closed in the background."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from support.child import Finished, run_child

if TYPE_CHECKING:
    from support.libraries import Builder

# Warnings are shown once for a line otherwise.
HEAD = """
import gc, os, sys, threading, time, warnings, weakref
import vlcs

warnings.simplefilter("always")

def until(reached, seconds=20):
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.005)

def gone(name=None):
    assert name is None or name not in [vlc.name for vlc in vlcs.contexts()]
    until(lambda: vlcs.limits().contexts == 0)

"""


def run(program: str, *args: object, timeout: float = 60, **options: object) -> Finished:
    """Runs a program that forgets contexts."""
    text = HEAD + textwrap.dedent(program)
    return run_child(text, timeout=timeout, args=[str(arg) for arg in args], **options)  # type: ignore[arg-type]


def test_it_is_closed_and_named_with_the_line_that_made_it() -> None:
    finished = run(
        """
        def use():
            vlc = vlcs.VLC("lost")
            assert vlc.run(len, "works") == 5
            assert vlcs.contexts() == [vlc]
        use()
        gone("lost")
        assert vlcs.contexts() == []
        vlcs.VLC("lost", interpreter=False).close()  # its name is free
        """
    )
    made = [n for n, line in enumerate((HEAD + "\n    vlc").splitlines(), 1) if line][-1] + 1
    warnings = [line for line in finished.stderr.splitlines() if "ResourceWarning" in line]
    assert len(warnings) == 1, finished.stderr
    assert f"<string>:{made}: ResourceWarning: the context 'lost' was forgotten" in warnings[0]
    assert "close it" in warnings[0]


def test_what_comes_of_it_keeps_it(build: Builder) -> None:
    run(
        """
        import ctypes, functools
        path = sys.argv[1]
        def alive(name):
            gc.collect()
            time.sleep(0.05)
            (vlc,) = vlcs.contexts()
            assert vlc.name == name and not vlc.closed
        # a module, what it holds, what it made
        json = vlcs.VLC("a").import_module("json")
        alive("a")
        assert json.loads("[1]") == [1]
        dumps = json.dumps
        del json
        alive("a")
        assert dumps([2]) == "[2]"
        del dumps
        gone("a")
        counter = vlcs.VLC("b").import_module("collections").Counter("aab")
        alive("b")
        assert counter["a"] == 2
        items = counter.items()
        del counter
        alive("b")
        assert len(items) == 2
        del items
        gone("b")
        # a library, a function of it
        library = vlcs.VLC("c", interpreter=False).load_library(path)
        alive("c")
        assert library.counter_next(1) == 1
        count = library.counter_next
        del library
        alive("c")
        assert count(1) == 2
        del count
        gone("c")
        count = vlcs.VLC("d", interpreter=False).load_library(path)["counter_next"]
        partial = functools.partial(count)
        del count
        alive("d")
        assert partial(1) == 1
        del partial
        gone("d")
        # a bound method, an iterator there
        run = vlcs.VLC("e").run
        alive("e")
        assert run(len, "abc") == 3
        del run
        gone("e")
        """,
        build("counter.c", "libcounter.so"),
    )


def test_work_keeps_it_until_it_is_done() -> None:
    run(
        """
        import contextlib
        # jobs that run and wait
        vlc = vlcs.VLC("a")
        futures = [vlc.submit(time.sleep, 0.3), vlc.submit(len, "abc")]
        del vlc
        gc.collect()
        assert [vlc.name for vlc in vlcs.contexts()] == ["a"]
        assert futures[1].result(20) == 3
        gone("a")
        # one whose future is forgotten too
        done = threading.Event()
        vlcs.VLC("b").submit(time.sleep, 0.2).add_done_callback(lambda _: done.set())
        assert done.wait(20)
        gone("b")
        # a call on another thread
        entered = threading.Event()
        def call():
            results.append(vlcs.VLC("c").run(time.sleep, 0.3) is None)
        results = []
        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: vlcs.limits().contexts == 1)
        gc.collect()
        thread.join()
        assert results == [True]
        gone("c")
        # a `with` block, and one that is entered without `with`
        vlc = vlcs.VLC("d")
        with vlc:
            del vlc
            gc.collect()
            (vlc,) = vlcs.contexts()
            assert vlc.run(len, "abcd") == 4
            del vlc
        gone("d")
        vlcs.VLC("e").__enter__()
        gc.collect()
        (vlc,) = vlcs.contexts()
        vlc.__exit__(None, None, None)
        del vlc
        gone("e")
        with contextlib.ExitStack() as stack:
            stack.enter_context(vlcs.VLC("f"))
            assert len(vlcs.contexts()) == 1
        gone("f")
        # its own block forgets the context: it goes after the block
        def block():
            with vlcs.VLC("g") as vlc:
                del vlc
                gc.collect()
                yield
        generator = block()
        next(generator)
        assert len(vlcs.contexts()) == 1
        del generator
        gone("g")
        """
    )


def test_an_array_of_it_stays_valid() -> None:
    run(
        """
        def ones(n):
            import numpy as np
            return np.ones(n)
        x = vlcs.VLC("a").run(ones, 1_000_000)
        gone("a")
        assert x.sum() == 1_000_000
        del x
        """
    )


def test_cycles_are_found_by_the_collector() -> None:
    run(
        """
        gc.disable()
        class Model:
            def __init__(self):
                self.vlc = vlcs.VLC("a", interpreter=False)
                self.own = self
        Model()
        assert vlcs.limits().contexts == 1 and len(vlcs.contexts()) == 1
        gc.collect()
        gone("a")
        # one that a finalizer of the cycle closes first
        class Closing(Model):
            def __del__(self):
                self.vlc.close()
        Closing()
        gc.collect()
        gone("a")
        # subclasses
        class Mine(vlcs.VLC):
            pass
        mine = Mine("b", interpreter=False)
        mine.own = mine
        del mine
        gc.collect()
        gone("b")
        """
    )


def test_50_in_a_loop_leave_nothing() -> None:
    run(
        """
        def work():
            import json
            return json.loads("[100.0]")[0]
        def footprint():
            gc.collect()
            with open("/proc/self/statm") as statm:
                megabytes = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
            return megabytes, len(os.listdir("/proc/self/task"))
        warnings.simplefilter("ignore")
        for turn in range(1, 51):
            assert vlcs.VLC("n" if turn % 2 else None).run(work) == 100.0
            if turn % 2:
                gone()  # the name is needed again
            if turn == 10:
                gone()
                early = footprint()
        gone()
        until(lambda: footprint()[1] <= early[1])
        last = footprint()
        assert last[0] < early[0] + 8, (early, last)
        """
    )


@pytest.mark.parametrize("options", ["", ", interpreter=False"])
def test_where_it_is_collected_nothing_waits(options: str) -> None:
    """With any lock held, on any thread, also inside of other contexts and itself."""
    run(
        f"""
        import logging, queue, signal
        def make(name):
            vlc = vlcs.VLC(name{options})
            vlc.own = vlc
        gc.disable()
        lock = threading.Lock()
        def show(*_, **__):
            with lock:
                pass
        warnings.showwarning = show
        warnings._showwarnmsg_impl = show
        other = vlcs.VLC("other")
        for turn in range(3):
            make(f"locks-{{turn}}")
            # Locks that starting a thread, logging and the registry of contexts take.
            from vlcs._core._registry import REGISTRY
            with lock, threading._active_limbo_lock, logging._lock, REGISTRY.lock:
                start = time.monotonic()
                gc.collect()
                assert time.monotonic() - start < 1
            until(lambda: vlcs.limits().contexts == 1)
            make(f"inside-{{turn}}")
            with other:
                gc.collect()
                until(lambda: vlcs.limits().contexts == 1)
            make(f"job-{{turn}}")
            other.submit(len, "x").result()
            # collected by a thread of the other context's pool, in a callback of its job
            future = other.submit(time.sleep, 0.05)
            future.add_done_callback(lambda _: gc.collect())
            until(lambda: vlcs.limits().contexts == 1)
            make(f"handler-{{turn}}")
            signal.signal(signal.SIGUSR1, lambda *_: gc.collect())
            os.kill(os.getpid(), signal.SIGUSR1)
            until(lambda: vlcs.limits().contexts == 1)
        other.close()
        # The last reference goes inside of the context itself, on its own thread.
        vlc = vlcs.VLC("self")
        future = vlc.submit(time.sleep, 0.1)
        future.add_done_callback(lambda _, kept=[vlc]: kept.clear())
        del vlc
        gone()
        """
    )


def test_at_exit_what_is_forgotten_is_closed_as_everything_else() -> None:
    finished = run(
        """
        import atexit
        def report():
            import atexit
            atexit.register(print, "ended")
        for name in "abc":
            vlcs.VLC(name).run(report)  # being closed, or waiting for it, as the program ends
        kept = vlcs.VLC("kept")
        kept.run(report)
        kept.own = kept
        del kept
        """
    )
    assert finished.stdout.count("ended") == 4, finished.stdout
    assert "kept" not in finished.stderr, finished.stderr


def test_after_close_or_a_fork_nothing_is_told() -> None:
    finished = run(
        """
        vlc = vlcs.VLC("a", interpreter=False)
        vlc.close()
        del vlc
        vlc = vlcs.VLC("b", interpreter=False)
        child = os.fork()
        if child == 0:
            del vlc
            vlcs.VLC("c", interpreter=False).load_library("libz.so.1")
            until(lambda: not vlcs.contexts() and vlcs.limits().contexts == 0)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        vlc.close()
        """
    )
    assert finished.stderr.count("ResourceWarning") == 1, finished.stderr
    assert "'c'" in finished.stderr


def test_where_warnings_are_errors_it_is_closed_all_the_same() -> None:
    finished = run(
        """
        warnings.simplefilter("error")
        vlcs.VLC("a", interpreter=False)
        gone("a")
        vlcs.VLC("b", interpreter=False)
        gone("b")
        """
    )
    assert finished.stderr.count("ResourceWarning: the context") == 2, finished.stderr


def test_one_whose_thread_computes_is_named_and_closed_later(build: Builder) -> None:
    finished = run(
        """
        import ctypes, logging
        logging.basicConfig()
        library = vlcs.VLC("busy", interpreter=False).load_library(sys.argv[1])
        library.waiters_spin.restype = ctypes.c_void_p
        spinning = ctypes.c_int.from_address(library.waiters_spin(0))
        start = time.monotonic()
        del library
        until(lambda: vlcs.limits().contexts == 0)  # takes no more work
        # The thread that closes gives up after a while.
        from vlcs._core import _forgotten
        until(lambda: not _forgotten._waiting and not _forgotten._busy.locked(), 30)
        spinning.value = 0
        """,
        build("waiters.c", "libwaiters.so"),
    )
    assert "closing a forgotten context: context 'busy' is closed, but 1 of its threads" in finished.stderr
    assert "libwaiters.so" in finished.stderr
