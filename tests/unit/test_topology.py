"""Reading machines: recorded trees, trees with holes, and hwloc's opinion of the same trees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support import hwloc, machines
from vlcs._core import _topology

if TYPE_CHECKING:
    from pathlib import Path

    from vlcs._core._topology import Topology


def read(name: str, **changed: str | None) -> Topology:
    if not changed:
        return machines.machine(name).topology
    return _topology.read(machines.root(machines.MODELS[name], **changed))


def counts(machine: Topology) -> tuple[int, int, int, int, int, int]:
    cpus = machine.cpus.values()
    return (
        len(machine.online),
        len({cpu.siblings for cpu in cpus}),
        len({cpu.package for cpu in cpus}),
        len(machine.nodes),
        len({cpu.domain for cpu in cpus}),
        len({cpu.kind for cpu in cpus}),
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # CPUs, cores, packages, nodes, cache domains, kinds
        ("laptop", (8, 4, 1, 1, 1, 1)),
        ("desktop", (6, 6, 1, 1, 1, 1)),
        ("xeon-2s", (32, 16, 2, 2, 2, 1)),
        ("xeon-2s-smt-off", (16, 16, 2, 2, 2, 1)),
        ("xeon-snc2", (48, 24, 2, 4, 2, 1)),
        ("epyc-nps4", (128, 64, 2, 8, 16, 1)),
        ("epyc-192", (192, 192, 2, 2, 24, 1)),
        ("xeon-4s", (16, 16, 4, 4, 4, 1)),
        ("cxl", (8, 8, 2, 3, 2, 1)),
        ("alder-lake", (24, 16, 1, 1, 1, 2)),
        ("lunar-lake", (8, 8, 1, 1, 2, 2)),
        ("arm-phone", (8, 8, 1, 1, 1, 3)),
        ("holes", (5, 3, 1, 1, 1, 1)),
        ("docker-v1", (64, 32, 2, 2, 2, 1)),
        ("docker-v2", (64, 32, 2, 2, 2, 1)),
        ("systemd", (8, 8, 1, 1, 1, 1)),
        ("vm-without-caches", (4, 4, 2, 2, 2, 1)),
        ("old-kernel", (4, 2, 1, 1, 1, 1)),
    ],
)
def test_recorded_machine(name: str, expected: tuple[int, ...]) -> None:
    assert counts(read(name)) == expected


def test_every_recorded_machine_has_its_row() -> None:
    rows = next(mark for mark in test_recorded_machine.pytestmark if mark.name == "parametrize").args[1]
    assert {name for name, _ in rows} == set(machines.MODELS)


@pytest.mark.parametrize("name", machines.MODELS)
def test_hwloc_reads_the_same(name: str, tmp_path: Path) -> None:
    folder = machines.write(machines.MODELS[name], tmp_path)
    hwloc.compare(hwloc.of(_topology.read(folder)), hwloc.ask(folder))


def test_hwloc_reads_the_same_of_this_machine() -> None:
    ours, theirs = hwloc.of(_topology.read()), hwloc.ask()
    assert ours.memory.keys() == theirs.memory.keys()
    # Memory of a virtual machine comes and goes: 7.6 GB grew to 11.2 within an hour of this test's writing.
    hwloc.compare(replace(ours, memory={}), replace(theirs, memory={}))


def test_cpus_are_found_in_their_places() -> None:
    machine = read("epyc-nps4")
    cpu = machine.cpu(77)  # the second thread of core 13: package 0, node 1, the second L3 there
    assert (cpu.package, cpu.node, cpu.siblings) == (0, 1, {13, 77})
    assert cpu.domain == {12, 13, 14, 15, 76, 77, 78, 79}
    assert [machine.distance(1, node) for node in (1, 2, 5)] == [10, 12, 32]
    assert machine.cores({13, 12, 77}) == [{12}, {13, 77}]


def test_siblings_that_are_numbered_in_turn() -> None:
    machine = read("xeon-2s")
    assert machine.siblings(1) == {1, 17}
    assert [machine.package(number) for number in (0, 1, 16, 17)] == [0, 1, 0, 1]


def test_offline_cpus_belong_to_nothing() -> None:
    machine = read("holes")
    assert (machine.online, machine.offline) == ({0, 1, 2, 6, 7}, {3, 4, 5})
    assert machine.siblings(2) == {2}
    assert machine.nodes[0].cpus == machine.cpu(0).domain == machine.online


def test_memory_only_node() -> None:
    machine = read("cxl")
    assert machine.nodes[2].cpus == frozenset()
    assert machine.nodes[2].size == 16 * 1024**3
    assert machine.distance(1, 2) == 24


def test_sub_numa_clusters_lie_below_one_cache() -> None:
    machine = read("xeon-snc2")
    assert machine.nodes[1].cpus < machine.cpu(6).domain == machine.cpu(0).domain


def test_kinds_are_ranked_by_speed() -> None:
    assert [read("alder-lake").cpu(n).kind for n in (0, 15, 16, 23)] == [0, 0, 1, 1]
    assert [read("arm-phone").cpu(n).kind for n in (0, 4, 7)] == [2, 1, 0]


CPUS = "sys/devices/system/cpu"


def test_without_online_the_folders_count() -> None:
    machine = read("holes", **{f"{CPUS}/online": None, f"{CPUS}/cpufreq/boost": "1", f"{CPUS}/cpuidle/x": ""})
    assert machine.online == machines.MODELS["holes"].online


def test_without_a_tree_the_fallback_counts() -> None:
    machine = _topology.read(machines.Memory({}), fallback={2, 3})
    assert machine.online == {2, 3}
    assert (machine.siblings(2), machine.package(2), machine.cpu(2).domain) == ({2}, 0, {2, 3})
    assert machine.nodes[0].cpus == {2, 3}


def test_firmware_that_does_not_say_its_package() -> None:
    assert read("desktop", **{f"{CPUS}/cpu0/topology/physical_package_id": "-1"}).package(0) == 0


def test_cores_are_a_partition_also_where_files_contradict_each_other() -> None:
    lists = {0: "0-2", 1: "1", 2: "2-3", 4: "nonsense"}
    changed = {f"{CPUS}/cpu{number}/topology/core_cpus_list": text for number, text in lists.items()}
    machine = read("desktop", **changed)
    assert machine.cores(range(6)) == [{0, 1, 2}, {3}, {4}, {5}]
    assert all(machine.siblings(number) == {0, 1, 2} for number in range(3))


@pytest.mark.parametrize("name", ["xeon-snc2", "alder-lake", "docker-v2"])
def test_a_missing_file_is_never_an_error(name: str) -> None:
    """Takes away each kind of file, one after the other, and all those before it."""
    files = machines.files(machines.MODELS[name])
    for kind in sorted({path.rpartition("/")[2] for path in files}):
        files = {path: text for path, text in files.items() if not path.endswith(f"/{kind}")}
        machine = _topology.read(machines.Memory(files), fallback={0})
        assert machine.online
        assert all(cpu.number in cpu.siblings & cpu.domain for cpu in machine.cpus.values())


def test_this_machine_can_be_read() -> None:
    machine = _topology.read()
    assert machine.online
    assert machine.nodes
