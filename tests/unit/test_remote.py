"""Objects of another interpreter, as far as that can be this one."""

from __future__ import annotations

import collections
import contextlib
import copy
import datetime as dt
import math
import pickle
import pydoc
from typing import Any

import pytest

import vlcs
from vlcs._core import _remote, _serving


def test_looks_like_what_it_stands_for() -> None:
    handle = vlcs.remote(math)
    assert (handle.pi, handle.floor(2.5), handle.__name__) == (math.pi, 2, "math")
    assert handle.__doc__ == math.__doc__
    assert "sqrt" in dir(handle)
    assert repr(handle).startswith("<vlcs.RemoteObject math: <module 'math'")
    assert (vlcs.RemoteObject.__doc__ or "").startswith("A function, class, module")


def test_operators() -> None:
    number: Any = vlcs.remote(7)
    assert (number + 1, 1 + number, number - 1, 1 - number, number / 2, 2**number, -number, abs(number)) == (
        8,
        8,
        6,
        -6,
        3.5,
        128,
        -7,
        7,
    )
    assert (number | 8, 8 ^ number, number << 1, ~number, float(number)) == (15, 15, 14, -8, 7.0)
    assert number == 7
    assert number > 6
    assert number != 8
    assert hash(number) == hash(7)
    assert f"{number:03}" == "007"
    counter: Any = vlcs.remote(collections.Counter("aab"))
    counter["c"] = 7
    del counter["b"]
    assert (len(counter), counter["c"], "b" in counter, sorted(counter)) == (2, 7, False, ["a", "c"])
    counter.update("cc")
    assert counter["c"] == 9
    with pytest.raises(TypeError):
        hash(vlcs.remote([]))


def test_operators_in_place() -> None:
    numbers = [1]
    handle = same = vlcs.remote(numbers)
    handle += [2]
    handle *= 2
    assert handle is same
    assert numbers == [1, 2, 1, 2]
    number: Any = vlcs.remote(7)
    number += 1
    assert type(number) is int
    assert number == 8


def test_operators_called_as_methods_with_too_many_arguments() -> None:
    number: Any = vlcs.remote(7)
    for count in (2, 11, 12, 1000):
        with pytest.raises(TypeError, match="arguments"):
            number.__add__(*range(count))


def test_a_long_name_is_cut_between_characters() -> None:
    for offset in range(3):
        kind = type("x" * offset + "\N{SNOWMAN}" * 100, (), {})
        assert "x" * offset + "\N{SNOWMAN}" * 50 in repr(vlcs.remote(kind()))


def test_attributes() -> None:
    class Box:
        size = 1

    handle: Any = vlcs.remote(Box())
    handle.size = 2
    assert handle.size == 2
    del handle.size
    assert handle.size == 1
    with pytest.raises(AttributeError, match="nothing"):
        _ = handle.nothing
    assert not hasattr(handle, "__array_interface__")


def test_with(tmp_path: Any) -> None:
    file: Any = vlcs.remote((tmp_path / "file").open("w"))
    with file as same:
        assert same is file
        same.write("text")
    assert file.closed
    assert (tmp_path / "file").read_text() == "text"
    manager: Any = vlcs.remote(contextlib.nullcontext())
    with manager as nothing:
        assert nothing is None


def test_is_nowhere_to_be_pickled_but_in_calls() -> None:
    handle = vlcs.remote(math)
    with pytest.raises(TypeError, match="cannot pickle math, an object that stays in the context 'host'"):
        pickle.dumps(handle)
    assert copy.copy(handle) is handle
    assert copy.deepcopy([handle])[0] is handle
    with pytest.raises(TypeError):
        vlcs.RemoteObject()
    with pytest.raises(TypeError):
        object.__new__(vlcs.RemoteObject)


def test_signature_and_help() -> None:
    def solve(matrix: list[float], *, steps: int = 3) -> float:
        """Solves."""
        raise NotImplementedError

    handle = vlcs.remote(solve)
    import inspect

    described = _serving.OPERATIONS["signature"](solve)
    assert str(_remote._signature(described)) == str(inspect.signature(solve)).replace("'", "")
    text = pydoc.plain(pydoc.render_doc(handle))
    assert "Solves." in text
    assert "steps" in text


def test_words_say_what_was_done() -> None:
    numbers = _serving.NUMBERS
    assert [
        _remote.words("math", numbers[name], "pi")
        for name in ("call", "getattr", "setattr", "delattr", "len")
    ] == ["math()", "math.pi", "math.pi = ...", "math.pi", "len of math"]


def test_what_is_data() -> None:
    date = dt.date(2020, 1, 1)
    data: list[Any] = [date]
    for _ in range(100):  # 2**100 of them, if each is looked at wherever it is
        data = [data, {"again": data}]
    data.append(data)
    for value in (data, {date: [date]}, {"x": (date, {date})}, ([date],), frozenset([date])):
        assert _serving.encode_result(value, is_attribute=False) is not None
    for value in ([[math]], {"x": math}, {math: 1}, [date, {"x": (math,)}]):
        assert _serving.encode_result(value, is_attribute=False) is None
    large = {"x": [date] * 20_000}
    assert _serving.encode_result(large, is_attribute=False) is not None
    assert _serving.encode_result(large, is_attribute=True) is None
