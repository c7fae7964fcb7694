"""Functions that always run in one context: by decorators, in modules that the context imports too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.child import run_child

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
import functools
import sys
import vlcs

def log(function):
    @functools.wraps(function)
    def logged(*args):
        return function(*args)
    return logged

def here():
    return sys.modules["_vlcs_guest"].name if "_vlcs_guest" in sys.modules else "host"

@vlcs.in_context("a")
def where(depth=0):
    return [here(), *(where(depth - 1) if depth else [])]

@log
@vlcs.in_context("a")
def decorated_above(depth):
    return [here(), *(decorated_above(depth - 1) if depth else [])]

@vlcs.in_context("a")
@log
def decorated_below(depth):
    return [here(), *(decorated_below(depth - 1) if depth else [])]

@vlcs.in_context("b")
def through_b():
    return where()

@vlcs.in_context("b")
def apply(function, *args):
    return function(*args)

class Holder:
    @staticmethod
    @vlcs.in_context("a")
    def scale(array):
        array *= 2
        return here()

@vlcs.in_context("a")
def nested():
    with vlcs.VLC("inner"):
        return inner()

@vlcs.in_context("inner")
def inner():
    return here()
"""


def test_a_module_that_both_sides_import(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(MODULE)
    run_child(
        """
        import asyncio, sys
        import numpy as np, vlcs
        sys.path.insert(0, sys.argv[1])
        import tasks

        def refused(call, *words):
            try:
                found = call()
            except vlcs.StateError as error:
                assert all(word in str(error) for word in words), error
            else:
                sys.exit(f"no error but {found}")

        refused(tasks.where, "tasks.where()", "'a'", "Open are: none")
        b = vlcs.VLC("b")
        refused(tasks.where, "Open are: 'b'")
        for turn in range(2):  # it is found again
            a = vlcs.VLC("a")
            assert tasks.where() == ["a"] and tasks.where(3) == ["a"] * 4  # inside, it calls itself directly
            assert tasks.where.submit(1).result() == ["a", "a"]
            assert asyncio.run(tasks.where.run_async(1)) == ["a", "a"]
            assert tasks.decorated_above(1) == tasks.decorated_below(1) == ["a", "a"]
            array = np.ones(3)
            assert tasks.Holder.scale(array) == "a" and array.sum() == 6  # shared, as with run()
            # A task as a function, or as a value, of the context itself; of another; of none.
            assert a.run(tasks.where, 1) == ["a", "a"] == a.run(tasks.apply.__wrapped__, tasks.where, 1)
            refused(tasks.through_b, "interpreter of the context 'b'", "'a'")
            refused(lambda: tasks.apply(tasks.where), "interpreter of the context 'b'")
            refused(lambda: a.run(tasks.where.submit), "on a thread of its pool")
            assert tasks.nested() == "inner"
            a.close()
        """,
        timeout=100,
        args=[str(tmp_path)],
    )


def test_functions_of_a_script() -> None:
    run_child(
        """
        import asyncio, sys, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b", resident=True)

        @a.task
        def fibonacci(n):
            import sys
            assert sys.modules["_vlcs_guest"].name == "a"
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        @b.task
        def fail(words):
            raise KeyError(words)

        def make():
            secret = 5
            @b.task
            def local(n, *, more=1):
                return secret + n + more
            return local

        assert fibonacci(10) == 55 == fibonacci.submit(10).result() == asyncio.run(fibonacci.run_async(10))
        assert make()(1, more=2) == 8
        try:
            fail("words")
        except KeyError as error:
            assert error.args == ("words",) and "in fail" in str(error.__cause__), error.__cause__
        else:
            sys.exit("no error")
        try:
            b.run(fibonacci, 3)
        except vlcs.StateError as error:
            assert "interpreter of the context 'b'" in str(error), error
        else:
            sys.exit("a task of one context ran in another")
        a.close()
        try:
            fibonacci(1)
        except vlcs.StateError as error:
            assert "closed" in str(error), error
        else:
            sys.exit("ran in a closed context")
        """,
        timeout=60,
    )
