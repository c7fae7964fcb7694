"""The options of a context, checked and made plain data before anything is built."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vlcs._core import _huge_pages, _memory, _memory_limit, _python
from vlcs._core._errors import ArgumentError
from vlcs._core._memory import MemoryRequest

MAX_THREADS = 4096
_HEAPS = ("own", "host")  # by number of vlc_heap

# As vlc_residence in vlcs.h.
_RESIDENCE = {False: 0, None: 1, True: 2}

# As -X dev, which an embedded Python cannot be given in another way.
_DEV_MODE = "PYTHONDEVMODE=1"


@dataclass(frozen=True)
class Plan:
    """What a context will be made with, apart from its CPUs, which depend on those that are open."""

    name: str | None
    env: tuple[str, ...]
    """As vlc_spec has it: "NAME=value" sets, "NAME" removes."""
    share: tuple[str, ...]
    threads: int
    heap: int
    """A vlc_heap."""
    residence: int
    """A vlc_residence."""
    memory: MemoryRequest
    memory_limit: int
    """In bytes; 0: none."""
    huge_pages: bool | None
    python: _python.Python | None
    """None: no private interpreter."""
    inherits_path: bool
    """It is the host's own Python, with its `sys.path`."""


def plan(
    *,
    name: str | None,
    env: Mapping[str, str | None] | None,
    share: Iterable[str],
    threads: int,
    heap: str,
    resident: bool | None,
    memory: Any,
    memory_nodes: Any,
    memory_limit: Any,
    huge_pages: Any,
    python: str | os.PathLike[str] | None,
    interpreter: bool,
) -> Plan:
    """Checks the options. Raises ArgumentError, or LoadError where the Python has no libpython."""
    if python is not None and not interpreter:
        raise ArgumentError(
            f"cannot use python={python!r} with interpreter=False: there would be no interpreter "
            "to be that Python. Leave one of them out."
        )
    checked = Plan(
        name=_name(name),
        env=_env(env),
        share=_share(share),
        threads=_threads(threads),
        heap=_heap(heap),
        residence=_residence(resident),
        memory=_memory.read(memory, memory_nodes),
        memory_limit=_memory_limit.read(memory_limit),
        huge_pages=_huge_pages.read(huge_pages),
        python=_python.find(python) if interpreter else None,
        inherits_path=python is None,
    )
    if checked.python is None:
        return checked
    given = {name: value for name, value in (env or {}).items() if name.startswith("PYTHON")}
    _python.check_environment(checked.python, given)
    more = [name for name in _python.HOSTS_OWN if name not in given]
    if sys.flags.dev_mode and "PYTHONDEVMODE" not in given:
        more.append(_DEV_MODE)
    return replace(checked, env=(*checked.env, *more))


def for_children(env: Iterable[str]) -> dict[str, str | None]:
    """Variables of programs that the private interpreter starts, where it itself begins with others."""
    variables: dict[str, str | None] = {
        name: os.environ[name] for name in _python.HOSTS_OWN if name in env and name in os.environ
    }
    if _DEV_MODE in env:
        variables["PYTHONDEVMODE"] = os.environ.get("PYTHONDEVMODE")
    return variables


def is_encodable(text: str) -> bool:
    """Whether the C library can be given it, as a file's name or a variable."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _name(name: Any) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ArgumentError(
            f"cannot name a context {name!r}: a name is printable text. Leave it out to have one made.",
            repr(name),
        )
    return name


def _env(env: Any) -> tuple[str, ...]:
    if env is None:
        return ()
    if not isinstance(env, Mapping):
        raise ArgumentError(
            f"cannot use env={env!r}: it is a {type(env).__name__}. "
            'Give a mapping of names to values, {"OMP_WAIT_POLICY": "passive"}; None removes a variable.',
            repr(env),
        )
    variables = tuple(_variable(name, value) for name, value in env.items())
    for variable in variables:
        if not is_encodable(variable):
            raise ArgumentError(
                f"cannot set the environment variable {variable!r}: it cannot be encoded as "
                f"{sys.getfilesystemencoding()}. Write bytes that are no text as os.fsdecode gives them.",
                repr(variable),
            )
    return variables


def _variable(name: Any, value: Any) -> str:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise ArgumentError(
            f"cannot set the environment variable {name!r}: a name is text without '=' and NUL.",
            repr(name),
        )
    if value is None:
        return name
    if not isinstance(value, str):
        raise ArgumentError(
            f"cannot set the environment variable {name!r} to {value!r}: a value is text, or None to remove "
            f"the variable, and this is a {type(value).__name__}. Write {str(value)!r}.",
            name,
        )
    if "\0" in value:
        raise ArgumentError(
            f"cannot set the environment variable {name!r} to {value!r}: it holds a NUL.", name
        )
    return f"{name}={value}"


def _share(share: Any) -> tuple[str, ...]:
    if isinstance(share, str | bytes) or not isinstance(share, Iterable):
        raise ArgumentError(
            f"cannot use share={share!r}: it is a {type(share).__name__}. Give a list of sonames, "
            '["libcuda.so.1"].',
            repr(share),
        )
    names = tuple(share)
    for name in names:
        if not isinstance(name, str) or not name or "\0" in name or not is_encodable(name):
            raise ArgumentError(f"cannot share {name!r}: a soname is text, as 'libcuda.so.1' is.", repr(name))
        if "/" in name:
            raise ArgumentError(
                f"cannot share {name!r}: it is a path, and libraries ask for each other by soname. "
                f"Write {os.path.basename(name)!r}, as `readelf -d` shows it (SONAME).",  # noqa: PTH119 - no file is meant
                name,
            )
    return names


def _threads(threads: Any) -> int:
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise ArgumentError(
            f"cannot make a context with threads={threads!r}: give an int from 1 to {MAX_THREADS}. These are "
            "the threads behind submit(); its libraries start their own besides.",
            repr(threads),
        )
    return threads


def _heap(heap: Any) -> int:
    if heap not in _HEAPS:
        raise ArgumentError(
            f'cannot make a context with heap={heap!r}: "own" gives back all that its libraries allocate '
            'when it is closed; with "host" the host\'s free() takes their blocks, and what they leak stays.',
            repr(heap),
        )
    return _HEAPS.index(heap)


def _residence(resident: Any) -> int:
    try:
        return _RESIDENCE[resident]
    except (KeyError, TypeError):
        raise ArgumentError(
            f"cannot make a context with resident={resident!r}: give True, False, or None for whatever the "
            "process has room for.",
            repr(resident),
        ) from None
