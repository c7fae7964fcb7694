"""Other interpreters: venvs of `python=`, and a host that is linked statically with libpython."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from support.child import run_child
from support.machine import numpy1_python

STATIC_PYTHON = Path("/usr/bin/python3.11")  # Debian 12's; its libpython3.11.so.1.0 is a package of its own


def test_a_venv_has_its_own_packages() -> None:
    run_child(
        """
        import os, sys, vlcs
        python = sys.argv[1]
        folder = os.path.dirname(os.path.dirname(python))
        for path in (python, folder):  # the interpreter, or the venv's folder
            context = vlcs.VLC("venv", python=path)
            prefix, executable = context.run(lambda: (__import__("sys").prefix, __import__("sys").executable))
            assert os.path.samefile(prefix, folder) and os.path.samefile(executable, python)
            assert context.import_module("numpy").__version__.startswith("1.26")
            try:
                context.import_module("torch")
            except ModuleNotFoundError:
                pass
            else:
                sys.exit("the venv has the host's packages")
            context.close()
        """,
        timeout=60,
        args=[str(numpy1_python())],
    )


def test_an_empty_venv_serves_plain_values(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60
    )
    run_child(
        """
        import os, sys, vlcs
        context = vlcs.VLC(python=sys.argv[1])  # no cloudpickle, no numpy, no vlcs there
        assert context.run(os.path.basename, "/a/b") == "b"
        assert context.run(lambda x: x + 1, 1) == 2
        assert context.import_module("json").dumps([1]) == "[1]"
        counter = context.import_module("collections").Counter("aab")
        counter.update("b")
        assert counter["b"] == 2 and sorted(counter) == ["a", "b"]
        def tell(call):
            try:
                return call("x")
            except RuntimeError as error:
                return type(error).__module__, type(error).__name__
        def closed(_):
            raise vlcs.StateError("closed")
        assert context.run(tell, vlcs.remote(str.upper)) == "X"
        assert context.run(tell, vlcs.remote(closed)) == ("vlcs", "StateError")
        """,
        timeout=60,
        args=[str(tmp_path / "venv")],
    )


def test_a_python_linked_statically_finds_its_libpython(tmp_path: Path) -> None:
    if not STATIC_PYTHON.exists():
        pytest.skip(f"no-static-python: there is no {STATIC_PYTHON}")
    if not list(Path("/usr/lib").glob("*/libpython3.11.so.1.0")):
        pytest.skip("no-static-python: Debian's libpython3.11 is not installed")
    for package in ("vlcs", "cloudpickle"):  # these two, and nothing else of this Python's
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        (tmp_path / package).symlink_to(Path(spec.origin).parent)
    run_child(
        """
        import sys, vlcs
        contexts = [vlcs.VLC(name) for name in "ab"]
        def identity():
            import sys
            return id(sys.modules), sys.version, sys.prefix
        found = [context.run(identity) for context in contexts]
        assert len({identity()[0], found[0][0], found[1][0]}) == 3
        assert {one[1:] for one in found} == {identity()[1:]}
        assert any("libpython3.11" in path for path in contexts[0].libraries())
        """,
        timeout=30,
        python=STATIC_PYTHON,
        env={"PYTHONPATH": str(tmp_path)},
    )
