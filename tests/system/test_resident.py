"""Resident contexts from Python: every way in from a host thread, and no bound by libgomp (case L6)."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from support.child import run_child

if TYPE_CHECKING:
    from support.libraries import Builder

THREADS = textwrap.dedent(
    """
    import threading
    def on_other_threads(function, count=4):
        results, errors = [], []
        def body():
            try: results.append(function())
            except BaseException as error: errors.append(error)
        threads = [threading.Thread(target=body) for _ in range(count)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        if errors: raise errors[0]
        return results
    """
)


def program(text: str) -> str:
    return THREADS + textwrap.dedent(text)


def test_every_way_into_the_interpreter() -> None:
    run_child(
        program(
            """
            import gc, os, sys, threading, time
            import numpy as np
            import vlcs

            vlc = vlcs.VLC("home", resident=True)
            assert vlc.resident and vlc.stats().resident and not vlcs.VLC("other", resident=False).resident

            def where():
                import threading
                local = where.__globals__.setdefault("_local", threading.local())
                local.calls = getattr(local, "calls", 0) + 1
                return threading.get_native_id(), local.calls

            # One thread stands for this one, in every call; others for others, and they end with these.
            vlc.run(exec, "import threading; local = threading.local()")
            first, again = vlc.run(where), vlc.run(where)
            assert first[0] == again[0] != threading.get_native_id(), (first, again)
            assert first[0] in vlc.threads()
            before = vlc.stats().threads
            others = on_other_threads(lambda: [vlc.run(where)[0] for _ in range(3)])
            assert all(len(set(ids)) == 1 and ids[0] != first[0] for ids in others), others
            end = time.monotonic() + 10  # join() returns a little before a thread has ended
            while vlc.stats().threads != before and time.monotonic() < end: time.sleep(0.01)
            assert vlc.stats().threads == before, vlc.threads()

            # submit, modules, attributes, kept objects, iteration, exceptions
            assert vlc.submit(os.getpid).result() == os.getpid()
            module = vlc.import_module("collections")
            counter = module.Counter("abca")
            assert counter["a"] == 2 and len(counter) == 3 and "b" in counter
            assert sorted(counter) == ["a", "b", "c"]
            counter["z"] = 5
            assert on_other_threads(lambda: counter["z"]) == [5] * 4
            try:
                vlc.run(int, "x")
            except ValueError as error:
                assert "invalid literal" in str(error)
            else:
                sys.exit("no ValueError")

            # arrays both ways, released on other threads too
            array = np.arange(1 << 18, dtype=float)
            double = vlc.run(np.multiply, array, 2)
            assert double[-1] == 2 * array[-1]
            del array
            made = vlc.run(np.ones, 1 << 18)
            assert vlc.stats().leases == 2, vlc.stats().leases
            def drop():
                global made, double
                made = double = None
            on_other_threads(drop, 1)
            gc.collect()
            vlc.run(int)
            assert vlc.stats().leases == 0, vlc.stats().leases

            # a block only keeps it open
            with vlc:
                with vlc:
                    assert vlc.run(where)[0] == first[0]
            try:
                with vlc: vlc.close()
            except vlcs.StateError as error:
                assert "from inside" in str(error), error
            else:
                sys.exit("closed from inside")

            # what a guest asks of the host runs on the thread that called, with its locks
            lock = threading.RLock()
            seen = []
            class Stream:
                encoding, errors = "utf-8", "strict"
                def write(self, text):
                    with lock: seen.append((text, threading.get_ident()))
                    return len(text)
                def flush(self): pass
                def isatty(self): return False
            stdout, sys.stdout = sys.stdout, Stream()
            with lock: vlc.run(print, "hello")
            sys.stdout = stdout
            assert "".join(text for text, _ in seen) == "hello\\n", seen
            assert {ident for _, ident in seen} == {threading.get_ident()}, seen
            vlc.close()
            """
        ),
        timeout=60,
    )


def test_every_way_into_a_library(build: Builder) -> None:
    library = build("resident.c", "libresident.so", "-O1", "-ftls-model=initial-exec")
    run_child(
        program(
            """
            import ctypes, errno, sys, threading
            import vlcs
            vlc = vlcs.VLC("native", resident=True, interpreter=False)
            library = vlc.load_library(sys.argv[1])
            long_, pointer = ctypes.c_long, ctypes.c_void_p
            count = library.resident_count
            count.restype, count.argtypes = long_, [long_]
            assert [count(2), count(2)] == [2, 4]
            assert on_other_threads(lambda: (count(1), count(1))[1]) == [2] * 4  # each has its own variables
            assert vlc.run(count, 1) == 5
            assert vlc.submit(count, 1).result() == 1
            with vlc: assert count(0) == 5
            # by address, and as a pointer that the host's C code calls
            prototype = ctypes.CFUNCTYPE(long_, long_)
            by_address = prototype(library.address_of("resident_count"))
            assert by_address(1) == 6
            compares = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)
            comparator = compares(library.address_of("resident_count"))
            numbers = (ctypes.c_int * 2)(2, 1)
            ctypes.CDLL(None).qsort(numbers, 2, 4, comparator)
            # out and in again: on the thread that waits there
            callback = prototype(lambda by: count(by))
            class Call(ctypes.Structure):
                _fields_ = [("function", prototype), ("argument", long_)]
            call = Call(callback, 0)
            library.resident_call.restype = long_
            now = count(0)
            assert library.resident_call(ctypes.byref(call)) == now
            # errno
            with_errno = vlc.load_library(sys.argv[1], use_errno=True)
            ctypes.set_errno(33)
            with_errno.resident_state.restype = long_
            assert with_errno.resident_state(long_(33)) != 17  # the first that it expects is errno
            assert ctypes.get_errno() in (33, 34)
            for name in ("threads", "ways_to_join", "attributes"):
                function = library[f"resident_{name}"]
                function.restype = long_
                wrong = function(long_(3))
                assert wrong == 0, (name, wrong)
            # a variable is itself
            flag = long_(0)
            pointer.from_address(library.address_of("resident_at_end")).value = ctypes.addressof(flag)
            vlc.close()
            assert flag.value == 1  # its destructor ran, on a thread that has its variables
            """
        ),
        timeout=60,
        args=[str(library)],
    )


def test_ctrl_c_and_signals() -> None:
    run_child(
        """
        import os, signal, sys, threading, time
        import vlcs
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        vlc = vlcs.VLC(resident=True)
        def spin():
            while True: pass
        for _ in range(3):
            threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
            start = time.monotonic()
            try:
                vlc.run(spin)
            except KeyboardInterrupt:
                assert time.monotonic() - start < 10
            else:
                sys.exit("no KeyboardInterrupt")
            assert vlc.run(abs, -3) == 3
        # a signal of the host finds the host's main thread
        got = []
        signal.signal(signal.SIGUSR1, lambda *_: got.append(threading.current_thread()))
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        vlc.run(time.sleep, 0.5)
        assert got == [threading.main_thread()], got
        # in a callback of the guest's print too
        class Stream:
            encoding, errors = "utf-8", "strict"
            def write(self, text):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000): time.sleep(0.01)
            def flush(self): pass
            def isatty(self): return False
        stdout, sys.stdout = sys.stdout, Stream()
        try:
            vlc.run(print, "x")
        except KeyboardInterrupt:
            pass
        else:
            os._exit(3)
        sys.stdout = stdout
        vlc.close()
        """,
        timeout=60,
    )


def test_fork() -> None:
    run_child(
        """
        import multiprocessing, os, subprocess, sys
        import vlcs
        vlc = vlcs.VLC(resident=True)
        def workers():
            import multiprocessing, os
            context = multiprocessing.get_context("fork")
            with context.Pool(2) as pool:
                return pool.map(abs, [-1, -2, -3])
        assert vlc.run(workers) == [1, 2, 3]
        def fork():
            import os
            child = os.fork()
            if child == 0:
                os._exit(7 if abs(-7) == 7 else 1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert vlc.run(fork) == 7
        assert vlc.submit(fork).result() == 7
        # the thread that called is not in the child: it ends when the call returns there
        child = vlc.run(os.fork)
        assert child > 0
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        child = os.fork()
        if child == 0:
            try:
                vlc.run(abs, -1)
            except vlcs.StateError:
                fresh = vlcs.VLC(resident=True)
                good = fresh.run(abs, -1) == 1
                fresh.close()
                os._exit(0 if good else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert vlc.run(subprocess.call, [sys.executable, "-c", "raise SystemExit(5)"]) == 5
        assert vlc.run(abs, -4) == 4
        vlc.close()
        """,
        timeout=60,
    )


def test_exit_with_open_contexts() -> None:
    finished = run_child(
        """
        import sys, threading, time
        import vlcs
        contexts = [vlcs.VLC(resident=True) for _ in range(3)]
        contexts[0].run(exec, "import atexit; atexit.register(print, 'bye')")
        threading.Thread(target=contexts[1].run, args=(time.sleep, 0.5)).start()
        def wait(): threading.Event().wait()
        threading.Thread(target=contexts[2].run, args=(abs, -1), daemon=True).start()
        sys.exit(3)
        """,
        timeout=30,
        code=3,
    )
    assert "bye" in finished.stdout


def test_everything_is_given_back() -> None:
    run_child(
        """
        import gc, os, threading
        import vlcs
        def figures():
            gc.collect()
            with open("/proc/self/statm") as statm: pages = int(statm.read().split()[1])
            with open("/proc/self/maps") as maps: count = sum(1 for _ in maps)
            return pages // 256, count, len(os.listdir("/proc/self/task"))
        def use(vlc):
            threads = [threading.Thread(target=vlc.run, args=(abs, -1)) for _ in range(3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert vlc.run(sum, [1, 2]) == 3
        for round in range(24):
            vlc = vlcs.VLC(resident=True)
            use(vlc)
            vlc.close()
            if round == 7: megabytes, mappings, threads = figures()
        after = figures()
        assert after[0] <= megabytes + 4 and after[1] <= mappings + 16 and after[2] == threads, (
            (megabytes, mappings, threads), after)
        """,
        timeout=120,
    )


def test_libgomp_in_more_contexts_than_the_pool_holds() -> None:
    run_child(
        """
        import vlcs
        def work(seed):
            import numpy as np, torch
            from sklearn.ensemble import HistGradientBoostingClassifier
            x = np.random.RandomState(seed).rand(200, 4)
            y = (x[:, 0] > 0.5).astype(int)
            score = HistGradientBoostingClassifier(max_iter=5).fit(x, y).score(x, y)
            return float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()), score
        assert vlcs.limits().static_tls_total <= 768, vlcs.limits()
        contexts = [vlcs.VLC() for _ in range(5)]
        assert [vlc.resident for vlc in contexts] == [False, False, True, True, True]
        results = [vlc.run(work, 1) for vlc in contexts]
        assert len(set(results)) == 1 and results[0][0] == 64.0 ** 3, results
        futures = [vlc.submit(work, 2) for vlc in contexts]
        assert len({future.result() for future in futures}) == 1
        assert vlcs.limits().resident == 3
        for vlc in contexts: vlc.close()
        """,
        timeout=240,
    )
