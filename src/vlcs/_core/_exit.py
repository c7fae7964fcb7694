"""The end of the process, and what a forked child sees.

Contexts that are still open at exit are closed in reverse order of creation, in a few seconds at
most: a program that forgets `close()` ends as any other, with its own exit code.
"""

import atexit
import logging
import os
import time
from contextlib import suppress

from vlcs._core._errors import VLCError
from vlcs._core._registry import REGISTRY

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
        os.register_at_fork(after_in_child=REGISTRY.after_fork)
        atexit.register(close_all)


def close_all() -> None:
    """Closes what is open, within `TOTAL_SECONDS`. What cannot be closed is logged and left to the kernel."""
    members = REGISTRY.members()
    members.reverse()
    start = time.monotonic()
    for member in members:
        member.gate.shut()
    for member in members:
        if member.gate.wait(start + WORK_SECONDS):
            member.executor.cancel()
            with suppress(VLCError):
                member.interrupt()
    for member in members:
        # Whoever comes last still gets a moment: most contexts end in milliseconds.
        remaining = max(0.1, start + TOTAL_SECONDS - time.monotonic())
        try:
            member.close(remaining, abandon=True)
        except VLCError as error:
            logging.getLogger("vlcs").warning("at exit: %s", error)
