"""A context that exists: its native part, its interpreter, and how both begin and end."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from vlcs._core import (
    _caller,
    _choice,
    _exit,
    _gpu,
    _huge_pages,
    _memory,
    _memory_limit,
    _native,
    _plan,
    _pool,
    _python,
    _scheduling,
    _sharing,
    _slice,
    _streams,
)
from vlcs._core._bridge import Bridge
from vlcs._core._choice import Claim
from vlcs._core._errors import BusyError, OverlapWarning, StateError, UnavailableWarning, VLCError
from vlcs._core._executor import Executor
from vlcs._core._gate import Gate, State
from vlcs._core._kernel_text import format_list
from vlcs._core._pool import Resized
from vlcs._core._registry import REGISTRY
from vlcs._core._resource import State as Worth
from vlcs._core._service import Service
from vlcs._core._stats import limits, report_what_stays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from vlcs._core._choice import Choice
    from vlcs._core._memory import MemoryRequest
    from vlcs._core._plan import Plan
    from vlcs._core._python import Python
    from vlcs._core._quality import Quality
    from vlcs._core._request import Request
    from vlcs._core._resource import Resource
    from vlcs._core._slice import Slice

NATIVE_TIMEOUT_MS = -1
"""The native side's own limit for ends that should be short, 5 s."""

_GUEST_SOURCES = (
    "guest_streams",
    "exceptions",
    "errors",
    "sharing",
    *(f"sharing_{package}" for package in _sharing.PACKAGES),
    "codec",
    "serving",
    "remote",
)
"""What a guest has of the package's, beside `_guest.py`."""

_LONGEST = 1e6
"""Seconds, 11 days: what a lock and a number of milliseconds in C can be given."""


