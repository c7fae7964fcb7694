"""The guest's side of the bridge: runs in a context's interpreter, as the module `_vlcs_guest`.

It travels as text, since the guest may be a Python that has no vlcs installed: it imports the
standard library only, at first use where that takes time, and keeps to the syntax of Python 3.9.
What serves calls and makes them is in `_serving.py` and `_remote.py`, which the host has too.
"""

from __future__ import annotations

import _imp
import atexit
import functools
import importlib.machinery
import os
import pickle
import sys
import threading  # now, as it takes the thread that first imports it for the main thread
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

import _vlcs_host  # type: ignore[import-not-found]  # made by the extension module, in guests only

if TYPE_CHECKING:
    Answer = tuple[bytes, list[Any]]


def end() -> None:
    """Ends what would go on after the last call: threads, and the functions that wait for the exit."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what Py_FinalizeEx begins with
        atexit._run_exitfuncs()  # noqa: SLF001 - what it goes on with
    except Exception:  # noqa: BLE001 - as at the end of any program
        traceback.print_exc()
    finally:
        _streams.show()


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
    return _answer(stacks)


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
    return _answer(found)


def _prepare(cloudpickle_folder: str | None) -> Answer:
    """Takes over what the host lends: cloudpickle, where there is none."""
    if cloudpickle_folder is not None:
        sys.meta_path.append(_LentPackage("cloudpickle", cloudpickle_folder))
    return _answer(None)


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


def _answer(value: Any) -> Answer:
    answer: Answer = _serving.encode("value", value)
    return answer


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


def _adopt(name: str, **names: Any) -> Any:
    """Makes a module of the host's of its text, with what it would import there."""
    module: Any = ModuleType(f"_vlcs_{name}")
    vars(module).update(names)
    _execute(_settings["sources"][name], module)
    return module


_rules: dict[str, Any] = {}


def _load_rules(package: str) -> Any:
    if package not in _rules:
        _rules[package] = _adopt(f"sharing_{package}")  # once it is whole: threads may come here at once
    return _rules[package]


_streams = _adopt("guest_streams")
_streams.install()
_exceptions = _adopt("exceptions")
_errors = _adopt("errors", _exceptions=_exceptions)
_sharing = _adopt("sharing")
_sharing.errors = _errors
_sharing.load_rules = _load_rules
_sharing.native = _vlcs_host
sys.modules["_vlcs_sharing"] = _sharing
_codec = _adopt("codec", _errors=_errors, _exceptions=_exceptions, _sharing=_sharing)
_serving = _adopt("serving", _codec=_codec, _exceptions=_exceptions, _sharing=_sharing, keep=_vlcs_host.keep)
_remote = _adopt(
    "remote",
    _codec=_codec,
    _errors=_errors,
    _exceptions=_exceptions,
    _serving=_serving,
    _sharing=_sharing,
    Handle=_vlcs_host.Handle,
    keep=_vlcs_host.keep,
)
_serving.requests.update(controls=_controls, frames=_frames, prepare=_prepare)
for _class in (*vars(_errors).values(), _remote.RemoteObject):
    if isinstance(_class, type) and _class.__module__.startswith("_vlcs_"):
        _class.__module__ = "vlcs"  # as in the host

functions = {
    "serve": _serving.serve,
    "apply": _serving.apply,
    "resolve": _serving.resolve,
    "encode_value": _serving.encode_value,
    "encode_result": _serving.encode_result,
    "encode_error": _serving.encode_error,
    "is_method": _serving.is_method,
    "follow_hooks": _serving.follow_hooks,
    "threading": vars(threading),
    "operations": _serving.operations,
    "decode": _remote.decode_for,
    "from_status": _errors.from_status,
    "remote_object": _remote.RemoteObject,
    "show": _streams.show,
    "end": end,
}
"""What the extension module uses."""
