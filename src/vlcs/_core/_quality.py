"""Quality of service as a caller asks for it: read, checked and made plain data.

Nothing here looks at the machine: `_service` does.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from vlcs._core._errors import ArgumentError

SCHEDULING = ("batch", "idle")
"""What `scheduling=` takes; numbers of vlc_scheduling from 1."""

LEAST_QUOTA = 0.01
"""CPUs: the kernel takes no less than 1 ms of each period (kernel/sched/core.c), which is 100 ms here."""


@dataclass(frozen=True)
class Quality:
    """How the threads that a context owns stand against others. None: as the process's."""

    nice: int | None = None
    """From -20, which comes first, to 19."""
    scheduling: str | None = None
    """One of SCHEDULING."""
    weight: int | None = None
    """Its part of the CPU time where several want it; 100 is what a group has without it."""
    quota: float | None = None
    """CPU time per time that it may take, so in CPUs."""
    confine: bool = False
    """To the slice's CPUs by the kernel."""
    bandwidth: int | None = None
    """Per cent of the memory bandwidth."""
    cache_ways: int | float | None = None
    """Ways of the last-level caches: how many, or which part of all."""

    def words(self, name: str) -> str | None:
        """An option as the caller may have written it; None where it was not given."""
        value = getattr(self, name)
        return None if value is None or value is False else f"{name}={value!r}"


def read(
    *,
    nice: Any = None,
    scheduling: Any = None,
    weight: Any = None,
    quota: Any = None,
    confine: Any = False,
    bandwidth: Any = None,
    cache_ways: Any = None,
) -> Quality:
    """Reads the options of a context. Raises ArgumentError for what cannot be meant."""
    if not isinstance(confine, bool):
        raise _unreadable("confine", confine, "give True or False")
    if scheduling is not None and not (isinstance(scheduling, str) and scheduling in SCHEDULING):
        raise _unreadable(
            "scheduling",
            scheduling,
            'give "batch", for work that nobody waits for, or "idle", for what others leave',
        )
    return Quality(
        nice=_whole("nice", nice, -20, 19, "a nice value, from -20 (comes first) to 19 (comes last)"),
        scheduling=scheduling,
        weight=_whole("weight", weight, 1, 10000, "a weight from 1 to 10000; 100 is the usual one"),
        quota=_quota(quota),
        confine=confine,
        bandwidth=_whole("bandwidth", bandwidth, 1, 100, "a part of the memory bandwidth, 1 to 100 per cent"),
        cache_ways=_cache_ways(cache_ways),
    )


def _whole(name: str, value: Any, least: int, most: int, what: str) -> int | None:
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise _unreadable(name, value, f"give {what}")
    return number


def _real(value: Any) -> float:
    """Not a number where it is none; no text, and no truth value."""
    try:
        return float("nan") if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _quota(value: Any) -> float | None:
    if value is None:
        return None
    number = _real(value)
    if not LEAST_QUOTA <= number < float("inf"):
        raise _unreadable(
            "quota",
            value,
            f"give the CPU time per time that it may take, in CPUs, {LEAST_QUOTA} or more; "
            "0.5 is half of one",
        )
    return number


def _cache_ways(value: Any) -> int | float | None:
    if value is None:
        return None
    number = _real(value)
    whole = hasattr(type(value), "__index__")
    if not 0 < number <= (64 if whole else 1):
        raise _unreadable(
            "cache_ways",
            value,
            "give how many ways of the last-level cache (an int), or which part of them (a float up to 1.0)",
        )
    return operator.index(value) if whole else number


def _unreadable(name: str, value: Any, cure: str) -> ArgumentError:
    return ArgumentError(f"cannot read {name}={value!r}: {cure}.", repr(value))
