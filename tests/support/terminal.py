"""Python programs in terminals of their own, in which somebody types."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path


def run_in_terminal(program: str | Path, typed: str, *, timeout: float, code: int = 0) -> str:
    """Runs a program (source text, or a script) in a terminal, asserts its exit code, and gives the screen.

    `typed` waits in the terminal from the beginning, as for somebody who types ahead.
    """
    controller, terminal = pty.openpty()
    source = str(program) if isinstance(program, Path) else textwrap.dedent(program)
    screen = b""
    deadline = time.monotonic() + timeout
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", *([] if isinstance(program, Path) else ["-c"]), source],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "dumb"},
        start_new_session=True,  # so that what it started can be ended with it
    ) as child:
        os.close(terminal)
        try:
            os.write(controller, typed.encode())
            while select.select([controller], [], [], max(0.0, deadline - time.monotonic()))[0]:
                piece = os.read(controller, 4096)
                screen += piece
        except OSError:  # EIO: the last that had the terminal open is gone
            pass
        finally:
            ended = child.poll() is not None or _ends_by(child, deadline)
            if not ended:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            os.close(controller)
    shown = screen.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    assert ended, f"the child did not end within {timeout:g} s\n--- program\n{source}\n--- screen\n{shown}"
    how = f"the child ended with {child.returncode}, not with {code}"
    assert child.returncode == code, f"{how}\n--- program\n{source}\n--- screen\n{shown}"
    return shown


def _ends_by(child: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        child.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True
