"""What the kernel writes into small files: text, integers and sets of numbers.

Containers, sandboxes and old kernels leave files out, so one that cannot be read is empty and not an error.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path


def parse_list(text: str) -> frozenset[int]:
    """Reads the kernel's notation for sets of CPUs: "0-3,8". Raises ValueError for anything else."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(part)
        low, high = int(first), int(last) if dash else int(first)
        # The bound keeps "0-99999999999" from filling memory before anyone looks at the numbers.
        if high < low or high - low > 65535:
            raise ValueError(part)
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def format_list(numbers: Iterable[int]) -> str:
    """Writes a set of CPUs as the kernel does: {0, 1, 2, 3, 8} is "0-3,8"."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for index, number in enumerate(ordered):
        last = index + 1 == len(ordered)
        if last or ordered[index + 1] != number + 1:
            parts.append(f"{ordered[start]}-{number}" if index > start else f"{number}")
            start = index + 1
    return ",".join(parts)


def read(path: Path) -> str:
    """The text of a file, without the line's end; "" where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def is_writable(folder: Path) -> bool:
    """Whether the process may make something in it, as far as can be told without trying."""
    return os.access(folder, os.W_OK | os.X_OK)


def write(path: Path, text: str) -> None:
    """Writes a file that is there. Raises OSError, as the kernel refuses it, with the file's name."""
    if not path.exists():  # else the kernel is asked to make one, and says EACCES
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    try:
        path.write_text(text)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def read_list(path: Path) -> frozenset[int]:
    """A set of numbers; empty where the file cannot be read or holds something else."""
    try:
        return parse_list(read(path))
    except ValueError:
        return frozenset()


def read_integer(path: Path) -> int | None:
    """An integer; None where the file cannot be read or holds something else."""
    try:
        return int(read(path))
    except ValueError:
        return None


def read_fields(path: Path) -> dict[str, str]:
    """The lines "Name: value" of a file, as /proc/self/status has them."""
    lines = (line.partition(":") for line in read(path).splitlines())
    return {name.strip(): value.strip() for name, colon, value in lines if colon}
