"""Native tests of slices and of memory, on two nodes: from the build that tests/vm/run names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.child import PATIENCE
from support.machine import rig


@pytest.mark.parametrize("program", ["cpus", "memory_nodes", "memory_policy", "resize"])
def test_native_program(program: str) -> None:
    rig()
    done = subprocess.run(
        [Path(os.environ["VLCS_NATIVE_BUILD"]) / "tests/native" / program],
        capture_output=True,
        text=True,
        check=False,
        timeout=20 * PATIENCE,
    )
    assert done.returncode == 0, f"exit code {done.returncode} (77: skipped)\n{done.stdout}\n{done.stderr}"
