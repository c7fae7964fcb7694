"""Choosing a context's CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import vlcs
from support import machines
from vlcs._core import _choice, _request
from vlcs._core._choice import Choice, Claim
from vlcs._core._machine import Machine
from vlcs._core._topology import CPU, Topology


def machine(*cores: set[int], packages: dict[int, int] | None = None) -> Machine:
    """A machine from its cores' CPUs; `packages` says which CPUs are not in package 0."""
    places = packages or {}
    topology = Topology({n: CPU(n, places.get(n, 0), frozenset(core)) for core in cores for n in core})
    return Machine(topology, topology.online, bound=topology.online)


SMT = machine({0, 4}, {1, 5}, {2, 6}, {3, 7})
PLAIN = machine({0}, {1}, {2}, {3})
TWO_PACKAGES = machine(*({n} for n in range(8)), packages=dict.fromkeys(range(4, 8), 1))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Machine]:
    """Recorded machines by name."""
    return {name: machines.machine(name) for name in machines.MODELS}


def choose(
    on: Machine = PLAIN,
    claims: tuple[Claim, ...] = (),
    *,
    allowed: set[int] | None = None,
    packed: bool = False,
    **options: Any,
) -> Choice:
    request = _request.read(**options)
    assert request is not None
    on = replace(on, allowed=frozenset(allowed)) if allowed is not None else on
    return _choice.choose(request, on, claims, packed=packed)


def cpus(*args: Any, **options: Any) -> tuple[int, ...]:
    return choose(*args, **options).cpus


def claim(name: str, *numbers: int, exclusive: bool = False) -> Claim:
    return Claim(name, frozenset(numbers), exclusive)


class TestLists:
    def test_are_taken_as_they_are(self) -> None:
        assert cpus(cpus={3, 0}) == (0, 3)
        assert choose(cpus={3, 0}).why == "the CPUs that were asked for"

    def test_cpu_that_the_machine_lacks(self) -> None:
        with pytest.raises(
            vlcs.ArgumentError, match=r"CPU 7: the machine has no such CPU online \(online: 0-3;"
        ) as caught:
            choose(cpus="0,7")
        assert caught.value.subject == "7"

    def test_cpu_that_is_offline(self, recorded: dict[str, Machine]) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"CPU 3-4: it is offline .* or switch it on \(/sys/dev"):
            choose(recorded["holes"], cpus="2-4")

    def test_cpu_that_the_process_may_not_use(self) -> None:
        with pytest.raises(
            vlcs.ArgumentError, match=r"CPU 2-3: the process may not use it \(it may use 0-1\)"
        ) as caught:
            choose(cpus="0-3", allowed={0, 1})
        assert "taskset" in str(caught.value)

    def test_number_1023_can_be_named(self) -> None:
        assert cpus(machine({1023}), cpus={1023}) == (1023,)


