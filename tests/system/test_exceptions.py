"""What is raised there, and what arrives here: class, state, notes, and one traceback through both sides."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.child import run_child

# What each program starts with: `caught(call)` gives what it raises, `ways(function)` calls it in each way.
PRELUDE = """
import asyncio, gc, os, sys, threading, traceback, vlcs
a = vlcs.VLC("a")

def caught(call, *args):
    try:
        call(*args)
    except BaseException as error:
        return error
    raise SystemExit("nothing was raised")

def words(error):
    return "".join(traceback.format_exception(error))

async def awaited(function, *args):
    await a.run_async(function, *args)

def ways(function, *args):
    name = f"vlcs_test_{function.__name__}"
    def store(name, function):
        import sys, types
        module = sys.modules[name] = types.ModuleType(name)
        setattr(module, function.__name__, function)
    a.run(store, name, function)
    remote = getattr(a.import_module(name), function.__name__)
    yield "run", caught(a.run, function, *args)
    yield "submit", caught(lambda: a.submit(function, *args).result())
    yield "run_async", caught(lambda: asyncio.run(awaited(function, *args)))
    yield "remote", caught(remote, *args)
"""


def check(program: str, *args: str, timeout: float = 60) -> None:
    """Runs it as a script, since tracebacks show lines of files."""
    lines = [line.removeprefix(" " * 8) for line in program.splitlines()]
    with TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(PRELUDE + "\n".join(lines))
        run_child(script, timeout=timeout, args=list(args))


def test_state_survives_whatever_the_constructor_takes() -> None:
    check(
        """
        import concurrent.futures, json, subprocess, urllib.error
        class Two(Exception):
            def __init__(self, first, second):
                super().__init__(f"{first} and {second}")
                self.first, self.second = first, second
        class Named(Exception):
            def __init__(self, *, code): self.code = code
            def __str__(self): return f"code {self.code}"
        class Slots(ValueError):
            __slots__ = ("extra",)
        class Own(OSError):
            def __init__(self, path): super().__init__(13, "no", path)
        class New(Exception):
            def __new__(cls, one, two): return super().__new__(cls, one)
            def __init__(self, one, two): super().__init__()
        class Lookup(KeyError):
            def __init__(self, key):
                super().__init__(key)
                self.__dict__["odd name"] = key
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class Frozen(Exception):
            code: int
        def slots():
            error = Slots("s")
            error.extra = [1]
            return error
        def missing():
            try: [].nothing
            except AttributeError as error: return error
        makers = [
            lambda: Two("x", 2), lambda: Named(code=4), slots, lambda: Own("/p"), lambda: New(1, 2),
            lambda: Lookup("k"), lambda: Frozen(7), missing,
            lambda: OSError(2, "gone", "/a", None, "/b"), lambda: BlockingIOError(11, "again", 5),
            lambda: UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "bad"),
            lambda: UnicodeEncodeError("ascii", "\\udc80", 0, 1, "bad"),
            lambda: ImportError("no", name="m", path="/m.py"), lambda: NameError("no", name="n"),
            lambda: SystemExit(3), lambda: SystemExit("words"), lambda: StopIteration(5),
            lambda: SyntaxError("bad", ("f.py", 3, 5, "x = = 1", 3, 6)), lambda: KeyError((1, "k")),
            lambda: json.JSONDecodeError("bad", "{", 1), lambda: MemoryError("m"),
            lambda: subprocess.CalledProcessError(2, ["x"], b"out"), lambda: asyncio.CancelledError("c"),
            lambda: urllib.error.HTTPError("u", 404, "no", {}, None), lambda: DeprecationWarning("w"),
            lambda: concurrent.futures.CancelledError("c"), lambda: TimeoutError("t"),
            lambda: GeneratorExit(), lambda: KeyboardInterrupt("k"), lambda: RecursionError("deep"),
            lambda: Exception(),
        ]
        fields = (
            "errno strerror filename filename2 characters_written name path value code lineno text offset "
            "end_offset encoding object start end reason first second extra doc pos returncode cmd output msg"
        ).split()
        hidden = ("fp", "file", "hdrs", "_closer")
        def raise_it(make): raise make()
        def state(error):
            own = {name: value for name, value in vars(error).items() if name not in hidden}
            return str(error), error.args, own, [getattr(error, name, None) for name in fields]
        for make in makers:
            here = make()
            there = caught(a.run, raise_it, make)
            assert type(there) is type(here), (there, here)
            assert state(there) == state(here), (state(there), state(here))
            if type(here) is not Frozen:
                value = a.run(lambda make: [make()], make)[0]  # as a value too
                assert type(value) is type(here) and state(value) == state(here), value
            assert type(there.__cause__) is vlcs.RemoteTraceback and there.__cause__.context == "a"
        """
    )


def test_classes_that_only_one_side_has() -> None:
    check(
        """
        import threading
        class Own(Exception): pass
        def own(): raise Own("mine")
        def local():
            class Local(ValueError):
                def more(self): return len(self.args)
            raise Local("x", "y")
        def made(): raise type("Made", (RuntimeError,), {"extra": 4})("m")
        for way, error in ways(own):
            assert type(error) is Own and error.args == ("mine",), (way, error)
        for way, error in ways(local):
            assert isinstance(error, ValueError) and error.more() == 2, way
            assert type(error).__name__ == "Local"
        for way, error in ways(made):
            assert isinstance(error, RuntimeError) and error.extra == 4, way

        # A module that only the context has.
        def only_there():
            import sys, types, importlib.machinery
            module = sys.modules["only_there"] = types.ModuleType("only_there")
            module.__spec__ = importlib.machinery.ModuleSpec("only_there", None)
            exec("class Gone(Exception): pass", vars(module))
            error = module.Gone("far away")
            error.add_note("a note of there")
            raise error
        for way, error in ways(only_there):
            assert type(error) is vlcs.RemoteError, (way, error)
            assert (error.type_name, error.text, error.context) == ("only_there.Gone", "far away", "a")
            assert "in only_there" in error.traceback and error.traceback.endswith("a note of there\\n")
            assert error.__notes__ == ["a note of there"] and "far away" in str(error) and "'a'" in str(error)
            assert words(error).count("in only_there") == 1

        # A class that refuses to be pickled, or that its own rule cannot rebuild.
        class Refusing(Exception):
            def __reduce__(self): raise TypeError("no")
        class Wrong(Exception):
            def __reduce__(self): return len, (1,)
        class Nonsense(Exception):
            def __reduce__(self): return 5
        class Ending(Exception):
            def __reduce__(self): raise SystemExit(4)
            def __str__(self): raise SystemExit(5)
        def raise_it(kind): raise kind("odd")
        for kind in (Refusing, Wrong, Nonsense, Ending):
            for way, error in ways(raise_it, kind):
                assert type(error) is vlcs.RemoteError and kind.__name__ in error.type_name, (way, error)
                assert ("odd" if kind is not Ending else "cannot be made") in str(error)
        assert a.run(len, "on") == 2
        """
    )


def test_what_cannot_cross_is_left_out_and_named() -> None:
    check(
        """
        def holding():
            import threading
            error = ValueError("two locks", threading.Lock(), 3)
            error.lock, error.number = threading.Lock(), 4
            error.add_note("first note")
            raise error
        for way, error in ways(holding):
            assert type(error) is ValueError and error.number == 4, (way, error)
            assert not hasattr(error, "lock")
            assert error.args[::2] == ("two locks", 3) and error.args[1].startswith("<unlocked _thread.lock")
            first, note = error.__notes__
            assert first == "first note" and "args[1] is its repr" in note and "'lock' is left out" in note
        class Silent(Exception):
            def __str__(self): raise RuntimeError("no text")
        def silent(): raise Silent(1)
        for way, error in ways(silent):
            assert type(error) is Silent and error.args == (1,), way
            assert "<its text cannot be made>" in error.__cause__.text
        """
    )


def test_groups_keep_what_can_be_kept() -> None:
    check(
        """
        class Refusing(Exception):
            def __reduce__(self): raise TypeError("no")
        class Two(Exception):
            def __init__(self, one, two): super().__init__(one)
        class Batch(ExceptionGroup):
            def derive(self, inside): return Batch(self.message, inside)
        def plain():
            inner = ExceptionGroup("inner", [TypeError("t"), KeyError("k")])
            inner.add_note("of the inner")
            raise ExceptionGroup("outer", [ValueError(1), inner])
        for way, error in ways(plain):
            assert type(error) is ExceptionGroup and error.message == "outer" and len(error.exceptions) == 2
            value, inner = error.exceptions
            assert value.args == (1,) and inner.__notes__ == ["of the inner"]
            assert [type(one) for one in inner.exceptions] == [TypeError, KeyError]
            text = words(error)
            assert text.count("in plain") == 1 and "RemoteTraceback: in the context 'a'" in text
            assert "<vlcs" not in text
        def mixed():
            group = Batch("mixed", [ValueError(1), Refusing("odd"), Two(3, 4)])
            group.add_note("of the group")
            group.more = 5
            raise group
        for way, error in ways(mixed):
            assert type(error) is Batch and error.__notes__ == ["of the group"], (way, error)
            assert error.more == 5
            matched, rest = error.split(vlcs.RemoteError)
            (refusing,) = matched.exceptions
            assert refusing.type_name.endswith("Refusing") and refusing.text == "odd"
            assert [type(one) for one in rest.exceptions] == [ValueError, Two]
        try:
            a.run(mixed)
        except* ValueError as found:
            assert found.exceptions[0].args == (1,)
        except* (Two, vlcs.RemoteError) as found:
            assert len(found.exceptions) == 2
        def only_there():
            class Refused(BaseExceptionGroup):
                def __init_subclass__(cls): raise TypeError("not here")
                __slots__ = ()
            import sys, types, importlib.machinery
            module = sys.modules["only_there"] = types.ModuleType("only_there")
            module.__spec__ = importlib.machinery.ModuleSpec("only_there", None)
            Refused.__module__, Refused.__qualname__, module.Refused = "only_there", "Refused", Refused
            raise Refused("base", [KeyboardInterrupt(), ValueError(2)])
        for way, error in ways(only_there):
            assert type(error) is BaseExceptionGroup and error.message == "base", (way, error)
            assert [type(one) for one in error.exceptions] == [KeyboardInterrupt, ValueError]
            assert "only_there.Refused" in error.__notes__[0]
        def endless():
            error = ValueError("innermost")
            for _ in range(3000):
                error = ExceptionGroup("one more", [error])
            raise error
        for way, error in ways(endless):
            assert isinstance(error, (ExceptionGroup, vlcs.RemoteError)) and "one more" in str(error), way
        assert a.run(len, "on") == 2
        """,
        timeout=120,
    )


def test_the_traceback_is_one_story() -> None:
    check(
        """
        import io, json, logging
        def chained():
            try:
                try:
                    1 / 0
                except ZeroDivisionError as error:
                    raise KeyError("second") from error
            except KeyError:
                raise ValueError("third")
        def silenced():
            try:
                1 / 0
            except ZeroDivisionError:
                raise ValueError("alone") from None
        for way, error in ways(chained):
            text = words(error)
            for part in ("ZeroDivisionError: division by zero", "1 / 0", "KeyError: 'second'", "direct cause",
                    "During handling", 'raise KeyError("second") from error', 'raise ValueError("third")'):
                assert part in text, (way, part, text)
            assert text.count("in chained") == 3 and text.count("ValueError: third") == 2, text
            there = error.__cause__.text
            assert "vlcs" not in there.replace("vlcs_test", "") or way != "run", there
            assert there.index("ZeroDivisionError") < there.index("KeyError") < there.index("ValueError")
        for way, error in ways(silenced):
            assert "ZeroDivisionError" not in words(error), way

        # Frames of the standard library with their source, columns where the Python shows them.
        there = caught(a.run, json.loads, "{").__cause__.text
        assert "decoder.py" in there and "obj, end = self.raw_decode(s" in there and "^^^^" in there, there
        assert "<vlcs" not in there

        # As `logging` and `traceback` show it: once each.
        stream = io.StringIO()
        logging.basicConfig(stream=stream)
        try:
            a.run(silenced)
        except ValueError:
            logging.exception("failed")
        text = stream.getvalue()
        assert text.count("in silenced") == 1 and text.count("Traceback (most recent call last)") == 2, text

        # What was being handled here is told of too, and what the same exception led to before is not.
        try:
            try:
                raise LookupError("of here")
            except LookupError:
                a.run(silenced)
        except ValueError as error:
            text = words(error)
            assert text.index("LookupError") < text.index("During handling") < text.index("alone"), text
            assert type(error.__context__) is LookupError
        only = ValueError("only one")
        def store():
            import builtins
            builtins.only = ValueError("only one")
        def again(): raise __builtins__["only"] if isinstance(__builtins__, dict) else __builtins__.only
        a.run(store)
        for _ in range(3):
            assert "<vlcs" not in caught(a.run, again).__cause__.text

        # Suggestions, and lines of a syntax error.
        def misspelt():
            number = 1
            return numbr
        if sys.version_info >= (3, 12):  # `traceback` has them since then
            assert "Did you mean: 'number'?" in caught(a.run, misspelt).__cause__.text
        def bad(): compile("x = = 1", "<text>", "exec")
        assert "x = = 1\\n        ^" in caught(a.run, bad).__cause__.text
        def deep(): return deep()
        error = caught(a.run, deep)
        assert type(error) is RecursionError and "Previous line repeated" in error.__cause__.text

        # Sources that the context alone has.
        def generated():
            import linecache
            source = "def fail():\\n    raise ValueError('generated')\\n"
            linecache.cache["<generated>"] = len(source), None, source.splitlines(True), "<generated>"
            names = {}
            exec(compile(source, "<generated>", "exec"), names)
            names["fail"]()
        assert "raise ValueError('generated')" in caught(a.run, generated).__cause__.text
        import copy, pickle
        for copied in (copy.copy(error.__cause__), pickle.loads(pickle.dumps(error.__cause__))):
            assert (copied.text, copied.context) == (error.__cause__.text, "a")
        """
    )


def test_sources_in_a_zip_file(tmp_path: Path) -> None:
    check(
        """
        import zipfile
        path = sys.argv[1] + "/zipped.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("zipped.py", "def fail():\\n    raise ValueError('zipped')\\n")
        def fail(path):
            import sys
            sys.path.insert(0, path)
            import zipped
            zipped.fail()
        assert "raise ValueError('zipped')" in caught(a.run, fail, path).__cause__.text
        """,
        str(tmp_path),
    )


def test_what_ends_programs_and_loops() -> None:
    check(
        """
        def raise_it(kind, *args): raise kind(*args)
        for kind, args in ((SystemExit, (3,)), (KeyboardInterrupt, ()), (GeneratorExit, ())):
            for way, error in ways(raise_it, kind, *args):
                assert type(error) is kind and error.args == args, (way, error)
        for way, error in ways(raise_it, StopIteration, 5):
            if way == "run_async":  # as any coroutine does (PEP 479)
                assert type(error) is RuntimeError and type(error.__cause__) is StopIteration
            else:
                assert type(error) is StopIteration and error.value == 5, way
        def generator():
            yield 1
            a.run(raise_it, StopIteration)
        assert type(caught(list, generator())) is RuntimeError  # PEP 479

        # Cancelled there is cancelled here; the future itself was not.
        import concurrent.futures
        for kind in (asyncio.CancelledError, concurrent.futures.CancelledError):
            future = a.submit(raise_it, kind, "there")
            assert type(future.exception()) is kind and not future.cancelled()
            for way, error in ways(raise_it, kind, "there"):
                assert type(error) is kind, (way, error)
        for way, error in ways(raise_it, TimeoutError, "late"):
            assert type(error) is TimeoutError and str(error) == "late"
        def warned():
            import warnings
            warnings.simplefilter("error")
            warnings.warn("careful", DeprecationWarning)
        for way, error in ways(warned):
            assert type(error) is DeprecationWarning and str(error) == "careful"
        def exhausted(): return bytearray(1 << 60)
        for way, error in ways(exhausted):
            assert type(error) is MemoryError
        def deep(depth): return deep(depth + 1)
        for way, error in ways(deep, 0):
            assert type(error) is RecursionError
        assert a.run(len, "on") == 2
        """
    )


def test_nothing_is_kept_alive() -> None:
    check(
        """
        gc.disable()
        def fail():
            import numpy, builtins, weakref, gc
            gc.disable()
            large = numpy.ones(1_000_000)
            builtins.watched = weakref.ref(large)
            raise ValueError("with a large local")
        def gone():
            import builtins
            return builtins.watched() is None
        for way, error in ways(fail):
            assert a.run(gone), way
            del error
        class Big: pass
        def here(call):
            big = Big()
            import weakref
            watched = weakref.ref(big)
            try:
                call()
            except ValueError as error:
                assert error.__traceback__
            return watched
        def raise_it(): raise ValueError
        assert here(lambda: a.run(raise_it))() is None
        assert here(lambda: a.submit(raise_it).result())() is None
        held = []
        def hold(array):
            try:
                a.run(lambda array: 1 / 0, array)
            except ZeroDivisionError as error:
                held.append(error.with_traceback(None))
        import numpy, weakref
        array = numpy.ones(100_000)
        watched = weakref.ref(array)
        hold(array)
        del array
        a.run(len, "")
        assert watched() is None  # the exception and its traceback of there hold nothing
        """
    )


def test_notes_and_pytest_and_tasks(tmp_path: Path) -> None:
    path = tmp_path / "test_with_contexts.py"
    path.write_text(
        """
