"""The guest's side of the bridge: runs in a context's interpreter, as the module `_vlcs_guest`.

It travels as text, since the guest may be a Python that has no vlcs installed: it imports the
standard library only, at first use where that takes time, and keeps to the syntax of Python 3.9.
Its partner is `_bridge.py`; the two agree on what a request and an answer look like.
"""

from __future__ import annotations

import _imp
import atexit
import functools
import importlib
import importlib.machinery
import itertools
import operator
import os
import pickle
import sys
import threading  # now, as it takes the thread that first imports it for the main thread
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
_VALUE_MODULES = frozenset({"datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo"})

_TEXT_LIMIT = 200


def serve(payload: bytes, buffers: Sequence[Any]) -> Answer:
    """Does what the host asks for: a pickled (operation, arguments ...), with out-of-band buffers.

    Gives a pickled (kind, details ...) and its buffers. Nothing escapes but a KeyboardInterrupt that
    arrives while the answer is being made; the extension module turns that into one of the host.
    """
    if threading._trace_hook or threading._profile_hook:  # type: ignore[attr-defined]  # noqa: SLF001
        _follow_hooks()
    try:
        try:
            request = _sharing.loads(payload, buffers)
        except Exception as error:  # noqa: BLE001 - rebuilding runs code of any class
            answer = _encode("undecodable", *_exceptions.take_apart(error, _pickled))
        else:
            answer = _OPERATIONS[request[0]](*request[1:])
    except BaseException as error:  # noqa: BLE001 - all of them go home, SystemExit too
        answer = _encode_error(error)
    finally:
        _streams.show()
    return answer


# What calls by name are made of (`native/python/call.c`), with the outcome that _call has in `serve`: _apply,
# _resolve, _encode_value, _encode_error, _follow_hooks and _show.


def _apply(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    return function(*args, **kwargs) if kwargs else function(*args)


def _follow_hooks() -> None:
    """Traces the calling thread as `threading` does those that it starts: so coverage sees every call."""
    trace, profile = threading._trace_hook, threading._profile_hook  # type: ignore[attr-defined]  # noqa: SLF001
    if trace and sys.gettrace() is None:
        sys.settrace(trace)
    if profile and sys.getprofile() is None:
        sys.setprofile(profile)


def end() -> None:
    """Ends what would go on after the last call: threads, and the functions that wait for the exit."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what Py_FinalizeEx begins with
        atexit._run_exitfuncs()  # noqa: SLF001 - what it goes on with
    except Exception:  # noqa: BLE001 - as at the end of any program
        traceback.print_exc()
    finally:
        _streams.show()


def _call(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Answer:
    """Calls a function, given as itself or as (module, path)."""
    if isinstance(function, tuple):
        function = _resolve(*function)
    return _encode_value(function(*args, **kwargs))


# In what follows, `root` is the name of a module, or the number of an object that is kept for the host.


def _call_there(root: str | int, path: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> Answer:
    """Calls what stays here; of its result, data goes by value, and what has behaviour stays too."""
    return _encode_result(_resolve(root, path)(*args, **kwargs))


def _operate(root: str | int, path: Sequence[str], name: str, args: Sequence[Any]) -> Answer:
    """Does what Python does for len(x), x[i] and so on."""
    return _encode_result(_OPERATORS[name](_resolve(root, path), *args))


def _fetch(root: str | int, path: Sequence[str]) -> Answer:
    """Reads an attribute: data goes by value, what has behaviour as a description.

    What can be called, modules and all of a module are found by their path again; other objects of
    kept ones are kept as well, since another object may have that name next time.
    """
    value = _resolve(root, path)
    if _is_data(value, _LARGEST_CONTAINER):
        return _encode_value(value)
    return _encode_reference(value, keep=isinstance(root, int) and _kind(value) == "object")


def _store(root: str | int, path: Sequence[str], value: Any) -> Answer:
    """Sets an attribute."""
    setattr(_resolve(root, path[:-1]), path[-1], value)
    return _encode("value", None)


def _directory(root: str | int, path: Sequence[str]) -> Answer:
    """Lists the names of an object's attributes."""
    return _encode("value", dir(_resolve(root, path)))


def _accept(_: Any) -> Answer:
    """Says that what came could be rebuilt."""
    return _encode("value", None)


def _release(numbers: Sequence[int]) -> Answer:
    """Gives up objects that the host needs no more."""
    for number in numbers:
        _kept.pop(number, None)
    return _encode("value", None)


def _frames() -> Answer:
    """Where each thread is, but this one. Its names come without the lock of threading.enumerate()."""
    threads = vars(threading)["_active"].copy()
    stacks = []
    for ident, innermost in sys._current_frames().items():  # noqa: SLF001 - documented
        stack: list[tuple[str, int, str]] = []
        frame: Any = innermost
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
            frame = frame.f_back
        if ident != threading.get_ident():
            stacks.append((ident, threads[ident].name if ident in threads else "", stack[::-1]))
    return _encode("value", stacks)


def _controls() -> Answer:
    """Libraries that no symbol tells: (name, address of get(), of set(n), the most threads that it can have).

    numba launches its threads once, and each of its callers may then use some of them.
    """
    found: list[tuple[str, int, int, int]] = []
    numba = sys.modules.get("numba.np.ufunc.parallel")
    if numba is not None and getattr(numba, "_is_initialized", False):
        import ctypes  # noqa: PLC0415 - numba has

        functions = (numba._get_num_threads, numba._set_num_threads)  # noqa: SLF001 - as those are that set it
        get, set_ = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
        found.append(("numba", get, set_, sys.modules["numba"].config.NUMBA_NUM_THREADS))
    return _encode("value", found)


_kept: dict[int, Any] = {}
_numbers = itertools.count(1)


def kept(number: int) -> Any:
    """An object that is kept for the host, named so in its pickles."""
    return _kept[number]


def _prepare(sharing: dict[str, str], cloudpickle_folder: str | None) -> Answer:
    """Takes over what the host lends: the rules of `_sharing*.py`, and cloudpickle where there is none."""
    _execute(sharing[""], _sharing)
    sys.modules[_sharing.__name__] = _sharing
    rules: dict[str, ModuleType] = {}

    def load_rules(package: str) -> ModuleType:
        if package not in rules:
            module = ModuleType(f"{_sharing.__name__}_{package}")
            _execute(sharing[package], module)
            rules[package] = module  # once it is whole: threads may come here at once
        return rules[package]

    _sharing.load_rules = load_rules
    _sharing.native = _vlcs_host
    if cloudpickle_folder is not None:
        sys.meta_path.append(_LentPackage("cloudpickle", cloudpickle_folder))
    return _encode("value", None)


_OPERATIONS: dict[str, Callable[..., Answer]] = {
    "call": _call,
    "call_there": _call_there,
    "operate": _operate,
    "fetch": _fetch,
    "store": _store,
    "directory": _directory,
    "accept": _accept,
    "release": _release,
    "frames": _frames,
    "controls": _controls,
    "prepare": _prepare,
}


_OPERATORS: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "contains": operator.contains,
    "delitem": operator.delitem,
    "getitem": operator.getitem,
    "iter": iter,
    "len": len,
    "next": next,
    "repr": repr,
    "setitem": operator.setitem,
    "str": str,
}


