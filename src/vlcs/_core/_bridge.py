"""How values cross into another interpreter and back; its partners there are `_serving.py` and `_guest.py`.

Values are pickled (protocol 5); arrays and other buffers stay where they are and cross as leases.
A function that can be imported crosses as its name, others by cloudpickle. The rest of the package
knows only the class `Bridge`, so that a faster codec can take this one's place.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from vlcs._core import _codec, _errors, _native, _remote, _serving, _sharing
from vlcs._core._errors import RemoteTraceback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vlcs._core._native import Caller, Interpreter


class Bridge:
    """Calls into one interpreter. Methods may be called by any thread, and run there on that thread.

    Exceptions of the called code come home as they are, with the traceback over there as their
    `__cause__`; RemoteError where their class cannot be rebuilt here.
    """

    def __init__(self, interpreter: Interpreter, name: str, *, inherits_path: bool = True) -> None:
        """`name`: the context's, for messages. `inherits_path`: its `sys.path` is the host's of now."""
        self._interpreter = interpreter
        self.name = name
        self._sys_path = tuple(sys.path) if inherits_path else None
        self._perform("a set-up call", ("prepare", _cloudpickle_folder()))

    def call(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, keep: bool = False
    ) -> Any:
        """Calls a function there. PicklingError: it, an argument or the result cannot cross.

        Shared, so that both sides see what either writes: NumPy arrays and views of them (not subclasses,
        nor arrays of objects), memoryview, bytearray, array.array, mmap, CPU tensors of PyTorch; inside of
        other values too. Columns of pandas are shared until either side writes. Everything else is copied.
        `keep`: the result stays there, and a RemoteObject comes.
        """
        named = _importable_name(function)
        if named is not None:
            return self._perform(function, ("call", named, tuple(args), dict(kwargs), keep))
        return self._perform(function, ("call", function, tuple(args), dict(kwargs), keep), plain=False)

    def connect(self, caller: Caller) -> None:
        """Opens the short way for calls of functions with a name and plain values."""
        caller._connect(self._interpreter, self._decode, _importable_name)  # noqa: SLF001

    def import_module(self, name: str) -> Any:
        """Imports a module there; it stays there."""
        request: tuple[Any, ...] = ("call", ("importlib", ("import_module",)), (name,), {}, True)
        return self._perform(f"import {name}", request)

    def place(self, value: Any) -> Any:
        """Copies a value there, as an argument is, where it stays; a RemoteObject comes."""
        return self._perform("remote()", ("place", value))

    def controls(self) -> list[tuple[str, int, int, int]]:
        """Its libraries that only Python finds: (name, address of get(), of set(n), the most threads)."""
        found: list[tuple[str, int, int, int]] = self._perform("a look", ("controls",))
        return found

    def frames(self) -> list[tuple[int, str, list[tuple[str, int, str]]]]:
        """Where each thread there is, but this one: (ident, name or "", [(file, line, function) ...])."""
        stacks: list[tuple[int, str, list[tuple[str, int, str]]]] = self._perform("a look", ("frames",))
        return stacks

    def _perform(self, what: object, request: tuple[Any, ...], *, plain: bool = True) -> Any:
        __tracebackhide__ = True  # for pytest and IPython: whose code failed counts
        payload, buffers = _remote.encode(what, self.name, request, plain=plain and _codec.is_plain(request))
        answer, leases = self._interpreter.call(payload, buffers)
        return self._decode(what, answer, leases, request)

    def _decode(
        self, what: object, payload: bytes, leases: Sequence[Any], request: tuple[Any, ...] = ()
    ) -> Any:
        __tracebackhide__ = True
        call = _remote.Call(what, self.name, request, self._interpreter.call)
        try:
            return call.decode(payload, leases)
        except ModuleNotFoundError as error:
            if self._sys_path is not None and isinstance(error.__cause__, RemoteTraceback):
                later = [entry for entry in sys.path if entry not in self._sys_path]
                if later:
                    error.add_note(
                        f"The context {self.name!r} has the sys.path of when it was made; since then the "
                        f"host's got {later!r}. Make contexts after changing sys.path, or change it there "
                        "too: vlc.run(site.addsitedir, folder)."
                    )
            raise


def _load_rules(package: str) -> Any:
    return importlib.import_module(f"vlcs._core._sharing_{package}")


sys.modules.setdefault("_vlcs_sharing", _sharing)
_sharing.load_rules = _load_rules
_sharing.native = _native
_sharing.errors = _errors
_native.furnish(
    {
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
        "show": None,  # the two are of guests
        "end": None,
    }
)


def _importable_name(function: Any) -> tuple[str, tuple[str, ...]] | None:
    """(module, path) of a function or class that an import finds there, where it is this very object."""
    if not isinstance(function, FunctionType | BuiltinFunctionType | type):
        return None
    module, path, found = look_up(function)
    if found is function:
        return module, path
    # What functools.wraps leaves: the name is the decorator's, and the function is behind it.
    return (module, (*path, "__wrapped__")) if getattr(found, "__wrapped__", None) is function else None


def look_up(named: Any) -> tuple[str, tuple[str, ...], Any]:
    """Module and path by which something names itself, and what an import finds there; or None."""
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return "", (), None
    found: Any = sys.modules.get(module)
    if getattr(found, "__spec__", None) is None or _is_by_value(module):
        return "", (), None  # made at run time: no import would find it
    path = tuple(map(sys.intern, name.split(".")))  # CPython's cache of attributes keeps new strings
    for part in path:
        found = getattr(found, part, None)
    return module, path, found


def _is_by_value(module: str) -> bool:
    """Whether the user asked cloudpickle to send the module's functions by value."""
    # Another thread may be importing it right now: without the function, nobody has registered yet.
    list_registered = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", None)
    if list_registered is None:
        return False
    registered = list_registered()
    return any(module == name or module.startswith(f"{name}.") for name in registered)


@lru_cache(maxsize=1)
def _cloudpickle_folder() -> str | None:
    """The folder that holds the host's cloudpickle package, for guests that have none."""
    spec = importlib.util.find_spec("cloudpickle")
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])
