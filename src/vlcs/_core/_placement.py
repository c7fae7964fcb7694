"""The contexts of a program, placed all at once.

One after the other, each takes the best that is left; a plan knows those that come later. It differs
in this:

1. Contexts with little choice come first: lists of CPUs and whole nodes, then those on a node, then exclusive
   ones, then those near a context that has its place already.
2. Those that are near each other are given one region, which they then divide.
3. Large ones before small ones, which fit into what is left.
4. Where more CPUs are asked for than there are cores, numbers of CPUs take whole cores, so that contexts do
   not meet on the two threads of one.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vlcs._core import _choice, _request
from vlcs._core._choice import Choice, Claim
from vlcs._core._errors import ArgumentError, VLCError
from vlcs._core._kernel_text import format_list
from vlcs._core._request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vlcs._core._machine import Machine


def place(
    contexts: Mapping[str, Mapping[str, Any]], machine: Machine, claims: Sequence[Claim] = ()
) -> dict[str, Any]:
    """Places contexts, given by name with the options of each, beside those that have claims already.

    Gives plain data (`vlcs.plan` describes it). Raises as `_choice.choose` does, with the context's name.
    """
    requests = {name: _read(name, options) for name, options in contexts.items()}
    others = [claim for claim in claims if claim.context not in requests]
    _check_near(requests, others)
    board = _Board(machine, others)
    for name, request in requests.items():
        if request and _is_fixed(request):
            board.put(name, request)
    asked = {
        name: _settle(name, request, machine)
        for name, request in requests.items()
        if request and name not in board.choices
    }
    board.pack_if_short([*asked.values()])
    for group in _groups(asked, board):
        board.put_group(group)
    return board.data(contexts, requests)


def _read(name: str, options: Mapping[str, Any]) -> Request | None:
    with _named(name):
        return _request.read(**{key: options[key] for key in _request.OPTIONS if key in options})


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Names the context in the errors of a block."""
    try:
        yield
    except VLCError as error:
        raise type(error)(f"cannot plan the context {name!r}: {error.message}", error.subject) from None


def _is_fixed(request: Request) -> bool:
    """Whether it leaves no choice."""
    amounts = (request.count, request.cores, request.fraction)
    return request.cpus is not None or all(amount is None for amount in amounts)


def _check_near(requests: Mapping[str, Request | None], others: Sequence[Claim]) -> None:
    """Follows every chain of `near` to its end."""
    ends = {claim.context for claim in others}
    for name in requests:
        chain = [name]
        while (request := requests.get(chain[-1])) and request.near is not None and request.near not in ends:
            if request.near in chain:
                circle = ", ".join(map(repr, chain[chain.index(request.near) :]))
                raise ArgumentError(
                    f"cannot plan {circle}: each is to be near the next, in a circle. Leave one near= out.",
                    name,
                )
            if not requests.get(request.near):
                known = ", ".join(map(repr, [*(n for n, asks in requests.items() if asks), *sorted(ends)]))
                raise ArgumentError(
                    f"cannot plan the context {chain[-1]!r} near {request.near!r}: there is no such context "
                    f"with CPUs of its own (those that have: {known}). Add it to the plan, with cpus=, "
                    "cores=, fraction= or node=.",
                    request.near,
                )
            chain.append(request.near)


@dataclass(frozen=True)
class _Group:
    """Contexts that hang together by `near`, the one that the others are near first."""

    members: tuple[tuple[str, Request], ...]

    @property
    def first(self) -> Request:
        return self.members[0][1]


def _groups(asked: Mapping[str, Request], board: _Board) -> list[_Group]:
    """In the order in which they are placed. All requests are settled."""
    roots: dict[str, list[str]] = {}
    depths: dict[str, int] = {}
    for name in asked:
        root, depth = name, 0
        while (near := asked[root].near) is not None and near in asked:
            root, depth = near, depth + 1
        roots.setdefault(root, []).append(name)
        depths[name] = depth
    groups = []
    for names in roots.values():
        # Large before small, but never before the one that it is near. Equals keep the order given.
        ordered = sorted(
            names, key=lambda name: (depths[name], not asked[name].exclusive, -board.size(asked[name]))
        )
        groups.append(_Group(tuple((name, asked[name]) for name in ordered)))
    return sorted(
        groups,
        key=lambda group: (
            group.first.node is None,
            not any(request.exclusive for _, request in group.members),
            group.first.near is None,
            -sum(board.size(request) for _, request in group.members),
        ),
    )


def _settle(name: str, request: Request, machine: Machine) -> Request:
    with _named(name):
        return _choice.settle(request, machine)


