"""Who is inside, and the end of it."""

from __future__ import annotations

import functools
import threading
import time

import pytest

import vlcs
from vlcs._core._gate import Gate, State, describe


def test_lets_in_and_counts() -> None:
    gate = Gate("a")
    assert not gate.is_inside()
    gate.enter("x")
    gate.enter("y")
    assert gate.is_inside()
    gate.leave()
    assert gate.wait(time.monotonic()) == ["x"]
    gate.leave()
    assert gate.wait(None) == []


def test_shut_it_refuses_newcomers_only() -> None:
    gate = Gate("a")
    refused: list[vlcs.StateError] = []

    def newcomer() -> None:
        try:
            gate.enter("newcomer")
        except vlcs.StateError as error:
            refused.append(error)

    with gate.entered("x"):
        gate.shut()
        with gate.entered("deeper"):
            pass
        thread = threading.Thread(target=newcomer)
        thread.start()
        thread.join()
    assert len(refused) == 1
    with pytest.raises(vlcs.StateError, match="cannot run x in the context 'a': it is closed"):
        gate.enter("x")


def test_accepted_jobs_run_after_it_shut() -> None:
    gate = Gate("a")
    job = object()
    gate.accept(job, "job")
    gate.shut()
    assert gate.wait(time.monotonic()) == ["job (queued)"]
    gate.begin(job)
    assert gate.wait(time.monotonic()) == ["job"]
    gate.leave()
    assert gate.wait(None) == []
    with pytest.raises(vlcs.StateError):
        gate.accept(object(), "late")


def test_wait_ends_when_the_last_leaves() -> None:
    gate = Gate("a")
    entered = threading.Event()

    def visit() -> None:
        with gate.entered("visit"):
            entered.set()
            time.sleep(0.05)

    thread = threading.Thread(target=visit)
    thread.start()
    entered.wait()
    gate.shut()
    assert gate.wait(time.monotonic() + 5) == []
    thread.join()


def test_orphan_says_why_even_inside() -> None:
    gate = Gate("a")
    gate.enter("block")
    gate.orphan()
    assert gate.state is State.ORPHANED
    with pytest.raises(vlcs.StateError, match="made before this process was forked from its parent"):
        gate.enter("x")
    gate.leave()  # the end of the parent's block, in the child
    assert gate.wait(None) == []


def test_orphan_of_a_closed_context_stays_closed() -> None:
    gate = Gate("a")
    gate.close()
    gate.orphan()
    assert gate.state is State.CLOSED


def test_descriptions() -> None:
    assert describe("words") == "words"
    assert describe(len) == "len()"
    assert describe(describe) == "vlcs._core._gate.describe()"
    assert describe(Gate.shut) == "vlcs._core._gate.Gate.shut()"
    assert describe(functools.partial(len, "x")).startswith("functools.partial(")
