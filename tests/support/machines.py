"""Machines as data: short descriptions, and what the kernel's /sys and /proc look like on them.

`root` gives a tree for `vlcs._core._machine` to read, in memory, and `write` the same as files, which hwloc
reads too (`lstopo --input`). The layouts are those of machines that are sold or of containers as people run
them; CPUs, cores and caches count, sizes do not.
"""

from __future__ import annotations

import copy
import functools
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vlcs._core import _machine
from vlcs._core._kernel_text import format_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

Groups = dict[str, dict[object, frozenset[int]]]

GIB = 1024 * 1024  # in kB, as meminfo counts


@dataclass(frozen=True)
class Core:
    """A physical core: its CPUs and where they are."""

    cpus: tuple[int, ...]
    package: int = 0
    node: int = 0
    l3: int | None = 0
    """Cores with the same number share it; None: there is none."""
    l2: int | None = None
    """None: its own."""
    kind: str | None = None
    """Of Intel's hybrids: the name of the counter unit."""
    capacity: int | None = None


@dataclass(frozen=True)
class Model:
    """A machine, and the process's place on it."""

    cores: tuple[Core, ...]
    distances: tuple[str, ...] = ("10",)
    """One row per node, nodes in ascending order."""
    memory_only: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """More files, or other texts of files."""
    without: Callable[[str], bool] = lambda _: False
    """Which files are hidden."""
    names: tuple[str, str] = ("core_cpus", "package_cpus")
    """What the kernel calls the CPUs of a core and of a package."""

    @property
    def online(self) -> frozenset[int]:
        return frozenset(cpu for core in self.cores for cpu in core.cpus) - frozenset(self.offline)

    def groups(self, key: Callable[[Core], object]) -> dict[object, frozenset[int]]:
        """Online CPUs of the cores with the same key."""
        found: dict[object, set[int]] = {}
        for core in self.cores:
            found.setdefault(key(core), set()).update(core.cpus)
        return {value: self.online & cpus for value, cpus in found.items()}


