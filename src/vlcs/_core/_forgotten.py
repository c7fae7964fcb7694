"""Contexts that nobody refers to any more: closed in the background, as a file is when it is forgotten.

The last reference may go at any allocation, on any thread, with any lock held. So where it goes nothing is
waited for and no code of others runs: a thread of its own warns, and closes one context after another.
"""

from __future__ import annotations

import _thread
import logging
import threading
import warnings
from collections import deque
from typing import TYPE_CHECKING

from vlcs._core._errors import VLCError
from vlcs._core._gate import State

if TYPE_CHECKING:
    from vlcs._core._instance import Instance

_LOG = logging.getLogger("vlcs")

_waiting: deque[Instance] = deque()
_busy = threading.Lock()
"""Held while a thread closes what waits."""


def close_later(instance: Instance) -> None:
    """Has the context closed soon. Never waits."""
    if instance.gate.state in {State.OPEN, State.SHUT}:
        _waiting.append(instance)
        _start()


def after_fork() -> None:
    """In a forked child: the thread that closes is not here, nor is what it would close."""
    global _busy  # noqa: PLW0603 - the parent's may be held by a thread that is not here
    _busy = threading.Lock()
    _waiting.clear()


def _start() -> None:
    if not _busy.acquire(blocking=False):
        return  # it sees this one too
    try:
        # Not threading.Thread, whose start() takes locks and waits.
        _thread.start_new_thread(_close_waiting, ())
    except RuntimeError:  # there are no threads to have: close_all() does it
        _busy.release()


def _close_waiting() -> None:
    try:
        while _waiting:
            _close(_waiting.popleft())
    finally:
        _busy.release()
        if _waiting:
            _start()


def _close(instance: Instance) -> None:
    try:
        if instance.gate.state is State.OPEN:  # not where a close() raised BusyError
            _warn(instance)
    finally:  # where warnings are errors, sys.unraisablehook shows it
        try:
            instance.close(None)
        except VLCError as error:
            _LOG.warning("closing a forgotten context: %s", error)


def _warn(instance: Instance) -> None:
    file, line = instance.made_at
    warnings.warn_explicit(
        f"the context {instance.name!r} was forgotten without close(): nothing refers to it any more, so it "
        "is closed now. Keep it, or close it when its work is done.",
        ResourceWarning,
        file,
        line,
    )
