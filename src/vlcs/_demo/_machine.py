"""The machine that a run was measured on, in words and for the JSON file."""

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vlcs._core import _cgroup
from vlcs._core._kernel_text import format_list

# Contexts drop such variables from what they inherit, so the other ways run without them too, and
# "untouched defaults" means it.
_THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_")
_THREAD_VARIABLE_ENDINGS = ("_NUM_THREADS", "_MAX_THREADS", "_MAX_CPU_COUNT")


@dataclass(frozen=True)
class Machine:
    """What a reader needs to judge the figures."""

    model: str
    cpus: tuple[int, ...]
    """CPUs that the process may use."""
    quota: float | None
    """CPUs' worth of time that the control group may use; None: no limit is known."""
    load: float
    """Programs that wanted a CPU in the minute before (load average)."""
    system: str
    date: str
    versions: Mapping[str, str]

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        cpus = f"{len(self.cpus)} CPUs ({format_list(self.cpus)})"
        return f"{self.model}, {cpus}, {self.system}, {self.date}\n{packages}"

    def cautions(self) -> list[str]:
        """What may spoil the measurement, each with a cure."""
        found = []
        if self.quota is not None and self.quota < len(self.cpus):
            found.append(
                f"the control group allows the time of {self.quota:g} CPUs, not of {len(self.cpus)}, so all "
                "ways will be halted at times. Run it where no quota is set."
            )
        if self.load > 0.5:
            found.append(
                f"other programs kept the machine busy in the last minute (load {self.load:.1f}), so expect "
                "wide intervals. Run it again when it is idle."
            )
        return found


def machine(packages: Iterable[str]) -> Machine:
    """Reads this machine; `packages` are those whose versions matter."""
    versions = {"Python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return Machine(
        model=_model(),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        quota=_cgroup.limits().quota,
        load=os.getloadavg()[0],
        system=f"Linux {platform.release()}, {' '.join(platform.libc_ver())}",
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        versions=versions,
    )


def without_thread_variables(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment without variables that size or pin thread pools, and the names of those."""
    dropped = [
        name
        for name in environment
        if name.startswith(_THREAD_VARIABLES) or name.endswith(_THREAD_VARIABLE_ENDINGS)
    ]
    return {name: value for name, value in environment.items() if name not in dropped}, sorted(dropped)


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
