"""A skip that tests/allowed_skips.txt does not name fails a run (tests/conftest.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from support.machine import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def run_with_skip(folder: Path, reason: str) -> subprocess.CompletedProcess[str]:
    for file in ("conftest.py", "allowed_skips.txt"):
        shutil.copy(ROOT / "tests" / file, folder)
    (folder / "test_it.py").write_text(
        f"import pytest\ndef test_skipped():\n    pytest.skip({reason!r})\n"
        "@pytest.mark.xfail\ndef test_expected_failure():\n    assert False\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
        "test_it.py",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_an_allowed_skip_passes(tmp_path: Path) -> None:
    done = run_with_skip(tmp_path, "no-mdwe: kernel 5.10")
    assert done.returncode == 0, done.stdout


def test_any_other_skip_fails_and_is_named(tmp_path: Path) -> None:
    done = run_with_skip(tmp_path, "felt-like-it: today")
    assert done.returncode == 1, done.stdout
    assert "test_it.py::test_skipped: 'felt-like-it'" in done.stdout
    assert "tests/allowed_skips.txt" in done.stdout
