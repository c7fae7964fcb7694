"""Memory bandwidth and ways of the last-level cache, by the kernel's resctrl file system.

A group of a context's own beside the default one; the CPU tells by each thread's group how much of the cache
it may fill and how fast it may ask for memory (Linux's Documentation/filesystems/resctrl.rst; Intel RDT, AMD
QoS). No machine of ours has it: all of this is tested against trees of files only.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vlcs._core import _kernel_text
from vlcs._core._errors import ArgumentError, SystemRefusedError
from vlcs._core._group import Group, Refusal
from vlcs._core._kernel_text import format_list
from vlcs._core._resource import Resource, State, reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vlcs._core._quality import Quality

OPTIONS = {"bandwidth": "MB", "cache_ways": "L3"}
"""Each with the kernel's name of it."""

_FOLDER = "sys/fs/resctrl"
_WHAT = {"MB": "memory bandwidth", "L3": "ways of the last-level cache"}
_OTHER_MACHINE = (
    "Run on a CPU with Intel RDT or AMD QoS (`grep rdt_a /proc/cpuinfo`), and Linux 4.10 or later built with "
    "CONFIG_X86_CPU_RESCTRL; virtual machines seldom pass it on."
)


def find(name: str, root: Path = Path("/")) -> Path | Refusal:
    """The folder of the file system, if it can divide that resource ("MB", "L3"). Changes nothing."""
    folder = root / _FOLDER
    if not folder.is_dir():
        return Refusal(f"neither the kernel nor the CPU divides {_WHAT[name]} (resctrl)", _OTHER_MACHINE)
    if not (folder / "schemata").exists():
        return Refusal(
            "the file system resctrl is not mounted", f"As root: `mount -t resctrl resctrl /{_FOLDER}`."
        )
    if refusal := _indivisible(folder, name):
        return refusal
    if not _kernel_text.is_writable(folder):
        return Refusal(
            f"the process may not make groups in {folder}", "Start it as root, or give it the folder (chown)."
        )
    return folder


def _indivisible(folder: Path, name: str) -> Refusal | None:
    """Why it does not divide that resource in a way that we know."""
    if (folder / "info" / f"{name}CODE").is_dir():
        return Refusal(
            "resctrl is mounted with `cdp`, which divides the cache by code and data",
            f"As root: `umount /{_FOLDER} && mount -t resctrl resctrl /{_FOLDER}`.",
        )
    if not (folder / "info" / name).is_dir():
        return Refusal(f"this CPU does not divide {_WHAT[name]}", _OTHER_MACHINE)
    if name == "MB" and max(_schemata(folder).get("MB", {}).values(), default=0) > 100:
        return Refusal(
            "bandwidth is not counted in per cent here: by AMD's CPUs, and where resctrl is mounted with "
            "`mba_MBps`",
            "Write the figure into a group's `schemata`, and start the process in it.",
        )
    return None


