"""Objects of another interpreter, as they look from this one."""

from __future__ import annotations

import importlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from vlcs._core import _sharing
from vlcs._core._bridge import Reference, destination
from vlcs._core._errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vlcs._core._bridge import Bridge, Kept
    from vlcs._core._gate import Gate

# What introspection here may ask of a function or class there. Everything else between double
# underscores is a protocol (__array__, __enter__ ...), and an object here follows only those of the class.
_FORWARDED = frozenset(
    {"__name__", "__qualname__", "__module__", "__version__", "__all__", "__file__", "__path__"}
)


@dataclass(frozen=True)
class _Place:
    """Where an object is: the context, a module or a kept object, and the attributes that lead to it."""

    context: str
    owner: object
    """The public object of the context, which stays open as long as this refers to it."""
    gate: Gate
    bridge: Bridge
    root: str | Kept
    path: tuple[str, ...]
    reference: Reference
    label: str
    """What the root is called in messages."""

    @property
    def words(self) -> str:
        return ".".join((self.label, *self.path))

    @property
    def is_kept(self) -> bool:
        """Whether it has no name to be found by."""
        return not isinstance(self.root, str)


class RemoteObject:
    """A function, class, module or other object that stays in a context's interpreter.

    Modules and what they hold are found by their name there. Other objects, as a constructor or a call
    gives them, are kept there until this one is gone (released with the next call into the context).

    Calling it, reading attributes, indexing, `len`, iteration, `in`, `bool` and `str` run there, on this
    thread. Plain data (scalars, text, dates, arrays, tensors, and tuples, lists, sets and dicts of them)
    comes by value, arrays shared as with `VLC.run`; all else, data frames too, stays there and comes as
    another RemoteObject. `vlc.run(copy.copy, obj)` gives a copy of one, where it can be pickled. Setting
    an attribute or item sets it there. Operators (`a + b`, `a == b`) and `with` are not forwarded.

    As an argument for the same context, it arrives as the object itself. To another context, a module and
    what it holds goes as what has that name there; a kept object cannot go.
    """

    _vlcs: _Place

    def __init__(self, place: _Place, doc: str | None) -> None:
        super().__setattr__("_vlcs", place)
        super().__setattr__("__doc__", doc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        place = self._vlcs
        with place.gate.visit(f"{place.words}()"):
            return _wrap(place, place.bridge.call_there(place.root, place.path, args, kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _FORWARDED:
            raise AttributeError(f"{self!r} does not forward {name!r}", name=name, obj=self)
        place = self._vlcs
        path = (*place.path, name)
        with place.gate.visit(f"{place.words}.{name}"):
            found = place.bridge.fetch(place.root, path)
        if isinstance(found, Reference) and found.kept is None:
            return RemoteObject(replace(place, path=path, reference=found), found.doc)
        return _wrap(place, found)

    def __setattr__(self, name: str, value: Any) -> None:
        place = self._vlcs
        with place.gate.visit(f"{place.words}.{name} = ..."):
            place.bridge.store(place.root, (*place.path, name), value)

    def __dir__(self) -> list[str]:
        place = self._vlcs
        with place.gate.visit(f"dir({place.words})"):
            return place.bridge.directory(place.root, place.path)

    def __len__(self) -> int:
        return int(self._operate("len"))

    def __getitem__(self, key: Any) -> Any:
        return self._operate("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._operate("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._operate("delitem", key)

    def __contains__(self, item: Any) -> bool:
        return bool(self._operate("contains", item))

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = self._operate("iter")
        return iterator

    def __next__(self) -> Any:
        return self._operate("next")

    def __bool__(self) -> bool:
        # What has a name is a module, class or function nearly always.
        return bool(self._operate("bool")) if self._vlcs.is_kept else True

    def __str__(self) -> str:
        return str(self._operate("str")) if self._vlcs.is_kept else repr(self)

    def __repr__(self) -> str:
        place = self._vlcs
        text = place.reference.text
        if place.is_kept and not place.path:
            with suppress(StateError):  # closed: as it was
                text = self._operate("repr")
        return f"<vlcs.RemoteObject {place.words} in context {place.context!r}: {text}>"

    def _operate(self, name: str, *args: Any) -> Any:
        place = self._vlcs
        with place.gate.visit(f"{name} of {place.words}"):
            return _wrap(place, place.bridge.operate(place.root, place.path, name, args))

    # Copying goes through __reduce__ otherwise, and would give the host's object of that name.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, with functions that every Python has: vlcs need not be installed on the other side.
        place = self._vlcs
        if place.path:
            return getattr, (RemoteObject(replace(place, path=place.path[:-1]), None), place.path[-1])
        if isinstance(place.root, str):
            return importlib.import_module, (place.root,)
        if destination() is not place.bridge:
            raise TypeError(
                f"{place.words} is an object of the context {place.context!r} and cannot leave it: pass it "
                "to calls of that context only, or what it holds as plain data"
            )
        return _sharing.named("_vlcs_guest", "kept"), (place.root.number,)


def _wrap(place: _Place, found: Any) -> Any:
    """What came from there, as users see it."""
    if not isinstance(found, Reference):
        return found
    kept = found.kept or place.root
    return RemoteObject(replace(place, root=kept, path=(), reference=found, label=found.type_name), found.doc)


def import_module(context: str, owner: object, gate: Gate, bridge: Bridge, name: str) -> RemoteObject:
    """Imports a module there, on this thread. What comes of it keeps `owner`."""
    with gate.visit(f"import {name}"):
        found = bridge.fetch(name, ())
    if not isinstance(found, Reference):  # sys.modules may hold anything
        found = Reference("object", repr(found), None)
    return RemoteObject(_Place(context, owner, gate, bridge, name, (), found, name), found.doc)
