"""What a call costs: in a context, beside a plain call and the pools that people use instead.

    python benchmarks/bench_call.py [--rounds N] [--json FILE]

All ways call the same function of a module with the same argument, and wait for its result. They take turns
within one run, so that a machine that slows down slows all of them; each turn repeats the call for about
20 ms and gives one time per call. Told are the median of the turns, the lowest, and the ratio to the plain
call.
Held equal: one worker in every pool, made and used before the first turn; the context may use all CPUs, so
nothing is moved. `inside` is within `with vlc:`, `outside` enters and leaves the context in each call.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import operator
import statistics
import sys
import time
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vlcs

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS = 0.02


def per_call(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds per call of each way, which take turns."""
    repeats = {}
    for way, call in ways.items():
        per_call(call, 5)  # warm
        repeats[way] = max(1, int(TURN_SECONDS / per_call(call, 5)))
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            seconds[way].append(per_call(ways[way], repeats[way]))
    base = statistics.median(seconds[next(iter(ways))])
    return {
        way: {
            "median": statistics.median(values),
            "lowest": min(values),
            "times the first": statistics.median(values) / base,
        }
        for way, values in seconds.items()
    }


def show(title: str, figures: dict[str, dict[str, float]]) -> None:
    print(title)
    print(f"  {'':34}{'median us':>12}{'lowest us':>12}{'ratio':>9}")
    for way, row in figures.items():
        print(
            f"  {way:34}{row['median'] * 1e6:12.3f}{row['lowest'] * 1e6:12.3f}{row['times the first']:9.1f}"
        )


def pools(stack: ExitStack) -> dict[str, Any]:
    """Executors with one worker each; those that this Python has."""
    found: dict[str, Any] = {
        "ThreadPoolExecutor": futures.ThreadPoolExecutor(1),
        "ProcessPoolExecutor": futures.ProcessPoolExecutor(1),
    }
    if hasattr(futures, "InterpreterPoolExecutor"):  # Python 3.14
        found["InterpreterPoolExecutor"] = futures.InterpreterPoolExecutor(1)
    if importlib.util.find_spec("joblib"):
        from joblib.externals.loky import get_reusable_executor

        found["loky (joblib's)"] = get_reusable_executor(1)
    for name, pool in found.items():
        if name != "loky (joblib's)":
            stack.enter_context(pool)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    call: Any = operator.index  # of a module, so that all ways find it by name
    with ExitStack() as stack:
        vlc = vlcs.VLC("bench")
        stack.callback(vlc.close)
        ways: dict[str, Callable[[], object]] = {
            "plain call": lambda: call(1),
            "vlc.run, outside": lambda: vlc.run(call, 1),
            "vlc.submit": lambda: vlc.submit(call, 1).result(),
        }
        for name, pool in pools(stack).items():
            ways[name] = lambda pool=pool: pool.submit(call, 1).result()
        results = {"one int": measure(ways, options.rounds)}
        with vlc:
            floats = [float(number) for number in range(1000)]
            within: dict[str, Callable[[], object]] = {
                "plain call": lambda: call(1),
                "vlc.run, inside": lambda: vlc.run(call, 1),
                "vlc.run, inside, list of 1000 floats": lambda: vlc.run(len, floats),
                "vlc.run, inside, raises": lambda: raises(vlc),
            }
            results["inside of `with vlc:`"] = measure(within, options.rounds)
    for title, figures in results.items():
        show(title, figures)
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, **results}, indent=1))


def raises(vlc: vlcs.VLC) -> None:
    try:
        vlc.run(operator.truediv, 1, 0)
    except ZeroDivisionError:
        return
    raise AssertionError


if __name__ == "__main__":
    main()
