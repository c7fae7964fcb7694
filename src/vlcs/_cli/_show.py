"""`vlcs show`: what contexts can have on this machine, as JSON."""

import dataclasses
import json
import platform
import sys
from typing import Any


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
    from vlcs._core._topology import format_list  # noqa: PLC0415

    allowed, topology = REGISTRY.machine()
    cores = {topology.siblings(number) for number in allowed}
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
            "online": format_list(topology.online),
            "usable": format_list(allowed),
            "cores": [format_list(core) for core in sorted(cores, key=min)],
        },
        "limits": dataclasses.asdict(vlcs.limits()),
    }
