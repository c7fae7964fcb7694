"""The end of the process with contexts in it, Ctrl-C, and where a guest's output goes."""

from __future__ import annotations

import time

import pytest

from support.child import run_child


@pytest.mark.preload
@pytest.mark.parametrize("close", [True, False])
def test_a_process_with_torch_in_three_contexts_ends_in_time(close: bool) -> None:
    finished = run_child(
        """
        import sys, time, vlcs
        def work():
            import torch
            return float((torch.ones(300, 300) @ torch.ones(300, 300)).sum())
        contexts = [vlcs.VLC() for _ in range(3)]
        assert [context.run(work) for context in contexts] == [27_000_000.0] * 3
        print(time.monotonic(), flush=True)
        if sys.argv[1] == "True":
            for context in contexts:
                context.close()
        sys.exit(3)
        """,
        timeout=100,
        args=[str(close)],
        preload=True,
        code=3,
    )
    seconds = time.monotonic() - float(finished.lines[0])
    assert seconds < 5, f"the process took {seconds:.1f} s to end"
    assert not finished.stderr, finished.stderr


@pytest.mark.parametrize(
    ("ending", "code"),
    [("pass", 0), ("sys.exit(7)", 7), ("raise ValueError('uncaught')", 1), ("os.kill(os.getpid(), 15)", -15)],
)
def test_the_exit_code_and_output_are_as_without_contexts(ending: str, code: int) -> None:
    finished = run_child(
        f"""
        import atexit, os, sys, time, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        def leave_words(name):
            import atexit
            atexit.register(print, "end of", name)
        a.run(leave_words, "a")
        b.run(leave_words, "b")
        atexit.register(print, "end of host")
        a.submit(time.sleep, 0.1)
        print(time.monotonic())
        {ending}
        """,
        timeout=30,
        code=code,
    )
    assert time.monotonic() - float(finished.lines[0]) < 5
    if code >= 0:  # closed in reverse order, after the host's own handlers
        assert finished.lines[1:] == ["end of host", "end of b", "end of a"]
    if code == 1:
        assert "ValueError: uncaught" in finished.stderr


def test_the_end_does_not_wait_for_a_guest_that_computes() -> None:
    finished = run_child(
        """
        import sys, time, vlcs
        def forever():
            while True:
                pass
        a = vlcs.VLC("a")
        a.submit(forever)
        time.sleep(0.3)
        print(time.monotonic(), flush=True)
        sys.exit(4)
        """,
        timeout=30,
        code=4,
    )
    assert time.monotonic() - float(finished.lines[0]) < 8


def test_the_end_does_not_wait_for_c_code_that_keeps_a_gil() -> None:
    start = time.monotonic()
    finished = run_child(
        """
        import os, threading, time, vlcs
        a = vlcs.VLC("a")
        def keeps(fd, started):
            import ctypes
            started[0] = 1
            ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)
        started = memoryview(bytearray(1))
        reader, writer = os.pipe()
        threading.Thread(target=a.run, args=[keeps, reader, started], daemon=True).start()
        while not started[0]:
            time.sleep(0.01)
        time.sleep(0.2)
        """,
        timeout=30,
    )
    assert time.monotonic() - start < 15  # 4 s, and what a busy machine adds
    assert "cannot close the context 'a': " in finished.stderr, finished.stderr


def test_ctrl_c_interrupts_python_of_a_guest() -> None:
    run_child(
        """
        import os, signal, threading, time, vlcs
        a = vlcs.VLC("a")
        def count():
            n = 0
            while True:
                n += 1
        def press():
            time.sleep(0.7)
            os.kill(os.getpid(), signal.SIGINT)
        for _ in range(3):
            threading.Thread(target=press).start()
            start = time.monotonic()
            try:
                a.run(count)
            except KeyboardInterrupt:
                pass
            assert 0.5 < time.monotonic() - start < 3
            assert a.run(len, "on") == 2  # the context works on, and so does the process
        # A guest can clean up, as any Python; who pressed still gets the exception here.
        def patient():
            import builtins
            try:
                while True:
                    pass
            except KeyboardInterrupt:
                builtins.vlcs_cleaned = True
        threading.Thread(target=press).start()
        try:
            a.run(patient)
        except KeyboardInterrupt:
            assert a.run(lambda: __import__("builtins").vlcs_cleaned)
        else:
            raise SystemExit("the caller was not interrupted")
        # The host's own handler is in its place again.
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        threading.Thread(target=press).start()
        try:
            time.sleep(5)
        except KeyboardInterrupt:
            pass
        else:
            raise SystemExit("the host was not interrupted")
        """,
        timeout=30,
    )


def test_ctrl_c_while_waiting_for_a_future() -> None:
    run_child(
        """
        import os, signal, threading, time, vlcs
        a = vlcs.VLC("a")
        future = a.submit(time.sleep, 1.5)
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            future.result()
        except KeyboardInterrupt:
            pass
        else:
            raise SystemExit("not interrupted")
        assert a.run(len, "on") == 2
        """,
        timeout=30,
    )


def test_jobs_that_the_exit_ends_are_named() -> None:
    finished = run_child(
        """
        import sys, vlcs
        a = vlcs.VLC("a")
        def endless():
            while True:
                pass
        a.submit(endless)
        a.submit(len, "x")
        sys.exit(3)
        """,
        timeout=30,
        code=3,
    )
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    assert "the context 'a' still had work after 2.5 s: __main__.endless(), len() (queued)" in finished.stderr
    assert "1 of its jobs had not begun" in finished.stderr


def test_the_exit_leaves_a_block_that_never_ended() -> None:
    finished = run_child(
        """
        import time, vlcs
        vlcs.VLC("a").__enter__()
        print(time.monotonic())
        """,
        timeout=30,
    )
    assert time.monotonic() - float(finished.lines[0]) < 1.5
    assert not finished.stderr


def test_handlers_that_chain_around_ours() -> None:
    run_child(
        """
        import faulthandler, os, signal, threading, vlcs
        a = vlcs.VLC("a")
        def count():
            while True:
                pass
        a.run(len, "x")
        faulthandler.register(signal.SIGINT, chain=True, file=open(os.devnull, "w"))
        for _ in range(3):
            threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
            try:
                a.run(count)
            except KeyboardInterrupt:
                continue
            raise SystemExit("not interrupted")
        """,
        timeout=30,
    )
