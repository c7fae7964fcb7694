"""What became of the quality of service that was asked for: what holds it, and what is to be taken back."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vlcs._core import _scheduling
from vlcs._core._control import Control
from vlcs._core._resctrl import Resctrl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vlcs._core._quality import Quality
    from vlcs._core._resource import Resource


class Service:
    """A context's; made before it, and removed after it."""

    def __init__(self, quality: Quality, cpus: Iterable[int], root: Path = Path("/")) -> None:
        """Asks the kernel what can be had, and makes groups for the threads of a context on these CPUs."""
        cpus = tuple(cpus)
        self.quality = quality
        self._nice_refused = _scheduling.try_nice(quality.nice)
        self._scheduling_refused = _scheduling.try_scheduling(quality.scheduling)
        self._control = Control(quality, cpus, root=root)
        try:
            self._resctrl = Resctrl(quality, cpus, root)
        except BaseException:
            self._control.remove()
            raise

    @property
    def nice(self) -> int | None:
        """The nice value of its threads."""
        return None if self._nice_refused else self.quality.nice

    @property
    def scheduling(self) -> str | None:
        """The policy of its threads."""
        return None if self._scheduling_refused else self.quality.scheduling

    @property
    def groups(self) -> tuple[str, ...]:
        """As vlc_spec has them: files to which each of its threads writes its id as it begins."""
        return self._control.files + self._resctrl.files

    @property
    def confines(self) -> bool:
        """Whether the kernel keeps its threads on the slice."""
        return self._control.confines

    @contextmanager
    def moving(self, cpus: Iterable[int]) -> Iterator[None]:
        """Around a change of the slice."""
        cpus = tuple(cpus)
        with ExitStack() as stack:
            stack.enter_context(self._control.moving(cpus))
            stack.enter_context(self._resctrl.moving(cpus))
            yield

    def remove(self) -> None:
        """Removes the groups."""
        self._control.remove()
        self._resctrl.remove()

    def differences(self, thread: int) -> Iterator[str]:
        """What is not as it was granted of a thread of the context, in words."""
        yield from _scheduling.differences(thread, self.nice, self.scheduling)
        yield from self._control.differences(thread)
        yield from self._resctrl.differences(thread)

    def resources(self, *, resident: bool) -> tuple[Resource, ...]:
        """The lines of the report."""
        return (
            _scheduling.nice(self.quality, self._nice_refused, resident=resident),
            _scheduling.scheduling(self.quality, self._scheduling_refused, resident=resident),
            *self._control.resources(resident=resident),
            *self._resctrl.resources(resident=resident),
        )