class TestCounts:
    def test_whole_cores_before_siblings(self) -> None:
        assert cpus(SMT, cpus=3) == (0, 1, 2)
        assert cpus(SMT, cpus=4) == (0, 1, 2, 3)
        assert cpus(SMT, cpus=5) == (0, 1, 2, 3, 4)
        assert cpus(SMT, cpus=8) == tuple(range(8))

    def test_packed_takes_cores_one_by_one(self) -> None:
        assert cpus(SMT, cpus=3, packed=True) == (0, 1, 4)
        assert cpus(SMT, cpus=4, packed=True) == (0, 1, 4, 5)
        # Half of core 0 is taken: whole cores come first.
        assert cpus(SMT, (claim("a", 0),), cpus=4, packed=True) == (1, 2, 5, 6)
        assert cpus(SMT, (claim("a", 0, 1, 2, 5),), cpus=3, packed=True) == (3, 4, 7)

    def test_avoid_cpus_of_other_contexts_and_their_siblings(self) -> None:
        assert cpus(SMT, (claim("a", 0, 1),), cpus=2) == (2, 3)
        assert cpus(SMT, (claim("a", 0, 1, 2),), cpus=2)[0] == 3

    def test_free_siblings_before_shared_cpus(self) -> None:
        assert cpus(SMT, (claim("a", 0, 1, 2, 3),), cpus=4) == (4, 5, 6, 7)

    def test_the_least_claimed_are_shared_when_it_must_be(self) -> None:
        chosen = choose(claims=(claim("a", 0, 1, 2), claim("b", 0, 1)), cpus=2)
        assert chosen.cpus == (2, 3)
        assert [overlap.context for overlap in chosen.overlaps] == ["a"]
        assert chosen.why == "2 CPUs on 2 cores; shares CPU 2 with 'a'"

    def test_one_package_where_it_fits(self) -> None:
        assert cpus(TWO_PACKAGES, (claim("a", 0, 1),), cpus=3) == (4, 5, 6)
        # Two are left in package 0: they fit there, and leave package 1 whole.
        assert cpus(TWO_PACKAGES, (claim("a", 0, 1),), cpus=2) == (2, 3)
        assert cpus(TWO_PACKAGES, cpus=6) == (0, 1, 2, 3, 4, 5)

    def test_within_what_the_process_may_use(self) -> None:
        assert cpus(SMT, cpus=2, allowed={1, 5, 6}) == (1, 6)

    def test_more_than_there_are(self) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"pick 5 CPUs: the process may use 4 \(CPU 0-3\)"):
            choose(cpus=5)

    def test_never_exclusive_cpus(self) -> None:
        taken = (claim("a", 0, 1, exclusive=True),)
        assert cpus(claims=taken, cpus=2) == (2, 3)
        with pytest.raises(
            vlcs.LimitError, match=r"cannot pick 3 CPUs: 2 of the 4 .* 'a' \(0-1\). Close one, or ask for"
        ):
            choose(claims=taken, cpus=3)

    def test_exclusive_takes_only_free_cpus(self) -> None:
        assert cpus(claims=(claim("a", 0, 1),), cpus=2, exclusive=True) == (2, 3)
        with pytest.raises(vlcs.LimitError, match="or drop exclusive=True"):
            choose(claims=(claim("a", 0, 1),), cpus=3, exclusive=True)


