"""How two threads of one process share the machine: the thing that a person tunes by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

from vlcs._core._kernel_text import format_list
from vlcs._core._topology import Topology


@dataclass(frozen=True)
class SideSetting:
    """What one of the two threads is told. None: left as it is."""

    threads: int | None = None
    """How many threads its libraries start."""
    cpus: tuple[int, ...] | None = None
    """Where it and the threads that it starts are pinned."""


@dataclass(frozen=True)
class Setting:
    """What both threads are told, and whether they run at the same time."""

    sides: tuple[SideSetting, SideSetting] = (SideSetting(), SideSetting())
    together: bool = True

    def __str__(self) -> str:
        first, second = self.sides
        words = ["together" if self.together else "one after the other"]
        if first.threads and second.threads:
            words.append(f"{first.threads} and {second.threads} threads")
        if first.cpus and second.cpus:
            shared = first.cpus == second.cpus
            where = format_list(first.cpus) + ("" if shared else f" and {format_list(second.cpus)}")
            words.append(f"pinned to CPUs {where}" if not shared else f"both pinned to CPU {where}")
        else:
            words.append("not pinned")
        return ", ".join(words)


UNTOUCHED = Setting()
SERIAL = Setting(together=False)


def candidates(cpus: Sequence[int], threaded: tuple[bool, bool]) -> list[Setting]:
    """Every setting that the search tries, on these CPUs in the order that `halves` makes.

    At the same time without pins; pinned to two parts of the machine (halves; a quarter and the rest);
    one after the other on all of it. Each with one thread, with half as many as CPUs, and with as many,
    where a library has a thread count. Where none has, also both on one CPU: that spares them the fight
    for a lock.
    """
    total = len(cpus)
    everywhere = (1, total // 2, total)
    found = [
        Setting(_sides(counts, (None, None)), together)
        for together in (True, False)
        for counts in _counts(threaded, everywhere, everywhere)
    ]
    for cut in sorted({max(1, total // 4), total // 2, total - max(1, total // 4)}):
        parts = tuple(cpus[:cut]), tuple(cpus[cut:])
        found += [Setting(_sides(counts, parts)) for counts in _counts(threaded, (1, cut), (1, total - cut))]
    if not any(threaded):
        found.append(Setting(_sides((None, None), ((cpus[0],), (cpus[0],)))))
    return list(dict.fromkeys(found))


def halves(cpus: Sequence[int], topology: Topology) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two halves of the CPUs, of whole cores and packages where possible; the first is never the larger."""
    cores: dict[frozenset[int], list[int]] = {}
    for cpu in sorted(cpus):
        cores.setdefault(topology.siblings(cpu), []).append(cpu)
    ordered = sorted(cores.values(), key=lambda core: (topology.package(core[0]), core[0]))
    first: list[int] = []
    for core in ordered:
        if len(first) + len(core) > len(cpus) // 2:
            break
        first += core
    if not first:  # one core with two hardware threads
        first = ordered[0][: len(cpus) // 2]
    return tuple(first), tuple(cpu for core in ordered for cpu in core if cpu not in first)


def _counts(
    threaded: tuple[bool, bool], first: Sequence[int], second: Sequence[int]
) -> list[tuple[int | None, int | None]]:
    firsts: Sequence[int | None] = first if threaded[0] else (None,)
    seconds: Sequence[int | None] = second if threaded[1] else (None,)
    return [(one, other) for one in firsts for other in seconds]


def _sides(
    threads: tuple[int | None, int | None], cpus: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
) -> tuple[SideSetting, SideSetting]:
    return SideSetting(threads[0], cpus[0]), SideSetting(threads[1], cpus[1])