class Instance:
    """Owns a native context and its interpreter. The public object that stands for it refers to it."""

    _granted: tuple[Request | None, Choice | None]

    def __init__(
        self, plan: Plan, request: Request | None, quality: Quality, *, gpu: object, owner: Any
    ) -> None:
        """Makes it. A failure leaves nothing behind: no context, thread or changed affinity.

        `owner` is the public object: when that is gone, the context is closed.
        """
        self.made_at = _caller.place()
        self.exclusive = request is not None and request.exclusive
        self.gpu = gpu
        self.claim: Claim | None = None
        self.bridge: Bridge | None = None
        self._interpreter: _native.Interpreter | None = None
        self._closing = threading.Lock()
        self._controls_found = False
        _exit.install()
        try:
            with REGISTRY.lock:
                chosen = self._choose(request)
                _memory.check(plan.memory, REGISTRY.machine())
                self._memory_refused = _memory.refusal(plan.memory)
                memory = _memory.MemoryRequest() if self._memory_refused else plan.memory
                cpus = chosen.cpus if chosen else REGISTRY.machine().allowed
                self._service = Service(quality, cpus)
                # Lost to a KeyboardInterrupt before it is stored, it destroys itself.
                self.native = _native.Context(
                    name=plan.name,
                    cpus=chosen.cpus if chosen else None,
                    env=plan.env,
                    share=plan.share,
                    threads=plan.threads,
                    heap=plan.heap,
                    residence=plan.residence,
                    scheduling=_scheduling.number(self._service.scheduling),
                    nice=self._service.nice,
                    groups=self._service.groups,
                    memory=memory.number,
                    nodes=None if memory.nodes is None else sorted(memory.nodes),
                    memory_limit=plan.memory_limit,
                    huge_pages=_huge_pages.number(plan.huge_pages),
                )
                self._plan, self._memory = plan, plan.memory
                self.memory_limit = plan.memory_limit
                self.name = self.native.name
                self.gate = Gate(self.name)
                self.executor = Executor(self.native, self.gate)
                self._grant(request, chosen)
                REGISTRY.add(self, owner)
            # Where warnings are errors, one undoes the creation too.
            self._warn_of_overlaps(chosen)
            self._warn_of_unavailable()
            if plan.python is not None:
                self._start(plan, plan.python)
        except BaseException:
            self._discard()
            raise

    @property
    def slice(self) -> Slice:
        """What it was given."""
        request, chosen = self._granted
        resident = self.native.resident
        return _slice.grant(
            request,
            chosen,
            REGISTRY.machine(),
            confined=self._service.confines,
            resident=resident,
            others=(
                *self._memory_resources(),
                *self._service.resources(resident=resident),
                _pool.resource(_pool.pools(self.native)),
                _gpu.resource(self.gpu),
            ),
        )

    def set_memory(self, memory: MemoryRequest) -> None:
        """Gives it another policy."""
        with REGISTRY.lock:
            _memory.check(memory, REGISTRY.machine())
            refused = _memory.refusal(memory)
            if not refused:
                self.native.set_memory(memory.number, None if memory.nodes is None else sorted(memory.nodes))
            self._memory, self._memory_refused = memory, refused
        self._warn_of_unavailable(["memory"])

    def limit_memory(self, limit: int) -> None:
        """Gives it another limit; 0: none."""
        self.native.set_memory_limit(limit)
        self.memory_limit = limit

    def inspectors(self) -> tuple[Callable[[int], Iterable[str]], ...]:
        """What `verify` asks of each thread besides its CPUs."""
        policy, nodes = self.native.memory()
        if not policy:
            return (self._service.differences,)
        name = _memory.POLICIES[policy]
        return (
            self._service.differences,
            lambda thread: _memory.differences(thread, name, nodes),
        )

    def resize(self, request: Request | None) -> Resized:
        """Moves it to other CPUs."""
        self._find_controls()
        with REGISTRY.lock:
            chosen = self._choose(request)
            self._warn_of_overlaps(chosen)
            cpus = chosen.cpus if chosen else sorted(REGISTRY.machine().allowed)
            cpus_before, before = self.native.cpus(), (self.claim, self._granted)
            try:
                with self._service.moving(cpus):
                    self.native.resize(cpus)
                self._grant(request, chosen)
            except VLCError:
                raise
            except BaseException:  # Ctrl-C, after some of it was done
                with suppress(VLCError), self._service.moving(cpus_before):
                    self.native.resize(cpus_before)
                self.claim, self._granted = before
                raise
            return Resized(tuple(self.native.cpus()), _pool.pools(self.native))

    def _find_controls(self) -> None:
        """Has those take part in a resize whose functions only Python finds; once they have threads."""
        if self.bridge is None or self._controls_found:
            return
        if any("/numba/np/ufunc/" in path for path in self.native.libraries()):
            for control in self.bridge.controls():
                self.native.control(*control)
                self._controls_found = True

    def interrupt(self) -> None:
        """Raises KeyboardInterrupt in the interpreter's home thread."""
        if self._interpreter is not None:
            self._interpreter.interrupt()

    def leases(self) -> int:
        """How many buffers of the interpreter are held outside."""
        return 0 if self._interpreter is None else self._interpreter.leases

    def kept(self) -> int:
        """How many objects of the interpreter are referred to from outside."""
        return 0 if self._interpreter is None else self._interpreter.kept

    def dump_frames(self, fd: int) -> bool:
        """Writes the frames of the interpreter's threads as faulthandler does; False: it cannot be done."""
        return self._interpreter is not None and self._interpreter.dump(fd)

    def close(self, timeout: float | None, *, abandon: bool = False) -> None:
        """Waits for calls and jobs, ends the interpreter, destroys the context. See `VLC.close`.

        `abandon`: end the interpreter at once also while its arrays are held outside, as at exit.
        """
        if self.gate.state in {State.CLOSED, State.ORPHANED}:
            return
        if self.gate.is_inside() or (self._interpreter is not None and self._interpreter.is_inside()):
            raise StateError(
                f"cannot close the context {self.name!r} from inside it: this thread is in one of its calls, "
                "jobs or `with` blocks. Close it from outside, after they end.",
                self.name,
            )
        if timeout is not None:
            timeout = min(timeout, _LONGEST)
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._closing.acquire(timeout=-1 if timeout is None else timeout):
            raise self._busy("another thread's close()", timeout)
        try:
            self._close(deadline, timeout, abandon=abandon)
        finally:
            self._closing.release()

    def after_fork(self) -> bool:
        """In a forked child: whether it lives on there. Its other threads do not, nor what they did."""
        lives = self.native.after_fork()
        self._closing = threading.Lock()
        self.gate.after_fork(dead=not lives)
        self.executor.after_fork()
        return lives

    def _close(self, deadline: float | None, timeout: float | None, *, abandon: bool) -> None:
        if self.gate.state is State.CLOSED:
            return  # by the thread that held the lock
        self.gate.shut()
        if self._interpreter is not None:
            self._interpreter.shut()
        if left := self.gate.wait_until_empty(deadline):
            raise self._busy(", ".join(left), timeout)
        while self._interpreter is not None and (inside := self._interpreter.inside):
            if deadline is not None and time.monotonic() >= deadline:
                raise self._busy(f"{inside} calls of other contexts", timeout)
            self.gate.wait()
        self.native.destroy(_milliseconds(deadline), abandon)
        self._service.remove()
        self._interpreter = self.bridge = None
        self.gate.close()
        REGISTRY.remove(self)
        report_what_stays()

    def _choose(self, request: Request | None) -> Choice | None:
        if request is None:
            return None
        return _choice.choose(request, REGISTRY.machine(), REGISTRY.claims(but=self))

    def _warn_of_overlaps(self, chosen: Choice | None) -> None:
        for claim in chosen.overlaps if chosen else ():
            shared = format_list(claim.cpus.intersection(chosen.cpus if chosen else ()))
            _caller.warn(
                f"the contexts {self.name!r} and {claim.context!r} share CPU {shared}: their libraries will "
                "compete for it. Give them CPUs of their own, or exclusive=True to make this an error.",
                OverlapWarning,
            )

    def _warn_of_unavailable(self, names: Collection[str] | None = None) -> None:
        for resource in self.slice.resources:
            if names is not None and resource.name not in names:
                continue
            if resource.requested is not None and resource.state is Worth.UNAVAILABLE:
                _caller.warn(
                    f"{resource.requested} of the context {self.name!r} is unavailable: {resource.reason}. "
                    f"{resource.cure}",
                    UnavailableWarning,
                )

    def _memory_resources(self) -> tuple[Resource, ...]:
        plan, machine, file = self._plan, REGISTRY.machine(), limits().host_malloc
        own = plan.heap == 0 and not file
        nodes = self.native.memory()[1]
        return (
            _memory.resource(self._memory, nodes, machine, self._memory_refused, own_heap=own),
            _memory_limit.resource(self.memory_limit, own_heap=own, host_malloc=file),
            _huge_pages.resource(plan.huge_pages, _huge_pages.setting()),
        )

    def _grant(self, request: Request | None, chosen: Choice | None) -> None:
        self.claim = Claim(self.name, frozenset(chosen.cpus), self.exclusive) if chosen else None
        self._granted = request, chosen

    def _start(self, plan: Plan, python: Python) -> None:
        self._interpreter = _native.Interpreter(
            self.native,
            libpython=python.libpython,
            program=python.executable,
            sys_path=python.sys_path,
            argv=sys.argv,
            bootstrap=_guest_source("_guest.py"),
            settings=pickle.dumps(
                {
                    "name": self.name,
                    "environ": _plan.for_children(plan.env),
                    "sources": {name: _guest_source(f"_{name}.py") for name in _GUEST_SOURCES},
                }
            ),
            answer=_streams.answer,
            warn_options=_python.warn_options(),
            x_options=_python.x_options(),
        )
        self.bridge = Bridge(self._interpreter, self.name, inherits_path=plan.inherits_path)

    def _discard(self) -> None:
        """Undoes a creation that failed halfway, whatever had been stored of it by then."""
        if hasattr(self, "native"):
            try:
                self.native.destroy(NATIVE_TIMEOUT_MS)
            except VLCError as error:  # the exception that is on its way says more
                logging.getLogger("vlcs").warning("after a failed creation: %s", error)
            else:
                REGISTRY.remove(self)
        if hasattr(self, "_service"):
            self._service.remove()

    def _busy(self, what: str, timeout: float | None) -> BusyError:
        return BusyError(
            f"cannot close the context {self.name!r}: after {timeout or 0.0:.3g} s it still runs {what}. It "
            "takes nothing new; call close() again to wait longer.",
            what,
        )


def _milliseconds(deadline: float | None) -> int:
    if deadline is None:
        return NATIVE_TIMEOUT_MS
    # Work has ended by now; whatever is just ending gets a moment more.
    return max(100, int((deadline - time.monotonic()) * 1000))


@cache
def _guest_source(file: str) -> str:
    # The guest may be a Python that has no vlcs installed, so its part travels as text.
    from importlib import resources  # noqa: PLC0415 - slow to import, and guests import vlcs too

    return resources.files("vlcs._core").joinpath(file).read_text("utf-8")
