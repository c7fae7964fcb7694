"""Placing the contexts of a program at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from support import machines
from support.machines import machine
from vlcs._core import _choice, _placement, _request
from vlcs._core._choice import Claim
from vlcs._core._kernel_text import parse_list

if TYPE_CHECKING:
    from vlcs._core._machine import Machine


def place(name: str, claims: tuple[Claim, ...] = (), **contexts: dict[str, Any]) -> dict[str, Any]:
    return _placement.place(contexts, machine(name), claims)


def cpus(plan: dict[str, Any]) -> dict[str, str]:
    return {name: context["cpus"] for name, context in plan["contexts"].items()}


def one_by_one(on: Machine, **contexts: dict[str, Any]) -> dict[str, frozenset[int]]:
    """What the contexts get when each is made as if no other came after it."""
    claims: list[Claim] = []
    for name, options in contexts.items():
        request = _request.read(**options)
        assert request is not None
        claims.append(Claim(name, frozenset(_choice.choose(request, on, claims).cpus), request.exclusive))
    return {claim.context: claim.cpus for claim in claims}


def test_plan_is_plain_data_that_says_all() -> None:
    plan = place("laptop", blas={"cores": 2, "exclusive": True}, nn={"fraction": 0.25, "near": "blas"})
    assert plan == {
        "contexts": {
            "blas": {
                "request": "cores=2, exclusive=True",
                "cpus": "0-1,4-5",
                "nodes": [0],
                "why": "4 CPUs on 2 cores",
                "overlaps": {},
            },
            "nn": {
                "request": 'fraction=0.25, near="blas"',
                "cpus": "2,6",
                "nodes": [0],
                "why": "2 CPUs on 1 core, 0.25 of 8 CPUs; next to 'blas': in its cache domain",
                "overlaps": {},
            },
        },
        "options": {"blas": {"cpus": [0, 1, 4, 5], "exclusive": True}, "nn": {"cpus": [2, 6]}},
        "order": ["blas", "nn"],
        "free": "3,7",
        "notes": [],
    }
    assert json.loads(json.dumps(plan)) == plan


def test_other_options_go_through() -> None:
    plan = place("laptop", a={"cores": 1, "env": {"X": "1"}, "threads": 2}, b={"python": "/venv"})
    assert plan["options"] == {
        "a": {"cpus": [0, 4], "env": {"X": "1"}, "threads": 2},
        "b": {"python": "/venv"},
    }


def test_nothing_to_place() -> None:
    assert place("laptop") == {"contexts": {}, "options": {}, "order": [], "free": "0-7", "notes": []}


class TestBetterThanOneByOne:
    """Each case is one where contexts that are made one by one meet, or lie worse."""

    def test_lists_come_first(self) -> None:
        asked: dict[str, dict[str, Any]] = {"any": {"cpus": 2}, "fixed": {"cpus": "0-3"}}
        single = one_by_one(machine("desktop"), **asked)
        assert single["any"] & single["fixed"]
        assert cpus(place("desktop", **asked)) == {"any": "4-5", "fixed": "0-3"}

    def test_exclusive_ones_come_before_others(self) -> None:
        asked: dict[str, dict[str, Any]] = {"any": {"cores": 4}, "alone": {"cores": 3, "exclusive": True}}
        with pytest.raises(vlcs.LimitError):
            one_by_one(machine("desktop"), **asked)
        plan = _placement.place({"any": {"cores": 3}, "alone": asked["alone"]}, machine("desktop"))
        assert plan["order"] == ["alone", "any"]
        assert not plan["contexts"]["any"]["overlaps"]

    def test_those_on_a_node_come_before_those_anywhere(self) -> None:
        asked: dict[str, dict[str, Any]] = {"any": {"cores": 8}, "here": {"cores": 8, "node": 0}}
        single = one_by_one(machine("xeon-2s"), **asked)
        assert single["any"] == single["here"]
        plan = place("xeon-2s", **asked)
        assert plan["contexts"]["here"]["nodes"] == [0]
        assert plan["contexts"]["any"]["nodes"] == [1]

    def test_also_before_exclusive_ones_anywhere(self) -> None:
        plan = place("xeon-2s", alone={"cores": 8, "exclusive": True}, here={"cores": 8, "node": 0})
        assert plan["contexts"]["here"]["nodes"] == [0]
        assert plan["contexts"]["alone"]["nodes"] == [1]

    def test_large_ones_come_before_small_ones(self) -> None:
        """Domains of 8 and, for the claims of another, 7: a small one would break the gap of 7."""
        on = machine("epyc-192")
        taken = Claim("other", frozenset(range(15, 192)), exclusive=True)
        on = replace(on, allowed=on.allowed - taken.cpus)
        asked: dict[str, dict[str, Any]] = {"small": {"cores": 1}, "seven": {"cores": 7}, "too": {"cores": 7}}

        def domains(numbers: frozenset[int]) -> int:
            return len({on.topology.cpu(number).domain for number in numbers})

        single = one_by_one(on, **asked)
        assert [domains(single[name]) for name in asked] == [1, 1, 2]
        plan = _placement.place(asked, on)
        planned = [frozenset(plan["options"][name]["cpus"]) for name in asked]
        assert [domains(numbers) for numbers in planned] == [1, 1, 1]
        assert len(frozenset().union(*planned)) == 15

    def test_neighbours_are_given_one_region(self) -> None:
        """One by one, `blas` fills the gap of node 0, and nothing is left there for `nn`."""
        on = machine("xeon-2s")
        taken = Claim("other", frozenset({0, 2, 4, 6, 16, 18, 20, 22}), exclusive=False)
        asked: dict[str, dict[str, Any]] = {"blas": {"cores": 4}, "nn": {"cores": 4, "near": "blas"}}
        plan = _placement.place(asked, on, [taken])
        assert [plan["contexts"][name]["nodes"] for name in asked] == [[1], [1]]
        assert plan["contexts"]["nn"]["why"].endswith("next to 'blas': in its cache domain")

    def test_numbers_of_cpus_take_whole_cores_when_cores_are_short(self) -> None:
        on = machine("laptop")
        asked: dict[str, dict[str, Any]] = {"a": {"cpus": 4}, "b": {"cpus": 4}}

        def met(one: frozenset[int], other: frozenset[int]) -> list[frozenset[int]]:
            return [core for core in on.topology.cores(on.allowed) if core & one and core & other]

        single = one_by_one(on, **asked)
        assert len(met(single["a"], single["b"])) == 4
        plan = _placement.place(asked, on)
        assert cpus(plan) == {"a": "0-1,4-5", "b": "2-3,6-7"}
        assert "whole cores with their hardware threads" in plan["notes"][0]

    def test_without_hardware_threads_there_is_nothing_to_pack(self) -> None:
        on = machine("laptop")
        allowed = frozenset(min(core) for core in on.topology.cores(on.allowed))
        plan = _placement.place({"a": {"cpus": len(allowed)}, "b": {"cpus": 1}}, replace(on, allowed=allowed))
        assert [note for note in plan["notes"] if "hardware threads" in note] == []
        assert len(plan["notes"]) == 1  # that CPUs are shared

    def test_and_each_its_own_core_when_there_are_enough(self) -> None:
        plan = place("laptop", a={"cpus": 2}, b={"cpus": 2})
        assert cpus(plan) == {"a": "0-1", "b": "2-3"}
        assert plan["notes"] == []


def test_chains_of_neighbours() -> None:
    plan = place(
        "epyc-nps4", c={"cores": 2, "near": "b"}, b={"cores": 1, "near": "a"}, a={"cores": 5}, d={"cores": 8}
    )
    assert plan["order"] == ["a", "b", "c", "d"]
    assert {name: context["nodes"] for name, context in plan["contexts"].items()} == {
        "c": [0],
        "b": [0],
        "a": [0],
        "d": [1],
    }


def test_near_an_open_context() -> None:
    plan = place(
        "epyc-nps4", (Claim("open", frozenset({40, 104}), exclusive=False),), a={"cores": 2, "near": "open"}
    )
    assert plan["contexts"]["a"]["cpus"] == "41-42,105-106"


def test_near_a_list() -> None:
    plan = place("epyc-192", a={"cores": 2, "near": "b"}, b={"cpus": "100-101"})
    assert cpus(plan) == {"a": "96-97", "b": "100-101"}


def test_open_contexts_keep_their_cpus_unless_they_are_planned() -> None:
    claims = (Claim("a", frozenset({0, 1}), exclusive=True), Claim("b", frozenset({2}), exclusive=True))
    assert cpus(place("desktop", claims, c={"cores": 3})) == {"c": "3-5"}
    assert cpus(place("desktop", claims, a={"cores": 3})) == {"a": "0-1,3"}


def test_overlaps_are_told_on_both_sides() -> None:
    plan = place("desktop", a={"cpus": "0-3"}, b={"cpus": "3-5"}, c={"cores": 1})
    assert plan["contexts"]["a"]["overlaps"] == {"b": "3", "c": "0"}
    assert plan["contexts"]["b"]["overlaps"] == {"a": "3"}
    assert plan["notes"][0].startswith("Contexts share CPU 0,3: more was asked for than there is")
    assert plan["free"] == ""


def test_whole_nodes_beside_each_other() -> None:
    plan = place("xeon-snc2", **{f"node{n}": {"node": n} for n in range(4)})
    assert plan["free"] == ""
    assert plan["notes"] == []


def test_halves() -> None:
    for name in machines.MODELS:
        on = machine(name)
        on = replace(on, quota=None)
        plan = _placement.place({"a": {"fraction": 0.5}, "b": {"fraction": 0.5}}, on)
        a, b = (parse_list(plan["contexts"][context]["cpus"]) for context in "ab")
        assert not a & b, name
        assert len(on.topology.cores(a)) == len(on.topology.cores(b)), name


def test_contexts_without_a_request() -> None:
    plan = place("desktop", a={"cores": 2}, rest={})
    assert plan["contexts"]["rest"]["cpus"] == "0-5"
    assert plan["contexts"]["rest"]["overlaps"] == {"a": "0-1"}
    assert plan["options"]["rest"] == {}
    assert plan["notes"] == ["'rest': without a request, so on the CPUs of all others too."]


class TestQuota:
    def test_fractions_divide_it(self) -> None:
        on = replace(machine("docker-v2"), quota=4.0)
        plan = _placement.place({"a": {"fraction": 0.5}, "b": {"fraction": 0.5}}, on)
        assert [len(plan["options"][name]["cpus"]) for name in "ab"] == [2, 2]
        assert plan["notes"] == []

    def test_more_than_it_is_noted(self) -> None:
        plan = place("docker-v2", a={"cores": 2})
        (note,) = plan["notes"]
        assert note.startswith(
            "The control group's quota is 1.5 CPUs, and the contexts have 2: when they keep"
        )
        assert note.endswith("Ask for fewer, as fraction= does, or raise the quota.")


class TestErrors:
    @pytest.mark.parametrize(
        ("contexts", "words"),
        [
            ({"a": {"cores": 2, "fraction": 0.5}}, "context 'a': cannot use cores=2 with fraction=0.5"),
            ({"a": {"cores": 7}}, "context 'a': cannot pick 7 cores: the process may use 6"),
            ({"a": {"cpus": "7"}}, "context 'a': cannot give a context CPU 7: the machine has no such CPU"),
            ({"a": {"node": 3}}, "context 'a': cannot use node=3: NUMA node 3 does not exist"),
            ({"a": {"cores": 1, "node": 3}}, "context 'a': cannot use node=3: NUMA node 3 does not exist"),
            ({"a": {"fraction": 1, "node": 3}}, "context 'a': cannot use node=3: NUMA node 3 does not exist"),
            (
                {"a": {"cores": 1, "node": 3}, "b": {"cores": 1, "near": "a"}},
                "context 'a': cannot use node=3: NUMA node 3 does not exist",
            ),
            (
                {"a": {"cores": 1, "near": "x"}, "b": {"cores": 1}, "c": {}},
                "near 'x': there is no such context with CPUs of its own (those that have: 'a', 'b'). Add",
            ),
            (
                {"a": {"cores": 1, "near": "b"}, "b": {}},
                "near 'b': there is no such context with CPUs of its own",
            ),
            ({"a": {"cores": 1, "near": "a"}}, "cannot plan 'a': each is to be near the next, in a circle"),
            (
                {
                    "x": {"cores": 1, "near": "a"},
                    "a": {"cores": 1, "near": "b"},
                    "b": {"cores": 1, "near": "a"},
                },
                "cannot plan 'a', 'b': each is to be near the next, in a circle. Leave one near= out.",
            ),
        ],
    )
    def test_bad_requests(self, contexts: dict[str, dict[str, Any]], words: str) -> None:
        with pytest.raises(vlcs.ArgumentError) as caught:
            place("desktop", **contexts)
        assert words in str(caught.value)

    def test_exclusive_ones_that_do_not_fit(self) -> None:
        with pytest.raises(
            vlcs.LimitError, match=r"context 'b': cannot pick 4 cores: 2 of the 6 .* 'a' \(0-3\)\. Close one"
        ):
            place("desktop", a={"cores": 4, "exclusive": True}, b={"cores": 4})
        with pytest.raises(vlcs.LimitError, match=r"context 'b': .* CPU 3: it belongs to the context 'a'"):
            place("desktop", a={"cpus": "0-3", "exclusive": True}, b={"cpus": "3-5"})
