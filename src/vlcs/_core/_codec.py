"""How values are pickled for another interpreter: the same in the host and in guests.

Pickle protocol 5, with buffers out of band; cloudpickle for functions and classes that no import finds. It
travels as text, as `_guest.py` does.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

if __name__.startswith("vlcs."):  # a guest puts its own here
    from vlcs._core import _errors, _exceptions, _sharing

# What plain pickle gets right by itself: no functions, classes or instances of `__main__` inside.
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONTAINERS = frozenset({tuple, list, set, frozenset})
_PLAIN_ITEMS = 1000

_thread = threading.local()


def is_crossing() -> bool:
    """Whether this thread pickles for another interpreter right now: only then can handles be."""
    crossing: bool = getattr(_thread, "crossing", False)
    return crossing


def dumps(value: Any, *, plain: bool) -> tuple[bytes, list[Any]]:
    """A pickle, and what is lent beside it. `plain`: without cloudpickle, several times faster."""
    return _dump(value, plain=plain, crossing=True)


def dumps_in_band(value: Any) -> bytes:
    """A pickle with all in it, without handles; by value what has no name to be found by."""
    try:
        return _dump(value, plain=True, crossing=False)[0]
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        return _dump(value, plain=False, crossing=False)[0]


def _dump(value: Any, *, plain: bool, crossing: bool) -> tuple[bytes, list[Any]]:
    pickler = Pickler if plain else _sharing.cloud_pickler(_rules)
    _sharing.extend(pickler.dispatch_table)
    before = is_crossing()
    _thread.crossing = crossing
    try:
        payload: bytes
        if crossing:
            payload, lent = _sharing.dumps(pickler, value)
        else:
            payload, lent = _sharing.dumps_in_band(pickler, value), []
    finally:
        _thread.crossing = before
    if plain and b"__main__" in payload:  # names of a module that is another one there
        return _dump(value, plain=False, crossing=crossing)
    return payload, lent


class Pickler(pickle.Pickler):
    """Plain pickle with the rules of `_sharing.py`, and that of `_exceptions.py`."""

    dispatch_table: Any = _exceptions.Rules()


def _reduce_error(error: Any) -> Any:
    return (
        _sharing.named("_vlcs_sharing", "error"),
        (type(error).__qualname__, *error.__reduce__()[1]),
        vars(error),
    )


_ERRORS = {
    kind: _reduce_error
    for kind in vars(_errors).values()
    if isinstance(kind, type) and issubclass(kind, (_errors.VLCError, _errors.RemoteTraceback))
}
"""Of vlcs, which the other side need not have."""

Pickler.dispatch_table.update(_ERRORS)


def _rules(of_cloudpickle: Any) -> Any:
    return _exceptions.Rules({**of_cloudpickle, **_ERRORS})


def is_plain(value: Any) -> bool:
    """Whether plain pickle crosses it rightly, several times faster than cloudpickle.

    Plain pickle would also take functions and instances of `__main__`, as names that the other side does not
    have: so only types that are known to contain none.
    """
    left = [value]
    seen = 0
    while left:
        seen += 1
        if seen > _PLAIN_ITEMS:
            return False
        item = left.pop()
        kind = type(item)
        if kind in _ATOMS:
            continue
        if kind in _CONTAINERS:
            left.extend(item)
        elif kind is dict:
            left.extend(item)
            left.extend(item.values())
        elif not _sharing.is_lent(item):
            return False
    return True
