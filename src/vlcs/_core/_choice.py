"""From what a caller asks for to CPUs: the rules of choice.

Pure functions over plain data: the machine, and the claims of other contexts. The rules, the first one first
(docs/slices.md explains them):

1. CPUs that no context claims before claimed ones, and of those the least claimed; exclusive ones never.
2. Whole cores before hardware threads of a core that is in use.
3. Level by level, package, node and cache domain: one before two.
4. Of those of a level that are enough, the one nearest to `near`: its cache domain, its node, its package.
5. Fast cores before slow ones.
6. The smallest gap that is large enough, so that large ones stay whole; then the lowest number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from vlcs._core._errors import ArgumentError, LimitError
from vlcs._core._kernel_text import format_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vlcs._core._machine import Machine
    from vlcs._core._request import Request
    from vlcs._core._topology import CPU, Topology

# A third of 3 cores is one core, whatever binary fractions make of it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Claim:
    """The CPUs that a context was given on request. Contexts made without a request claim nothing."""

    context: str
    cpus: frozenset[int]
    exclusive: bool


@dataclass(frozen=True)
class Choice:
    """The decision: CPUs in ascending order, the claims that they overlap, and the reasons in words."""

    cpus: tuple[int, ...]
    overlaps: tuple[Claim, ...] = ()
    why: str = ""


def choose(
    request: Request,
    machine: Machine,
    claims: Sequence[Claim] = (),
    *,
    packed: bool = False,
    within: frozenset[int] | None = None,
) -> Choice:
    """Chooses the CPUs of a context.

    `packed` fills cores one by one where a number of CPUs is asked for, for when there are fewer cores
    than CPUs in demand; `within` narrows what a number is picked from. Raises ArgumentError for what
    cannot be had on this machine, LimitError where an exclusive claim is in the way.
    """
    near = _anchor(request, claims)
    if request.cpus is not None:
        _check_allowed(request.cpus, machine)
        wanted = request.cpus
    else:
        request = settle(request, machine)
        pool = _pool(request, machine)
        wanted = _pick(
            request, machine.topology, pool if within is None else pool & within, claims, near, packed=packed
        )
    overlaps = tuple(claim for claim in claims if claim.cpus & wanted)
    for claim in overlaps:
        if request.exclusive or claim.exclusive:
            raise _taken(wanted, claim, machine.allowed.difference(*(other.cpus for other in claims)))
    why = _explain(request, machine, wanted, near, overlaps)
    return Choice(tuple(sorted(wanted)), overlaps, why)


def settle(request: Request, machine: Machine) -> Request:
    """Turns a fraction into a number: of cores, or of CPUs where it is less than one core.

    Where the process's quota is smaller than its CPUs it is the quota that is divided, in CPUs. Raises
    ArgumentError for a node that cannot be had.
    """
    pool = _pool(request, machine)
    if request.fraction is None or request.cores is not None or request.count is not None:
        return request
    if quota := _short_quota(machine, pool):
        return replace(request, count=max(1, int(request.fraction * quota + _ROUNDING)))
    if whole := int(request.fraction * len(machine.topology.cores(pool)) + _ROUNDING):
        return replace(request, cores=whole)
    return replace(request, count=max(1, int(request.fraction * len(pool) + _ROUNDING)))


def _short_quota(machine: Machine, pool: frozenset[int]) -> float | None:
    """The quota, where it is smaller than what there would be to divide."""
    return machine.quota if machine.quota is not None and machine.quota < len(pool) else None


def fits(request: Request, machine: Machine, within: frozenset[int], *, packed: bool) -> bool:
    """Whether so many cores, or CPUs on so many cores, are within."""
    pool = _pool(request, machine) & within
    if request.count is not None and packed:
        return request.count <= len(pool)
    return (request.cores or request.count or 0) <= len(machine.topology.cores(pool))


class _Unit(NamedTuple):
    """What is taken or left as one: a CPU, or the CPUs of a core."""

    rank: tuple[int, ...]
    cpus: tuple[int, ...]
    weight: int


def _pool(request: Request, machine: Machine) -> frozenset[int]:
    """CPUs that the request may draw on."""
    if request.node is None:
        return machine.allowed
    node = machine.topology.nodes.get(request.node)
    if node is None or not node.cpus:
        there = [other.number for other in machine.topology.nodes.values() if other.cpus & machine.allowed]
        what = "has no CPUs, only memory" if node else "does not exist"
        raise ArgumentError(
            f"cannot use node={request.node}: NUMA node {request.node} {what}. Nodes with CPUs that the "
            f"process may use: {format_list(there)}.",
            str(request.node),
        )
    if not node.cpus & machine.allowed:
        raise ArgumentError(
            f"cannot use node={request.node}: the process may use none of its CPUs "
            f"({format_list(node.cpus)}); it may use {format_list(machine.allowed)}. Start it with a wider "
            "affinity (taskset, cgroup).",
            str(request.node),
        )
    return node.cpus & machine.allowed


def _anchor(request: Request, claims: Sequence[Claim]) -> frozenset[int]:
    if request.near is None:
        return frozenset()
    for claim in claims:
        if claim.context == request.near:
            return claim.cpus
    names = ", ".join(repr(claim.context) for claim in claims) or "none"
    raise ArgumentError(
        f"cannot place a context near {request.near!r}: there is no such context with CPUs of its own "
        f"(those that have: {names}). Make it first, with cpus=, cores=, fraction= or node=.",
        request.near,
    )


def _pick(
    request: Request,
    topology: Topology,
    pool: frozenset[int],
    claims: Sequence[Claim],
    near: frozenset[int],
    *,
    packed: bool,
) -> frozenset[int]:
    if request.cores is None and request.count is None:
        return pool
    count, what = (request.cores, "core") if request.cores is not None else (request.count or 0, "CPU")
    exists = len(topology.cores(pool)) if what == "core" else len(pool)
    where = f" on node {request.node}" if request.node is not None else ""
    if count > exists:
        raise ArgumentError(
            f"cannot pick {_many(count, what)}{where}: the process may use {exists}"
            f"{' there' if where else ''} ({_cpus(pool)}). Ask for fewer, or start the process with a wider "
            "affinity (taskset, cgroup).",
            str(count),
        )
    uses = Counter(number for claim in claims for number in claim.cpus)
    closed = {number for claim in claims if claim.exclusive or request.exclusive for number in claim.cpus}
    if what == "core":
        units = _cores(topology, pool, closed, uses)
    elif packed:
        units = _parts(topology, pool - closed, uses)
    else:
        units = _threads(topology, pool - closed, uses)
    free = sum(unit.weight for unit in units)
    if count > free:
        holders = ", ".join(f"{claim.context!r} ({format_list(claim.cpus)})" for claim in claims)
        raise LimitError(
            f"cannot pick {_many(count, what)}{where}: {free} of the {exists} that the process may use are "
            f"free for this context; other contexts hold: {holders}. Close one, or ask for fewer"
            + (", or drop exclusive=True." if request.exclusive else "."),
            str(count),
        )
    chosen = _fill(units, count, topology, near)
    if what == "core":
        return frozenset(cpu for unit in chosen for cpu in unit.cpus)
    return frozenset([cpu for unit in chosen for cpu in unit.cpus][:count])


def _cores(topology: Topology, pool: frozenset[int], closed: set[int], uses: Counter[int]) -> list[_Unit]:
    """Whole cores; one of which a part is closed is none."""
    return [
        _Unit((max(uses[cpu] for cpu in core), sum(uses[cpu] for cpu in core)), tuple(sorted(core)), 1)
        for core in topology.cores(pool)
        if not core & closed
    ]


def _threads(topology: Topology, usable: frozenset[int], uses: Counter[int]) -> list[_Unit]:
    """Single CPUs, the first of every core before the second of any."""
    return [
        _Unit((uses[cpu], _busy(topology, uses, {cpu}), index), (cpu,), 1)
        for core in topology.cores(usable)
        for index, cpu in enumerate(sorted(core))
    ]


def _parts(topology: Topology, usable: frozenset[int], uses: Counter[int]) -> list[_Unit]:
    """The CPUs of a core that are claimed equally often."""
    units = []
    for core in topology.cores(usable):
        for times in sorted({uses[cpu] for cpu in core}):
            part = tuple(sorted(cpu for cpu in core if uses[cpu] == times))
            units.append(_Unit((times, _busy(topology, uses, set(part))), part, len(part)))
    return units


def _busy(topology: Topology, uses: Counter[int], cpus: set[int]) -> int:
    """How often the rest of their core is claimed."""
    return sum(uses[sibling] for sibling in topology.siblings(min(cpus)) - cpus)


def _fill(units: Sequence[_Unit], need: int, topology: Topology, near: frozenset[int]) -> list[_Unit]:
    """Takes all of the ranks that are needed whole, and chooses by place within the last one."""
    reached, last = 0, units[0].rank
    for unit in sorted(units):
        if reached >= need:
            break
        reached, last = reached + unit.weight, unit.rank
    sure = sorted(unit for unit in units if unit.rank < last)
    rest = [unit for unit in units if unit.rank == last]
    need -= sum(unit.weight for unit in sure)
    return sure + _take(rest, need, topology, near or _union(sure), _LEVELS)


def _union(units: Iterable[_Unit]) -> frozenset[int]:
    return frozenset(cpu for unit in units for cpu in unit.cpus)


# From large to small. A level's groups are cut to the group of the level above, so it does not matter that
# one L3 may serve two nodes (sub-NUMA clusters) as well as one node have many (AMD).
_LEVELS: tuple[Callable[[CPU], object], ...] = (
    attrgetter("package"),
    attrgetter("node"),
    attrgetter("domain"),
)


def _take(
    units: Sequence[_Unit],
    need: int,
    topology: Topology,
    near: frozenset[int],
    levels: Sequence[Callable[[CPU], object]],
) -> list[_Unit]:
    """Units of equal rank that are enough, in as few groups of each level as possible."""
    if need <= 0:
        return []
    if not levels:
        places = _Places(topology, near)
        ordered = sorted(
            units, key=lambda unit: (places.distance([unit]), _slowness(topology, [unit]), unit.cpus)
        )
        return _until(ordered, need)
    groups: dict[object, list[_Unit]] = {}
    for unit in units:
        groups.setdefault(levels[0](topology.cpu(unit.cpus[0])), []).append(unit)
    places = _Places(topology, near)
    enough = [group for group in groups.values() if _weight(group) >= need]
    if enough:
        # Each is tried to the end: the smallest gap may turn out to be scattered over caches.
        tried = [(group, _take(group, need, topology, near, levels[1:])) for group in enough]
        return min(
            tried,
            key=lambda pair: (
                places.distance(pair[0]),
                [_spread(topology, pair[1], level) for level in levels[1:]],
                _slowness(topology, pair[1]),
                _weight(pair[0]),
                pair[0][0].cpus,
            ),
        )[1]
    first = min(
        groups.values(),
        key=lambda group: (
            places.distance(group),
            min(topology.cpu(unit.cpus[0]).kind for unit in group),
            -_weight(group),
            group[0].cpus,
        ),
    )
    taken = set(first)
    rest = [unit for unit in units if unit not in taken]
    return [*first, *_take(rest, need - _weight(first), topology, near or _union(first), levels)]


def _until(ordered: Iterable[_Unit], need: int) -> list[_Unit]:
    taken = []
    for unit in ordered:
        if need <= 0:
            break
        taken.append(unit)
        need -= unit.weight
    return taken


def _weight(units: Iterable[_Unit]) -> int:
    return sum(unit.weight for unit in units)


def _slowness(topology: Topology, units: Iterable[_Unit]) -> int:
    return sum(topology.cpu(cpu).kind for unit in units for cpu in unit.cpus)


def _spread(topology: Topology, units: Iterable[_Unit], level: Callable[[CPU], object]) -> int:
    return len({level(topology.cpu(unit.cpus[0])) for unit in units})


class _Places:
    """Where some CPUs are, and how far others are from them."""

    def __init__(self, topology: Topology, cpus: Iterable[int]) -> None:
        described = [topology.cpu(cpu) for cpu in cpus]
        self.topology = topology
        self.domains = {cpu.domain for cpu in described}
        self.nodes = {cpu.node for cpu in described}
        self.packages = {cpu.package for cpu in described}

    def distance(self, units: Iterable[_Unit]) -> tuple[bool, bool, bool, int]:
        """Of the nearest unit: whether outside of their domains, nodes, packages; and the firmware's word."""
        return min(self._distance(self.topology.cpu(unit.cpus[0])) for unit in units)

    def _distance(self, cpu: CPU) -> tuple[bool, bool, bool, int]:
        if not self.nodes:
            return False, False, False, 0
        return (
            cpu.domain not in self.domains,
            cpu.node not in self.nodes,
            cpu.package not in self.packages,
            min(self.topology.distance(cpu.node, node) for node in self.nodes),
        )

    def words(self, units: Iterable[_Unit]) -> str:
        """The distance for people."""
        outside = self.distance(units)
        words = ("in its cache domain", "on its node", "in its package")
        return next(
            (text for text, out in zip(words, outside, strict=False) if not out), "in another package"
        )


