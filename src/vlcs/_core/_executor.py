"""Jobs for a context's own threads, each with a `concurrent.futures.Future`."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from vlcs._core._gate import Gate
from vlcs._core._native import Context


@dataclass
class _Jobs:
    """The futures of those that have not ended."""

    queued: set[Future[Any]] = field(default_factory=set)
    running: dict[Future[Any], int] = field(default_factory=dict)
    """With the thread that runs each."""


class Executor:
    """Hands host callables to a context's pool.

    A job runs with the host's GIL on a thread inside the slice; what it calls may drop that GIL for
    the guest's. Its future's callbacks run on that thread too, and count as part of the job.
    """

    def __init__(self, context: Context, gate: Gate) -> None:
        self._context = context
        self._gate = gate
        self._jobs = _Jobs()

    def submit(self, what: object, work: Callable[[], Any], owner: object) -> Future[Any]:
        """Queues `work`; `what` names it in messages. Raises StateError when the context is closed.

        `owner` is kept until the work is done: without it the context is forgotten, and closed.
        """
        future: Future[Any] = Future()
        job = _Job(future, work, owner, self._gate, self._jobs)
        self._gate.accept(job, what)
        self._jobs.queued.add(future)
        try:
            self._context.submit(job)
        except BaseException:
            self._jobs.queued.discard(future)
            self._gate.drop(job)
            raise
        return future

    def cancel(self) -> int:
        """Cancels all jobs that have not begun; gives their number."""
        return sum(future.cancel() for future in list(self._jobs.queued))

    def after_fork(self) -> None:
        """In a forked child: who waits for a job of a thread that is not there would wait for ever."""
        me = threading.get_ident()
        lost = [
            *self._jobs.queued,
            *(future for future, thread in self._jobs.running.items() if thread != me),
        ]
        for future in lost:
            future._condition = threading.Condition()  # noqa: SLF001 - a thread that is not here may hold it
            future._done_callbacks.clear()  # type: ignore[attr-defined]  # noqa: SLF001 - the parent calls them
            if not future.done():
                future.set_exception(self._gate.lost())
            self._jobs.running.pop(future, None)
        self._jobs.queued.clear()


class _Job:
    """One submitted call: the callable that a thread of the pool runs."""

    __slots__ = ("_future", "_gate", "_jobs", "_owner", "_work")

    def __init__(
        self,
        future: Future[Any],
        work: Callable[[], Any],
        owner: object,
        gate: Gate,
        jobs: _Jobs,
    ) -> None:
        self._future: Future[Any] | None = future
        self._work: Callable[[], Any] | None = work
        self._owner = owner
        self._gate = gate
        self._jobs = jobs

    def __call__(self) -> None:
        future, work, owner = self._future, self._work, self._owner
        # Neither the arguments nor the context must live on with the pool's reference to the job.
        self._future = self._work = self._owner = None
        if future is None or work is None:
            return
        self._jobs.running[future] = threading.get_ident()
        self._jobs.queued.discard(future)
        try:
            if not future.set_running_or_notify_cancel():
                self._gate.drop(self)
                return
            with self._gate.begin(self):
                self._gate.drop(self)
                _settle(future, work)
        finally:
            self._jobs.running.pop(future, None)
            # An exception's traceback holds the frames that called its own: without the reference, no cycle.
            del future
        del owner


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who asks for the result
        future.set_exception(error)
        del future  # the traceback holds this frame: without the reference there is no cycle
    else:
        future.set_result(result)
