"""`vlcs run`: a program finds itself as under plain `python`, with the large pool of static TLS."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.child import run_child

if TYPE_CHECKING:
    from pathlib import Path

LOOK = (
    "import sys, os; print(sys.argv, __name__, sys.path[0], sys.flags.dev_mode, 'LD_PRELOAD' in os.environ)"
)


def vlcs(
    *arguments: str, text: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vlcs", *arguments]
    return subprocess.run(
        command, input=text, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def python(
    *arguments: str, text: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, input=text, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.preload
def test_the_pool_is_large() -> None:
    program = "import vlcs; print(vlcs.limits().static_tls_total)"
    small = int(run_child(program, timeout=30).stdout)
    large = int(run_child(program, timeout=30, preload=True).stdout)
    assert large == 65536
    assert 64 <= small < large


def test_programs_find_themselves_as_under_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOK + "\nsys.exit(5)\n")
    for arguments, text in (
        (["-c", LOOK, "a", "b"], None),
        ([str(script), "--option", "x"], None),
        (["script.py"], None),
        (["-m", "script", "x"], None),
        (["-", "x"], LOOK),
        (["-X", "dev", "-c", LOOK], None),
    ):
        plain, ours = (
            python(*arguments, text=text, cwd=tmp_path),
            vlcs("run", *arguments, text=text, cwd=tmp_path),
        )
        assert ours.stdout == plain.stdout, arguments
        assert ours.returncode == plain.returncode, arguments
        assert ours.stderr == plain.stderr, arguments


def test_errors_of_the_program_are_its_own() -> None:
    plain, ours = python("-c", "1/0"), vlcs("run", "-c", "1/0")
    assert (ours.returncode, ours.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    assert plain.stderr == ours.stderr  # no frame of ours
    assert vlcs("run", "no_such_file.py").returncode == 2
    assert vlcs("run").returncode == python().returncode == 0  # an empty standard input
    assert vlcs("run", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)").returncode == -15


@pytest.mark.preload
def test_functions_of_the_program_cross() -> None:
    run_child(
        """
        import vlcs
        def square(x):
            return x * x
        assert __name__ == "__main__"
        assert vlcs.VLC().run(square, 7) == 49
        """,
        timeout=30,
        preload=True,
    )
