"""What it costs to send a value to a worker and back: to a context, a thread, a process.

    python benchmarks/bench_transfer.py [--rounds N] [--json FILE]

Each way calls a function that gives its argument back (`typing.cast`), from a thread that is inside of the
context, or by a pool of one worker, and waits. The ways take turns, as in bench_call.py, which has the peers.
Contexts and threads share the array's memory (asserted here by its address); processes get a copy.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from bench_call import measure, pools, show

import vlcs

if TYPE_CHECKING:
    from collections.abc import Callable


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def ways_of(value: Any, vlc: vlcs.VLC, workers: dict[str, Any]) -> dict[str, Callable[[], object]]:
    ways: dict[str, Callable[[], object]] = {"vlc.run, inside": lambda: vlc.run(cast, None, value)}
    for name, pool in workers.items():
        ways[name] = lambda pool=pool: pool.submit(cast, None, value).result()
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    values = {
        "320 MB of float64": np.zeros(40_000_000),
        "8 kB of float64": np.zeros(1000),
        "list of 1000 floats": [float(number) for number in range(1000)],
        "text of 1 kB": "x" * 1000,
        "dict of 100 records": {f"id {n}": {"x": n * 0.5, "tags": ["a", "b"]} for n in range(100)},
    }
    results = {}
    with ExitStack() as stack:
        workers = pools(stack)
        vlc = vlcs.VLC("bench")
        stack.callback(vlc.close)
        with vlc:
            for title, value in values.items():
                back = vlc.run(cast, None, value)
                assert address(back) == address(value) if isinstance(value, np.ndarray) else back == value
                del back
                few = 3 if title.startswith("320") else options.rounds  # processes copy it twice
                results[title] = measure(ways_of(value, vlc, workers), few)
                show(title, results[title])
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, **results}, indent=1))


if __name__ == "__main__":
    main()
