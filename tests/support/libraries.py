"""C libraries for system tests, compiled from the sources that the native tests use."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.machine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FIXTURES = ROOT / "tests" / "native" / "fixtures"


class Builder:
    """Compiles sources of tests/native/fixtures into shared libraries below one folder, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, source: str, name: str, *flags: str) -> Path:
        """Gives the path of `name` (relative to the folder), made from `source` with more flags of gcc."""
        target = self.folder / name
        if target.exists():
            return target
        compiler = os.environ.get("CXX", "g++") if source.endswith(".cc") else os.environ.get("CC", "gcc")
        if shutil.which(compiler) is None:
            pytest.fail(f"there is no {compiler}: run `tools/setup test`")
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [
            compiler,
            "-shared",
            "-fPIC",
            "-O2",
            "-D_GNU_SOURCE",
            "-Wl,--enable-new-dtags,--no-as-needed",
        ]
        command += [str(FIXTURES / source), "-o", str(target), f"-Wl,-soname,{target.name}", *flags]
        subprocess.run(command, check=True, timeout=60)
        return target


def version_script(name: str) -> str:
    """The linker flag for a version script of the fixtures."""
    return f"-Wl,--version-script={FIXTURES / name}"
