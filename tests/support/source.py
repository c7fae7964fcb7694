"""Reads our own source text, for the rules in tests/rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NATIVE = (".c", ".h", ".hpp", ".S")
_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def files(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of ours below folders of the repository, in order of name."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    )


def name(path: Path) -> str:
    """A file's path inside the repository."""
    return path.relative_to(ROOT).as_posix()


def _blank(text: str) -> str:
    return "\n" * text.count("\n")


def without_comments(text: str) -> str:
    """C text without comments; lines keep their numbers."""
    return _COMMENT_OR_STRING.sub(lambda m: m[0] if m[0][0] in "\"'" else _blank(m[0]) or " ", text)


def code_only(text: str) -> str:
    """C text without comments and with empty string literals; lines keep their numbers."""
    return _COMMENT_OR_STRING.sub(lambda m: m[0][0] * 2 if m[0][0] in "\"'" else _blank(m[0]) or " ", text)


def offences(
    pattern: str,
    *folders: str,
    allowed: Callable[[str], bool] = lambda _: False,
    view: Callable[[str], str] = code_only,
) -> Iterator[str]:
    """`file:line: text` of each native line where the pattern is found, but in files that are allowed to.

    Args:
        pattern: a regular expression, searched in what `view` leaves of each file.
        folders: where to look, below the repository.
        allowed: of a file's path inside the repository.
        view: what to look at: `code_only`, or `without_comments` where string literals matter.
    """
    expression = re.compile(pattern)
    for path in files(*folders, suffixes=NATIVE):
        if allowed(name(path)):
            continue
        for number, line in enumerate(view(path.read_text()).splitlines(), start=1):
            if expression.search(line):
                yield f"{name(path)}:{number}: {line.strip()}"


def refuse(found: Iterator[str], cure: str) -> None:
    """Fails the test with all offences and what to do about them."""
    lines = list(found)
    assert not lines, "\n".join([cure, *lines])
