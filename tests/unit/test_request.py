"""Reading what is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import vlcs
from vlcs._core import _request
from vlcs._core._request import Request


@pytest.mark.parametrize(
    "cpus", ["0-1,3", {0, 1, 3}, [3, 1, 0, 1], (0, 1, 3), frozenset({0, 1, 3}), (n for n in (0, 1, 3))]
)
def test_forms_of_the_same_list(cpus: Any) -> None:
    assert _request.read(cpus=cpus) == Request(cpus=frozenset({0, 1, 3}))


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    assert _request.read(cpus=np.arange(2)) == Request(cpus=frozenset({0, 1}))
    assert _request.read(cpus=np.int64(2)) == Request(count=2)
    assert _request.read(cores=np.int32(2), near="a") == Request(cores=2, near="a")
    assert _request.read(fraction=np.float32(0.5), exclusive=True) == Request(fraction=0.5, exclusive=True)


def test_nothing_asked_for() -> None:
    assert _request.read() is None


def test_a_context_stands_for_its_name() -> None:
    assert _request.read(cpus=1, near=SimpleNamespace(name="blas")) == Request(count=1, near="blas")


@pytest.mark.parametrize(
    ("cpus", "why"),
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
def test_what_cannot_be_read_is_refused_with_why_and_cure(cpus: Any, why: str) -> None:
    with pytest.raises(vlcs.ArgumentError) as caught:
        _request.read(cpus=cpus)
    assert f"cannot read cpus={cpus!r}: {why}" in str(caught.value)
    assert 'Give a string like "0-3,8"' in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cores": 0}, "cannot read cores=0: give how many physical cores, 1 or more."),
        ({"cores": True}, "cannot read cores=True"),
        ({"cores": 2.0}, "cannot read cores=2.0"),
        ({"cores": "2"}, "cannot read cores='2'"),
        ({"node": -1}, "cannot read node=-1: give the number of a NUMA node."),
        ({"node": "0"}, "cannot read node='0'"),
        ({"fraction": 0}, "cannot read fraction=0: give a number above 0 and at most 1; 0.5 is half"),
        ({"fraction": -0.5}, "cannot read fraction=-0.5"),
        ({"fraction": 50}, "cannot read fraction=50"),
        ({"fraction": float("nan")}, "cannot read fraction=nan"),
        ({"fraction": "0.5"}, "cannot read fraction='0.5'"),
        ({"fraction": True}, "cannot read fraction=True"),
        ({"near": "", "cores": 1}, "cannot read near='': give a context, or its name."),
        ({"near": 3, "cores": 1}, "cannot read near=3"),
    ],
)
def test_other_options_that_cannot_be_read(options: dict[str, Any], words: str) -> None:
    with pytest.raises(vlcs.ArgumentError) as caught:
        _request.read(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpus": "0-3", "cores": 2}, "cpus='0-3' with cores=2: each says how much. Leave one of them out."),
        ({"cores": 2, "fraction": 0.5}, "cores=2 with fraction=0.5: each says how much"),
        ({"cpus": 2, "fraction": 0.5, "cores": 1}, "cpus=2 with cores=1: each says how much"),
        ({"cores": 2, "node": 0, "near": "a"}, "node=0 with near='a': each says where"),
        (
            {"cpus": "0-3", "node": 1},
            "cpus='0-3' with node=1: a list of CPUs says where already. Give how many",
        ),
        ({"cpus": [0], "near": "a"}, "cpus=[0] with near='a': a list of CPUs says where already"),
        ({"near": "a"}, "near='a' alone: it says where, and not how much. Add cores=, cpus= or fraction=."),
        ({"exclusive": True}, "exclusive=True needs cpus=, cores=, fraction= or node="),
    ],
)
def test_contradictions_name_both(options: dict[str, Any], words: str) -> None:
    with pytest.raises(vlcs.ArgumentError) as caught:
        _request.read(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cpus": {0, 1, 5}}, 'cpus="0-1,5"'),
        ({"cpus": 3}, "cpus=3"),
        ({"cores": 2, "node": 1}, "cores=2, node=1"),
        ({"node": 0, "exclusive": True}, "node=0, exclusive=True"),
        ({"fraction": 0.25, "near": "a"}, 'fraction=0.25, near="a"'),
    ],
)
def test_shown_as_it_was_written(options: dict[str, Any], text: str) -> None:
    assert str(_request.read(**options)) == text
