"""The guest's `sys.stdin`, `sys.stdout`, `sys.stderr` and `input()`: the host's, as they are at that moment.

Part of the guest's side of the bridge, so it travels as text and keeps to what `_guest.py` keeps to.
Its partner is `_streams.py`.
"""

from __future__ import annotations

import builtins
import codecs
import io
import linecache
import sys
from typing import Any

import _vlcs_host  # type: ignore[import-not-found]  # made by the extension module, in guests only

_NAMES = ("<stdin>", "<stdout>", "<stderr>")


class _HostStream(io.IOBase):
    """The binary end of a stream."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._ask = _vlcs_host.ask  # found here even when modules are being cleared at the end
        self.name = _NAMES[fd]
        self.mode = "rb" if fd == 0 else "wb"

    def fileno(self) -> int:
        """The process's own descriptor, for what needs one: text goes by the host's stream."""
        return self._fd

    def isatty(self) -> bool:
        """Whether the host's stream is a terminal: what is captured must not get colours."""
        return bool(self._ask("isatty", self._fd, ""))


class _Writer(_HostStream, io.BufferedIOBase):
    """Keeps nothing: what the host's stream refuses is lost, as there, and not tried again."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def writable(self) -> bool:
        """Is all it is for."""
        return True

    def write(self, data: Any) -> int:
        """Hands over what is complete; the rest of a character waits for the next write."""
        piece = bytes(data)
        waiting = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(piece)
        except UnicodeDecodeError:  # no text at all, `sys.stdout.buffer.write(png)`
            self._decoder.reset()
            self._ask("write_bytes", self._fd, (waiting + piece).decode("latin-1"))
        else:
            if text:
                self._ask("write", self._fd, text)
        return len(piece)


class _Reader(_HostStream, io.RawIOBase):
    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._rest = b""

    def readable(self) -> bool:
        """Is all it is for."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Takes one line of the host's at most: what both read comes from one buffer, the host's."""
        if not self._rest:
            self._rest = self._ask("readline", self._fd, "").encode("utf-8", "surrogateescape")
        piece, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


class _Output(io.TextIOWrapper):
    def __init__(self, fd: int, errors: str) -> None:
        # Line buffered, so that lines of contexts that print at once do not mix.
        super().__init__(_Writer(fd), encoding="utf-8", errors=errors, newline="\n", line_buffering=True)
        self._ask, self._printed, self._fd = _vlcs_host.ask, _vlcs_host.printed, fd

    def write(self, text: str) -> int:
        """Tells that there may be something to show, since a call does not ask the streams."""
        self._printed()
        return super().write(text)

    def flush(self) -> None:
        """Flushes the host's stream as well; `print(..., flush=True)` comes here."""
        super().flush()
        self._ask("flush", self._fd, "")

    def show(self) -> None:
        """Hands over what was printed, and leaves the host's stream to its own buffering."""
        super().flush()


def show() -> None:
    """Shows what a call has printed without an end of line, before the host prints."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if isinstance(stream, _Output):
                stream.show()
            else:
                stream.flush()
        except Exception:  # noqa: BLE001, S112 - None, closed, broken, or a stream of the host that raises
            continue  # what the call has done counts more than its words


def _input(prompt: object = "", /) -> str:
    """Reads a line as the host's `input()` does: with its readline, in a notebook in the notebook."""
    show()
    line: str = _vlcs_host.ask("input", 0, str(prompt))
    return line


_own_lines = linecache.updatecache


def _lines(filename: str, module_globals: Any = None) -> Any:
    """Lines of source for tracebacks, warnings and pdb; of a notebook's cells, only the host has them."""
    lines = _own_lines(filename, module_globals)
    if not lines and filename and not filename.startswith(("<frozen ", "<vlcs ")):
        # Not kept: such a name may stand for another text tomorrow.
        return str(_vlcs_host.ask("source", 0, filename)).splitlines(keepends=True)
    return lines


def install() -> None:
    """Puts all of it in place."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(_Reader(0)), encoding="utf-8", errors="surrogateescape"
    )
    sys.stdout = sys.__stdout__ = _Output(1, "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _Output(2, "backslashreplace")  # type: ignore[misc]
    builtins.input = _input
    linecache.updatecache = _lines
