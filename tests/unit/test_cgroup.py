"""The process's place in control groups, and what they allow."""

from __future__ import annotations

import pytest

from support import machines
from vlcs._core import _cgroup
from vlcs._core._cgroup import Limits

V2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"


def tree(groups: str, mounts: str, **files: str) -> machines.Memory:
    """A file system with these files, by path, and the two that say where groups are."""
    return machines.Memory({"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files})


def of(name: str) -> Limits:
    return _cgroup.limits(machines.root(machines.MODELS[name]))


def paths(seat: _cgroup.Seat) -> list[str]:
    return [folder.path for folder in seat.folders]


@pytest.mark.parametrize("name", ["docker-v1", "docker-v2"])
def test_container(name: str) -> None:
    assert of(name) == Limits(frozenset(range(8)), frozenset({0}), 1.5)


def test_the_smallest_quota_of_all_ancestors_counts() -> None:
    assert of("systemd") == Limits(frozenset(range(8)), None, 2.0)


def test_seats_name_the_group_and_every_folder_above_it() -> None:
    (seat,) = _cgroup.seats(machines.root(machines.MODELS["systemd"]))
    assert (seat.version, seat.path) == (2, "/system.slice/a b.service")
    top = "sys/fs/cgroup"
    assert paths(seat) == [f"{top}/system.slice/a b.service", f"{top}/system.slice", top]


def test_both_versions_mixed() -> None:
    """As systemd's hybrid mode has it: controllers in version 1, version 2 for processes only."""
    groups = "3:cpu,cpuacct:/user\n2:cpuset:/\n1:name=systemd:/user/1\n0::/user/1"
    mounts = (
        "33 30 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 30 0:34 / /sys/fs/cgroup/cpuset rw,relatime shared:9 master:2 - cgroup cgroup rw,cpuset\n"
        "35 30 0:35 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
        "36 30 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    )
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_quota_us": "50000",
        "sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-3",
        "sys/fs/cgroup/cpuset/cpuset.effective_mems": "0-1",
    }
    root = tree(groups, mounts, **files)
    assert _cgroup.limits(root) == Limits(frozenset(range(4)), frozenset({0, 1}), 0.5)
    cpu, cpuset, systemd, unified = _cgroup.seats(root)
    assert [seat.version for seat in (cpu, cpuset, systemd, unified)] == [1, 1, 1, 2]
    assert cpu.controllers == {"cpu", "cpuacct"}
    assert paths(unified)[0] == "sys/fs/cgroup/unified/user/1"


def test_cpusets_meet() -> None:
    files = {
        "sys/fs/cgroup/a/cpuset.cpus.effective": "0-3",
        "sys/fs/cgroup/cpuset.cpus.effective": "2-7",
    }
    assert _cgroup.limits(tree("0::/a", V2, **files)).cpus == {2, 3}


def test_what_is_asked_for_is_not_what_is_allowed() -> None:
    """`cpuset.cpus` of version 2 may name CPUs that the parent does not give."""
    files = {"sys/fs/cgroup/a/cpuset.cpus": "0-63"}
    assert _cgroup.limits(tree("0::/a", V2, **files)) == Limits()


def test_a_path_outside_of_what_is_mounted() -> None:
    """A container without a namespace: the kernel names the host's path, the mount shows a part."""
    mounts = "31 23 0:28 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    files = {"sys/fs/cgroup/cpu.max": "300000 100000"}
    for group in ("/docker/ab", "/somewhere/else", "/../..", "/docker/ab/../.."):
        root = tree(f"0::{group}", mounts, **files)
        assert _cgroup.limits(root).quota == 3.0, group


def test_the_mount_that_shows_most_is_taken() -> None:
    mounts = f"{V2}\n32 23 0:28 /a /inside rw - cgroup2 cgroup2 rw"
    root = tree("0::/a/b", mounts, **{"inside/b/cpu.max": "100000 100000"})
    assert paths(_cgroup.seats(root)[0]) == ["inside/b", "inside"]
    assert _cgroup.limits(root).quota == 1.0


def test_blanks_in_a_mount_point() -> None:
    mounts = V2.replace("/sys/fs/cgroup", r"/my\040groups")
    root = tree("0::/", mounts, **{"my groups/cpu.max": "100000 200000"})
    assert _cgroup.limits(root).quota == 0.5


@pytest.mark.parametrize(
    "quota", ["max 100000", "", "0 100000", "many 100000", "100000", "100000 0", "-1 100000"]
)
def test_no_quota(quota: str) -> None:
    assert _cgroup.limits(tree("0::/", V2, **{"sys/fs/cgroup/cpu.max": quota})).quota is None


@pytest.mark.parametrize("groups", ["", "nonsense", "0:", "0::", "0::relative", "x:y:z", ":::"])
@pytest.mark.parametrize(
    "mounts", ["", "nonsense", " - ", "1 2 3 - cgroup2", f"{V2}\n - cgroup2 x", "1 2 3 4 5 - "]
)
def test_other_text_allows_all(groups: str, mounts: str) -> None:
    assert _cgroup.limits(tree(groups, mounts)) == Limits()


def test_without_proc_nothing_is_known() -> None:
    assert _cgroup.seats(machines.Memory({})) == []
    assert _cgroup.limits(machines.Memory({})) == Limits()


def test_this_process_has_a_seat_or_none() -> None:
    for seat in _cgroup.seats():
        assert seat.version in {1, 2}
    quota = _cgroup.limits().quota
    assert quota is None or quota > 0