def uniform(
    *,
    packages: int = 1,
    nodes: int = 1,
    cores: int,
    threads: int = 1,
    l3: int | None = None,
    number: str = "last",
) -> tuple[Core, ...]:
    """Equal cores: `nodes` per package, `cores` per node, `l3` of them per cache (None: the package's).

    How CPUs are numbered: siblings "last" (as most firmware does), "adjacent", or package by package in turn
    ("round", as on Dell's Xeons).
    """
    total = packages * nodes * cores
    made = []
    for index in range(total):
        package, rest = divmod(index, nodes * cores)
        cpus = {
            "last": tuple(index + thread * total for thread in range(threads)),
            "adjacent": tuple(index * threads + thread for thread in range(threads)),
            "round": tuple(package + packages * (rest + thread * nodes * cores) for thread in range(threads)),
        }[number]
        made.append(Core(cpus, package, index // cores, index // l3 if l3 else package))
    return tuple(made)


def distances(packages: int, nodes: int, near: int = 12, far: int = 32) -> tuple[str, ...]:
    """The table of `nodes` per package."""
    total = packages * nodes
    return tuple(
        " ".join(str(10 if a == b else near if a // nodes == b // nodes else far) for b in range(total))
        for a in range(total)
    )


def _container(version: int, quota: str, cpuset: str) -> dict[str, str]:
    """Docker's view: a namespace of its own in version 2, a bind mount and the whole path in version 1."""
    if version == 2:
        return {
            "proc/self/cgroup": "0::/",
            "proc/self/mountinfo": "400 399 0:27 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate",
            "sys/fs/cgroup/cpu.max": quota,
            "sys/fs/cgroup/cpuset.cpus.effective": cpuset,
            "sys/fs/cgroup/cpuset.mems.effective": "0",
        }
    us, period = quota.split()
    return {
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/1f\n3:cpuset:/docker/1f\n1:name=systemd:/docker/1f\n0::/",
        "proc/self/mountinfo": "\n".join(
            f"{number} 30 0:{number} /docker/1f /sys/fs/cgroup/{name} ro - cgroup cgroup rw,{name}"
            for number, name in ((40, "cpu,cpuacct"), (41, "cpuset"))
        ),
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": us,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": period,
        "sys/fs/cgroup/cpuset/cpuset.effective_cpus": cpuset,
        "sys/fs/cgroup/cpuset/cpuset.effective_mems": "0",
    }


def _alder_lake() -> tuple[Core, ...]:
    fast = tuple(Core((2 * n, 2 * n + 1), kind="cpu_core") for n in range(8))
    return fast + tuple(Core((16 + n,), l2=100 + n // 4, kind="cpu_atom") for n in range(8))


def _lunar_lake() -> tuple[Core, ...]:
    fast = tuple(Core((n,), kind="cpu_core") for n in range(4))
    return fast + tuple(Core((4 + n,), l3=None, l2=100, kind="cpu_atom") for n in range(4))


MODELS: dict[str, Model] = {
    # 1 socket, 4 cores, SMT: a laptop.
    "laptop": Model(uniform(cores=4, threads=2)),
    # 6 cores without SMT.
    "desktop": Model(uniform(cores=6)),
    # 2 sockets of 8 cores, SMT, CPUs numbered in turn: CPU 0 in socket 0, CPU 1 in socket 1.
    "xeon-2s": Model(uniform(packages=2, cores=8, threads=2, number="round"), ("10 21", "21 10")),
    # The same with SMT switched off at run time: the second threads are offline.
    "xeon-2s-smt-off": Model(
        uniform(packages=2, cores=8, threads=2), ("10 21", "21 10"), offline=tuple(range(16, 32))
    ),
    # Sub-NUMA clustering: two nodes per socket below one L3.
    "xeon-snc2": Model(uniform(packages=2, nodes=2, cores=6, threads=2), distances(2, 2, 12, 21)),
    # AMD EPYC 7002, NPS4: 8 nodes of 2 L3 of 4 cores, SMT, 128 CPUs.
    "epyc-nps4": Model(uniform(packages=2, nodes=4, cores=8, threads=2, l3=4), distances(2, 4)),
    # AMD EPYC 9654: 2 x 96 cores in L3 of 8, without SMT.
    "epyc-192": Model(uniform(packages=2, cores=96, l3=8), ("10 32", "32 10")),
    # 4 sockets, 4 nodes, a ring: opposite ones are two hops away.
    "xeon-4s": Model(
        uniform(packages=4, cores=4), ("10 21 31 21", "21 10 21 31", "31 21 10 21", "21 31 21 10")
    ),
    # CXL memory as a node without CPUs.
    "cxl": Model(uniform(packages=2, cores=4), ("10 21 14", "21 10 24", "14 24 10"), memory_only=(2,)),
    # Intel hybrids: 8 fast cores with SMT and 8 in clusters of 4, below one L3; the slow ones without L3.
    "alder-lake": Model(_alder_lake()),
    "lunar-lake": Model(_lunar_lake()),
    # arm64: 4 little, 3 big and 1 prime core; the devicetree tells their capacities.
    "arm-phone": Model(
        tuple(Core((n,), capacity=1024 if n == 7 else 760 if n > 3 else 250) for n in range(8))
    ),
    # Some CPUs taken offline by hand, one of them half a core.
    "holes": Model(uniform(cores=4, threads=2, number="adjacent"), offline=(3, 4, 5)),
    # Containers with 1.5 CPUs of time on 8 CPUs of 64, both versions of control groups.
    "docker-v2": Model(
        uniform(packages=2, cores=16, threads=2),
        ("10 21", "21 10"),
        files=_container(2, "150000 100000", "0-7"),
    ),
    "docker-v1": Model(
        uniform(packages=2, cores=16, threads=2),
        ("10 21", "21 10"),
        files=_container(1, "150000 100000", "0-7"),
    ),
    # A service of systemd in nested groups: the parent's quota is the smaller one.
    "systemd": Model(
        uniform(cores=8),
        files={
            "proc/self/cgroup": "0::/system.slice/a b.service",
            "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "sys/fs/cgroup/system.slice/cpu.max": "200000 100000",
            "sys/fs/cgroup/system.slice/a b.service/cpu.max": "max 100000",
            "sys/fs/cgroup/cpuset.cpus.effective": "0-7",
        },
    ),
    # A virtual machine whose kernel tells of no caches.
    "vm-without-caches": Model(
        uniform(packages=2, cores=2), ("10 20", "20 10"), without=lambda name: "/cache/" in name
    ),
    # Linux before 5.4, which names siblings otherwise.
    "old-kernel": Model(uniform(cores=2, threads=2), names=("thread_siblings", "core_siblings")),
}

SANDBOX = Model(
    uniform(cores=4, threads=2),
    without=lambda name: not name.startswith("proc/self/status"),
    files={"proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3\n"},
)
"""gVisor or a locked-down container: nothing but the process's own mask (so not for hwloc)."""


class Memory:
    """As much of a `pathlib.Path` as reading a tree takes."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.path = ""
        self.entries: dict[str, dict[str, None]] = {}
        for path in files:
            parts = path.split("/")
            for depth, name in enumerate(parts):
                self.entries.setdefault("/".join(parts[:depth]), {})[name] = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __truediv__(self, other: str) -> Memory:
        below = copy.copy(self)
        below.path = f"{self.path}/{other}".strip("/")
        return below

    def joinpath(self, *others: str) -> Memory:
        return self / "/".join(others)

    def iterdir(self) -> Iterator[Memory]:
        if self.path not in self.entries:
            raise FileNotFoundError(self.path)
        return (self / name for name in self.entries[self.path])

    def read_text(self, *_: str) -> str:
        if self.path not in self.files:
            raise FileNotFoundError(self.path)
        return f"{self.files[self.path]}\n"


def root(model: Model, **changed: str | None) -> Memory:
    """The tree; `changed` has other texts by path, and None for files that are missing."""
    return Memory({name: text for name, text in {**files(model), **changed}.items() if text is not None})


@functools.cache
def machine(name: str) -> _machine.Machine:
    """A model by its name, as it is read."""
    return _machine.read(root(MODELS[name]))


def write(model: Model, folder: Path) -> Path:
    """Makes the tree below `folder`, which it gives back."""
    for name, text in files(model).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


def files(model: Model) -> dict[str, str]:
    """All files by path."""
    return {name: text for name, text in _all_files(model).items() if not model.without(name)}


def _all_files(model: Model) -> dict[str, str]:
    present = model.online.union(model.offline)
    nodes = sorted({core.node for core in model.cores}.union(model.memory_only))
    files = {
        "sys/devices/system/cpu/online": format_list(model.online),
        "sys/devices/system/cpu/present": format_list(present),
        "sys/devices/system/cpu/possible": format_list(present),
        "sys/devices/system/cpu/offline": format_list(model.offline),
        "sys/devices/system/node/online": format_list(nodes),
        "sys/devices/system/node/possible": format_list(nodes),
        "proc/cpuinfo": "\n\n".join(f"processor\t: {cpu}" for cpu in sorted(model.online)),
        "proc/meminfo": f"MemTotal:       {16 * GIB * len(nodes)} kB",
        "proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t{format_list(present)}\n"
        f"Mems_allowed_list:\t{format_list(nodes)}",
    }
    groups = {name: model.groups(operator.attrgetter(name)) for name in ("package", "l2", "l3")}
    for core_id, core in enumerate(model.cores):
        for cpu in model.online.intersection(core.cpus):
            files |= {
                f"sys/devices/system/cpu/cpu{cpu}/{k}": v
                for k, v in _cpu(model, core_id, core, groups).items()
            }
    for node, row in zip(nodes, model.distances, strict=True):
        cpus = frozenset(cpu for core in model.cores if core.node == node for cpu in core.cpus) & model.online
        files |= {
            f"sys/devices/system/node/node{node}/cpulist": format_list(cpus),
            f"sys/devices/system/node/node{node}/cpumap": _mask(cpus),
            f"sys/devices/system/node/node{node}/distance": row,
            f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal:       {16 * GIB} kB",
        }
    for kind in {core.kind for core in model.cores} - {None}:
        cpus = frozenset(cpu for core in model.cores if core.kind == kind for cpu in core.cpus)
        files[f"sys/devices/{kind}/cpus"] = format_list(cpus & model.online)
    return files | dict(model.files)


def _cpu(model: Model, core_id: int, core: Core, groups: Groups) -> dict[str, str]:
    siblings = model.online.intersection(core.cpus)
    files = {"topology/physical_package_id": str(core.package), "topology/core_id": str(core_id)}
    for name, cpus in (
        (model.names[0], siblings),
        (model.names[1], groups["package"][core.package]),
    ):
        files |= {f"topology/{name}": _mask(cpus), f"topology/{name}_list": format_list(cpus)}
    caches = [(1, "Instruction", 32, siblings)]
    caches.append((2, "Unified", 1024, siblings if core.l2 is None else groups["l2"][core.l2]))
    if core.l3 is not None:
        caches.append((3, "Unified", 32768, groups["l3"][core.l3]))
    for index, (level, kind, size, cpus) in enumerate(caches):
        files |= {
            f"cache/index{index}/level": str(level),
            f"cache/index{index}/type": kind,
            f"cache/index{index}/size": f"{size}K",
            f"cache/index{index}/shared_cpu_map": _mask(cpus),
            f"cache/index{index}/shared_cpu_list": format_list(cpus),
        }
    if core.capacity is not None:
        files["cpu_capacity"] = str(core.capacity)
    return files


def _mask(cpus: Iterable[int]) -> str:
    """The kernel's hexadecimal masks: words of 32 bits, the highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    words = []
    while bits or not words:
        words.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))
