"""A stand-in for the native side, so that what Python decides can be tested without loading anything."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest

from vlcs._core import _errors, _forgotten, _instance, _plan, _python
from vlcs._core._machine import Machine
from vlcs._core._registry import REGISTRY
from vlcs._core._topology import CPU, Node, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class FakeContext:
    """One thread per context, and a log of what was asked."""

    log: list[str]
    refuse: str | None = None
    counter = itertools.count(1)

    def __init__(self, *, name: str | None, cpus: Any, threads: int, residence: int, **others: Any) -> None:
        self.options = {"cpus": cpus, "threads": threads, "residence": residence, **others}
        self.resident = residence == 2
        self.name = name or f"vlc-{next(self.counter)}"
        self.slice = [0, 1] if cpus is None else list(cpus)
        self.depth = 0
        self.abandoned = False
        self.jobs: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()
        self.log.append(f"create {self.name}")

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()

    def load(self, file: str, flags: int) -> int:
        self.log.append(f"load {file} {flags}")
        if "missing" in file:
            raise _errors.from_status(3, f"cannot load {file}: no such file", file)
        return 77

    def symbol(self, library: int, name: str) -> int:
        if name == "missing":
            raise _errors.from_status(3, f"cannot find {name}", name)
        return 4096 + library

    def wrap(self, address: int) -> int:
        return address

    def enter(self) -> None:
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1

    def submit(self, function: Callable[[], object], _thread: int = -1) -> None:
        self.jobs.put(function)

    def resize(self, cpus: Sequence[int]) -> None:
        if self.refuse == "resize":
            raise _errors.from_status(5, "cannot resize", "", 1)
        self.slice = list(cpus)

    def cpus(self) -> list[int]:
        return self.slice

    def memory(self) -> tuple[int, list[int]]:
        memory, nodes = self.options["memory"], self.options["nodes"]
        return memory, list(nodes or ()) or [0] * (memory in {1, 2, 3})

    def set_memory(self, memory: int, nodes: Sequence[int] | None) -> None:
        self.options |= {"memory": memory, "nodes": nodes}

    def migrate_memory(self) -> tuple[int, int]:
        return 8192, 4096

    def memory_nodes(self) -> dict[int, int]:
        return {0: 4096, 2: 8192}

    def set_memory_limit(self, limit: int) -> None:
        self.options["memory_limit"] = limit

    def threads(self) -> list[int]:
        return [self.thread.native_id or 0]

    def libraries(self) -> list[str]:
        return ["/lib/libpython.so"]

    def pools(self) -> list[tuple[str, str, int, int]]:
        return [("OpenBLAS", "/lib/libopenblas.so", 1, len(self.slice)), ("liba.so", "/lib/liba.so", 6, 3)]

    def stats(self) -> dict[str, int]:
        names = "threads visitors libraries voluntary_switches involuntary_switches heap_bytes mapped_bytes"
        more = "library_bytes resident static_tls_bytes static_tls_left lookups cached keys heap_used"
        most = "memory_bytes memory_peak memory_limit"
        return {"cpu_time": 1_500_000_000, **dict.fromkeys(f"{names} {more} {most}".split(), 3)}

    def after_fork(self) -> bool:
        return False

    def destroy(self, _timeout_ms: int = -1, abandon: bool = False) -> None:
        self.abandoned = abandon
        if self.refuse == "destroy":
            type(self).refuse = None
            raise _errors.from_status(6, f"cannot close {self.name}: a thread of libx.so computes")
        self.jobs.put(None)
        self.thread.join()
        self.log.append(f"destroy {self.name}")


class FakeInterpreter:
    """Runs nothing by itself; its bridge calls functions right here."""

    refuse: str | None = None

    def __init__(self, context: FakeContext, **options: Any) -> None:
        if self.refuse == "start":
            raise _errors.from_status(4, "cannot start: no mappings left")
        self.context, self.options = context, options
        self.interrupted = 0
        context.log.append(f"start {context.name}")

    leases = kept = inside = 0

    def shut(self) -> None:
        """Nobody comes from other contexts."""

    def is_inside(self) -> bool:
        return False

    def interrupt(self) -> None:
        self.interrupted += 1


class FakeBridge:
    """As a guest that shares everything with the host."""

    def __init__(self, interpreter: FakeInterpreter, _name: str, *, inherits_path: bool) -> None:
        self.interpreter = interpreter
        assert inherits_path

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any, *, keep: bool = False) -> Any:
        assert not keep
        return function(*args, **kwargs)

    def connect(self, _caller: Any) -> None:
        """Everything goes the ordinary way."""


class Native:
    """What a test can see and set."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.context = type("Context", (FakeContext,), {"log": self.log, "counter": itertools.count(1)})
        self.interpreter = type("Interpreter", (FakeInterpreter,), {})

    @property
    def threads(self) -> int:
        return sum(thread.name.startswith("Thread-") for thread in threading.enumerate())


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    """Contexts made of Python only, on a machine with CPUs 0 and 1."""
    fake = Native()
    monkeypatch.setattr(_instance._native, "Context", fake.context)
    monkeypatch.setattr(_instance._native, "Interpreter", fake.interpreter)
    monkeypatch.setattr(_instance, "Bridge", FakeBridge)
    monkeypatch.setattr(_instance, "_guest_source", lambda _: "def serve(): ...")
    monkeypatch.setattr(_instance._exit, "install", lambda: None)
    monkeypatch.setattr(
        _plan._python,
        "find",
        lambda _: _python.Python("/usr/bin/python", (3, 11, 0), "libpython.so", ("/lib",)),
    )
    both = frozenset({0, 1})
    topology = Topology({n: CPU(n, 0, frozenset({n})) for n in both}, nodes={0: Node(0, both)})
    monkeypatch.setattr(REGISTRY, "machine", lambda: Machine(topology, both, bound=both))
    monkeypatch.setattr(_forgotten, "close_later", lambda instance: None)  # noqa: ARG005 - closed below
    before = REGISTRY.members()
    yield fake
    for member in reversed(REGISTRY.members()):
        if member not in before:
            member.close(5)
