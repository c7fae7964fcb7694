"""Whether a slice holds: what the kernel says of a context's threads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vlcs._core._kernel_text import format_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vlcs._core._native import Context


@dataclass(frozen=True)
class Verification:
    """What the kernel says of each thread of a context, at one moment."""

    cpus: tuple[int, ...]
    """The slice, in ascending order."""
    threads: dict[int, tuple[int, ...]]
    """The CPUs that each may run on, by kernel id (gettid), of the context's own threads. Threads of callers
    are not listed."""
    others: tuple[str, ...] = ()
    """In words, where a thread has another nice value, policy, control group or memory policy than was
    granted."""

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
    def differences(self) -> tuple[str, ...]:
        """All that is not as it was granted, in words."""
        return (
            *(
                f"thread {thread} may run on CPU {format_list(cpus)}, outside of the slice"
                for thread, cpus in self.outside.items()
            ),
            *self.others,
        )

    @property
    def holds(self) -> bool:
        """Whether there are no differences."""
        return not self.differences


def verify(native: Context, inspectors: Iterable[Callable[[int], Iterable[str]]] = ()) -> Verification:
    """Asks the kernel. A thread that ends meanwhile is left out.

    Each inspector is given the id of a thread and gives, in words, what is not as it was granted; it may
    raise ProcessLookupError.
    """
    masks: dict[int, tuple[int, ...]] = {}
    found: dict[int, list[str]] = {}
    for thread in native.threads():
        try:
            masks[thread] = tuple(sorted(os.sched_getaffinity(thread)))
            found[thread] = [
                f"thread {thread} {words}" for inspect in inspectors for words in inspect(thread)
            ]
        except ProcessLookupError:
            continue
    # Asked again, as the id of one that ended may be another thread's of the process by now.
    living = set(native.threads())
    return Verification(
        tuple(native.cpus()),
        {thread: cpus for thread, cpus in masks.items() if thread in living},
        tuple(words for thread, many in found.items() if thread in living for words in many),
    )
