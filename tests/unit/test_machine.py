"""How much of a machine the process may use."""

from __future__ import annotations

import os

import pytest

from support import machines
from vlcs._core import _machine


def read(name: str, **changed: str | None) -> _machine.Machine:
    return _machine.read(machines.root(machines.MODELS[name], **changed))


def test_all_of_it() -> None:
    machine = read("xeon-snc2")
    assert machine.allowed == machine.bound == machine.topology.online
    assert (machine.nodes, machine.quota, machine.capacity) == ({0, 1, 2, 3}, None, 48)


@pytest.mark.parametrize("name", ["docker-v1", "docker-v2"])
def test_container(name: str) -> None:
    machine = read(name)
    assert machine.allowed == machine.bound == set(range(8))
    assert (machine.nodes, machine.quota, machine.capacity) == ({0}, 1.5, 1.5)


def test_the_process_s_own_mask() -> None:
    status = "Cpus_allowed_list:\t2-3\nMems_allowed_list:\t1"
    machine = read("docker-v2", **{"proc/self/status": status})
    assert (machine.allowed, machine.bound) == ({2, 3}, set(range(8)))
    assert machine.nodes == {0, 1}  # groups and mask contradict each other: nothing is known


def test_offline_cpus_may_not_be_used() -> None:
    assert read("holes").allowed == {0, 1, 2, 6, 7}


def test_memory_only_nodes_may_be_used() -> None:
    assert read("cxl").nodes == {0, 1, 2}


def test_sandbox() -> None:
    machine = _machine.read(machines.root(machines.SANDBOX))
    assert machine.allowed == machine.topology.online == {0, 1, 2, 3}
    assert (machine.nodes, machine.quota) == ({0}, None)


def test_nothing_can_be_read() -> None:
    machine = _machine.read(machines.Memory({}), affinity=frozenset({1}))
    assert machine.allowed == machine.bound == {1}


def test_this_machine() -> None:
    affinity = frozenset(os.sched_getaffinity(0))
    machine = _machine.read(affinity=affinity)
    assert machine.allowed == affinity <= machine.topology.online
    assert _machine.read().allowed == affinity
    assert machine.nodes