def _explain(
    request: Request,
    machine: Machine,
    wanted: frozenset[int],
    near: frozenset[int],
    overlaps: Sequence[Claim],
) -> str:
    topology = machine.topology
    cores = topology.cores(wanted)
    described = [topology.cpu(cpu) for cpu in sorted(wanted)]
    parts = [f"{_many(len(wanted), 'CPU')} on {_many(len(cores), 'core')}"]
    if request.cpus is not None:
        parts[0] = "the CPUs that were asked for"
    elif request.fraction is not None:
        pool = _pool(request, machine)
        quota = _short_quota(machine, pool)
        of = f"the quota of {quota:g} CPUs" if quota else _many(len(pool), "CPU")
        parts[0] += f", {request.fraction:g} of {of}"
    elif request.count is None and request.cores is None:
        parts[0] += f", all of node {request.node} that the process may use"
    for name, all_groups, groups in (
        ("node", {cpu.node for cpu in topology.cpus.values()}, {cpu.node for cpu in described}),
        ("package", {cpu.package for cpu in topology.cpus.values()}, {cpu.package for cpu in described}),
    ):
        if len(all_groups) > 1:
            parts.append(f"{name if len(groups) == 1 else name + 's'} {format_list(groups)}")
    domains = sorted({cpu.domain for cpu in described}, key=sorted)
    if len({cpu.domain for cpu in topology.cpus.values()}) > 1:
        parts.append(
            f"one cache domain ({format_list(domains[0])})"
            if len(domains) == 1
            else f"{len(domains)} cache domains"
        )
    slow = [cpu.number for cpu in described if cpu.kind]
    if any(cpu.kind for cpu in topology.cpus.values()):
        parts.append(f"slower cores: {format_list(slow)}" if slow else "fast cores only")
    if near:
        units = [_Unit((), (cpu.number,), 1) for cpu in described]
        parts.append(f"next to {request.near!r}: {_Places(topology, near).words(units)}")
    parts += [f"shares {_cpus(claim.cpus & wanted)} with {claim.context!r}" for claim in overlaps]
    return "; ".join(parts)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _cpus(numbers: Iterable[int]) -> str:
    return f"CPU {format_list(numbers)}"


