"""The guest's side of the bridge: runs in a context's interpreter, as the module `_vlcs_guest`.

It travels as text, since the guest may be a Python that has no vlcs installed: it imports the
standard library only, at first use where that takes time, and keeps to the syntax of Python 3.9.
Its partner is `_bridge.py`; the two agree on what a request and an answer look like.
"""

from __future__ import annotations

import codecs
import collections
import copyreg
import functools
import importlib
import importlib.machinery
import io
import os
import pickle
import sys
import threading  # noqa: F401 - now, as it takes the thread that first imports it for the main thread
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

import _vlcs_host  # type: ignore[import-not-found]  # made by the extension module, in guests only

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Answer = tuple[bytes, list[Any]]

# Where an attribute is read: what crosses by value. Everything else has behaviour and stays here.
_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(Ellipsis))
_CONTAINERS = (tuple, list, set, frozenset)
_LARGEST_CONTAINER = 10_000

_TEXT_LIMIT = 200


def serve(payload: bytes, buffers: Sequence[Any]) -> Answer:
    """Does what the host asks for: a pickled (operation, arguments ...), with out-of-band buffers.

    Gives a pickled (kind, details ...) and its buffers. Nothing escapes but a KeyboardInterrupt that
    arrives while the answer is being made; the extension module turns that into one of the host.
    """
    try:
        request = _sharing.loads(payload, buffers)
        answer = _OPERATIONS[request[0]](*request[1:])
    except BaseException as error:  # noqa: BLE001 - all of them go home, SystemExit too
        answer = _encode_error(error)
    finally:
        _flush()
    return answer


