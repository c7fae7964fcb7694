"""What a guest's streams ask of the host's, as those are at that moment; its partner is `_guest_streams.py`.

So Jupyter, pytest and redirections see what guests print, and `input()` of a guest is that of the host.
"""

import linecache
import sys
from collections.abc import Callable
from typing import Any

_STREAMS = ("stdin", "stdout", "stderr")


def answer(request: str, fd: int, text: str) -> tuple[str, str, str]:
    """Does what a guest asks of stream `fd`: gives (answer, "", "").

    Where that raises: ("", name of a built-in exception that the guest can raise, its words).
    """
    try:
        return _REQUESTS[request](fd, text) or "", "", ""
    except BaseException as error:  # noqa: BLE001 - the guest raises it there, KeyboardInterrupt too
        return "", _built_in(error), str(error)


def _built_in(error: BaseException) -> str:
    """The nearest built-in class of an exception that is made of its words alone."""
    for kind in type(error).__mro__:
        if kind.__module__ == "builtins":
            try:
                kind("")
            except TypeError:  # UnicodeEncodeError has five arguments
                continue
            return kind.__name__
    return "RuntimeError"


def _stream(fd: int) -> Any:
    # None in a process without that descriptor (pythonw, daemons), as Python has no stream then.
    return getattr(sys, _STREAMS[fd], None)


def _write(fd: int, text: str) -> None:
    if (stream := _stream(fd)) is not None:
        stream.write(text)


def _write_bytes(fd: int, text: str) -> None:
    """Writes what is no text, handed over as Latin-1: as it is where the stream takes bytes."""
    stream = _stream(fd)
    data = text.encode("latin-1")
    binary = getattr(stream, "buffer", None)
    if binary is None:
        _write(fd, data.decode("utf-8", "backslashreplace"))
    else:
        stream.flush()
        binary.write(data)


def _flush(fd: int, _text: str) -> None:
    if (stream := _stream(fd)) is not None:
        stream.flush()


def _isatty(fd: int, _text: str) -> str | None:
    return "yes" if (stream := _stream(fd)) is not None and stream.isatty() else None


def _readline(fd: int, _text: str) -> str | None:
    stream = _stream(fd)
    return None if stream is None else str(stream.readline())


def _input(_fd: int, prompt: str) -> str:
    return input(prompt)  # looked up now: Jupyter has its own


def _source(_fd: int, file: str) -> str:
    """The text behind a name that only this process's memory knows, as of a notebook's cell."""
    return "".join(linecache.getlines(file))


_REQUESTS: dict[str, Callable[[int, str], str | None]] = {
    "flush": _flush,
    "input": _input,
    "isatty": _isatty,
    "readline": _readline,
    "source": _source,
    "write": _write,
    "write_bytes": _write_bytes,
}
