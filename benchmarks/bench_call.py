"""What a call costs: in a context, beside a plain call and the pools that people use instead.

    python benchmarks/bench_call.py [--rounds N] [--json FILE]       # needs vlcs[bench]

All ways call the same function of a module with one argument, and wait for its result; rounds.py says how
they take turns. Held equal: one worker in every pool, made and used before the first measurement. `inside` is
within `with vlc:`; `outside` enters and leaves the context in each call, with the affinity of the thread set
to the CPUs of the slice and back. Where the thread runs on a CPU of the slice already, nothing moves; the
last row of `one int` has its caller on another CPU, so that the kernel moves it there and back in each call.
"""

from __future__ import annotations

import operator
import os
import typing
from functools import partial
from typing import TYPE_CHECKING, Any

import peers
import rounds

import vlcs

if TYPE_CHECKING:
    from contextlib import ExitStack

    from rounds import Call, Way


def context(stack: ExitStack, **options: Any) -> vlcs.VLC:
    vlc = vlcs.VLC("bench", **options)
    stack.callback(vlc.close)
    return vlc


def outside(function: Any, *args: Any, caller: int | None = None, **options: Any) -> Way:
    def way(stack: ExitStack) -> Call:
        vlc = context(stack, **options)
        if caller is not None:
            os.sched_setaffinity(0, {caller})
        return partial(vlc.run, function, *args)

    return way


def inside(function: Any, *args: Any) -> Way:
    def way(stack: ExitStack) -> Call:
        vlc = context(stack)
        stack.enter_context(vlc)
        return partial(vlc.run, function, *args)

    return way


def submitted(function: Any, *args: Any) -> Way:
    def way(stack: ExitStack) -> Call:
        vlc = context(stack)
        return lambda: vlc.submit(function, *args).result()

    return way


def raising(stack: ExitStack) -> Call:
    vlc = context(stack)
    stack.enter_context(vlc)

    def call() -> None:
        try:
            vlc.run(operator.truediv, 1, 0)
        except ZeroDivisionError:
            return
        raise AssertionError

    return call


def pure(value: Any) -> Way:
    """A function of Python, unlike operator.index."""
    return inside(typing.cast, None, value)


FLOATS = [float(number) for number in range(1000)]
FIRST, *OTHERS = sorted(os.sched_getaffinity(0))
THINGS: dict[str, dict[str, Way]] = {
    "one int": {
        "plain call": lambda _: partial(operator.index, 1),
        "vlc.run, inside": inside(operator.index, 1),
        "vlc.run, inside, a function of Python": pure(1),
        "vlc.run, outside, slice of all CPUs": outside(operator.index, 1),
        "vlc.run, outside, on a CPU of the slice": outside(operator.index, 1, cpus=[FIRST]),
        **peers.interpreter(),
    },
    "one int, by a worker": {
        **peers.pools(operator.index, 1),
        "vlc.submit": submitted(operator.index, 1),
    },
    "more, inside": {
        "one int": inside(operator.index, 1),
        "list of 1000 floats there": inside(len, FLOATS),
        "list of 1000 floats there and back": pure(FLOATS),
        "an exception there and back": raising,
    },
}
if OTHERS:
    THINGS["one int"]["vlc.run, outside, from another CPU"] = outside(
        operator.index, 1, caller=OTHERS[0], cpus=[FIRST]
    )


if __name__ == "__main__":
    rounds.main(__doc__, THINGS)
