"""Contexts made, used and ended over and over: what a closed context leaves behind.

    python benchmarks/bench_cycles.py [LIBRARY ...] [--cycles N] [--json FILE]

polars     a group-by, on the threads of rayon, which never end by themselves
torch      a training step
numba      a parallel function, compiled by LLVM
sklearn    HistGradientBoosting, and LightGBM beside it
go         a library of Go (needs `go`): its runtime starts threads and catches signals as it is loaded
openmp     libgomp, used by four threads of the host, which live on while the context is closed
numpy      a product of matrices, to compare with

Each has a process of its own. A context must give everything back: resident memory, mappings and threads
after the 10th cycle and after the last, and the time that close() took; its longest CPU time too, since the
machine may be busy with more. Descriptors that libraries left open stay: they are the process's
(docs/limits.md).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vlcs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "native" / "fixtures"
CYCLES = 200


def polars_step() -> int:
    """Runs in the context."""
    import polars as pl

    frame = pl.DataFrame({"key": [n % 7 for n in range(100_000)], "value": range(100_000)})
    return int(frame.lazy().group_by("key").agg(pl.col("value").sum()).collect()["value"].sum())


def torch_step() -> int:
    """Runs in the context."""
    import torch

    layer = torch.nn.Linear(256, 256)
    layer(torch.ones(512, 256)).sum().backward()
    return int(layer.weight.grad[0, 0])


def numba_step() -> int:
    """Runs in the context."""
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def total(values: Any) -> int:
        found = 0
        for i in numba.prange(values.size):
            found += values[i]
        return found

    return int(total(np.arange(100_000)))


def sklearn_step() -> int:
    """Runs in the context."""
    import lightgbm
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(500, 8))
    labels = rows[:, 0] > 0
    models = [
        HistGradientBoostingClassifier(max_iter=5),
        lightgbm.LGBMClassifier(n_estimators=5, verbose=-1),
    ]
    return sum(int(model.fit(rows, labels).predict(rows).shape[0]) for model in models)


def numpy_step() -> int:
    """Runs in the context."""
    import numpy as np

    return int((np.ones((300, 300)) @ np.ones((300, 300)))[0, 0])


STEPS: dict[str, tuple[Callable[[], int], int]] = {
    "polars": (polars_step, 4_999_950_000),
    "torch": (torch_step, 512),
    "numba": (numba_step, 4_999_950_000),
    "sklearn": (sklearn_step, 1000),
    "numpy": (numpy_step, 300),
}
"""What a cycle computes, and the result that it must have."""


def in_python(library: str) -> Iterator[vlcs.VLC]:
    """A context per cycle, with an interpreter, after its work."""
    step, expected = STEPS[library]
    while True:
        context = vlcs.VLC(library)
        assert context.submit(step).result() == expected  # on a thread of the context
        assert context.run(step) == expected  # and on one of the host
        yield context


def function(library: vlcs.Library, name: str) -> Any:
    """A function from long to long."""
    found = library[name]
    found.argtypes, found.restype = [ctypes.c_long], ctypes.c_long
    return found


def in_go(folder: str) -> Iterator[vlcs.VLC]:
    """A context per cycle, in which Go's threads wait for ever."""
    path, source = f"{folder}/libworkers.so", FIXTURES / "go" / "workers.go"
    go = os.environ.get("GO", "go")
    subprocess.run([go, "build", "-buildmode=c-shared", "-o", path, str(source)], check=True)
    empty, _ = os.pipe()
    while True:
        context = vlcs.VLC("go", interpreter=False)
        library = context.load_library(path)
        assert function(library, "go_sum")(100_000) == 5_000_050_000
        assert function(library, "go_park")(empty) == 3
        assert function(library, "go_recover")(0) == 1
        yield context


def in_openmp(folder: str) -> Iterator[vlcs.VLC]:
    """A context per cycle, in which threads of the host have entered parallel regions; they live on."""
    path = f"{folder}/libopenmp.so"
    compiler = os.environ.get("CC", "gcc")
    source = FIXTURES / "openmp.c"
    subprocess.run([compiler, "-O2", "-fopenmp", "-shared", "-fPIC", str(source), "-o", path], check=True)
    masters = [Master() for _ in range(4)]
    while True:
        context = vlcs.VLC("openmp", interpreter=False)
        total = function(context.load_library(path), "openmp_sum")
        for master in masters:
            master.begin(total, 100_000)
        assert [master.result() for master in masters] == [5_000_050_000] * len(masters)
        assert total(100_000) == 5_000_050_000
        yield context