def _check_allowed(wanted: frozenset[int], machine: Machine) -> None:
    refused = wanted - machine.allowed
    if not refused:
        return
    text, may = format_list(refused), format_list(machine.allowed)
    # Online CPUs as contexts see them are cut to their slice, so the tree may know fewer than we may use.
    unknown = refused - machine.topology.online if machine.topology.online else frozenset()
    if offline := unknown & machine.topology.offline:
        raise ArgumentError(
            f"cannot give a context CPU {format_list(offline)}: it is offline (online: "
            f"{format_list(machine.topology.online)}; the process may use {may}). Choose from those, or "
            "switch it on (/sys/devices/system/cpu/cpuN/online).",
            text,
        )
    if unknown:
        raise ArgumentError(
            f"cannot give a context CPU {format_list(unknown)}: the machine has no such CPU online "
            f"(online: {format_list(machine.topology.online)}; the process may use {may}). "
            "Choose from those.",
            text,
        )
    raise ArgumentError(
        f"cannot give a context CPU {text}: the process may not use it (it may use {may}). "
        "Choose from those, or start the process with a wider affinity (taskset, cgroup).",
        text,
    )


def _taken(wanted: frozenset[int], claim: Claim, free: frozenset[int]) -> LimitError:
    text = format_list(wanted & claim.cpus)
    why = "which has exclusive=True" if claim.exclusive else "and exclusive=True was asked for"
    cure = f"Free CPUs: {format_list(free)}." if free else f"No CPU is free: close {claim.context!r} first."
    return LimitError(
        f"cannot give a context CPU {text}: it belongs to the context {claim.context!r}, {why}. {cure}",
        text,
    )
