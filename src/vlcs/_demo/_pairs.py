"""The pairs of workloads that the demo runs at the same time, as plain data."""

import importlib.util
from dataclasses import dataclass

from vlcs._demo import _workloads
from vlcs._demo._workloads import Limit, Prepare, Run


@dataclass(frozen=True)
class Side:
    """One workload of a pair."""

    title: str
    packages: tuple[tuple[str, str], ...]
    """What it imports, each with the name that pip knows."""
    prepare: Prepare
    run: Run
    limit: Limit | None
    """None where there is no thread count to set."""
    tolerance: float
    """How far its numbers may differ from one way to another, relative to their size; 0: not at all.

    Another number of threads is another order of additions, so sums of floating-point numbers differ
    in their last bits; in single precision, after a thousand training steps, in more of them.
    """


@dataclass(frozen=True)
class Pair:
    """Two workloads at the same time."""

    key: str
    sides: tuple[Side, Side]
    serial: bool = False
    """Whether to time them one after the other as well, in one process with untouched defaults."""

    @property
    def title(self) -> str:
        """Both names; one where they are the same."""
        first, second = (side.title for side in self.sides)
        return f"{first}, {second}" if first != second else f"2 x {first}"

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that are not installed, as pip knows them."""
        named = dict.fromkeys(package for side in self.sides for package in side.packages)
        return tuple(pip for module, pip in named if importlib.util.find_spec(module) is None)


_NUMPY = ("numpy", "numpy")
_SKLEARN = ("sklearn", "scikit-learn")


def _boosting(run: Run) -> Side:
    return Side(
        "HistGradientBoosting",
        (_NUMPY, _SKLEARN),
        _workloads.prepare_boosting,
        run,
        _workloads.limit_boosting,
        tolerance=1e-6,
    )


_LIGHTGBM = Side(
    "LightGBM",
    # It imports scikit-learn for its estimators.
    (_NUMPY, _SKLEARN, ("lightgbm", "lightgbm")),
    _workloads.prepare_lightgbm,
    _workloads.lightgbm,
    _workloads.limit_lightgbm,
    tolerance=1e-6,
)
_TRAINING = Side(
    "PyTorch",
    (("torch", "torch"),),
    _workloads.prepare_training,
    _workloads.training,
    _workloads.limit_training,
    tolerance=1e-2,
)
_CLUSTERING = Side(
    "KMeans + SVD",
    (_NUMPY, _SKLEARN),
    _workloads.prepare_clustering,
    _workloads.clustering,
    _workloads.limit_clustering,
    tolerance=1e-9,
)


def _reading(prepare: Prepare, run: Run) -> Side:
    return Side("h5py", (_NUMPY, ("h5py", "h5py")), prepare, run, None, tolerance=0)


_LOOP = Side("pure Python", (), _workloads.prepare_loop, _workloads.loop, None, tolerance=0)

PAIRS: tuple[Pair, ...] = (
    Pair("boosting", (_boosting(_workloads.long_boosting), _LIGHTGBM)),
    Pair("training", (_TRAINING, _boosting(_workloads.boosting))),
    Pair("clustering", (_TRAINING, _CLUSTERING)),
    Pair(
        "reading",
        (
            _reading(_workloads.prepare_first_file, _workloads.first_file),
            _reading(_workloads.prepare_second_file, _workloads.second_file),
        ),
        serial=True,
    ),
    Pair("python", (_LOOP, _LOOP), serial=True),
)


def pair_of(key: str) -> Pair:
    """The pair with that key; KeyError where there is none."""
    return {pair.key: pair for pair in PAIRS}[key]


def install_command(packages: tuple[str, ...]) -> str:
    """The command that installs what a pair lacks."""
    return "pip install " + " ".join(packages)
