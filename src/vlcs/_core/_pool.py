"""Libraries of a context that compute with threads of their own, and how they follow a resize."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vlcs._core._resource import Resource, State

if TYPE_CHECKING:
    from vlcs._core._native import Context

# By vlc_pool_state.
_UNTOLD, _HAS_OWN, _CANNOT = 0, 4, 5
_STATES = {
    _UNTOLD: (True, "it sized its pool from the slice; a resize will tell it"),
    1: (True, "it uses so many threads from its next call on"),
    2: (True, "each thread has a number there, and takes the new one when it next enters the context"),
    3: (True, "it asks OpenMP for the number at each call"),
    _HAS_OWN: (
        False,
        "its number was set by a call or a variable of env=, or never came from the slice (BLIS): it stays",
    ),
    _CANNOT: (False, "it did not take the number, or cannot have more threads than it began with"),
    6: (False, "it made these threads and has no way to be told another number"),
}
_CURES = {
    _HAS_OWN: "Set it to the number of CPUs before the resize, or leave it to the slice.",
    _CANNOT: "Load it while the slice is as large as it will be, and make the slice smaller then.",
}


@dataclass(frozen=True)
class Pool:
    """A library of a context that computes with threads of its own."""

    library: str
    """"OpenBLAS", "OpenMP", "PyTorch" ..., or the soname of one that cannot be told."""
    path: str
    """Its file. A context may have several copies of a library, as NumPy and SciPy bring one each."""
    threads: int | None
    """How many it uses, for the thread that resized the context last; None: it was not resized since."""
    follows: bool
    """Whether it uses as many threads as the slice has CPUs (or cores, where it did so before)."""
    reason: str
    cure: str = ""


@dataclass(frozen=True)
class Resized:
    """What a resize came to."""

    cpus: tuple[int, ...]
    """The slice now, in ascending order. All threads of the context run there."""
    pools: tuple[Pool, ...]
    """The libraries with threads of their own, in order of loading."""

    @property
    def left_behind(self) -> tuple[Pool, ...]:
        """Of the pools those that keep the number that they had."""
        return tuple(pool for pool in self.pools if not pool.follows)


def pools(native: Context) -> tuple[Pool, ...]:
    """Those of the context, as they are after its last resize."""
    return tuple(
        Pool(library, path, threads or None, *_STATES[state], _CURES.get(state, ""))
        for library, path, state, threads in native.pools()
    )


def follow() -> None:
    """In code that stays inside of a context for long: takes part in a resize that came meanwhile.

    Libraries that have a number of threads for each thread (OpenMP, PyTorch, numba) get the new one for
    this thread. Without it they do at its next `run` or job. Call it between two steps, as in a loop that
    trains; not in a function that a library calls back, since that may rely on the number that it has read.
    It costs a quarter of a microsecond where nothing has changed, and does nothing outside of contexts.
    """
    host = sys.modules.get("_vlcs_host")
    if host is not None:
        host.follow()


def resource(found: tuple[Pool, ...]) -> Resource:
    """The line of the report."""
    behind = [pool for pool in found if not pool.follows]
    if behind:
        reason = "; ".join(f"{_words(pool)}: {pool.reason}" for pool in behind)
    elif found:
        reason = "these sized their pools from the slice, and resize() tells them"
    else:
        reason = "no library is loaded that sizes a pool of threads once; the others ask for the CPUs"
    return Resource(
        "libraries",
        State.ADVISORY,
        requested=None,
        granted=", ".join(map(_words, found)) or None,
        reason=reason,
        cure=" ".join(dict.fromkeys(pool.cure for pool in behind if pool.cure)),
    )


def _words(pool: Pool) -> str:
    return pool.library if pool.threads is None else f"{pool.library} {pool.threads}"
