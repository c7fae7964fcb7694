"""Calls that coroutines await: their outcome, cancellation and time limits, and ends in every order."""

from __future__ import annotations

import textwrap

import pytest

from support.child import Finished, run_child

# `hold` tells that it runs and waits for a byte of the host: what is asked is asked in that moment.
HEAD = """
import asyncio, gc, os, sys, vlcs

started, start = os.pipe()
released, release = os.pipe()

def hold(start, released):
    import builtins, os
    os.write(start, b"x")
    os.read(released, 1)
    builtins.held = getattr(builtins, "held", 0) + 1
    return "held"

def note():
    import builtins
    builtins.noted = True

def look():
    import builtins
    return getattr(builtins, "held", 0), getattr(builtins, "noted", False)

async def begun():
    assert await asyncio.to_thread(os.read, started, 1) == b"x"

"""


def run(program: str, *args: str, **options: object) -> Finished:
    return run_child(HEAD + textwrap.dedent(program), timeout=60, args=args, **options)  # type: ignore[arg-type]


def test_outcomes_and_many_at_once() -> None:
    run(
        """
        import threading
        import numpy as np
        a = vlcs.VLC("a", threads=4)

        def meet():
            import threading
            return vars(threading).setdefault("_meeting", threading.Barrier(4)).wait(20)

        def fail(words):
            raise KeyError(words)

        async def main():
            assert await a.run_async(pow, 2, 5) == await a.run_async(pow, 2, exp=5) == 32
            array = np.zeros(3)
            back = await a.run_async(np.add, array, 1, out=array)
            assert array.sum() == back.sum() == 3  # shared, as with run()
            # On threads of the context, all of them at once, beside the loop.
            assert await a.run_async(threading.get_native_id) in a.threads()
            assert sorted(await asyncio.gather(*(a.run_async(meet) for _ in range(4)))) == [0, 1, 2, 3]
            numbers = await asyncio.gather(*(a.run_async(pow, n, 2) for n in range(500)))
            assert numbers == [n**2 for n in range(500)]
            try:
                await a.run_async(fail, "words")
            except KeyError as error:
                assert error.args == ("words",) and "in fail" in str(error.__cause__)
            else:
                sys.exit("no error")
            try:
                await asyncio.wait_for(a.run_async(next, iter(())), 20)
            except RuntimeError as error:
                assert isinstance(error.__cause__, StopIteration), error
            else:
                sys.exit("no error")
            try:
                await a.run_async(print, sys._getframe())
            except vlcs.PicklingError:
                pass
            else:
                sys.exit("a frame crossed")
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(a.run_async(len, "x" * n)) for n in range(5)]
            assert [task.result() for task in tasks] == [0, 1, 2, 3, 4]
        asyncio.run(main())
        a.close()
        """
    )


@pytest.mark.parametrize("resident", ["", "resident"])
def test_cancellation_and_time_limits(resident: str) -> None:
    run(
        """
        a = vlcs.VLC("a", resident=bool(sys.argv[1]))

        async def main():
            # One that runs goes on to its end; one that has not begun never runs.
            first = asyncio.create_task(a.run_async(hold, start, released))
            await begun()
            second = asyncio.create_task(a.run_async(note))
            await asyncio.sleep(0)
            for task in (second, first):
                task.cancel()
                try:
                    await task  # at once: the call waits for what is released below
                except asyncio.CancelledError:
                    pass
                else:
                    sys.exit("not cancelled")
            os.write(release, b"x")
            assert await a.run_async(look) == (1, False)

            # Time limits are cancellation.
            for turn in (2, 3):
                limited = asyncio.create_task(a.run_async(hold, start, released))
                await begun()
                try:
                    if turn == 2:
                        await asyncio.wait_for(limited, 0.05)
                    else:
                        async with asyncio.timeout(0.05):
                            await limited
                except TimeoutError:
                    pass
                else:
                    sys.exit("no limit")
                os.write(release, b"x")
                assert await a.run_async(look) == (turn, False)

            # Without being awaited, nothing begins.
            a.run_async(note).close()
            assert await a.run_async(look) == (3, False)
        asyncio.run(main())
        a.close()
        """,
        resident,
    )


def test_close_waits_for_what_was_cancelled() -> None:
    run(
        """
        a = vlcs.VLC("a")

        async def main():
            first = asyncio.create_task(a.run_async(hold, start, released))
            second = asyncio.create_task(a.run_async(pow, 2, 3))
            await begun()
            closing = asyncio.create_task(asyncio.to_thread(a.close))
            while not a.closed:
                await asyncio.sleep(0.001)
            try:
                await a.run_async(len, "x")
            except vlcs.StateError as error:
                assert "closed" in str(error)
            else:
                sys.exit("let in")
            first.cancel()
            await asyncio.wait([first])
            try:
                a.close(0.05)
            except vlcs.BusyError:
                pass
            else:
                sys.exit("closed although a call runs")
            os.write(release, b"x")
            await closing
            assert await second == 8  # it was accepted
        asyncio.run(main())
        assert vlcs.contexts() == []
        """
    )


def test_ctrl_c_while_a_call_is_awaited() -> None:
    run(
        """
        import signal
        a = vlcs.VLC("a")

        async def main():
            task = asyncio.create_task(a.run_async(hold, start, released))
            await begun()
            os.kill(os.getpid(), signal.SIGINT)
            await task

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            os.write(release, b"x")  # until now the call waits for it
        else:
            sys.exit("not interrupted")
        assert a.submit(look).result() == (1, False)
        a.close()
        """
    )


def test_a_loop_that_is_closed_before_the_result() -> None:
    finished = run(
        """
        a = vlcs.VLC("a")
        loop = asyncio.new_event_loop()
        left = [loop.create_task(a.run_async(hold, start, released)), loop.create_task(a.run_async(note))]
        loop.run_until_complete(begun())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        os.write(release, b"x")
        a.run(len, "x")
        assert a.submit(look).result() == (1, True)
        a.close()
        for task in left:
            task._log_destroy_pending = False  # what the loop's closing is to blame for
        """
    )
    assert finished.stderr == ""


def test_a_call_that_nobody_awaits_any_more_keeps_its_context() -> None:
    finished = run(
        """
        import warnings
        warnings.simplefilter("always")

        async def main():
            task = asyncio.create_task(vlcs.VLC("lost").run_async(hold, start, released))
            await begun()
            task.cancel()
            await asyncio.wait([task])
            del task
            gc.collect()
            await asyncio.sleep(0.05)
            assert [vlc.name for vlc in vlcs.contexts()] == ["lost"]
            os.write(release, b"x")
            while vlcs.limits().contexts:
                await asyncio.sleep(0.005)
        asyncio.run(main())
        """
    )
    assert "the context 'lost' was forgotten" in finished.stderr
