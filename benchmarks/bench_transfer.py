"""What it costs to send a value to a worker and back: to a context, a thread, a process.

    python benchmarks/bench_transfer.py [--rounds N] [--json FILE]       # needs vlcs[bench]

Each way calls a function that gives its argument back (`typing.cast`), from a thread that is inside of the
context, or by a pool of one worker, and waits. The ways take turns, as rounds.py says. Contexts and threads
share the memory of arrays, frames and bytearrays: that is asserted here. Processes get a copy.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import peers
import rounds
from bench_call import context

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from rounds import Call, Way


def address(value: Any) -> Any:
    if isinstance(value, bytearray):
        return np.frombuffer(value, "u1").__array_interface__["data"]
    if isinstance(value, np.ndarray):
        return value.__array_interface__["data"]
    return [column.to_numpy().__array_interface__["data"] for _, column in value.items()]  # a frame's


def frame() -> Any:
    import pandas as pd

    return pd.DataFrame({name: np.arange(1_000_000) * 0.5 for name in "abcd"})


VALUES: dict[str, tuple[Callable[[], Any], bool]] = {
    "320 MB of float64": (lambda: np.zeros(40_000_000), True),
    "8 kB of float64": (lambda: np.zeros(1000), True),
    "bytearray of 64 MB": (lambda: bytearray(64_000_000), True),
    "DataFrame of 1e6 rows, 4 columns of numbers": (frame, True),
    "list of 1000 floats": (lambda: [float(number) for number in range(1000)], False),
    "text of 1 kB": (lambda: "x" * 1000, False),
    "dict of 100 records": (
        lambda: {f"id {n}": {"x": n * 0.5, "tags": ["a", "b"]} for n in range(100)},
        False,
    ),
}
"""How each is made, and whether its memory is shared."""
if not importlib.util.find_spec("pandas"):
    peers.skip("DataFrame: pandas is not installed")
    del VALUES["DataFrame of 1e6 rows, 4 columns of numbers"]


def to_context(make: Callable[[], Any], *, shared: bool) -> Way:
    def way(stack: ExitStack) -> Call:
        value = make()
        vlc = context(stack)
        stack.enter_context(vlc)
        back = vlc.run(cast, None, value)
        assert address(back) == address(value) if shared else back == value
        return lambda: vlc.run(cast, None, value)

    return way


def to_pool(name: str, make: Callable[[], Any]) -> Way:
    def way(stack: ExitStack) -> Call:
        return peers.pools(cast, None, make())[name](stack)

    return way


if __name__ == "__main__":
    rounds.main(
        __doc__,
        {
            thing: {
                "vlc.run, inside": to_context(make, shared=shared),
                **{name: to_pool(name, make) for name in peers.pools(cast)},
            }
            for thing, (make, shared) in VALUES.items()
        },
        values=1,  # processes copy 320 MB twice
    )
