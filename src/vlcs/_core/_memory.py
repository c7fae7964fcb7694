"""On which NUMA nodes a context's memory lies, and what holds it there."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcs._core import _native
from vlcs._core._errors import ArgumentError, SystemRefusedError
from vlcs._core._kernel_text import format_list, parse_list
from vlcs._core._resource import Resource, State

if TYPE_CHECKING:
    from vlcs._core._machine import Machine

Nodes = str | int | Iterable[int] | None
"""What `memory_nodes=` takes: "0-1"; a set, list or range of numbers; a number; None."""

POLICIES = ("default", "bind", "preferred", "interleave", "local")
"""By number of vlc_memory."""

_CURE = (
    "Let the process make the calls mbind and set_mempolicy: in a container the capability SYS_NICE allows "
    "them (`docker run --cap-add SYS_NICE`), or a seccomp profile of your own."
)


@dataclass(frozen=True)
class MemoryRequest:
    """A policy, and the nodes that it is about."""

    policy: str | None = None
    nodes: frozenset[int] | None = None
    """None: those of the slice's CPUs, wherever these are."""

    def __str__(self) -> str:
        """As the caller may have written it."""
        nodes = "" if self.nodes is None else f', memory_nodes="{format_list(self.nodes)}"'
        return f'memory="{self.policy}"{nodes}'

    @property
    def number(self) -> int:
        """A vlc_memory."""
        return POLICIES.index(self.policy or "default")


@dataclass(frozen=True)
class Migration:
    """What `migrate_memory` did, in bytes."""

    moved: int
    """That lie on the right nodes now."""
    left: int
    """That are still elsewhere: the nodes are full, or a driver or a child of `fork()` has the pages too."""


def read(memory: Any, memory_nodes: Any) -> MemoryRequest:
    """Reads the options of a context. Raises ArgumentError."""
    if memory is not None and not (isinstance(memory, str) and memory in POLICIES[1:]):
        raise ArgumentError(
            f'cannot read memory={memory!r}: give "bind" (on these nodes and no others), "preferred" (while '
            'they have room), "interleave" (on each in turn) or "local" (where the thread runs that touches '
            "it).",
            repr(memory),
        )
    if memory_nodes is None:
        return MemoryRequest(memory)
    if memory in {None, "local"}:
        both = f"memory_nodes={memory_nodes!r}"
        why = "without memory=: it says where, and not how" if memory is None else 'with memory="local"'
        raise ArgumentError(
            f'cannot use {both} {why}. Write memory="bind", "preferred" or "interleave".', both
        )
    return MemoryRequest(memory, _nodes(memory_nodes))


def check(request: MemoryRequest, machine: Machine) -> None:
    """Raises ArgumentError for nodes that the process cannot have memory of."""
    refused = (request.nodes or frozenset()) - machine.nodes
    if not refused:
        return
    text, may = format_list(refused), format_list(machine.nodes)
    known = refused <= machine.topology.nodes.keys()
    empty = known and all(not machine.topology.nodes[number].size for number in refused)
    why = (
        "the machine has no such node"
        if not known
        else "there is no memory on it"
        if empty
        else "the process may not use its memory (cpuset.mems of its control group)"
    )
    raise ArgumentError(
        f"cannot give a context memory of NUMA node {text}: {why}. It may use memory of node {may}.", text
    )


def refusal(request: MemoryRequest) -> str | None:
    """Why the kernel lets nobody set a policy here; None: it does, or nothing was asked for."""
    if request.policy is None:
        return None
    try:
        _native.allowed_nodes()
    except SystemRefusedError as error:
        return str(error)
    return None


def resource(
    request: MemoryRequest,
    nodes: Iterable[int],
    machine: Machine,
    refused: str | None = None,
    *,
    own_heap: bool = True,
) -> Resource:
    """The line of the report; `nodes` are those in force."""
    nodes = frozenset(nodes)
    requested = str(request) if request.policy else None
    if len(machine.nodes) == 1:
        return Resource(
            "memory",
            State.ENFORCED,
            requested,
            f"node {format_list(machine.nodes)}",
            reason="this is the only node that the process may use memory of",
        )
    if request.policy is None:
        return Resource(
            "memory",
            State.ADVISORY,
            requested,
            f"node {format_list(machine.nodes)}",
            reason="no policy was asked for: pages lie where the thread runs that touches them first",
            cure='Ask for memory="bind", or one of the other policies.',
        )
    if refused:
        return Resource("memory", State.UNAVAILABLE, requested, None, reason=refused, cure=_CURE)
    words = {
        "bind": f"bound to node {format_list(nodes)}",
        "preferred": f"node {format_list(nodes)} preferred",
        "interleave": f"interleaved over node {format_list(nodes)}",
        "local": "where the thread runs that touches it first",
    }
    if request.policy == "bind" and nodes >= machine.nodes:
        return Resource(
            "memory",
            State.ENFORCED,
            requested,
            words["bind"],
            reason="these are all nodes that the process may use memory of",
        )
    what = (
        "heap, mappings and threads"
        if own_heap
        else "mappings and threads (not the heap, which is the host's)"
    )
    return Resource(
        "memory",
        State.ADVISORY,
        requested,
        words[request.policy],
        reason=f"the context's {what} have the policy, but a library can ask the kernel for another (mbind); "
        "pages of files, which processes share, lie where they were first read",
        cure="stats(nodes=True) says where the pages are, and migrate_memory() moves them.",
    )


def differences(thread: int, policy: str, nodes: Iterable[int], root: Path = Path("/")) -> Iterator[str]:
    """Where the policy of a thread is another than was granted, in words.

    The kernel tells it of mappings that have none of their own (Linux, Documentation/filesystems/proc.rst,
    numa_maps), as the first one of a program, its text. Libraries may narrow what they are bound to.
    """
    found = _first_policy(root / f"proc/self/task/{thread}/numa_maps")
    if found is None:
        return
    mode, _, on = found.partition(":")
    allowed = frozenset(nodes)
    with suppress(ValueError):
        if policy == "bind" and mode.startswith(("bind", "interleave")) and parse_list(on) <= allowed:
            return
    if policy == "bind" or found == "default":  # of the others a library may choose another
        yield f"has the memory policy {found}, not {policy}" + (f":{format_list(allowed)}" if allowed else "")


def _first_policy(path: Path) -> str | None:
    """As "bind:0-1" or "prefer (many):0"; None where the kernel does not tell."""
    try:
        with path.open(encoding="utf-8") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    policy = re.match(r"[0-9a-f]+ (\S+(?: \(many\)\S*)?)", line)
    return policy[1] if policy else None


def _nodes(value: Any) -> frozenset[int]:
    numbers: frozenset[int] = frozenset()
    if isinstance(value, str):
        with suppress(ValueError):
            numbers = parse_list(value)
    elif not isinstance(value, bool | bytes | float):
        with suppress(TypeError):
            numbers = frozenset(map(operator.index, value if isinstance(value, Iterable) else [value]))
    if not numbers or min(numbers) < 0:
        raise ArgumentError(
            f"cannot read memory_nodes={value!r}: give the number of a NUMA node, a list of them, or a "
            'string like "0-1".',
            repr(value),
        )
    return numbers
