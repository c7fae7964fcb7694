"""Who is inside a context, which jobs wait for it, and when it is shut."""

from __future__ import annotations

import enum
import time

from vlcs._core._errors import StateError, describe
from vlcs._core._native import Door, Visit


class State(enum.Enum):
    """The life of a context, in order."""

    OPEN = "open"
    SHUT = "shut"
    """Takes nothing new; what was accepted still runs."""
    CLOSED = "closed"
    ORPHANED = "orphaned"
    """The copy of a parent's context in a child of `os.fork`: its threads do not exist there."""


class Gate(Door):
    """Counts the calls inside a context and the jobs accepted for it.

    A thread that is inside may always enter again, so a gate that shuts never breaks a call midway.
    There is no lock to wait for: signal handlers and destructors may enter too, at any moment.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._state = State.OPEN
        self._jobs: dict[int, object] = {}

    @property
    def state(self) -> State:
        """Where the context is in its life."""
        return self._state

    # Entering is `with gate.visit(what):`, which Door has in C: no exception can come between the counting
    # and the block. `what` (a function or words) names the visit in messages.

    def accept(self, job: object, what: object) -> None:
        """Counts a job for one of the context's threads, or raises StateError."""
        self._jobs[id(job)] = what  # first: who shuts the gate meanwhile waits for it
        if self._state is not State.OPEN:
            self.drop(job)
            raise self.refusal(what)

    def begin(self, job: object) -> Visit:
        """Lets an accepted job in on this thread, for `with`, also when the gate was shut since."""
        return self.visit(self._jobs.get(id(job), job), None, True)

    def drop(self, job: object) -> None:
        """Forgets an accepted job that has begun, or will not run."""
        self._jobs.pop(id(job), None)
        self.wake()

    def check(self, what: object) -> None:
        """Raises StateError unless the context is open, or shut and this thread still inside."""
        if self._state is State.OPEN or (self._state is State.SHUT and self.is_inside()):
            return
        raise self.refusal(what)

    def jobs(self) -> int:
        """How many accepted jobs have not begun."""
        return len(self._jobs)

    def shut(self) -> None:
        """Lets nobody in any more."""
        if self._state is State.OPEN:
            self._state = State.SHUT
        self.open = False

    def close(self) -> None:
        """Marks the end of the context."""
        self._state = State.CLOSED
        self.open = False

    def after_fork(self, *, dead: bool) -> None:
        """In a forked child, where other threads that are inside do not exist. `dead`: nor does this one."""
        self.forget(dead)
        self._jobs = {}
        if dead and self._state is not State.CLOSED:
            self._state = State.ORPHANED
            self.open = False

    def wait_until_empty(self, deadline: float | None) -> list[str]:
        """Once shut: waits until nobody is inside and no job is left; after `deadline` says what is."""
        while (inside := self.inside()) or self._jobs:
            if deadline is not None and time.monotonic() >= deadline:
                break
            self.wait()
        return [*map(describe, inside), *(f"{describe(what)} (queued)" for what in list(self._jobs.values()))]

    def refusal(self, what: object) -> StateError:
        """The exception for who comes too late."""
        subject = f"cannot run {describe(what)} in the context {self._name!r}"
        if self._state is State.ORPHANED:
            return StateError(
                f"{subject}: it was made before this process was forked from its parent, and its threads "
                "exist only there. Make a context in the child, or start the child with the 'spawn' method.",
                self._name,
            )
        return StateError(f"{subject}: it is closed. Make another with vlcs.VLC(...).", self._name)

    def lost(self) -> StateError:
        """The exception for who waits, in a forked child, for a job of the parent."""
        return StateError(
            f"cannot wait for a job of the context {self._name!r} here: it was submitted before this process "
            "was forked from its parent, and runs only there. Submit it in the child, to one made there.",
            self._name,
        )

    def misplaced(self) -> StateError:
        """The exception for who leaves out of turn."""
        return StateError(
            f"cannot leave the context {self._name!r} here: another thread entered it, or this one has "
            "entered another since and not left that yet. Use no `await` and no `yield` inside of "
            "`with vlc:`.",
            self._name,
        )