class TestCores:
    def test_bring_all_their_threads(self) -> None:
        assert cpus(SMT, cores=2) == (0, 1, 4, 5)
        assert choose(SMT, cores=2).why == "4 CPUs on 2 cores"

    def test_a_core_that_is_partly_claimed_is_not_free(self) -> None:
        assert cpus(SMT, (claim("a", 4, 1),), cores=2) == (2, 3, 6, 7)

    def test_a_core_that_is_partly_exclusive_cannot_be_had(self) -> None:
        with pytest.raises(
            vlcs.LimitError, match=r"cannot pick 4 cores: 3 of the 4 that the process may use"
        ):
            choose(SMT, (claim("a", 4, exclusive=True),), cores=4)

    def test_a_core_is_what_may_be_used_of_it(self) -> None:
        assert cpus(SMT, cores=2, allowed={0, 1, 5, 6}) == (0, 1, 5)

    def test_more_than_there_are(self) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"pick 5 cores: the process may use 4 \(CPU 0-7\). Ask"):
            choose(SMT, cores=5)

    def test_one_cache_domain_before_two(self, recorded: dict[str, Machine]) -> None:
        epyc = recorded["epyc-192"]
        assert cpus(epyc, cores=8) == tuple(range(8))
        # 2 are claimed in each of the first domains: the next 8 take a domain that is whole.
        claims = tuple(claim(f"c{n}", 8 * n, 8 * n + 1) for n in range(3))
        assert cpus(epyc, claims, cores=8) == tuple(range(24, 32))
        # 6 fit into a gap, and 7 do not.
        assert cpus(epyc, claims, cores=6) == tuple(range(2, 8))
        assert cpus(epyc, claims, cores=7) == tuple(range(24, 31))

    def test_as_few_domains_as_possible(self, recorded: dict[str, Machine]) -> None:
        chosen = choose(recorded["epyc-192"], (claim("a", 0),), cores=20)
        assert len({recorded["epyc-192"].topology.cpu(cpu).domain for cpu in chosen.cpus}) == 3
        assert chosen.why == "20 CPUs on 20 cores; node 0; package 0; 3 cache domains"

    def test_a_smaller_package_is_not_taken_where_its_gaps_are_scattered(
        self, recorded: dict[str, Machine]
    ) -> None:
        """Package 0 has 12 free cores, one in each cache domain; package 1 is whole."""
        epyc = recorded["epyc-192"]
        claims = tuple(claim(f"c{n}", *range(8 * n, 8 * n + 7)) for n in range(12))
        assert cpus(epyc, claims, cores=4) == tuple(range(96, 100))

    def test_one_node_before_two(self, recorded: dict[str, Machine]) -> None:
        epyc = recorded["epyc-nps4"]
        assert cpus(epyc, cores=8) == (*range(8), *range(64, 72))
        chosen = choose(epyc, cores=16)
        assert {epyc.topology.cpu(cpu).node for cpu in chosen.cpus} == {0, 1}
        assert chosen.why == "32 CPUs on 16 cores; nodes 0-1; package 0; 4 cache domains"

    def test_sub_numa_clusters(self, recorded: dict[str, Machine]) -> None:
        """One L3, two nodes: the node decides."""
        taken = (claim("a", 0, 24),)
        assert cpus(recorded["xeon-snc2"], taken, cores=6) == (*range(6, 12), *range(30, 36))

    def test_neighbouring_nodes_where_one_is_not_enough(self, recorded: dict[str, Machine]) -> None:
        """A ring of nodes: 0 is two hops from 2."""
        taken = (claim("a", 4, 5, 6), claim("b", 13, 14, 15))
        assert cpus(recorded["xeon-4s"], taken, cores=5) == (0, 1, 2, 3, 7)
        assert cpus(recorded["xeon-4s"], (claim("a", 4, 5, 6, 7),), cores=5) == (0, 1, 2, 3, 12)

    def test_fast_cores_first(self, recorded: dict[str, Machine]) -> None:
        alder = recorded["alder-lake"]
        assert cpus(alder, cores=8) == tuple(range(16))
        assert choose(alder, cores=8).why == "16 CPUs on 8 cores; fast cores only"
        assert cpus(alder, cores=10) == tuple(range(18))
        assert choose(alder, cores=10).why == "18 CPUs on 10 cores; slower cores: 16-17"
        assert cpus(alder, (claim("a", *range(16)),), cores=4) == (16, 17, 18, 19)
        # By number: slow cores before second threads of fast ones.
        assert cpus(alder, cpus=10) == (0, 2, 4, 6, 8, 10, 12, 14, 16, 17)
        assert cpus(recorded["arm-phone"], cores=3) == (4, 5, 7)

    def test_one_domain_of_slow_cores_before_two(self, recorded: dict[str, Machine]) -> None:
        lunar = recorded["lunar-lake"]
        assert cpus(lunar, cores=3) == (0, 1, 2)
        assert cpus(lunar, (claim("a", 0, 1),), cores=3) == (4, 5, 6)
        assert cpus(lunar, cores=6) == (0, 1, 2, 3, 4, 5)


