"""Control groups of a context's own: CPU weight, quota and cpuset of the threads that it owns.

In version 2 a threaded group below the process's (cgroups(7), "Thread mode"), in version 1 one in each
hierarchy; which of them has a controller is the system's choice, so each is looked for in both (Linux's
Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst and scheduler/sched-bwc.rst).
"""

from __future__ import annotations

import errno
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vlcs._core import _cgroup, _kernel_text
from vlcs._core._errors import SystemRefusedError
from vlcs._core._group import Group, Refusal
from vlcs._core._kernel_text import format_list
from vlcs._core._resource import Resource, State, reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vlcs._core._quality import Quality

OPTIONS = {"weight": "cpu", "quota": "cpu", "confine": "cpuset"}
"""Each with its controller."""

_PERIOD = 100_000
"""Microseconds, the kernel's own: a context that has used its quota up waits for the rest of it."""

_OWN = (
    "Start the process in a group of its own, `systemd-run --user --scope -p Delegate=yes PROGRAM`; "
    "in Docker with --privileged, or with a /sys/fs/cgroup that may be written; or as root."
)
_GIVE = (
    "Have the controller given to the group: `systemd-run --user --scope -p Delegate=yes PROGRAM`, where the "
    "user's manager has it (Delegate=cpu cpuset of user@.service)."
)
_ALONE = (
    "Start the process in a group that holds nothing else: "
    "`systemd-run --user --scope -p Delegate=yes PROGRAM`."
)

_lock = threading.Lock()  # over what the process's group gives to those below
_gave: set[tuple[Path, str]] = set()
"""Controllers that it gives because of us."""


class Place(NamedTuple):
    """Where the process can have a group for a controller: below the one that it is in."""

    folder: Path
    version: int
    controllers: frozenset[str]

    @property
    def tasks(self) -> str:
        """The name of the file of thread ids."""
        return "tasks" if self.version == 1 else "cgroup.threads"


def find(controller: str, root: Path = Path("/")) -> Place | Refusal:
    """Looks for it, and changes nothing; whether the kernel agrees shows when a group is made."""
    seen = [seat for seat in _cgroup.seats(root) if seat.folders]
    for seat in seen:
        if controller in seat.controllers:
            return _checked(Place(seat.folders[0], 1, seat.controllers))
    for seat in seen:
        if seat.version == 2:
            given = frozenset(_kernel_text.read(seat.folders[0] / "cgroup.controllers").split())
            if controller in given:
                return _checked(Place(seat.folders[0], 2, given))
    if not seen:
        return Refusal("no control groups can be seen here: none are mounted, or a sandbox hides them", _OWN)
    return Refusal(f"the process's control group is not given the controller {controller!r}", _GIVE)


def _checked(place: Place) -> Place | Refusal:
    if not _kernel_text.is_writable(place.folder):
        return Refusal(f"the process may not make control groups below its own ({place.folder})", _OWN)
    if _kernel_text.read(place.folder / "cgroup.type") == "domain invalid":
        return Refusal(
            f"the process's control group ({place.folder}) is 'domain invalid': it lies in a threaded "
            "subtree and is not threaded itself",
            _ALONE,
        )
    return place


