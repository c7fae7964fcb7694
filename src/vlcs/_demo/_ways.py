"""The ways to run a pair in one process: two threads that share its libraries, or two contexts.

Runs in a worker process of its own (`_worker.py`).
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType
from typing import Protocol, Self

import vlcs
from vlcs._demo._pairs import Pair, Side
from vlcs._demo._setting import UNTOUCHED, Setting, SideSetting

Values = list[list[float]]
"""The numbers that each side computed."""


class Way(Protocol):
    """Prepares a pair on entry, then runs it any number of times."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def run(self, setting: Setting) -> tuple[float, Values]:
        """Runs both sides once: seconds from the first start to the last end, and what they computed."""
        ...


class Threads:
    """Two threads of this process, each with one side of the pair."""

    def __init__(self, pair: Pair, directory: str) -> None:
        self._pair = pair
        self._directory = directory
        self._setting = UNTOUCHED
        self._threads: list[ThreadPoolExecutor] = []

    def __enter__(self) -> Self:
        self._start()
        for thread, side in zip(self._threads, self._pair.sides, strict=True):
            thread.submit(side.prepare, self._directory).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def run(self, setting: Setting) -> tuple[float, Values]:
        """See `Way`. Another setting than the last run's is applied first, outside of the timing."""
        if setting != self._setting:
            self._apply(setting)
        start = perf_counter()
        running: list[Future[list[float]]] = []
        for thread, side in zip(self._threads, self._pair.sides, strict=True):
            running.append(thread.submit(side.run))
            if not setting.together:
                running[-1].result()
        values = [each.result() for each in running]
        return perf_counter() - start, values

    def _apply(self, setting: Setting) -> None:
        # Threads of an OpenMP pool keep the CPUs that they were started with, and libgomp makes a pool for
        # each thread that uses it. So a setting gets new threads, and pools and pins end with the old.
        self._stop()
        self._start()
        for thread, side, wanted in zip(self._threads, self._pair.sides, setting.sides, strict=True):
            thread.submit(_tune, side, wanted).result()
        self._setting = setting

    def _start(self) -> None:
        self._threads = [ThreadPoolExecutor(1, f"side-{number}") for number in (1, 2)]

    def _stop(self) -> None:
        for thread in self._threads:
            thread.shutdown()


class Contexts:
    """Two contexts of this process, each with one side of the pair and half of the CPUs. Nothing is tuned."""

    def __init__(self, pair: Pair, directory: str, halves: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        self._pair = pair
        self._directory = directory
        self._halves = halves
        self._contexts: list[vlcs.VLC] = []

    def __enter__(self) -> Self:
        try:
            for number, half in enumerate(self._halves, 1):
                self._contexts.append(vlcs.VLC(f"side-{number}", cpus=half))
            for context, side in zip(self._contexts, self._pair.sides, strict=True):
                context.submit(side.prepare, self._directory).result()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for context in reversed(self._contexts):
            context.close()

    def run(self, setting: Setting) -> tuple[float, Values]:
        """See `Way`."""
        del setting  # contexts need none
        start = perf_counter()
        work = zip(self._contexts, self._pair.sides, strict=True)
        running = [context.submit(side.run) for context, side in work]
        values = [each.result() for each in running]
        return perf_counter() - start, values


def _tune(side: Side, setting: SideSetting) -> None:
    """Applies a setting to the thread that calls, before it runs anything parallel."""
    if setting.cpus is not None:
        os.sched_setaffinity(0, setting.cpus)
    if setting.threads is not None and side.limit is not None:
        side.limit(setting.threads)
