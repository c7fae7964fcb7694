"""The end of the process, and what a forked child sees.

Contexts that are still open at exit are closed in reverse order of creation, in a few seconds at
most: a program that forgets `close()` ends as any other, with its own exit code.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from vlcs._core._errors import VLCError
from vlcs._core._registry import REGISTRY

if TYPE_CHECKING:
    from vlcs._core._instance import Instance

_LOG = logging.getLogger("vlcs")

WORK_SECONDS = 2.5
"""How long work that was submitted or called may go on at exit, for all contexts together."""

TOTAL_SECONDS = 4.0
"""How long the closing of all contexts may take at exit, `WORK_SECONDS` included."""

_installed = False


def install() -> None:
    """Registers the handlers, once. Called when the first context is made, not at import."""
    global _installed  # noqa: PLW0603 - one process, one exit
    if not _installed:
        _installed = True
        # Up to Python 3.12, where a thread forks that threading does not know, it takes a lock in the child
        # that another thread of the parent may have held. So it is made known before.
        os.register_at_fork(before=threading.current_thread, after_in_child=REGISTRY.after_fork)
        atexit.register(close_all)


def close_all() -> None:
    """Closes what is open, within `TOTAL_SECONDS`. What cannot be closed is logged and left to the kernel."""
    members = REGISTRY.members()
    members.reverse()
    start = time.monotonic()
    for member in members:
        member.gate.shut()
        with suppress(VLCError):
            member.gate.expel()  # a `with` block of this thread never ends now
    for member in members:
        if left := member.gate.wait_until_empty(start + WORK_SECONDS):
            _end_work(member, left)
    for member in members:
        # Whoever comes last still gets a moment: most contexts end in milliseconds.
        remaining = max(0.1, start + TOTAL_SECONDS - time.monotonic())
        try:
            member.close(remaining, abandon=True)
        except VLCError as error:
            _LOG.warning("at exit: %s", error)


def _end_work(member: Instance, left: list[str]) -> None:
    cancelled = member.executor.cancel()
    # On a thread that nobody waits for: code in C may never give the interpreter's GIL.
    _thread.start_new_thread(_interrupt, (member,))
    _LOG.warning(
        "at exit: the context %r still had work after %g s: %s. %sPython code on its first thread is "
        "interrupted. Wait for the futures, or call close(), before the program ends.",
        member.name,
        WORK_SECONDS,
        ", ".join(left),
        f"{cancelled} of its jobs had not begun and will not; " if cancelled else "",
    )


def _interrupt(member: Instance) -> None:
    with suppress(VLCError):
        member.interrupt()
