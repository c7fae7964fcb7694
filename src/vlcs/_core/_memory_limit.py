"""How much memory a context may take."""

from __future__ import annotations

import operator
import re
from typing import Any

from vlcs._core._errors import ArgumentError
from vlcs._core._resource import Resource, State

LEAST = 1 << 20
"""VLC_MEMORY_LIMIT_LEAST: what a context takes before it has loaded anything."""

_UNITS = {"": 1, **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}}
_UNITS |= {"B": 1, **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def read(limit: Any) -> int:
    """Reads a number of bytes, or text with a unit; 0 stands for None, no limit. Raises ArgumentError."""
    if limit is None:
        return 0
    try:
        size = _bytes(limit) if isinstance(limit, str) else operator.index(limit)
    except (TypeError, KeyError, ValueError, OverflowError):  # the last two: of thousands of digits
        size = 0
    if isinstance(limit, bool) or not 0 < size < 1 << 63:
        raise ArgumentError(
            f"cannot read memory_limit={limit!r}: give bytes (an int), or text with a unit "
            '("2GiB", "1.5GB"); None is no limit.',
            repr(limit),
        )
    if size < LEAST:
        raise ArgumentError(
            f"cannot use memory_limit={limit!r}: a context takes up to {words(LEAST)} before it has loaded "
            "anything, and a Python needs 16 MiB to start.",
            repr(limit),
        )
    return size


def words(size: int) -> str:
    """Bytes as `read` takes them, with the largest unit that fits exactly."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


def resource(limit: int, *, own_heap: bool, host_malloc: str | None = None) -> Resource:
    """The line of the report. `host_malloc`: the file whose malloc contexts use instead of their own heap."""
    if not limit:
        return Resource(
            "memory_limit",
            State.ADVISORY,
            None,
            "no limit",
            reason="none was asked for: what the process may take is all that stops it",
        )
    what = "malloc and mmap, as libraries call them through libc"
    if not own_heap or host_malloc:
        whose = f"that of {host_malloc}" if host_malloc else 'the host\'s (heap="host")'
        what = f"anonymous mappings alone: its malloc is {whose}"
    return Resource(
        "memory_limit",
        State.ADVISORY,
        f'memory_limit="{words(limit)}"',
        words(limit),
        reason=f"it holds for {what}. A library that makes the system call itself is not held; files, "
        "stacks and the images of libraries do not count",
        cure="To bound the whole process for certain, use its control group (memory.max).",
    )


def _bytes(text: str) -> int:
    match = _FORM.fullmatch(text)
    if not match:
        return 0
    number, unit = match.groups()
    return int(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]