class TestFractions:
    @pytest.mark.parametrize(
        ("fraction", "expected"),
        [
            (1, tuple(range(8))),
            (0.5, (0, 1, 4, 5)),
            (0.74, (0, 1, 4, 5)),
            (0.75, (0, 1, 2, 4, 5, 6)),
            (0.25, (0, 4)),
            (0.2, (0,)),
            (0.001, (0,)),
        ],
    )
    def test_are_rounded_down_to_cores_and_below_one_to_cpus(
        self, fraction: float, expected: tuple[int, ...]
    ) -> None:
        assert cpus(SMT, fraction=fraction) == expected

    def test_thirds_of_three_are_one(self) -> None:
        assert cpus(machine({0}, {1}, {2}), fraction=1 / 3) == (0,)
        assert cpus(machine(*({n} for n in range(10))), fraction=0.1 + 0.2) == (0, 1, 2)

    def test_halves_of_one_core(self) -> None:
        one = machine({0, 1})
        assert cpus(one, fraction=0.5) == (0,)
        assert cpus(one, (claim("a", 0),), fraction=0.5) == (1,)

    def test_of_a_node(self, recorded: dict[str, Machine]) -> None:
        chosen = choose(recorded["epyc-nps4"], fraction=0.5, node=2)
        assert chosen.cpus == (*range(16, 20), *range(80, 84))
        assert (
            chosen.why
            == "8 CPUs on 4 cores, 0.5 of 16 CPUs; node 2; package 0; one cache domain (16-19,80-83)"
        )

    def test_of_the_quota_where_that_is_smaller(self, recorded: dict[str, Machine]) -> None:
        chosen = choose(recorded["docker-v2"], fraction=1)
        assert len(chosen.cpus) == 1
        assert "1 CPU on 1 core, 1 of the quota of 1.5 CPUs" in chosen.why
        assert len(cpus(replace(SMT, quota=4.0), fraction=0.5)) == 2
        assert len(cpus(replace(SMT, quota=16.0), fraction=0.5)) == 4
        assert choose(replace(SMT, quota=16.0), fraction=0.1).why == "1 CPU on 1 core, 0.1 of 8 CPUs"


class TestNodes:
    def test_alone_it_is_all_of_the_node(self, recorded: dict[str, Machine]) -> None:
        chosen = choose(recorded["xeon-2s"], node=1)
        assert chosen.cpus == tuple(range(1, 32, 2))
        assert chosen.why.startswith("16 CPUs on 8 cores, all of node 1 that the process may use; node 1;")

    def test_with_a_number(self, recorded: dict[str, Machine]) -> None:
        assert cpus(recorded["xeon-2s"], node=1, cores=2) == (1, 3, 17, 19)
        assert cpus(recorded["xeon-2s"], node=1, cpus=2) == (1, 3)
        with pytest.raises(
            vlcs.ArgumentError,
            match=r"cannot pick 9 cores on node 1: the process may use 8 there \(CPU 1,3,5",
        ):
            choose(recorded["xeon-2s"], node=1, cores=9)

    def test_exclusive(self, recorded: dict[str, Machine]) -> None:
        with pytest.raises(vlcs.LimitError, match="CPU 3: it belongs to the context 'a', and exclusive=True"):
            choose(recorded["xeon-2s"], (claim("a", 3),), node=1, exclusive=True)

    def test_that_does_not_exist(self, recorded: dict[str, Machine]) -> None:
        with pytest.raises(
            vlcs.ArgumentError, match=r"node=7: NUMA node 7 does not exist. Nodes with CPUs .* use: 0-1\."
        ):
            choose(recorded["xeon-2s"], node=7)

    def test_with_memory_only(self, recorded: dict[str, Machine]) -> None:
        with pytest.raises(
            vlcs.ArgumentError, match=r"NUMA node 2 has no CPUs, only memory. Nodes .*: 0-1\."
        ):
            choose(recorded["cxl"], node=2, cores=1)

    def test_of_which_nothing_may_be_used(self, recorded: dict[str, Machine]) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"the process may use none of its CPUs \(16-31,48-63\)"):
            choose(recorded["docker-v2"], node=1)


