"""What a context has of the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vlcs._core._kernel_text import format_list
from vlcs._core._resource import Resource, State, reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vlcs._core._choice import Choice
    from vlcs._core._machine import Machine
    from vlcs._core._request import Request


@dataclass(frozen=True)
class Slice:
    """What a context was given, as it was when it was made or last resized."""

    cpus: tuple[int, ...]
    """CPU numbers, in ascending order."""
    nodes: tuple[int, ...]
    """NUMA nodes of these CPUs."""
    why: str
    """The reasons for these CPUs, in words."""
    resources: tuple[Resource, ...] = field(repr=False)

    def report(self) -> dict[str, dict[str, Any]]:
        """Each resource by name, as plain data: state, requested, granted, reason, cure.

        `state` is "enforced" where the kernel holds it whatever libraries do, "advisory" where they can leave
        it, "unavailable" where it cannot be had; the reason says how or why, the cure what can be done.
        """
        return {resource.name: resource.data() for resource in self.resources}


def grant(
    request: Request | None,
    choice: Choice | None,
    machine: Machine,
    *,
    confined: bool = False,
    resident: bool = False,
    others: Iterable[Resource] = (),
) -> Slice:
    """Writes down what was decided. Without a choice the context may use all that the process may.

    `confined`: a control group's cpuset holds the context's threads there, which are all that run its code
    where it is `resident`. `others` are the lines of other resources than CPUs.
    """
    cpus = choice.cpus if choice else tuple(sorted(machine.allowed))
    return Slice(
        cpus=cpus,
        nodes=tuple(sorted({machine.topology.cpu(cpu).node for cpu in cpus})),
        why=choice.why
        if choice
        else "no CPUs were asked for: all that the process may use, and none claimed",
        resources=(
            cpu_line(request, frozenset(cpus), machine, confined=confined, resident=resident),
            *others,
        ),
    )


def cpu_line(
    request: Request | None,
    granted: frozenset[int],
    machine: Machine,
    *,
    confined: bool = False,
    resident: bool = False,
) -> Resource:
    """The line of the CPUs."""
    requested = str(request) if request else None
    if granted >= machine.bound:
        return Resource(
            "cpus",
            State.ENFORCED,
            requested,
            format_list(granted),
            reason="these are all CPUs that the kernel lets the process use, so its threads cannot leave",
        )
    if confined:
        whose, cure = reach(resident=resident)
        return Resource(
            "cpus",
            State.ENFORCED,
            requested,
            format_list(granted),
            f"by the cpuset of a control group, whatever system calls are made, for {whose}",
            cure,
        )
    return Resource(
        "cpus",
        State.ADVISORY,
        requested,
        format_list(granted),
        reason="libc's calls keep threads inside, but a library that makes the system call itself "
        "(sched_setaffinity by inline assembler), and threads that libc makes for itself (SIGEV_THREAD, aio, "
        "getaddrinfo_a), are not held",
        cure="verify() asks the kernel whether all are inside. A control group's cpuset holds against it: "
        "make the context with confine=True.",
    )
