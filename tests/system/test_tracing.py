"""Debuggers, coverage, profilers and their like in contexts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.terminal import run_in_terminal

if TYPE_CHECKING:
    from pathlib import Path

MEASURED = """
def by_run():
    x = 1
    return x

def by_submit():
    x = 2
    return x

def in_a_thread():
    x = 3
    return x

def starts_a_thread():
    import threading
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()

def never():
    x = 4
    return x
"""

PROGRAM = """
import threading, measured, vlcs
a, b = vlcs.VLC("a"), vlcs.VLC("b")
a.run(measured.by_run)
a.submit(measured.by_submit).result()
thread = threading.Thread(target=b.run, args=[measured.starts_a_thread])
thread.start()
thread.join()
"""


@pytest.mark.parametrize("close", [True, False])
def test_coverage_measures_calls_into_contexts(tmp_path: Path, close: bool) -> None:
    (tmp_path / "measured.py").write_text(MEASURED)
    (tmp_path / "program.py").write_text(PROGRAM + ("a.close(); b.close()\n" if close else ""))
    (tmp_path / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    (tmp_path / "settings").write_text("[run]\nparallel = true\nsource = .\n")
    run_child(
        tmp_path / "program.py",
        timeout=60,
        env={"COVERAGE_PROCESS_START": str(tmp_path / "settings"), "PYTHONPATH": _with_path(tmp_path)},
        cwd=tmp_path,
    )
    # One process with three interpreters: their files are apart.
    assert len(list(tmp_path.glob(".coverage.*"))) == 3

    def coverage(*arguments: str) -> str:
        command = [sys.executable, "-m", "coverage", *arguments, "--rcfile=settings"]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    coverage("combine")
    told = coverage("report", "-m", "--include=measured.py").splitlines()[-1 - 2]
    never = MEASURED.splitlines().index("def never():") + 1
    assert told.endswith(f"{never + 1}-{never + 2}"), told


def _with_path(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def test_coverage_started_by_hand_inside() -> None:
    run_child(
        """
        import vlcs
        a = vlcs.VLC("a")
        def start():
            import coverage, sys
            sys.measured = coverage.Coverage(data_file=None, cover_pylib=True)
            sys.measured.start()
        def work():
            import colorsys
            return colorsys.rgb_to_hsv(0.1, 0.2, 0.3)
        def stop():
            import colorsys, sys
            sys.measured.stop()
            return sorted(sys.measured.get_data().lines(colorsys.__file__) or [])
        a.submit(start).result()
        a.submit(work).result()
        assert len(a.submit(stop).result()) > 10
        """,
        timeout=60,
    )


def test_profilers_traces_and_memory_of_one_context() -> None:
    run_child(
        """
        import sys, threading, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        def profiled():
            import cProfile, io, pstats
            profile = cProfile.Profile()
            profile.runcall(sorted, [3, 1, 2], key=lambda x: -x)
            text = io.StringIO()
            pstats.Stats(profile, stream=text).print_stats()
            return text.getvalue()
        assert "built-in method builtins.sorted" in a.run(profiled)

        # Hooks of threading reach the threads that call in, as they reach those that are started.
        def hook(kind):
            import sys, threading
            sys.seen = []
            def see(frame, event, arg):
                if event == "call":
                    sys.seen.append(frame.f_code.co_name)
            getattr(threading, kind)(see)
        def called():
            return 5
        def seen():
            import sys, threading
            threading.settrace(None)
            threading.setprofile(None)
            sys.settrace(None)
            sys.setprofile(None)
            return sys.seen
        for kind in ("settrace", "setprofile"):
            a.run(hook, kind)
            a.run(called)
            thread = threading.Thread(target=a.run, args=[called])
            thread.start()
            thread.join()
            assert a.run(seen).count("called") == 2, kind
            assert a.run(called) == 5

        def traced():
            import sys
            lines = []
            def see(frame, event, arg):
                lines.append(event)
                return see
            def work():
                return 1
            sys.settrace(see)
            work()
            sys.settrace(None)
            return lines
        assert a.run(traced) == ["call", "line", "return"]

        def allocations():
            import tracemalloc
            tracemalloc.start()
            kept = [bytes(1000) for _ in range(100)]
            return tracemalloc.get_traced_memory()[0] > 100_000
        assert a.run(allocations)
        import tracemalloc
        assert not tracemalloc.is_tracing() and not b.run(tracemalloc.is_tracing)

        if sys.version_info >= (3, 12):
            def monitored():
                import sys
                names = []
                monitoring, events = sys.monitoring, sys.monitoring.events
                monitoring.use_tool_id(monitoring.PROFILER_ID, "test")
                def started(code, offset):
                    names.append(code.co_name)
                monitoring.register_callback(monitoring.PROFILER_ID, events.PY_START, started)
                monitoring.set_events(monitoring.PROFILER_ID, events.PY_START)
                def work():
                    return 1
                work()
                monitoring.set_events(monitoring.PROFILER_ID, 0)
                return "work" in names
            assert a.run(monitored)
            assert sys.monitoring.get_tool(sys.monitoring.PROFILER_ID) is None
        """,
        timeout=60,
    )


DEBUGGED = """
import bdb, vlcs
a = vlcs.VLC("a", env=ENV)
def work(x):
    y = x + 1
    breakpoint()
    y += 1
    return y
for call in (lambda: a.run(work, 5), lambda: a.submit(work, 5).result()):
    try:
        print("result", call())
    except bdb.BdbQuit:
        print("quit")
print("after", a.run(len, "on"))
"""


def test_pdb_in_a_context(tmp_path: Path) -> None:
    program = tmp_path / "debugged.py"
    program.write_text(DEBUGGED.replace("ENV", "{}"))
    first = "n\n" if sys.version_info >= (3, 13) else ""  # since then it stops at breakpoint() itself
    screen = run_in_terminal(program, f"p y\n{first}n\nw\ny = 40\nc\np x * 100\nq\n", timeout=60)
    _, _, told = screen.partition("q\n")  # what was typed ahead
    assert "(Pdb) 6\n" in told, screen
    assert "-> y += 1\n" in told, screen
    assert "-> return y\n" in told, screen
    assert "(Pdb) result 40\n" in told, screen
    assert "(Pdb) 500\n" in told, screen
    assert told.endswith("(Pdb) quit\nafter 2\n"), screen


def test_pythonbreakpoint_is_the_contexts() -> None:
    for env in ({"PYTHONBREAKPOINT": "0"}, {"PYTHONBREAKPOINT": "builtins.print"}):
        finished = run_child(DEBUGGED.replace("ENV", repr(env)), timeout=60)
        assert [line for line in finished.lines if line] == ["result 7", "result 7", "after 2"]
    finished = run_child(DEBUGGED.replace("ENV", "{}"), timeout=60, env={"PYTHONBREAKPOINT": "0"})
    assert finished.lines[0] == "result 7"


def test_post_mortem_of_a_remote_exception_has_the_remote_traceback() -> None:
    screen = run_in_terminal(
        """
        import pdb, sys, traceback, vlcs
        a = vlcs.VLC("a")
        def fail(x):
            return 1 / x
        try:
            a.run(fail, 0)
        except ZeroDivisionError as error:
            sys.last_exc = sys.last_value = error
            sys.last_type, sys.last_traceback = type(error), error.__traceback__
            traceback.print_exc()
            pdb.pm()
        print("after")
        """,
        "p error.__cause__.context\nu\nq\n",
        timeout=60,
    )
    assert "in the context 'a'" in screen
    assert "in fail" in screen
    assert screen.splitlines()[-1] == "after", screen
