"""Which Python a context's private interpreter is, and where its libpython lies.

The host's own by default: its executable (so its prefix and venv) and its `sys.path`. Another
interpreter or a venv is asked once, in a child process, and remembered until its files change.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcs._core._errors import ArgumentError, LoadError

_PROBE_SECONDS = 30.0

HOSTS_OWN = ("PYTHONHOME", "PYTHONPATH")
"""Variables that a private interpreter does not inherit: its prefix and `sys.path` are known already."""

# Runs in the other Python, of whatever version, so it keeps to what all of them know. `-c` puts
# the current folder first on sys.path: taken off before anything is imported from it.
_PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import json, sysconfig
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": list(sys.version_info[:3]),
    "executable": sys.executable,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "sys_path": sys.path,
    "config": dict((name, sysconfig.get_config_var(name)) for name in sys.argv[1:]),
}))
"""
_CONFIG = (
    "INSTSONAME",
    "LDLIBRARY",
    "LIBDIR",
    "LIBPL",
    "MULTIARCH",
    "SOABI",
    "Py_GIL_DISABLED",
    "HOST_GNU_TYPE",
)


@dataclass(frozen=True)
class Python:
    """A Python that a private interpreter can be started from."""

    executable: str
    """Its `python`: of a venv where it is one, which decides prefix and site-packages."""
    version: tuple[int, int, int]
    libpython: str
    sys_path: tuple[str, ...]


@dataclass(frozen=True)
class _Facts:
    """What a Python says about itself."""

    implementation: str
    version: tuple[int, int, int]
    executable: str
    base_prefix: str
    sys_path: tuple[str, ...]
    config: dict[str, Any]

    @property
    def short_version(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


def host() -> Python:
    """The Python that runs this program, with `sys.path` as it is now."""
    return _usable(_host_facts(), f"this Python ({sys.executable})")


def find(python: str | os.PathLike[str] | None) -> Python:
    """The Python of `python=`: a path of an interpreter or of a venv's folder; None for the host's own.

    Another Python gives its own `sys.path`: its standard library, its site-packages and their
    `.pth` files, those of its user site too; PYTHONPATH and PYTHONHOME of the host are ignored.
    The folder of the host's script stays first on it, so that the program's own modules are found.

    Raises ArgumentError for a path that is no Python of the host's minor version, LoadError
    where it has no libpython.
    """
    if python is None:
        return host()
    executable = _executable(python)
    facts = _ask(str(executable), _stamp(executable))
    subject = f"python={os.fspath(python)!r}"
    if facts.implementation != "cpython":
        raise ArgumentError(
            f"cannot start a private interpreter from {subject}: it is {facts.implementation}, and "
            "only CPython can be one. Give the path of a CPython.",
            str(executable),
        )
    if facts.version[:2] != sys.version_info[:2]:
        raise ArgumentError(
            f"cannot start a private interpreter from {subject}: it is Python {facts.short_version} and this "
            f"program runs on {sys.version_info[0]}.{sys.version_info[1]}. Values cross only between Pythons "
            "of the same minor version so far: make a venv of that version, or run the program on the other.",
            str(executable),
        )
    found = _usable(facts, subject)
    return Python(found.executable, found.version, found.libpython, (*_script_folder(), *found.sys_path))


def warn_options() -> list[str]:
    """The host's options -W; those of PYTHONWARNINGS a private interpreter finds itself."""
    inherited = os.environ.get("PYTHONWARNINGS", "").split(",")
    return [option for option in sys.warnoptions if option not in inherited]


def x_options() -> list[str]:
    """The host's options -X."""
    return [name if value is True else f"{name}={value}" for name, value in sys._xoptions.items()]  # noqa: SLF001 - documented


def check_environment(python: Python, given: Mapping[str, str | None]) -> None:
    """Raises ArgumentError where the Python would end the process, as it does over a bad PYTHONHASHSEED.

    `given` are the changes of `env=` that are Python's. Its variables with which this process itself began
    are known to be good; where others are set, the Python is asked in a child process, once.
    """
    variables = {name: os.environ[name] for name in os.environ if name.startswith("PYTHON")}
    for name in HOSTS_OWN:
        variables.pop(name, None)
    variables.update({name: value for name, value in given.items() if value is not None})
    for name, value in given.items():
        if value is None:
            variables.pop(name, None)
    if sys.flags.ignore_environment or variables.items() <= _first_variables().items():
        return
    if refusal := _refusal(python.executable, tuple(sorted(variables.items()))):
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(variables.items()))
        raise ArgumentError(
            f"cannot start a private interpreter with the environment {named}: {python.executable} "
            f"{refusal}. Give values that it accepts by env=, or None to remove the variable.",
            named,
        )


@lru_cache(maxsize=1)
def _first_variables() -> dict[str, str]:
    """The environment that this process was started with."""
    try:
        entries = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


