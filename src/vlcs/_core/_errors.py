"""Exceptions, divided by whose fault it is.

A call that raises one of these has changed nothing, unless its docstring says otherwise.
`docs/errors.md` is the page for users. It travels to guests as text, as `_guest.py` does.
"""

import pickle
from typing import Any

if __name__.startswith("vlcs."):  # a guest puts its own here
    from vlcs._core import _exceptions


class VLCError(Exception):
    """Something about a context failed; every error that vlcs raises by itself is one of these.

    `str(error)` says what could not be done, to what, why, and the cure. `subject` is the thing at
    fault alone (a path, a symbol, a CPU list; may be empty) and `os_error` the `errno` of the
    system's refusal (0 where the system refused nothing).
    """

    subject: str
    os_error: int

    def __init__(self, message: str, subject: str = "", os_error: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.os_error = os_error

    def __str__(self) -> str:
        return self.message

    # OSError's own __reduce__ would forget our attributes, so the ones below it need this.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.subject, self.os_error)


class ArgumentError(VLCError, ValueError):
    """A value given by the caller is wrong: an unknown CPU, a name used twice, a malformed list.

    The same call with another value can work at once. Compare `StateError`, where the value is
    right but the moment is not.
    """


class StateError(VLCError, RuntimeError):
    """The call is right, the moment is not: the context is closed, or was made before a fork.

    No other argument helps; do it earlier, later, or on a context that is open.
    """


class LoadError(VLCError, OSError):
    """A library, version or libpython is missing, damaged, or made for another machine.

    The fault lies with the file (or its absence), not with the call: install or rebuild it.
    An OSError, as `ctypes.CDLL` raises; `errno` and `filename` are set where they are known.
    """

    def __init__(self, message: str, subject: str = "", os_error: int = 0) -> None:
        super().__init__(message, subject, os_error)
        self.errno = os_error or None
        self.filename = subject or None


class SymbolError(VLCError, AttributeError):
    """A library of a context has no function or variable of that name, nor has what it needs.

    An AttributeError, as attributes of `ctypes.CDLL` raise, so `hasattr(library, "name")` works.
    """


class LimitError(VLCError, RuntimeError):
    """Something countable ran out: static TLS, mappings, addresses, descriptors, CPUs of exclusive slices.

    The message says how much there is, how much is used, and how to have more. Compare
    `SystemRefusedError`, where the kernel said no for a reason of its own.
    """


class SystemRefusedError(VLCError, OSError):
    """The operating system refused; `errno` (and `os_error`) say why."""

    def __init__(self, message: str, subject: str = "", os_error: int = 0) -> None:
        super().__init__(message, subject, os_error)
        self.errno = os_error


class BusyError(VLCError, TimeoutError):
    """Calls or threads of the context did not end in time; the message names what still runs.

    The context takes no new work any more and keeps its memory; `contexts()` still lists it, and `close()`
    may be called again.
    """


class InternalError(VLCError, RuntimeError):
    """A bug of ours. This should never happen: please report it with the message."""


class PicklingError(VLCError, pickle.PicklingError):
    """An argument or a result cannot cross between interpreters.

    The function was not run if it is the function or an argument; it has run, and its result is
    lost, if it is the result. The message says which.
    """


class RemoteError(VLCError):
    """A context's code raised an exception whose class cannot be rebuilt on this side.

    Others come home as themselves, with the remote traceback attached. `type_name` is the class's
    full name there, `text` what `str` gave there, `traceback` the text of its traceback and `context` the
    name of the context. Notes are notes here too.
    """

    def __init__(
        self, message: str, type_name: str = "", traceback: str = "", context: str = "", text: str = ""
    ) -> None:
        super().__init__(message, subject=type_name)
        self.type_name = type_name
        self.traceback = traceback
        self.context = context
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        details = self.message, self.type_name, self.traceback, self.context, self.text
        return (
            type(self),
            details,
            {"__notes__": notes} if (notes := getattr(self, "__notes__", None)) else None,
        )


class RemoteTraceback(Exception):  # noqa: N818 - named as that of concurrent.futures
    """The traceback of a context's code, as the cause of the exception that came home from there.

    `text` is the traceback, with all exceptions that led to this one, and `context` the name of the context.
    """

    def __init__(self, story: Any, context: str) -> None:
        super().__init__(context)
        self._story = story
        self.context = context

    @property
    def text(self) -> str:
        """Made when it is first read: lines of source are those of then, as in any traceback."""
        if not isinstance(self._story, str):
            self._story = _exceptions.tell(self._story)
        text: str = self._story
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.context)

    def __str__(self) -> str:
        return f'in the context {self.context!r}\n"""\n{self.text}"""'


class OverlapWarning(UserWarning):
    """Two open contexts were both given a CPU, so their libraries compete for it.

    `exclusive=True` makes this an error; contexts that asked for no CPUs never warn.
    """


class UnavailableWarning(UserWarning):
    """A resource was asked for that cannot be had here; the context goes without.

    `vlc.slice.report()` has the same words as data.
    """


# Numbered as vlc_status in vlcs.h. 0 is success and never comes here.
_BY_STATUS: dict[int, type[VLCError]] = {
    1: ArgumentError,
    2: StateError,
    3: LoadError,
    4: LimitError,
    5: SystemRefusedError,
    6: BusyError,
    7: InternalError,
}


def from_status(status: int, message: str, subject: str = "", os_error: int = 0) -> VLCError:
    """Makes the exception for a failed native call: the one place where a status becomes a class."""
    kind = _BY_STATUS.get(status)
    if kind is None:
        return InternalError(
            f"libvlcs.so answered with status {status}, which this vlcs does not know: {message}. "
            "The package and its library are of different versions; install vlcs again.",
            subject,
            os_error,
        )
    return kind(message, subject, os_error)


def describe(what: object) -> str:
    """A function's name as people write it, or the words themselves: for messages."""
    if isinstance(what, str):
        return what
    if hasattr(type(what), "_vlcs_label"):  # an object of another interpreter, which is not asked
        return f"{what._vlcs_label}()"  # type: ignore[attr-defined]  # noqa: SLF001
    module, name = getattr(what, "__module__", None), getattr(what, "__qualname__", None)
    if not isinstance(name, str):
        return repr(what)
    return f"{module}.{name}()" if module and module != "builtins" else f"{name}()"
