"""Which nodes a context's memory may lie on, and what holds it there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from support.machines import machine
from vlcs._core import _instance, _memory
from vlcs._core._errors import from_status
from vlcs._core._memory import MemoryRequest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Native


@pytest.mark.parametrize(
    ("nodes", "read"), [(1, {1}), ("0-1", {0, 1}), ([3, 0], {0, 3}), (range(2), {0, 1}), ({2}, {2})]
)
def test_forms_of_nodes(nodes: Any, read: set[int]) -> None:
    assert _memory.read("bind", nodes) == MemoryRequest("bind", frozenset(read))


def test_nothing_asked_for() -> None:
    assert _memory.read(None, None) == MemoryRequest()
    assert MemoryRequest().number == 0
    assert [_memory.read(policy, None).number for policy in ("bind", "preferred", "interleave", "local")] == [
        *range(1, 5)
    ]


class Compared:
    """Is compared with each of its elements, as an array: whether it is equal cannot be said."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("default", None), "cannot read memory='default'"),
        ((True, None), "cannot read memory=True"),
        ((Compared(), None), "cannot read memory=<"),
        ((None, 0), "memory_nodes=0 without memory="),
        (("local", "0"), "memory_nodes='0' with memory=\"local\""),
        *(
            (("bind", nodes), f"cannot read memory_nodes={nodes!r}")
            for nodes in ("", "x", -1, [], True, 1.0, b"0", [0.5], object)
        ),
    ],
)
def test_what_cannot_be_read(options: tuple[Any, Any], words: str) -> None:
    with pytest.raises(vlcs.ArgumentError, match=words.replace("[", r"\[").replace("(", r"\(")):
        _memory.read(*options)


def test_nodes_that_cannot_be_had_are_named() -> None:
    four = machine("xeon-snc2")
    _memory.check(MemoryRequest("bind", frozenset({0, 3})), four)
    with pytest.raises(vlcs.ArgumentError, match="node 9: the machine has no such node") as error:
        _memory.check(MemoryRequest("bind", frozenset({0, 9})), four)
    assert error.value.subject == "9"
    with pytest.raises(vlcs.ArgumentError, match=r"node 1: .* \(cpuset.mems of its control group\)"):
        _memory.check(MemoryRequest("bind", frozenset({0, 1})), replace(four, nodes=frozenset({0, 2})))
    empty = replace(four.topology.nodes[2], size=0)
    topology = replace(four.topology, nodes={**four.topology.nodes, 2: empty})
    with pytest.raises(vlcs.ArgumentError, match="node 2: there is no memory on it"):
        _memory.check(
            MemoryRequest("bind", frozenset({2})), replace(four, topology=topology, nodes=frozenset({0}))
        )


class TestReport:
    """Each row of the table in docs/slices.md."""

    def line(self, on: str, request: MemoryRequest, nodes: set[int], refused: str | None = None) -> Any:
        return _memory.resource(request, nodes, machine(on), refused).data()

    def test_one_node(self) -> None:
        for request in (MemoryRequest(), MemoryRequest("bind"), MemoryRequest("local")):
            line = self.line("laptop", request, set())
            assert (line["state"], line["granted"], line["cure"]) == ("enforced", "node 0", "")
        assert line["requested"] == 'memory="local"'
        # Also where the kernel refuses: there is nothing that it could do.
        assert self.line("laptop", MemoryRequest("bind"), {0}, "no NUMA")["state"] == "enforced"

    def test_no_policy(self) -> None:
        line = self.line("xeon-snc2", MemoryRequest(), set())
        assert (line["state"], line["requested"], line["granted"]) == ("advisory", None, "node 0-3")
        assert "touches them first" in line["reason"]

    def test_a_part_of_the_nodes(self) -> None:
        line = self.line("xeon-snc2", MemoryRequest("bind", frozenset({1, 2})), {1, 2})
        assert (line["state"], line["granted"]) == ("advisory", "bound to node 1-2")
        assert line["requested"] == 'memory="bind", memory_nodes="1-2"'
        assert "mbind" in line["reason"]

    def test_heap_of_the_host(self) -> None:
        on = machine("xeon-snc2")
        line = _memory.resource(MemoryRequest("bind", frozenset({1})), {1}, on, own_heap=False)
        assert "not the heap, which is the host's" in line.reason

    def test_all_nodes(self) -> None:
        line = self.line("xeon-snc2", MemoryRequest("bind", frozenset(range(4))), {0, 1, 2, 3})
        assert line["state"] == "enforced"
        for policy in ("preferred", "interleave", "local"):
            assert self.line("xeon-snc2", MemoryRequest(policy), {0, 1, 2, 3})["state"] == "advisory"

    def test_kernel_that_refuses(self) -> None:
        line = self.line("xeon-snc2", MemoryRequest("bind"), set(), "no policy of memory can be set: because")
        assert (line["state"], line["granted"]) == ("unavailable", None)
        assert "because" in line["reason"]
        assert "--cap-add SYS_NICE" in line["cure"]


