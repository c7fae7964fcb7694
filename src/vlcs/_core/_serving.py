"""What calls into an interpreter are served with: the callee's half of the bridge, in the host as in guests.

Its partners are `_bridge.py` and `_remote.py`; they agree on what a request and an answer look like. It
travels as text, as `_guest.py` does.
"""

from __future__ import annotations

import builtins
import importlib
import operator
import pickle
import sys
import threading
from types import BuiltinMethodType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if __name__.startswith("vlcs."):  # a guest puts its own here
    from vlcs._core import _codec, _exceptions, _sharing
    from vlcs._core._native import keep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Answer = tuple[bytes, list[Any]]

# Of what stays, what crosses by value. Everything else has behaviour and stays here.
_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(Ellipsis))
_CONTAINERS = (tuple, list, set, frozenset)
_LARGEST_CONTAINER = 10_000
_VALUE_MODULES = frozenset({"datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo"})


def serve(payload: bytes, buffers: Sequence[Any]) -> Answer:
    """Does what another interpreter asks for: a pickled (operation, arguments ...), with out-of-band buffers.

    Gives a pickled (kind, details ...) and its buffers.
    """
    try:
        request = _sharing.loads(payload, buffers)
    except Exception as error:  # noqa: BLE001 - rebuilding runs code of any class
        return encode("undecodable", *_exceptions.take_apart(error, _codec.dumps_in_band))
    return requests[request[0]](*request[1:])


# The rest is called by the extension module (`native/python/call.c`), also where no request is pickled.


