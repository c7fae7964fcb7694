"""From what a caller asks for to the CPUs of a context.

Pure functions over plain data: the CPUs that the process may use, the machine's topology, and the
claims of the contexts that are open. Nothing here reads or changes the system.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vlcs._core._errors import ArgumentError, LimitError
from vlcs._core._kernel_text import format_list, parse_list
from vlcs._core._topology import Topology

CPURequest = str | int | Iterable[int] | None
"""What `cpus=` takes: "0-3,8"; a set, list or range of numbers; a count; None for all."""

MAX_CPU = 1023
"""The highest number that fits the C library's `cpu_set_t` (glibc, sched.h)."""

_FORMS = 'Give a string like "0-3,8", a set, list or range of CPU numbers, or how many CPUs (an int).'


@dataclass(frozen=True)
class Claim:
    """The CPUs that an open context was given by `cpus=`. Contexts made without it claim nothing."""

    context: str
    cpus: frozenset[int]
    exclusive: bool


@dataclass(frozen=True)
class Slice:
    """The decision: CPUs in ascending order, and the claims that they overlap."""

    cpus: tuple[int, ...]
    overlaps: tuple[Claim, ...] = ()


def decide(
    request: CPURequest,
    *,
    allowed: frozenset[int],
    topology: Topology,
    claims: Sequence[Claim] = (),
    exclusive: bool = False,
) -> Slice:
    """Chooses the CPUs of a context.

    `request` None gives all of `allowed`, and a count picks (`pick`). Raises ArgumentError for
    what cannot be read or may not be used, LimitError where an exclusive claim is in the way.
    """
    if request is None:
        if exclusive:
            raise ArgumentError(
                "exclusive=True needs cpus=: a context made without cpus= may use every CPU and claims none. "
                + _FORMS
            )
        return Slice(tuple(sorted(allowed)))
    wanted = parse(request)
    if isinstance(wanted, int):
        wanted = pick(wanted, allowed=allowed, topology=topology, claims=claims, exclusive=exclusive)
    _check_allowed(wanted, allowed, topology)
    overlaps = tuple(claim for claim in claims if claim.cpus & wanted)
    for claim in overlaps:
        if exclusive or claim.exclusive:
            raise _taken(wanted, claim, allowed - frozenset().union(*(other.cpus for other in claims)))
    return Slice(tuple(sorted(wanted)), overlaps)


def parse(request: str | int | Iterable[int]) -> frozenset[int] | int:
    """Reads a request: a set of CPU numbers, or an int for how many. Does not ask what exists."""
    if isinstance(request, bool | float | bytes | bytearray):
        raise _unreadable(request, f"{type(request).__name__} is not a form of CPU list")
    if isinstance(request, int):
        if request < 1:
            raise _unreadable(request, "a context needs at least one CPU")
        return request
    if isinstance(request, str):
        if not request.strip():
            raise _unreadable(request, "the list is empty")
        try:
            numbers = parse_list(request)
        except ValueError as error:
            raise _unreadable(request, f"{str(error)!r} is neither a CPU number nor a range") from None
    else:
        numbers = _collect(request)
    highest = max(numbers)
    if highest > MAX_CPU:
        raise _unreadable(
            request, f"CPU {highest} is above {MAX_CPU}, the highest that the C library can name"
        )
    return numbers


def pick(
    count: int,
    *,
    allowed: frozenset[int],
    topology: Topology,
    claims: Sequence[Claim] = (),
    exclusive: bool = False,
) -> frozenset[int]:
    """Picks `count` CPUs: free ones first, whole physical cores before SMT siblings, one package if it fits.

    Free means claimed by no open context. Where too few are free the least claimed are shared,
    unless `exclusive` forbids it; those that another context claims exclusively are never taken.
    """
    if count > len(allowed):
        raise ArgumentError(
            f"cannot pick {count} CPUs: the process may use {len(allowed)} ({format_list(allowed)}). "
            "Ask for fewer, or start the process with a wider affinity (taskset, cgroup).",
            str(count),
        )
    uses = Counter(number for claim in claims for number in claim.cpus)
    closed = {number for claim in claims if claim.exclusive or exclusive for number in claim.cpus}
    usable = allowed - closed
    if count > len(usable):
        holders = ", ".join(f"{claim.context!r} ({format_list(claim.cpus)})" for claim in claims)
        raise LimitError(
            f"cannot pick {count} CPUs: {len(usable)} of the {len(allowed)} that the process may use are "
            f"free for this context; open contexts hold: {holders}. Close one, or ask for fewer"
            + (", or drop exclusive=True." if exclusive else "."),
            str(count),
        )

    def rank(number: int) -> tuple[int, int, int]:
        # By how often it is claimed, then whether a sibling is, then its place within its core:
        # the first thread of every free core comes before the second thread of any.
        core = topology.siblings(number) & usable
        busy = sum(uses[sibling] for sibling in topology.siblings(number) - {number})
        return uses[number], busy, sorted(core).index(number)

    ranks = {number: rank(number) for number in usable}
    worst = sorted(ranks.values())[count - 1]
    good = {number for number in usable if ranks[number] <= worst}
    # Ranks decide which CPUs are good enough; among those, the package with the fewest that
    # still suffices keeps the slice on one memory controller and large gaps for others.
    sizes = Counter(topology.package(number) for number in good)
    fitting = [(size, package) for package, size in sizes.items() if size >= count]
    home = min(fitting)[1] if fitting else None
    ordered = sorted(good, key=lambda n: (topology.package(n) != home, *ranks[n], topology.package(n), n))
    return frozenset(ordered[:count])


def _collect(request: Iterable[int]) -> frozenset[int]:
    try:
        numbers = list(request)
    except TypeError:
        raise _unreadable(request, f"{type(request).__name__} is not a form of CPU list") from None
    for number in numbers:
        if isinstance(number, bool) or not hasattr(type(number), "__index__"):
            raise _unreadable(request, f"{number!r} is not a CPU number")
        if number < 0:
            raise _unreadable(request, f"{number} is below 0")
    if not numbers:
        raise _unreadable(request, "the list is empty, and a context needs at least one CPU")
    return frozenset(number.__index__() for number in numbers)


def _check_allowed(wanted: frozenset[int], allowed: frozenset[int], topology: Topology) -> None:
    refused = wanted - allowed
    if not refused:
        return
    text = format_list(refused)
    # Online CPUs as contexts see them are cut to their slice, so the tree may know fewer than we may use.
    unknown = refused - topology.online if topology.online else frozenset()
    if unknown:
        raise ArgumentError(
            f"cannot give a context CPU {format_list(unknown)}: the machine has no such CPU online "
            f"(online: {format_list(topology.online)}; the process may use {format_list(allowed)}). "
            "Choose from those.",
            text,
        )
    raise ArgumentError(
        f"cannot give a context CPU {text}: the process may not use it (it may use {format_list(allowed)}). "
        "Choose from those, or start the process with a wider affinity (taskset, cgroup).",
        text,
    )


def _taken(wanted: frozenset[int], claim: Claim, free: frozenset[int]) -> LimitError:
    text = format_list(wanted & claim.cpus)
    why = "which was made with exclusive=True" if claim.exclusive else "and exclusive=True was asked for"
    cure = f"Free CPUs: {format_list(free)}." if free else f"No CPU is free: close {claim.context!r} first."
    return LimitError(
        f"cannot give a context CPU {text}: it belongs to the open context {claim.context!r}, {why}. {cure}",
        text,
    )


def _unreadable(request: object, why: str) -> ArgumentError:
    return ArgumentError(f"cannot read cpus={request!r}: {why}. {_FORMS}", repr(request))
