"""A native library of a context, used as `ctypes` uses one of the host."""

import ctypes
from typing import Any

from vlcs._core._errors import ArgumentError, LoadError, SymbolError
from vlcs._core._gate import Gate
from vlcs._core._native import Context

# The base of all function pointers; ctypes has no public name for it.
_FunctionPointer: Any = ctypes.CFUNCTYPE(None).__mro__[1]


class Library:
    """Private copy of a shared library in a context; an attribute is one of its functions.

    A function is a ctypes function pointer: `argtypes`, `restype` and `errcheck` can be set, and it
    can be passed wherever C wants its address: whoever calls it then, and when, it runs inside the
    context (`VLC.wrap`). Calling it from Python enters the context and drops the GIL. Arguments are
    passed as ctypes passes them: pointers are shared, nothing is copied.

    `library["name"]` makes a new function object, for another signature of the same function or
    a name that is an attribute of this class. After `close()` a call raises StateError.
    """

    def __init__(
        self, context: Context, owner: object, gate: Gate, path: str, handle: int, *, use_errno: bool = False
    ) -> None:
        self._context = context
        self._owner = owner  # the context stays open as long as this, or a function of it, refers to it
        self._gate = gate
        self._path = path
        self._number = handle
        self._type = _function_type(context, gate, path, use_errno=use_errno)

    @property
    def path(self) -> str:
        """What was asked for: a path or a soname."""
        return self._path

    def address_of(self, name: str) -> int:
        """Address of a function or variable: `ctypes.c_int.from_address(library.address_of("errors"))`.

        Valid until `close()`. Raises SymbolError where neither the library nor what it needs has the symbol.
        """
        self._gate.check(f"{self._path}: {name}")
        try:
            return self._context.symbol(self._number, name)
        except LoadError as error:
            raise SymbolError(error.message, error.subject) from None

    def __getitem__(self, name: str) -> Any:
        function = self._type(self._context.wrap(self.address_of(name)))
        function.__name__ = function.__qualname__ = name
        function._vlcs_owner = self._owner  # noqa: SLF001 - the class's would wait for the collector
        return function

    def __getattr__(self, name: str) -> Any:
        # Python's own questions (copy, pickle, inspect) are not for the library.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name == "_handle":  # ctypes would give it to dlsym, which knows nothing of contexts
            raise SymbolError(
                f"ctypes cannot search {self._path!r} in the context {self._context.name!r} by itself. Write "
                'c_int.from_address(library.address_of("name")) for c_int.in_dll(library, "name"), and '
                'prototype(library.address_of("name")) for prototype(("name", library)).',
                self._path,
            )
        function = self[name]
        setattr(self, name, function)
        return function

    def __repr__(self) -> str:
        return f"<vlcs.Library {self._path!r} in context {self._context.name!r}>"


def wrap(context: Context, owner: object, function: Any) -> Any:
    """The address or function pointer, made to enter the context: `VLC.wrap`."""
    is_pointer = isinstance(function, _FunctionPointer)
    address = ctypes.cast(function, ctypes.c_void_p).value if is_pointer else function
    if isinstance(address, bool) or not isinstance(address, int) or not 0 < address < 1 << 64:
        raise ArgumentError(
            f"cannot wrap {function!r} in the context {context.name!r}: give the address of a function as an "
            "int, or a ctypes function pointer that is not NULL.",
            repr(function),
        )
    wrapped = context.wrap(address)
    if wrapped == address:
        return function
    if not is_pointer:
        return wrapped
    pointer = type(function)(wrapped)
    pointer.argtypes, pointer.restype = function.argtypes, function.restype
    pointer._vlcs_keeps = function, owner  # noqa: SLF001 - ctypes has no place for it
    return pointer


def owns(gate: Gate, function: object) -> bool:
    """Whether `function` is a function of a library in the context behind `gate`."""
    return getattr(type(function), "_vlcs_gate", None) is gate


def _function_type(context: Context, gate: Gate, path: str, *, use_errno: bool) -> Any:
    # As CDLL does, one class per library: ctypes reads the calling convention from the class.
    base: Any = ctypes.CFUNCTYPE(ctypes.c_int, use_errno=use_errno)

    class Function(base):  # type: ignore[misc] # the base is made at run time
        """A function of a library of a context, as ctypes sees it."""

        _flags_ = base._flags_
        _restype_ = base._restype_
        _vlcs_gate = gate
        __module__ = path

        def __call__(self, *arguments: Any) -> Any:
            with gate.visit(self, context):
                return super().__call__(*arguments)

        def __repr__(self) -> str:
            return f"<function {self.__name__!r} of {path!r} in context {context.name!r}>"

    return Function