def apply(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Calls what is no function of Python, which may look at its caller's frame (exec, globals)."""
    return function(*args, **kwargs) if kwargs else function(*args)


def resolve(module: str, path: Sequence[str]) -> Any:
    """What a name stands for now."""
    # Not from sys.modules: another thread may be in the middle of importing it, and is waited for so.
    found: Any = importlib.import_module(module)
    for name in path:
        found = getattr(found, name)
    return found


def follow_hooks() -> None:
    """Traces the calling thread as `threading` does those that it starts: so coverage sees every call."""
    trace, profile = threading._trace_hook, threading._profile_hook  # type: ignore[attr-defined]  # noqa: SLF001
    if trace and sys.gettrace() is None:
        sys.settrace(trace)
    if profile and sys.getprofile() is None:
        sys.setprofile(profile)


def encode_value(value: Any) -> Answer:
    """The result of a call. Plain pickle first, since cloudpickle is several times slower."""
    answer = ("value", value)
    try:
        return _codec.dumps(answer, plain=True)
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        # Functions and classes that came by value, or were made here, have no name to be found by.
        return _encode_by_value(answer)


def encode_result(value: Any, is_attribute: bool) -> Answer | None:
    """The result of a call of what stays here: data by value; None for what has behaviour and stays too."""
    try:
        if _is_data(value, _LARGEST_CONTAINER if is_attribute else None):
            return _codec.dumps(("value", value), plain=True)
    except Exception:  # noqa: BLE001, S110 - pickling runs code of any class, and lists can hold themselves
        pass
    return None


def encode_error(error: BaseException) -> Answer:
    """An exception, in parts of a pickle each: the caller can tell of what it cannot rebuild."""
    return encode("error", *_exceptions.take_apart(error, _codec.dumps_in_band))


def is_method(owner: Any, name: str, value: Any) -> bool:
    """Whether the attribute is one that the owner has by its class, or a module's: in the next look the same.

    So a handle to it can be kept by whoever has one to the owner.
    """
    if isinstance(owner, ModuleType):
        return isinstance(value, (type, ModuleType)) or callable(value)
    if not isinstance(value, (MethodType, BuiltinMethodType)) or value.__self__ is not owner:
        return False
    try:
        own: Any = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return True
    return name not in own


# ---- requests


def _encode_handle(value: Any) -> Answer:
    """What stays, as a handle."""
    return _codec.dumps(("value", keep(value)), plain=True)


def _call(function: Any, args: Sequence[Any], kwargs: dict[str, Any], stays: bool) -> Answer:
    """Calls a function, given as itself or as (module, path)."""
    if isinstance(function, tuple):
        function = resolve(*function)
    result = function(*args, **kwargs)
    return _encode_handle(result) if stays else encode_value(result)


def _operate(number: int, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Answer:
    """Does one of OPERATIONS to what stays here."""
    result = operations[number](target, *args, **kwargs)
    return encode_result(result, False) or _encode_handle(result)


def _accept(_: Any) -> Answer:
    """Says that what came could be rebuilt."""
    return encode("value", None)


requests: dict[str, Callable[..., Answer]] = {
    "call": _call,
    "operate": _operate,
    "place": _encode_handle,
    "accept": _accept,
}
"""By their names; a guest has more."""


def _call_object(target: Any, /, *args: Any, **kwargs: Any) -> Any:
    return target(*args, **kwargs)


def _doc(target: Any) -> str | None:
    doc = getattr(target, "__doc__", None)
    return doc if isinstance(doc, str) else None


def _signature(target: Any) -> tuple[list[tuple[str, int, str | None, str | None]], str | None]:
    """Of each parameter name, kind, default and annotation; and the result's annotation: as text."""
    import inspect  # noqa: PLC0415 - slow to import

    def text(value: Any) -> str | None:
        if value is inspect.Parameter.empty:
            return None
        return value if isinstance(value, str) else inspect.formatannotation(value)

    signature = inspect.signature(target)
    parameters = [
        (
            one.name,
            int(one.kind),
            None if one.default is one.empty else repr(one.default),
            text(one.annotation),
        )
        for one in signature.parameters.values()
    ]
    return parameters, text(signature.return_annotation)


def _enter(target: Any) -> Any:
    return _if_other(type(target).__enter__(target), target)


def _exit(target: Any, error: BaseException | None) -> bool:
    kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
    return bool(type(target).__exit__(target, kind, error, traceback))


def _await(target: Any) -> Any:
    """Runs what can be awaited to its end, in an event loop of this thread."""
    import asyncio  # noqa: PLC0415 - slow to import

    async def outcome() -> Any:
        return await target

    return asyncio.run(outcome())


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda right, left: function(left, right)


def _if_other(result: Any, target: Any) -> tuple[Any] | None:
    """In a tuple; None where it is the target itself, which is known there, and would be copied as data."""
    return None if result is target else (result,)


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda target, other: _if_other(function(target, other), target)


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_BITWISE = ("lshift", "rshift", "and_", "or_", "xor")
_OF_NUMBERS = ("neg", "pos", "invert", "abs", "int", "float")
BINARY = _ARITHMETIC + _BITWISE
COMPARING = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = (*_OF_NUMBERS, "hash", "iter", "next", "len", "bool", "str", "reversed")

OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call_object,  # the first two are known to call.c
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "dir": dir,
    "repr": repr,
    "doc": _doc,
    "signature": _signature,
    "format": format,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "contains": operator.contains,
    "enter": _enter,
    "exit": _exit,
    "await": _await,
}
for _name in UNARY:
    OPERATIONS[_name] = getattr(operator, _name, None) or getattr(builtins, _name)
for _name in COMPARING:
    OPERATIONS[_name] = getattr(operator, _name)
for _name in BINARY:
    OPERATIONS[_name] = getattr(operator, _name)
    OPERATIONS[f"r{_name}"] = _swapped(getattr(operator, _name))
    OPERATIONS[f"i{_name}"] = _in_place(getattr(operator, f"i{_name}".rstrip("_")))
operations = tuple(OPERATIONS.values())
NUMBERS: dict[str, int] = {name: number for number, name in enumerate(OPERATIONS)}
"""By which the two sides name them: of Pythons of any version, as both have this text."""


# ---- answers


def _is_data(value: Any, largest: int | None = None) -> bool:
    """Whether it is scalars, text, dates, arrays, tensors, or containers of these of at most `largest`."""
    left = [value]
    seen: set[int] = set()
    while left:
        item = left.pop()
        kind = type(item)
        if kind in _ATOMS or isinstance(item, (str, int, float)):  # enumerations too
            continue
        if kind not in _CONTAINERS and kind is not dict:
            if not _is_value(item):
                return False
            continue
        if largest is not None and len(item) > largest:
            return False
        if id(item) in seen:
            continue
        seen.add(id(item))
        for items in (item, item.values()) if kind is dict else (item,):
            if not set(map(type, items)).issubset(_ATOMS):
                left.extend(items)
    return True


def _is_value(value: Any) -> bool:
    if isinstance(value, (type, ModuleType)) or callable(value):
        return False
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":  # times have no buffers
        return isinstance(value, (sys.modules["numpy"].ndarray, sys.modules["numpy"].generic))
    if module == "torch":
        return type(value) is sys.modules["torch"].Tensor
    try:
        return module in _VALUE_MODULES or memoryview(value) is not None
    except (TypeError, ValueError, BufferError):
        return False


def encode(*answer: Any) -> Answer:
    """An answer of plain values."""
    return pickle.dumps(answer, protocol=5), []


def _encode_by_value(answer: Any) -> Answer:
    try:
        return _codec.dumps(answer, plain=False)
    except Exception as error:  # noqa: BLE001 - as above
        return encode("unpicklable", _name_of(type(answer[1])), _describe(error))


def _name_of(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _describe(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the exception
        return "<its text cannot be made>"
