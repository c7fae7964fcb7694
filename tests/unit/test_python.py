"""Finding the Python of a guest, and its libpython."""

from __future__ import annotations

import sys
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from vlcs._core import _python

if TYPE_CHECKING:
    from pathlib import Path


def facts(base_prefix: Path, **config: Any) -> _python._Facts:
    """A CPython of the host's version in a folder."""
    return _python._Facts(
        "cpython", sys.version_info[:3], str(base_prefix / "bin/python"), str(base_prefix), (), config
    )


def script(path: Path, text: str) -> Path:
    """A program in place of a python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


SHORT = f"{sys.version_info[0]}.{sys.version_info[1]}"


class TestHost:
    def test_is_this_python(self) -> None:
        found = _python.find(None)
        assert found.executable == sys.executable
        assert found.version == sys.version_info[:3]
        assert found.sys_path == tuple(sys.path)
        assert f"libpython{SHORT}" in found.libpython

    def test_follows_sys_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend("/somewhere")
        assert _python.find(None).sys_path[0] == "/somewhere"


class TestAnother:
    def test_path_of_an_interpreter(self) -> None:
        found = _python.find(sys.executable)
        assert found.executable == sys.executable
        assert any("site-packages" in entry or "dist-packages" in entry for entry in found.sys_path)

    def test_folder_of_a_venv_has_its_own_site_packages(self, tmp_path: Path) -> None:
        import venv

        venv.create(tmp_path / "v", with_pip=False, symlinks=True)
        found = _python.find(tmp_path / "v")
        assert found.executable == str(tmp_path / "v" / "bin" / "python")
        own = tmp_path / "v" / "lib" / f"python{SHORT}" / "site-packages"
        assert str(own) in found.sys_path
        assert sysconfig.get_path("purelib") not in found.sys_path
        assert found.libpython == _python.find(None).libpython

    def test_pythonpath_of_the_host_is_not_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", "/of/the/host")
        _python._ask.cache_clear()
        assert "/of/the/host" not in _python.find(sys.executable).sys_path

    def test_folder_of_the_script_stays_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        assert _python.find(sys.executable).sys_path[0] == str(tmp_path)

    def test_is_asked_once(self, tmp_path: Path) -> None:
        asked = tmp_path / "asked"
        python = script(tmp_path / "bin" / "python", f'echo x >> {asked}; exec {sys.executable} "$@"')
        for _ in range(3):
            _python.find(python)
        assert asked.read_text() == "x\n"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("echo hello", "it wrote something else"),
            ("exit 3", "it ended with exit code 3"),
            ("echo broken >&2; exit 1", "it ended with exit code 1 and wrote: broken"),
        ],
    )
    def test_no_python(self, tmp_path: Path, text: str, words: str) -> None:
        python = script(tmp_path / "python", text)
        with pytest.raises(vlcs.ArgumentError) as caught:
            _python.find(python)
        assert f"cannot use python={str(python)!r}: it does not answer as a Python does ({words})" in str(
            caught.value
        )

    def test_that_never_answers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_python, "_PROBE_SECONDS", 0.2)
        with pytest.raises(vlcs.ArgumentError, match=r"no answer in 0\.2 s"):
            _python.find(script(tmp_path / "python", "exec sleep 5"))

    def test_file_that_no_system_runs(self, tmp_path: Path) -> None:
        (tmp_path / "python").write_bytes(b"\x7fELF and no more")
        (tmp_path / "python").chmod(0o755)
        with pytest.raises(vlcs.ArgumentError, match="Exec format error"):
            _python.find(tmp_path / "python")

    @pytest.mark.parametrize("name", ["absent", "."])
    def test_no_program(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"is no program that can be run\. Give the path of an"):
            _python.find(tmp_path / name)

    def test_no_path(self) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"cannot use python=3\.11: it is a float"):
            _python.find(3.11)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("implementation", "version", "words"),
        [
            ("pypy", "3, 11, 0", "it is pypy, and only CPython can be one"),
            ("cpython", "3, 6, 15", rf"it is Python 3\.6 and this program runs on {SHORT}"),
        ],
    )
    def test_of_another_kind(self, tmp_path: Path, implementation: str, version: str, words: str) -> None:
        answer = (
            f'{{"implementation": "{implementation}", "version": [{version}], "executable": "", '
            '"base_prefix": "/", "sys_path": [], "config": {}}'
        )
        with pytest.raises(vlcs.ArgumentError, match=words):
            _python.find(script(tmp_path / "python", f"echo '{answer}'"))


class TestLibpython:
    def test_beside_its_prefix_comes_first(self, tmp_path: Path) -> None:
        for folder in ("lib", "recorded"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "libpythonX.so.1.0").touch()
        asked = facts(tmp_path, INSTSONAME="libpythonX.so.1.0", LIBDIR=str(tmp_path / "recorded"))
        assert _python._libpython(asked, "it") == str(tmp_path / "lib" / "libpythonX.so.1.0")

    def test_where_the_build_recorded_it(self, tmp_path: Path) -> None:
        (tmp_path / "lib64").mkdir()
        (tmp_path / "lib64" / "libpythonX.so").touch()
        asked = facts(tmp_path / "moved", LDLIBRARY="libpythonX.so", LIBDIR=str(tmp_path / "lib64"))
        assert _python._libpython(asked, "it") == str(tmp_path / "lib64" / "libpythonX.so")

    def test_of_a_static_python_that_brings_one_apart(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / f"libpython{SHORT}.so.1.0").touch()
        asked = facts(tmp_path, LDLIBRARY=f"libpython{SHORT}.a", INSTSONAME=f"libpython{SHORT}.a")
        assert _python._libpython(asked, "it").endswith(f"libpython{SHORT}.so.1.0")

    def test_missing_says_what_to_install(self, tmp_path: Path) -> None:
        with pytest.raises(vlcs.LoadError) as caught:
            _python._usable(facts(tmp_path, LDLIBRARY=f"libpython{SHORT}.a"), "this Python")
        text = str(caught.value)
        assert text.startswith(
            "cannot start a private interpreter from this Python: its python is linked statically"
        )
        assert f"looked in {tmp_path}/lib, {tmp_path}/lib64" in text
        assert f"apt install libpython{SHORT}" in text
        assert "--enable-shared pyenv install" in text
        assert caught.value.subject == f"libpython{SHORT}.so.1.0"

    def test_free_threaded(self, tmp_path: Path) -> None:
        with pytest.raises(vlcs.LoadError, match="it is a free-threaded build"):
            _python._usable(facts(tmp_path, Py_GIL_DISABLED=1), "it")

    def test_musl(self, tmp_path: Path) -> None:
        with pytest.raises(vlcs.LoadError, match="it is built for musl"):
            _python._usable(facts(tmp_path, SOABI="cpython-311-x86_64-linux-musl"), "it")
