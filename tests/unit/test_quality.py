"""Options of quality of service: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import vlcs
from vlcs._core import _quality
from vlcs._core._quality import Quality


def test_nothing_is_asked_for() -> None:
    assert _quality.read() == Quality()


def test_all_of_it() -> None:
    asked: dict[str, Any] = {
        "nice": -5,
        "scheduling": "idle",
        "weight": 1,
        "quota": 0.5,
        "confine": True,
        "bandwidth": 100,
        "cache_ways": 0.25,
    }
    assert _quality.read(**asked) == Quality(**asked)
    assert _quality.read(cache_ways=1).cache_ways == 1
    assert _quality.read(quota=2).quota == 2.0


class Compared:
    """Is compared with each of its elements, as an array: whether it is equal cannot be said."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        *(("nice", value, "from -20 (comes first) to 19") for value in (20, -21, 1.5, "5", True, [])),
        *(("scheduling", value, 'give "batch"') for value in ("other", "BATCH", 3, "", False, Compared())),
        *(("weight", value, "a weight from 1 to 10000") for value in (0, 10001, 0.5, "1", True)),
        *(("quota", value, "in CPUs, 0.01 or more") for value in (0, -1, 0.001, "1", True, None.__class__)),
        *(("quota", value, "0.5 is half of one") for value in (float("nan"), float("inf"), 1j, 10**400)),
        *(("confine", value, "give True or False") for value in (1, "yes", None)),
        *(("bandwidth", value, "1 to 100 per cent") for value in (0, 101, 0.5, "50%", True)),
        *(("cache_ways", value, "how many ways") for value in (0, 65, 1.5, 0.0, -1, "2", True)),
    ],
)
def test_what_cannot_be_meant_is_refused(option: str, value: Any, words: str) -> None:
    with pytest.raises(vlcs.ArgumentError) as caught:
        _quality.read(**{option: value})
    assert str(caught.value).startswith(f"cannot read {option}={value!r}: ")
    assert words in str(caught.value)


def test_options_are_shown_as_they_were_written() -> None:
    asked = Quality(nice=0, scheduling="batch", confine=True)
    names = ("nice", "scheduling", "confine", "weight")
    assert [asked.words(name) for name in names] == ["nice=0", "scheduling='batch'", "confine=True", None]
    assert Quality().words("confine") is None
