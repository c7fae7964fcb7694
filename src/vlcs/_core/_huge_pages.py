"""Transparent huge pages for a context's heap and mappings.

After Linux, Documentation/admin-guide/mm/transhuge.rst.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vlcs._core import _kernel_text
from vlcs._core._errors import ArgumentError
from vlcs._core._resource import Resource, State

_NUMBERS = {None: 0, True: 1, False: 2}
"""By vlc_huge_pages."""

_SETTING = "sys/kernel/mm/transparent_hugepage/enabled"


def read(huge_pages: Any) -> bool | None:
    """Reads the option. Raises ArgumentError."""
    if huge_pages is None or isinstance(huge_pages, bool):
        return huge_pages
    raise ArgumentError(
        f"cannot read huge_pages={huge_pages!r}: give True, False, or None for what the system does.",
        repr(huge_pages),
    )


def number(huge_pages: bool | None) -> int:
    """A vlc_huge_pages."""
    return _NUMBERS[huge_pages]


def setting(root: Path = Path("/")) -> str:
    """What the system does: "always", "madvise" or "never", which is also a kernel without them."""
    chosen = re.search(r"\[(\w+)\]", _kernel_text.read(root / _SETTING))
    return chosen[1] if chosen else "never"


def resource(huge_pages: bool | None, system: str) -> Resource:
    """The line of the report; `system` is the setting."""
    requested = None if huge_pages is None else f"huge_pages={huge_pages}"
    if huge_pages is None:
        return Resource(
            "huge_pages",
            State.ADVISORY,
            requested,
            f"the system's setting: {system}",
            reason="nothing was asked for; libraries may ask the kernel themselves, as NumPy does for large "
            "arrays",
        )
    if not huge_pages:
        if system == "never":
            return Resource(
                "huge_pages", State.ENFORCED, requested, "none", reason="the kernel gives nobody any"
            )
        return Resource(
            "huge_pages",
            State.ADVISORY,
            requested,
            "none",
            reason="the context's heap and mappings are marked, and libraries that ask for them through libc "
            "are refused; one that makes the system call itself is not held",
        )
    if system == "never":
        return Resource(
            "huge_pages",
            State.UNAVAILABLE,
            requested,
            None,
            reason=f"the kernel gives nobody any: /{_SETTING} is, or stands for, never",
            cure=f"As root: echo madvise > /{_SETTING}.",
        )
    return Resource(
        "huge_pages",
        State.ADVISORY,
        requested,
        "where 2 MiB are free at once",
        reason="the context's heap and mappings are marked, and large blocks are aligned; the kernel takes "
        "small pages where it has no whole one. Reserved pages (hugetlbfs) are no matter of this option",
    )
