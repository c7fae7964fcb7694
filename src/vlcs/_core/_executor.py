"""Jobs for a context's own threads, each with a `concurrent.futures.Future`."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from vlcs._core._gate import Gate
from vlcs._core._native import Context


class Executor:
    """Hands host callables to a context's pool.

    A job runs with the host's GIL on a thread inside the slice; what it calls may drop that GIL for
    the guest's. Its future's callbacks run on that thread too, and count as part of the job.
    """

    def __init__(self, context: Context, gate: Gate) -> None:
        self._context = context
        self._gate = gate
        self._queued: set[Future[Any]] = set()

    def submit(self, what: object, work: Callable[[], Any], owner: object) -> Future[Any]:
        """Queues `work`; `what` names it in messages. Raises StateError when the context is closed.

        `owner` is kept until the work is done: without it the context is forgotten, and closed.
        """
        future: Future[Any] = Future()
        job = _Job(future, work, owner, self._gate, self._queued)
        self._gate.accept(job, what)
        self._queued.add(future)
        try:
            self._context.submit(job)
        except BaseException:
            self._queued.discard(future)
            self._gate.drop(job)
            raise
        return future

    def cancel(self) -> int:
        """Cancels all jobs that have not begun; gives their number."""
        return sum(future.cancel() for future in list(self._queued))


class _Job:
    """One submitted call: the callable that a thread of the pool runs."""

    __slots__ = ("_future", "_gate", "_owner", "_queued", "_work")

    def __init__(
        self,
        future: Future[Any],
        work: Callable[[], Any],
        owner: object,
        gate: Gate,
        queued: set[Future[Any]],
    ) -> None:
        self._future: Future[Any] | None = future
        self._work: Callable[[], Any] | None = work
        self._owner = owner
        self._gate = gate
        self._queued = queued

    def __call__(self) -> None:
        future, work, owner = self._future, self._work, self._owner
        # Neither the arguments nor the context must live on with the pool's reference to the job.
        self._future = self._work = self._owner = None
        if future is None or work is None:
            return
        self._queued.discard(future)
        if not future.set_running_or_notify_cancel():
            self._gate.drop(self)
            return
        with self._gate.begin(self):
            self._gate.drop(self)
            _settle(future, work)
        del owner


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who asks for the result
        future.set_exception(error)
        del future  # the traceback holds this frame: without the reference there is no cycle
    else:
        future.set_result(result)