class _Board:
    """The machine while contexts are being placed on it."""

    def __init__(self, machine: Machine, others: Sequence[Claim]) -> None:
        self.machine = machine
        self.choices: dict[str, Choice] = {}
        self.claims = list(others)
        self.packed = False
        cores = machine.topology.cores(machine.allowed)
        self.threads = max((len(core) for core in cores), default=1)

    @property
    def free(self) -> frozenset[int]:
        return self.machine.allowed.difference(*(claim.cpus for claim in self.claims))

    def put(self, name: str, request: Request, within: frozenset[int] | None = None) -> None:
        """Places one."""
        with _named(name):
            choice = _choice.choose(request, self.machine, self.claims, packed=self.packed, within=within)
        self.choices[name] = choice
        self.claims.append(Claim(name, frozenset(choice.cpus), request.exclusive))

    def pack_if_short(self, requests: Sequence[Request]) -> None:
        """Decides whether numbers of CPUs are to share cores. The requests are settled."""
        wanted = sum(request.cores or request.count or 0 for request in requests)
        self.packed = self.threads > 1 and wanted > len(self.machine.topology.cores(self.free))

    def size(self, request: Request) -> int:
        """CPUs that it takes away from others, in whole cores."""
        if self.packed and request.count is not None:
            return -(-request.count // self.threads) * self.threads
        return (request.cores or request.count or 0) * self.threads

    def put_group(self, group: _Group) -> None:
        """Places contexts that are near each other: in one region, if there is one large enough."""
        region: frozenset[int] = frozenset()
        if len(group.members) > 1:
            with _named(group.members[0][0]):
                region = self._region(group)
        for name, request in group.members:
            left = region & self.free
            self.put(
                name, request, left if _choice.fits(request, self.machine, left, packed=self.packed) else None
            )

    def _region(self, group: _Group) -> frozenset[int]:
        """Free whole cores, as one context would be given them."""
        whole = [core for core in self.machine.topology.cores(self.machine.allowed) if core <= self.free]
        free: frozenset[int] = frozenset().union(*whole)
        total = sum(self.size(request) for _, request in group.members)
        request = Request(cores=-(-total // self.threads), node=group.first.node, near=group.first.near)
        if not _choice.fits(request, self.machine, free, packed=False):
            return frozenset()
        return frozenset(_choice.choose(request, self.machine, self.claims, within=free).cpus)

    def data(
        self, contexts: Mapping[str, Mapping[str, Any]], requests: Mapping[str, Request | None]
    ) -> dict[str, Any]:
        """The plan."""
        return {
            "contexts": {name: self._context(name, request) for name, request in requests.items()},
            "options": {
                name: {
                    **{key: value for key, value in options.items() if key not in _request.OPTIONS},
                    **self._options(name, requests[name]),
                }
                for name, options in contexts.items()
            },
            "order": list(self.choices),
            "free": format_list(self.free),
            "notes": self._notes(requests),
        }

    def _options(self, name: str, request: Request | None) -> dict[str, Any]:
        if request is None:
            return {}
        exclusive = {"exclusive": True} if request.exclusive else {}
        return {"cpus": list(self.choices[name].cpus), **exclusive}

    def _context(self, name: str, request: Request | None) -> dict[str, Any]:
        if request is None:
            cpus = frozenset(self.machine.allowed)
            why = "no CPUs were asked for: all that the process may use, and none claimed"
        else:
            cpus = frozenset(self.choices[name].cpus)
            why = self.choices[name].why
        return {
            "request": str(request) if request else "",
            "cpus": format_list(cpus),
            "nodes": sorted({self.machine.topology.cpu(cpu).node for cpu in cpus}),
            "why": why,
            "overlaps": {
                claim.context: format_list(claim.cpus & cpus)
                for claim in self.claims
                if claim.context != name and claim.cpus & cpus
            },
        }

    def _notes(self, requests: Mapping[str, Request | None]) -> list[str]:
        notes = []
        claimed = Counter(cpu for claim in self.claims for cpu in claim.cpus)
        quota = self.machine.quota
        busy = len(claimed) if all(requests.values()) else len(self.machine.allowed)
        if quota is not None and quota < busy:
            notes.append(
                f"The control group's quota is {quota:g} CPUs, and the contexts have {busy}: when they keep "
                f"more than {quota:g} busy, all are stopped for a part of each period. Ask for fewer, as "
                "fraction= does, or raise the quota."
            )
        shared = sorted(cpu for cpu, times in claimed.items() if times > 1)
        if shared:
            notes.append(
                f"Contexts share CPU {format_list(shared)}: more was asked for than there is, or lists of "
                "CPUs overlap. Ask for fewer where that matters."
            )
        if self.packed:
            notes.append(
                "More CPUs are asked for than there are cores, so numbers of CPUs take whole cores with "
                "their hardware threads."
            )
        everywhere = [name for name, request in requests.items() if request is None]
        if everywhere and len(requests) > 1:
            names = ", ".join(map(repr, everywhere))
            notes.append(f"{names}: without a request, so on the CPUs of all others too.")
        return notes
