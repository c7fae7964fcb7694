"""Each bad input is a VLCError that says what, why and the cure; nothing is lost, nothing stays behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.libraries import version_script
from support.machine import two_cpus, usable_cpus

if TYPE_CHECKING:
    from pathlib import Path

    from support.libraries import Builder

# What each program starts with: `refused(kind, call, *words)`, and `footprint()` of the process.
PRELUDE = """
import ctypes, os, sys, warnings, vlcs

def refused(kind, call, *words):
    try:
        call()
    except vlcs.VLCError as error:
        assert isinstance(error, kind), repr(error)
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"missing {missing}: {error}"
        return error
    raise SystemExit(f"accepted: expected {kind.__name__} with {words}")

def footprint():
    with open("/proc/self/maps") as maps:
        mapped = sorted({fields[5].strip() for line in maps if len(fields := line.split(maxsplit=5)) > 5})
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "affinity": sorted(os.sched_getaffinity(0)),
        "contexts": [context.name for context in vlcs.contexts()],
        "files": mapped,
    }
"""


def check(program: str, *args: str) -> None:
    lines = [line.removeprefix(" " * 8) for line in program.splitlines()]
    run_child(PRELUDE + "\n".join(lines), timeout=60, args=list(args))


def test_cpus_that_cannot_be() -> None:
    free = max(usable_cpus()) + 1
    check(
        """
        free = int(sys.argv[1])
        vlcs.VLC("first").close()  # what is made once for all
        before = footprint()
        bad = vlcs.ArgumentError
        refused(bad, lambda: vlcs.VLC(cpus={free}), str(free), "the process may use")
        refused(bad, lambda: vlcs.VLC(cpus=f"0-{free + 900}"), "the process may use")
        refused(bad, lambda: vlcs.VLC(cpus=5000), "cannot pick 5000 CPUs", "Ask for fewer")
        refused(bad, lambda: vlcs.VLC(cpus={70000}), "70000", "highest")
        refused(bad, lambda: vlcs.VLC(cpus=set()), "empty", "at least one CPU")
        refused(bad, lambda: vlcs.VLC(cpus=""), "empty")
        refused(bad, lambda: vlcs.VLC(cpus=0), "at least one CPU")
        refused(bad, lambda: vlcs.VLC(cpus=-1), "-1")
        refused(bad, lambda: vlcs.VLC(cpus={-1}), "-1")
        refused(bad, lambda: vlcs.VLC(cpus="0-"), "0-", "range")
        refused(bad, lambda: vlcs.VLC(cpus="two"), "two")
        refused(bad, lambda: vlcs.VLC(cpus=1.5), "float")
        refused(bad, lambda: vlcs.VLC(cpus=True), "bool")
        refused(bad, lambda: vlcs.VLC(cpus=["0"]), "'0'")
        refused(bad, lambda: vlcs.VLC(exclusive=True), "exclusive=True needs cpus=")
        refused(bad, lambda: vlcs.VLC(cores="0"), "cannot read cores='0'")
        refused(bad, lambda: vlcs.VLC(cores=10_000), "cannot pick 10000 cores: the process may use")
        refused(bad, lambda: vlcs.VLC(fraction=2), "cannot read fraction=2")
        refused(bad, lambda: vlcs.VLC(node=10_000), "NUMA node 10000 does not exist")
        refused(bad, lambda: vlcs.VLC(cores=1, near="nobody"), "cannot place a context near 'nobody'")
        refused(bad, lambda: vlcs.VLC(cpus="0", cores=1), "cpus='0' with cores=1")
        refused(ValueError, lambda: vlcs.VLC(cpus=set()))  # a fitting built-in as well
        assert footprint() == before, (before, footprint())
        """,
        str(free),
    )


def test_names_and_options_that_cannot_be() -> None:
    check(
        """
        bad = vlcs.ArgumentError
        a = vlcs.VLC("a")
        before = footprint()
        refused(bad, lambda: vlcs.VLC("a"), "'a'", "open")
        refused(bad, lambda: vlcs.VLC(""), "printable text")
        refused(bad, lambda: vlcs.VLC("two\\nlines"), "printable text")
        refused(bad, lambda: vlcs.VLC(7), "7")
        refused(bad, lambda: vlcs.VLC(threads=0), "threads=0", "from 1")
        refused(bad, lambda: vlcs.VLC(threads="2"), "'2'")
        refused(bad, lambda: vlcs.VLC(env={"A=B": "x"}), "'A=B'", "without '='")
        refused(bad, lambda: vlcs.VLC(env={"A": 1}), "'A'", "int", "Write '1'")
        refused(bad, lambda: vlcs.VLC(env=["A=1"]), "mapping")
        refused(bad, lambda: vlcs.VLC(share="libm.so.6"), "list of sonames")
        refused(bad, lambda: vlcs.VLC(share=["/lib/libm.so.6"]), "it is a path", "libm.so.6")
        refused(bad, lambda: vlcs.VLC(python="/nonexistent/python"), "/nonexistent/python")
        refused(bad, lambda: vlcs.VLC(python=sys.executable, interpreter=False), "interpreter=False")
        refused(bad, lambda: a.run(5), "5", "cannot be called")
        refused(bad, lambda: a.import_module(""), "full name")
        refused(bad, lambda: a.import_module(".relative"), "full name")
        refused(bad, lambda: a.load_library(""), "a path or a soname")
        refused(bad, lambda: a.close(timeout=-1), "timeout=-1")
        try:
            vlcs.VLC(core="0")
        except TypeError as error:
            assert "'core'" in str(error)
        assert footprint() == before, (before, footprint())
        assert a.run(len, "on") == 2
        """
    )


def test_overlaps_warn_or_are_refused() -> None:
    first, second = two_cpus()
    check(
        """
        first, second = map(int, sys.argv[1:])
        warnings.simplefilter("error")
        a = vlcs.VLC("a", cpus={first})
        try:
            vlcs.VLC("b", cpus={first, second})
        except vlcs.OverlapWarning as warning:
            assert "'a'" in str(warning) and "'b'" in str(warning) and str(first) in str(warning), warning
        else:
            raise SystemExit("no warning")
        assert vlcs.contexts() == [a]  # a warning made an error leaves nothing behind
        alone = lambda: vlcs.VLC("b", cpus={first}, exclusive=True)
        refused(vlcs.LimitError, alone, "'a'", str(first), "exclusive=True")
        b = vlcs.VLC("b", cpus={second}, exclusive=True)
        refused(vlcs.LimitError, lambda: vlcs.VLC("c", cpus={second}), "'b'", "exclusive=True")
        refused(vlcs.LimitError, lambda: a.resize({second}), "'b'")
        assert a.cpus == (first,)
        vlcs.VLC("d")  # without cpus= there is no claim and no warning
        b.close()
        vlcs.VLC("c", cpus={second})
        """,
        str(first),
        str(second),
    )


def test_a_closed_context() -> None:
    check(
        """
        state = vlcs.StateError
        a = vlcs.VLC("a")
        library = a.load_library("libz.so.1")
        module = a.import_module("math")
        checksum, root = library.crc32, module.sqrt
        with a:
            refused(state, a.close, "'a'", "inside")
        refused(state, lambda: a.__init__("b"), "'a'", "made already")
        assert a.name == "a" and a.run(abs, -1) == 1 and vlcs.contexts() == [a]
        a.close()
        for call in (
            lambda: a.run(len, "x"), lambda: a.submit(len, "x"), lambda: a.import_module("json"),
            lambda: a.load_library("libz.so.1"), lambda: a.resize("0"), a.stats, a.threads, a.libraries,
            lambda: checksum(0, None, 0), lambda: root(4.0), lambda: module.pi, a.__enter__,
        ):
            refused(state, call, "'a'", "closed", "vlcs.VLC(")
        native = vlcs.VLC("native", interpreter=False)
        refused(state, lambda: native.run(len, "x"), "interpreter=False")
        """
    )


def test_what_cannot_be_pickled() -> None:
    check(
        """
        import collections, numpy, socket, tempfile, threading, warnings
        from typing import cast
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that nobody awaits
        a = vlcs.VLC("a")
        bad = vlcs.PicklingError
        lock = threading.Lock()
        class Refusing:
            def __reduce__(self): raise ValueError("not me")
        class Nonsense:
            def __reduce__(self): return 7
        class Wrong:
            def __reduce__(self): return (5, ())
        class Reading:
            def __getstate__(self): return __import__("threading").Lock()
        async def coroutine(): pass
        released = memoryview(b"x")
        released.release()
        deep = []
        for _ in range(100_000):
            deep = [deep]
        file = tempfile.NamedTemporaryFile("w+")
        makers = {  # made here, as an argument, or there, as a result
            "lock": lambda: __import__("threading").Lock(),
            "generator": lambda: (n for n in range(3)),
            "coroutine": coroutine,
            "open file": lambda: open("/dev/null"),
            "BufferedReader": lambda: open("/dev/null", "rb"),
            "socket": lambda: __import__("socket").socket(),
            "_thread.lock": lambda: __import__("threading").Thread(),
            "frame": lambda: __import__("sys")._getframe(),
            "weakref": lambda: __import__("weakref").ref(int),
            "not me": Refusing, "must return a string or tuple": Nonsense, "must be callable": Wrong,
            "_thread.lock'": Reading,
            "nditer": lambda: __import__("numpy").nditer([1]),
            "pointers": lambda: __import__("ctypes").c_char_p(b"x"),
            "deep": lambda: __import__("functools").reduce(lambda inner, _: [inner], range(100_000), []),
            "released": lambda: (lambda view: (view.release(), view)[1])(memoryview(b"x")),
        }
        for word, make in makers.items():
            value = make()
            holder = {"key": [value]} if word != "deep" else value
            for call in (
                lambda: a.run(cast, None, value), lambda: a.run(cast, None, holder),
                lambda: a.run(len, x=value),
                lambda: a.submit(lambda x: None, value).result(), lambda: a.import_module("math").sqrt(value),
                lambda: a.import_module("math").__setattr__("vlcs_test", value),
            ):
                error = refused(bad, call, "'a'", word, "nothing was run")
                assert "argument" in str(error) or "the value" in str(error), error
                assert error.subject, error
            refused(bad, lambda: a.run(lambda: value), "the function", word)
            refused(bad, lambda: a.run(make), "has run", "its result", word)
            refused(bad, lambda: a.submit(lambda: [make()]).result(), "has run", "its result", word)
        refused(bad, lambda: a.run(cast, 1, lock), "argument 2, <unlocked _thread.lock")
        refused(bad, lambda: a.run(dict, one=1, two=lock), "argument two=<unlocked")
        arrays = numpy.array([1, "x", None, [1]], dtype=object)
        assert (a.run(cast, None, arrays) == arrays).all()  # by value
        refused(bad, lambda: a.run(cast, None, numpy.array([lock])), "lock")
        assert a.run(lambda: __import__("sys").stdout.fileno()) == 1
        assert a.run(lambda stream: stream is __import__("sys").stdout, sys.stdout)
        assert a.run(len, "on") == 2
        assert a.stats().leases == 0
        """
    )


def test_a_list_that_becomes_shorter_while_it_is_written() -> None:
    run_child(
        PRELUDE
        + """