class Master:
    """A thread of the host that calls functions for as long as the process lives."""

    def __init__(self) -> None:
        self._work: tuple[Any, ...] = ()
        self._result = 0
        self._asked, self._done = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def begin(self, *work: Any) -> None:
        """Has it call a function."""
        self._work = work
        self._asked.release()

    def result(self) -> int:
        """What the function gave."""
        self._done.acquire()
        return self._result

    def _serve(self) -> None:
        while True:
            self._asked.acquire()
            called, *arguments = self._work
            self._result = called(*arguments)
            del called
            self._work = ()
            self._done.release()


LIBRARIES = (*STEPS, "go", "openmp")


def footprint() -> dict[str, float]:
    """What the process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "megabytes": round(pages * os.sysconf("SC_PAGESIZE") / 2**20, 1),
        "mappings": Path("/proc/self/maps").read_text().count("\n"),
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


def measure(library: str, cycles: int, early: int) -> dict[str, Any]:
    """Runs the cycles. A context that cannot be closed ends this with its BusyError."""
    seconds, computed = [], []
    with tempfile.TemporaryDirectory() as folder:
        makers: dict[str, Callable[[str], Iterator[vlcs.VLC]]] = {"go": in_go, "openmp": in_openmp}
        maker = makers[library](folder) if library in makers else in_python(library)
        for cycle in range(1, cycles + 1):
            context = next(maker)
            start, used = time.perf_counter(), time.process_time()
            context.close()
            seconds.append(time.perf_counter() - start)
            computed.append(time.process_time() - used)
            assert not vlcs.contexts()
            if cycle == early:
                first = footprint()
        return {
            "cycles": cycles,
            f"after {early}": first,
            "after the last": footprint(),
            "close, median s": round(statistics.median(seconds), 3),
            "close, longest s": round(max(seconds), 3),
            "close, longest CPU s": round(max(computed), 3),
        }


def show(library: str, figures: dict[str, Any], early: int) -> None:
    """Prints a line of the table."""
    first, last = figures[f"after {early}"], figures["after the last"]
    pairs = "".join(f"{first[name]:>10} {last[name]:<8}" for name in first)
    times = (figures[f"close, {what}"] for what in ("median s", "longest s", "longest CPU s"))
    close = " ".join(f"{seconds:>8.3f}" for seconds in times)
    print(f"{library:8} {figures['cycles']:>5} {pairs} {close}", flush=True)


def main() -> int:
    """Runs what was asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=f"of {', '.join(LIBRARIES)}")
    parser.add_argument("--cycles", type=int, default=CYCLES, help=f"contexts after each other ({CYCLES})")
    parser.add_argument("--early", type=int, default=10, help="the cycle to compare the last with (10)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--inside", choices=LIBRARIES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(measure(asked.inside, asked.cycles, asked.early)))
        return 0
    if unknown := set(asked.libraries) - set(LIBRARIES):
        parser.error(f"no such library: {', '.join(sorted(unknown))}; there are {', '.join(LIBRARIES)}")
    if not 0 < asked.early <= asked.cycles:
        parser.error(f"--early {asked.early} is not within the {asked.cycles} cycles")
    heads = "".join(f"{name:>18} " for name in ("megabytes", "mappings", "threads", "descriptors"))
    print(f"after {asked.early} and after the last:")
    print(f"{'':8} {'cycles':>5}{heads} close: median, longest, CPU s")
    figures = {}
    for library in asked.libraries or LIBRARIES:
        command = [sys.executable, __file__, "--inside", library]
        command += ["--cycles", str(asked.cycles), "--early", str(asked.early)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{library}: failed with exit code {done.returncode}", file=sys.stderr)
            return 1
        figures[library] = json.loads(done.stdout.splitlines()[-1])
        show(library, figures[library], asked.early)
    if asked.json:
        Path(asked.json).write_text(
            json.dumps({"cpus": len(os.sched_getaffinity(0)), "libraries": figures}, indent=2) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
