"""Where the process sits in the kernel's control groups, and what they allow it.

Both versions, also mixed: /proc/self/cgroup names the group of each hierarchy, /proc/self/mountinfo
where that can be seen, and every group up to there may set a limit (cgroups(7), Linux's
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpusets.rst).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vlcs._core import _kernel_text


@dataclass(frozen=True)
class Seat:
    """The process's place in one hierarchy."""

    version: int
    """1 or 2."""
    controllers: frozenset[str]
    """Of a hierarchy of version 1; empty for version 2, where each group has its own."""
    path: str
    """As the kernel names the group ("/" is the hierarchy's root, or the container's)."""
    folders: tuple[Path, ...]
    """The group's folder, then its ancestors' up to the mount point; empty where none can be seen."""


@dataclass(frozen=True)
class Limits:
    """What the groups allow. None: nothing is said, or nothing can be seen."""

    cpus: frozenset[int] | None = None
    nodes: frozenset[int] | None = None
    """Whose memory may be used."""
    quota: float | None = None
    """CPU time per time, so in CPUs: 1.5 is one and a half."""


def seats(root: Path = Path("/")) -> list[Seat]:
    """The process's place in every hierarchy that it is in."""
    mounts = list(_mounts(root))
    found = []
    for version, controllers, path in paths(root):
        folders: tuple[Path, ...] = ()
        fitting = [mount for mount in mounts if mount.version == version and controllers <= mount.controllers]
        if path.startswith("/") and fitting:
            folders = _folders(root, path, max(fitting, key=lambda mount: mount.shows(path)))
        found.append(Seat(version, controllers, path, folders))
    return found


def paths(root: Path = Path("/"), thread: int | None = None) -> Iterator[tuple[int, frozenset[str], str]]:
    """Version, controllers and path, as a Seat has them, of one thread's groups. None: the main thread's."""
    file = "proc/self/cgroup" if thread is None else f"proc/self/task/{thread}/cgroup"
    for line in _kernel_text.read(root / file).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        version = 2 if number == "0" and not names else 1
        yield version, frozenset(name for name in names.split(",") if name), path


def limits(root: Path = Path("/")) -> Limits:
    """What all of them together allow."""
    # Only a group whose controller is there has the controller's files, so every folder can be asked.
    folders = [folder for seat in seats(root) for folder in seat.folders]
    quotas = [quota for folder in folders if (quota := _quota(folder)) is not None]
    return Limits(_meet(folders, "cpus"), _meet(folders, "mems"), min(quotas, default=None))


def _quota(folder: Path) -> float | None:
    quota, _, period = _kernel_text.read(folder / "cpu.max").partition(" ")
    if not quota:
        quota = _kernel_text.read(folder / "cpu.cfs_quota_us")  # -1 for none
        period = _kernel_text.read(folder / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        return int(quota) / int(period)
    return None


def _meet(folders: list[Path], what: str) -> frozenset[int] | None:
    """What every group allows that says something. Not "cpuset.cpus" of version 2: that is a mere request."""
    names = (f"cpuset.{what}.effective", f"cpuset.effective_{what}")
    sets = [found for folder in folders for name in names if (found := _kernel_text.read_list(folder / name))]
    return frozenset.intersection(*sets) if sets else None


@dataclass(frozen=True)
class _Mount:
    version: int
    controllers: frozenset[str]
    root: str
    """The group that is seen at the mount point."""
    point: str

    def shows(self, path: str) -> int:
        """How much of a group's path lies above the mount point; -1 where it shows another part."""
        return len(self.root) if PurePosixPath(path).is_relative_to(self.root) else -1


def _mounts(root: Path) -> Iterator[_Mount]:
    """Lines of proc_pid_mountinfo(5): id parent device root point options ... - type source options."""
    for line in _kernel_text.read(root / "proc/self/mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        fields, kind = mount.split(), system.split()
        if len(fields) < 5 or not kind or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        controllers = frozenset(kind[-1].split(",")) if version == 1 else frozenset()
        yield _Mount(version, controllers, _plain(fields[3]), _plain(fields[4]))


def _plain(field: str) -> str:
    """A field without the octal escapes that stand for blanks and the backslash."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field


def _folders(root: Path, path: str, mount: _Mount) -> tuple[Path, ...]:
    """A container may see another part of the tree than its path names: then its own root is what counts."""
    point = root / mount.point.lstrip("/")
    below = PurePosixPath(path).relative_to(mount.root).parts if mount.shows(path) >= 0 else ()
    if ".." in below:
        below = ()
    return tuple(point.joinpath(*below[:depth]) for depth in range(len(below), -1, -1))
