"""What a resize costs while the context computes, and what its loop gains by it.

    python benchmarks/bench_resize.py [--resizes N] [--json FILE]

A context of one CPU gets a second one and loses it again, N times, while a thread of the host multiplies
matrices in it, step by step, with NumPy (OpenBLAS), with PyTorch (its OpenMP and MKL) or fits a model of
scikit-learn (OpenMP). Told are the median and the worst time of a resize, as the thread that calls `resize`
sees it, with the libraries told; and how much faster the loop is on two CPUs than on one: the median of its
steps while the slice had two, against the same while it had one. After each resize all threads must be
inside of the slice, and all steps must give the same result.
Held equal: both sizes take turns within one run, so that a machine that slows down slows both. The main
thread sleeps between two resizes. The first two are not counted: libraries make their threads then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vlcs

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 0.1
"""Seconds between two resizes, of which the first half is not counted for the loop."""


def numpy_step() -> float:
    import numpy as np

    x = np.arange(360_000.0).reshape(600, 600) % 7
    return float((x @ x).sum())


def torch_step() -> float:
    import torch

    x = torch.arange(360_000.0).reshape(600, 600) % 7
    return float((x @ x).sum())


def sklearn_step() -> float:
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor

    x = np.random.default_rng(0).normal(size=(4000, 8))
    model = HistGradientBoostingRegressor(max_iter=3, random_state=0).fit(x, x[:, 0])
    return float(model.predict(x[:10]).sum())


STEPS: dict[str, Callable[[], float]] = {"numpy": numpy_step, "torch": torch_step, "sklearn": sklearn_step}


class Loop(threading.Thread):
    """Calls a step in the context again and again; keeps when each ended, and how long it took."""

    def __init__(self, vlc: vlcs.VLC, step: Callable[[], float]) -> None:
        super().__init__(daemon=True)
        self.vlc, self.step = vlc, step
        self.times: list[tuple[float, float]] = []
        self.results: set[float] = set()
        self.stop = False

    def run(self) -> None:
        """Until it is told to stop."""
        while not self.stop:
            start = time.perf_counter()
            self.results.add(self.vlc.run(self.step))
            end = time.perf_counter()
            self.times.append((end, end - start))


def measure(step: Callable[[], float], resizes: int) -> dict[str, Any]:
    """Of one kind of work."""
    one, two = {0}, {0, 1}
    seconds: list[float] = []
    turns: list[tuple[float, int]] = []
    with_one: list[float] = []
    with_two: list[float] = []
    vlc = vlcs.VLC(cpus=one)
    vlc.run(step)
    loop = Loop(vlc, step)
    loop.start()
    for turn in range(resizes + 2):
        start = time.perf_counter()
        vlc.resize(two if turn % 2 == 0 else one)
        seconds.append(time.perf_counter() - start)
        turns.append((time.perf_counter(), 2 if turn % 2 == 0 else 1))
        verification = vlc.verify()
        if not verification.holds:
            raise SystemExit(f"outside of the slice: {verification}")
        time.sleep(PAUSE)
    loop.stop = True
    loop.join()
    vlc.close()
    if len(loop.results) != 1:
        raise SystemExit(f"results differ: {loop.results}")
    for begin, cpus in turns[2:]:
        within = [took for end, took in loop.times if begin + PAUSE / 2 < end - took and end < begin + PAUSE]
        (with_two if cpus == 2 else with_one).extend(within)
    counted = sorted(seconds[2:])
    return {
        "resizes": len(counted),
        "median_ms": statistics.median(counted) * 1e3,
        "worst_ms": counted[-1] * 1e3,
        "first_ms": seconds[0] * 1e3,
        "steps": len(loop.times),
        "times_as_fast_on_two": statistics.median(with_one) / statistics.median(with_two)
        if with_one and with_two
        else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resizes", type=int, default=100, help="of each kind of work, at least 50")
    parser.add_argument("--work", choices=sorted(STEPS), action="append", help="only this; may be repeated")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    if len(vlcs.VLC("probe", interpreter=False).cpus) < 2:
        raise SystemExit("this needs two CPUs")
    figures = {}
    for name in options.work or STEPS:
        figures[name] = found = measure(STEPS[name], max(50, options.resizes))
        gain = found["times_as_fast_on_two"]
        print(
            f"{name:8} resize: median {found['median_ms']:.2f} ms, worst {found['worst_ms']:.2f} ms "
            f"of {found['resizes']}, the first {found['first_ms']:.2f} ms; "
            f"loop on 2 CPUs: {f'{gain:.2f}' if gain else '-'} times as fast as on 1 ({found['steps']} steps)"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
