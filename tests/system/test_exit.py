"""The end of the process (F2), in each way and with all that may be open: exit code and output."""

from __future__ import annotations

import signal
import time

import pytest

from support.child import run_child

ORDERLY = [("pass", 0), ("sys.exit(7)", 7), ("raise ValueError('uncaught')", 1)]
INTERRUPTED = [("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -signal.SIGINT)]
AT_ONCE = [("os._exit(6)", 6), ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", -signal.SIGTERM)]


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize(("ending", "code"), [*ORDERLY, *INTERRUPTED, *AT_ONCE])
def test_the_end_with_threads_buffers_and_handlers(ending: str, code: int, close: bool) -> None:
    finished = run_child(
        f"""
        import atexit, ctypes, os, signal, sys, threading, time, vlcs
        def fill(name):
            import atexit, ctypes, threading, time
            import numpy
            numpy.ones((200, 200)) @ numpy.ones((200, 200))
            threading.Thread(target=time.sleep, args=[60], daemon=True).start()
            atexit.register(print, "end of", name)
            ctypes.CDLL(None).printf(b"C of %s\\n", name.encode())  # in libc's buffer: stdout is a pipe
            print("Python of", name, end=" ")
        contexts = [vlcs.VLC(name) for name in "ab"]
        for context in contexts:
            context.run(fill, context.name)
        atexit.register(print, "end of host")
        threading.Thread(target=time.sleep, args=[60], daemon=True).start()
        print(time.monotonic(), file=sys.stderr, flush=True)
        if {close}:
            for context in contexts:
                context.close()
        {ending}
        """,
        timeout=60,
        code=code,
        env={"PYTHONUNBUFFERED": None, "PYTHONFAULTHANDLER": None},
    )
    start, *errors = finished.stderr.splitlines()
    assert time.monotonic() - float(start) < 5
    at_once = (ending, code) in AT_ONCE
    if at_once and not close:
        assert not finished.stdout  # nothing is flushed, as in any program
    else:  # libc's buffer goes out when an interpreter ends, so its lines stand anywhere
        lines = finished.lines
        for name in "ab":
            lines.remove(f"C of {name}")
        ends = ["end of a", "end of b"] if close else ["end of host", "end of b", "end of a"]
        ends += ["end of host"] if close and not at_once else []
        assert lines == ["Python of a Python of b " + ends[0], *ends[1:]]
    assert errors == [] if at_once or code in {0, 7} else "Traceback" in errors[0]
