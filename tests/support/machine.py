"""What this machine has for the tests; what it cannot have is a named skip (allowed_skips.txt)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vlcs._core import _control, _machine, _quality
from vlcs._core._control import Control

ROOT = Path(__file__).resolve().parents[2]


def usable_cpus() -> list[int]:
    """CPU numbers that this process may use, in ascending order."""
    return sorted(os.sched_getaffinity(0))


def two_cpus() -> tuple[int, int]:
    """Two CPU numbers to make slices of; skips the test on a machine with one."""
    cpus = usable_cpus()
    if len(cpus) < 2:
        pytest.skip(f"one-cpu: only CPU {cpus[0]} may be used here")
    return cpus[0], cpus[1]


def rig() -> None:
    """Skips the test outside of the machine of tests/vm/run: it is about that one, or changes it."""
    if os.environ.get("VLCS_RIG") != "1":
        pytest.skip("no-rig: this is not the machine of tests/vm/run")


def two_nodes() -> tuple[int, int]:
    """Two NUMA nodes with memory and CPUs that may be used; skips the test where there is one."""
    machine = _machine.read(affinity=frozenset(usable_cpus()))
    nodes = [node for node in sorted(machine.nodes) if machine.topology.nodes[node].cpus & machine.allowed]
    if len(nodes) < 2:
        pytest.skip(f"one-node: only memory and CPUs of node {nodes} may be used here")
    return nodes[0], nodes[1]


def numpy1_python() -> Path:
    """The interpreter of a venv with NumPy 1.26, which `tools/setup test` makes."""
    python = Path(os.environ.get("VLCS_NUMPY1_PYTHON") or ROOT / ".venv-numpy1" / "bin" / "python")
    if not python.exists():
        pytest.fail(
            f"there is no {python}: run `tools/setup test`, or set VLCS_NUMPY1_PYTHON to such a venv's python"
        )
    return python


def control_groups(**options: Any) -> list[Path]:
    """Folders of the groups that this process is in and can have others made below, for a context's options.

    Skips the test where it cannot.
    """
    quality = _quality.read(**options)
    control = Control(quality, usable_cpus())
    control.remove()
    for option, (reason, _) in control.refused.items():
        pytest.skip(f"no-control-groups: {option}: {reason}")
    places = {
        _control.find(controller) for name, controller in _control.OPTIONS.items() if quality.words(name)
    }
    return [place.folder for place in places if isinstance(place, _control.Place)]
