"""The contexts of this process in order of creation: who they are, and which CPUs they claim."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from vlcs._core import _control, _forgotten, _machine
from vlcs._core._gate import State

if TYPE_CHECKING:
    from vlcs._core._choice import Claim
    from vlcs._core._instance import Instance


class _Member(weakref.ref[Any]):
    """The public object of a context, which does not keep it, and the context, which it does."""

    __slots__ = ("instance",)

    instance: Instance

    def owner_is_gone(self) -> None:
        """Called at once, wherever that happens."""
        _forgotten.close_later(self.instance)


class Registry:
    """Keeps every context until it is closed, also those whose public object is gone: they are closed then.

    `lock` is held from deciding about CPUs to the moment that the claim is known to others.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._members: list[_Member] = []
        self._machine = _machine.Machine()

    def add(self, instance: Instance, owner: Any) -> None:
        """Remembers a context, and has it closed when `owner`, the object that stands for it, is gone."""
        member = _Member(owner, _Member.owner_is_gone)
        member.instance = instance
        with self.lock:
            self._members.append(member)

    def remove(self, instance: Instance) -> None:
        """Forgets a context that is closed, or whose creation failed."""
        with self.lock:
            self._members = [member for member in self._members if member.instance is not instance]

    def members(self) -> list[Instance]:
        """All that are not closed yet, in order of creation: those still starting, too.

        Without the lock, which is held while a context is made: signal handlers ask too.
        """
        return [member.instance for member in self._members.copy()]

    def owners(self) -> list[Any]:
        """The public objects of those that are made, and not closed yet; none that is forgotten."""
        with self.lock:
            members = list(self._members)
        found = [member() for member in members if member.instance.gate.state in {State.OPEN, State.SHUT}]
        # One that is being made has no instance yet.
        return [owner for owner in found if hasattr(owner, "_instance")]

    def claims(self, but: Instance | None = None) -> list[Claim]:
        """CPUs that were given on request to contexts that are not closed."""
        return [m.claim for m in self.members() if m is not but and m.claim is not None]

    def machine(self) -> _machine.Machine:
        """The machine, and what the process may use of it.

        Read anew while no context exists, and kept from then on: later the main thread may be
        inside a context, and its affinity that context's.
        """
        with self.lock:
            if not self._members or not self._machine.allowed:
                # By process id and not 0: that is the main thread, not the one that happens to call.
                self._machine = _machine.read(affinity=frozenset(os.sched_getaffinity(os.getpid())))
            return self._machine

    def after_fork(self) -> None:
        """In a forked child: only the context whose interpreter forked lives on there, with one thread."""
        self.lock = threading.RLock()
        _forgotten.after_fork()
        _control.after_fork()
        self._members = [member for member in self._members if member.instance.after_fork()]


REGISTRY = Registry()
