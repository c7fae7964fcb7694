"""How values cross into another interpreter and back; its partner there is `_guest.py`.

Values are pickled (protocol 5); arrays and other buffers stay where they are and cross as leases.
A function that can be imported crosses as its name, others by cloudpickle. The rest of the package
knows only the class `Bridge`, so that a faster codec can take this one's place.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from vlcs._core import _exceptions, _native, _sharing
from vlcs._core._errors import InternalError, PicklingError, RemoteError
from vlcs._core._gate import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vlcs._core._native import Caller, Interpreter

# What plain pickle gets right by itself: no functions, classes or instances of `__main__` inside.
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONTAINERS = frozenset({tuple, list, set, frozenset})
_PLAIN_ITEMS = 1000


@dataclass(frozen=True)
class Reference:
    """What stands in for an object that stays in its interpreter."""

    kind: str
    """"module", "class", "function" or "object"."""
    text: str
    """Its repr there, shortened."""
    doc: str | None
    type_name: str = ""
    kept: Kept | None = None
    """Where it has no name to be found by."""


class Kept:
    """An object that its interpreter keeps until this is gone."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


class _Keeping(weakref.ref[Kept]):
    """Outlives a Kept. Not a `__del__`: the exception of a signal handler that ran there would be lost."""

    __slots__ = ("number",)

    number: int


class RemoteTraceback(Exception):  # noqa: N818 - named as that of concurrent.futures
    """The traceback of a context's code, as the cause of the exception that came home from there.

    `text` is the traceback, with all exceptions that led to this one, and `context` the name of the context.
    """

    def __init__(self, story: str | _exceptions.Story, context: str) -> None:
        super().__init__(context)
        self._story = story
        self.context = context

    @property
    def text(self) -> str:
        """Made when it is first read: lines of source are those of then, as in any traceback."""
        if not isinstance(self._story, str):
            self._story = _exceptions.tell(self._story)
        return self._story

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.context)

    def __str__(self) -> str:
        return f'in the context {self.context!r}\n"""\n{self.text}"""'


