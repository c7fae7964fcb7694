"""Who is inside, and the end of it."""

from __future__ import annotations

import functools
import gc
import threading
import time

import pytest

import vlcs
from vlcs._core._gate import Gate, State, describe


def test_lets_in_and_counts() -> None:
    gate = Gate("a")
    assert not gate.is_inside()
    with gate.visit("x"):
        with gate.visit("y"):
            assert gate.is_inside()
        assert gate.wait_until_empty(time.monotonic()) == ["x"]
    assert gate.wait_until_empty(None) == []


def test_shut_it_refuses_newcomers_only() -> None:
    gate = Gate("a")
    refused: list[vlcs.StateError] = []

    def newcomer() -> None:
        try:
            gate.check("newcomer")
        except vlcs.StateError as error:
            refused.append(error)
        try:
            with gate.visit("newcomer"):
                pass
        except vlcs.StateError as error:
            refused.append(error)

    with gate.visit("x"):
        gate.shut()
        gate.check("deeper")
        with gate.visit("deeper"):
            pass
        thread = threading.Thread(target=newcomer)
        thread.start()
        thread.join()
    assert len(refused) == 2
    with pytest.raises(vlcs.StateError, match="cannot run x in the context 'a': it is closed"):
        gate.visit("x").__enter__()


def test_accepted_jobs_run_after_it_shut() -> None:
    gate = Gate("a")
    job = object()
    gate.accept(job, "job")
    gate.shut()
    assert gate.wait_until_empty(time.monotonic()) == ["job (queued)"]
    with gate.begin(job):
        gate.drop(job)
        assert gate.wait_until_empty(time.monotonic()) == ["job"]
    assert gate.wait_until_empty(None) == []
    with pytest.raises(vlcs.StateError):
        gate.accept(object(), "late")


def test_wait_ends_when_the_last_leaves() -> None:
    gate = Gate("a")
    entered = threading.Event()

    def visit() -> None:
        with gate.visit("visit"):
            entered.set()
            time.sleep(0.05)

    thread = threading.Thread(target=visit)
    thread.start()
    entered.wait()
    gate.shut()
    assert gate.wait_until_empty(time.monotonic() + 5) == []
    thread.join()


def test_orphan_says_why_even_inside() -> None:
    gate = Gate("a")
    gate.visit("block").stay()
    gate.after_fork(dead=True)
    assert gate.state is State.ORPHANED
    with pytest.raises(vlcs.StateError, match="made before this process was forked from its parent"):
        gate.visit("x").__enter__()
    gate.leave()  # the end of the parent's block, in the child
    assert gate.wait_until_empty(None) == []


def test_orphan_of_a_closed_context_stays_closed() -> None:
    gate = Gate("a")
    gate.close()
    gate.after_fork(dead=True)
    assert gate.state is State.CLOSED


def test_destructors_may_enter_at_any_moment() -> None:
    gate = Gate("a")
    entered = 0

    class Handle:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            nonlocal entered
            with gate.visit("destructor"):
                entered += 1

    before = gc.get_threshold()
    gc.set_threshold(7)
    try:
        for _ in range(2000):
            Handle()
            with gate.visit("x"):
                gate.accept(gate, "job")
                gate.drop(gate)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert entered == 2000
    assert gate.inside() == []


def test_a_block_that_another_thread_leaves_is_over() -> None:
    gate = Gate("a")
    context = Depth()
    gate.visit("block", context).stay()  # type: ignore[arg-type]
    errors: list[vlcs.StateError] = []

    def leave() -> None:
        try:
            gate.leave()
        except vlcs.StateError as error:
            errors.append(error)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert "no `await` and no `yield`" in str(errors[0])
    assert (gate.inside(), context.depth) == ([], 1)
    assert not gate.is_inside()  # asked by the thread that is still in the context: it leaves now
    assert context.depth == 0


def test_a_thread_that_ended_inside_is_no_other_thread() -> None:
    gate = Gate("a")
    inside: list[bool] = []
    for work in (gate.visit("block").stay, lambda: inside.append(gate.is_inside())):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert inside == [False]


class Depth:
    """A context that counts."""

    depth = 0

    def enter(self) -> None:
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1


def test_broken_reprs_hold_nothing() -> None:
    gate = Gate("a")

    class Curious:
        def __repr__(self) -> str:
            with gate.visit("repr"):
                return "curious"

    with gate.visit(Curious()):
        gate.shut()
        assert gate.wait_until_empty(time.monotonic()) == ["curious"]


def test_descriptions() -> None:
    assert describe("words") == "words"
    assert describe(len) == "len()"
    assert describe(describe) == "vlcs._core._errors.describe()"
    assert describe(Gate.shut) == "vlcs._core._gate.Gate.shut()"
    assert describe(functools.partial(len, "x")).startswith("functools.partial(")
