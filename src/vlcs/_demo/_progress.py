"""What the demo is doing now: one line that changes on a terminal, a line for each step elsewhere."""

import re
import sys
import time
from typing import Self, TextIO


class Progress:
    """Shows where the demo is, on standard error. A context manager, which clears its line at the end."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._total = total
        self._number = 0
        self._title = ""
        self._step = ""
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def pair(self, title: str) -> None:
        """The next pair begins."""
        self._number += 1
        self._title = title
        self._step = ""

    def step(self, text: str) -> None:
        """What is done for the pair now. Elsewhere than on a terminal, only the first of similar steps."""
        if self._terminal:
            seconds = time.monotonic() - self._start
            self._clear()
            self._stream.write(f"[{self._number}/{self._total}, {seconds:.0f} s] {self._title}: {text}"[:110])
        else:
            # "round 3 of 15" is similar to "round 4 of 15", and no news in a log file.
            kind = re.sub(r"\d+", "", text)
            if kind == self._step:
                return
            self._step = kind
            self._stream.write(f"[{self._number}/{self._total}] {self._title}: {text}\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Something to keep on the screen."""
        self._clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def _clear(self) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