class Bridge:
    """Calls into one interpreter. Methods may be called by any thread, and run there on that thread.

    Exceptions of the called code come home as they are, with the traceback over there as their
    `__cause__`; RemoteError where their class cannot be rebuilt here.
    """

    def __init__(self, interpreter: Interpreter, name: str, *, inherits_path: bool = True) -> None:
        """`name`: the context's, for messages. `inherits_path`: its `sys.path` is the host's of now."""
        self._interpreter = interpreter
        self.name = name
        self._keeping: dict[int, _Keeping] = {}
        # For the next call: where one is dropped, no GIL can be taken.
        self._dropped: deque[_Keeping] = deque()
        self._sys_path = tuple(sys.path) if inherits_path else None
        self._perform("a set-up call", ("prepare", _sharing_sources(), _cloudpickle_folder()))

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a function there. PicklingError: it, an argument or the result cannot cross.

        Shared, so that both sides see what either writes: NumPy arrays and views of them (not subclasses,
        nor arrays of objects), memoryview, bytearray, array.array, mmap, CPU tensors of PyTorch; inside of
        other values too. Columns of pandas are shared until either side writes. Everything else is copied.
        """
        named = _importable_name(function)
        if named is not None:
            return self._perform(function, ("call", named, tuple(args), dict(kwargs)))
        return self._perform(function, ("call", function, tuple(args), dict(kwargs)), plain=False)

    def connect(self, caller: Caller) -> None:
        """Opens the short way for calls of functions with a name and plain values."""
        caller._connect(self._interpreter, self._decode, _importable_name, self._dropped)  # noqa: SLF001

    # `root` is the name of a module there, or an object that is kept there; `path` leads from it by
    # attributes. Data comes by value, arrays shared; of what has behaviour a Reference comes.

    def call_there(
        self, root: str | Kept, path: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Calls an object that stays there."""
        return self._perform(
            f"{_words(root, path)}()", ("call_there", _where(root), tuple(path), tuple(args), dict(kwargs))
        )

    def operate(self, root: str | Kept, path: Sequence[str], name: str, args: Sequence[Any]) -> Any:
        """Has `name`, one of the guest's _OPERATORS, done to an object that stays there."""
        return self._perform(
            f"{name} of {_words(root, path)}", ("operate", _where(root), tuple(path), name, tuple(args))
        )

    def fetch(self, root: str | Kept, path: Sequence[str]) -> Any:
        """Reads an attribute there (with an empty path: imports the module)."""
        return self._perform(_words(root, path), ("fetch", _where(root), tuple(path)))

    def store(self, root: str | Kept, path: Sequence[str], value: Any) -> None:
        """Sets an attribute there."""
        self._perform(f"{_words(root, path)} = ...", ("store", _where(root), tuple(path), value))

    def directory(self, root: str | Kept, path: Sequence[str]) -> list[str]:
        """The names of an object's attributes there."""
        names: list[str] = self._perform(
            f"dir({_words(root, path)})", ("directory", _where(root), tuple(path))
        )
        return names

    def controls(self) -> list[tuple[str, int, int, int]]:
        """Its libraries that only Python finds: (name, address of get(), of set(n), the most threads)."""
        found: list[tuple[str, int, int, int]] = self._perform("a look", ("controls",))
        return found

    def frames(self) -> list[tuple[int, str, list[tuple[str, int, str]]]]:
        """Where each thread there is, but this one: (ident, name or "", [(file, line, function) ...])."""
        stacks: list[tuple[int, str, list[tuple[str, int, str]]]] = self._perform("a look", ("frames",))
        return stacks

    def _perform(self, what: object, request: tuple[Any, ...], *, plain: bool = True) -> Any:
        __tracebackhide__ = True  # for pytest and IPython, here and below: whose code failed counts
        if self._dropped and request[0] != "release":
            self._perform("a release", ("release", self._take_dropped()))
        payload, buffers = self._encode(what, request, plain=plain and _is_plain(request))
        answer, leases = self._interpreter.call(payload, buffers)
        return self._decode(what, answer, leases, request)

    def _keep(self, number: int) -> Kept:
        kept = Kept(number)
        keeping = _Keeping(kept, self._dropped.append)
        keeping.number = number
        self._keeping[number] = keeping
        return kept

    def _take_dropped(self) -> list[int]:
        numbers = []
        with suppress(IndexError):  # another thread may take some
            while True:
                numbers.append(self._dropped.popleft().number)
        for number in numbers:
            self._keeping.pop(number, None)
        return numbers

    def _encode(self, what: object, request: tuple[Any, ...], *, plain: bool) -> tuple[bytes, list[Any]]:
        before = destination()
        _thread.destination = self
        try:
            return _dumps(request, plain=plain)
        except Exception as error:
            part = _culprit(request)
            raise PicklingError(
                f"cannot run {describe(what)} in the context {self.name!r}: {part} cannot be pickled "
                f"({type(error).__name__}: {error}). Pass data that can be, or make the object inside the "
                "function; nothing was run.",
                part,
            ) from error
        finally:
            _thread.destination = before

    def _decode(
        self, what: object, payload: bytes, leases: Sequence[Any], request: tuple[Any, ...] = ()
    ) -> Any:
        __tracebackhide__ = True
        try:
            kind, *details = _sharing.loads(payload, leases)
        except Exception as error:
            raise PicklingError(
                f"{describe(what)} has run in the context {self.name!r}, but its result cannot be rebuilt "
                f"here ({type(error).__name__}: {error}). Return plain data or arrays, or install what is "
                "missing here.",
                describe(what),
            ) from error
        match kind:
            case "value":
                return details[0]
            case "reference":
                kind, text, doc, type_name, number = details
                kept = None if number is None else self._keep(number)
                return Reference(kind, text, doc, type_name, kept)
            case "error":
                self._raise(self._rebuild(what, *details))
            case "undecodable":
                self._raise(self._refusal(what, request, self._rebuild(what, *details)))
            case "unpicklable":
                type_name, why = details
                raise PicklingError(
                    f"{describe(what)} has run in the context {self.name!r}, but its result, of type "
                    f"{type_name}, cannot be pickled ({why}). Return plain data or arrays, and keep such "
                    "objects in a module of the context.",
                    type_name,
                )
        raise InternalError(
            f"the context {self.name!r} gave an answer of unknown kind {kind!r}. Please report it."
        )

    def _rebuild(self, what: object, parts: _exceptions.Parts, story: _exceptions.Story) -> BaseException:
        cause = RemoteTraceback(story, self.name)
        # Of two exceptions that one led to, a traceback shows the cause only.
        cause.__context__ = sys.exc_info()[1]

        def substitute(type_name: str, text: str) -> RemoteError:
            return RemoteError(
                f"{describe(what)} in the context {self.name!r} raised {type_name}, which cannot be rebuilt "
                f"here: {text}",
                type_name,
                cause.text,
                self.name,
                text,
            )

        error: BaseException = _exceptions.rebuild(parts, _loads, substitute)
        BaseException.__setattr__(error, "__cause__", cause)  # the class may be frozen
        if isinstance(error, ModuleNotFoundError) and self._sys_path is not None:
            later = [entry for entry in sys.path if entry not in self._sys_path]
            if later:
                error.add_note(
                    f"The context {self.name!r} has the sys.path of when it was made; since then the host's "
                    f"got {later!r}. Make contexts after changing sys.path, or change it there too: "
                    "vlc.run(site.addsitedir, folder)."
                )
        return error

    def _refusal(self, what: object, request: tuple[Any, ...], error: BaseException) -> BaseException:
        """For a request that cannot be rebuilt there: what is missing there is said as by any function."""
        part = self._refused_part(request)
        if isinstance(error, ImportError):
            error.add_note(f"It was needed to rebuild {part} in the context {self.name!r}; nothing was run.")
            return error
        refusal = PicklingError(
            f"cannot run {describe(what)} in the context {self.name!r}: {part} cannot be rebuilt there "
            f"({type(error).__name__}: {error}). Pass plain data or arrays, or make the object inside the "
            "function; nothing was run.",
            part,
        )
        refusal.__cause__ = error
        return refusal

    def _refused_part(self, request: tuple[Any, ...]) -> str:
        for words, part in _parts(request):
            payload, buffers = self._encode(words, ("accept", part), plain=False)
            answer, leases = self._interpreter.call(payload, buffers)
            if _sharing.loads(answer, leases)[0] == "undecodable":
                return words
        return "a combination of its arguments"

    @staticmethod
    def _raise(error: BaseException) -> NoReturn:
        __tracebackhide__ = True
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: without the reference there is no cycle


