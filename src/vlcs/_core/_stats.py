"""Figures of a context and of the process, in the units that people read."""

import logging
from dataclasses import dataclass
from functools import cache

from vlcs._core import _native

_NANOSECONDS = 1e9
_LOG = logging.getLogger("vlcs")


@dataclass(frozen=True)
class Stats:
    """Figures of one context at one moment. Times in seconds, memory in bytes."""

    threads: int
    """Threads that belong to the context and live now; its libraries' pools included."""
    visitors: int
    """Calls of other threads that are inside now."""
    jobs: int
    """Submitted calls that have not begun."""
    leases: int
    """Its arrays and other buffers that are held outside; after `close()` its memory goes with the last."""
    kept: int
    """Its objects that others refer to by a RemoteObject."""
    cpu_time: float
    """Used by the context's living threads."""
    voluntary_switches: int
    """Times that those threads gave up their CPU to wait."""
    involuntary_switches: int
    """Times that the kernel took it from them; many of these mean that CPUs are oversubscribed."""
    libraries: int
    """Private libraries loaded."""
    heap_bytes: int
    """Mapped for the context's malloc."""
    heap_used: int
    """Of these, in blocks that nobody has freed."""
    memory_bytes: int
    """What counts for `memory_limit`: the heap, and what its libraries have mapped that is no file."""
    memory_peak: int
    """The most that this ever was."""
    memory_limit: int | None
    """None: no limit."""
    node_bytes: dict[int, int] | None
    """Touched memory of its heap and mappings by NUMA node; None unless it was asked for."""
    mapped_bytes: int
    """Mapped by its libraries themselves."""
    library_bytes: int
    """Address space of its libraries; their text is shared with the host."""
    resident: bool
    """Whether its code runs on threads of its own only, with slots of its own (docs/residence.md)."""
    static_tls_bytes: int
    """Initial-exec slots taken: from its own, or from the process's pool."""
    static_tls_left: int
    """Bytes of slots that it can still take there."""
    keys: int
    """Thread-specific data keys in use."""
    lookups: int
    """Symbols looked up while loading."""
    cached_lookups: int
    """Symbols that other contexts had looked up before."""


@dataclass(frozen=True)
class Limits:
    """What contexts share and can run out of, for the whole process."""

    contexts: int
    """Open now, those of C code included."""
    static_tls_total: int
    """Bytes of the pool of initial-exec slots; large under `vlcs run`, and fixed when the process starts."""
    static_tls_used: int
    resident: int
    """How many of the open contexts are resident, with slots of their own (docs/residence.md)."""
    next_is_resident: bool
    """Whether the next one will be, as the pool has too little left."""
    resident_tls_total: int
    """Bytes of slots that each resident context has."""
    mappings: int
    """Kernel mappings of the process now: about 110 per context with NumPy, 300 with PyTorch."""
    mappings_max: int
    """The kernel's limit, vm.max_map_count, or what VLCS_MAX_MAPPINGS lowers it to."""
    host_malloc: str | None
    """File whose malloc has replaced libc's (a preload, AddressSanitizer), so that contexts use it too, and
    what their libraries leak stays in the process; None: each context has a heap, which goes with it."""


def measure(
    figures: dict[str, int],
    *,
    jobs: int,
    leases: int,
    kept: int,
    node_bytes: dict[int, int] | None = None,
) -> Stats:
    """Makes Stats from what the native side counts."""
    return Stats(
        threads=figures["threads"],
        visitors=figures["visitors"],
        jobs=jobs,
        leases=leases,
        kept=kept,
        cpu_time=figures["cpu_time"] / _NANOSECONDS,
        voluntary_switches=figures["voluntary_switches"],
        involuntary_switches=figures["involuntary_switches"],
        libraries=figures["libraries"],
        heap_bytes=figures["heap_bytes"],
        heap_used=figures["heap_used"],
        memory_bytes=figures["memory_bytes"],
        memory_peak=figures["memory_peak"],
        memory_limit=figures["memory_limit"] or None,
        node_bytes=node_bytes,
        mapped_bytes=figures["mapped_bytes"],
        library_bytes=figures["library_bytes"],
        resident=bool(figures["resident"]),
        static_tls_bytes=figures["static_tls_bytes"],
        static_tls_left=figures["static_tls_left"],
        keys=figures["keys"],
        lookups=figures["lookups"],
        cached_lookups=figures["cached"],
    )


def limits() -> Limits:
    """What the process's contexts share and can run out of, as it stands now."""
    figures = _native.limits()
    return Limits(
        contexts=figures["contexts"],
        static_tls_total=figures["static_tls_total"],
        static_tls_used=figures["static_tls_used"],
        resident=figures["resident"],
        next_is_resident=bool(figures["next_is_resident"]),
        resident_tls_total=figures["resident_tls_total"],
        mappings=figures["mappings"],
        mappings_max=figures["mappings_max"],
        host_malloc=figures["host_malloc"],
    )


@cache  # once a process: it is true from its start to its end
def report_what_stays() -> None:
    """After a context was closed: says that its libraries' leaks stay, where they do."""
    if file := limits().host_malloc:
        _LOG.warning(
            "memory that libraries of closed contexts have leaked stays in this process: its malloc is that "
            "of %s, which contexts use too. Without it, each context's memory is given back.",
            file,
        )
