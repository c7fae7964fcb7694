"""Tasks: functions that always run in one context."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from vlcs._core import _bridge, _task

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("native")


@vlcs.in_context("a")
def add(a: int, b: int = 2) -> int:
    """Adds."""
    return a + b


async def coroutine() -> None: ...


async def generator() -> Any:
    yield 1


class Holder:
    @staticmethod
    @vlcs.in_context("a")
    def double(x: int) -> int:
        return 2 * x


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the contexts that functions ran in."""
    found: list[str] = []
    run = vlcs.VLC.run

    def note(vlc: vlcs.VLC, *args: Any, **kwargs: Any) -> Any:
        found.append(vlc.name)
        return run(vlc, *args, **kwargs)

    monkeypatch.setattr(vlcs.VLC, "run", note)
    return found


class TestInContext:
    def test_finds_the_context_at_each_call(self, calls: list[str]) -> None:
        with pytest.raises(vlcs.StateError) as caught:
            add(1)
        assert str(caught.value) == (
            f"cannot run {__name__}.add() in the context 'a': no context of that name is open. "
            "Open are: none. Make it before the call: vlcs.VLC('a')."
        )
        first = vlcs.VLC("a")
        other = vlcs.VLC("b")
        assert (add(1), add(1, b=5)) == (3, 6)
        first.close()
        with pytest.raises(vlcs.StateError, match=f"Open are: {other.name!r}"):
            add(1)
        second = vlcs.VLC("a")
        assert add(2) == 4
        assert calls == ["a"] * 3
        assert add.submit(3).result(5) == 5
        assert asyncio.run(add.run_async(4)) == 6
        second.close()

    def test_does_not_keep_the_context(self) -> None:
        vlc = vlcs.VLC("a")
        assert add(1) == 3
        del vlc
        assert add._latest() is None

    def test_looks_like_the_function(self) -> None:
        assert (add.__name__, add.__doc__, add.__module__) == ("add", "Adds.", __name__)
        assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
        assert repr(add) == f"<vlcs.Task {__name__}.add() in context 'a'>"

    @pytest.mark.parametrize("name", ["", 3, None, coroutine])
    def test_what_is_no_name(self, name: Any) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r'write @vlcs.in_context\("blas"\)'):
            vlcs.in_context(name)


class TestBound:
    def test_runs_in_that_context_and_keeps_it(self, calls: list[str]) -> None:
        vlc = vlcs.VLC("a")
        task = vlc.task(pow)
        assert task(2, 3) == 8
        assert calls == ["a"]
        assert task.submit(2, 4).result(5) == 16
        assert task.submit(2, exp=5).result(5) == 32
        assert asyncio.run(task.run_async(2, 6)) == 64
        assert task._vlc is vlc
        vlc.close()
        vlcs.VLC("a")  # another
        with pytest.raises(vlcs.StateError, match="it is closed"):
            task(2, 3)

    def test_runs_on_threads_of_the_context(self) -> None:
        vlc = vlcs.VLC("a")
        task = vlc.task(threading.get_native_id)
        assert [task.submit().result(5)] == [asyncio.run(task.run_async())] == vlc.threads()

    @pytest.mark.parametrize("function", [coroutine, generator, functools.partial(coroutine)])
    def test_coroutines_are_refused(self, function: Any) -> None:
        vlc = vlcs.VLC("a")
        with pytest.raises(vlcs.ArgumentError, match=r"is an `async def`.*Make it a plain function"):
            vlc.task(function)
        with pytest.raises(vlcs.ArgumentError, match=r"await vlc\.run_async"):
            asyncio.run(vlc.run_async(function))

    def test_what_cannot_be_called_is_refused(self) -> None:
        with pytest.raises(vlcs.ArgumentError, match="cannot make a task of 3 for the context 'a'"):
            vlcs.VLC("a").task(3)  # type: ignore[arg-type]

    def test_methods_are_refused(self) -> None:
        vlc = vlcs.VLC("a")
        # Python 3.11 makes a RuntimeError of it.
        with pytest.raises((vlcs.ArgumentError, RuntimeError)) as caught:

            class Solver:
                @vlc.task
                def solve(self) -> None: ...

        error = caught.value if isinstance(caught.value, vlcs.ArgumentError) else caught.value.__cause__
        assert "Solver.solve() a task" in str(error)
        assert "Write @staticmethod above it" in str(error)


class TestInsideTheContext:
    def test_runs_directly(self, monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
        monkeypatch.setattr(_task, "_HERE", "a")
        assert add(1) == 3
        assert calls == []
        with pytest.raises(vlcs.StateError, match="on a thread of its pool: this is its own interpreter"):
            add.submit(1)

    def test_in_another_it_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_task, "_HERE", "b")
        with pytest.raises(vlcs.StateError, match="this is the interpreter of the context 'b'"):
            add(1)

    def test_one_that_was_made_there_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_task, "_HERE", "b")
        vlc = vlcs.VLC("a")
        assert add(1) == 3
        vlc.close()


class TestCrossing:
    def test_the_function_goes_by_name(self) -> None:
        assert _bridge._importable_name(add.__wrapped__) == (__name__, ("add", "__wrapped__"))
        double = Holder.double.__wrapped__  # type: ignore[attr-defined]
        assert _bridge._importable_name(double) == (__name__, ("Holder", "double", "__wrapped__"))

    def test_a_task_goes_by_name(self) -> None:
        assert (add.__reduce__(), Holder.double.__reduce__()) == ("add", "Holder.double")
        assert copy.deepcopy(add) is add

    def test_without_a_name_it_takes_that_of_the_context(self) -> None:
        vlc = vlcs.VLC("a")
        task = vlc.task(len)  # whose name is the function's
        there = copy.copy(task)
        assert (type(there), there.__wrapped__, there._context) == (vlcs.Task, len, "a")
        assert there._vlc is None
        assert there("xx") == 2
        vlc.close()

    def test_of_main_nothing_goes_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def function() -> None: ...

        function.__module__, function.__qualname__ = "__main__", "function"
        task = vlcs.in_context("a")(function)
        monkeypatch.setattr(sys.modules["__main__"], "function", task, raising=False)
        assert task.__reduce__() == (vlcs.Task, (function, "a"))
