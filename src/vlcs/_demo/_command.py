"""The command: what to measure, in which order, and what it answers."""

import argparse
import difflib
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vlcs._core import _topology
from vlcs._core._kernel_text import format_list
from vlcs._demo._machine import Machine, machine, without_thread_variables
from vlcs._demo._measure import Measured, Plan, measure
from vlcs._demo._pairs import PAIRS, Pair, install_command
from vlcs._demo._progress import Progress
from vlcs._demo._setting import halves
from vlcs._demo._table import in_short, meaning, table
from vlcs._demo._worker import WorkerError

_RUNS, _QUICK_RUNS = 15, 5
_PASSES, _QUICK_PASSES = 5, 2
_PAIR_SECONDS = 300.0


def run(argv: list[str] | None = None) -> int:
    """Runs the demo; gives its exit code."""
    options = _parser().parse_args(argv)
    usable = os.sched_getaffinity(0)
    if len(usable) < 2:
        _say(
            f"vlcs demo: needs two CPUs to share out, but this process may use {len(usable)} "
            f"(CPU {format_list(usable)}). Run it on a machine, in a container or under a taskset "
            "that has more."
        )
        return 2
    pairs = _installed(options.pairs)
    environment, dropped = without_thread_variables(os.environ)
    here = machine(dict.fromkeys(name for pair in pairs for side in pair.sides for _, name in side.packages))
    _say(str(here))
    if dropped:
        _say(f"Note: {', '.join(dropped)} of your environment left out, so that defaults are untouched.")
    for caution in here.cautions():
        _say(f"Caution: {caution}")
    with tempfile.TemporaryDirectory(prefix="vlcs-demo-") as directory:
        plan = Plan(
            halves=halves(sorted(usable), _topology.read(fallback=usable)),
            runs=options.runs or (_QUICK_RUNS if options.quick else _RUNS),
            seconds=_PAIR_SECONDS,
            passes=_QUICK_PASSES if options.quick else _PASSES,
            directory=directory,
            environment=environment,
        )
        try:
            results, failures = _measure_all(pairs, plan)
        except KeyboardInterrupt:
            _say("\nvlcs demo: interrupted")
            return 130
    if results:
        print(f"\n{table(results)}\n\n{textwrap.fill(meaning(results), 100)}")
    for one in results:
        failures += [f"{one.pair.title}: {text}" for text in one.mismatches[:3]]
    for failure in failures:
        _say(f"\nFAILED: {failure}")
    if options.json:
        options.json.write_text(json.dumps(_record(here, plan, results, failures), indent=1) + "\n")
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlcs demo",
        description="Runs pairs of real workloads at the same time: in one process with untouched defaults, "
        "in one process with the best thread counts and pins that a search finds, and in two VLCs.",
        epilog="pairs: " + "; ".join(f"{pair.key} ({pair.title})" for pair in PAIRS),
    )
    parser.add_argument(
        "--pairs",
        type=_pairs,
        default=PAIRS,
        metavar="KEY,...",
        help="run these only (default: all, see below)",
    )
    parser.add_argument("--runs", type=_positive, metavar="N", help=f"rounds to measure (default: {_RUNS})")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_RUNS} rounds and a shorter search: a rough view"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every time and number to this file too"
    )
    return parser


def _pairs(text: str) -> tuple[Pair, ...]:
    known = {pair.key: pair for pair in PAIRS}
    keys = [key.strip() for key in text.split(",") if key.strip()]
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise argparse.ArgumentTypeError(f"there is no pair {key!r}: {hint}There are {', '.join(known)}.")
    if not keys:
        raise argparse.ArgumentTypeError(f"names no pair; there are {', '.join(known)}.")
    return tuple(known[key] for key in dict.fromkeys(keys))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds: give 1 or more")
    return int(text)


def _installed(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs whose packages are there; says in one line how to get what the others lack."""
    for pair in pairs:
        if pair.missing:
            _say(f"Left out: {pair.title}. To have it: {install_command(pair.missing)}")
    return [pair for pair in pairs if not pair.missing]


def _measure_all(pairs: Sequence[Pair], plan: Plan) -> tuple[list[Measured], list[str]]:
    results, failures = [], []
    with Progress(len(pairs)) as progress:
        for pair in pairs:
            progress.pair(pair.title)
            try:
                results.append(measure(pair, plan, progress.step))
                progress.say(in_short(results[-1]))
            except WorkerError as error:
                failures.append(f"{pair.title}: {error}")
                progress.say(f"{pair.title}: failed")
    return results, failures


def _record(
    here: Machine, plan: Plan, results: Sequence[Measured], failures: Sequence[str]
) -> dict[str, object]:
    """The JSON file: all that was measured, and under which conditions."""
    return {
        "machine": asdict(here),
        "halves": plan.halves,
        "pairs": {
            one.pair.key: {
                "title": one.pair.title,
                "setting": {"text": str(one.found.best), **asdict(one.found.best)},
                "search": {str(setting): seconds for setting, seconds in one.found.seconds.items()},
                "seconds": one.seconds,
                "ratios": {
                    f"{way}/{to}": asdict(one.ratio(way, to))
                    for way in one.seconds
                    for to in one.seconds
                    if way != to
                },
                "values": one.values,
            }
            for one in results
        },
        "failures": list(failures),
    }


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
