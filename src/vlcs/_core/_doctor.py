"""What each resource of a context would be worth on this machine, and what to do for more."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcs._core import _gpu, _huge_pages, _memory, _memory_limit, _scheduling, _slice
from vlcs._core._memory import MemoryRequest
from vlcs._core._quality import Quality
from vlcs._core._service import Service
from vlcs._core._stats import limits

if TYPE_CHECKING:
    from vlcs._core._machine import Machine
    from vlcs._core._resource import Resource


def examine(machine: Machine, root: Path = Path("/")) -> dict[str, dict[str, Any]]:
    """The lines of a report by name, of a context that asks for everything; plain data.

    It makes none: what only shows when it is tried, as whether the kernel lets this process have groups, is
    tried, and taken back.
    """
    own = os.getpriority(os.PRIO_PROCESS, os.getpid())
    everything = Quality(own, "batch", 100, min(1.0, machine.capacity), True, 100, 1.0)
    part = frozenset([min(machine.allowed)])
    service = Service(everything, part, root)
    service.remove()
    nice, *others = service.resources(resident=False)
    bound = MemoryRequest("bind", frozenset([min(machine.nodes)]))
    lines = (
        _slice.cpu_line(None, part, machine),
        _memory.resource(bound, bound.nodes or (), machine, _memory.refusal(bound)),
        _memory_limit.resource(1 << 30, own_heap=True, host_malloc=limits().host_malloc),
        _huge_pages.resource(True, _huge_pages.setting(root)),
        _nice(nice, own),
        *others,
        _gpu.resource(None),
    )
    return {line.name: {key: line.data()[key] for key in ("state", "reason", "cure")} for line in lines}


def _nice(line: Resource, own: int) -> Resource:
    """Where a context can only come after others, and not before."""
    lower = own - 1
    refused = _scheduling.try_nice(lower) if lower >= -20 else None
    if refused is None:
        return line
    cannot = _scheduling.nice(Quality(nice=lower), refused)
    return replace(
        line, reason=f"{line.reason}; none below the process's own ({own}): {refused}", cure=cannot.cure
    )
