"""Objects of another interpreter, as they look from this one."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from vlcs._core._bridge import Reference

if TYPE_CHECKING:
    from vlcs._core._bridge import Bridge
    from vlcs._core._gate import Gate

# What introspection here may ask of a function or class there. Everything else between double
# underscores is a protocol (__array__, __len__ ...), and an object here does not follow it.
_FORWARDED = frozenset(
    {"__name__", "__qualname__", "__module__", "__version__", "__all__", "__file__", "__path__"}
)


@dataclass(frozen=True)
class _Place:
    """Where an object is: the context, the module, and the attributes that lead to it."""

    context: str
    gate: Gate
    bridge: Bridge
    module: str
    path: tuple[str, ...]
    reference: Reference

    @property
    def words(self) -> str:
        return ".".join((self.module, *self.path))


class RemoteObject:
    """A function, class, module or other object of a context's interpreter, found by its name there.

    Calling it runs there, on this thread; arguments and result cross as with `VLC.run`. Reading an
    attribute gives plain data by value (arrays are shared, not copied) and another RemoteObject for
    what has behaviour. Setting one sets it there. As an argument for the same context, it arrives as
    the object itself; elsewhere, as what has that name in the other interpreter.
    """

    _vlcs: _Place

    def __init__(self, place: _Place, doc: str | None) -> None:
        super().__setattr__("_vlcs", place)
        super().__setattr__("__doc__", doc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        place = self._vlcs
        with place.gate.entered(place.words):
            return place.bridge.call_path(place.module, place.path, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _FORWARDED:
            raise AttributeError(f"{self!r} does not forward {name!r}", name=name, obj=self)
        place = self._vlcs
        path = (*place.path, name)
        with place.gate.entered(f"{place.words}.{name}"):
            found = place.bridge.fetch(place.module, path)
        if isinstance(found, Reference):
            return RemoteObject(replace(place, path=path, reference=found), found.doc)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        place = self._vlcs
        with place.gate.entered(f"{place.words}.{name} = ..."):
            place.bridge.store(place.module, (*place.path, name), value)

    def __dir__(self) -> list[str]:
        place = self._vlcs
        with place.gate.entered(f"dir({place.words})"):
            return place.bridge.directory(place.module, place.path)

    def __repr__(self) -> str:
        place = self._vlcs
        return f"<vlcs.RemoteObject {place.words} in context {place.context!r}: {place.reference.text}>"

    # Copying goes through __reduce__ otherwise, and would give the host's object of that name.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, with functions that every Python has: vlcs need not be installed on the other side.
        place = self._vlcs
        if not place.path:
            return importlib.import_module, (place.module,)
        return getattr, (RemoteObject(replace(place, path=place.path[:-1]), None), place.path[-1])


def import_module(context: str, gate: Gate, bridge: Bridge, name: str) -> RemoteObject:
    """Imports a module there, on this thread."""
    with gate.entered(f"import {name}"):
        found = bridge.fetch(name, ())
    if not isinstance(found, Reference):  # sys.modules may hold anything
        found = Reference("object", repr(found), None)
    return RemoteObject(_Place(context, gate, bridge, name, (), found), found.doc)
