"""One pair measured: the search, then rounds in which every way takes its turn."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from vlcs._demo._pairs import Pair
from vlcs._demo._ratio import Ratio, ratio
from vlcs._demo._search import Found, search
from vlcs._demo._setting import SERIAL, UNTOUCHED, Setting, candidates
from vlcs._demo._worker import Order, Outcome, Worker

DEFAULTS = "defaults"
TUNED = "tuned"
CONTEXTS = "contexts"
IN_TURN = "in turn"

FEWEST_RUNS = 5
"""Rounds that a pair has, however long they take, unless fewer are wanted."""


@dataclass(frozen=True)
class Plan:
    """What is the same for all pairs of a run."""

    halves: tuple[tuple[int, ...], tuple[int, ...]]
    """CPUs of the two contexts; together, all that the demo uses."""
    runs: int
    seconds: float
    """After which a pair's rounds end, once there are `FEWEST_RUNS`: untouched defaults can take minutes."""
    passes: int
    """Passes of the search."""
    directory: str
    """Where workloads put their files."""
    environment: Mapping[str, str]
    """Of the worker processes."""


@dataclass
class Measured:
    """What came of one pair."""

    pair: Pair
    found: Found
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """By way, one for each round."""
    values: dict[str, list[list[float]]] = field(default_factory=dict)
    """By way, the numbers that each side computed in the last round."""
    mismatches: list[str] = field(default_factory=list)
    """Where ways computed different numbers, in words."""

    def ratio(self, way: str, to: str) -> Ratio:
        """How many times as long as the second way the first one takes."""
        return ratio(self.seconds[way], self.seconds[to])


def measure(pair: Pair, plan: Plan, progress: Callable[[str], None]) -> Measured:
    """Searches the best setting by hand, then times all ways; raises WorkerError where one of them fails."""
    threads = Order(pair.key, plan.directory)
    progress("preparing the search")
    with Worker(threads, plan.environment) as worker:
        found = search(
            candidates([cpu for half in plan.halves for cpu in half], _threaded(pair)),
            lambda setting: worker.run(setting).seconds,
            passes=plan.passes,
            progress=progress,
        )
    measured = Measured(pair, found)
    orders: dict[str, tuple[Order, Setting]] = {
        DEFAULTS: (threads, UNTOUCHED),
        TUNED: (threads, found.best),
        CONTEXTS: (Order(pair.key, plan.directory, plan.halves), UNTOUCHED),
    }
    if pair.serial:
        orders[IN_TURN] = (threads, SERIAL)
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for way, (order, _) in orders.items():
            progress(f"preparing {way}")
            workers[way] = stack.enter_context(Worker(order, plan.environment))
        turns = list(orders)
        end = time.monotonic() + plan.seconds
        for number in range(-1, plan.runs):
            if number >= FEWEST_RUNS and time.monotonic() > end:
                break
            progress(f"round {number + 1} of {plan.runs}" if number >= 0 else "warming up")
            outcomes = {way: workers[way].run(orders[way][1]) for way in turns}
            _check(measured, outcomes)
            if number >= 0:
                for way, outcome in outcomes.items():
                    measured.seconds.setdefault(way, []).append(outcome.seconds)
            # The way that begins changes, so that none always follows the same one.
            turns.append(turns.pop(0))
    return measured


def _threaded(pair: Pair) -> tuple[bool, bool]:
    first, second = pair.sides
    return first.limit is not None, second.limit is not None


def _check(measured: Measured, outcomes: Mapping[str, Outcome]) -> None:
    """Notes where a way's numbers differ from those of the defaults by more than the side allows."""
    expected = outcomes[DEFAULTS].values
    for way, outcome in outcomes.items():
        measured.values[way] = outcome.values
        for side, wanted, got in zip(measured.pair.sides, expected, outcome.values, strict=True):
            if not agree(wanted, got, side.tolerance):
                measured.mismatches.append(
                    f"{side.title} computed {got} in the way '{way}', but {wanted} in the way '{DEFAULTS}'; "
                    f"they may differ by {side.tolerance:g} of their size"
                )


def agree(wanted: list[float], got: list[float], tolerance: float) -> bool:
    """Whether two results are equal, up to a part of their size. NaN agrees with nothing."""
    return len(wanted) == len(got) and all(
        abs(one - other) <= tolerance * max(abs(one), abs(other))
        for one, other in zip(wanted, got, strict=True)
    )
