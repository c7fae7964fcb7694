"""Benchmarks by pyperf in which the ways of doing one thing take turns: a noisy machine is noisy for all.

pyperf measures each benchmark in processes of its own, one benchmark after the other. Here it does so with
one process each, and again in as many rounds as asked for; its file has all the runs then, and the table is
made of it. `python -m pyperf stats FILE`, `hist` and `compare_to` take the file too.
"""

from __future__ import annotations

import argparse
import atexit
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyperf

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]
    Way = Callable[[ExitStack], Call]
    """Makes what has to be there before, and gives the call that is measured."""

ROUND = "--round"


def main(description: str | None, things: dict[str, dict[str, Way]], *, values: int = 3) -> None:
    """Runs the program: `things` are groups of ways, of which the first is what the others are told by.

    `values`: how many times each is measured in a round, for at least 20 ms.
    """
    if ROUND in sys.argv or "--worker" in sys.argv:
        one_round(things)
        return
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="pyperf's file, to be written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.json")
        for _ in range(options.rounds):
            command = [sys.executable, sys.argv[0], ROUND, "--quiet", f"--append={file}", "--processes=1"]
            command += [
                f"--values={values}",
                "--warmups=0",
                "--min-time=0.02",
                "--inherit-environ=PYTHONPATH",
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        suite = pyperf.BenchmarkSuite.load(str(file))
        if options.json:
            options.json.write_bytes(file.read_bytes())
    show(things, {benchmark.get_name(): benchmark for benchmark in suite})


def one_round(things: dict[str, dict[str, Way]]) -> None:
    runner = pyperf.Runner(add_cmdline_args=lambda command, _: command.append(ROUND))
    runner.argparser.add_argument(ROUND, action="store_true")
    for thing, ways in things.items():
        for name, way in ways.items():
            runner.bench_time_func(f"{thing}: {name}", timer_of(way))


def timer_of(way: Way) -> Callable[[int], float]:
    """What measures some calls; in a process of its own, so that the way may be made once."""
    made: list[Call] = []
    stack = ExitStack()

    def measure(loops: int) -> float:
        if not made:
            made.append(way(stack))
            atexit.register(stack.close)
            made[0]()  # imports, threads, caches
        call, repeats = made[0], range(loops)
        start = time.perf_counter()
        for _ in repeats:
            call()
        return time.perf_counter() - start

    return measure


def show(things: dict[str, dict[str, Way]], found: dict[str, Any]) -> None:
    for thing, ways in things.items():
        print(thing)
        print(f"  {'':46}{'median us':>16}{'lowest us':>16}{'ratio':>14}")
        base = None
        for name in ways:
            values = found[f"{thing}: {name}"].get_values()
            median = found[f"{thing}: {name}"].median()
            base = base or median
            print(f"  {name:46}{median * 1e6:16,.3f}{min(values) * 1e6:16,.3f}{median / base:14,.2f}")
