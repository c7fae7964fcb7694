"""A folder of the kernel's that holds threads: a control group, or one of resctrl.

Its name says whose it is, "vlcs-<pid namespace>-<pid>-<start>-<number>": what a killed process left behind is
found by the next that makes one in the same place, and removed.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vlcs._core import _kernel_text

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = re.compile(r"vlcs-(\d+)-(\d+)-(\d+)-\d+")
_LONGEST = 1.0
"""Seconds that an end may take: a thread is in its group until the kernel is done with it (Linux 6.18)."""

_numbers = itertools.count(1)
_ours: set[str] = set()


class Refusal(NamedTuple):
    """Why something cannot be had, and what to do about it."""

    reason: str
    cure: str


class Group:
    """One that a context owns, below the one that its threads would be in without it."""

    def __init__(self, above: Path, tasks: str, root: Path = Path("/")) -> None:
        """Makes the folder. Raises OSError, with nothing left behind.

        Args:
            above: The folder of the other.
            tasks: The name of the file of thread ids.
            root: Of the file system.
        """
        sweep(above, tasks, root)
        self.above = above
        self.name = "-".join(("vlcs", *_owner(root), str(next(_numbers))))
        self.folder = above / self.name
        self._tasks = tasks
        self._maker = os.getpid()
        _ours.add(self.name)
        try:
            self.folder.mkdir()
        except BaseException:
            _ours.discard(self.name)
            raise

    @property
    def file(self) -> str:
        """Where threads write their ids to join."""
        return str(self.folder / self._tasks)

    def set(self, file: str, value: object) -> None:
        """Writes one of its files. Raises OSError; in a forked child always: the group is its parent's."""
        if os.getpid() != self._maker:
            raise OSError(errno.EPERM, "since fork() it is the parent's", str(self.folder / file))
        _kernel_text.write(self.folder / file, str(value))

    def threads(self) -> frozenset[int]:
        """Ids of all that are in it, of other processes too."""
        return frozenset(map(int, _kernel_text.read(self.folder / self._tasks).split()))

    def try_to_join(self) -> None:
        """Has a thread try it that ends then. Raises OSError."""
        if refused := attempt(lambda: self.set(self._tasks, threading.get_native_id())):
            raise refused

    def remove(self) -> bool:
        """Removes it, if this process made it; what is still in it goes to the group above.

        Children of `fork` share it with their parent, and leave it.
        """
        if os.getpid() != self._maker:
            return False
        _ours.discard(self.name)
        until = time.monotonic() + _LONGEST
        while not self._is_gone():
            if time.monotonic() > until:
                logging.getLogger("vlcs").warning(
                    "cannot remove the control group %s: threads %s are still in it. The next context that "
                    "makes a group there removes it, once they have ended.",
                    self.folder,
                    sorted(self.threads()),
                )
                return False
            time.sleep(0.001)
        return True

    def _is_gone(self) -> bool:
        try:
            self.folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            for thread in self.threads():
                try:
                    _kernel_text.write(self.above / self._tasks, str(thread))
                except OSError:  # it ended
                    continue
            return False
        return True


def attempt(act: Callable[[], object]) -> OSError | None:
    """Has a new thread do something to itself; gives the refusal."""
    refused: list[OSError] = []

    def run() -> None:
        try:
            act()
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=run, name="vlcs attempt")
    thread.start()
    thread.join()
    return refused[0] if refused else None


def sweep(above: Path, tasks: str, root: Path = Path("/")) -> None:
    """Removes what is left of processes that are gone, once nothing is in it."""
    mine = _owner(root)
    try:
        folders = [folder for folder in above.iterdir() if _NAME.fullmatch(folder.name)]
    except OSError:
        return
    for folder in folders:
        namespace, pid, start = _NAME.fullmatch(folder.name).groups()  # type: ignore[union-attr]
        if namespace != mine[0] or folder.name in _ours or _kernel_text.read(folder / tasks):
            continue
        if (pid, start) != mine[1:] and _start(root / "proc" / pid) == start:
            continue
        try:
            folder.rmdir()
        except OSError:
            continue


def _owner(root: Path) -> tuple[str, str, str]:
    """This process: its namespace of process ids, its id there, and when it began, as an id is given anew."""
    try:
        namespace = re.sub(r"\D", "", str((root / "proc/self/ns/pid").readlink()))
    except OSError:
        namespace = "0"
    return namespace, str(os.getpid()), _start(root / "proc/self")


def _start(process: Path) -> str:
    """Field 22 of proc_pid_stat(5): clock ticks after boot. The name before may hold anything."""
    fields = _kernel_text.read(process / "stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else "0"
