"""Which rules of pickling there are, and when."""

from __future__ import annotations

import ast
import copyreg
import pickle
import sys
from importlib import resources
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vlcs._core import _sharing, _sharing_torch


def module(name: str, **names: Any) -> Any:
    made: Any = ModuleType(name)
    made.__spec__ = SimpleNamespace(_initializing=False)
    vars(made).update(names)
    return made


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Packages whose rules were asked for; none of them is imported."""
    asked: list[str] = []

    def load_rules(package: str) -> Any:
        asked.append(package)
        return SimpleNamespace(rules=lambda: {sys.modules[package].DataFrame: len})

    monkeypatch.setattr(_sharing, "load_rules", load_rules)
    for package in _sharing.PACKAGES:
        monkeypatch.delitem(sys.modules, package, raising=False)
    return asked


def test_rules_of_a_package_are_read_once_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, loaded: list[str]
) -> None:
    table: dict[Any, Any] = {}
    _sharing.extend(table)
    assert loaded == []
    frame = type("DataFrame", (), {})
    polars = module("polars", DataFrame=frame)
    polars.__spec__._initializing = True  # by another thread
    monkeypatch.setitem(sys.modules, "polars", polars)
    _sharing.extend(table)
    assert loaded == []
    polars.__spec__._initializing = False
    _sharing.extend(table)
    _sharing.extend(table)
    assert loaded == ["polars"]
    assert table[frame] is len


def test_another_module_of_that_name_is_none(monkeypatch: pytest.MonkeyPatch, loaded: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", module("torch", burn=print))
    _sharing.extend({})
    assert loaded == []


def test_every_package_has_its_text() -> None:
    folder = resources.files("vlcs._core")
    for package in _sharing.PACKAGES:
        ast.parse(folder.joinpath(f"_sharing_{package}.py").read_text("utf-8"), feature_version=(3, 9))


class Kept:
    def __init__(self, value: int) -> None:
        self.value = value


def test_a_reduction_may_be_handed_on() -> None:
    by_new = Kept(3).__reduce_ex__(4)
    assert by_new[0] is copyreg.__newobj__  # type: ignore[attr-defined]  # which pickle treats apart
    for reduction in (by_new, Kept(3).__reduce_ex__(2), (Kept, (3,)), (Kept, (1,), {"value": 3})):
        stand_in = _sharing.by_reduction(reduction)
        assert pickle.loads(pickle.dumps(stand_in)).value == 3  # noqa: S301 - its own


def test_memory_of_other_devices_is_left_to_pytorch() -> None:
    class Storage:
        device = SimpleNamespace(type="cuda")

        def __reduce__(self) -> Any:
            return "as PyTorch does"

    storage = Storage()
    typed = SimpleNamespace(_untyped_storage=storage, __reduce__=storage.__reduce__)
    assert _sharing_torch._reduce_storage(storage) == "as PyTorch does"
    assert _sharing_torch._reduce_typed_storage(typed) == "as PyTorch does"
