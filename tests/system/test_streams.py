"""R11: what guests print and read, in programs, under pytest and in notebooks."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from support.child import run_child
from support.terminal import run_in_terminal

if TYPE_CHECKING:
    from pathlib import Path


def test_r11_output_follows_the_hosts_streams() -> None:
    finished = run_child(
        """
        import contextlib, io, sys, threading, vlcs
        a = vlcs.VLC("a")
        def say(words):
            import sys
            print("out", words)
            print("err", words, file=sys.stderr)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            a.run(say, "captured")
            a.submit(say, "submitted").result()
            a.run(lambda: __import__("warnings").warn("from there"))
            a.run(lambda: __import__("logging").warning("logged there"))
        assert out.getvalue() == "out captured\\nout submitted\\n", out.getvalue()
        assert err.getvalue().startswith("err captured\\nerr submitted\\n"), err.getvalue()
        assert "from there" in err.getvalue() and "logged there" in err.getvalue(), err.getvalue()
        print("before")
        a.run(say, "plain")
        print("after")
        """,
        timeout=30,
    )
    assert finished.lines == ["before", "out plain", "after"]  # in the order of the calls
    assert finished.stderr == "err plain\n"


def test_a_stream_of_the_host_that_raises_costs_no_result() -> None:
    run_child(
        """
        import sys, vlcs
        a = vlcs.VLC("a")
        class Broken:
            def write(self, text): raise LookupError("broken")
            def flush(self): pass
        def say():
            print("no end of line", end="")
            return 5
        stdout, sys.stdout = sys.stdout, Broken()
        result = a.run(say)
        sys.stdout = stdout
        assert result == 5
        """,
        timeout=30,
    )


def test_r11_streams_are_those_of_the_moment() -> None:
    finished = run_child(
        r"""
        import contextlib, io, os, sys, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        def said(work, *args):
            with contextlib.redirect_stdout(io.StringIO()) as outer:
                work("outer", *args)
                with contextlib.redirect_stdout(io.StringIO()) as inner:
                    work("inner", *args)
                work("outer again", *args)
            return outer.getvalue(), inner.getvalue()
        assert said(lambda words: a.run(print, words)) == ("outer\nouter again\n", "inner\n")
        # Through a second context too: the stream of the host may itself use one.
        class Through(io.StringIO):
            def write(self, text):
                return super().write(b.run(str.upper, text))
        with contextlib.redirect_stdout(Through()) as out:
            a.run(print, "shouted")
        assert out.getvalue() == "SHOUTED\n", out.getvalue()

        # Replaced for good, with an encoding of its own and no descriptor.
        class Latin(io.TextIOWrapper):
            def fileno(self): raise io.UnsupportedOperation("fileno")
        def tell():
            import sys
            print("caf\u00e9", end="", flush=True)
            return sys.stdout.fileno(), sys.stdout.isatty(), sys.stdout.encoding
        kept, sys.stdout = sys.stdout, Latin(io.BytesIO(), encoding="latin-1")
        told = a.run(tell)
        written = sys.stdout.buffer.getvalue()  # without a flush of the host's
        # What it cannot encode is the guest's error, in a class that the guest has.
        try:
            a.run(lambda: print("\u20ac", flush=True))
        except UnicodeError as error:
            assert "latin-1" in str(error)
            a.run(print, end="")  # and it is not tried again
        else:
            raise SystemExit("nothing was raised")
        sys.stdout = None
        a.run(print, "nobody reads this")
        sys.stdout = kept
        assert (told, written) == ((1, False, "utf-8"), b"caf\xe9"), (told, written)

        # Bytes go as bytes where the host's stream takes any, and are shown where it does not.
        def raw():
            import sys
            sys.stdout.buffer.write(b"\x89PNG\xff\n")
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())) as out:
            a.run(raw)
        assert out.buffer.getvalue() == b"\x89PNG\xff\n"
        assert said(lambda _: a.run(raw))[1] == "\\x89PNG\\xff\n"
        print("in", end=" ")
        a.run(print, "order", end=" ")
        print("at", end=" ")
        a.submit(print, "the end").result()
        """,
        timeout=30,
        env={"PYTHONUNBUFFERED": None},
    )
    assert finished.lines == ["in order at the end"]
    assert not finished.stderr


def test_r11_flush_reaches_the_descriptor() -> None:
    run_child(
        """
        import os, sys, vlcs
        a = vlcs.VLC("a")
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        sys.stdout = open(writer, "w")  # buffered, as of a program in a pipe
        a.run(print, "line")
        try:
            raise SystemExit(f"written by {os.read(reader, 100)!r}")
        except BlockingIOError:
            pass
        a.run(lambda: print("progress", end="", flush=True))
        assert os.read(reader, 100) == b"line\\nprogress"
        os.close(reader)
        try:  # as in a program whose reader has gone
            a.run(lambda: print("too late", flush=True))
        except BrokenPipeError:
            os._exit(0)
        """,
        timeout=30,
    )


def test_r11_input_and_stdin_are_the_hosts() -> None:
    finished = run_child(
        """
        import io, sys, vlcs
        a = vlcs.VLC("a")
        def ask(prompt):
            return input(prompt)
        def read(method):
            import sys
            return getattr(sys.stdin, method)()
        # One buffer: neither side takes lines that the other is to read.
        assert [input(), a.run(ask, "1? "), a.submit(ask, "2? ").result()] == ["one", "two", "three"]
        assert [a.run(read, "readline"), input(), a.run(read, "read")] == ["four\\n", "five", "six\\nseven"]
        try:
            a.run(ask, "")
        except EOFError:
            pass
        else:
            raise SystemExit("read past the end")
        kept, sys.stdin = sys.stdin, io.StringIO("from memory")
        assert a.run(ask, "") == "from memory"
        sys.stdin = None
        assert a.run(read, "read") == ""
        """,
        timeout=30,
        stdin="one\ntwo\nthree\nfour\nfive\nsix\nseven",
    )
    assert finished.stdout == "1? 2? "


def test_r11_a_terminal() -> None:
    screen = run_in_terminal(
        """
        import io, contextlib, sys, vlcs
        a = vlcs.VLC("a")
        def terminals():
            import sys
            return [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)]
        assert a.run(terminals) == [True, True, True]
        with contextlib.redirect_stdout(io.StringIO()):
            captured = a.run(terminals)
        assert captured == [True, False, True], captured  # nobody colours what is captured
        def greet():
            print("hello", input("name? "))
        a.run(greet)
        """,
        "Ada\n",
        timeout=30,
    )
    assert screen.splitlines()[-2:] == ["name? Ada", "hello Ada"] or "name? hello Ada" in screen, screen


UNDER_PYTEST = """
import contextlib, io, logging, sys, warnings
import pytest, vlcs

