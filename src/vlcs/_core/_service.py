"""What became of the quality of service that was asked for: what holds it, and what is to be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcs._core import _scheduling
from vlcs._core._resource import Resource, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vlcs._core._quality import Quality


class Service:
    """A context's; made before it, and removed after it."""

    def __init__(self, quality: Quality) -> None:
        """Asks the kernel what can be had."""
        self.quality = quality
        self._nice_refused = _scheduling.try_nice(quality.nice)
        self._scheduling_refused = _scheduling.try_scheduling(quality.scheduling)

    @property
    def nice(self) -> int | None:
        """The nice value of its threads."""
        return None if self._nice_refused else self.quality.nice

    @property
    def scheduling(self) -> str | None:
        """The policy of its threads."""
        return None if self._scheduling_refused else self.quality.scheduling

    def differences(self, thread: int) -> Iterator[str]:
        """What is not as it was granted of a thread of the context, in words."""
        yield from _scheduling.differences(thread, self.nice, self.scheduling)

    def resources(self, *, resident: bool) -> tuple[Resource, ...]:
        """The lines of the report."""
        return (
            _scheduling.nice(self.quality, self._nice_refused, resident=resident),
            _scheduling.scheduling(self.quality, self._scheduling_refused, resident=resident),
            *(_none_yet(self.quality, name) for name in ("weight", "quota", "confine")),
            *(_none_yet(self.quality, name) for name in ("bandwidth", "cache_ways")),
        )


def _none_yet(quality: Quality, name: str) -> Resource:
    return Resource(
        name,
        State.UNAVAILABLE,
        quality.words(name),
        granted=None,
        reason="contexts have no control groups of their own yet",
        cure="Start the process in a group that has it (`systemd-run --user --scope`).",
    )
