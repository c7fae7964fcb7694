"""How the machine is built: CPUs, cores, packages, caches, memory nodes, and kinds of cores.

Read from the kernel's trees below a file system's root; another root than "/" gives a recorded machine.
What the process may use of it is `_machine`'s.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vlcs._core import _kernel_text

LOCAL_DISTANCE = 10
"""A node's distance to itself (ACPI SLIT); others are multiples of it by latency."""

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"

# Intel's hybrid processors have one performance counter unit per kind of core (Linux 5.13; lowpower 6.13).
_KINDS = ("sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus", "sys/devices/cpu_lowpower/cpus")


@dataclass(frozen=True)
class CPU:
    """One CPU as the kernel numbers it: a hardware thread of a core of a package."""

    number: int
    package: int
    siblings: frozenset[int]
    """CPUs of the same physical core, this one included."""
    node: int = 0
    domain: frozenset[int] = frozenset()
    """CPUs that share its last-level cache, this one included; its package where no cache is known."""
    kind: int = 0
    """0 for the fastest kind of core that the machine has, then 1 ..."""


@dataclass(frozen=True)
class Cache:
    """A data or unified cache of level 2 or above."""

    level: int
    size: int
    """In bytes."""
    cpus: frozenset[int]


@dataclass(frozen=True)
class Node:
    """A NUMA node; one without CPUs has memory only (CXL, HBM)."""

    number: int
    cpus: frozenset[int]
    size: int = 0
    """Of its memory in bytes; 0 where the tree does not say."""
    distances: dict[int, int] = field(default_factory=dict)
    """To each node, itself included: 10 is local, 20 takes twice as long, by the firmware's word."""


@dataclass(frozen=True)
class Topology:
    """The online CPUs of a machine at one moment, and the memory beside them."""

    cpus: dict[int, CPU] = field(default_factory=dict)
    offline: frozenset[int] = frozenset()
    """CPUs that are there and switched off."""
    caches: tuple[Cache, ...] = ()
    nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def online(self) -> frozenset[int]:
        """Numbers of the online CPUs."""
        return frozenset(self.cpus)

    def cpu(self, number: int) -> CPU:
        """A CPU; one that the tree does not describe stands alone in package and node 0."""
        alone = frozenset({number})
        return self.cpus.get(number) or CPU(number, 0, alone, domain=alone)

    def siblings(self, number: int) -> frozenset[int]:
        """CPUs of the same physical core."""
        return self.cpu(number).siblings

    def package(self, number: int) -> int:
        """The physical package (socket) of a CPU; 0 where the tree does not say."""
        return self.cpu(number).package

    def cores(self, among: Iterable[int]) -> list[frozenset[int]]:
        """Those CPUs by physical core, in order of the cores' first ones."""
        numbers = frozenset(among)
        return sorted({self.siblings(number) & numbers for number in numbers}, key=min)

    def distance(self, one: int, other: int) -> int:
        """Between two nodes; local where the tree does not say."""
        node = self.nodes.get(one)
        return node.distances.get(other, LOCAL_DISTANCE) if node else LOCAL_DISTANCE


def read(root: Path = Path("/"), fallback: Iterable[int] = ()) -> Topology:
    """Reads a machine.

    Without `online` the numbered directories are taken, and without those `fallback`. A CPU without its
    `topology` directory counts as a core of its own in package 0, and without nodes there is node 0. So
    a missing file makes the choice of CPUs worse, never an error.
    """
    tree = root / _CPUS
    online = _online(tree) or frozenset(fallback)
    cores = _cores(tree, online)
    packages = {cpu: package for core in cores for package in [_package(tree, core)] for cpu in core}
    caches = _caches(tree, cores, online)
    nodes = _nodes(root, online)
    homes = {cpu: node.number for node in nodes.values() for cpu in node.cpus}
    kinds = {cpu: rank for rank, kind in enumerate(_kinds(root, online)) for cpu in kind}
    domains: dict[int, frozenset[int]] = {}
    for cache in sorted(caches, key=lambda cache: -cache.level):
        for cpu in cache.cpus:
            domains.setdefault(cpu, cache.cpus)
    for cpu in online - domains.keys():
        domains[cpu] = frozenset(other for other in online if packages[other] == packages[cpu])
    cpus = {
        cpu: CPU(cpu, packages[cpu], core, homes.get(cpu, 0), domains[cpu], kinds.get(cpu, 0))
        for core in cores
        for cpu in core
    }
    return Topology(
        cpus=dict(sorted(cpus.items())),
        offline=_kernel_text.read_list(tree / "present") - online,
        caches=caches,
        nodes=nodes,
    )


