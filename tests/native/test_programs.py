"""Builds libvlcs without Python and runs the programs in this folder by ctest."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.machine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED_SKIPS = {
    name
    for line in (ROOT / "tests" / "allowed_skips.txt").read_text().splitlines()
    if (name := line.partition("#")[0].strip())
}


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of libvlcs and its tests, without sanitizers."""
    folder = tmp_path_factory.mktemp("build")
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DVLCS_PYTHON=OFF", "-DVLCS_TESTS=ON"]
    for command in (configure, ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count() or 1)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return folder


@pytest.mark.timeout(600)
def test_native_programs(build_folder: Path) -> None:
    done = subprocess.run(
        ["ctest", "--verbose"],  # noqa: S607 - where it lies is the machine's business
        cwd=build_folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    failed = re.findall(r"^.*\*\*\*(?!Skipped).*$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, "\n".join([*failed, done.stdout])
    skips = set(re.findall(r"^\d+: SKIP ([\w-]+):", done.stdout, re.MULTILINE))
    assert done.stdout.count("***Skipped") == 0 or skips, (
        "a program skipped itself and said no name\n" + done.stdout
    )
    assert skips <= ALLOWED_SKIPS, (
        f"{sorted(skips - ALLOWED_SKIPS)} were skipped, which tests/allowed_skips.txt does not allow"
    )
