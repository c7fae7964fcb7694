"""Memory bandwidth and cache ways, against files that answer as the kernel does: no machine here has them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from support import kernel
from vlcs._core import _kernel_text, _resctrl
from vlcs._core._group import Refusal
from vlcs._core._quality import Quality
from vlcs._core._resctrl import Resctrl

if TYPE_CHECKING:
    from pathlib import Path


def made(root: kernel.Kernel) -> list[kernel.Kernel]:
    return sorted((root / kernel.RESCTRL).glob("vlcs-*"))


def lines(resctrl: Resctrl) -> dict[str, Any]:
    return {line.name: line for line in resctrl.resources(resident=False)}


def schemata(group: kernel.Kernel) -> list[str]:
    return group.words("schemata")


def test_nothing_is_made_for_nothing(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    resctrl = Resctrl(Quality(), {0}, root)
    assert resctrl.files == ()
    assert made(root) == []
    assert "not asked for; by the CPU, as a resctrl group in" in lines(resctrl)["bandwidth"].reason


def test_bandwidth_and_ways_of_the_caches_of_the_slice(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    resctrl = Resctrl(Quality(bandwidth=25, cache_ways=4), {0, 1}, root)
    (group,) = made(root)
    assert resctrl.files == (str(group / "tasks"),)
    assert schemata(group) == ["L3:0=f;1=7ff", "MB:0=30;1=100"]
    assert [(line.state, line.granted) for line in lines(resctrl).values()] == [
        ("enforced", "30 % of cache domain 0"),
        ("enforced", "4 of 11 ways of cache domain 0"),
    ]
    assert "other groups may use the same" in lines(resctrl)["cache_ways"].reason
    resctrl.remove()
    assert made(root) == []


@pytest.mark.parametrize(("asked", "mask"), [(0.5, "1f"), (1.0, "7ff"), (0.01, "3"), (1, "3"), (11, "7ff")])
def test_how_many_ways(asked: float, mask: str, tmp_path: Path) -> None:
    """Rounded down, and never below what the CPU can tell apart, which is 2 here."""
    root = kernel.with_resctrl(tmp_path)
    resctrl = Resctrl(Quality(cache_ways=asked), {3}, root)
    assert schemata(made(root)[0])[0] == f"L3:0=7ff;1={mask}"
    resctrl.remove()


def test_contexts_get_ways_of_their_own_while_there_are_some(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    contexts = [Resctrl(Quality(cache_ways=4), {0}, root) for _ in range(3)]
    masks = [schemata(group)[0] for group in made(root)]
    # The third must share: of the three that are left two are the hardware's too (shareable_bits).
    assert masks == ["L3:0=f;1=7ff", "L3:0=f0;1=7ff", "L3:0=1e0;1=7ff"]
    for resctrl in contexts:
        resctrl.remove()


def test_more_ways_than_there_are(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    with pytest.raises(vlcs.ArgumentError, match="cache_ways=12: the last-level cache has 11 ways"):
        Resctrl(Quality(cache_ways=12), {0}, root)
    assert made(root) == []


def test_a_resize_divides_the_new_caches_and_gives_the_old_ones_back(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    resctrl = Resctrl(Quality(bandwidth=50, cache_ways=2), {0}, root)
    (group,) = made(root)
    with resctrl.moving({2}):
        assert schemata(group) == ["L3:0=7ff;1=3", "MB:0=100;1=50"]
    with pytest.raises(ZeroDivisionError), resctrl.moving({0}):
        raise ZeroDivisionError
    assert schemata(group) == ["L3:0=7ff;1=3", "MB:0=100;1=50"]
    assert lines(resctrl)["bandwidth"].granted == "50 % of cache domain 1"
    resctrl.remove()


def test_a_forked_child_leaves_the_group_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kernel.with_resctrl(tmp_path)
    resctrl = Resctrl(Quality(bandwidth=50), {0}, root)
    before = schemata(made(root)[0])
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    with pytest.raises(vlcs.SystemRefusedError, match=r"since fork\(\)"), resctrl.moving({2}):
        pytest.fail("the slice was changed")
    assert schemata(made(root)[0]) == before


def test_no_more_groups_than_the_cpu_knows(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    contexts = [Resctrl(Quality(bandwidth=50), {0}, root) for _ in range(4)]
    assert [lines(resctrl)["bandwidth"].state for resctrl in contexts] == [*["enforced"] * 3, "unavailable"]
    last = lines(contexts[-1])["bandwidth"]
    assert "No space left on device (ok)" in last.reason
    assert "num_closids" in last.cure
    for resctrl in contexts:
        resctrl.remove()
    assert made(root) == []


def test_a_thread_outside_of_the_group_is_found(tmp_path: Path) -> None:
    root = kernel.with_resctrl(tmp_path)
    resctrl = Resctrl(Quality(bandwidth=50), {0}, root)
    (group,) = made(root)
    (group / "tasks").put("5")
    assert list(resctrl.differences(5)) == []
    assert list(resctrl.differences(6)) == [f"is not in the resctrl group {group}"]
    resctrl.remove()


REFUSED: dict[str, tuple[Any, str, str, str]] = {
    "no resctrl": (kernel.root, "MB", "neither the kernel nor the CPU divides memory bandwidth", "rdt_a"),
    "not mounted": (
        lambda folder: kernel.with_resctrl(folder, mounted=False),
        "L3",
        "is not mounted",
        "mount -t resctrl",
    ),
    "cache only": (
        lambda folder: kernel.with_resctrl(folder, schemata=["L3:0=7ff"], info=["L3"]),
        "MB",
        "this CPU does not divide memory bandwidth",
        "Intel RDT",
    ),
    "by code and data": (
        lambda folder: kernel.with_resctrl(folder, schemata=["L3CODE:0=7ff"], info=["L3CODE", "L3DATA"]),
        "L3",
        "mounted with `cdp`",
        "umount",
    ),
    "AMD": (
        lambda folder: kernel.with_resctrl(folder, schemata=["L3:0=7ff;1=7ff", "MB:0=2048;1=2048"]),
        "MB",
        "not counted in per cent",
        "schemata",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_had(case: str, tmp_path: Path) -> None:
    make, name, reason, cure = REFUSED[case]
    root = make(tmp_path)
    found = _resctrl.find(name, root)
    assert isinstance(found, Refusal)
    assert reason in found.reason
    assert cure in found.cure
    resctrl = Resctrl(Quality(bandwidth=50, cache_ways=2), {0}, root)
    option = "bandwidth" if name == "MB" else "cache_ways"
    assert lines(resctrl)[option].state == "unavailable"
    resctrl.remove()
    assert made(root) == []


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kernel.with_resctrl(tmp_path)
    monkeypatch.setattr(_kernel_text, "is_writable", lambda _: False)
    found = _resctrl.find("L3", root)
    assert isinstance(found, Refusal)
    assert "may not make groups" in found.reason
    assert "root" in found.cure
