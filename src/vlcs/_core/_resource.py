"""A resource of a slice, and what holds it: each of them has a file of its own that says so."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """What a grant is worth."""

    ENFORCED = "enforced"
    """The kernel holds it, whatever the libraries do."""
    ADVISORY = "advisory"
    """Libraries see it and libc's calls keep to it; the reason says how it can be left."""
    UNAVAILABLE = "unavailable"
    """It cannot be had here; the reason says why."""


@dataclass(frozen=True)
class Resource:
    """One line of a slice's report."""

    name: str
    state: State
    requested: str | None
    """As the caller wrote it; None: nothing was asked for."""
    granted: str | None
    reason: str
    cure: str = ""
    """What to do for more; empty where nothing needs to be done."""

    def data(self) -> dict[str, Any]:
        """The line as plain data, without the name."""
        return {
            **{key: value for key, value in asdict(self).items() if key != "name"},
            "state": str(self.state),
        }


def reach(*, resident: bool) -> tuple[str, str]:
    """Whom a grant reaches that is made to threads, in words; and the cure, where it does not reach all."""
    if resident:
        return "all of the context's code, which runs on threads of its own", ""
    return (
        "the threads that the context owns, and what they start; one that calls in (run, with) keeps its own",
        "Call by submit() or run_async(), or make the context with resident=True.",
    )