_thread = threading.local()


def destination() -> Bridge | None:
    """The bridge that this thread pickles a request for right now."""
    found: Bridge | None = getattr(_thread, "destination", None)
    return found


def _loads(pickled: bytes) -> Any:
    return _sharing.loads(pickled, ())


def _where(root: str | Kept) -> str | int:
    return root if isinstance(root, str) else root.number


def _words(root: str | Kept, path: Sequence[str]) -> str:
    return ".".join((root if isinstance(root, str) else "object", *path))


def _dumps(value: Any, *, plain: bool) -> tuple[bytes, list[Any]]:
    pickler = _Pickler if plain else _sharing.cloud_pickler(_exceptions.Rules)
    _sharing.extend(pickler.dispatch_table)
    return _sharing.dumps(pickler, value)


class _Pickler(pickle.Pickler):
    """Plain pickle with the rules of `_sharing.py` and `_exceptions.py`."""

    dispatch_table = _exceptions.Rules()


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
    path = tuple(name.split("."))
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


def _is_plain(value: Any) -> bool:
    """Whether plain pickle crosses it rightly, several times faster than cloudpickle.

    Plain pickle would also take functions and instances of `__main__`, as names that the guest does not
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


def _culprit(request: tuple[Any, ...]) -> str:
    """Which part of a call cannot be pickled, in words."""
    for words, part in _parts(request):
        try:
            _dumps(part, plain=False)
        except Exception:  # noqa: BLE001 - pickling runs code of any class
            return words
    return "a combination of its arguments"


def _parts(request: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    if request[0] in {"call", "call_there"}:
        *_, args, kwargs = request
        if request[0] == "call":
            yield "the function", request[1]
        yield from _numbered(args)
        for name, value in kwargs.items():
            yield f"argument {name}={_short(value)}", value
    else:
        yield f"the value {_short(request[-1])}", request[-1]


def _numbered(args: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for number, value in enumerate(args, 1):
        yield f"argument {number}, {_short(value)},", value


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


@lru_cache(maxsize=1)
def _sharing_sources() -> dict[str, str]:
    """The text of `_sharing.py`, as "", and of each `_sharing_*.py`, by its package."""
    names = {"": "_sharing.py"} | {name: f"_sharing_{name}.py" for name in _sharing.PACKAGES}
    folder = resources.files("vlcs._core")
    return {package: folder.joinpath(name).read_text("utf-8") for package, name in names.items()}


def _load_rules(package: str) -> Any:
    return importlib.import_module(f"vlcs._core._sharing_{package}")


sys.modules.setdefault("_vlcs_sharing", _sharing)
_sharing.load_rules = _load_rules
_sharing.native = _native


@lru_cache(maxsize=1)
def _cloudpickle_folder() -> str | None:
    """The folder that holds the host's cloudpickle package, for guests that have none."""
    spec = importlib.util.find_spec("cloudpickle")
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])
