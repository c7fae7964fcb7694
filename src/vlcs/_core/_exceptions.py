"""How an exception crosses, for both sides: taken apart on one, rebuilt on the other.

Pickle calls the class with `args`, which fails or loses state wherever `__init__` takes anything else, and
one attribute that cannot be pickled costs the whole exception. Here it is rebuilt without `__init__`, and
what cannot cross is left out. Of its traceback only places go home, since frames would keep their locals
alive, and text is made when somebody reads it: that takes longer than the call.

Travels as text, as `_sharing.py` does: the standard library only, and the syntax of Python 3.9.
"""

from __future__ import annotations

import builtins
import copyreg
import linecache
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from itertools import islice
from types import BuiltinFunctionType, MemberDescriptorType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType

    Frame = tuple[str, int, str, "str | None", tuple[Any, ...]]
    """File, line, function, the line's text where only its own side has that, columns."""
    Link = tuple["list[Frame]", str, str]
    """Of a chain of exceptions: frames, lines of the end, words before the next."""
    Story = list[Link]
    Parts = tuple["bytes | None", str, str, "list[str]", "list[Any] | None"]
    """What rebuilds it, its class, its text, its notes, the parts of a group's members."""

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # since Python 3.11
_SUGGESTING = (SyntaxError, ImportError, NameError, AttributeError)
"""Of these the end of a traceback says more than class and text."""

