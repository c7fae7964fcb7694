"""Reading machines: recorded trees, and trees with holes."""

from pathlib import Path

import pytest

from vlcs._core import _topology


def tree(root: Path, cores: dict[int, tuple[int, str]], online: str | None) -> Path:
    """A /sys/devices/system/cpu: CPU number -> (package, its core's CPUs)."""
    for number, (package, siblings) in cores.items():
        topology = root / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_cpus_list").write_text(f"{siblings}\n")
    (root / "cpufreq").mkdir(exist_ok=True)
    if online is not None:
        (root / "online").write_text(f"{online}\n")
    return root


def test_desktop_with_smt(tmp_path: Path) -> None:
    root = tree(tmp_path, {0: (0, "0,2"), 1: (0, "1,3"), 2: (0, "0,2"), 3: (0, "1,3")}, "0-3")
    machine = _topology.read(root)
    assert machine.online == {0, 1, 2, 3}
    assert machine.siblings(0) == {0, 2}
    assert machine.siblings(3) == {1, 3}


def test_server_with_two_packages_and_an_offline_sibling(tmp_path: Path) -> None:
    root = tree(tmp_path, {0: (0, "0,4"), 1: (0, "1,5"), 2: (1, "2"), 4: (0, "0,4")}, "0-2,4")
    machine = _topology.read(root)
    assert machine.online == {0, 1, 2, 4}
    assert machine.siblings(1) == {1}
    assert [machine.package(number) for number in (0, 1, 2, 4)] == [0, 0, 1, 0]


def test_old_kernel_names_siblings_otherwise(tmp_path: Path) -> None:
    root = tree(tmp_path, {0: (0, "0-1"), 1: (0, "0-1")}, "0-1")
    for number in (0, 1):
        topology = root / f"cpu{number}" / "topology"
        (topology / "core_cpus_list").rename(topology / "thread_siblings_list")
    assert _topology.read(root).siblings(0) == {0, 1}


def test_without_online_the_folders_count(tmp_path: Path) -> None:
    assert _topology.read(tree(tmp_path, {0: (0, "0"), 7: (0, "7")}, None)).online == {0, 7}


def test_without_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    (tmp_path / "online").write_text("0-1\n")
    machine = _topology.read(tmp_path)
    assert machine.siblings(1) == {1}
    assert machine.package(1) == 0


def test_without_a_tree_the_fallback_counts(tmp_path: Path) -> None:
    assert _topology.read(tmp_path / "none", fallback={2, 3}).online == {2, 3}


def test_firmware_that_does_not_say_its_package(tmp_path: Path) -> None:
    assert _topology.read(tree(tmp_path, {0: (-1, "0")}, "0")).package(0) == 0


def test_this_machine_can_be_read() -> None:
    assert _topology.read().online


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), (" 1 , 3-4\n", {1, 3, 4}), ("5,5,4-5", {4, 5})],
)
def test_lists_are_read(text: str, numbers: set[int]) -> None:
    assert _topology.parse_list(text) == numbers


@pytest.mark.parametrize(
    "text", ["", ",", "a", "1-", "-1", "3-1", "1--2", "1;2", "0-99999999999", "1.5", "²"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        _topology.parse_list(text)


@pytest.mark.parametrize(
    ("numbers", "text"), [({0}, "0"), ({0, 1, 2, 3, 8}, "0-3,8"), ({1, 3, 5, 6}, "1,3,5-6"), (set(), "")]
)
def test_lists_are_written(numbers: set[int], text: str) -> None:
    assert _topology.format_list(numbers) == text