class TestNear:
    def test_same_cache_domain_then_node_then_package(self, recorded: dict[str, Machine]) -> None:
        epyc = recorded["epyc-nps4"]
        blas = claim("blas", 20, 84)  # node 2, its second cache domain
        near = choose(epyc, (blas,), cores=2, near="blas")
        assert near.cpus == (21, 22, 85, 86)
        assert near.why.endswith("next to 'blas': in its cache domain")
        blas = claim("blas", *range(20, 24), *range(84, 88))
        near = choose(epyc, (blas,), cores=2, near="blas")
        assert near.cpus == (16, 17, 80, 81)
        assert near.why.endswith("next to 'blas': on its node")
        node = claim("blas", *range(16, 24), *range(80, 88))
        near = choose(epyc, (node,), cores=2, near="blas")
        assert near.cpus == (0, 1, 64, 65)
        assert near.why.endswith("next to 'blas': in its package")
        package = claim("blas", *range(32), *range(64, 96))
        assert choose(epyc, (package,), cores=2, near="blas").why.endswith(
            "next to 'blas': in another package"
        )

    def test_free_cores_farther_away_before_shared_ones(self, recorded: dict[str, Machine]) -> None:
        epyc = recorded["epyc-192"]
        assert cpus(epyc, (claim("blas", *range(7)),), cores=4, near="blas") == (8, 9, 10, 11)

    def test_together_before_partly_nearer(self, recorded: dict[str, Machine]) -> None:
        """One core is free on the cache of `blas`, and four are together on the next one of its node."""
        taken = (claim("blas", *range(16, 19), *range(80, 83)),)
        assert cpus(recorded["epyc-nps4"], taken, cores=4, near="blas") == (*range(20, 24), *range(84, 88))
        assert cpus(recorded["epyc-nps4"], taken, cores=1, near="blas") == (19, 83)

    def test_nodes_by_their_distance(self, recorded: dict[str, Machine]) -> None:
        ring = recorded["xeon-4s"]
        assert cpus(ring, (claim("a", *range(8, 12)), claim("b", 4)), cores=4, near="a") == (12, 13, 14, 15)

    def test_unknown_context(self) -> None:
        with pytest.raises(
            vlcs.ArgumentError,
            match=r"near 'blas': there is no such context .* \(those that have: 'a', 'b'\)",
        ):
            choose(claims=(claim("a", 0), claim("b", 1)), cores=1, near="blas")
        with pytest.raises(vlcs.ArgumentError, match=r"\(those that have: none\). Make it first, with cpus="):
            choose(cores=1, near="blas")


class TestOverlap:
    def test_is_told(self) -> None:
        chosen = choose(claims=(claim("a", 0, 1), claim("b", 3)), cpus="0-2")
        assert [(overlap.context, overlap.cpus) for overlap in chosen.overlaps] == [("a", {0, 1})]

    def test_exclusive_in_either_order(self) -> None:
        with pytest.raises(
            vlcs.LimitError, match=r"CPU 1: it belongs to the context 'a', which has exclusive=True. .* 2-3"
        ):
            choose(claims=(claim("a", 0, 1, exclusive=True),), cpus="1-2")
        with pytest.raises(
            vlcs.LimitError, match=r"CPU 1: .* 'a', and exclusive=True was asked for. Free CPUs: 2-3"
        ):
            choose(claims=(claim("a", 0, 1),), cpus="1-2", exclusive=True)


@pytest.mark.parametrize("name", machines.MODELS)
def test_every_amount_can_be_had_on_every_machine(name: str, recorded: dict[str, Machine]) -> None:
    on = recorded[name]
    cores = on.topology.cores(on.allowed)
    for count in {1, 2, len(cores) // 2 or 1, len(cores)}:
        chosen = frozenset(cpus(on, cores=count))
        assert len(on.topology.cores(chosen)) == count
        assert all(core <= chosen or not core & chosen for core in cores)
        assert len(cpus(on, cpus=count)) == len(cpus(on, cpus=count, packed=True)) == count
        assert chosen == frozenset(cpus(on, cores=count))
    assert cpus(on, cpus=len(on.allowed)) == tuple(sorted(on.allowed))
