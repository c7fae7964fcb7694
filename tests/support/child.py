"""Python programs in child processes, so that a crash or a hang of one case ends only that case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PATIENCE = float(os.environ.get("VLCS_TEST_PATIENCE", "1"))
"""How many times slower this machine is than those that time limits are set for: an emulated one."""


_LEAKED = "memory that libraries of closed contexts have leaked stays in this process"


@dataclass(frozen=True)
class Finished:
    """What a child left: its exit code (negative: minus the signal that ended it) and its output."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Standard output, line by line."""
        return self.stdout.splitlines()


def run_child(
    program: str | Path,
    *,
    timeout: float,
    env: Mapping[str, str | None] | None = None,
    args: Sequence[str] = (),
    preload: bool = False,
    python: str | Path | None = None,
    code: int | None = 0,
    cwd: str | Path | None = None,
    stdin: str | None = None,
) -> Finished:
    """Runs a Python program in a child and asserts its exit code.

    Args:
        program: source text (dedented), or the path of a script.
        timeout: seconds; past them all of the child's process group is ended and the test fails with
            the stacks of its Python threads.
        env: variables to set over the inherited ones; None as value removes one.
        args: given to the program as `sys.argv[1:]`.
        preload: run it under `python -m vlcs run`, with the large static-TLS pool.
        python: the interpreter; None means the one that runs the tests.
        code: exit code to assert; None asserts nothing.
        cwd: folder to run in; None means the current one.
        stdin: text for its standard input, a pipe; None means that it is /dev/null.
    """
    timeout *= PATIENCE
    variables = {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    for name, value in (env or {}).items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    what = [str(program)] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
    launcher = ["-m", "vlcs", "run"] if preload else []
    command = [str(python or sys.executable), *launcher, *what, *args]
    with subprocess.Popen(
        command,
        env=variables,
        cwd=cwd,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=True,  # so that what it started can be ended with it
    ) as child:
        try:
            stdout, stderr = child.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            stdout, stderr = _end(child)
            raise AssertionError(
                _report(f"did not end within {timeout:g} s", program, stdout, stderr)
            ) from None
        except BaseException:
            _end(child)
            raise
    if "libasan" in os.environ.get("LD_PRELOAD", ""):  # a step of .ci/run
        stderr = "".join(line for line in stderr.splitlines(keepends=True) if _LEAKED not in line)
    finished = Finished(child.returncode, stdout, stderr)
    if code is not None and finished.returncode != code:
        how = f"ended with {_describe(finished.returncode)}, not with {_describe(code)}"
        raise AssertionError(_report(how, program, stdout, stderr))
    return finished


def _end(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends a child and all that it started. SIGABRT first, for which faulthandler prints the stacks."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            return child.communicate(timeout=3)
        except subprocess.TimeoutExpired:
            continue
    return child.communicate()


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _report(how: str, program: str | Path, stdout: str, stderr: str) -> str:
    source = str(program) if isinstance(program, Path) else textwrap.dedent(program).strip()
    parts = (("program", source), ("stdout", stdout.strip()), ("stderr", stderr.strip()))
    return f"the child {how}\n" + "\n".join(f"--- {name}\n{text or '(empty)'}" for name, text in parts)
