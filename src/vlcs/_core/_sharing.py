"""Rules of pickling for both sides of the bridge: what is shared that pickle would copy, and NumPy 1 to 2.

Arrays, memoryviews, bytearrays and the like stay where they are, wherever in a value they stand: C code lends
them (`native/python/buffer.c`), and a pickle goes beside. The rules of other packages are
in `_sharing_*.py`, read once the package is imported. The guest may be a Python that has no vlcs, so these
files travel as text, as `_guest.py` does: they import the standard library only, and keep to the syntax of
Python 3.9. On both sides this module is also known as `_vlcs_sharing`, the name that pickles call it by.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import io
import operator
import pickle
import re
import sys
import threading
import weakref
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence


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
    for package, (name, rule) in _RULES.items():
        kind = getattr(sys.modules.get(package), name, None)  # none, too, while it is being imported
        if kind is not None:
            table.setdefault(kind, rule)
    for package, name in PACKAGES.items():
        module: Any = sys.modules.get(package)
        kind = getattr(module, name, None)
        if kind is None or kind in table or getattr(module.__spec__, "_initializing", False):
            continue
        for kind, rule in load_rules(package).rules().items():
            table.setdefault(kind, rule)


@functools.lru_cache(maxsize=1)
def cloud_pickler(make_rules: Any) -> Any:
    """The Pickler of cloudpickle, changed where it loses what was there.

    `make_rules` makes a dispatch table from a mapping. Functions keep the names of their files, so that
    tracebacks show source lines, and classes their slots: without, objects of some could not come back.
    """
    import cloudpickle  # noqa: PLC0415 - takes a while to import, and many programs never need it

    rules = make_rules(cloudpickle.Pickler.dispatch_table)
    reduce_code = rules[CodeType]

    def reduce_code_with_file(code: CodeType) -> tuple[Any, tuple[Any, ...]]:
        # Since 3.1.2 it writes this instead, so that equal functions have equal pickles.
        rebuild, args = reduce_code(code)
        return rebuild, tuple(code.co_filename if arg == "<dynamic-code>" else arg for arg in args)

    rules[CodeType] = reduce_code_with_file
    for kind in (memoryview, io.TextIOWrapper):  # it copies; our rules do not
        rules.pop(kind, None)

    class CloudPickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = rules

        def reducer_override(self, value: Any) -> Any:
            if not isinstance(value, (type, FunctionType)):
                return NotImplemented
            reduction = super().reducer_override(value)
            slots = vars(value).get("__slots__") if isinstance(value, type) else None
            if not slots or not isinstance(reduction, tuple):  # NamedTuples refuse theirs, ()
                return reduction
            make, args, *rest = reduction
            if make.__name__ != "_make_skeleton_class":
                return reduction
            kind, name, bases, namespace, *more = args
            return (make, (kind, name, bases, {**namespace, "__slots__": slots}, *more), *rest)

    return CloudPickler


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


class _Stand(bytearray):
    """What a lent object is for the pickler: with a writable buffer, which goes beside the pickle."""

    value: Any


def _stand_for(value: Any) -> pickle.PickleBuffer:
    stand = _Stand()
    stand.value = value
    return pickle.PickleBuffer(stand)


_TAKE = operator.methodcaller("take")  # of a Lease


_thread = threading.local()


def beside(value: Any) -> Any:
    """How a value is pickled that goes beside the pickle."""
    return _TAKE, (_stand_for(value),)


def is_copying() -> bool:
    """Whether nothing can be lent right now: this thread pickles in one piece."""
    return getattr(_thread, "copies", False)


def _lend(value: Any) -> Any:
    if not is_copying():
        return beside(value)
    return (memoryview, (value.tobytes(),)) if type(value) is memoryview else value.__reduce_ex__(5)


def dumps_in_band(pickler: Any, value: Any) -> bytes:
    """Pickles with nothing beside: what would be lent is copied."""
    file = io.BytesIO()
    before = is_copying()  # the code of a class, which pickling runs, may make calls itself
    _thread.copies = True
    try:
        pickler(file, protocol=5).dump(value)
    finally:
        _thread.copies = before
    return file.getvalue()


def dumps(pickler: Any, value: Any) -> tuple[bytes, list[Any]]:
    """Pickles by a class of picklers; the second is what goes beside, to be lent, in order."""
    before = is_copying()
    _thread.copies = False
    try:
        return _dump(pickler, value)
    finally:
        _thread.copies = before


def _dump(pickler: Any, value: Any) -> tuple[bytes, list[Any]]:
    file = io.BytesIO()
    buffers: list[Any] = []
    made = pickler(file, protocol=5, buffer_callback=buffers.append)
    made.dump(value)
    payload = file.getvalue()
    # Pickle asks nobody about a bytearray, but by `persistent_id`, which makes it 10 times slower. So that is
    # for values that are known to have one.
    if _BYTEARRAY in payload and any(type(kept) is bytearray for _, kept in made.memo.copy().values()):
        file = io.BytesIO()
        buffers = []
        _lending(pickler)(file, protocol=5, buffer_callback=buffers.append).dump(value)
        payload = file.getvalue()
    return payload, [_lent(buffer) for buffer in buffers]


_BYTEARRAY = pickle.BYTEARRAY8  # the opcode


def _lent(buffer: pickle.PickleBuffer) -> Any:
    exporter = memoryview(buffer).obj
    return exporter.value if type(exporter) is _Stand else buffer.raw()


@functools.cache
def _lending(base: Any) -> Any:
    class Pickler(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._stands: dict[int, Any] = {}

        def persistent_id(self, value: Any) -> Any:
            if type(value) is not bytearray:
                return None
            stand = self._stands.get(id(value))
            if stand is None:
                stand = self._stands[id(value)] = (_stand_for(value),)
            return stand  # the same tuple each time: the other side gets it as one object

    return Pickler


def loads(payload: bytes, leases: Sequence[Any]) -> Any:
    """Unpickles, also between NumPy 1 and 2; classes of this side that come back stay as they are."""
    names = _numpy_names() if b"numpy.core." in payload or b"numpy._core." in payload else ("", "")
    if b"cloudpickle" in payload or (names[0] and names[0].encode() in payload):
        return _Translator(io.BytesIO(payload), leases, names).load()
    if not leases:
        return pickle.loads(payload)  # noqa: S301 - from our own process
    return _Unpickler(io.BytesIO(payload), leases).load()


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
    def __init__(self, file: io.BytesIO, leases: Sequence[Any]) -> None:
        super().__init__(file, buffers=leases)
        self._taken: dict[int, Any] = {}

    def persistent_load(self, stand: Any) -> Any:
        """A bytearray that was lent."""
        (lease,) = stand
        if id(lease) not in self._taken:
            self._taken[id(lease)] = lease.take()
        return self._taken[id(lease)]


class _Translator(_Unpickler):
    def __init__(self, file: io.BytesIO, leases: Sequence[Any], numpy: tuple[str, str]) -> None:
        super().__init__(file, leases)
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


_REBUILD = named("_vlcs_sharing", "rebuild")  # of the other side


def _reduce_file(file: io.TextIOWrapper) -> Any:
    """Not its text, as cloudpickle would: a file that is read or written there is another then."""
    for name in ("stdin", "stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (_Reduced(importlib.import_module, "sys"), name)
    raise TypeError(f"an open file, {file.name!r}, stays in its interpreter: pass its path, or open it there")


errors: Any = None
"""The module of vlcs's exceptions; each side puts its own here."""


