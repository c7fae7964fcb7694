"""Signals (F3): a guest's handlers are its own; those of the host, and of the process, stay."""

from __future__ import annotations

import signal

from support.child import run_child


def test_handlers_of_a_guest_leave_those_of_the_host_alone() -> None:
    run_child(
        """
        import os, signal, vlcs
        numbers = [signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE]
        seen = []
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        before = {number: signal.getsignal(number) for number in numbers}

        def guest():
            import signal
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL  # as in a new process
            assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN  # which inherits what is ignored
            def handler(number, frame):
                raise SystemExit("the guest's handler was called")
            for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, handler)
                assert signal.getsignal(number) is handler
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.siginterrupt(signal.SIGUSR1, True)

        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        a.submit(guest).result()  # on the first thread of the guest, the only one that may
        assert {number: signal.getsignal(number) for number in numbers} == before
        os.kill(os.getpid(), signal.SIGUSR1)
        a.submit(os.kill, os.getpid(), signal.SIGUSR1).result()
        a.submit(lambda: None).result()
        assert seen == [signal.SIGUSR1] * 2, seen
        def other():
            import signal
            return signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        assert b.submit(other).result()
        read, write = os.pipe()
        os.close(read)
        try:
            os.write(write, b"x")  # SIGPIPE is still ignored
        except BrokenPipeError:
            pass
        a.close()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(seen) == 3
        """,
        timeout=60,
    )


def test_asyncio_in_a_guest_and_in_the_host() -> None:
    run_child(
        """
        import asyncio, os, signal, vlcs
        def guest():
            import asyncio, signal
            async def work():
                asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print, "guest")
                await asyncio.sleep(0.01)
                return 7
            return asyncio.run(work())
        async def host():
            got = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
            assert await asyncio.wrap_future(a.submit(guest)) == 7
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(got.wait(), 5)
        a = vlcs.VLC("a")
        asyncio.run(host())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        """,
        timeout=60,
    )


def test_faulthandler_of_a_guest_tells_its_crash_and_the_process_ends_by_it() -> None:
    finished = run_child(
        """
        import vlcs
        def guest():
            import faulthandler, sys
            faulthandler.enable(sys.__stderr__.fileno())
        def crash():
            import ctypes
            ctypes.string_at(8)
        a = vlcs.VLC("a")
        a.submit(guest).result()
        a.submit(crash).result()
        """,
        timeout=60,
        env={"PYTHONFAULTHANDLER": None},
        code=-signal.SIGSEGV,
    )
    assert "Fatal Python error: Segmentation fault" in finished.stderr
    assert "in crash" in finished.stderr


def test_a_crash_of_the_host_is_told_by_its_own_faulthandler() -> None:
    finished = run_child(
        """
        import ctypes, faulthandler, vlcs
        def guest():
            import faulthandler
            faulthandler.enable()
        def host_crashes():
            ctypes.string_at(8)
        faulthandler.enable()
        a = vlcs.VLC("a")
        a.submit(guest).result()
        a.close()
        with vlcs.VLC("b") as b:
            b.submit(guest).result()
        host_crashes()
        """,
        timeout=60,
        env={"PYTHONFAULTHANDLER": None},
        code=-signal.SIGSEGV,
    )
    assert finished.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert "in host_crashes" in finished.stderr
