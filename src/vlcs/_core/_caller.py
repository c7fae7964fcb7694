"""The code that called vlcs: what warnings are about."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def place() -> tuple[str, int]:
    """Its file and line."""
    frame = _frame()
    return frame.f_code.co_filename, frame.f_lineno


def warn(message: str, category: type[Warning]) -> None:
    """Warns it, as `warnings.warn` does: however many calls inside of vlcs are between."""
    frame = _frame()
    space = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=space.get("__name__", "<unknown>"),
        registry=space.setdefault("__warningregistry__", {}),
    )


def _frame() -> FrameType:
    frame = sys._getframe(1)  # noqa: SLF001 - as the module warnings does
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vlcs."):
        frame = frame.f_back
    return frame