@lru_cache(maxsize=64)
def _refusal(executable: str, variables: tuple[tuple[str, str], ...]) -> str | None:
    """What the Python answers to such variables, or None where it starts."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        subprocess.run(
            [executable, "-c", ""],
            env={**others, **dict(variables)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not start ({_reason(error)})"
    return None


def _host_facts() -> _Facts:
    return _Facts(
        implementation=sys.implementation.name,
        version=sys.version_info[:3],
        executable=sys.executable,
        base_prefix=sys.base_prefix,
        sys_path=tuple(entry for entry in sys.path if isinstance(entry, str)),
        config={name: sysconfig.get_config_var(name) for name in _CONFIG},
    )


def _executable(python: str | os.PathLike[str]) -> Path:
    try:
        path = Path(os.path.abspath(os.path.expanduser(os.fspath(python))))  # noqa: PTH100, PTH111 - resolve() would leave the venv
    except TypeError:
        raise ArgumentError(
            f"cannot use python={python!r}: it is a {type(python).__name__}. Give the path of an interpreter "
            "or of a venv's folder, or leave it out for this Python.",
            repr(python),
        ) from None
    if os.path.isdir(path):  # noqa: PTH112 - is_dir() raises where a folder may not be searched
        path = path / "bin" / "python"
    if not os.access(path, os.X_OK) or os.path.isdir(path):  # noqa: PTH112
        raise ArgumentError(
            f"cannot use python={os.fspath(python)!r}: {path} is no program that can be run. "
            "Give the path of an interpreter or of a venv's folder (the one that holds bin/python).",
            str(path),
        )
    return path


def _stamp(executable: Path) -> tuple[int, ...]:
    """What changes when a Python is exchanged or its venv is made again; packages come and go without."""
    files = (executable, executable.parent.parent / "pyvenv.cfg")
    return tuple(file.stat().st_mtime_ns for file in files if os.path.exists(file))  # noqa: PTH110 - exists() may raise


@lru_cache(maxsize=64)
def _ask(executable: str, stamp: tuple[int, ...]) -> _Facts:  # noqa: ARG001 - the stamp is part of the key
    try:
        # -E: PYTHONHOME and PYTHONPATH are for the host. Not -I: that would hide the user site.
        answer = subprocess.run(
            [executable, "-E", "-c", _PROBE, *_CONFIG],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        ).stdout
        told = json.loads(answer.splitlines()[-1])
        return _Facts(
            implementation=told["implementation"],
            version=tuple(told["version"]),
            executable=told["executable"] or executable,
            base_prefix=told["base_prefix"],
            sys_path=tuple(told["sys_path"]),
            config=told["config"],
        )
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, KeyError) as error:
        raise ArgumentError(
            f"cannot use python={executable!r}: it does not answer as a Python does ({_reason(error)}). "
            f"Check that `{executable} -c 'import sysconfig'` works.",
            executable,
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        output = (error.stderr or "").strip().replace("\n", " | ")
        return f"it ended with exit code {error.returncode}" + (
            f" and wrote: {output[-300:]}" if output else ""
        )
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {error.timeout:g} s"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it wrote something else"


def _usable(facts: _Facts, subject: str) -> Python:
    config = facts.config
    platform = f"{config.get('SOABI') or ''} {config.get('HOST_GNU_TYPE') or ''}"
    if config.get("Py_GIL_DISABLED"):
        raise LoadError(
            f"cannot start a private interpreter from {subject}: it is a free-threaded build, and contexts "
            "give each interpreter its own lock instead. Use the default build of the same version.",
            facts.executable,
        )
    if "musl" in platform:
        raise LoadError(
            f"cannot start a private interpreter from {subject}: it is built for musl, and contexts need "
            "glibc. Use a Python built for glibc (on Alpine: a glibc container).",
            facts.executable,
        )
    return Python(facts.executable, facts.version, _libpython(facts, subject), facts.sys_path)


def _libpython(facts: _Facts, subject: str) -> str:
    candidates = list(dict.fromkeys(_candidates(facts)))
    for candidate in candidates:
        if os.path.isfile(candidate):  # noqa: PTH113 - is_file() raises where a folder may not be searched
            return str(candidate)
    name = _names(facts)[0]
    looked = ", ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
    raise LoadError(
        f"cannot start a private interpreter from {subject}: its python is linked statically and there is no "
        f"{name} for it (looked in {looked}). Install it: on Debian and Ubuntu `apt install "
        f"libpython{facts.short_version}`, on Fedora `dnf install python3-libs`; with pyenv build again with "
        f"`PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force {'.'.join(map(str, facts.version))}`; "
        "Pythons of conda and uv bring theirs.",
        name,
    )


def _names(facts: _Facts) -> list[str]:
    """File names of libpython, the most exact first. A static build names a `.a`, or nothing."""
    configured = (facts.config.get("INSTSONAME"), facts.config.get("LDLIBRARY"))
    guessed = (f"libpython{facts.short_version}.so.1.0", f"libpython{facts.short_version}.so")
    names = [name for name in (*configured, *guessed) if name and re.search(r"\.so(\.|$)", name)]
    return list(dict.fromkeys(names))


def _candidates(facts: _Facts) -> Iterator[Path]:
    # The prefix comes before what the build recorded: Pythons of uv and conda were moved since.
    folders = [Path(facts.base_prefix, "lib"), Path(facts.base_prefix, "lib64")]
    folders += [Path(folder) for key in ("LIBDIR", "LIBPL") if (folder := facts.config.get(key))]
    # A system Python's library is a package of its own, in the folder of its architecture (Debian).
    # Only for those: another Python's standard library would not fit a libpython from there.
    if facts.base_prefix == "/usr" and (multiarch := facts.config.get("MULTIARCH")):
        folders += [Path("/usr/lib", multiarch), Path("/lib", multiarch)]
    for name in _names(facts):
        for folder in folders:
            yield folder / name


def _script_folder() -> list[str]:
    """What Python itself put first on the host's `sys.path`: the folder of the script, or the current one."""
    if sys.flags.safe_path or not sys.path:
        return []
    first = sys.path[0]
    installed = (sys.base_prefix, sys.prefix)
    if first and any(Path(first).is_relative_to(Path(prefix, "lib")) for prefix in installed):
        return []
    return [first]
