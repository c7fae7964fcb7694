"""Figures of the field cases that the tests only check for being right.

    python benchmarks/bench_cases.py [CASE ...] [--runs N] [--json FILE]

static-work    U1: a C kernel with a static work array, twice: serial, and in two contexts at once
h5py           U3: two gzip-compressed files read: serial, by two threads, and in two contexts,
               whose start (interpreter, `import h5py`) is counted in, and without it
contexts-64    64 contexts with NumPy open at once: seconds to make all of them
create-100     100 NumPy interpreters made and ended: seconds for each, memory after the 10th and the last

Each case has a process of its own. What is compared alternates within one run, so that a machine that
slows down slows all of them; a ratio is the median of the ratios of each round, with its quartiles.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL = Path(__file__).resolve().parents[1] / "tests" / "native" / "fixtures" / "static_work.c"
RUNS = 15


def quartiles(values: list[float]) -> dict[str, float]:
    """Median and quartiles, rounded for people."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}


def alternate(ways: dict[str, Callable[[], Any]], runs: int) -> dict[str, Any]:
    """Times every way once a round, in turns; the first way is what the others are compared with."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    answers = {way: run() for way, run in ways.items()}  # warm, and their results must be equal
    assert len({str(answer) for answer in answers.values()}) == 1, answers
    for turn in range(runs):
        order = list(ways) if turn % 2 == 0 else list(reversed(ways))
        for way in order:
            start = time.perf_counter()
            ways[way]()
            seconds[way].append(time.perf_counter() - start)
    base, *others = ways
    return {
        "seconds": {way: quartiles(values) for way, values in seconds.items()},
        "times faster": {
            way: quartiles([slow / fast for slow, fast in zip(seconds[base], seconds[way], strict=True)])
            for way in others
        },
    }


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Runs each on a thread of the host, at once."""
    results: list[Any] = [None] * len(work)

    def call(place: int) -> None:
        results[place] = work[place]()

    threads = [threading.Thread(target=call, args=[place]) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def two_cpus() -> tuple[set[int], set[int]]:
    """A CPU for each of two contexts."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("two CPUs are needed to compare; this process may use one")
    return {cpus[0]}, {cpus[1]}


def static_work(runs: int) -> dict[str, Any]:
    """U1."""
    import vlcs

    steps = 20_000

    def typed(library: Any) -> Any:
        library.static_work.restype = ctypes.c_double
        library.static_work.argtypes = [ctypes.c_double, ctypes.c_long]
        return library.static_work

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/libstatic_work.so"
        compiler = os.environ.get("CC", "gcc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(KERNEL), "-o", path], check=True)
        serial = typed(ctypes.CDLL(path))
        private = [typed(vlcs.VLC(cpus=cpus, interpreter=False).load_library(path)) for cpus in two_cpus()]
        return alternate(
            {
                "serial": lambda: [serial(1.0, steps), serial(2.0, steps)],
                "two contexts": lambda: in_threads(
                    lambda: private[0](1.0, steps), lambda: private[1](2.0, steps)
                ),
            },
            runs,
        )


def read(path: str) -> float:
    """Reads a compressed file whole."""
    import h5py

    with h5py.File(path) as file:
        return float(file["x"][:].sum())


def h5py_files(runs: int) -> dict[str, Any]:
    """U3."""
    import h5py
    import numpy as np

    import vlcs

    cpus = two_cpus()
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{n}.h5" for n in range(2)]
        for seed, path in enumerate(paths):
            with h5py.File(path, "w") as file:
                data = np.random.default_rng(seed).normal(size=20_000_000).round(2)
                file.create_dataset("x", data=data, chunks=(100_000,), compression="gzip")
        warnings.simplefilter("ignore", vlcs.OverlapWarning)  # only one pair works at a time
        kept = [vlcs.VLC(cpus=cpus[n]) for n in range(2)]

        def started() -> list[float]:
            contexts = [vlcs.VLC(cpus=cpus[n]) for n in range(2)]
            futures = [contexts[n].submit(read, paths[n]) for n in range(2)]
            sums = [future.result() for future in futures]
            for context in contexts:
                context.close()
            return sums

        def running() -> list[float]:
            futures = [kept[n].submit(read, paths[n]) for n in range(2)]
            return [future.result() for future in futures]

        return alternate(
            {
                "serial": lambda: [read(path) for path in paths],
                "two threads": lambda: in_threads(lambda: read(paths[0]), lambda: read(paths[1])),
                "two contexts, with start": started,
                "two contexts": running,
            },
            runs,
        )


def norm(size: int) -> float:
    """A little work that loads NumPy and its OpenBLAS."""
    import numpy as np

    return float(np.linalg.norm(np.ones((size, size)) @ np.ones((size, size))))


def megabytes() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGESIZE") / 2**20, 1)


def contexts_64(runs: int) -> dict[str, Any]:
    """64 at once."""
    import vlcs

    del runs
    before = megabytes()
    start = time.perf_counter()
    contexts = [vlcs.VLC() for _ in range(64)]
    for context in contexts:
        assert context.run(norm, 10) == 100.0
    made = time.perf_counter() - start
    limits = vlcs.limits()
    figures = {
        "seconds": round(made, 2),
        "megabytes a context": round((megabytes() - before) / 64, 1),
        "mappings a context": round(limits.mappings / 64),
    }
    start = time.perf_counter()
    for context in contexts:
        context.close()
    return {**figures, "seconds to close": round(time.perf_counter() - start, 2)}


def create_100(runs: int) -> dict[str, Any]:
    """100 after each other."""
    import vlcs

    del runs
    seconds, memory = [], []
    for _ in range(100):
        start = time.perf_counter()
        context = vlcs.VLC()
        assert context.run(norm, 10) == 100.0
        context.close()
        seconds.append(time.perf_counter() - start)
        memory.append(megabytes())
    return {
        "seconds": quartiles(seconds),
        "megabytes after the 10th": memory[9],
        "megabytes after the last": memory[-1],
        "growth": round(memory[-1] - memory[9], 1),
    }


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "static-work": static_work,
    "h5py": h5py_files,
    "contexts-64": contexts_64,
    "create-100": create_100,
}


def show(figures: dict[str, Any], indent: str = "  ") -> None:
    """Prints figures, one a line."""
    for name, value in figures.items():
        if isinstance(value, dict) and "median" not in value:
            print(f"{indent}{name}")
            show(value, indent + "  ")
        elif isinstance(value, dict):
            print(f"{indent}{name:28} {value['median']:9.3f}   ({value['low']:.3f} to {value['high']:.3f})")
        else:
            print(f"{indent}{name:28} {value:9}")


def main() -> int:
    """Runs the cases that were asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"rounds of what is compared ({RUNS})")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--inside", choices=CASES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(CASES[asked.inside](asked.runs)))
        return 0
    if unknown := set(asked.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    figures = {}
    for case in asked.cases or CASES:
        command = [sys.executable, __file__, "--inside", case, "--runs", str(asked.runs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{case}: failed with exit code {done.returncode}", file=sys.stderr)
            return 1
        figures[case] = json.loads(done.stdout.splitlines()[-1])
        print(case)
        show(figures[case])
    if asked.json:
        Path(asked.json).write_text(
            json.dumps({"cpus": len(os.sched_getaffinity(0)), "cases": figures}, indent=2) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
