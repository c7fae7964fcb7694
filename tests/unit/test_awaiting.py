"""Jobs that a coroutine waits for, with futures that a test completes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import Future

import pytest

from vlcs._core._awaiting import outcome


def test_result_and_exception() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for late in (False, True):
            future: Future[int] = Future()
            if late:
                loop.call_later(0.01, future.set_result, 5)
            else:
                future.set_result(5)
            assert await outcome(future) == 5
            broken: Future[int] = Future()
            broken.set_exception(KeyError("x"))
            with pytest.raises(KeyError, match="x"):
                await outcome(broken)

    asyncio.run(main())


def test_stop_iteration_arrives() -> None:
    future: Future[int] = Future()
    future.set_exception(StopIteration(3))
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        asyncio.run(asyncio.wait_for(outcome(future), 5))
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("running", [False, True])
def test_cancelled_it_cancels_what_has_not_begun(*, running: bool) -> None:
    future: Future[int] = Future()
    if running:
        future.set_running_or_notify_cancel()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(outcome(future), 0.01)

    asyncio.run(main())
    assert future.cancelled() is not running
    if running:
        future.set_result(1)  # whose loop is closed by now


def test_dropped_with_its_loop_it_cancels_too(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()
    loop = asyncio.new_event_loop()
    waiting = outcome(future)
    task = loop.create_task(waiting)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    waiting.close()
    assert future.cancelled()
    del task
    assert not [record for record in caplog.records if record.name != "asyncio"]


def test_an_exception_does_not_hold_its_future() -> None:
    future: Future[int] = Future()
    gone = weakref.ref(future)
    future.set_exception(KeyError())
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyError):
            asyncio.run(outcome(future))
        del future
        assert gone() is None
    finally:
        gc.enable()