class TestContext:
    @pytest.fixture(autouse=True)
    def four_nodes(self, native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
        del native  # which has a machine of its own, to be replaced
        monkeypatch.setattr(_instance.REGISTRY, "machine", lambda: machine("xeon-snc2"))
        self.refusal: Exception | None = None

        def allowed() -> list[int]:
            if self.refusal:
                raise self.refusal
            return [0, 1, 2, 3]

        monkeypatch.setattr(_memory._native, "allowed_nodes", allowed)

    def test_what_is_asked_for_reaches_the_native_side(self) -> None:
        vlc = vlcs.VLC(memory="interleave", memory_nodes=[2, 1], memory_limit="1GiB", huge_pages=False)
        options = vlc._instance.native.options  # type: ignore[attr-defined]
        assert (options["memory"], options["nodes"]) == (3, [1, 2])
        assert (options["memory_limit"], options["huge_pages"]) == (1 << 30, 2)
        report = vlc.slice.report()
        assert report["memory"]["granted"] == "interleaved over node 1-2"
        assert report["memory_limit"]["granted"] == "1GiB"
        vlc.memory_limit = "512MiB"
        assert vlc.memory_limit == options["memory_limit"] == 1 << 29
        assert vlc.slice.report()["memory_limit"]["granted"] == "512MiB"
        vlc.memory_limit = None
        assert vlc.memory_limit is None

    def test_a_context_is_made_without_where_the_kernel_refuses(self) -> None:
        self.refusal = from_status(5, "no policy of memory can be set: a seccomp filter", "mbind", 1)
        with pytest.warns(vlcs.UnavailableWarning, match='memory="bind" of the context .* seccomp filter'):
            vlc = vlcs.VLC(memory="bind")
        assert vlc._instance.native.options["memory"] == 0  # type: ignore[attr-defined]
        assert vlc.slice.report()["memory"]["state"] == "unavailable"

    def test_another_policy(self) -> None:
        vlc = vlcs.VLC(memory="bind", memory_nodes=3)
        vlc.set_memory("interleave", "0-1")
        assert vlc.slice.report()["memory"]["granted"] == "interleaved over node 0-1"
        with pytest.raises(vlcs.ArgumentError, match="node 7"):
            vlc.set_memory("bind", 7)
        assert vlc._instance.native.memory() == (3, [0, 1])
        vlc.set_memory(None)
        assert vlc.slice.report()["memory"]["requested"] is None
        assert vlc.migrate_memory() == vlcs.Migration(moved=8192, left=4096)
        assert (vlc.stats().node_bytes, vlc.stats(nodes=True).node_bytes) == (None, {0: 4096, 2: 8192})

    def test_another_policy_where_the_kernel_refuses(self) -> None:
        vlc = vlcs.VLC()
        self.refusal = from_status(5, "no policy of memory can be set: why", "mbind", 1)
        with pytest.warns(vlcs.UnavailableWarning, match='memory="bind" .* why'):
            vlc.set_memory("bind")
        assert vlc._instance.native.memory()[0] == 0

    def test_bad_nodes_make_nothing(self) -> None:
        with pytest.raises(vlcs.ArgumentError, match="NUMA node 7"):
            vlcs.VLC("far", memory="bind", memory_nodes=7)
        assert "far" not in [vlc.name for vlc in vlcs.contexts()]


@pytest.mark.parametrize(
    ("line", "policy", "nodes", "words"),
    [
        ("55aa default file=/bin/x mapped=2", "bind", {0}, "has the memory policy default, not bind:0"),
        ("55aa bind:0-1 file=/bin/x", "bind", {0, 1}, None),
        ("55aa bind:0 file=/bin/x", "bind", {0, 1}, None),
        ("55aa interleave:0-1 file=/bin/x", "bind", {0, 1}, None),
        ("55aa bind=static:0 file=/bin/x", "bind", {0, 1}, None),
        ("55aa bind:0,2 file=/bin/x", "bind", {0, 1}, "has the memory policy bind:0,2, not bind:0-1"),
        ("55aa prefer:0 file=/bin/x", "bind", {0, 1}, "has the memory policy prefer:0, not bind:0-1"),
        (
            "55aa prefer (many):0-1 file=/bin/x",
            "bind",
            {0},
            "has the memory policy prefer (many):0-1, not bind:0",
        ),
        ("55aa prefer (many):0-1 file=/bin/x", "preferred", {0, 1}, None),
        ("55aa local stack", "local", set(), None),
        ("55aa default stack", "local", set(), "has the memory policy default, not local"),
        ("55aa bind:0 stack", "interleave", {0, 1}, None),
        ("", "bind", {0}, None),
        (None, "bind", {0}, None),
    ],
)
def test_policy_of_a_thread(
    tmp_path: Path, line: str | None, policy: str, nodes: set[int], words: str | None
) -> None:
    if line is not None:
        folder = tmp_path / "proc/self/task/77"
        folder.mkdir(parents=True)
        (folder / "numa_maps").write_text(f"{line}\n55ab default\n")
    assert list(_memory.differences(77, policy, nodes, tmp_path)) == ([words] if words else [])