@pytest.fixture(scope="module")
def a():
    with contextlib.closing(vlcs.VLC("a")) as context:
        yield context

def say():
    import ctypes, logging, os, sys, warnings
    print("printed")
    print("error", file=sys.stderr)
    logging.warning("logged")
    warnings.warn("warned")
    os.write(1, b"written\\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)

def test_capsys(a, capsys):
    a.run(say)
    a.submit(say).result()
    out, err = capsys.readouterr()
    assert out == "printed\\n" * 2  # what bypasses sys.stdout is the descriptor's, as outside
    assert err.count("error\\n") == err.count("WARNING:root:logged\\n") == 2
    assert err.count("UserWarning: warned") == 1  # a guest tells a warning once a place, as any Python

def test_capfd(a, capfd):
    a.run(say)
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["from C", "printed", "written"]
    assert err.splitlines()[:2] == ["error", "WARNING:root:logged"]

def test_logging_of_a_guest_is_no_record_of_the_host(a, caplog):
    a.run(say)
    assert not caplog.records

def test_nobody_types_under_capture(a):
    with pytest.raises(OSError, match="reading from stdin"):
        a.run(lambda: input())

def test_a_debugger_does_not_hang(a):
    def stop():
        breakpoint()
    with pytest.raises(OSError, match="reading from stdin"):
        a.run(stop)

def test_fails(a):
    def fail():
        print("before the failure")
        raise KeyError("in a guest")
    a.submit(fail).result()
"""


def test_r11_pytest_sees_what_guests_print(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNDER_PYTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    failure = done.stdout.partition("= FAILURES =")[2]
    assert "RemoteTraceback: in the context 'a'" in failure
    assert failure.count('raise KeyError("in a guest")') == 2, failure  # there, and in the host's source
    assert failure.count("before the failure") == 2  # in the source, and captured
    assert "Captured stdout call" in failure


NOTEBOOK = r"""
import sys, textwrap, time
from jupyter_client import KernelManager

manager = KernelManager(kernel_cmd=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
manager.start_kernel()
client = manager.client()
client.start_channels()

def execute(code, after=None):
    said, errors = {"stdout": "", "stderr": ""}, []
    def output(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            said[content["name"]] += content["text"]
            if after and "started" in said["stdout"]:
                said["stdout"] = ""
                after()
        elif message["msg_type"] == "error":
            errors.append((content["ename"], "\n".join(content["traceback"])))
    def typed(message):
        client.input(message["content"]["prompt"] + "typed")
    code = textwrap.dedent(code)
    client.execute_interactive(code, output_hook=output, stdin_hook=typed, allow_stdin=True, timeout=30)
    return said["stdout"], said["stderr"], errors

try:
    client.wait_for_ready(30)
    execute('''
        import time, vlcs
        a = vlcs.VLC("a")
        def say():
            import logging, sys
            print("printed")
            print("error", file=sys.stderr)
            logging.warning("logged")
            return sys.stdout.isatty()
        def later():
            import threading
            threading.Timer(0.2, print, ["later"]).start()
        def ask():
            return input("name? ")
        def loop():
            print("started")
            while True:
                pass
    ''')
    for call in ("assert a.run(say) is False", "assert a.submit(say).result() is False"):
        told = execute(call)
        assert told == ("printed\n", "error\nWARNING:root:logged\n", []), told
    # A thread of the guest's own, after the call.
    assert execute("a.run(later); time.sleep(0.6)")[0] == "later\n"
    assert execute("print(a.run(ask))")[0] == "name? typed\n"
    errors = execute('''
        def bad():
            nothing = 0
            return 1 / nothing
        a.run(bad)
    ''')[2]
    (name, shown), = errors
    assert name == "ZeroDivisionError"
    remote = shown[shown.index("in the context 'a'"):shown.index("direct cause")]
    assert "in bad\n    return 1 / nothing\n" in remote, shown  # a cell's line, which no file has
    assert shown.count("in the context 'a'") == 1
    for call in ("a.run(loop)", "a.submit(loop).result()"):
        start = time.monotonic()
        errors = execute(call, after=manager.interrupt_kernel)[2]
        assert errors[0][0] == "KeyboardInterrupt" and time.monotonic() - start < 10, errors
    assert execute("print(a.run(len, 'on'))")[0] == "2\n"
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""


def test_r11_a_notebook() -> None:
    run_child(NOTEBOOK, timeout=90)