class Control:
    """The groups of one context: made before it, and removed after it."""

    def __init__(
        self,
        quality: Quality,
        cpus: Iterable[int],
        root: Path = Path("/"),
    ) -> None:
        """Makes what is asked for, as far as the kernel agrees.

        Args:
            quality: What is asked for.
            cpus: Of the slice, for `confine`.
            root: Of the file system.
        """
        self.refused: dict[str, Refusal] = {}
        self._root = root
        self._cpus = frozenset(cpus)
        self._quality = quality
        self._groups: dict[Place, Group] = {}
        self._holds: dict[str, Group] = {}
        try:
            for option in OPTIONS:
                if quality.words(option) is not None:
                    self._make(option)
        except BaseException:
            self.remove()
            raise

    @property
    def files(self) -> tuple[str, ...]:
        """Where each thread of the context writes its id as it begins."""
        return tuple(group.file for group in self._groups.values())

    @property
    def confines(self) -> bool:
        """Whether the kernel keeps the context's threads on the slice."""
        return "confine" in self._holds

    @contextmanager
    def moving(self, cpus: Iterable[int]) -> Iterator[None]:
        """Around a change of the slice: threads may be on the old CPUs and the new ones meanwhile.

        The cpuset is widened first, as a thread cannot move to where it does not lead, and then cut.
        """
        cpus = frozenset(cpus)
        group = self._holds.get("confine")
        if group is None:
            yield
            return
        before = self._cpus
        try:
            self._set_cpus(group, before | cpus, needed=cpus)
        except OSError as error:
            with suppress(OSError):
                self._set_cpus(group, before)
            raise SystemRefusedError(
                f"cannot move the cpuset {group.folder} to CPU {format_list(cpus)}: {error.strerror}; "
                "nothing was changed. The group above may have lost these CPUs.",
                str(group.folder),
                error.errno or 0,
            ) from error
        try:
            yield
        except BaseException:
            with suppress(OSError):
                self._set_cpus(group, before)
            raise
        self._cpus = cpus
        try:
            self._set_cpus(group, cpus)
        except OSError as error:
            self._refuse("confine", error, group.above)

    def remove(self) -> None:
        """Removes the groups; threads that are still there go to the process's."""
        self._holds.clear()
        while self._groups:
            _remove(*self._groups.popitem())

    def differences(self, thread: int) -> Iterator[str]:
        """In which other groups a thread is, in words. Raises ProcessLookupError where there is none."""
        if not self._groups:
            return
        seats = list(_cgroup.paths(self._root, thread))
        if not seats:
            raise ProcessLookupError(thread)
        for place, group in self._groups.items():
            for version, controllers, path in seats:
                is_it = version == place.version and (version == 2 or controllers == place.controllers)
                if is_it and not path.endswith(f"/{group.name}"):
                    yield f"is in the control group {path}, not in {group.folder}"

    def resources(self, *, resident: bool) -> tuple[Resource, ...]:
        """The lines of the report."""
        return tuple(self._resource(option, resident=resident) for option in OPTIONS)

    def _resource(self, option: str, *, resident: bool) -> Resource:
        requested = self._quality.words(option)
        whose, cure = reach(resident=resident)
        if group := self._holds.get(option):
            by = f"by the control group {group.folder}, for {whose}"
            return Resource(option, State.ENFORCED, requested, self._granted(option), by, cure)
        found = self.refused.get(option) or find(OPTIONS[option], self._root)
        if isinstance(found, Refusal):
            return Resource(option, State.UNAVAILABLE, requested, None, found.reason, found.cure)
        could = f"by a control group below {found.folder}, for {whose}"
        if requested is None:
            could = f"not asked for; {could}"
        return Resource(option, State.ENFORCED, requested, None, could, cure)

    def _granted(self, option: str) -> str:
        if option == "confine":
            return f"CPU {format_list(self._cpus)}"
        return f"{getattr(self._quality, option):g}" + (" CPUs" if option == "quota" else "")

    def _find(self, option: str) -> Place | Refusal:
        limit = _cgroup.limits(self._root).quota if option == "quota" else None
        if limit is not None and limit < (self._quality.quota or 0):
            return Refusal(f"the process's own control groups allow it {limit:g} CPUs", "Ask for less.")
        return find(OPTIONS[option], self._root)

    def _make(self, option: str) -> None:
        place = self._find(option)
        if isinstance(place, Refusal):
            self.refused[option] = place
            return
        group = self._groups.get(place)
        try:
            if group is None:
                group = self._begin(place)
            if place.version == 2:
                _give(place.folder, OPTIONS[option])
            for file, value in self._values(option, place):
                group.set(file, value)
            if option == "confine":
                self._set_cpus(group, self._cpus)
        except OSError as error:
            self._refuse(option, error, place.folder)
        else:
            self._holds[option] = group
            return
        if group and group not in self._holds.values():
            del self._groups[place]
            _remove(place, group)

    @staticmethod
    def _set_cpus(group: Group, cpus: frozenset[int], needed: frozenset[int] | None = None) -> None:
        """`needed`: of these, where the others may be gone."""
        group.set("cpuset.cpus", format_list(cpus))
        # Version 2 takes any, and then gives what the group above has of it.
        given = _kernel_text.read_list(group.folder / "cpuset.cpus.effective")
        if given and not given >= (needed or cpus):
            raise OSError(errno.EINVAL, f"only {format_list(given)} are given", "cpuset.cpus")

    def _begin(self, place: Place) -> Group:
        """A group that threads can join, which one tries. Raises OSError, with nothing left behind."""
        with _lock:
            group = Group(place.folder, place.tasks, self._root)
        try:
            if place.version == 2:
                group.set("cgroup.type", "threaded")
            elif "cpuset" in place.controllers:  # nothing can join it before these are set
                for what in ("cpus", "mems"):
                    group.set(f"cpuset.{what}", _kernel_text.read(place.folder / f"cpuset.{what}"))
            group.try_to_join()
        except BaseException:
            group.remove()
            raise
        self._groups[place] = group
        return group

    def _values(self, option: str, place: Place) -> list[tuple[str, object]]:
        quality = self._quality
        if option == "weight":
            weight = quality.weight or 0
            if place.version == 2:
                return [("cpu.weight", weight)]
            return [("cpu.shares", max(2, weight * 1024 // 100))]  # 1024 is the usual one, and 2 the least
        if option == "quota":
            time = int((quality.quota or 0) * _PERIOD)
            if place.version == 2:
                return [("cpu.max", f"{time} {_PERIOD}")]
            return [("cpu.cfs_period_us", _PERIOD), ("cpu.cfs_quota_us", time)]
        return []  # the cpuset's are set by themselves: they change

    def _refuse(self, option: str, error: OSError, above: Path) -> None:
        self._holds.pop(option, None)
        self.refused[option] = _explain(option, error, above)


def _explain(option: str, error: OSError, above: Path) -> Refusal:
    """The kernel's refusal, for people."""
    at = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    if option == "confine" and str(error.filename).endswith("cpuset.cpus"):
        return Refusal(
            f"the cpuset of {above} does not have all of the slice's CPUs ({at})",
            "Ask for CPUs that it has, or start the process in a group with more.",
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return Refusal(f"the process may not write control groups below its own ({at})", _OWN)
    if error.errno == errno.EOPNOTSUPP:
        return Refusal(
            f"the process's control group ({above}) cannot hold groups of threads: it gives domain "
            f"controllers (memory, io) to groups below it, or some of these hold processes ({at})",
            _ALONE,
        )
    if error.errno == errno.EBUSY:
        return Refusal(
            f"the process's control group ({above}) holds processes, and such a group cannot give "
            f"controllers to others: the rule of no internal processes ({at})",
            _ALONE,
        )
    if option == "quota" and error.errno == errno.EINVAL:
        return Refusal(
            f"{above} or a group above has a smaller quota, which version 1 lets none exceed ({at})",
            "Ask for less: `vlcs show` says what the process's quota is.",
        )
    return Refusal(f"the kernel refuses it ({at})", _OWN)


def after_fork() -> None:
    """In a forked child: its one thread has no lock, and what the group gives is its parent's affair."""
    global _lock  # noqa: PLW0603 - another thread may have held it
    _lock = threading.Lock()
    _gave.clear()


def _give(folder: Path, controller: str) -> None:
    """Has a group of version 2 give a controller to those below. Raises OSError."""
    file = folder / "cgroup.subtree_control"
    with _lock:
        if controller not in _kernel_text.read(file).split():
            _kernel_text.write(file, f"+{controller}")
            _gave.add((folder, controller))


def _remove(place: Place, group: Group) -> None:
    """Removes it and, after the last one, takes back what the process's group gives to those below.

    Not while other processes are in that group: they may be about to make theirs.
    """
    with _lock:
        if not group.remove() or place.version == 1:
            return
        alone = len(_kernel_text.read(place.folder / "cgroup.procs").split()) <= 1
        if not alone or any(child.is_dir() for child in place.folder.iterdir()):
            return
        for folder, controller in [entry for entry in _gave if entry[0] == place.folder]:
            _gave.discard((folder, controller))
            with suppress(OSError):
                _kernel_text.write(folder / "cgroup.subtree_control", f"-{controller}")
