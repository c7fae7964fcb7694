"""Whether a slice holds: what the kernel says of a context's threads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlcs._core._native import Context


@dataclass(frozen=True)
class Verification:
    """The CPUs that the kernel lets each thread of a context run on, at one moment."""

    cpus: tuple[int, ...]
    """The slice, in ascending order."""
    threads: dict[int, tuple[int, ...]]
    """By kernel id (gettid), of the context's own threads. Threads of callers are not listed."""

    @property
    def outside(self) -> dict[int, tuple[int, ...]]:
        """Of the threads that may leave the slice: the CPUs that are not in it."""
        slice_ = set(self.cpus)
        return {
            thread: tuple(cpu for cpu in cpus if cpu not in slice_)
            for thread, cpus in self.threads.items()
            if not slice_.issuperset(cpus)
        }

    @property
    def holds(self) -> bool:
        """Whether all of them are inside."""
        return not self.outside


def verify(native: Context) -> Verification:
    """Asks the kernel. A thread that ends meanwhile is left out."""
    masks: dict[int, tuple[int, ...]] = {}
    for thread in native.threads():
        try:
            masks[thread] = tuple(sorted(os.sched_getaffinity(thread)))
        except ProcessLookupError:
            continue
    # Asked again, as the id of one that ended may be another thread's of the process by now.
    living = set(native.threads())
    return Verification(
        tuple(native.cpus()), {thread: cpus for thread, cpus in masks.items() if thread in living}
    )
