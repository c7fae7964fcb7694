"""The machine as this process has it: how it is built, and how much of it may be used."""

from dataclasses import dataclass, field
from pathlib import Path

from vlcs._core import _cgroup, _kernel_text, _topology
from vlcs._core._topology import Topology


@dataclass(frozen=True)
class Machine:
    """What contexts can be given, at one moment."""

    topology: Topology = field(default_factory=Topology)
    allowed: frozenset[int] = frozenset()
    """CPUs that the process may use: its affinity."""
    nodes: frozenset[int] = frozenset({0})
    """NUMA nodes whose memory it may use."""
    quota: float | None = None
    """CPU time per time that its control groups allow, in CPUs. None: no limit."""
    bound: frozenset[int] = frozenset()
    """CPUs that the kernel would let it move to: those online, cut to the cpusets of its control groups."""

    @property
    def capacity(self) -> float:
        """How many CPUs can be kept busy: those that may be used, or the quota where that is less."""
        return min(len(self.allowed), self.quota or len(self.allowed))


def read(root: Path = Path("/"), affinity: frozenset[int] = frozenset()) -> Machine:
    """Reads a machine; `affinity` where the caller knows better than /proc/self/status."""
    status = _kernel_text.read_fields(root / "proc/self/status")
    groups = _cgroup.limits(root)
    topology = _topology.read(root, fallback=affinity or _numbers(status.get("Cpus_allowed_list", "")))
    bound = topology.online & (groups.cpus or topology.online)
    # The kernel's mask of a process may name CPUs that are offline; `affinity` never does.
    allowed = affinity or _numbers(status.get("Cpus_allowed_list", "")) & bound or bound
    memory = frozenset(topology.nodes)
    nodes = (_numbers(status.get("Mems_allowed_list", "")) or memory) & (groups.nodes or memory) & memory
    return Machine(topology, allowed, nodes or memory, groups.quota, bound)


def _numbers(text: str) -> frozenset[int]:
    try:
        return _kernel_text.parse_list(text)
    except ValueError:
        return frozenset()
