"""A process that runs one pair in one way, whenever it is told to: the parent's handle of it.

Each way has a process of its own that lives as long as the pair is measured, and they take turns. In one
process the ways would disturb each other: libgomp counts the threads of all its pools, those of other ways
included, and spins less when there are more than CPUs; the thread counts of OpenBLAS and PyTorch belong to
the process. Seen with HistGradientBoosting beside LightGBM: defaults took 1.8 to 3.8 s in a process of their
own, and 0.84 s beside the idle pools of the tuned way. A process that waits for its turn sleeps in a read.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Self

from vlcs._demo._setting import UNTOUCHED, Setting

_PATIENCE = 300.0
"""Seconds to wait for a set-up or a run before the worker counts as hanging."""

_LAST_PATIENCE = 10.0
"""Seconds for a worker to end when it is no longer needed."""

_PAUSE = 0.05
"""Seconds before a run, so that threads which spin after the last one's end have gone to sleep."""


class WorkerError(Exception):
    """A worker process failed; the message says how, with its traceback or what it wrote last."""


@dataclass(frozen=True)
class Order:
    """What a worker is for. `halves` are the CPUs of two contexts; None: two threads."""

    pair: str
    directory: str
    halves: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Outcome:
    """One run: wall time in seconds, and the numbers that each side computed."""

    seconds: float
    values: list[list[float]]


class Worker:
    """The parent's handle of a worker process; use it as a context manager.

    Raises WorkerError where the process fails, dies or hangs, and ends it.
    """

    def __init__(self, order: Order, environment: Mapping[str, str]) -> None:
        self._order = order
        # Contexts of several large libraries need the large pool of static TLS; the others are plain Python.
        launcher = ["-m", "vlcs", "run"] if order.halves else []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__, as the process is
        self._connection, other = Pipe()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, *launcher, "-m", "vlcs._demo._serve", str(other.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[other.fileno()],
            )

    def __enter__(self) -> Self:
        try:
            self._exchange(self._order)
        except BaseException:
            with suppress(WorkerError):
                self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A worker that fails in its last moments has failed; but what failed first is what to tell.
        with suppress(WorkerError) if kind else nullcontext():
            self._end()

    def _end(self) -> None:
        self._connection.close()  # which ends the worker's loop
        with self._errors:
            try:
                code = self._process.wait(_LAST_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise WorkerError(
                    f"the worker did not end within {_LAST_PATIENCE:g} s after its work. {self._last_words()}"
                ) from None
            if code:
                raise WorkerError(
                    f"the worker ended with {_describe(code)} after its work. {self._last_words()}"
                )

    def run(self, setting: Setting = UNTOUCHED) -> Outcome:
        """Runs the pair once, after a short pause."""
        time.sleep(_PAUSE)
        outcome = self._exchange(setting)
        if not isinstance(outcome, Outcome):
            raise WorkerError(f"the worker answered {outcome!r}")
        return outcome

    def _exchange(self, message: object) -> object:
        try:
            self._connection.send(message)
            if not self._connection.poll(_PATIENCE):
                self._process.kill()
                raise WorkerError(f"the worker did not answer within {_PATIENCE:g} s. {self._last_words()}")
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            how = _describe(self._process.wait())
            raise WorkerError(f"the worker ended with {how}. {self._last_words()}") from None
        if isinstance(answer, str):
            raise WorkerError(answer)
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return f"It wrote:\n{text[-2000:]}" if text else "It wrote nothing."


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