def _resolve(root: str | int, path: Sequence[str]) -> Any:
    # Not from sys.modules: another thread may be in the middle of importing it, and is waited for so.
    found = _kept[root] if isinstance(root, int) else importlib.import_module(root)
    for name in path:
        found = getattr(found, name)
    return found


def _is_data(value: Any, largest: int | None = None) -> bool:
    """Whether it is scalars, text, dates, arrays, tensors, or containers of these of at most `largest`."""
    kind = type(value)
    if kind in _ATOMS or isinstance(value, (str, int, float)):  # enumerations too
        return True
    if kind in _CONTAINERS:
        if largest is not None and len(value) > largest:
            return False
        return set(map(type, value)).issubset(_ATOMS) or all(_is_data(item, largest) for item in value)
    if kind is dict:
        return _is_data(list(value), largest) and _is_data(list(value.values()), largest)
    return _is_value(value)


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


def _kind(value: Any) -> str:
    if isinstance(value, ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "object"


class _Caller(threading._DummyThread):  # noqa: SLF001 - no other way in
    """How `threading` sees a thread that calls in. As the main thread of a program, it is no daemon.

    Otherwise no thread would be that is started in a call: they take it over from their starter.
    """

    def __init__(self) -> None:
        super().__init__()
        self._daemonic = False


vars(threading)["_DummyThread"] = _Caller


def _execute(source: str, module: Any) -> None:
    exec(compile(source, f"<vlcs {module.__name__}>", "exec"), vars(module))  # noqa: S102 - from our own package


_exceptions: Any = ModuleType("_vlcs_exceptions")  # filled at the end of this file
_sharing: Any = ModuleType("_vlcs_sharing")  # filled by _prepare, the first operation
_sharing.extend = lambda _: None
_sharing.dumps_in_band = lambda _, value: pickle.dumps(value, protocol=5)
_sharing.loads = lambda payload, _: pickle.loads(payload)  # noqa: S301 - from our own process


class _Pickler(pickle.Pickler):
    """Plain pickle with the rules of `_sharing.py`, and that of `_exceptions.py`."""

    dispatch_table: Any


def _dumps(pickler: Any, answer: Any) -> Answer:
    _sharing.extend(pickler.dispatch_table)
    dumped: Answer = _sharing.dumps(pickler, answer)
    return dumped


def _encode(*answer: Any) -> Answer:
    return pickle.dumps(answer, protocol=5), []


def _encode_value(value: Any) -> Answer:
    """The result of a call. Plain pickle first, since cloudpickle is several times slower."""
    if type(value) in _ATOMS and type(value) is not bytearray:
        return _encode("value", value)
    answer = ("value", value)
    try:
        return _dumps(_Pickler, answer)
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        # Functions and classes that came by value, or were made here, have no name to be found by.
        return _encode_by_value(answer)


def _encode_result(value: Any) -> Answer:
    """The result of a call of what stays here."""
    try:
        if _is_data(value):
            return _dumps(_Pickler, ("value", value))
    except Exception:  # noqa: BLE001, S110 - pickling runs code of any class, and lists can hold themselves
        pass
    return _encode_reference(value, keep=True)


def _encode_reference(value: Any, *, keep: bool) -> Answer:
    """A description of what stays here, with its number where it is kept."""
    doc = getattr(value, "__doc__", None)
    text = repr(value)
    if len(text) > _TEXT_LIMIT:
        text = text[:_TEXT_LIMIT] + "..."
    number = None
    if keep:
        number = next(_numbers)
        _kept[number] = value
    name = _name_of(type(value))
    return _encode("reference", _kind(value), text, doc if isinstance(doc, str) else None, name, number)


def _encode_by_value(answer: Any) -> Answer:
    try:
        return _dumps(_sharing.cloud_pickler(_exceptions.Rules), answer)
    except Exception as error:  # noqa: BLE001 - as above
        return _encode("unpicklable", _name_of(type(answer[1])), _describe(error))


def _encode_error(error: BaseException) -> Answer:
    """An exception, in parts of a pickle each: the host can tell of what it cannot rebuild."""
    return _encode("error", *_exceptions.take_apart(error, _pickled))


def _pickled(value: Any) -> bytes:
    """A pickle with all in it, by value where it has no name to be found by."""
    try:
        return _in_band(_Pickler, value)
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        return _in_band(_sharing.cloud_pickler(_exceptions.Rules), value)


def _in_band(pickler: Any, value: Any) -> bytes:
    _sharing.extend(pickler.dispatch_table)
    dumped: bytes = _sharing.dumps_in_band(pickler, value)
    return dumped


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


def _fork(when: int) -> None:
    """The host's interpreter forks with this one.

    The import lock is taken first, as os.fork() is going to take it: who waited for it with the host's GIL
    in hand would keep its holder from printing.
    """
    if when == 0:
        threading.current_thread()  # has it known there, as in the host (_exit.py)
        _imp.acquire_lock()
    _vlcs_host.fork(when)
    if when != 0:
        _imp.release_lock()
    if when == 2 and isinstance(threading.main_thread(), _Caller):
        _become_main()


def _become_main() -> None:
    """In a child, of a thread that only calls in.

    Up to Python 3.12, threading._shutdown() wants more of the main thread than such a one has; and called on
    another thread, as it is here at the guest's end, it would wait for the main thread for ever.
    """
    main = threading._MainThread()  # type: ignore[attr-defined]  # noqa: SLF001
    threading._main_thread = main  # type: ignore[attr-defined]  # noqa: SLF001
    waited_for: set[Any] = getattr(threading, "_shutdown_locks", set())
    waited_for.discard(getattr(main, "_tstate_lock", None))


os.register_at_fork(  # now, so that they are the innermost
    before=functools.partial(_fork, 0),
    after_in_parent=functools.partial(_fork, 1),
    after_in_child=functools.partial(_fork, 2),
)

_settings = pickle.loads(_vlcs_host.settings)  # noqa: S301 - from our own process
name: str = _settings["name"]  # of the context, for the vlcs that is imported here
for _variable, _value in _settings["environ"].items():  # of programs started here; this one began with others
    if _value is None:
        os.environ.pop(_variable, None)
    else:
        os.environ[_variable] = _value
_execute(_settings["exceptions"], _exceptions)
_Pickler.dispatch_table = _exceptions.Rules()
_streams: Any = ModuleType("_vlcs_streams")
_execute(_settings["streams"], _streams)
_streams.install()
_show = _streams.show
