"""`vlcs run`: its command line, and that a program cannot tell it from `python`."""

from __future__ import annotations

import importlib.resources
import io
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from vlcs import _cli
from vlcs._cli import _run
from vlcs._cli._run import Program

POOL = "/opt/vlcs/libvlcs_tls.so"
RUNNER = Path(str(importlib.resources.files("vlcs._cli").joinpath("_runner.py")))


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("app.py", Program((), "file", "app.py", ())),
        ("app.py -m x --cpus 3", Program((), "file", "app.py", ("-m", "x", "--cpus", "3"))),
        ("-m pkg.mod -v", Program((), "module", "pkg.mod", ("-v",))),
        ("-mpkg a", Program((), "module", "pkg", ("a",))),
        ("-c pass a", Program((), "code", "pass", ("a",))),
        ("- a", Program((), "stdin", "-", ("a",))),
        ("-- app.py -v", Program((), "file", "app.py", ("-v",))),
        ("-u -- -m a", Program(("-u",), "file", "-m", ("a",))),
        ("-- - a", Program((), "stdin", "-", ("a",))),
        ("-u -OO app.py", Program(("-u", "-OO"), "file", "app.py", ())),
        ("-W error -Xdev app.py", Program(("-Werror", "-Xdev"), "file", "app.py", ())),
        ("-uWerror app.py", Program(("-uWerror",), "file", "app.py", ())),
        ("-uW error app.py", Program(("-uWerror",), "file", "app.py", ())),
        ("-um mod", Program(("-u",), "module", "mod", ())),
        ("-ucpass", Program(("-u",), "code", "pass", ())),
        (
            "--check-hash-based-pycs never app.py",
            Program(("--check-hash-based-pycs", "never"), "file", "app.py", ()),
        ),
    ],
)
def test_line_is_read_as_python_does(line: str, program: Program) -> None:
    assert _run.parse(line.split()) == program


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "no program to run"),
        ("-u", "no program to run"),
        ("--", "no program to run"),
        ("-m", "option -m needs an argument"),
        ("-X", "option -X needs an argument"),
        ("-Z app.py", "unknown option '-Z'"),
        ("--verbose app.py", "unknown option '--verbose'"),
    ],
)
def test_line_that_cannot_be_run(
    line: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert _cli.main(["run", *line.split()]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_without_a_program_what_is_piped_in_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("pass"))
    assert _run.parse(["-u"]) == Program(("-u",), "stdin", "", ())


def test_command_keeps_the_options_of_the_outer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "-m", "vlcs", "run", "-u", "app.py", "a"])
    command = _run.command_line(_run.parse(["-u", "app.py", "a"]), POOL)
    assert command == [sys.executable, "-X", "dev", "-u", str(RUNNER), POOL, "file", "app.py", "a"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, POOL),
        ("", POOL),
        ("liba.so", f"liba.so:{POOL}"),
        (f"{POOL} liba.so:libb.so", f"liba.so:libb.so:{POOL}"),
    ],
)
def test_pool_is_preloaded_last(before: str | None, after: str) -> None:
    variables = {"HOME": "/"} if before is None else {"HOME": "/", "LD_PRELOAD": before}
    assert _run.environment(variables, POOL) == {"HOME": "/", "LD_PRELOAD": after}


def test_missing_pool_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_run, "POOL", "libnone.so")
    assert _cli.main(["run", "app.py"]) == 1
    assert "cannot start app.py: libnone.so is missing" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["run", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: vlcs run")


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main([]) == 2
    assert "usage: vlcs" in capsys.readouterr().err


PROGRAM = """
    '''Its words.'''
    import os, sys

    def function():
        return 1

    if __name__ == "__main__":
        main = sys.modules["__main__"]
        print(sys.argv, sys.path, sorted(globals()), __doc__, type(__loader__), __spec__ and __spec__.name)
        print(globals().get("__file__"), function.__module__, main.function is function)
        print(os.environ.get("LD_PRELOAD"))
        print(sys.flags, sys.stdin.read())
        sys.exit(7)
"""


def outcome(command: list[str], folder: Path, given: str = "input") -> tuple[int, str, str]:
    """What a program does, without what differs between any two runs."""
    ended = subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, check=False, timeout=30
    )
    return ended.returncode, ended.stdout, ended.stderr


def same_as_python(
    folder: Path, options: list[str], kind: str, words: list[str], given: str = "input"
) -> None:
    as_python = {"file": words, "module": ["-m", *words], "code": ["-c", *words], "stdin": words}[kind]
    plain = outcome([sys.executable, *options, *as_python], folder, given)
    ours = outcome([sys.executable, *options, str(RUNNER), POOL, kind, *words], folder, given)
    assert ours == plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program in all forms that Python runs."""
    text = textwrap.dedent(PROGRAM)
    (tmp_path / "app.py").write_text(text)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "__main__.py").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.py").symlink_to("../app.py")
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", text)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["-P"], ["-I"], ["-O"]], ids=str)
@pytest.mark.parametrize("target", ["app.py", "elsewhere/link.py", "bundle", "app.pyz"])
def test_files_run_as_with_python(folder: Path, options: list[str], target: str) -> None:
    same_as_python(folder, options, "file", [target, "a", "-b"])


def test_modules_run_as_with_python(folder: Path) -> None:
    same_as_python(folder, [], "module", ["app", "a"])
    same_as_python(folder, [], "module", ["bundle"])


def test_code_runs_as_with_python(folder: Path) -> None:
    same_as_python(folder, [], "code", [textwrap.dedent(PROGRAM), "a"])


def test_standard_input_runs_as_with_python(folder: Path) -> None:
    same_as_python(folder, [], "stdin", ["-", "a"], textwrap.dedent(PROGRAM))


def test_failures_are_those_of_python(folder: Path) -> None:
    same_as_python(folder, [], "file", ["absent.py"])
    same_as_python(folder, [], "module", ["absent"])
    same_as_python(folder, [], "code", ["raise SystemExit('words')"])
    same_as_python(folder, [], "code", ["import os; os.kill(os.getpid(), 15)"])


def test_traceback_ends_as_with_python(folder: Path) -> None:
    (folder / "app.py").write_text("def f():\n    1 / 0\nf()\n")
    code, _, errors = outcome([sys.executable, str(RUNNER), POOL, "file", "app.py"], folder)
    assert code == 1
    assert f'File "{folder}/app.py", line 2, in f' in errors
    assert errors.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(("before", "after"), [(POOL, None), (f"{POOL}:", None)])
def test_program_does_not_see_the_pool(
    folder: Path, before: str, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", before)  # ld.so warns of a file that is not there, and goes on
    show = "import os, subprocess, sys; print(os.environ.get('LD_PRELOAD'), flush=True)"
    child = f"{show}; subprocess.run([sys.executable, '-c', {show!r}], check=True)"
    _, shown, _ = outcome([sys.executable, str(RUNNER), POOL, "code", child], folder)
    assert shown.splitlines() == [str(after)] * 2
    assert os.environ["LD_PRELOAD"] == before


def test_functions_of_main_pickle(folder: Path) -> None:
    code = textwrap.dedent("""
        import cloudpickle, pickle
        scale = 3
        def times(x): return scale * x
        print(pickle.loads(cloudpickle.dumps(times))(2), b"scale" in cloudpickle.dumps(times))
        print(pickle.loads(pickle.dumps(times)) is times)
    """)
    assert outcome([sys.executable, str(RUNNER), POOL, "code", code], folder)[:2] == (0, "6 True\nTrue\n")
