"""Which CPUs the machine has, and which of them share a physical core.

Read from the kernel's tree (`/sys/devices/system/cpu`); another root gives a recorded machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class CPU:
    """One CPU as the kernel numbers it: a hardware thread of a core of a package."""

    number: int
    package: int
    siblings: frozenset[int]
    """CPUs of the same physical core, this one included."""


@dataclass(frozen=True)
class Topology:
    """The online CPUs of a machine at one moment."""

    cpus: dict[int, CPU] = field(default_factory=dict)

    @property
    def online(self) -> frozenset[int]:
        """Numbers of the online CPUs."""
        return frozenset(self.cpus)

    def siblings(self, number: int) -> frozenset[int]:
        """CPUs of the same physical core; a CPU that the tree does not describe stands alone."""
        cpu = self.cpus.get(number)
        return cpu.siblings if cpu else frozenset({number})

    def package(self, number: int) -> int:
        """The physical package (socket) of a CPU; 0 where the tree does not say."""
        cpu = self.cpus.get(number)
        return cpu.package if cpu else 0


def read(root: Path = ROOT, fallback: Iterable[int] = ()) -> Topology:
    """Reads a machine's CPUs.

    Containers and old kernels hide parts of the tree. Without `online` the numbered directories
    are taken, and without those `fallback`; a CPU without its `topology` directory counts as a
    core of its own in package 0. So a missing file makes the choice of CPUs worse, never an error.
    """
    numbers = _online(root) or frozenset(fallback)
    found = {}
    for number in sorted(numbers):
        tree = root / f"cpu{number}" / "topology"
        # `core_cpus_list` is the name since Linux 5.4; `thread_siblings_list` is kept as an alias.
        listed = _list(tree / "core_cpus_list") or _list(tree / "thread_siblings_list")
        found[number] = CPU(
            number=number,
            package=_integer(tree / "physical_package_id"),
            siblings=(listed & numbers) | {number},
        )
    return Topology(found)


def parse_list(text: str) -> frozenset[int]:
    """Reads the kernel's notation for sets of CPUs: "0-3,8". Raises ValueError for anything else."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(part)
        low, high = int(first), int(last) if dash else int(first)
        # The bound keeps "0-99999999999" from filling memory before anyone looks at the numbers.
        if high < low or high - low > 65535:
            raise ValueError(part)
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def format_list(numbers: Iterable[int]) -> str:
    """Writes a set of CPUs as the kernel does: {0, 1, 2, 3, 8} is "0-3,8"."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for index, number in enumerate(ordered):
        last = index + 1 == len(ordered)
        if last or ordered[index + 1] != number + 1:
            parts.append(f"{ordered[start]}-{number}" if index > start else f"{number}")
            start = index + 1
    return ",".join(parts)


def _online(root: Path) -> frozenset[int]:
    listed = _list(root / "online")
    if listed:
        return listed
    try:
        names = [entry.name for entry in root.iterdir()]
    except OSError:
        return frozenset()
    return frozenset(int(name[3:]) for name in names if name.startswith("cpu") and name[3:].isdecimal())


def _list(path: Path) -> frozenset[int]:
    try:
        return parse_list(path.read_text())
    except (OSError, ValueError):
        return frozenset()


def _integer(path: Path) -> int:
    try:
        # The kernel writes -1 where firmware does not say.
        return max(0, int(path.read_text()))
    except (OSError, ValueError):
        return 0
