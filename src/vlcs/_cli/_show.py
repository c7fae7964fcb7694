"""`vlcs show`: what contexts can have on this machine, as JSON."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from typing import TYPE_CHECKING, Any

from vlcs._core._kernel_text import format_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from vlcs._core._machine import Machine
    from vlcs._core._topology import CPU


def show() -> int:
    """Prints it. Gives 1 where private interpreters cannot be had; the JSON and stderr say why."""
    report = gather()
    print(json.dumps(report, indent=2))
    if report["python"]["error"]:
        print(f"vlcs show: {report['python']['error']}", file=sys.stderr)
        return 1
    return 0


def gather() -> dict[str, Any]:
    """The report as plain data."""
    import vlcs  # noqa: PLC0415 - `vlcs run` needs none of it
    from vlcs._core import _python  # noqa: PLC0415
    from vlcs._core._registry import REGISTRY  # noqa: PLC0415

    machine = REGISTRY.machine()
    try:
        libpython, error = _python.host().libpython, None
    except vlcs.VLCError as refused:
        libpython, error = None, str(refused)
    return {
        "version": vlcs.__version__,
        "platform": {
            "machine": platform.machine(),
            "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver()),
        },
        "python": {
            "executable": sys.executable,
            "version": platform.python_version(),
            "libpython": libpython,
            "error": error,
        },
        "cpus": {
            "online": format_list(machine.topology.online),
            "offline": format_list(machine.topology.offline),
            "usable": format_list(machine.allowed),
            "quota": machine.quota,
            "cores": [format_list(core) for core in machine.topology.cores(machine.allowed)],
            "cache_domains": _groups(machine, lambda cpu: cpu.domain),
            "packages": _groups(machine, lambda cpu: cpu.package),
            "kinds": _groups(machine, lambda cpu: cpu.kind),
        },
        "nodes": [
            {
                "number": node.number,
                "cpus": format_list(node.cpus & machine.allowed),
                "bytes": node.size,
                "usable": node.number in machine.nodes,
                "distances": node.distances,
            }
            for node in machine.topology.nodes.values()
        ],
        "limits": dataclasses.asdict(vlcs.limits()),
    }


def _groups(machine: Machine, key: Callable[[CPU], Any]) -> list[str]:
    """The usable CPUs that have the key in common, in order of the key or, where it is a set, of CPUs."""
    groups: dict[Any, set[int]] = {}
    for number in sorted(machine.allowed):
        groups.setdefault(key(machine.topology.cpu(number)), set()).add(number)
    ordered = sorted(groups.items(), key=lambda item: item[0] if isinstance(item[0], int) else min(item[1]))
    return [format_list(numbers) for _, numbers in ordered]
