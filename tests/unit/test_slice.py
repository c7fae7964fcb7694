"""Choosing a context's CPUs."""

from typing import Any

import pytest

import vlcs
from vlcs._core import _slice
from vlcs._core._slice import Claim
from vlcs._core._topology import CPU, Topology


def machine(*cores: set[int], packages: dict[int, int] | None = None) -> Topology:
    """A machine from its cores' CPUs; `packages` says which CPUs are not in package 0."""
    places = packages or {}
    return Topology({n: CPU(n, places.get(n, 0), frozenset(core)) for core in cores for n in core})


SMT = machine({0, 4}, {1, 5}, {2, 6}, {3, 7})
PLAIN = machine({0}, {1}, {2}, {3})
TWO_PACKAGES = machine(*({n} for n in range(8)), packages=dict.fromkeys(range(4, 8), 1))


def decide(request: Any, topology: Topology = PLAIN, **options: Any) -> tuple[int, ...]:
    options.setdefault("allowed", topology.online)
    return _slice.decide(request, topology=topology, **options).cpus


def claim(name: str, *cpus: int, exclusive: bool = False) -> Claim:
    return Claim(name, frozenset(cpus), exclusive)


@pytest.mark.parametrize(
    "request_", ["0-1,3", {0, 1, 3}, [3, 1, 0, 1], (0, 1, 3), frozenset({0, 1, 3}), (n for n in (0, 1, 3))]
)
def test_forms_of_the_same_request(request_: Any) -> None:
    assert decide(request_) == (0, 1, 3)


def test_range() -> None:
    assert decide(range(1, 3)) == (1, 2)


def test_none_is_all_that_the_process_may_use() -> None:
    assert decide(None, allowed=frozenset({1, 2})) == (1, 2)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ("", "the list is empty"),
        ("  ", "the list is empty"),
        ("0-", "'0-' is neither a CPU number nor a range"),
        ("all", "'all' is neither a CPU number nor a range"),
        ("3-1", "'3-1' is neither"),
        ([], "the list is empty, and a context needs at least one CPU"),
        (set(), "the list is empty"),
        (range(0), "the list is empty"),
        (0, "a context needs at least one CPU"),
        (-2, "a context needs at least one CPU"),
        (True, "bool is not a form of CPU list"),
        (1.5, "float is not a form of CPU list"),
        (b"01", "bytes is not a form of CPU list"),
        (object(), "object is not a form of CPU list"),
        (["0"], "'0' is not a CPU number"),
        ([True], "True is not a CPU number"),
        ([-1], "-1 is below 0"),
        ([1024], "CPU 1024 is above 1023"),
        ("5000", "CPU 5000 is above 1023"),
    ],
)
def test_what_cannot_be_read_is_refused_with_why_and_cure(request_: Any, why: str) -> None:
    with pytest.raises(vlcs.ArgumentError) as caught:
        decide(request_)
    assert f"cannot read cpus={request_!r}: {why}" in str(caught.value)
    assert 'Give a string like "0-3,8"' in str(caught.value)


def test_cpu_that_the_machine_lacks() -> None:
    with pytest.raises(
        vlcs.ArgumentError, match=r"CPU 7: the machine has no such CPU online \(online: 0-3;"
    ) as caught:
        decide("0,7")
    assert caught.value.subject == "7"


def test_cpu_that_the_process_may_not_use() -> None:
    with pytest.raises(
        vlcs.ArgumentError, match=r"CPU 2-3: the process may not use it \(it may use 0-1\)"
    ) as caught:
        decide("0-3", allowed=frozenset({0, 1}))
    assert "taskset" in str(caught.value)


def test_number_1023_can_be_named() -> None:
    assert decide({1023}, machine({1023})) == (1023,)


def test_count_takes_whole_cores_before_siblings() -> None:
    assert decide(3, SMT) == (0, 1, 2)
    assert decide(4, SMT) == (0, 1, 2, 3)
    assert decide(5, SMT) == (0, 1, 2, 3, 4)
    assert decide(8, SMT) == tuple(range(8))


def test_count_avoids_cpus_of_other_contexts_and_their_siblings() -> None:
    assert decide(2, SMT, claims=[claim("a", 0, 1)]) == (2, 3)
    assert decide(2, SMT, claims=[claim("a", 0, 1, 2)])[0] == 3


def test_count_takes_free_siblings_before_it_shares() -> None:
    assert decide(4, SMT, claims=[claim("a", 0, 1, 2, 3)]) == (4, 5, 6, 7)


def test_count_shares_the_least_claimed_when_it_must() -> None:
    chosen = _slice.decide(
        2,
        allowed=PLAIN.online,
        topology=PLAIN,
        claims=[claim("a", 0, 1, 2), claim("b", 0, 1)],
        exclusive=False,
    )
    assert chosen.cpus == (2, 3)
    assert [overlap.context for overlap in chosen.overlaps] == ["a"]


def test_count_stays_in_one_package_where_it_fits() -> None:
    assert decide(3, TWO_PACKAGES, claims=[claim("a", 0, 1)]) == (4, 5, 6)
    # Two are left in package 0: they fit there, and leave package 1 whole.
    assert decide(2, TWO_PACKAGES, claims=[claim("a", 0, 1)]) == (2, 3)
    assert decide(6, TWO_PACKAGES) == (0, 1, 2, 3, 4, 5)


def test_count_within_what_the_process_may_use() -> None:
    assert decide(2, SMT, allowed=frozenset({1, 5, 6})) == (1, 6)


def test_count_above_what_the_process_may_use() -> None:
    with pytest.raises(vlcs.ArgumentError, match=r"cannot pick 5 CPUs: the process may use 4 \(0-3\)"):
        decide(5)


def test_count_never_takes_exclusive_cpus() -> None:
    assert decide(2, claims=[claim("a", 0, 1, exclusive=True)]) == (2, 3)
    with pytest.raises(
        vlcs.LimitError, match=r"cannot pick 3 CPUs: 2 of the 4 .* 'a' \(0-1\). Close one, or ask for"
    ):
        decide(3, claims=[claim("a", 0, 1, exclusive=True)])


def test_exclusive_count_takes_only_free_cpus() -> None:
    assert decide(2, claims=[claim("a", 0, 1)], exclusive=True) == (2, 3)
    with pytest.raises(vlcs.LimitError, match="or drop exclusive=True"):
        decide(3, claims=[claim("a", 0, 1)], exclusive=True)


def test_overlap_is_told() -> None:
    chosen = _slice.decide(
        "0-2", allowed=PLAIN.online, topology=PLAIN, claims=[claim("a", 0, 1), claim("b", 3)]
    )
    assert [(overlap.context, overlap.cpus) for overlap in chosen.overlaps] == [("a", {0, 1})]


def test_exclusive_in_either_order() -> None:
    with pytest.raises(
        vlcs.LimitError, match=r"CPU 1: it belongs to the open context 'a', which was made with excl.*2-3"
    ):
        decide("1-2", claims=[claim("a", 0, 1, exclusive=True)])
    with pytest.raises(
        vlcs.LimitError, match=r"CPU 1: .* 'a', and exclusive=True was asked for. Free CPUs: 2-3"
    ):
        decide("1-2", claims=[claim("a", 0, 1)], exclusive=True)


def test_exclusive_needs_cpus() -> None:
    with pytest.raises(vlcs.ArgumentError, match="exclusive=True needs cpus="):
        decide(None, exclusive=True)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    assert decide(np.arange(2)) == (0, 1)
