"""Control groups of contexts, against files that answer as the kernel does; tests/system has the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from support import kernel
from vlcs._core import _control, _group, _kernel_text
from vlcs._core._control import Control
from vlcs._core._quality import Quality

if TYPE_CHECKING:
    from pathlib import Path

ALL = Quality(weight=200, quota=0.5, confine=True)


def made(root: kernel.Kernel) -> list[kernel.Kernel]:
    """Folders of contexts, wherever they are."""
    return sorted(folder for folder in root.rglob("vlcs-*") if folder.is_dir())


def lines(control: Control) -> dict[str, Any]:
    return {line.name: line for line in control.resources(resident=False)}


def test_nothing_is_made_for_nothing(tmp_path: Path) -> None:
    root = kernel.with_v2(tmp_path)
    control = Control(Quality(nice=3), {0}, root=root)
    assert control.files == ()
    assert made(root) == []
    assert {line.state for line in control.resources(resident=False)} == {"enforced"}
    assert "not asked for; by a control group below" in lines(control)["weight"].reason


def test_version_2(tmp_path: Path) -> None:
    root = kernel.with_v2(tmp_path)
    control = Control(ALL, {1, 2}, root=root)
    (folder,) = made(root)
    assert folder.parent == root / kernel.V2 / "mine"
    assert control.files == (str(folder / "cgroup.threads"),)
    values = {
        "cgroup.type": "threaded",
        "cpu.weight": "200",
        "cpu.max": "50000 100000",
        "cpuset.cpus": "1-2",
        "cpuset.mems": "",
    }
    assert {name: (folder / name).read_text().strip() for name in values} == values
    assert folder.parent.words("cgroup.subtree_control") == ["cpu", "cpuset"]
    assert [(line.state, line.granted) for line in lines(control).values()] == [
        ("enforced", "200"),
        ("enforced", "0.5 CPUs"),
        ("enforced", "CPU 1-2"),
    ]
    control.remove()
    assert made(root) == []
    assert folder.parent.words("cgroup.subtree_control") == []


def test_only_the_controllers_that_are_needed_are_given(tmp_path: Path) -> None:
    root = kernel.with_v2(tmp_path)
    control = Control(Quality(quota=1.5), {0}, root=root)
    assert (root / kernel.V2 / "mine").words("cgroup.subtree_control") == ["cpu"]
    control.remove()


def test_what_was_given_before_and_what_others_use_stays_given(tmp_path: Path) -> None:
    root = kernel.with_v2(tmp_path, given="cpu")
    above = root / kernel.V2 / "mine"
    first, second = Control(ALL, {0}, root=root), Control(ALL, {1}, root=root)
    first.remove()
    assert above.words("cgroup.subtree_control") == ["cpu", "cpuset"]
    second.remove()
    assert above.words("cgroup.subtree_control") == ["cpu"]
    third = Control(ALL, {0}, root=root)
    (above / "cgroup.procs").put("1\n2")  # another process, which may be about to make a group
    third.remove()
    assert above.words("cgroup.subtree_control") == ["cpu", "cpuset"]


def test_version_1(tmp_path: Path) -> None:
    root = kernel.with_v1(tmp_path)
    control = Control(ALL, {1, 2}, root=root)
    cpu, cpuset = made(root)
    assert (cpu.parent.name, cpuset.parent.name) == ("cpu,cpuacct", "cpuset")
    assert control.files == (str(cpu / "tasks"), str(cpuset / "tasks"))
    assert [cpu.words(name) for name in ("cpu.shares", "cpu.cfs_quota_us")] == [["2048"], ["50000"]]
    assert [cpuset.words(name) for name in ("cpuset.cpus", "cpuset.mems")] == [["1-2"], ["0-1"]]
    control.remove()
    assert made(root) == []


def test_the_least_weight_of_version_1(tmp_path: Path) -> None:
    root = kernel.with_v1(tmp_path)
    control = Control(Quality(weight=1), {0}, root=root)
    assert made(root)[0].words("cpu.shares") == ["10"]
    control.remove()


@pytest.mark.parametrize("make", [kernel.with_v1, kernel.with_v2])
def test_a_resize_widens_the_cpuset_before_it_cuts_it(make: Any, tmp_path: Path) -> None:
    root = make(tmp_path)
    control = Control(Quality(confine=True), {0}, root=root)
    (folder,) = made(root)
    with control.moving({2, 3}):
        assert folder.words("cpuset.cpus") == ["0,2-3"]
    assert folder.words("cpuset.cpus") == ["2-3"]
    assert lines(control)["confine"].granted == "CPU 2-3"
    with pytest.raises(ZeroDivisionError), control.moving({1}):
        raise ZeroDivisionError
    assert folder.words("cpuset.cpus") == ["2-3"]
    with (
        pytest.raises(vlcs.SystemRefusedError, match=r"cannot move the cpuset .* to CPU 9"),
        control.moving({9}),
    ):
        raise AssertionError
    assert folder.words("cpuset.cpus") == ["2-3"]
    assert lines(control)["confine"].granted == "CPU 2-3"
    control.remove()


def test_a_resize_leaves_cpus_that_the_group_above_has_lost(tmp_path: Path) -> None:
    root = kernel.with_v2(tmp_path)
    control = Control(Quality(confine=True), {0, 1}, root=root)
    (folder,) = made(root)
    (folder.parent / "cpuset.cpus.effective").put("1-3")
    with control.moving({1, 2}):
        assert folder.words("cpuset.cpus.effective") == ["1-2"]
    assert folder.words("cpuset.cpus") == ["1-2"]
    with pytest.raises(vlcs.SystemRefusedError, match=r"only 1-2 are given; .* lost"), control.moving({0}):
        pytest.fail("the slice was changed")
    assert lines(control)["confine"].granted == "CPU 1-2"
    control.remove()


def test_threads_that_are_left_go_to_the_group_above(tmp_path: Path) -> None:
    root = kernel.with_v1(tmp_path)
    control = Control(Quality(quota=1), {0}, root=root)
    (folder,) = made(root)
    (folder / "tasks").write_text("4711")
    control.remove()
    assert made(root) == []
    assert "4711" in folder.parent.words("tasks")


def test_a_forked_child_leaves_its_parents_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kernel.with_v2(tmp_path)
    control = Control(ALL, {0}, root=root)
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    with (
        pytest.raises(vlcs.SystemRefusedError, match=r"it is the parent's; nothing was changed"),
        control.moving({1}),
    ):
        pytest.fail("the slice was changed")
    assert made(root)[0].words("cpuset.cpus") == ["0"]
    control.remove()
    assert len(made(root)) == 1


class TestLeftovers:
    """Of processes that were killed: found by their names."""

    def leave(self, root: kernel.Kernel, name: str) -> kernel.Kernel:
        folder = root / kernel.V2 / "mine" / name
        folder.mkdir()
        return folder

    def test_are_removed_by_the_next(self, tmp_path: Path) -> None:
        root = kernel.with_v2(tmp_path)
        left = self.leave(root, "vlcs-0-4711-99-1")
        stranger = self.leave(root, "vlcs-of-somebody")
        Control(Quality(quota=1), {0}, root=root).remove()
        assert not left.exists()
        assert stranger.exists()

    def test_are_kept_while_their_process_lives(self, tmp_path: Path) -> None:
        root = kernel.with_v2(tmp_path)
        left = self.leave(root, "vlcs-0-4711-99-1")
        fields = ["R", *("0" for _ in range(18)), "99"]
        (root / "proc/4711/stat").put(f"4711 (a) name) {' '.join(fields)}")
        _group.sweep(left.parent, "cgroup.threads", root)
        assert left.exists()
        (root / "proc/4711/stat").put(f"4711 (a) {' '.join(fields[:-1])} 100")  # the id was given anew
        _group.sweep(left.parent, "cgroup.threads", root)
        assert not left.exists()

    def test_are_kept_while_somebody_is_in_them(self, tmp_path: Path) -> None:
        root = kernel.with_v2(tmp_path)
        left = self.leave(root, "vlcs-0-4711-99-1")
        (left / "cgroup.threads").put("4712")
        _group.sweep(left.parent, "cgroup.threads", root)
        assert left.exists()

    def test_of_other_containers_are_not_judged(self, tmp_path: Path) -> None:
        root = kernel.with_v2(tmp_path)
        left = self.leave(root, "vlcs-4026531836-4711-99-1")
        _group.sweep(left.parent, "cgroup.threads", root)
        assert left.exists()


REFUSED = {
    "none mounted": (
        kernel.root,
        "weight",
        "no control groups can be seen here",
        "systemd-run",
    ),
    "no controller": (
        lambda folder: kernel.with_v2(folder, controllers="memory pids"),
        "weight",
        "is not given the controller 'cpu'",
        "Delegate=cpu cpuset",
    ),
    "domain invalid": (
        lambda folder: kernel.with_v2(folder, kind="domain invalid"),
        "confine",
        "is 'domain invalid'",
        "holds nothing else",
    ),
    "domain controllers": (
        lambda folder: kernel.with_v2(folder, given="memory"),
        "quota",
        "it gives domain controllers (memory, io) to groups below it",
        "holds nothing else",
    ),
    "quota above": (
        lambda folder: kernel.with_v1(folder, quota=20000),
        "quota",
        "the process's own control groups allow it 0.2 CPUs",
        "Ask for less",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_had_is_unavailable_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    make, option, reason, cure = REFUSED[case]
    root = make(tmp_path)
    before = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    control = Control(ALL, {0}, root=root)
    line = lines(control)[option]
    assert (line.state, line.granted) == ("unavailable", None)
    assert reason in line.reason
    assert cure in line.cure
    control.remove()
    assert made(root) == []
    after = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before[path]}
    assert changed <= {"cgroup.threads", "tasks"}  # of threads that tried it and went back


def test_a_group_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kernel.with_v2(tmp_path)
    monkeypatch.setattr(_kernel_text, "is_writable", lambda _: False)
    found = _control.find("cpu", root)
    assert isinstance(found, _group.Refusal)
    assert "may not make control groups below its own" in found.reason
    assert "--privileged" in found.cure


def test_populated_groups_below_keep_threads_out(tmp_path: Path) -> None:
    """As that of a user's systemd, whose services are below it."""
    root = kernel.with_v2(tmp_path)
    service = root / kernel.V2 / "mine/app.service"
    service.mkdir()
    (service / "cgroup.procs").put("7")
    control = Control(ALL, {0}, root=root)
    assert "some of these hold processes" in lines(control)["quota"].reason
    assert made(root) == []


