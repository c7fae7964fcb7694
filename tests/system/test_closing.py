"""What close() promises: from anywhere, at any time, and what it says when something pins the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.child import run_child

if TYPE_CHECKING:
    from support.libraries import Builder


def test_what_pins_a_context_is_named_and_costs_nothing(build: Builder) -> None:
    run_child(
        """
        import ctypes, re, sys, threading, time, vlcs
        import numpy as np
        a = vlcs.VLC("a", interpreter=False)
        function = a.load_library(sys.argv[1])["waiters_spin"]
        function.restype = ctypes.c_void_p
        spinning = ctypes.c_int.from_address(function(0))
        while not a.threads():  # it is only just made
            time.sleep(0.001)
        (thread,) = a.threads()
        try:
            a.close(timeout=0.2)
        except vlcs.BusyError as error:
            assert isinstance(error, TimeoutError)
            assert "'a'" in str(error) and f"libwaiters.so (thread {thread})" in str(error), error
        else:
            raise SystemExit("closed although its thread computes")
        assert a.closed and vlcs.contexts() == [a] and "shut" in repr(a)
        vlcs.VLC("a", interpreter=False).close()  # its name is free
        spinning.value = 0
        a.close()
        assert vlcs.contexts() == []

        # A call that is inside, a `with` block of another thread; then what waits costs no CPU.
        b, c = vlcs.VLC("b"), vlcs.VLC("c")
        array = c.run(np.ones, 1000)
        c.close()  # its memory waits for the array
        inside, go = threading.Event(), threading.Event()
        def stay():
            with b:
                inside.set()
                go.wait()
        thread = threading.Thread(target=stay)
        thread.start()
        inside.wait()
        try:
            b.close(0.05)
        except vlcs.BusyError as error:
            assert "a `with` block" in str(error), error
        else:
            raise SystemExit("closed although a thread is inside")
        used = time.process_time()
        time.sleep(0.7)
        assert time.process_time() - used < 0.02, time.process_time() - used
        assert array.sum() == 1000
        go.set()
        b.close()
        thread.join()
        """,
        timeout=60,
        args=[str(build("waiters.c", "libwaiters.so"))],
    )


def test_every_way_into_a_closed_context_is_an_error(build: Builder) -> None:
    run_child(
        """
        import asyncio, ctypes, inspect, sys, vlcs
        path = sys.argv[1]
        a = vlcs.VLC("a")
        library = a.load_library(path)
        function = library.counter_next
        counter = a.import_module("collections").Counter("aab")
        json = a.import_module("json")
        iterator = iter(counter)
        a.close()
        late = {
            "run": lambda: a.run(len, "x"),
            "run a function of a library": lambda: a.run(function, 1),
            "submit": lambda: a.submit(len, "x"),
            "run_async": lambda: asyncio.run(a.run_async(len, "x")),
            "task": lambda: a.task(len)("x"),
            "submit a task": lambda: a.task(len).submit("x"),
            "import_module": lambda: a.import_module("math"),
            "load_library": lambda: a.load_library(path),
            "remote": lambda: a.remote([1]),
            "set_memory": lambda: a.set_memory("local"),
            "migrate_memory": a.migrate_memory,
            "memory_limit": lambda: setattr(a, "memory_limit", "2GiB"),
            "resize": lambda: a.resize("0"),
            "stats": a.stats,
            "threads": a.threads,
            "libraries": a.libraries,
            "verify": a.verify,
            "wrap": lambda: a.wrap(1),
            "slice": lambda: a.slice,
            "with": a.__enter__,
            "vlc_run": lambda: vlcs.vlc_run(a, len, "x"),
            "a function": lambda: function(1),
            "a library": lambda: library.counter_next_of_thread,
            "an address": lambda: library.address_of("counter_next"),
            "an item": lambda: library["counter_next"],
            "a module": lambda: json.dumps,
            "an object": lambda: counter["a"],
            "its method": lambda: counter.total(),
            "its length": lambda: len(counter),
            "an iterator": lambda: next(iterator),
            "setting": lambda: setattr(json, "x", 1),
        }
        for what, use in late.items():
            try:
                use()
            except vlcs.StateError as error:
                assert "'a'" in str(error) and "closed" in str(error), (what, error)
            else:
                sys.exit(f"{what}: no error")
        # What only tells of it still works, and closing again does nothing.
        assert (a.name, a.cpus, a.closed, a.resident, library.path) == ("a", (), True, False, path)
        assert "closed" in repr(a) and "'a'" in repr(library) and "'a'" in repr(counter) and dir(a)
        a.close()
        vlcs.vlc_destroy(a)
        asked = {*late, "name", "cpus", "closed", "close", "resident"}
        public = {name for name, _ in inspect.getmembers(vlcs.VLC) if not name.startswith("_")}
        assert public <= asked, public - asked
        """,
        timeout=60,
        args=[str(build("counter.c", "libcounter.so"))],
    )


def test_close_from_anywhere() -> None:
    run_child(
        """
        import signal, sys, threading, time, vlcs

        def refused(close):
            try:
                close()
            except vlcs.StateError as error:
                assert "from inside" in str(error), error
                return True
            return False

        # another thread than that which made it; a thread that is inside another context; another's job
        other = vlcs.VLC("other")
        for turn in range(3):
            a = vlcs.VLC("a")
            if turn == 0:
                thread = threading.Thread(target=a.close)
                thread.start()
                thread.join()
            elif turn == 1:
                with other:
                    a.close()
            else:
                done = threading.Event()
                job = other.submit(time.sleep, 0.01)
                job.add_done_callback(lambda _: (a.close(), done.set()))
                assert done.wait(20)
            assert a.closed and vlcs.contexts() == [other], turn
        other.close()

        # Inside of itself: refused, and it lives on. From what a guest prints, too.
        a = vlcs.VLC("a")
        with a:
            assert refused(a.close)
        results = []
        class Closing:
            def write(self, text):
                results.append(refused(a.close))
                return len(text)
            def flush(self):
                pass
        before, sys.stdout = sys.stdout, Closing()
        try:
            a.run(print, "x")
        finally:
            sys.stdout = before
        assert results and all(results), results
        done = threading.Event()
        job = a.submit(time.sleep, 0.01)
        job.add_done_callback(lambda _: (results.append(refused(a.close)), done.set()))
        assert done.wait(20) and results[-1]
        # By a signal handler, in the middle of a call
        signal.signal(signal.SIGALRM, lambda *_: results.append(refused(a.close)))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        a.run(time.sleep, 0.2)
        assert a.run(len, "ab") == 2 and not a.closed

        # While calls run, by four threads at once: all wait for the calls, none raises.
        entered = threading.Barrier(3)
        ends = []
        def call():
            with a:
                entered.wait()
                ends.append(a.run(time.sleep, 0.3))
                ends.append(a.run(len, "still inside"))
        def close():
            a.close()
            ends.append("closed")
        callers = [threading.Thread(target=call) for _ in range(2)]
        for thread in callers:
            thread.start()
        entered.wait()
        closers = [threading.Thread(target=close) for _ in range(4)]
        for thread in closers:
            thread.start()
        for thread in callers + closers:
            thread.join()
        assert ends[4:] == ["closed"] * 4 and sorted(ends[:4], key=str) == [12, 12, None, None], ends
        """,
        timeout=60,
    )


@pytest.mark.parametrize("timeout", ["1e30", "float('inf')", "2**70", "1e7"])
def test_any_number_of_seconds(timeout: str) -> None:
    run_child(
        f"""
        import vlcs
        for options in ({{}}, {{"interpreter": False}}):
            a = vlcs.VLC("a", **options)
            a.close({timeout})
            assert vlcs.contexts() == []
        """,
        timeout=30,
    )


def test_the_interpreters_end_may_compute_but_not_wait_for_long() -> None:
    run_child(
        """
        import atexit, threading, time, vlcs
        def register(seconds, computes):
            import atexit, time
            def end():
                deadline = time.monotonic() + seconds
                while computes and time.monotonic() < deadline:
                    pass
                time.sleep(max(0, deadline - time.monotonic()))
            atexit.register(end)
        took = {}
        def close(vlc):
            start = time.monotonic()
            try:
                vlc.close()
            except vlcs.BusyError as error:
                assert "atexit functions or threads" in str(error), error
            took[vlc.name] = time.monotonic() - start
        computes, waits = vlcs.VLC("computes"), vlcs.VLC("waits")
        computes.run(register, 5.6, True)
        waits.run(register, 6.5, False)
        threads = [threading.Thread(target=close, args=[vlc]) for vlc in (computes, waits)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert vlcs.contexts() == [waits], took
        assert took["computes"] > 5.3 and 4.5 < took["waits"] < 7, took
        waits.close(30)
        """,
        timeout=60,
    )


def test_at_exit_the_newest_goes_first() -> None:
    finished = run_child(
        """
        import sys, vlcs
        def register(name):
            import atexit
            atexit.register(print, name)
        def block(name):
            import atexit, time
            atexit.register(time.sleep, 30)
        contexts = [vlcs.VLC(name) for name in "abcd"]
        for vlc in contexts:
            vlc.run(block if vlc.name == "c" else register, vlc.name)
        """,
        timeout=15,
    )
    assert finished.lines == ["d", "b", "a"], finished
    assert "at exit: the Python of the context 'c' is not finalised yet" in finished.stderr
