"""docs/slices.md's table of what a slice is worth: each row is made here, and its state asked for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support import kernel
from support.machine import ROOT
from support.machines import machine
from vlcs._core import (
    _control,
    _gpu,
    _huge_pages,
    _kernel_text,
    _memory,
    _memory_limit,
    _pool,
    _request,
    _resctrl,
    _scheduling,
    _slice,
)
from vlcs._core._choice import choose
from vlcs._core._control import Control
from vlcs._core._memory import MemoryRequest
from vlcs._core._quality import Quality
from vlcs._core._resctrl import Resctrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from vlcs._core._machine import Machine
    from vlcs._core._resource import Resource

ALL = Quality(weight=100, quota=1.0, confine=True, bandwidth=50, cache_ways=4)


def rows() -> list[tuple[str, str, str]]:
    """Resource (one each), machine, state."""
    text = (ROOT / "docs/slices.md").read_text("utf-8")
    lines = text.partition("| resource | machine | state |\n|---|---|---|\n")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines.splitlines()]
    return [(name, where, state) for names, where, state in cells for name in re.findall(r"`(\w+)`", names)]


def cpus(on: Machine, *, confined: bool = False, **options: object) -> Iterable[Resource]:
    request = _request.read(**options)  # type: ignore[arg-type]
    choice = choose(request, on) if request else None
    return _slice.grant(request, choice, on, confined=confined).resources


def scheduled(refused: str | None) -> Iterable[Resource]:
    asked = Quality(nice=5, scheduling="batch")
    return [_scheduling.nice(asked, refused), _scheduling.scheduling(asked, refused)]


def memory(
    on: str, policy: str | None = None, nodes: set[int] | None = None, refused: str | None = None
) -> Iterable[Resource]:
    request = MemoryRequest(policy, None if nodes is None else frozenset(nodes))
    return [_memory.resource(request, nodes or (), machine(on), refused)]


def limit(**options: Any) -> Iterable[Resource]:
    return [_memory_limit.resource(1 << 30, **{"own_heap": True, **options})]


def huge_pages(wanted: bool, *settings: str) -> Iterable[Resource]:
    lines = {_huge_pages.resource(wanted, setting).state: setting for setting in settings}
    assert len(lines) == 1, lines
    return [_huge_pages.resource(wanted, settings[0])]


def control(root: kernel.Kernel) -> Iterable[Resource]:
    made = Control(ALL, {0, 1}, root=root)
    lines = made.resources(resident=False)
    made.remove()
    return lines


def resctrl(root: kernel.Kernel) -> Iterable[Resource]:
    made = Resctrl(ALL, {0}, root)
    lines = made.resources(resident=False)
    made.remove()
    return lines


def with_groups_below(folder: Path) -> kernel.Kernel:
    root = kernel.with_v2(folder)
    (root / kernel.V2 / "mine/app.service").mkdir()
    (root / kernel.V2 / "mine/app.service/cgroup.procs").put("7")
    return root


def with_lost_cpus(folder: Path) -> kernel.Kernel:
    root = kernel.with_v2(folder)
    (root / kernel.V2 / "mine/cpuset.cpus.effective").put("1-3")
    return root


def with_all_taken(folder: Path) -> kernel.Kernel:
    root = kernel.with_resctrl(folder)
    for name in "abc":
        (root / kernel.RESCTRL / name).mkdir()
    return root


def not_writable(
    make: Callable[[Path], kernel.Kernel], read: Callable[[kernel.Kernel], Iterable[Resource]]
) -> Made:
    def lines(folder: Path) -> Iterable[Resource]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_kernel_text, "is_writable", lambda _: False)
            return read(make(folder))

    return lines


Made = "Callable[[Path], Iterable[Resource]]"

MACHINES: dict[str, Made] = {
    "the slice is a part of the CPUs that the kernel lets the process use": lambda _: cpus(
        machine("laptop"), cores=2
    ),
    "the slice is all of them: all that are online, or all of the control groups' cpuset": lambda _: cpus(
        machine("docker-v2"), cpus="0-7"
    ),
    "the slice is all of the process's affinity, which is smaller than that": lambda _: cpus(
        replace(machine("laptop"), allowed=frozenset({0, 1}))
    ),
    "with `confine=True`, where a control group can be had": lambda _: cpus(
        machine("laptop"), cores=2, confined=True
    ),
    "the kernel allows it": lambda _: scheduled(None),
    "the kernel refuses it: a nice value below the process's own without CAP_SYS_NICE or RLIMIT_NICE, a "
    "seccomp filter": lambda _: scheduled("Permission denied"),
    "control groups of version 1 that the process may write": lambda f: control(kernel.with_v1(f)),
    "control groups of version 2 that the process may write": lambda f: control(kernel.with_v2(f)),
    "no control groups to be seen": lambda f: control(kernel.root(f)),
    "the process's group is not given the controller (`cpu`, `cpuset`)": lambda f: control(
        kernel.with_v2(f, controllers="memory pids")
    ),
    "the process's group may not be written: not root, nothing delegated, mounted read-only": not_writable(
        kernel.with_v2, control
    ),
    'version 2, and the process\'s group is "domain invalid"': lambda f: control(
        kernel.with_v2(f, kind="domain invalid")
    ),
    "version 2, and the process's group gives `memory` or `io` to groups below it": lambda f: control(
        kernel.with_v2(f, given="memory")
    ),
    "version 2, and groups below the process's hold processes": lambda f: control(with_groups_below(f)),
    "the process's own quota is smaller": lambda f: control(kernel.with_v1(f, quota=20000)),
    "the process's group has lost some of the CPUs": lambda f: control(with_lost_cpus(f)),
    "resctrl is mounted and may be written (tried against files only)": lambda f: resctrl(
        kernel.with_resctrl(f)
    ),
    "the CPU or the kernel has none of it, or a virtual machine hides it": lambda f: resctrl(kernel.root(f)),
    "resctrl is not mounted": lambda f: resctrl(kernel.with_resctrl(f, mounted=False)),
    "resctrl may not be written": not_writable(kernel.with_resctrl, resctrl),
    "all groups that the CPU knows are taken": lambda f: resctrl(with_all_taken(f)),
    "the CPU divides the cache only": lambda f: resctrl(
        kernel.with_resctrl(f, schemata=["L3:0=7ff;1=7ff"], info=["L3"])
    ),
    "it is not counted in per cent: AMD, `mba_MBps`": lambda f: resctrl(
        kernel.with_resctrl(f, schemata=["L3:0=7ff;1=7ff", "MB:0=2048;1=2048"])
    ),
    "resctrl is mounted with `cdp`": lambda f: resctrl(
        kernel.with_resctrl(f, schemata=["MB:0=100;1=100"], info=["L3CODE", "L3DATA", "MB"])
    ),
    "one node only whose memory the process may use": lambda _: memory("laptop", "bind"),
    "several nodes, and nothing asked for": lambda _: memory("xeon-2s"),
    "several nodes, and bound to some of them, or one of the other policies": lambda _: memory(
        "xeon-2s", "bind", {1}
    ),
    "several nodes, and bound to all that the process may use": lambda _: memory("xeon-2s", "bind", {0, 1}),
    "several nodes, and the kernel refuses: it has no NUMA, or a seccomp filter forbids the calls, as "
    "Docker's does": lambda _: memory(
        "xeon-2s", "bind", {1}, "no policy of memory can be set: a seccomp filter"
    ),
    "any: it holds for what libraries take through libc": lambda _: limit(),
    '`heap="host"`, or a preloaded malloc: it holds for mappings only': lambda _: limit(own_heap=False),
    "asked for, and the system's setting is `always` or `madvise`": lambda _: huge_pages(
        True, "always", "madvise"
    ),
    "asked for, and the system's setting is `never`, or the kernel has none": lambda f: huge_pages(
        True, "never", _huge_pages.setting(f)
    ),
    "not wanted, and the system's setting is `always` or `madvise`": lambda _: huge_pages(
        False, "always", "madvise"
    ),
    "not wanted, and the system's setting is `never`, or the kernel has none": lambda f: huge_pages(
        False, "never", _huge_pages.setting(f)
    ),
    "any: they sized their pools from the slice, and are told when it changes": lambda _: [
        _pool.resource(())
    ],
    "any": lambda _: [_gpu.resource(0.5)],
}


@pytest.mark.parametrize(("name", "where", "state"), rows())
def test_each_row_is_so(name: str, where: str, state: str, tmp_path: Path) -> None:
    assert where in MACHINES, f"say in MACHINES how this row of docs/slices.md is made: {where}"
    lines = {line.name: line for line in MACHINES[where](tmp_path)}
    assert lines[name].state == state, lines[name]
    assert lines[name].reason
    if state == "unavailable":
        assert lines[name].cure
        assert lines[name].granted is None


def test_the_table_has_every_machine_and_every_resource() -> None:
    assert {where for _, where, _ in rows()} == set(MACHINES)
    names = {name for name, _, _ in rows()}
    assert names >= {
        "cpus",
        "memory",
        "memory_limit",
        "huge_pages",
        "nice",
        "scheduling",
        "gpu",
        *_control.OPTIONS,
        *_resctrl.OPTIONS,
    }
