"""The search for the best setting by hand: every candidate is run, the slow ones drop out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from vlcs._demo._setting import Setting

# Runs vary by some percent, on a busy machine by more. After one run each, only what is clearly slower goes;
# later, what at its best is slower than the best by more than runs vary.
_FIRST_CUT = 1.5
_LATER_CUT = 1.15


@dataclass(frozen=True)
class Found:
    """What a search found, and what it tried."""

    best: Setting
    seconds: dict[Setting, list[float]]
    """Every run of every candidate, in order."""


def search(
    candidates: Sequence[Setting],
    measure: Callable[[Setting], float],
    *,
    passes: int,
    progress: Callable[[str], None] = lambda _text: None,
) -> Found:
    """Finds the fastest candidate by median.

    `measure` runs the whole work once and gives seconds. Every pass runs each candidate that is left once,
    so that a slow moment of the machine does not fall on one alone.
    """
    seconds: dict[Setting, list[float]] = {candidate: [] for candidate in candidates}
    left = list(candidates)
    for number in range(passes):
        for index, candidate in enumerate(left):
            progress(f"searching the best setting: pass {number + 1} of {passes}, {index + 1} of {len(left)}")
            seconds[candidate].append(measure(candidate))
        bound = min(min(seconds[candidate]) for candidate in left) * (_LATER_CUT if number else _FIRST_CUT)
        left = [candidate for candidate in left if min(seconds[candidate]) <= bound]
    return Found(min(left, key=lambda candidate: median(seconds[candidate])), seconds)
