"""Control groups and resctrl as files that answer as the kernel does, for what no machine here has.

A `Kernel` is a path below a folder that stands for "/". What is done to folders and files of groups follows
the rules of kernel/cgroup/cgroup.c and arch/x86/kernel/cpu/resctrl (Linux 6.1), as far as contexts meet them.
"""

from __future__ import annotations

import errno
import os
import pathlib
from typing import TYPE_CHECKING, Any

from vlcs._core._kernel_text import format_list, parse_list

if TYPE_CHECKING:
    from collections.abc import Iterable

V2 = "sys/fs/cgroup"
RESCTRL = "sys/fs/resctrl"
_THREADED = {"cpu", "cpuset", "perf_event", "pids"}
_FILES = {
    "cpu": {"cpu.max": "max 100000", "cpu.weight": "100"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.effective": ""},
}
_FILES_V1 = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
}


def refuse(number: int, path: pathlib.Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


class Kernel(type(pathlib.Path())):  # type: ignore[misc] # PosixPath, which cannot be subclassed by name in mypy
    """A file or folder."""

    def put(self, text: str) -> None:
        """Writes as the kernel itself."""
        self.parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(self).write_text(f"{text}\n" if text else "")

    def words(self, file: str) -> list[str]:
        path = pathlib.Path(self) / file
        return path.read_text().split() if path.exists() else []

    @property
    def kind(self) -> str:
        """Of a group's folder: "v2", "v1", "resctrl"; "" for all others."""
        if (self / "cgroup.threads").exists():
            return "v2"
        if (self / "schemata").exists():
            return "resctrl"
        return "v1" if (self / "tasks").exists() else ""

    def children(self) -> list[Kernel]:
        return [child for child in self.iterdir() if child.is_dir()]

    # What contexts do.

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        kind = "" if parents else self.parent.kind
        if kind == "resctrl" and len([c for c in self.parent.children() if c.kind]) >= 3:
            raise refuse(errno.ENOSPC, self)  # four closids, with the default group's
        super().mkdir(mode, parents, exist_ok)
        if kind == "v2":
            above = " ".join(self.parent.words("cgroup.type"))
            self._fill({"cgroup.type": "domain invalid" if "threaded" in above else "domain"})
            self._fill({"cgroup.controllers": " ".join(self.parent.words("cgroup.subtree_control"))})
            self._fill(dict.fromkeys(("cgroup.subtree_control", "cgroup.procs", "cgroup.threads"), ""))
            self._fill_controllers()
        elif kind == "v1":
            for files in _FILES_V1.values():
                if any((self.parent / file).exists() for file in files):
                    self._fill(files)
            self._fill({"tasks": ""})
        elif kind == "resctrl":
            self._fill({"tasks": "", "schemata": (self.parent / "schemata").read_text().strip()})

    def rmdir(self) -> None:
        if self.kind in {"v1", "v2"} and (self.words(self._tasks) or self.children()):
            raise refuse(errno.EBUSY, self)
        if self.kind:
            for file in self.iterdir():
                file.unlink()
        super().rmdir()

    def write_text(self, data: str, *_: Any, **__: Any) -> int:
        answer = {
            "cgroup.type": self._write_type,
            "cgroup.subtree_control": self._write_controllers,
            "cgroup.threads": self._move,
            "tasks": self._move,
            "cpuset.cpus": self._write_cpus,
            "cpu.cfs_quota_us": self._write_quota,
            "schemata": self._write_schemata,
        }.get(self.name, self.put)
        answer(data.strip())
        return len(data)

    # How the kernel answers.

    @property
    def _tasks(self) -> str:
        return "cgroup.threads" if self.kind == "v2" else "tasks"

    def _fill(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self / name).put(text)

    def _fill_controllers(self) -> None:
        given = self.words("cgroup.controllers")
        for controller, files in _FILES.items():
            for name, text in files.items():
                if controller not in given:
                    (self / name).unlink(missing_ok=True)
                elif not (self / name).exists():
                    (self / name).put(text)
        if "cpuset" in given:
            (self / "cpuset.cpus")._write_cpus("")

    def _can_hold_threads(self) -> bool:
        """cgroup_can_be_thread_root(), and that of one that is threaded."""
        if "threaded" in " ".join(self.words("cgroup.type")) or not (self / "cgroup.type").exists():
            return True  # which the hierarchy's root is, too
        domain = set(self.words("cgroup.subtree_control")) - _THREADED
        return not domain and not any(
            child.words("cgroup.type") == ["domain"] and child.words("cgroup.procs")
            for child in self.children()
        )

    def _write_type(self, text: str) -> None:
        group = self.parent
        if text != "threaded" or not group.parent._can_hold_threads():
            raise refuse(errno.EOPNOTSUPP, self)
        self.put("threaded")
        if group.parent.words("cgroup.type") == ["domain"]:
            (group.parent / "cgroup.type").put("domain threaded")

    def _write_controllers(self, text: str) -> None:
        group = self.parent
        sign, name = text[0], text[1:]
        given = group.words("cgroup.subtree_control")
        if sign == "+":
            if name not in group.words("cgroup.controllers"):
                raise refuse(errno.ENOENT, self)
            if group.words("cgroup.procs") and not (name in _THREADED and group._can_hold_threads()):
                raise refuse(errno.EBUSY, self)
            given = sorted({*given, name})
        else:
            given = [other for other in given if other != name]
        self.put(" ".join(given))
        for child in group.children():
            (child / "cgroup.controllers").put(" ".join(given))
            child._fill_controllers()

    def _move(self, text: str) -> None:
        group = self.parent
        if group.kind == "v2" and group.words("cgroup.type") not in (
            ["threaded"],
            [],
            ["domain", "threaded"],
        ):
            raise refuse(errno.EOPNOTSUPP, self)
        if group.kind == "v1" and (group / "cpuset.cpus").exists() and not group.words("cpuset.cpus"):
            raise refuse(errno.ENOSPC, self)
        for other in (group.parent, *group.parent.children(), *group.children()):
            if other.kind == group.kind and text in other.words(group._tasks):
                rest = [tid for tid in other.words(group._tasks) if tid != text]
                (other / group._tasks).put("\n".join(rest))
        self.put("\n".join([*group.words(group._tasks), text]))

    def _write_cpus(self, text: str) -> None:
        group, above = self.parent, self.parent.parent
        if group.kind == "v1":
            if not parse_list(text) <= parse_list((above / "cpuset.cpus").read_text()):
                raise refuse(errno.EACCES, self)
        else:
            has = parse_list((above / "cpuset.cpus.effective").read_text())
            gets = has & parse_list(text) if text else has
            (group / "cpuset.cpus.effective").put(format_list(gets or has))
        self.put(text)

    def _write_quota(self, text: str) -> None:
        limit = int((self.parent.parent / "cpu.cfs_quota_us").read_text())
        if int(text) < 1000 or 0 < limit < int(text):
            raise refuse(errno.EINVAL, self)
        self.put(text)

    def _write_schemata(self, text: str) -> None:
        name, _, pairs = text.partition(":")
        lines = dict(line.split(":") for line in self.read_text().split())
        now = dict(pair.split("=") for pair in lines[name].split(";"))
        for pair in pairs.split(";"):
            domain, value = pair.split("=")
            bits = f"{int(value, 16):b}".strip("0") if name == "L3" else "1"
            if domain not in now or "0" in bits:
                raise refuse(errno.EINVAL, self)
            now[domain] = value
        lines[name] = ";".join(f"{domain}={value}" for domain, value in now.items())
        self.put("\n".join(f"{name}:{values}" for name, values in lines.items()))


def root(folder: pathlib.Path) -> Kernel:
    """An empty file system, with a process of CPUs 0 to 3."""
    made = Kernel(folder)
    (made / "proc/self/cgroup").put("")
    (made / "proc/self/mountinfo").put("")
    return made


def with_v2(
    folder: pathlib.Path,
    *,
    group: str = "/mine",
    controllers: str = "cpu cpuset memory",
    given: str = "",
    kind: str = "domain",
    processes: str = "1",
) -> Kernel:
    """Version 2, and the process in `group`, which gives the controllers `given` to groups below it."""
    made = root(folder)
    (made / "proc/self/cgroup").put(f"0::{group}")
    (made / "proc/self/mountinfo").put(f"31 23 0:28 / /{V2} rw - cgroup2 cgroup2 rw")
    top = made / V2
    place = top / group.strip("/")
    for at in {top, place}:
        files = {"cgroup.controllers": controllers, "cgroup.subtree_control": given, "cgroup.threads": ""}
        files |= {"cgroup.procs": processes if at == place else "", "cpuset.cpus.effective": "0-3"}
        files |= {} if at == top else {"cgroup.type": kind}
        at._fill(files)
    return made


def with_v1(folder: pathlib.Path, *, cpus: str = "0-3", quota: int = -1) -> Kernel:
    """Version 1, as Docker mounts it, with the process in the roots."""
    made = root(folder)
    (made / "proc/self/cgroup").put("2:cpuset:/\n1:cpu,cpuacct:/\n0::/")
    mounts = [
        f"{40 + number} 30 0:{number} / /{V2}/{name} rw - cgroup cgroup rw,{name}"
        for number, name in enumerate(("cpuset", "cpu,cpuacct"))
    ]
    (made / "proc/self/mountinfo").put("\n".join(mounts))
    (made / V2 / "cpuset")._fill({"tasks": "1", "cpuset.cpus": cpus, "cpuset.mems": "0-1"})
    (made / V2 / "cpu,cpuacct")._fill({"tasks": "1", **_FILES_V1["cpu"], "cpu.cfs_quota_us": str(quota)})
    return made


def with_resctrl(
    folder: pathlib.Path,
    *,
    schemata: Iterable[str] = ("L3:0=7ff;1=7ff", "MB:0=100;1=100"),
    info: Iterable[str] = ("L3", "MB"),
    mounted: bool = True,
) -> Kernel:
    """Two caches of 11 ways, of CPU 0-1 and CPU 2-3; bandwidth in steps of 10 from 10."""
    made = root(folder)
    top = made / RESCTRL
    if not mounted:
        pathlib.Path(top).mkdir(parents=True)
        return made
    top._fill({"tasks": "1", "schemata": "\n".join(schemata), "info/last_cmd_status": "ok"})
    files = {
        "L3": {"cbm_mask": "7ff", "min_cbm_bits": "2", "num_closids": "4", "shareable_bits": "600"},
        "MB": {"min_bandwidth": "10", "bandwidth_gran": "10", "num_closids": "4"},
    }
    for name in info:
        for file, text in files.get(name, {"cbm_mask": "7ff"}).items():
            (top / "info" / name / file).put(text)
    for cpu in range(4):
        for index, level in enumerate((1, 2, 3)):
            cache = made / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            (cache / "level").put(str(level))
            (cache / "id").put(str(cpu // 2 if level == 3 else cpu))
    return made
