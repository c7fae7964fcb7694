"""What a caller asks for in CPUs: read, checked for contradictions, and made plain data.

Nothing here looks at the machine: `_choice` does.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vlcs._core._errors import ArgumentError
from vlcs._core._kernel_text import format_list, parse_list

CPURequest = str | int | Iterable[int] | None
"""What `cpus=` takes: "0-3,8"; a set, list or range of numbers; a count; None."""

MAX_CPU = 1023
"""The highest number that fits the C library's `cpu_set_t` (glibc, sched.h)."""

OPTIONS = ("cpus", "cores", "fraction", "node", "near", "exclusive")
"""Names of the options that make a request."""

_FORMS = 'Give a string like "0-3,8", a set, list or range of CPU numbers, or how many CPUs (an int).'
_AMOUNTS = "Add cores=, cpus= or fraction=."


@dataclass(frozen=True)
class Request:
    """How much, where, and whether alone; of the first four at most one, unless `_choice` settled it."""

    cpus: frozenset[int] | None = None
    """These and no others."""
    count: int | None = None
    """So many CPUs (`cpus=4`)."""
    cores: int | None = None
    """So many physical cores, with all of their hardware threads."""
    fraction: float | None = None
    """Of what the process may use."""
    node: int | None = None
    """On this NUMA node; alone: all of it."""
    near: str | None = None
    """As close as possible to this context."""
    exclusive: bool = False

    def __str__(self) -> str:
        """As the caller may have written it."""
        parts = []
        if self.cpus is not None:
            parts.append(f'cpus="{format_list(self.cpus)}"')
        elif self.fraction is not None:
            parts.append(f"fraction={self.fraction:g}")
        elif self.cores is not None:
            parts.append(f"cores={self.cores}")
        elif self.count is not None:
            parts.append(f"cpus={self.count}")
        if self.node is not None:
            parts.append(f"node={self.node}")
        if self.near is not None:
            parts.append(f'near="{self.near}"')
        if self.exclusive:
            parts.append("exclusive=True")
        return ", ".join(parts)


def read(
    *,
    cpus: Any = None,
    cores: Any = None,
    fraction: Any = None,
    node: Any = None,
    near: Any = None,
    exclusive: bool = False,
) -> Request | None:
    """Reads the options of a context; None where they ask for nothing.

    Raises ArgumentError for what cannot be read, and for two that contradict each other.
    """
    numbers, count = (None, None) if cpus is None else _cpus(cpus)
    amounts = _given(cpus=cpus, cores=cores, fraction=fraction)
    places = _given(node=node, near=near)
    if len(amounts) > 1:
        raise _contradiction(amounts, "each says how much")
    if len(places) > 1:
        raise _contradiction(places, "each says where")
    if numbers is not None and places:
        raise _contradiction(
            amounts + places, "a list of CPUs says where already", "Give how many CPUs (an int), or leave"
        )
    if near is not None and not amounts:
        raise ArgumentError(f"cannot use {places[0]} alone: it says where, and not how much. {_AMOUNTS}")
    if not amounts and not places:
        if exclusive:
            raise ArgumentError(
                "exclusive=True needs cpus=, cores=, fraction= or node=: a context made without them may use "
                "every CPU and claims none. " + _FORMS
            )
        return None
    return Request(
        cpus=numbers,
        count=count,
        cores=None if cores is None else _whole("cores", cores, 1, "how many physical cores, 1 or more"),
        fraction=None if fraction is None else _fraction(fraction),
        node=None if node is None else _whole("node", node, 0, "the number of a NUMA node"),
        near=None if near is None else _near(near),
        exclusive=bool(exclusive),
    )


def _given(**options: Any) -> list[str]:
    return [f"{name}={_shown(value)}" for name, value in options.items() if value is not None]


def _shown(value: Any) -> str:
    return repr(_name_of(value) or value)


def _contradiction(options: list[str], why: str, cure: str = "Leave") -> ArgumentError:
    both = f"{options[0]} with {options[1]}"
    return ArgumentError(f"cannot use {both}: {why}. {cure} one of them out.", both)


def _cpus(request: Any) -> tuple[frozenset[int] | None, int | None]:
    """A set of CPU numbers, or how many. Does not ask what exists."""
    if isinstance(request, bool | float | bytes | bytearray):
        raise _unreadable(request, f"{type(request).__name__} is not a form of CPU list")
    if isinstance(request, int) or (hasattr(type(request), "__index__") and not hasattr(request, "__len__")):
        if request < 1:
            raise _unreadable(request, "a context needs at least one CPU")
        return None, operator.index(request)
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
    return numbers, None


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


def _whole(name: str, value: Any, least: int, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ArgumentError(f"cannot read {name}={value!r}: give {what}.", repr(value))
    return number


def _fraction(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool | str | bytes) or not 0 < number <= 1:
        raise ArgumentError(
            f"cannot read fraction={value!r}: give a number above 0 and at most 1; 0.5 is half of the CPUs "
            "that the process may use.",
            repr(value),
        )
    return number


def _near(value: Any) -> str:
    name = _name_of(value)
    if not name:
        raise ArgumentError(f"cannot read near={value!r}: give a context, or its name.", repr(value))
    return name


def _name_of(value: Any) -> str | None:
    """Of a context that is given by its name or itself."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    return name if isinstance(name, str) else None


def _unreadable(request: object, why: str) -> ArgumentError:
    return ArgumentError(f"cannot read cpus={request!r}: {why}. {_FORMS}", repr(request))
