"""The rig's machine as it is read, and what is chosen on it, also with CPUs switched off while we run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import hwloc
from support.child import run_child
from support.machine import rig
from vlcs._core import _topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CPUS = Path("/sys/devices/system/cpu")


@pytest.fixture
def switch_off() -> Iterator[Callable[[int], None]]:
    """Takes CPUs offline until the test ends."""
    rig()
    off: list[int] = []

    def switch(cpu: int) -> None:
        off.append(cpu)
        (CPUS / f"cpu{cpu}/online").write_text("0")

    yield switch
    for cpu in off:
        (CPUS / f"cpu{cpu}/online").write_text("1")


def same_as_hwloc() -> None:
    ours, theirs = hwloc.of(_topology.read()), hwloc.ask()
    hwloc.compare(replace(ours, kinds=()), replace(theirs, kinds=()))


def test_two_sockets_of_two_cores_with_two_threads() -> None:
    rig()
    machine = _topology.read()
    assert machine.online == set(range(8))
    assert machine.cores(machine.online) == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert [machine.package(cpu) for cpu in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {number: node.cpus for number, node in machine.nodes.items()} == {
        0: {0, 1, 2, 3},
        1: {4, 5, 6, 7},
    }
    assert machine.nodes[0].distances == {0: 10, 1: 21}
    assert {cache.cpus for cache in machine.caches if cache.level == 3} == {
        frozenset(range(4)),
        frozenset(range(4, 8)),
    }
    same_as_hwloc()


def test_hwloc_sees_the_same_with_cpus_off(switch_off: Callable[[int], None]) -> None:
    switch_off(3)  # half a core
    same_as_hwloc()
    for cpu in (4, 5, 6, 7):  # a whole node, which keeps its memory
        switch_off(cpu)
    same_as_hwloc()
    machine = _topology.read()
    assert (machine.online, machine.offline) == ({0, 1, 2}, {3, 4, 5, 6, 7})
    assert machine.nodes[1].cpus == frozenset()


def test_places_on_two_nodes() -> None:
    """Each choice as the documented rules have it, by masks that the kernel gave the contexts' threads."""
    rig()
    run_child(
        """
        import contextlib, vlcs

        def where():
            import os
            return tuple(sorted(os.sched_getaffinity(0)))

        def placed(**options):
            vlc = vlcs.VLC(**options)
            assert vlc.submit(where).result() == vlc.cpus and vlc.verify().holds
            return contextlib.closing(vlc)

        with placed(cores=1) as a, placed(cores=1) as b, placed(node=1, cores=1) as c:
            assert (a.cpus, b.cpus, c.cpus) == ((0, 1), (2, 3), (4, 5)), (a.cpus, b.cpus, c.cpus)
        with placed(name="far", node=1, cpus=1) as far, placed(near="far", cores=1) as near:
            assert (far.cpus, near.cpus) == ((4,), (6, 7)), (far.cpus, near.cpus)
            assert near.slice.nodes == (1,)
        with placed(cores=2) as whole:  # a node before parts of two
            assert whole.slice.nodes == (0,)
        with placed(cpus=4) as spread:  # whole cores before one node
            assert spread.cpus == (0, 2, 4, 6) and spread.slice.nodes == (0, 1)
        with placed(fraction=0.5) as a, placed(fraction=0.5) as b:
            assert (a.slice.nodes, b.slice.nodes) == ((0,), (1,))
        with placed(node=0, exclusive=True) as a, placed(cores=2) as b:
            assert (a.cpus, b.cpus) == ((0, 1, 2, 3), (4, 5, 6, 7))
            try:
                vlcs.VLC(cores=1, exclusive=True)
            except vlcs.LimitError:
                pass
            else:
                raise AssertionError
        plan = vlcs.plan({"a": {"cores": 1, "near": "b"}, "b": {"cores": 1}, "c": {"node": 0}})
        assert plan["contexts"]["a"]["nodes"] == plan["contexts"]["b"]["nodes"] == [1], plan
        """,
        timeout=30,
    )


def test_a_cpu_that_goes_while_contexts_run(switch_off: Callable[[int], None]) -> None:
    """A request sees what is online. Where the kernel undoes masks, verify() says so; resize() cures it."""
    switch_off(2)
    run_child(
        """
        import os, pathlib, vlcs

        def where():
            import os
            return tuple(sorted(os.sched_getaffinity(0)))

        a, b = vlcs.VLC(node=1), vlcs.VLC(cores=2)
        assert (a.cpus, b.cpus) == ((4, 5, 6, 7), (0, 1, 3)), (a.cpus, b.cpus)
        try:
            vlcs.VLC(cpus={2})
        except vlcs.ArgumentError as error:
            assert "offline" in str(error), error
        else:
            raise AssertionError
        assert a.submit(where).result() == a.cpus
        pathlib.Path("/sys/devices/system/cpu/cpu6/online").write_text("0")
        try:
            assert a.submit(where).result() == (4, 5, 7)
            # Linux before 6.2 gives all threads of a cpuset the whole of it then.
            masks = [set(os.sched_getaffinity(task)) for task in a.threads()]
            assert a.verify().holds == all(mask <= set(a.cpus) for mask in masks), masks
        finally:
            pathlib.Path("/sys/devices/system/cpu/cpu6/online").write_text("1")
        a.resize(node=1)
        assert a.submit(where).result() == a.cpus == (4, 5, 6, 7) and a.verify().holds
        """,
        timeout=30,
    )
