"""Nice values and policies of scheduling: those of the threads that a context owns."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from vlcs._core import _group
from vlcs._core._quality import SCHEDULING
from vlcs._core._resource import Resource, State, reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vlcs._core._quality import Quality

POLICIES = {"batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}
_NAMES = {
    getattr(os, name): name for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")
}


def number(scheduling: str | None) -> int:
    """As vlc_scheduling in vlcs.h."""
    return 0 if scheduling is None else SCHEDULING.index(scheduling) + 1


def nice(quality: Quality, refused: str | None, *, resident: bool = False) -> Resource:
    """The line of `nice=`; `refused` is what `try_nice` said."""
    requested = quality.words("nice")
    if refused:
        return Resource(
            "nice",
            State.UNAVAILABLE,
            requested,
            granted=None,
            reason=f"the process may not come before others: {refused}",
            cure="Ask for its own nice value or a higher one, raise the limit (`ulimit -e`, LimitNICE= of "
            "systemd), or give it CAP_SYS_NICE.",
        )
    granted = None if quality.nice is None else str(quality.nice)
    return _held("nice", requested, granted, "nice value", resident=resident)


def scheduling(quality: Quality, refused: str | None, *, resident: bool = False) -> Resource:
    """The line of `scheduling=`; `refused` is what `try_scheduling` said."""
    requested = quality.words("scheduling")
    if refused:
        return Resource(
            "scheduling",
            State.UNAVAILABLE,
            requested,
            granted=None,
            reason=f"the kernel refuses the policy: {refused}",
            cure="Leave the option out, or start the process where sched_setscheduler is allowed (seccomp).",
        )
    return _held("scheduling", requested, quality.scheduling, "policy", resident=resident)


def _held(name: str, requested: str | None, granted: str | None, what: str, *, resident: bool) -> Resource:
    whose, cure = reach(resident=resident)
    asked = "" if requested else "not asked for; "
    return Resource(
        name,
        State.ADVISORY,
        requested,
        granted,
        f"{asked}for {whose}; any code there may change its {what}",
        cure,
    )


def differences(thread: int, nice: int | None, scheduling: str | None) -> Iterator[str]:
    """What is not so of a thread, in words. Raises ProcessLookupError where there is none."""
    if nice is not None and (now := os.getpriority(os.PRIO_PROCESS, thread)) != nice:
        yield f"has nice value {now}, not {nice}"
    if scheduling is not None and (policy := os.sched_getscheduler(thread)) != POLICIES[scheduling]:
        yield f"has policy {_NAMES.get(policy, policy)}, not {_NAMES[POLICIES[scheduling]]}"


def _said(act: Callable[[], object]) -> str | None:
    refused = _group.attempt(act)
    return (refused.strerror or str(refused)) if refused else None


def try_nice(value: int | None) -> str | None:
    """Why a thread of this process cannot have the nice value; None: it can.

    A thread tries it: what the kernel allows depends on limits, capabilities and user namespaces.
    """
    if value is None:
        return None
    return _said(lambda: os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value))


def try_scheduling(policy: str | None) -> str | None:
    """Why a thread of this process cannot have the policy; None: it can."""
    if policy is None:
        return None
    return _said(lambda: os.sched_setscheduler(0, POLICIES[policy], os.sched_param(0)))
