"""Whether many calls leave anything behind: 10^6 mixed calls from 8 threads into 4 contexts.

    python benchmarks/bench_stress.py [--calls N] [--tensor-calls N] [--json FILE]

Values of all kinds go there and back: plain ones, arrays that either side makes, bytearrays, objects by
pickle, exceptions; then tensors of PyTorch, where it is installed. A tenth of the calls warms up, and after
each further fifth memory is read. Told are its growth, and how many owners of lent memory were made and
released, in the host and in the contexts. Exit code 1: a line says FAILED.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import operator
import os
import sys
import threading
import time
import typing
import weakref
from pathlib import Path
from typing import Any

import numpy as np

import vlcs

THREADS, CONTEXTS, ROUNDS = 8, 4, 5
LARGEST_GROWTH = 2 << 20
PATIENCE_S = 20


class Counter:
    """Owners of memory that were made, and that are gone."""

    def __init__(self) -> None:
        self.made = 0
        self._gone: list[None] = []  # its append needs no lock

    def watch(self, owner: Any) -> Any:
        weakref.finalize(owner, self._gone.append, None).atexit = False
        self.made += 1
        return owner

    @property
    def left(self) -> int:
        return self.made - len(self._gone)


def here() -> Any:
    """This module by its name, since functions of __main__ cross by value."""
    return importlib.import_module("bench_stress")


counter = Counter()
lock = threading.Lock()


def watched(owner: Any) -> Any:
    with lock:
        return counter.watch(owner)


class Box:
    def __init__(self, content: Any) -> None:
        self.content = content


# In contexts; of a module, so that they cross by name.


def make_array(size: int, value: float) -> Any:
    return watched(np.full(size, value))


def make_bytes(size: int) -> bytearray:
    return bytearray(size)


def make_tensor(size: int) -> Any:
    import torch

    return watched(torch.ones(size))


def double(tensor: Any) -> Any:
    return tensor.mul_(2)


def owners() -> tuple[int, int]:
    gc.collect()
    return counter.made, counter.left


# Each does one call, and says whether its result is right.


def numbers(vlc: vlcs.VLC, step: int) -> bool:
    return vlc.run(operator.add, step, 1) == step + 1


def containers(vlc: vlcs.VLC, step: int) -> bool:
    value = [step, "text", {"x": 1.5, "y": (None, b"b")}, [0.5] * 20]
    return vlc.run(typing.cast, None, value) == value


def lent_array(vlc: vlcs.VLC, step: int) -> bool:
    array = here().watched(np.full(100, step))
    return vlc.run(typing.cast, None, array) is array


def lent_view(vlc: vlcs.VLC, _step: int) -> bool:
    array = here().watched(np.arange(100.0))
    back = vlc.run(operator.getitem, array[::-2], slice(3, 5))
    return back.tolist() == [93.0, 91.0]


def borrowed_array(vlc: vlcs.VLC, step: int) -> bool:
    return vlc.run(here().make_array, 100 if step % 100 else 200_000, step)[99] == step


def lent_bytes(vlc: vlcs.VLC, _step: int) -> bool:
    value = bytearray(b"abc")
    return vlc.run(typing.cast, None, value) is value and len(vlc.run(here().make_bytes, 50)) == 50


def pickled(vlc: vlcs.VLC, step: int) -> bool:
    back = vlc.run(typing.cast, None, here().Box([np.arange(3), bytearray(b"x"), step]))
    return back.content[2] == step and back.content[0][2] == 2


def raised(vlc: vlcs.VLC, step: int) -> bool:
    try:
        vlc.run(operator.truediv, step, 0)
    except ZeroDivisionError:
        return True
    return False


def lent_tensor(vlc: vlcs.VLC, _step: int) -> bool:
    import torch

    tensor = here().watched(torch.ones(50))
    return float(vlc.run(here().double, tensor)[0]) == 2 == float(tensor[0])


def borrowed_tensor(vlc: vlcs.VLC, _step: int) -> bool:
    return float(vlc.run(here().make_tensor, 50)[49]) == 1


MIXED = (numbers,) * 6 + (containers, lent_array, lent_view, borrowed_array, lent_bytes, raised)
RARE = (pickled,)  # one of 20: a pickle takes 50 times a plain call
TENSORS = (lent_tensor, borrowed_tensor)


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def work(contexts: list[vlcs.VLC], kinds: Any, number: int, calls: int, wrong: list[str]) -> None:
    for step in range(calls):
        kind = RARE[0] if kinds is MIXED and step % 20 == 19 else kinds[step % len(kinds)]
        try:
            if not kind(contexts[(number + step) % len(contexts)], step):
                wrong.append(f"{kind.__name__}, step {step}")
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(f"{kind.__name__}, step {step}: {error!r}")


def many(contexts: list[vlcs.VLC], kinds: Any, calls: int, wrong: list[str]) -> None:
    threads = [
        threading.Thread(target=work, args=(contexts, kinds, number, calls // THREADS, wrong))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def settle(contexts: list[vlcs.VLC]) -> int:
    """How many owners are left, when those that nobody holds have had time to go."""
    until = time.monotonic() + PATIENCE_S
    while True:
        gc.collect()
        left = owners_left = sum(vlc.run(here().owners)[1] for vlc in contexts) + here().owners()[1]
        left += sum(vlc.stats().leases for vlc in contexts)
        if not left or time.monotonic() > until:
            return max(left, owners_left)
        time.sleep(0.01)


def stress(name: str, contexts: list[vlcs.VLC], kinds: Any, calls: int) -> dict[str, Any]:
    wrong: list[str] = []
    many(contexts, kinds, calls // 10, wrong)
    settle(contexts)
    readings = [rss()]
    start = time.perf_counter()
    for _ in range(ROUNDS):
        many(contexts, kinds, calls * 9 // 10 // ROUNDS, wrong)
        left = settle(contexts)
        readings.append(rss())
    seconds = time.perf_counter() - start
    growth = max(readings) - readings[0]
    made = here().owners()[0] + sum(vlc.run(here().owners)[0] for vlc in contexts)
    print(f"{name}: {calls} calls, {seconds / (calls * 0.9) * 1e6:.1f} us each")
    say(f"  results: {len(wrong)} wrong {wrong[:3] or ''}", not wrong)
    readable = ", ".join(f"{reading / 1e6:.1f}" for reading in readings)
    say(f"  memory: {growth / 1e6:+.2f} MB after warming up ({readable} MB)", growth <= LARGEST_GROWTH)
    say(f"  owners of lent memory: {made} made, {left} left", made > 0 and not left)
    return {"calls": calls, "seconds": seconds, "rss": readings, "wrong": wrong, "made": made, "left": left}


failures: list[str] = []


def say(line: str, good: bool) -> None:
    print(f"{line:90} {'ok' if good else 'FAILED'}", flush=True)
    if not good:
        failures.append(line)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--tensor-calls", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import bench_stress  # noqa: F401 - under its name, since functions of __main__ cross by value

    contexts = [vlcs.VLC(f"stress-{number}") for number in range(CONTEXTS)]
    results = {"mixed": stress("mixed", contexts, MIXED, options.calls)}
    if importlib.util.find_spec("torch") and options.tensor_calls:
        results["tensors"] = stress("tensors", contexts, TENSORS, options.tensor_calls)
    else:
        print("skipped: tensors: torch is not installed, or --tensor-calls=0")
    for vlc in contexts:
        vlc.close()
    say(f"  contexts left: {vlcs.limits().contexts}", vlcs.limits().contexts == 0)
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, **results}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
