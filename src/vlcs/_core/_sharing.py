"""Rules of pickling for both sides of the bridge: what is shared that pickle would copy, and NumPy 1 to 2.

NumPy arrays pickle out of band by themselves where they are contiguous and of a type that has a buffer
format; the rules here share strided views, datetimes and memoryviews too, and those of other packages are
in `_sharing_*.py`, read once the package is imported. The guest may be a Python that has no vlcs, so these
files travel as text, as `_guest.py` does: they import the standard library only, and keep to the syntax of
Python 3.9. On both sides this module is also known as `_vlcs_sharing`, the name that pickles call it by.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import io
import pickle
import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping


PACKAGES = {"pandas": "DataFrame", "polars": "DataFrame", "torch": "Tensor"}
"""Packages that have a `_sharing_*.py`, each with one of the types that it has rules for."""


native: Any = None
"""Each side puts the module of its C code here, which has `arrow_lend` and `arrow_borrow`."""


def load_rules(package: str) -> Any:
    """The module `_sharing_*` of a package. Each side puts its own way of loading here."""
    raise NotImplementedError(package)


def extend(table: MutableMapping[Any, Callable[[Any], Any]]) -> None:
    """Adds the rules to a pickler's dispatch table; those of packages once they are imported."""
    table.setdefault(memoryview, _reduce_view)
    table.setdefault(io.TextIOWrapper, _reduce_file)
    array_type = getattr(sys.modules.get("numpy"), "ndarray", None)  # none, too, while it is being imported
    if array_type is not None:
        table.setdefault(array_type, _reduce_array)
    for package, name in PACKAGES.items():
        module: Any = sys.modules.get(package)
        kind = getattr(module, name, None)
        if kind is None or kind in table or getattr(module.__spec__, "_initializing", False):
            continue
        for kind, rule in load_rules(package).rules().items():
            table.setdefault(kind, rule)


def rebuilt(package: str, name: str, *args: Any) -> Any:
    """What a rule gives: the value is made there by a function of the package's `_sharing_*.py`."""
    return _REBUILD, (package, name, *args)


def by_reduction(reduction: tuple[Any, ...]) -> Any:
    """What is pickled as an object is that has this reduction: so a rule may hand that on to `rebuilt`."""
    function, *rest = reduction
    if function is copyreg.__newobj__:  # type: ignore[attr-defined]  # pickle has it for the object itself only
        function = named("copyreg", "__newobj__")
    stand_in = _Reduced(function)
    stand_in.reduction = (function, *rest)
    return stand_in


def rebuild(package: str, name: str, *args: Any) -> Any:
    """Makes a value that a rule has taken apart."""
    return getattr(load_rules(package), name)(*args)


def loads(payload: bytes, buffers: Iterable[Any]) -> Any:
    """`pickle.loads`, also between NumPy 1 and 2; classes of this side that come back stay as they are."""
    names = _numpy_names() if b"numpy.core." in payload or b"numpy._core." in payload else ("", "")
    if b"cloudpickle" in payload or (names[0] and names[0].encode() in payload):
        return _Unpickler(io.BytesIO(payload), buffers=buffers, numpy=names).load()
    return pickle.loads(payload, buffers=buffers)  # noqa: S301 - from our own process


@functools.lru_cache(maxsize=1)
def _numpy_names() -> tuple[str, str]:
    """What the other NumPy calls the package of its internals, which pickles of arrays name; and ours."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return "", ""
    names = ("numpy._core.", "numpy.core.")
    return names if int(numpy.__version__.split(".")[0]) < 2 else (names[1], names[0])


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, *, buffers: Iterable[Any], numpy: tuple[str, str]) -> None:
        super().__init__(file, buffers=buffers)
        self._foreign, self._own = numpy

    def find_class(self, module: str, name: str) -> Any:
        if self._foreign and module.startswith(self._foreign):
            module = self._own + module[len(self._foreign) :]
        found = super().find_class(module, name)
        if module.startswith("cloudpickle"):
            if name in {"_make_skeleton_class", "_make_skeleton_enum"}:
                return functools.partial(_make_class, found)
            if name == "_class_setstate":
                return functools.partial(_fill_class, found)
        return found


# A class without a name to import crosses by value: cloudpickle makes an empty class, and fills it. When
# it comes back to where it was made, its number finds the original, which is not to be filled anew: its
# methods would be replaced by copies that see copies of their globals.
_arrived: weakref.WeakSet[type] = weakref.WeakSet()
"""Classes that were made on the other side. Only these are filled, each time that they come."""


def _make_class(make: Any, *args: Any) -> Any:
    by_number = sys.modules["cloudpickle.cloudpickle"]._DYNAMIC_CLASS_TRACKER_BY_ID  # noqa: SLF001
    known = by_number.get(args[-2])  # (..., number, None), since cloudpickle 1.3
    if known is not None:
        return known
    made = make(*args)
    _arrived.add(made)
    return made


def _fill_class(fill: Any, made: Any, state: Any) -> Any:
    return fill(made, state) if made in _arrived else made


class _Reduced:
    """A step of a rebuilding: pickled as the call that gives its value."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.reduction: tuple[Any, ...] = (function, args)

    def __reduce__(self) -> Any:
        return self.reduction

    def __call__(self) -> None:
        """Never: but pickle wants what it is to be called as a function to be callable."""


def named(module: str, name: str) -> Any:
    """A function by its place; many C functions do not know theirs, and pickle would search all modules."""
    return _Reduced(getattr, _Reduced(importlib.import_module, module), name)


_REBUILD = named("_vlcs_sharing", "rebuild")


def _reduce_file(file: io.TextIOWrapper) -> Any:
    """Not its text, as cloudpickle would: a file that is read or written there is another then."""
    for name in ("stdin", "stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (_Reduced(importlib.import_module, "sys"), name)
    raise TypeError(f"an open file, {file.name!r}, stays in its interpreter: pass its path, or open it there")


def _reduce_view(view: memoryview) -> Any:
    if not view.c_contiguous or not view.nbytes:
        return memoryview, (view.tobytes(),)
    flat = _Reduced(memoryview, pickle.PickleBuffer(view))
    if view.ndim == 1 and view.format == "B":
        return memoryview, (flat,)
    return memoryview.cast, (flat, view.format, view.shape)


def _reduce_array(array: Any) -> Any:
    if array.dtype.hasobject or not array.nbytes:
        return array.__reduce_ex__(5)
    if array.flags.forc:  # contiguous, in C's or Fortran's order
        if array.dtype.kind in "mM":  # the buffer protocol has no format for times
            return type(array).view, (array.view("i8"), array.dtype)
        return array.__reduce_ex__(5)
    owner = array
    while type(owner.base) is type(array):
        owner = owner.base
    if owner.dtype.hasobject or not owner.flags.forc:
        return array.__reduce_ex__(5)  # a copy
    memory = owner.reshape(-1, order="A").view("u1")
    if not array.flags.writeable:
        memory.flags.writeable = False
    offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return type(array), (array.shape, array.dtype, pickle.PickleBuffer(memory), offset, array.strides)
