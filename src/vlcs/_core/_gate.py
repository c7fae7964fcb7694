"""Who is inside a context, and whether it still lets anyone in.

The native side counts visitors too; this gate also knows what they run, in words that a message can
show, and keeps an interpreter from being finalised while a host thread is inside it.
"""

import enum
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from vlcs._core._errors import StateError


class State(enum.Enum):
    """The life of a context, in order."""

    OPEN = "open"
    SHUT = "shut"
    """Takes nothing new; what was accepted still runs."""
    CLOSED = "closed"
    ORPHANED = "orphaned"
    """The copy of a parent's context in a child of `os.fork`: its threads do not exist there."""


class Gate:
    """Counts the calls inside a context and the jobs accepted for it.

    A thread that is inside may always enter again, so a gate that shuts never breaks a call midway.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._state = State.OPEN
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, list[object]] = {}
        self._jobs: dict[int, object] = {}

    @property
    def state(self) -> State:
        """Where the context is in its life."""
        return self._state

    def enter(self, what: object) -> None:
        """Lets this thread in, or raises StateError; `what` (a function or words) names it in messages."""
        thread = threading.get_ident()
        with self._lock:
            stack = self._inside.get(thread)
            if self._state is not State.OPEN and (stack is None or self._state is State.ORPHANED):
                raise self._refusal(what)
            if stack is None:
                self._inside[thread] = [what]
            else:
                stack.append(what)

    def leave(self) -> None:
        """Ends the latest `enter` or `begin` of this thread."""
        thread = threading.get_ident()
        with self._lock:
            stack = self._inside.get(thread)
            if not stack:
                return  # orphaned meanwhile: the counts went with the parent
            stack.pop()
            if not stack:
                del self._inside[thread]
                if self._state is not State.OPEN:  # before, nobody waits
                    self._changed.notify_all()

    @contextmanager
    def entered(self, what: object) -> Iterator[None]:
        """`enter` and `leave` around a block."""
        self.enter(what)
        try:
            yield
        finally:
            self.leave()

    def accept(self, job: object, what: object) -> None:
        """Counts a job for one of the context's threads, or raises StateError."""
        with self._lock:
            if self._state is not State.OPEN:
                raise self._refusal(what)
            self._jobs[id(job)] = what

    def begin(self, job: object) -> None:
        """Lets an accepted job in on this thread, also when the gate was shut since."""
        with self._lock:
            what = self._jobs.pop(id(job), job)
            self._inside.setdefault(threading.get_ident(), []).append(what)

    def drop(self, job: object) -> None:
        """Forgets an accepted job that will not run."""
        with self._lock:
            self._jobs.pop(id(job), None)
            self._changed.notify_all()

    def check(self, what: object) -> None:
        """Raises StateError unless the context is open."""
        if self._state is not State.OPEN:
            raise self._refusal(what)

    def is_inside(self) -> bool:
        """Whether the calling thread is inside."""
        return threading.get_ident() in self._inside

    def jobs(self) -> int:
        """How many accepted jobs have not begun."""
        return len(self._jobs)

    def shut(self) -> None:
        """Lets nobody in any more."""
        with self._lock:
            if self._state is State.OPEN:
                self._state = State.SHUT

    def close(self) -> None:
        """Marks the end of the context."""
        with self._lock:
            self._state = State.CLOSED

    def orphan(self) -> None:
        """Marks the copy in a forked child, where a thread that is not there may hold the lock."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside = {}
        self._jobs = {}
        if self._state is not State.CLOSED:
            self._state = State.ORPHANED

    def wait(self, deadline: float | None) -> list[str]:
        """Once shut: waits until nobody is inside and no job is left; after `deadline` says what is."""
        with self._lock:
            while self._inside or self._jobs:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    break
                self._changed.wait(remaining)
            running = [describe(stack[-1]) for stack in self._inside.values()]
            return running + [f"{describe(what)} (queued)" for what in self._jobs.values()]

    def _refusal(self, what: object) -> StateError:
        subject = f"cannot run {describe(what)} in the context {self._name!r}"
        if self._state is State.ORPHANED:
            return StateError(
                f"{subject}: it was made before this process was forked from its parent, and its threads "
                "exist only there. Make a context in the child, or start the child with the 'spawn' method.",
                self._name,
            )
        return StateError(f"{subject}: it is closed. Make another with vlcs.VLC(...).", self._name)


def describe(what: object) -> str:
    """A function's name as people write it, or the words themselves."""
    if isinstance(what, str):
        return what
    module, name = getattr(what, "__module__", None), getattr(what, "__qualname__", None)
    if not isinstance(name, str):
        return repr(what)
    return f"{module}.{name}()" if module and module != "builtins" else f"{name}()"
