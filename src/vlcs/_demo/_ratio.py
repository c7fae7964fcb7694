"""Medians, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """The median of ratios taken round by round, with an interval that holds the true median."""

    median: float
    low: float
    high: float
    coverage: float
    """How sure the interval is, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Compares two ways that took turns.

    By round, since a machine that is slow for a while is slow for both. The interval lies between order
    statistics (H. A. David, Order Statistics, section 7.1): it assumes nothing about how times are
    distributed, and covers at least 95 % from 6 rounds on. With fewer it is the whole range, and `coverage`
    says what that is worth.
    """
    values = sorted(one / other for one, other in zip(numerators, denominators, strict=True))
    rank, coverage = _rank(len(values))
    return Ratio(median(values), values[rank], values[-1 - rank], coverage)


def _rank(count: int) -> tuple[int, float]:
    """How many values to leave out at each end for 95 %, and the coverage that this gives."""

    def covered(rank: int) -> float:
        # The chance that neither end lies on the wrong side of the median.
        return 1.0 - 2.0 * sum(comb(count, index) for index in range(rank + 1)) / 2.0**count

    rank = 0
    while rank + 1 < count / 2 and covered(rank + 1) >= 0.95:
        rank += 1
    return rank, max(0.0, covered(rank))
