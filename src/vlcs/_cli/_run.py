"""`vlcs run`: starts a Python program with the large pool of static TLS preloaded."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

POOL = "libvlcs_tls.so"

# Python's options: those that end the options and name the program, those with an argument, the rest.
_PROGRAM = "mc"
_WITH_ARGUMENT = "WX"
_FLAGS = "bBdEiIOPqRsSuvx"


class UsageError(ValueError):
    """A command line that `run` cannot understand."""


@dataclass(frozen=True)
class Program:
    """What to run: `kind` is "file", "module", "code" or "stdin"."""

    options: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]


def run(arguments: Sequence[str]) -> int:
    """Becomes the program; returns only where that fails."""
    try:
        program = parse(arguments)
    except UsageError as error:
        print(f"vlcs run: {error}\nSee `vlcs run --help`.", file=sys.stderr)
        return 2
    pool = resources.files("vlcs._core").joinpath(POOL)
    if not pool.is_file():
        print(
            f"vlcs run: cannot start {program.target}: {POOL} is missing from this installation of vlcs "
            f"({pool}). Install vlcs again.",
            file=sys.stderr,
        )
        return 1
    command = command_line(program, str(pool))
    try:
        os.execve(sys.executable, command, environment(os.environ, str(pool)))  # noqa: S606 - no shell is wanted
    except OSError as error:
        print(f"vlcs run: cannot start {sys.executable}: {error.strerror}", file=sys.stderr)
        return 1


def parse(arguments: Sequence[str]) -> Program:
    """Splits a command line as `python` does. Without a program it is what is piped in, if anything is."""
    options: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        ends_options = word == "--" and bool(rest)
        if ends_options:
            word = rest.pop(0)
        if ends_options or word == "-" or not word.startswith("-"):
            kind = "stdin" if word == "-" else "file"
            return Program(tuple(options), kind, word, tuple(rest))
        if word == "--check-hash-based-pycs":
            options += [word, _argument(word, "", rest)]
        elif word != "--" and (program := _take_letters(word, options, rest)):
            return program
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no program to run: give a script, -m module, -c code, or - for standard input")
    return Program(tuple(options), "stdin", "", ())


def _take_letters(word: str, options: list[str], rest: list[str]) -> Program | None:
    """Takes over a word of options; gives the program where one of its letters names it."""
    letters = word[1:]
    for place, letter in enumerate(letters, 1):
        if letter in _PROGRAM:
            if place > 1:
                options.append(word[:place])
            target = _argument(f"-{letter}", letters[place:], rest)
            return Program(tuple(options), "module" if letter == "m" else "code", target, tuple(rest))
        if letter in _WITH_ARGUMENT:
            options.append(word if letters[place:] else word + _argument(f"-{letter}", "", rest))
            return None
        if letter not in _FLAGS:
            raise UsageError(f"unknown option {word!r}: these are the options of python")
    options.append(word)
    return None


def command_line(program: Program, pool: str) -> list[str]:
    """The command that runs the program under our runner, with the options of this Python first."""
    runner = resources.files("vlcs._cli").joinpath("_runner.py")
    own = _own_options(sys.orig_argv)
    what = (pool, program.kind, program.target, *program.arguments)
    return [sys.executable, *own, *program.options, str(runner), *what]


def environment(variables: Mapping[str, str], pool: str) -> dict[str, str]:
    """The environment with the pool preloaded: last, since sanitizers insist on being first."""
    changed = dict(variables)
    # ld.so splits the variable at both, and has no way to quote them.
    others = [entry for entry in changed.get("LD_PRELOAD", "").replace(":", " ").split() if entry != pool]
    changed["LD_PRELOAD"] = ":".join([*others, pool])
    return changed


def _argument(option: str, attached: str, rest: list[str]) -> str:
    if attached:
        return attached
    if not rest:
        raise UsageError(f"option {option} needs an argument")
    return rest.pop(0)


def _own_options(command: Sequence[str]) -> list[str]:
    """`python -X dev -m vlcs run app.py` means the options for app.py as well."""
    words = list(command[1:])
    for place, pair in enumerate(pairwise(words)):
        if pair == ("-m", "vlcs"):
            return words[:place]
    return []
