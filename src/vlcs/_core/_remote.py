"""Objects of another interpreter, as they look from this one; and how what came from there is read.

The caller's half of the bridge, in the host as in guests; its partner is `_serving.py`. It travels as text,
as `_guest.py` does.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

if __name__.startswith("vlcs."):  # a guest puts its own here
    from vlcs._core import _codec, _errors, _exceptions, _serving, _sharing
    from vlcs._core._native import Handle, keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# What introspection here may ask of a function or class there. Everything else between double
# underscores is a protocol (__array__ ...), and an object here follows only those of the class.
_FORWARDED = frozenset(
    {"__name__", "__qualname__", "__version__", "__all__", "__file__", "__path__", "__wrapped__"}
)

_NUMBERS = _serving.NUMBERS
_GETATTR, _SETATTR, _DELATTR = (_NUMBERS[name] for name in ("getattr", "setattr", "delattr"))
_NEXT, _REPR, _HASH = (_NUMBERS[name] for name in ("next", "repr", "hash"))
_TEXT_LIMIT = 200


class RemoteObject(Handle):
    """A function, class, module or other object that stays in its interpreter: a context's, or the host's.

    It lives there until no context refers to it any more, and is released there soon after. As an argument,
    it arrives there as the object itself, and in every other context as a RemoteObject.

    Calls, attributes, indexing, iteration, `with`, operators and `await` run there, on this thread (`await`:
    on one of the context's). Plain data (scalars, text, dates, arrays, tensors, and tuples, lists, sets and
    dicts of them) comes by value, arrays shared as with `VLC.run`; all else, data frames too, stays there and
    comes as another RemoteObject. `vlc.run(copy.copy, obj)` gives a copy of one, where it can be pickled.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _FORWARDED:
            raise AttributeError(f"a RemoteObject does not forward {name!r}", name=name, obj=self)
        found = self._vlcs_operate(_GETATTR, name)
        if type(found) is RemoteObject and found._vlcs_is_attribute:  # noqa: SLF001
            self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.pop(name, None)
        self._vlcs_operate(_SETATTR, name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(name, None)
        self._vlcs_operate(_DELATTR, name)

    def __dir__(self) -> list[str]:
        names: list[str] = self._vlcs_operate(_NUMBERS["dir"])
        return names

    @property
    def __signature__(self) -> Any:
        return _signature(self._vlcs_operate(_NUMBERS["signature"]))

    def __get__(self, instance: object, owner: type | None = None) -> RemoteObject:
        # By this inspect and pydoc take it for a routine, whose signature help() shows.
        return self

    def __getitem__(self, key: Any) -> Any:
        return self._vlcs_operate(_NUMBERS["getitem"], key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._vlcs_operate(_NUMBERS["setitem"], key, value)

    def __delitem__(self, key: Any) -> None:
        self._vlcs_operate(_NUMBERS["delitem"], key)

    def __contains__(self, item: Any) -> bool:
        return bool(self._vlcs_operate(_NUMBERS["contains"], item))

    def __format__(self, spec: str) -> str:
        return str(self._vlcs_operate(_NUMBERS["format"], spec))

    def __next__(self) -> Any:
        return self._vlcs_operate(_NEXT)

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_vlcs_hash")
        if known is None:
            known = self.__dict__["_vlcs_hash"] = int(self._vlcs_operate(_HASH))
        return known

    def __repr__(self) -> str:
        where = "" if self._vlcs_is_here else f" in context {self._vlcs_context!r}"
        try:
            text: str = self._vlcs_operate(_REPR)
        except _errors.StateError:
            text = "its context is closed"
        if len(text) > _TEXT_LIMIT:
            text = text[:_TEXT_LIMIT] + "..."
        return f"<vlcs.RemoteObject {self._vlcs_label}{where}: {text}>"

    def __enter__(self) -> Any:
        return _or(self, self._vlcs_operate(_NUMBERS["enter"]))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        number = _NUMBERS["exit"]
        try:
            return bool(self._vlcs_operate(number, error))
        except _errors.PicklingError as refusal:
            if refusal.__cause__ is None:
                raise
            return bool(self._vlcs_operate(number, RuntimeError(f"{type(error).__name__}: {error}")))

    def __await__(self) -> Iterator[Any]:
        return _outcome(self).__await__()

    # Copying goes through __reduce_ex__ otherwise.
    def __copy__(self) -> RemoteObject:
        return self

    def __deepcopy__(self, memo: object) -> RemoteObject:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not _codec.is_crossing():
            raise TypeError(
                f"cannot pickle {self._vlcs_label}, an object that stays in the context "
                f"{self._vlcs_context!r}: it can be passed to calls of contexts, and nowhere else. Pickle "
                "what it holds as plain data."
            )
        return _sharing.beside(self)

    def _vlcs_ordinary(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation whose arguments are to be pickled."""
        request = ("operate", number, self, args, kwargs)
        what = words(self._vlcs_label, number, args[0] if args else None)
        payload, buffers = encode(what, self._vlcs_context, request, plain=_codec.is_plain((args, kwargs)))
        answer, leases = self._vlcs_exchange(payload, buffers)
        return Call(what, self._vlcs_context, request, self._vlcs_exchange).decode(answer, leases)

    __array_ufunc__ = None  # so that NumPy leaves `array + obj` to __radd__


def remote(obj: Any, /) -> RemoteObject:
    """A handle to an object of this interpreter, for contexts: there it is a RemoteObject, and not a copy.

    What they do with it is done here, on the thread that does it there. It is kept alive until none has it.
    In a context the handle is for those who call that: the host, and its other contexts.
    """
    outer = sys.modules.get("_vlcs_host")  # of the vlcs that made this context
    handle: RemoteObject = keep(obj) if outer is None else outer.keep(obj)
    return handle


class _Doc:
    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, instance: Any, owner: Any = None) -> str | None:
        if instance is None:
            return self._of_class
        doc: str | None = instance._vlcs_operate(_NUMBERS["doc"])  # noqa: SLF001 - part of the class
        return doc


def _method(name: str, operation: str) -> Any:
    number = _NUMBERS[operation]

    def forward(self: Any, *args: Any) -> Any:
        return self._vlcs_operate(number, *args)

    forward.__name__ = name
    forward.__qualname__ = f"RemoteObject.{name}"
    return forward


def _or(handle: Any, answer: Any) -> Any:
    """What `_serving._if_other` says."""
    return handle if answer is None else answer[0]


def _in_place(name: str, operation: str) -> Any:
    number = _NUMBERS[operation]

    def change(self: Any, other: Any) -> Any:
        return _or(self, self._vlcs_operate(number, other))

    change.__name__ = name
    change.__qualname__ = f"RemoteObject.{name}"
    return change


def _comparison(operation: str) -> Any:
    number = _NUMBERS[operation]

    def compare(self: Any, other: Any) -> Any:
        try:
            return self._vlcs_operate(number, other)
        except (_errors.PicklingError, _errors.StateError):
            return NotImplemented  # what is only here, or gone there, is another object

    return compare


def _forward() -> None:
    """Gives the class its operators."""
    RemoteObject.__doc__ = _Doc(RemoteObject.__doc__)  # type: ignore[assignment]
    for name in _serving.UNARY:
        if f"__{name}__" not in vars(RemoteObject):
            setattr(RemoteObject, f"__{name}__", _method(f"__{name}__", name))
    for name in _serving.COMPARING:
        setattr(RemoteObject, f"__{name}__", _comparison(name))
    for name in _serving.BINARY:
        bare = name.rstrip("_")
        for prefix, make in (("", _method), ("r", _method), ("i", _in_place)):
            full = f"__{prefix}{bare}__"
            setattr(RemoteObject, full, make(full, prefix + name))


_forward()


def words(label: str, number: int, first: Any) -> str:
    """What is done, in messages."""
    name = next(name for name, known in _NUMBERS.items() if known == number)
    if name == "call":
        return f"{label}()"
    if name in {"getattr", "delattr"}:
        return f"{label}.{first}"
    return f"{label}.{first} = ..." if name == "setattr" else f"{name} of {label}"


async def _outcome(handle: Any) -> Any:
    import asyncio  # noqa: PLC0415 - who comes here has it

    def work() -> Any:
        return handle._vlcs_operate(_NUMBERS["await"])  # noqa: SLF001 - part of the class

    if handle._vlcs_vlc is not None:  # noqa: SLF001
        return await handle._vlcs_vlc._await(work)  # noqa: SLF001
    return await asyncio.get_running_loop().run_in_executor(None, work)


class _Shown:
    """A default or an annotation of a signature there."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(described: Any) -> Any:
    import inspect  # noqa: PLC0415 - slow to import

    def shown(text: str | None) -> Any:
        return inspect.Parameter.empty if text is None else _Shown(text)

    kinds: list[Any] = [
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ]
    parameters, returned = described
    return inspect.Signature(
        [
            inspect.Parameter(name, kinds[kind], default=shown(default), annotation=shown(note))
            for name, kind, default, note in parameters
        ],
        return_annotation=shown(returned),
    )


# ---- requests


def encode(what: object, context: str, request: tuple[Any, ...], *, plain: bool) -> tuple[bytes, list[Any]]:
    """A pickled request and its buffers. PicklingError names what of it cannot be pickled."""
    try:
        return _codec.dumps(request, plain=plain)
    except Exception as error:
        part = _culprit(request)
        raise _errors.PicklingError(
            f"cannot run {_errors.describe(what)} in the context {context!r}: {part} cannot be pickled "
            f"({type(error).__name__}: {error}). Pass data that can be, or make the object inside the "
            "function; nothing was run.",
            part,
        ) from error


def _culprit(request: tuple[Any, ...]) -> str:
    """Which part of a call cannot be pickled, in words."""
    for description, part in _parts(request):
        try:
            _codec.dumps(part, plain=False)
        except Exception:  # noqa: BLE001 - pickling runs code of any class
            return description
    return "a combination of its arguments"


def _parts(request: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    if request[0] == "call":
        _, function, args, kwargs, _ = request
        yield "the function", function
    elif request[:2] == ("operate", _NUMBERS["call"]):
        *_, args, kwargs = request
    else:
        for value in request[3] if request[0] == "operate" else request[1:]:
            yield f"the value {_short(value)}", value
        return
    yield from _numbered(args)
    for name, value in kwargs.items():
        yield f"argument {name}={_short(value)}", value


def _numbered(args: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for number, value in enumerate(args, 1):
        yield f"argument {number}, {_short(value)},", value


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


# ---- answers


def decode_for(handle: Any, payload: bytes, leases: Sequence[Any]) -> Any:
    """The value of an answer that an object there gave; called by the extension module."""
    __tracebackhide__ = True
    return Call(handle, handle._vlcs_context, (), None).decode(payload, leases)  # noqa: SLF001


class Call:
    """What an answer is to: for messages."""

    def __init__(
        self,
        what: object,
        context: str,
        request: tuple[Any, ...],
        exchange: Callable[[bytes, list[Any]], tuple[bytes, list[Any]]] | None,
    ) -> None:
        """`request`: that was pickled, and `exchange` what sends another; where nothing was, () and None."""
        self._what = what
        self._context = context
        self._request = request
        self._exchange = exchange

    def decode(self, payload: bytes, leases: Sequence[Any]) -> Any:
        """The value of the answer, or its exception."""
        __tracebackhide__ = True  # for pytest and IPython: whose code failed counts
        try:
            kind, *details = _sharing.loads(payload, leases)
        except Exception as error:
            raise _errors.PicklingError(
                f"{_errors.describe(self._what)} has run in the context {self._context!r}, but its result "
                f"cannot be rebuilt here ({type(error).__name__}: {error}). Return plain data or arrays, or "
                "install what is missing here.",
                _errors.describe(self._what),
            ) from error
        if kind == "value":
            return details[0]
        if kind == "error":
            self._raise(self._rebuild(*details))
        if kind == "undecodable":
            self._raise(self._refusal(self._rebuild(*details)))
        if kind == "unpicklable":
            type_name, why = details
            raise _errors.PicklingError(
                f"{_errors.describe(self._what)} has run in the context {self._context!r}, but its result, "
                f"of type {type_name}, cannot be pickled ({why}). Return plain data or arrays, or have it "
                "stay there: vlc.run(..., keep=True).",
                type_name,
            )
        raise _errors.InternalError(
            f"the context {self._context!r} gave an answer of unknown kind {kind!r}. Please report it."
        )

    def _rebuild(self, parts: Any, story: Any) -> BaseException:
        cause = _errors.RemoteTraceback(story, self._context)
        # Of two exceptions that one led to, a traceback shows the cause only.
        cause.__context__ = sys.exc_info()[1]

        def substitute(type_name: str, text: str) -> Any:
            return _errors.RemoteError(
                f"{_errors.describe(self._what)} in the context {self._context!r} raised {type_name}, which "
                f"cannot be rebuilt here: {text}",
                type_name,
                cause.text,
                self._context,
                text,
            )

        error: BaseException = _exceptions.rebuild(parts, _loads, substitute)
        BaseException.__setattr__(error, "__cause__", cause)  # the class may be frozen
        return error

    def _refusal(self, error: BaseException) -> BaseException:
        """For a request that cannot be rebuilt there: what is missing there is said as by any function."""
        part = self._refused_part()
        if isinstance(error, ImportError):
            note = f"It was needed to rebuild {part} in the context {self._context!r}; nothing was run."
            error.__notes__ = [*getattr(error, "__notes__", ()), note]  # as add_note(), of Python 3.11
            return error
        refusal: BaseException = _errors.PicklingError(
            f"cannot run {_errors.describe(self._what)} in the context {self._context!r}: {part} cannot be "
            f"rebuilt there ({type(error).__name__}: {error}). Pass plain data or arrays, or make the object "
            "inside the function; nothing was run.",
            part,
        )
        refusal.__cause__ = error
        return refusal

    def _refused_part(self) -> str:
        for description, part in _parts(self._request) if self._exchange else ():
            payload, buffers = _codec.dumps(("accept", part), plain=False)
            answer, leases = self._exchange(payload, buffers)  # type: ignore[misc]
            if _sharing.loads(answer, leases)[0] == "undecodable":
                return description
        return "a combination of its arguments"

    @staticmethod
    def _raise(error: BaseException) -> NoReturn:
        __tracebackhide__ = True
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: without the reference there is no cycle


def _loads(pickled: bytes) -> Any:
    return _sharing.loads(pickled, ())