import pytest, vlcs

def fail(text):
    error = ValueError(text)
    error.add_note("there")
    raise error

@vlcs.in_context("tasks")
def task(text):
    raise KeyError(text)

def test_raises():
    with vlcs.VLC("a") as a:
        with pytest.raises(ValueError, match="x") as info:
            a.run(fail, "x")
        info.value.add_note("here")
        assert info.value.__notes__ == ["there", "here"]
    with vlcs.VLC("tasks"), pytest.raises(KeyError, match="y"):
        task("y")

def test_fails():
    with vlcs.VLC("b") as b:
        b.run(fail, "shown")
"""
    )
    finished = run_child(
        "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]))",
        timeout=60,
        args=[str(path)],
        code=1,
    )
    assert "1 failed, 1 passed" in finished.stdout, finished.stdout
    assert "vlcs.RemoteTraceback: in the context 'b'" in finished.stdout
    assert "b.run(fail" in finished.stdout


@pytest.mark.parametrize("close", [True, False])
def test_many_exceptions_leave_nothing_behind(close: bool) -> None:
    check(
        f"""
        def fail(step):
            class Local(Exception): pass
            if step % 3 == 0: raise Local(step, bytearray(10_000))
            if step % 3 == 1: raise ExceptionGroup("g", [ValueError(bytearray(10_000)), Local()])
            error = ValueError(step)
            error.lock = __import__("threading").Lock()
            raise error
        def rounds(count):
            for step in range(count):
                caught(a.run, fail, step)
            gc.collect()
            a.run(gc.collect)
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        rounds(300)
        before = rounds(300)
        after = rounds(900)
        assert after - before < 3 << 20, (before, after)
        if {close}:
            a.close()
        """,
        timeout=120,
    )


def test_classes_that_are_broken() -> None:
    check(
        """
        class Meta(type):
            def __getattribute__(cls, name):
                if name in ("__qualname__", "__module__"): raise RuntimeError("no name")
                return super().__getattribute__(name)
        def nameless():
            class E(Exception, metaclass=Meta): pass
            raise E("m")
        def without_notes():
            class E(Exception):
                @property
                def __notes__(self): raise RuntimeError("no notes")
            raise E("m")
        def without_attributes():
            class E(Exception):
                def __getattribute__(self, name): raise SystemExit(name)
            raise E("m")
        def without_module():
            class E(Exception): pass
            E.__module__ = None
            raise E("m")
        def own_args():
            class E(Exception):
                args = 5
            raise E("m")
        def no_text():
            class E(Exception):
                def __str__(self): return 5
            raise E("m")
        def its_own_cause():
            error = ValueError("self")
            error.__cause__ = error
            raise error
        def lone_surrogate(): raise ValueError("\\ud800 alone")
        def odd_notes():
            error = ValueError("odd")
            error.__notes__ = 7
            raise error
        def too_deep():
            inner = []
            for _ in range(100_000): inner = [inner]
            raise ValueError(inner)
        def long_chain():
            last = None
            for number in range(5000):
                error = ValueError(number)
                error.__context__ = last
                last = error
            raise last
        for function in (
            nameless, without_notes, without_attributes, without_module, own_args, no_text, its_own_cause,
            lone_surrogate, odd_notes, too_deep, long_chain,
        ):
            for way, error in ways(function):
                assert type(error).__name__ in ("E", "ValueError", "RemoteError"), (way, repr(error))
                if function is not without_attributes:
                    assert f"in {function.__name__}" in error.__cause__.text, (way, error.__cause__.text)
        assert a.run(len, "on") == 2
        """
    )