_REPR_LIMIT = 200

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def take_apart(error: BaseException, dumps: Callable[[Any], bytes]) -> tuple[Parts, Story]:
    """What `rebuild` and `tell` need. Raises nothing but a KeyboardInterrupt that arrives meanwhile."""
    kind = _name(type(error))
    try:
        parts = _parts(error, dumps)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - of groups in groups without end, say
        parts = None, kind, _text(error), [], None
    try:
        story = _story(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - as above
        story = [([], f"{kind}: {_text(error)}\n", "")]
    return parts, story


def _parts(error: BaseException, dumps: Callable[[Any], bytes]) -> Parts:
    call = standard(error)
    members, text = None, _text(error)
    if call is not None and isinstance(error, _GROUP):
        members = [_parts(member, dumps) for member in error.exceptions]
        text = error.message
        call = call[0], (type(error), text), call[2]
    try:
        pickled: bytes | None = dumps(error if call is None else call)
    except Exception as why:  # noqa: BLE001 - pickling runs code of any class
        pickled = None if call is None else _pickle_what_can_be(call, dumps, _text(why))
    return pickled, _name(type(error)), text, _notes(error), members


def standard(error: BaseException) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """(function, arguments, state) that rebuild an exception whose class does not say how itself."""
    kind = type(error)
    reduce = kind.__reduce__
    if (
        not isinstance(reduce, MethodDescriptorType)
        or reduce.__objclass__.__module__ != "builtins"
        or kind.__reduce_ex__ is not object.__reduce_ex__
        or kind.__setstate__ is not BaseException.__setstate__
        or kind in copyreg.dispatch_table
    ):
        return None
    state: dict[str, Any] = {}
    new = None
    if not isinstance(
        error, _GROUP
    ):  # whose __new__ wants them; those of OSError and MemoryError may drop them
        state["args"] = error.args
    for base in kind.__mro__:
        # Slots, and what built-in classes keep besides `args`: errno, filename, name, value, code ...
        if base is BaseException:
            break
        if base is not _GROUP:
            for name, member in vars(base).items():
                # Not the object whose attribute was missing: it can be anything, as large as a module.
                if isinstance(member, MemberDescriptorType) and name != "obj":
                    value = getattr(error, name, None)
                    if value is not None:
                        state[name] = value
        if new is None and isinstance(vars(base).get("__new__"), BuiltinFunctionType):
            new = vars(base)["__new__"]
    args = (error.message, list(error.exceptions)) if isinstance(error, _GROUP) else error.args
    return new or BaseException.__new__, (kind, *args), {**state, **error.__dict__}


def _pickle_what_can_be(
    call: tuple[Any, tuple[Any, ...], dict[str, Any]], dumps: Callable[[Any], bytes], why: str
) -> bytes | None:
    """Arguments that cannot be pickled become their repr, attributes are left out, and a note says so."""
    new, (kind, *args), state = call
    lost = []
    for place, value in enumerate(args):
        if not _can_cross(value, dumps):
            args[place] = _text(value, repr)[:_REPR_LIMIT]
            lost.append(f"args[{place}] is its repr")
    if "args" in state:
        state["args"] = tuple(args)
    for name in [name for name, value in state.items() if not _can_cross(value, dumps)]:
        del state[name]
        lost.append(f"{name!r} is left out")
    if not lost:  # the class itself cannot cross
        return None
    notes = state.get("__notes__", [])
    note = f"Not all that it held could leave its interpreter: {', '.join(lost)} ({why})."
    state["__notes__"] = [*notes, note] if isinstance(notes, list) else [note]
    try:
        return dumps((new, (kind, *args), state))
    except Exception:  # noqa: BLE001 - as above
        return None


def _can_cross(value: Any, dumps: Callable[[Any], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        return False
    return True


class Rules(dict):  # type: ignore[type-arg]
    """A pickler's dispatch table, with a rule for all exceptions; copyreg's are asked anew each time."""

    def __missing__(self, kind: Any) -> Any:
        if kind in copyreg.dispatch_table:
            return copyreg.dispatch_table[kind]
        if issubclass(kind, BaseException):
            return _reduce
        raise KeyError(kind)


def _reduce(error: BaseException) -> Any:
    return standard(error) or error.__reduce_ex__(5)


def rebuild(
    parts: Parts, loads: Callable[[bytes], Any], substitute: Callable[[str, str], BaseException]
) -> Any:
    """The exception; in place of one that cannot be made here, substitute(class, text)."""
    pickled, kind, text, notes, members = parts
    inside = None if members is None else [rebuild(member, loads, substitute) for member in members]
    error: Any = None
    try:
        error = None if pickled is None else loads(pickled)
        if isinstance(error, tuple):
            new, args, state = error
            error = _assemble(new(*args) if inside is None else new(*args, inside), state)
    except Exception:  # noqa: BLE001 - rebuilding runs code of any class
        error = None
    if not isinstance(error, BaseException):
        if inside is None:
            error = substitute(kind, text)
        else:
            error = _GROUP(text, inside)
            error.add_note(f"There it was a {kind}, which cannot be rebuilt here.")
    if notes and not _notes(error):
        BaseException.__setattr__(error, "__notes__", notes)
    return error


def _assemble(error: BaseException, state: dict[str, Any]) -> BaseException:
    for name, value in state.items():
        try:
            BaseException.__setattr__(error, name, value)  # not the class's own: it may be frozen
        except AttributeError:
            error.__dict__[name] = value
    return error


# ---- the traceback -----------------------------------------------------------------------------------------


def _story(error: BaseException) -> Story:
    story: Story = []
    seen: set[int] = set()
    last: BaseException | None = error
    words = ""
    while last is not None and id(last) not in seen:
        seen.add(id(last))
        if isinstance(last, _GROUP):  # a tree, which `traceback` draws together with what led to it
            told = traceback.TracebackException(type(last), last, last.__traceback__)
            _drop_own(told)
            story.append(([], "".join(told.format()), words))
            break
        story.append((_frames(last.__traceback__), _end(last), words))
        if last.__cause__ is not None:
            last, words = last.__cause__, _CAUSE
        elif last.__context__ is not None and not last.__suppress_context__:
            last, words = last.__context__, _CONTEXT
        else:
            break
    return story[::-1]


def _frames(step: TracebackType | None) -> list[Frame]:
    frames: list[Frame] = []
    while step is not None:
        code, names = step.tb_frame.f_code, step.tb_frame.f_globals
        if not _is_own(code, names):
            file, line = code.co_filename, step.tb_lineno or 0
            text = linecache.getline(file, line, names) if _is_ours_alone(file, names) else None
            frames.append((file, line, code.co_name, text, _columns(code, step.tb_lasti)))
        step = step.tb_next
    return frames


def _drop_own(told: Any) -> None:
    """Takes vlcs's own frames out of a group's traceback, and of all that led to it."""
    left = [told]
    while left:
        told = left.pop()
        if told.stack:
            told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(_OWN)]
        left += filter(None, (told.__cause__, told.__context__, *(told.exceptions or ())))


_FILE = globals().get("__file__")  # none in a guest, where this is text
_OWN = ("<vlcs ", os.path.dirname(_FILE) + "/") if _FILE else ("<vlcs ",)  # noqa: PTH120 - a prefix


def _is_own(code: CodeType, names: dict[str, Any]) -> bool:
    return code.co_filename.startswith("<vlcs ") or str(names.get("__name__")).startswith("vlcs._core.")


def _is_ours_alone(file: str, names: dict[str, Any]) -> bool:
    """Whether the source is known on this side only: from a zip file, or made at run time."""
    loader = names.get("__loader__")
    if loader is not None and not isinstance(loader, SourceFileLoader):
        return not file.startswith("<")
    known: Any = linecache.cache.get(file)
    return known is not None and len(known) > 1 and known[1] is None


def _columns(code: CodeType, instruction: int) -> tuple[Any, ...]:
    """(last line, first column, last column), where the Python has them."""
    if instruction < 0 or sys.version_info < (3, 11):
        return ()
    return next(islice(code.co_positions(), instruction // 2, None))[1:]


def _end(error: BaseException) -> str:
    if isinstance(error, _SUGGESTING):
        return "".join(
            traceback.TracebackException(type(error), error, error.__traceback__).format_exception_only()
        )
    kind = type(error)
    text = _text(error)
    name = _name(kind, "__main__")
    return "\n".join([f"{name}: {text}" if text else name, *_notes(error)]) + "\n"


def tell(story: Story) -> str:
    """The text of a traceback, with lines of source as they are now, as in any traceback."""
    text = ""
    for frames, end, words in story:
        if frames:
            text += "Traceback (most recent call last):\n" + "".join(_stack(frames).format())
        text += end + words
    return text


def _stack(frames: list[Frame]) -> traceback.StackSummary:
    for file in {frame[0] for frame in frames}:
        linecache.checkcache(file)
    stack = traceback.StackSummary()
    for file, line, name, source, columns in frames:
        more = dict(zip(("end_lineno", "colno", "end_colno"), columns))  # noqa: B905 - `strict` is of Python 3.10
        stack.append(traceback.FrameSummary(file, line, name, lookup_line=False, line=source, **more))
    return stack


def _name(kind: type, *unsaid: str) -> str:
    def make(kind: type) -> str:
        module = kind.__module__
        return kind.__qualname__ if module in {"builtins", *unsaid} else f"{module}.{kind.__qualname__}"

    return str(_text(kind, make))


def _notes(error: BaseException) -> list[str]:
    def make(error: BaseException) -> list[str]:
        notes = getattr(error, "__notes__", ())
        return list(map(_text, notes)) if isinstance(notes, (list, tuple)) else [_text(notes, repr)]

    found = _text(error, make)
    return found if isinstance(found, list) else [found]


def _text(value: Any, make: Callable[[Any], Any] = str) -> Any:
    try:
        return make(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a broken __str__ must not hide the exception
        return "<its text cannot be made>"