import gc
nest = frozenset([frozenset([frozenset([frozenset([1])])])])  # iterators start collections, up to 3.11
values = [nest, *map(float, range(100))]
def shrink(phase, info):
    if len(values) > 20: values.pop()
vlc = vlcs.VLC()
there = vlc.import_module("builtins").list
for send in (lambda: vlc.run(list, values), lambda: there(values)):
    values[1:] = map(float, range(100))
    gc.callbacks.append(shrink)
    gc.set_threshold(1)
    sent = send()
    gc.set_threshold(700)
    gc.callbacks.clear()
    assert 20 <= len(sent) <= 101 and sent == [nest, *map(float, range(len(sent) - 1))], sent
""",
        timeout=60,
    )


def test_a_set_that_grows_while_it_is_written() -> None:
    run_child(
        PRELUDE
        + """
import gc
nest = frozenset([frozenset([frozenset([frozenset([1])])])])  # iterators start collections, up to 3.11
vlc = vlcs.VLC()
there = vlc.import_module("builtins").len
for send in (lambda values: vlc.run(len, values), lambda values: there(values)):
    for moment in range(12):
        values, collections = {nest}, []
        def grow(phase, info):
            collections.append(phase)
            if len(collections) == moment: values.add(5)
        gc.collect()
        gc.callbacks.append(grow)
        gc.set_threshold(1)
        try:
            assert send(values) in (1, 2), moment
        except vlcs.PicklingError as error:
            assert "changed size during iteration" in str(error), error
        gc.set_threshold(700)
        gc.callbacks.clear()
