"""Runs a program as `python` would, after taking the pool out of LD_PRELOAD again.

Started by path (`python [options] _runner.py POOL KIND TARGET ARGUMENTS...`), so that it needs no import
of vlcs, whatever the options are. It is `__main__` at first, and hands that module over to the
program empty: functions of `__main__` are pickled by looking there.
"""
# The program finds pathlib and others unimported, as in a plain start: os.path, and imports where needed.
# ruff: noqa: PTH100, PTH109, PTH110, PTH120
# ruff: noqa: PLC0415

from __future__ import annotations

import os
import sys
from functools import partial

TYPE_CHECKING = False  # type checkers take this for typing's, which takes a while to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _forget(pool: str) -> None:
    """Takes the pool out of LD_PRELOAD. It is mapped and stays so; the program's children are not ours."""
    others = [entry for entry in os.environ.get("LD_PRELOAD", "").split(":") if entry and entry != pool]
    if others:
        os.environ["LD_PRELOAD"] = ":".join(others)
    else:
        os.environ.pop("LD_PRELOAD", None)


def _holds_main(path: str) -> bool:
    """Whether Python would run a `__main__` inside of it: a folder or a zip archive."""
    import pkgutil

    return not path.endswith(".py") and pkgutil.get_importer(path) is not None


def _set_path(first: str, *, always: bool = False) -> None:
    """Puts the program's folder where this file's is, if Python put that there."""
    if not sys.flags.safe_path:
        sys.path[0] = first
    elif always:
        sys.path.insert(0, first)


def _as_main(name: str, *, alter_argv: bool) -> Callable[[], object]:
    """What CPython calls for `python -m` (Modules/main.c): run_module() would not run in `__main__`."""
    import runpy

    return partial(runpy._run_module_as_main, name, alter_argv=alter_argv)  # type: ignore[attr-defined] # noqa: SLF001


def _load(path: str) -> tuple[Any, dict[str, object]]:
    """Code of a script, and what `__main__` says of where it is from."""
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    loader: SourceFileLoader | SourcelessFileLoader
    code: Any
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        # Not get_code() of a source: that would leave a .pyc beside the script.
        loader = SourceFileLoader("__main__", path)
        code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    return code, {"__file__": path, "__cached__": None, "__loader__": loader}


def _prepare(
    kind: str, target: str, namespace: dict[str, object]
) -> tuple[Callable[[], object], dict[str, object]]:
    """Sets sys.path; gives what runs the program, and the names that `__main__` begins with."""
    from importlib.machinery import BuiltinImporter

    if kind == "module":
        _set_path(os.getcwd())
        return _as_main(target, alter_argv=True), {}
    if kind == "code":
        _set_path("")
        code = compile(target, "<string>", "exec", dont_inherit=True)
        return partial(exec, code, namespace), {"__loader__": BuiltinImporter}
    if kind == "stdin":
        _set_path("")
        code = compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
        names = {"__loader__": BuiltinImporter, "__file__": "<stdin>", "__cached__": None}
        return partial(exec, code, namespace), names
    path = os.path.abspath(target)
    if not os.path.exists(path):
        # CPython's words and exit code (Modules/main.c, pymain_run_file_obj).
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: [Errno 2] No such file or directory\n")
        sys.exit(2)
    if _holds_main(path):
        _set_path(path, always=True)
        return _as_main("__main__", alter_argv=False), {}
    _set_path(os.path.dirname(os.path.realpath(path)))
    code, names = _load(path)
    return partial(exec, code, namespace), names


def _show(hook: Callable[..., object], kind: Any, error: Any, traceback: Any) -> None:
    """An excepthook: the one that is there, without the frames that lead to the program."""
    own = traceback.tb_frame.f_code.co_filename
    while traceback is not None and traceback.tb_frame.f_code.co_filename == own:
        traceback = traceback.tb_next
    hook(kind, error.with_traceback(traceback), traceback)


def _become() -> None:
    """Turns this process into the program."""
    pool, kind, target, *arguments = sys.argv[1:]
    namespace = sys.modules["__main__"].__dict__
    _forget(pool)
    run, names = _prepare(kind, target, namespace)
    sys.argv[:] = [{"module": "-m", "code": "-c"}.get(kind, target), *arguments]
    show, bind, system = _show, partial, sys
    # From here on nothing of this file can be looked up.
    for name in [name for name in namespace if not name.startswith("__")]:
        del namespace[name]
    namespace.pop("__file__", None)
    namespace.pop("__cached__", None)
    namespace.get("__annotations__", {}).clear()
    namespace.update(__doc__=None, __spec__=None, __loader__=None, __package__=None)
    namespace.update(names)
    try:
        run()
    except BaseException:
        # Python prints it as in a plain start: without the frames of this file.
        system.excepthook = bind(show, system.excepthook)
        raise


_become()