def test_cpus_that_the_group_above_lost(tmp_path: Path) -> None:
    root = kernel.with_v2(tmp_path)
    (root / kernel.V2 / "mine/cpuset.cpus.effective").put("0-1")
    control = Control(Quality(weight=5, confine=True), {1, 2}, root=root)
    line = lines(control)["confine"]
    assert line.state == "unavailable"
    assert "does not have all of the slice's CPUs" in line.reason
    assert "only 1 are given" in line.reason
    assert lines(control)["weight"].state == "enforced"  # one that is refused takes no other with it
    control.remove()
    assert made(root) == []


def test_cpus_that_the_group_above_lost_in_version_1(tmp_path: Path) -> None:
    """The kernel says EACCES, as if it were about rights."""
    root = kernel.with_v1(tmp_path, cpus="0-1")
    control = Control(Quality(confine=True), {1, 2}, root=root)
    line = lines(control)["confine"]
    assert "does not have all of the slice's CPUs" in line.reason
    assert "CPUs that it has" in line.cure
    assert made(root) == []


def test_a_thread_in_another_group_is_found(tmp_path: Path) -> None:
    root = kernel.with_v1(tmp_path)
    control = Control(Quality(quota=1), {0}, root=root)
    (folder,) = made(root)
    (root / "proc/self/task/5/cgroup").put(f"2:cpuset:/\n1:cpu,cpuacct:/{folder.name}\n0::/")
    assert list(control.differences(5)) == []
    (root / "proc/self/task/5/cgroup").put("2:cpuset:/\n1:cpu,cpuacct:/other\n0::/")
    assert list(control.differences(5)) == [f"is in the control group /other, not in {folder}"]
    with pytest.raises(ProcessLookupError):
        list(control.differences(6))
    control.remove()