def _online(tree: Path) -> frozenset[int]:
    return _kernel_text.read_list(tree / "online") or frozenset(_numbered(tree, "cpu"))


def _numbered(folder: Path, prefix: str) -> list[int]:
    """N of all entries PREFIXN of a folder, in order."""
    try:
        names = [
            entry.name.removeprefix(prefix) for entry in folder.iterdir() if entry.name.startswith(prefix)
        ]
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def _cores(tree: Path, online: frozenset[int]) -> list[frozenset[int]]:
    """A partition of the online CPUs, also where what the files say is none."""
    cores: list[frozenset[int]] = []
    left = set(online)
    for number in sorted(online):
        if number in left:
            folder = tree / f"cpu{number}" / "topology"
            # `core_cpus_list` is the name since Linux 5.4; `thread_siblings_list` is kept as an alias.
            listed = _kernel_text.read_list(folder / "core_cpus_list") or _kernel_text.read_list(
                folder / "thread_siblings_list"
            )
            cores.append(frozenset(listed & left | {number}))
            left -= cores[-1]
    return cores


def _package(tree: Path, core: frozenset[int]) -> int:
    # The kernel writes -1 where firmware does not say.
    return max(0, _kernel_text.read_integer(tree / f"cpu{min(core)}/topology/physical_package_id") or 0)


def _caches(tree: Path, cores: list[frozenset[int]], online: frozenset[int]) -> tuple[Cache, ...]:
    found: dict[tuple[int, frozenset[int]], Cache] = {}
    for core in cores:  # hardware threads of a core share all of its caches
        folder = tree / f"cpu{min(core)}" / "cache"
        for index in _numbered(folder, "index"):
            entry = folder / f"index{index}"
            level = _kernel_text.read_integer(entry / "level") or 0
            if level < 2 or _kernel_text.read(entry / "type") == "Instruction":
                continue
            cpus = _kernel_text.read_list(entry / "shared_cpu_list") & online | core
            if (level, cpus) not in found:
                found[level, cpus] = Cache(level, _bytes(_kernel_text.read(entry / "size")), cpus)
    return tuple(found.values())


def _nodes(root: Path, online: frozenset[int]) -> dict[int, Node]:
    tree = root / _NODES
    numbers = _numbered(tree, "node")
    if not numbers:
        memory = _kernel_text.read_fields(root / "proc/meminfo").get("MemTotal", "")
        return {0: Node(0, online, _bytes(memory), {0: LOCAL_DISTANCE})}
    nodes = {}
    for number in numbers:
        folder = tree / f"node{number}"
        # One column per node that there is, in ascending order.
        distances = _kernel_text.read(folder / "distance").split()
        nodes[number] = Node(
            number=number,
            cpus=_kernel_text.read_list(folder / "cpulist") & online,
            size=_bytes(
                _kernel_text.read_fields(folder / "meminfo").get(f"Node {number} MemTotal", ""),
            ),
            distances={
                other: int(distance)
                for other, distance in zip(numbers, distances, strict=False)
                if distance.isdecimal()
            },
        )
    return nodes


def _kinds(root: Path, online: frozenset[int]) -> list[frozenset[int]]:
    """CPUs by kind of core, the fastest first; one kind where nothing tells them apart."""
    listed = [kind for path in _KINDS if (kind := _kernel_text.read_list(root / path) & online)]
    if len(listed) > 1:
        return listed
    capacities: dict[int, set[int]] = {}
    for number in online:
        # Of arm64's devicetree, and since Linux 6.12 of x86 (where all are 1024 unless it is a hybrid).
        capacity = _kernel_text.read_integer(root / _CPUS / f"cpu{number}/cpu_capacity")
        if capacity is None:
            return [online]
        capacities.setdefault(capacity, set()).add(number)
    return [frozenset(capacities[capacity]) for capacity in sorted(capacities, reverse=True)]


def _bytes(text: str) -> int:
    """Reads "512K" of caches and "24683652 kB" of memory; 0 for anything else."""
    units = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
    digits = text.rstrip("kKMGB ")
    unit = text[len(digits) :].strip().upper().removesuffix("B")
    return int(digits) * units[unit] if digits.isdecimal() and unit in units else 0