class Resctrl:
    """The group of one context: made before it, and removed after it."""

    def __init__(self, quality: Quality, cpus: Iterable[int], root: Path = Path("/")) -> None:
        """Makes what is asked for, as far as the kernel agrees.

        Raises ArgumentError where more ways are asked for than the cache has; nothing is left behind.
        """
        self.refused: dict[str, Refusal] = {}
        self._granted: dict[str, str] = {}
        self._quality, self._root = quality, root
        self._group: Group | None = None
        try:
            for option in OPTIONS:
                if quality.words(option) is not None:
                    self._make(option, frozenset(cpus))
            if not self._granted:
                self.remove()
        except BaseException:
            self.remove()
            raise

    @property
    def files(self) -> tuple[str, ...]:
        """Where each thread of the context writes its id as it begins."""
        return (self._group.file,) if self._group else ()

    @contextmanager
    def moving(self, cpus: Iterable[int]) -> Iterator[None]:
        """Around a change of the slice: the caches of the new CPUs are divided before threads are there."""
        if self._group is not None:
            before = (self._group.folder / "schemata").read_text()
            granted = dict(self._granted)
            try:
                for option in self._granted:
                    self._granted[option] = self._set(self._group, option, frozenset(cpus))
            except OSError as error:
                self._restore(before, granted)
                raise SystemRefusedError(
                    f"cannot divide the caches of CPU {format_list(cpus)} by {self._group.folder}: "
                    f"{error.strerror}; nothing was changed. See {self._group.above}/info/last_cmd_status.",
                    str(self._group.folder),
                    error.errno or 0,
                ) from error
            try:
                yield
            except BaseException:
                self._restore(before, granted)
                raise
            return
        yield

    def remove(self) -> None:
        """Removes the group; threads that are still there go to the default one."""
        group, self._group = self._group, None
        if group:
            group.remove()

    def differences(self, thread: int) -> Iterator[str]:
        """Whether a thread is in another group, in words."""
        if self._group and thread not in self._group.threads():
            yield f"is not in the resctrl group {self._group.folder}"

    def resources(self, *, resident: bool) -> tuple[Resource, ...]:
        """The lines of the report."""
        return tuple(self._resource(option, resident=resident) for option in OPTIONS)

    def _resource(self, option: str, *, resident: bool) -> Resource:
        requested = self._quality.words(option)
        whose, cure = reach(resident=resident)
        others = "other groups may use the same, the default one too"
        if self._group and (granted := self._granted.get(option)):
            by = f"by the CPU, as the resctrl group {self._group.folder} says, for {whose}; {others}"
            return Resource(option, State.ENFORCED, requested, granted, by, cure)
        found = self.refused.get(option) or find(OPTIONS[option], self._root)
        if isinstance(found, Refusal):
            return Resource(option, State.UNAVAILABLE, requested, None, found.reason, found.cure)
        could = f"by the CPU, as a resctrl group in {found} says, for {whose}; {others}"
        if requested is None:
            could = f"not asked for; {could}"
        return Resource(option, State.ENFORCED, requested, None, could, cure)

    def _make(self, option: str, cpus: frozenset[int]) -> None:
        folder = find(OPTIONS[option], self._root)
        if isinstance(folder, Refusal):
            self.refused[option] = folder
            return
        try:
            if self._group is None:
                group = Group(folder, "tasks", self._root)
                self._group = group
                group.try_to_join()
            self._granted[option] = self._set(self._group, option, cpus)
        except OSError as error:
            self.refused[option] = Refusal(
                f"the kernel refuses a group in {folder}: {error.strerror} "
                f"({_kernel_text.read(folder / 'info/last_cmd_status') or 'no more is said'})",
                "The CPU knows few groups (`info/*/num_closids`): remove others in that folder.",
            )

    def _restore(self, schemata: str, granted: dict[str, str]) -> None:
        self._granted = granted
        for line in schemata.splitlines():
            with suppress(OSError):
                self._write(line.strip())

    def _write(self, line: str) -> None:
        if self._group:
            self._group.set("schemata", f"{line}\n")

    def _set(self, group: Group, option: str, cpus: frozenset[int]) -> str:
        """Divides the caches of these CPUs, and no others; gives what was granted in words."""
        name = OPTIONS[option]
        info = group.above / "info" / name
        whole = _schemata(group.above).get(name, {})
        domains = _domains(self._root, cpus) & whole.keys() or whole.keys()
        values = dict(whole)
        if name == "MB":
            step = max(1, _kernel_text.read_integer(info / "bandwidth_gran") or 1)
            least = _kernel_text.read_integer(info / "min_bandwidth") or 1
            value = max(least, -(-(self._quality.bandwidth or 0) // step) * step)
            values |= dict.fromkeys(domains, min(value, 100))
            words = f"{min(value, 100)} %"
        else:
            total = int(_kernel_text.read(info / "cbm_mask") or "0", 16).bit_count()
            ways = self._ways(total, _kernel_text.read_integer(info / "min_cbm_bits") or 1)
            used = int(_kernel_text.read(info / "shareable_bits") or "0", 16)
            others = [
                _schemata(folder).get(name, {})
                for folder in group.above.iterdir()
                if folder.name not in {"info", "mon_groups", "mon_data", group.name} and folder.is_dir()
            ]
            for domain in domains:
                values[domain] = _run(ways, total, [used, *(masks.get(domain, 0) for masks in others)])
            words = f"{ways} of {total} ways"
        form = "d" if name == "MB" else "x"
        pairs = (f"{domain}={value:{form}}" for domain, value in sorted(values.items()))
        self._write(f"{name}:{';'.join(pairs)}")
        return f"{words} of cache domain {format_list(domains)}"

    def _ways(self, total: int, least: int) -> int:
        asked = self._quality.cache_ways or 0
        if isinstance(asked, float):
            return max(least, int(asked * total))
        if asked > total:
            raise ArgumentError(
                f"cannot give cache_ways={asked}: the last-level cache has {total} ways. Ask for fewer, or "
                "for a part (0.5).",
                str(asked),
            )
        return max(least, asked)


def _run(ways: int, total: int, others: Iterable[int]) -> int:
    """So many ways side by side, as CPUs demand, that overlap the fewest of others'; the lowest of these."""
    masks = list(others)
    runs = [((1 << ways) - 1) << shift for shift in range(total - ways + 1)]
    return min(runs, key=lambda run: (sum((run & mask).bit_count() for mask in masks), run))


def _schemata(folder: Path) -> Mapping[str, Mapping[int, int]]:
    """A group's file: "L3:0=fffff;1=fffff", where masks are hexadecimal, and "MB:0=100;1=100"."""
    found: dict[str, dict[int, int]] = {}
    for line in _kernel_text.read(folder / "schemata").splitlines():
        name, colon, rest = line.strip().partition(":")
        base = 10 if name == "MB" else 16
        with suppress(ValueError):
            pairs = [pair.partition("=") for pair in rest.split(";") if colon]
            found[name] = {int(domain): int(value, base) for domain, _, value in pairs}
    return found


def _domains(root: Path, cpus: Iterable[int]) -> frozenset[int]:
    """Ids of the last-level caches of these CPUs, as resctrl counts them."""
    found = set()
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache"
        with suppress(OSError):
            for index in folder.iterdir():
                if _kernel_text.read_integer(index / "level") == 3:
                    number = _kernel_text.read_integer(index / "id")
                    found |= set() if number is None else {number}
    return frozenset(found)