def _call(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Answer:
    """Calls a function, given as itself or as (module, path)."""
    if isinstance(function, tuple):
        function = _resolve(*function)
    return _encode_value(function(*args, **kwargs))


def _fetch(module: str, path: Sequence[str]) -> Answer:
    """Reads an attribute: data goes by value, what has behaviour as a description."""
    value = _resolve(module, path)
    if _is_data(value):
        return _encode_value(value)
    doc = getattr(value, "__doc__", None)
    text = repr(value)
    if len(text) > _TEXT_LIMIT:
        text = text[:_TEXT_LIMIT] + "..."
    return _encode("reference", _kind(value), text, doc if isinstance(doc, str) else None)


def _store(module: str, path: Sequence[str], value: Any) -> Answer:
    """Sets an attribute."""
    setattr(_resolve(module, path[:-1]), path[-1], value)
    return _encode("value", None)


def _directory(module: str, path: Sequence[str]) -> Answer:
    """Lists the names of an object's attributes."""
    return _encode("value", dir(_resolve(module, path)))


def _prepare(sharing: str, cloudpickle_folder: str | None) -> Answer:
    """Takes over what the host lends: the rules of `_sharing.py`, and cloudpickle where there is none."""
    exec(compile(sharing, "<vlcs sharing>", "exec"), _sharing.__dict__)  # noqa: S102 - from our own package
    if cloudpickle_folder is not None:
        sys.meta_path.append(_LentPackage("cloudpickle", cloudpickle_folder))
    return _encode("value", None)


_OPERATIONS: dict[str, Callable[..., Answer]] = {
    "call": _call,
    "fetch": _fetch,
    "store": _store,
    "directory": _directory,
    "prepare": _prepare,
}


def _resolve(module: str, path: Sequence[str]) -> Any:
    found = sys.modules.get(module)
    if found is None:
        found = importlib.import_module(module)
    for name in path:
        found = getattr(found, name)
    return found


def _is_data(value: Any) -> bool:
    kind = type(value)
    if kind in _ATOMS or isinstance(value, (str, int, float)):  # enumerations too
        return True
    if kind in _CONTAINERS:
        return len(value) <= _LARGEST_CONTAINER and all(map(_is_data, value))
    if kind is dict:
        return _is_data(list(value)) and _is_data(list(value.values()))
    if isinstance(value, (type, ModuleType)) or callable(value):
        return False
    try:
        memoryview(value)  # arrays, and NumPy's scalars
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _kind(value: Any) -> str:
    if isinstance(value, ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "object"


_sharing = ModuleType("_vlcs_sharing")  # filled by _prepare, the first operation
_sharing.loads = lambda payload, buffers: pickle.loads(payload, buffers=buffers)  # type: ignore[attr-defined]  # noqa: S301 - from our own process


class _Pickler(pickle.Pickler):
    """Plain pickle with the rules of `_sharing.py`."""

    dispatch_table = collections.ChainMap[Any, Any]({}, copyreg.dispatch_table)  # noqa: RUF012 - grows


def _dumps(pickler: Any, answer: Any) -> Answer:
    _sharing.extend(pickler.dispatch_table)
    file = io.BytesIO()
    buffers: list[Any] = []
    pickler(file, protocol=5, buffer_callback=buffers.append).dump(answer)
    return file.getvalue(), buffers


def _encode(*answer: Any) -> Answer:
    buffers: list[Any] = []
    return pickle.dumps(answer, protocol=5, buffer_callback=buffers.append), buffers


def _encode_value(value: Any) -> Answer:
    """The result of a call. Plain pickle first, since cloudpickle is several times slower."""
    if type(value) in _ATOMS:
        return _encode("value", value)
    answer = ("value", value)
    try:
        return _dumps(_Pickler, answer)
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        # Functions and classes that came by value, or were made here, have no name to be found by.
        return _encode_by_value(answer)


def _encode_by_value(answer: Any) -> Answer:
    try:
        return _dumps(_cloud_pickler(), answer)
    except Exception as error:  # noqa: BLE001 - as above
        return _encode("unpicklable", _name_of(type(answer[1])), _describe(error))


@functools.lru_cache(maxsize=1)
def _cloud_pickler() -> Any:
    import cloudpickle  # noqa: PLC0415 - the guest's own or lent by the host

    rules = dict(cloudpickle.Pickler.dispatch_table)
    rules.pop(memoryview, None)  # it copies; ours does not
    return type("CloudPickler", (cloudpickle.Pickler,), {"dispatch_table": rules})


def _encode_error(error: BaseException) -> Answer:
    """An exception, apart in a pickle of its own: the host can tell of it where it cannot rebuild it."""
    text = "".join(traceback.format_exception(type(error), error, _own_frames_cut(error)))
    pickled: bytes | None = None
    try:
        pickled = pickle.dumps(error, protocol=5)
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        try:
            import cloudpickle  # noqa: PLC0415

            pickled = cloudpickle.dumps(error, protocol=5)
        except Exception:  # noqa: BLE001, S110 - the host makes a RemoteError of the text
            pass
    return _encode("error", pickled, _name_of(type(error)), _describe(error), text)


def _own_frames_cut(error: BaseException) -> Any:
    """The traceback from the first frame that is not this module's."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == serve.__code__.co_filename:
        frames = frames.tb_next
    return frames if frames is not None else error.__traceback__


def _name_of(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _describe(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the exception
        return "<its text cannot be made>"


class _LentPackage:
    """Finds one pure-Python package of the host, last: a copy of the guest's own goes first."""

    def __init__(self, name: str, folder: str) -> None:
        self._name = name
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        """Part of the import protocol."""
        if name != self._name:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folder])


class _HostStream(io.RawIOBase):
    """The raw end of the guest's `sys.stdout` (1) or `sys.stderr` (2): the host's stream of that moment."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._write = _vlcs_host.write  # found here even when modules are being cleared at the end
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self.name = "<stdout>" if fd == 1 else "<stderr>"
        self.mode = "wb"

    def writable(self) -> bool:
        """Is all it is for."""
        return True

    def fileno(self) -> int:
        """The process's own descriptor, for what needs one: text goes to the host's stream."""
        return self._fd

    def isatty(self) -> bool:
        """Whether the process's own descriptor is a terminal."""
        return os.isatty(self._fd)

    def write(self, data: Any) -> int:
        """Hands over what is complete; the rest of a character waits for the next write."""
        text = self._decode(bytes(data))
        if text:
            self._write(self._fd, text)
        return len(data)


def _stream(fd: int, errors: str) -> io.TextIOWrapper:
    # Line buffered, so that lines of contexts that print at once do not mix.
    return io.TextIOWrapper(
        io.BufferedWriter(_HostStream(fd)), encoding="utf-8", errors=errors, newline="\n", line_buffering=True
    )


def _flush() -> None:
    """Shows what a call has printed without an end of line, before the host prints."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 - None, closed, broken, or a stream of the host that raises
            continue  # what the call has done counts more than its words


sys.stdout = sys.__stdout__ = _stream(1, "surrogateescape")  # type: ignore[misc]
sys.stderr = sys.__stderr__ = _stream(2, "backslashreplace")  # type: ignore[misc]
