"""How much of a machine the process may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support import machines
from vlcs._core import _machine

if TYPE_CHECKING:
    from pathlib import Path


def read(name: str, folder: Path) -> _machine.Machine:
    return _machine.read(machines.write(machines.MODELS[name], folder))


def test_all_of_it(tmp_path: Path) -> None:
    machine = read("xeon-snc2", tmp_path)
    assert machine.allowed == machine.bound == machine.topology.online
    assert (machine.nodes, machine.quota, machine.capacity) == ({0, 1, 2, 3}, None, 48)


@pytest.mark.parametrize("name", ["docker-v1", "docker-v2"])
def test_container(name: str, tmp_path: Path) -> None:
    machine = read(name, tmp_path)
    assert machine.allowed == machine.bound == set(range(8))
    assert (machine.nodes, machine.quota, machine.capacity) == ({0}, 1.5, 1.5)


def test_the_process_s_own_mask(tmp_path: Path) -> None:
    machines.write(machines.MODELS["docker-v2"], tmp_path)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t2-3\nMems_allowed_list:\t1\n")
    machine = _machine.read(tmp_path)
    assert (machine.allowed, machine.bound) == ({2, 3}, set(range(8)))
    assert machine.nodes == {0, 1}  # groups and mask contradict each other: nothing is known


def test_offline_cpus_may_not_be_used(tmp_path: Path) -> None:
    assert read("holes", tmp_path).allowed == {0, 1, 2, 6, 7}


def test_memory_only_nodes_may_be_used(tmp_path: Path) -> None:
    assert read("cxl", tmp_path).nodes == {0, 1, 2}


def test_sandbox(tmp_path: Path) -> None:
    machine = _machine.read(machines.write(machines.SANDBOX, tmp_path))
    assert machine.allowed == machine.topology.online == {0, 1, 2, 3}
    assert (machine.nodes, machine.quota) == ({0}, None)


def test_nothing_can_be_read(tmp_path: Path) -> None:
    machine = _machine.read(tmp_path, affinity=frozenset({1}))
    assert machine.allowed == machine.bound == {1}


def test_this_machine() -> None:
    affinity = frozenset(os.sched_getaffinity(0))
    machine = _machine.read(affinity=affinity)
    assert machine.allowed == affinity <= machine.topology.online
    assert _machine.read().allowed == affinity
    assert machine.nodes
