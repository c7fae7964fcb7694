"""What hwloc says of a machine: an independent reader of the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vlcs._core._topology import Topology

Sets = frozenset[frozenset[int]]


@dataclass(frozen=True)
class Seen:
    """The facts that both readers have."""

    online: frozenset[int]
    cores: Sets
    packages: Sets
    caches: dict[int, Sets]
    """By level, from 2."""
    memory: dict[int, int]
    """Bytes of each node."""
    nodes: Sets
    """CPUs of the nodes that have any."""
    distances: dict[int, dict[int, int]]
    """Empty where there is one node."""
    kinds: tuple[frozenset[int], ...]
    """The fastest first; empty where hwloc has no opinion."""


def ask(root: Path | None = None) -> Seen:
    """Asks about a recorded machine, or this one. Skips the test where hwloc is not installed."""
    lstopo = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if lstopo is None:
        pytest.skip("no-hwloc: there is no lstopo here (Debian package hwloc-nox)")
    where = ["--input", str(root)] if root else []
    # Only what Linux says: cpuid would describe the machine that runs the test.
    env = {**os.environ, **({} if root else {"HWLOC_COMPONENTS": "linux,stop"})}
    command = [lstopo, "--disallowed", *where, "--of", "xml", "-"]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=30)
    return _read(ET.fromstring(done.stdout))  # noqa: S314 - lstopo's own output


def of(machine: Topology) -> Seen:
    """Our facts in hwloc's form."""
    cpus = machine.cpus.values()
    levels = {cache.level for cache in machine.caches}
    kinds = [frozenset(cpu.number for cpu in cpus if cpu.kind == rank) for rank in range(len(cpus))]
    many = len(machine.nodes) > 1
    return Seen(
        online=machine.online,
        cores=frozenset(cpu.siblings for cpu in cpus),
        packages=frozenset(
            frozenset(cpu.number for cpu in cpus if cpu.package == package)
            for package in {cpu.package for cpu in cpus}
        ),
        caches={
            level: frozenset(cache.cpus for cache in machine.caches if cache.level == level)
            for level in levels
        },
        memory={node.number: node.size for node in machine.nodes.values()},
        nodes=frozenset(node.cpus for node in machine.nodes.values() if node.cpus),
        distances={node.number: dict(node.distances) for node in machine.nodes.values()} if many else {},
        kinds=tuple(kind for kind in kinds if kind),
    )


def compare(ours: Seen, theirs: Seen) -> None:
    assert ours.online == theirs.online
    assert ours.cores == theirs.cores
    assert ours.packages == theirs.packages
    assert ours.caches == theirs.caches
    assert ours.memory == theirs.memory
    assert ours.nodes <= theirs.nodes  # hwloc gives memory-only nodes the CPUs nearest to them
    assert ours.distances == theirs.distances
    # Before 2.10 it reads capacities and no counter units.
    assert not theirs.kinds or ours.kinds == theirs.kinds


def _read(tree: ET.Element) -> Seen:
    caches = {level: _sets(tree, f"L{level}Cache") for level in (2, 3, 4)}
    nodes = list(_objects(tree, "NUMANode"))
    memory = {int(node.attrib["os_index"]): int(node.attrib.get("local_memory", 0)) for node in nodes}
    kinds = [_mask(kind.attrib["cpuset"]) for kind in tree.iter("cpukind")]
    return Seen(
        online=_mask(next(_objects(tree, "Machine")).attrib["cpuset"]),
        cores=_sets(tree, "Core"),
        packages=_sets(tree, "Package"),
        caches={level: sets for level, sets in caches.items() if sets},
        memory=memory,
        nodes=_sets(tree, "NUMANode"),
        distances=_distances(tree),
        kinds=tuple(reversed(kinds)),
    )


def _objects(tree: ET.Element, kind: str) -> Iterator[ET.Element]:
    return (element for element in tree.iter("object") if element.attrib["type"] == kind)


def _sets(tree: ET.Element, kind: str) -> Sets:
    return frozenset(_mask(element.attrib["cpuset"]) for element in _objects(tree, kind))


def _mask(text: str) -> frozenset[int]:
    """Words of 32 bits, the highest first; an empty one is all zero."""
    bits = 0
    for word in text.split(","):
        bits = bits << 32 | int(word or "0", 16)
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _distances(tree: ET.Element) -> dict[int, dict[int, int]]:
    for table in tree.iter("distances2"):
        if table.attrib["type"] == "NUMANode":
            names = [int(word) for part in table.iter("indexes") for word in (part.text or "").split()]
            values = [int(word) for part in table.iter("u64values") for word in (part.text or "").split()]
            rows = [values[start : start + len(names)] for start in range(0, len(values), len(names))]
            return {name: dict(zip(names, row, strict=True)) for name, row in zip(names, rows, strict=True)}
    return {}
