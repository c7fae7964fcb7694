"""Objects of another interpreter, against a bridge to this one."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import pickle
import types
from functools import reduce
from typing import Any

import pytest

import vlcs
from vlcs._core import _module
from vlcs._core._bridge import Reference
from vlcs._core._gate import Gate


class Bridge:
    """A guest that is this interpreter."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _find(self, module: str, path: tuple[str, ...]) -> Any:
        return reduce(getattr, path, importlib.import_module(module))

    def fetch(self, module: str, path: tuple[str, ...]) -> Any:
        self.calls.append(".".join((module, *path)))
        found = self._find(module, path)
        if isinstance(found, types.ModuleType) or callable(found):
            return Reference("function", repr(found), found.__doc__)
        return found

    def call_there(self, module: str, path: tuple[str, ...], args: Any, kwargs: Any) -> Any:
        return self._find(module, path)(*args, **kwargs)

    def store(self, module: str, path: tuple[str, ...], value: Any) -> None:
        setattr(self._find(module, path[:-1]), path[-1], value)

    def directory(self, module: str, path: tuple[str, ...]) -> list[str]:
        return dir(self._find(module, path))


@pytest.fixture
def bridge() -> Bridge:
    return Bridge()


@pytest.fixture
def gate() -> Gate:
    return Gate("a")


def load(gate: Gate, bridge: Bridge, name: str) -> Any:
    return _module.import_module("a", None, gate, bridge, name)  # type: ignore[arg-type]


def test_data_comes_by_value_and_behaviour_stays_there(gate: Gate, bridge: Bridge) -> None:
    module = load(gate, bridge, "math")
    assert module.pi == math.pi
    assert isinstance(module.sqrt, vlcs.RemoteObject)
    assert module.sqrt(9) == 3.0
    assert load(gate, bridge, "os").path.join("a", "b") == "a/b"
    assert not gate.is_inside()


def test_looks_like_what_it_stands_for(gate: Gate, bridge: Bridge) -> None:
    module = load(gate, bridge, "math")
    assert module.__doc__ == math.__doc__
    assert module.__name__ == "math"
    assert "sqrt" in dir(module)
    assert repr(module.sqrt) == "<vlcs.RemoteObject math.sqrt in context 'a': <built-in function sqrt>>"


def test_missing_names_are_attribute_errors(gate: Gate, bridge: Bridge) -> None:
    module = load(gate, bridge, "math")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing
    assert not hasattr(module, "__array_interface__")
    assert bridge.calls == ["math", "math.nothing"]
    with pytest.raises(ModuleNotFoundError):
        load(gate, bridge, "no_such_module")
    assert not gate.is_inside()


def test_attributes_are_set_there(gate: Gate, bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle, "DEFAULT_PROTOCOL", 4)
    module = load(gate, bridge, "pickle")
    module.DEFAULT_PROTOCOL = 3
    assert pickle.DEFAULT_PROTOCOL == 3


def test_names_of_its_own_do_not_hide_the_modules(gate: Gate, bridge: Bridge) -> None:
    assert load(gate, bridge, "sysconfig")._main


def test_as_an_argument_it_is_the_object_of_that_name(gate: Gate, bridge: Bridge) -> None:
    module = load(gate, bridge, "os")
    arrived = pickle.loads(pickle.dumps([module, module.path, module.path.join]))  # noqa: S301 - our own bytes
    import os

    assert operator.is_(arrived[0], os)
    assert arrived[1:] == [os.path, os.path.join]


def test_copies_are_the_same_object(gate: Gate, bridge: Bridge) -> None:
    function = load(gate, bridge, "math").sqrt
    assert copy.copy(function) is function
    assert copy.deepcopy([function])[0] is function


def test_closed_context_says_what_was_called(gate: Gate, bridge: Bridge) -> None:
    function = load(gate, bridge, "math").sqrt
    gate.close()
    with pytest.raises(vlcs.StateError, match=r"cannot run math\.sqrt\(\) in the context 'a': it is closed"):
        function(4)
    with pytest.raises(vlcs.StateError, match=r"math\.sqrt\.name"):
        _ = function.name