def error(name: str, *args: Any) -> Any:
    """Makes an exception of vlcs: of the classes that code on this side catches."""
    return getattr(sys.modules.get("vlcs"), name, getattr(errors, name))(*args)


def _reduce_view(view: memoryview) -> Any:
    if "O" in re.sub(":[^:]*:", "", view.format):  # less the names of fields
        raise TypeError("cannot pickle a memoryview of references to objects")
    return (memoryview, (view.tobytes(),)) if view.suboffsets else _lend(view)


def _reduce_array(array: Any) -> Any:
    # Types of items that other packages make have larger numbers.
    if array.dtype.hasobject or array.dtype.num > _LAST_NUMBER:
        return array.__reduce_ex__(5)
    return _lend(array)


_LAST_NUMBER = 23  # float16's

_RULES: dict[str, tuple[str, Any]] = {
    "array": ("array", _lend),
    "mmap": ("mmap", _lend),
    "numpy": ("ndarray", _reduce_array),
}


_MEMORY = {
    **{module: (name,) for module, (name, _) in _RULES.items()},
    "polars.dataframe.frame": ("DataFrame",),
    "polars.series.series": ("Series",),
    "torch": ("Tensor",),
}
"""Types of what is nothing but memory, by the modules that they name as theirs."""


def is_lent(value: Any) -> bool:
    """Whether it is nothing but memory, and so is lent: no functions, classes or objects of these in it."""
    kind = type(value)
    if kind is bytearray or kind is memoryview:
        return True
    if kind.__name__ not in _MEMORY.get(kind.__module__, ()):
        return False
    if kind.__module__ == "numpy":
        return not value.dtype.hasobject
    return kind.__module__ != "torch" or not value.__dict__


def describe_record(dtype: Any) -> bytes:
    """The dtype of records, for the other side. Its own pickle would not do for NumPy 1 where 2 wrote it."""
    return pickle.dumps(_spell(dtype), protocol=5)


def record_type(description: bytes) -> Any:
    """The dtype again."""
    return _spelled(pickle.loads(description))  # noqa: S301 - from our own process


def _spell(dtype: Any) -> Any:
    if dtype.subdtype is not None:
        return _spell(dtype.subdtype[0]), dtype.subdtype[1]
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_spell(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": [field[2] if len(field) > 2 else None for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _spelled(text: Any) -> Any:
    if isinstance(text, tuple):
        text = (_spelled(text[0]), text[1])
    elif isinstance(text, dict):
        text["formats"] = [_spelled(field) for field in text["formats"]]
    return sys.modules["numpy"].dtype(text)
