"""Jobs of a context that a coroutine waits for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from vlcs._core._errors import ArgumentError, describe

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


async def outcome(future: Future[T]) -> T:
    """Waits in the running event loop. Cancelled, it cancels the job too, if that has not begun.

    Through the loop goes that the job is done, and not its outcome, as with `asyncio.wrap_future`: there a
    StopIteration is never delivered (Python 3.11.7).
    """
    import asyncio  # noqa: PLC0415 - slow to import; who comes here has it

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def tell(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(tell)
    try:
        await done
        return future.result()
    finally:  # whatever ends it: cancelled, or dropped with its loop
        future.cancel()
        del future  # an exception's traceback holds this frame: without the reference there is no cycle


def refuse_coroutines(fn: Any, context: str) -> None:
    """Raises ArgumentError for a function that gives a coroutine, which cannot leave its interpreter."""
    import inspect  # noqa: PLC0415 - slow to import

    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise ArgumentError(
            f"cannot run {describe(fn)} in the context {context!r}: it is an `async def`, and its coroutine "
            "would need an event loop there. Make it a plain function, which may call asyncio.run(...) "
            "itself, and await vlc.run_async(function).",
            describe(fn),
        )