""",
        timeout=60,
    )


def test_what_cannot_be_rebuilt_there_or_here() -> None:
    check(
        """
        import gc, importlib.machinery, types, numpy
        from typing import cast
        a = vlcs.VLC("a")
        def rebuilding(message): raise ZeroDivisionError(message)
        def ending(kind, *args): raise kind(*args)
        class Bad:
            def __reduce__(self): return rebuilding, ("when rebuilt",)
        class State:
            def __init__(self): self.x = 1
            def __setstate__(self, state): raise ValueError("no state")
        class Ending:
            def __init__(self, kind): self.kind = kind
            def __reduce__(self): return ending, (self.kind, "rebuilt")
        class Away: pass
        only_here = sys.modules["only_here"] = types.ModuleType("only_here")
        only_here.__spec__ = importlib.machinery.ModuleSpec("only_here", None)
        Away.__module__, Away.__qualname__, only_here.Away = "only_here", "Away", Away
        bad = vlcs.PicklingError
        array = numpy.ones(1000)
        def result(kind):
            return kind.__new__(kind) if kind.__name__ == "Bad" else kind()
        for value, kind, words in (
            (Bad(), ZeroDivisionError, "when rebuilt"), (State(), ValueError, "no state"),
        ):
            for call in (
                lambda: a.run(cast, array, value), lambda: a.run(lambda x, y: x, array, [value]),
                lambda: a.submit(cast, array, value).result(),
            ):
                error = refused(bad, call, "argument 2,", "cannot be rebuilt there", words, "nothing was run")
                assert type(error.__cause__) is kind
                assert type(error.__cause__.__cause__) is vlcs.RemoteTraceback
                if kind is ZeroDivisionError:
                    assert "in rebuilding" in error.__cause__.__cause__.text
            refused(bad, lambda: a.run(dict, one=1, two=value), "argument two=")
            refused(bad, lambda: a.run(lambda: value), "the function", words)
            refused(bad, lambda: a.import_module("math").sqrt(value), "argument 1,", words)
            refused(bad, lambda: a.import_module("math").__setattr__("x", value), "the value", words)
            refused(bad, lambda: a.run(result, type(value)), "has run", "cannot be rebuilt here", words)
        for kind in (KeyboardInterrupt, SystemExit):  # they mean the same wherever they are raised
            for call in (lambda: a.run(cast, None, Ending(kind)), lambda: a.run(lambda: Ending(kind))):
                try:
                    call()
                except kind as error:
                    assert error.args == ("rebuilt",)
                else:
                    raise SystemExit("nothing was raised")
        try:
            a.run(cast, None, Away())
        except ModuleNotFoundError as error:  # what is not installed there
            assert error.name == "only_here" and "argument 2," in error.__notes__[0], error.__notes__
        else:
            raise SystemExit("accepted")
        assert a.run(len, "on") == 2
        gc.collect()
        a.run(gc.collect)
        a.run(len, "")
        assert a.stats().leases == 0, a.stats().leases
        """
    )


def test_libraries_that_cannot_be_loaded(tmp_path: Path, build: Builder) -> None:
    good = build("counter.c", "libcounter.so").read_bytes()
    lazy = build("lazy.c", "liblazy.so")
    (tmp_path / "libtruncated.so").write_bytes(good[: len(good) // 3])
    (tmp_path / "libforeign.so").write_bytes(
        good[:18] + (183).to_bytes(2, "little") + good[20:]
    )  # EM_AARCH64
    (tmp_path / "libtext.so").write_text("INPUT(libc.so.6)\n")
    build(
        "versioned.c",
        "new/libversioned.so",
        "-DVERSIONED_LAST=3",
        '-DVERSIONED_FIRST_DEFAULT=""',
        version_script("versioned_3.map"),
    )
    build(
        "versioned.c",
        "old/libversioned.so",
        "-DVERSIONED_LAST=2",
        '-DVERSIONED_FIRST_DEFAULT=""',
        version_script("versioned_2.map"),
    )
    newer = lazy.parent / "new" / "libversioned.so"
    user = build(
        "version_user.c",
        "old/libversion_user.so",
        "-DVERSION_SYMBOL=newest",
        str(newer),
        "-Wl,-rpath,$ORIGIN",
    )
    check(
        """
        folder, lazy, user = sys.argv[1:]
        a = vlcs.VLC("a")
        library = a.load_library("libz.so.1")
        a.run(lambda: __import__("ctypes").CDLL(None) and None)
        try:
            a.load_library("libnowhere.so.9")  # maps the cache of ld.so for good
        except vlcs.LoadError:
            before = footprint()
        bad = vlcs.LoadError
        load = lambda path: (lambda: a.load_library(path))
        error = refused(bad, load("/nonexistent/libnowhere.so"), "/nonexistent/libnowhere.so", "No such file")
        assert (error.errno, error.filename) == (2, "/nonexistent/libnowhere.so")
        refused(bad, load("libnowhere.so.9"), "libnowhere.so.9")
        refused(bad, load(folder + "/libtruncated.so"), "libtruncated.so", "truncated")
        refused(bad, load(folder + "/libforeign.so"), "libforeign.so", "machine")
        refused(bad, load(folder + "/libtext.so"), "libtext.so", "ELF")
        refused(bad, load(lazy), "liblazy.so", "missing_function")
        error = refused(bad, load(user), "libversion_user.so", "libversioned.so", "V3")
        assert isinstance(error, OSError)
        missing = lambda: library.no_such_function
        assert isinstance(refused(vlcs.SymbolError, missing, "no_such_function", "libz"), AttributeError)
        assert not hasattr(library, "no_such_function")
        refused(vlcs.SymbolError, lambda: ctypes.c_int.in_dll(library, "zlibVersion"), "address_of")
        refused(vlcs.SymbolError, lambda: ctypes.CFUNCTYPE(None)(("zlibVersion", library)), "address_of")
        # The same in the context's own Python: what ctypes and import raise there.
        for path in (folder + "/libtruncated.so", "libnowhere.so.9", lazy):
            try:
                a.run(lambda path: __import__("ctypes").CDLL(path), path)
            except OSError as error:
                assert path.rpartition("/")[2].removesuffix(".9") in str(error), error
            else:
                raise SystemExit("loaded " + path)
        assert footprint() == before, (before, footprint())
        """,
        str(tmp_path),
        str(lazy),
        str(user),
    )


def test_environments_that_end_a_python() -> None:
    check(
        """
        vlcs.VLC("first").close()
        before = footprint()
        bad = vlcs.ArgumentError
        for name, value in {
            "PYTHONHASHSEED": "abc", "PYTHONMALLOC": "bogus", "PYTHONHOME": "/nonexistent", "PYTHONUTF8": "2",
            "PYTHONIOENCODING": "bogus", "PYTHONTRACEMALLOC": "-1", "PYTHONINTMAXSTRDIGITS": "1",
            "PYTHONPLATLIBDIR": "bogus",
        }.items():
            refused(bad, lambda: vlcs.VLC(env={name: value}), f"{name}={value!r}", "exit code 1", "env=")
            if name in ("PYTHONHOME", "PYTHONPLATLIBDIR"):
                continue
            os.environ[name] = value  # the program's own change, which this process never started with
            refused(bad, vlcs.VLC, f"{name}={value!r}", "None to remove")
            vlcs.VLC("removed", env={name: None}).close()
            del os.environ[name]
        assert footprint() == before, (before, footprint())

        # A private interpreter knows its prefix and path; programs that it starts get what the host has.
        os.environ.update(PYTHONHOME="/nonexistent", PYTHONPATH="/nowhere")
        a = vlcs.VLC("a", env={"PYTHONHASHSEED": "0", "PYTHONWARNINGS": "error"})
        names = "PYTHONHOME", "PYTHONPATH"
        sees = lambda: ([os.environ[name] for name in names], "/nowhere" in sys.path, sys.warnoptions)
        assert a.run(sees) == (["/nonexistent", "/nowhere"], False, ["error"]), a.run(sees)
        """
    )


@pytest.mark.parametrize("name", ["pypy", "old"])
def test_pythons_that_cannot_be(tmp_path: Path, name: str) -> None:
    # A program that answers as such a Python would; the real ones are large.
    facts = {
        "pypy": '"implementation": "pypy", "version": [3, 11, 1]',
        "old": '"implementation": "cpython", "version": [3, 6, 1]',
    }[name]
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho \'{{{facts}, "executable": "{python}", "prefix": "/usr", "base_prefix": "/usr", '
        f'"sys_path": [], "config": {{}}}}\'\n'
    )
    python.chmod(0o755)
    check(
        """
        vlcs.VLC("first").close()
        before = footprint()
        refused(vlcs.ArgumentError, lambda: vlcs.VLC(python=sys.argv[1]), sys.argv[1], *sys.argv[2:])
        assert footprint() == before, (before, footprint())
        """,
        str(python),
        *{"pypy": ("pypy", "CPython"), "old": ("3.6",)}[name],
    )
