"""Contexts of libraries whose threads never end, made and ended over and over: all comes back (R2)."""

from __future__ import annotations

import json
import shutil

import pytest

from support.child import run_child
from support.machine import ROOT

# Few cycles; benchmarks/bench_cycles.py makes 200 of each. A context that stays is 9 MB with NumPy, 70 with
# polars, 125 with PyTorch.
CYCLES = {
    "go": (5, 30),
    "openmp": (5, 30),
    "polars": (4, 12),
    "numba": (2, 5),
    "sklearn": (2, 5),
    "torch": (2, 4),
}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("library", CYCLES)
def test_nothing_stays(library: str) -> None:
    if library == "go" and shutil.which("go") is None:
        pytest.fail("there is no go: run `tools/setup test`")
    early, cycles = CYCLES[library]
    options = ["--inside", library, "--early", str(early), "--cycles", str(cycles)]
    done = run_child(ROOT / "benchmarks" / "bench_cycles.py", args=options, timeout=140)
    figures = json.loads(done.lines[-1])
    first, last = figures[f"after {early}"], figures["after the last"]
    assert last["threads"] <= first["threads"], figures
    assert last["megabytes"] < first["megabytes"] + 8, figures
    assert last["mappings"] <= first["mappings"] + 20, figures
    assert figures["close, median s"] < 1, figures
    assert figures["close, longest s"] < 3, figures  # other tests may run beside
