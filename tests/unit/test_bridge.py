"""The codec of both sides, without a context: a guest's half that runs in this interpreter."""

from __future__ import annotations

import array
import collections
import contextlib
import datetime as dt
import importlib
import linecache
import math
import mmap
import pickle
import subprocess
import sys
import threading
import types
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from vlcs._core import _codec, _serving, _sharing
from vlcs._core._bridge import Bridge
from vlcs._core._errors import PicklingError, RemoteError, RemoteTraceback
from vlcs._core._instance import _GUEST_SOURCES
from vlcs._core._native import Handle, keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Lease:
    """Stands for one: the memory of the other side's object, as what it arrives as."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def take(self) -> Any:
        if isinstance(self.value, np.ndarray):
            return self.value[...]
        return memoryview(self.value)

    @property
    def nbytes(self) -> int:
        return int(memoryview(self.value).nbytes)


class FlatLease(np.ndarray[Any, Any]):
    """One that pickle itself may ask for its buffer."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:  # not item by item
        return self is other

    def take(self) -> Any:
        return memoryview(self)


def lend(value: Any) -> Any:
    if type(value) is memoryview and value.format == "B" and value.ndim == 1:
        return np.asarray(value).view(FlatLease)
    return Lease(value)


class Guest:
    """Stands for an Interpreter: keeps what crossed, and hands the very buffers over."""

    def __init__(self, ask: Callable[[str, int, str], str]) -> None:
        host = types.ModuleType("_vlcs_host")
        folder = resources.files("vlcs._core")
        sources = {name: folder.joinpath(f"_{name}.py").read_text("utf-8") for name in _GUEST_SOURCES}
        settings = pickle.dumps({"name": "ctx", "environ": {}, "sources": sources})
        host.__dict__.update(settings=settings, ask=ask, printed=lambda: None, Handle=Handle, keep=keep)
        self.module = types.ModuleType("_vlcs_guest")
        sys.modules["_vlcs_host"] = host
        source = folder.joinpath("_guest.py").read_text("utf-8")
        exec(compile(source, "<vlcs guest>", "exec"), self.module.__dict__)  # noqa: S102 - as a guest does
        self.functions = self.module.functions
        self.stdout, self.stderr = sys.stdout, sys.stderr  # its own now; pytest sets others for each phase
        self.payload = b""
        self.sent: list[Any] = []
        self.calls = 0

    def request(self) -> Any:
        return pickle.loads(self.payload, buffers=self.sent)  # noqa: S301 - our own

    def call(self, payload: bytes, buffers: Any) -> tuple[bytes, list[Any]]:
        self.calls += 1
        self.payload, self.sent = payload, [lend(buffer) for buffer in buffers]
        with contextlib.redirect_stdout(self.stdout), contextlib.redirect_stderr(self.stderr):
            try:
                answer, answered = self.functions["serve"](payload, self.sent)
            except BaseException as error:  # noqa: BLE001 - as the extension module does
                answer, answered = self.functions["encode_error"](error)
            self.functions["show"]()
        return answer, [lend(buffer) for buffer in answered]


@pytest.fixture
def printed() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch, printed: list[tuple[int, str]]) -> Iterator[Guest]:
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, getattr(sys, name))  # the guest's half replaces them
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(threading, "_DummyThread", threading._DummyThread)
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    monkeypatch.setattr(sys, "__stdin__", sys.__stdin__)
    monkeypatch.setattr("builtins.input", input)
    monkeypatch.setattr("linecache.updatecache", linecache.updatecache)

    def ask(request: str, fd: int, text: str) -> str:
        if request == "write":
            printed.append((fd, text))
        elif request == "write_bytes":
            printed.append((fd, repr(text.encode("latin-1"))))
        return ""

    guest = Guest(ask)
    monkeypatch.setitem(sys.modules, "_vlcs_guest", guest.module)
    yield guest
    del sys.modules["_vlcs_host"]


@pytest.fixture
def bridge(guest: Guest) -> Bridge:
    return Bridge(guest, "ctx")  # type: ignore[arg-type]


def identity(value: Any) -> Any:
    return value


def double(value: Any, *, times: int = 1) -> Any:
    for _ in range(times):
        value *= 2
    return value


def of_main(function: Any) -> Any:
    """The same function as `__main__` would have it."""
    made = types.FunctionType(function.__code__, {"__name__": "__main__"}, function.__name__)
    made.__module__, made.__kwdefaults__ = "__main__", function.__kwdefaults__
    return made


class TestFunctions:
    def test_importable_one_crosses_as_its_name(self, bridge: Bridge, guest: Guest) -> None:
        assert bridge.call(math.hypot, (3, 4), {}) == 5
        assert guest.request() == ("call", ("math", ("hypot",)), (3, 4), {}, False)

    def test_class_and_method_of_a_class_cross_as_names(self, bridge: Bridge, guest: Guest) -> None:
        assert bridge.call(collections.OrderedDict.fromkeys, ("ab",), {}) == {"a": None, "b": None}
        assert bridge.call(collections.Counter, ("aab",), {}) == {"a": 2, "b": 1}
        assert guest.request()[1] == ("collections", ("Counter",))

    @pytest.mark.parametrize("function", [of_main(double), lambda value, times: double(value, times=times)])
    def test_others_cross_by_value(self, bridge: Bridge, function: Any) -> None:
        assert bridge.call(function, (3,), {"times": 2}) == 12

    def test_one_that_its_name_no_longer_means_crosses_by_value(self, bridge: Bridge) -> None:
        wrapped = of_main(double)
        wrapped.__module__, wrapped.__qualname__ = "math", "floor"
        assert bridge.call(wrapped, (3,), {}) == 6

    def test_module_registered_with_cloudpickle_crosses_by_value(self, bridge: Bridge, guest: Guest) -> None:
        cloudpickle = importlib.import_module("cloudpickle")
        cloudpickle.register_pickle_by_value(subprocess)
        try:
            assert bridge.call(subprocess.list2cmdline, (["a b"],), {}) == '"a b"'
            assert b"list2cmdline" in guest.payload
            assert b"<dynamic-code>" not in guest.payload
        finally:
            cloudpickle.unregister_pickle_by_value(subprocess)

    def test_result_of_a_class_made_at_run_time(self, bridge: Bridge) -> None:
        point = collections.namedtuple("point", "x y")  # noqa: PYI024 - made where no import finds it
        assert bridge.call(lambda: point(1, 2), (), {}) == (1, 2)


class TestBuffers:
    def test_array_is_shared_there(self, bridge: Bridge) -> None:
        values = np.arange(6.0).reshape(2, 3)
        assert bridge.call(double, (values,), {}) is not values
        assert values.tolist() == [[0, 2, 4], [6, 8, 10]]

    def test_array_is_shared_back(self, bridge: Bridge) -> None:
        values = np.arange(6.0)
        back = bridge.call(identity, (values,), {})
        assert np.shares_memory(back, values)
        assert back.flags.writeable

    def test_arrays_inside_of_other_values_are_shared(self, bridge: Bridge, guest: Guest) -> None:
        values: Any = {"a": [np.zeros(100), (np.ones(100),)]}
        back = bridge.call(identity, (values,), {})
        assert np.shares_memory(back["a"][1][0], values["a"][1][0])
        assert len(guest.payload) < 600
        assert [buffer.nbytes for buffer in guest.sent] == [800, 800]

    def test_array_beside_a_function_by_value_is_shared(self, bridge: Bridge) -> None:
        values = np.arange(6.0)
        assert np.shares_memory(bridge.call(of_main(identity), (values,), {}), values)

    def test_readonly_stays_readonly(self, bridge: Bridge) -> None:
        values = np.arange(6.0)
        values.flags.writeable = False
        assert not bridge.call(identity, (values,), {}).flags.writeable

    @pytest.mark.parametrize(
        "values",
        [
            np.empty(0),
            np.zeros((0, 3)),
            np.array(5.0),
            np.asfortranarray(np.arange(12).reshape(3, 4)),
            np.ones((4, 4))[::2],
            np.array([1, "a", None], dtype=object),
            np.array(["2020-01-01"], dtype="M8[s]"),
            np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        ],
        ids=lambda values: f"{values.dtype}{values.shape}",
    )
    def test_every_kind_of_array_crosses(self, bridge: Bridge, values: np.ndarray[Any, Any]) -> None:
        back = bridge.call(identity, (values,), {})
        assert (back.dtype, back.shape) == (values.dtype, values.shape)
        assert (back == values).all()

    @pytest.mark.parametrize(
        "view",
        [
            lambda a: a[::2],
            lambda a: a[:, 1],
            lambda a: a[::-1, ::-2],
            lambda a: a.T[1:],
            lambda a: a.view("M8[s]"),
            lambda a: a.view("m8[ms]")[:, ::2],
            lambda a: a.view([("a", "i4"), ("b", "i4")])["b"],
            lambda a: a[::2][:, 1:][::-1],
        ],
    )
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_views_are_shared(self, bridge: Bridge, view: Any, order: Any) -> None:
        values = np.arange(24).reshape(4, 6).astype("i8", order=order)
        part = view(values)
        back = bridge.call(identity, (part,), {})
        assert back.__array_interface__["data"] == part.__array_interface__["data"]
        assert (back.dtype, back.shape, back.strides) == (part.dtype, part.shape, part.strides)
        assert (back == part).all()

    def test_readonly_view_of_a_writeable_array(self, bridge: Bridge) -> None:
        values = np.broadcast_to(np.arange(3.0), (4, 3))
        back = bridge.call(identity, (values,), {})
        assert np.shares_memory(back, values)
        assert not back.flags.writeable

    def test_memoryview_is_shared_with_its_shape(self, bridge: Bridge) -> None:
        memory = bytearray(24)
        view = memoryview(memory).cast("i", [2, 3])
        back = bridge.call(identity, (view,), {})
        back[1, 2] = 7
        assert (back.format, back.shape, view[1, 2]) == ("i", (2, 3), 7)

    @pytest.mark.parametrize("value", [memoryview(b""), memoryview(b"abcdef")[::2], memoryview(b"abc")])
    def test_any_memoryview_is_lent(self, bridge: Bridge, guest: Guest, value: memoryview) -> None:
        assert bridge.call(identity, (value,), {}) == value
        assert len(guest.sent) == 1

    @pytest.mark.parametrize("value", [bytearray(b"ab"), array.array("d", [1, 2]), mmap.mmap(-1, 10)])
    @pytest.mark.parametrize("make", [lambda value: value, lambda value: Box([value, value])])
    def test_owners_of_memory_are_lent(self, bridge: Bridge, guest: Guest, value: Any, make: Any) -> None:
        back = bridge.call(identity, (make(value),), {})
        if isinstance(back, Box):
            assert back.content[0] is back.content[1]
            back = back.content[0]
        assert type(back) is memoryview
        assert back == memoryview(value)
        assert len(guest.sent) == 1
        back[0] = 7
        assert memoryview(value)[0] == 7

    def test_memory_of_references_is_refused(self, bridge: Bridge) -> None:
        with pytest.raises(PicklingError, match="references to objects"):
            bridge.call(identity, (memoryview(np.array([None])),), {})


class Box:
    def __init__(self, content: Any) -> None:
        self.content = content


class TestTensors:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
    def test_tensor_is_shared(self, bridge: Bridge, dtype: str) -> None:
        torch = pytest.importorskip("torch", reason="no-torch: not installed")
        values = torch.ones(2, 3, dtype=getattr(torch, dtype))
        back = bridge.call(identity, (values,), {})
        assert back.data_ptr() == values.data_ptr()
        assert (back.dtype, back.shape) == (values.dtype, values.shape)

    def test_others_are_copied(self, bridge: Bridge) -> None:
        torch = pytest.importorskip("torch", reason="no-torch: not installed")
        for values in (
            torch.arange(6.0)[::2],
            torch.empty(0),
            torch.nn.Parameter(torch.ones(3)),
            torch.ones(2, dtype=torch.complex64).conj(),
        ):
            back = bridge.call(identity, (values,), {})
            assert torch.equal(back, values)
            assert back.requires_grad == values.requires_grad


class TestWhatCannotCross:
    def test_argument_is_named_and_nothing_runs(self, bridge: Bridge, guest: Guest) -> None:
        before = guest.calls
        with pytest.raises(PicklingError) as caught:
            bridge.call(identity, (1, threading.Lock()), {})
        assert f"cannot run {__name__}.identity() in the context 'ctx': argument 2, <unlocked" in str(
            caught.value
        )
        assert "nothing was run" in str(caught.value)
        assert guest.calls == before

    def test_keyword_is_named(self, bridge: Bridge) -> None:
        with pytest.raises(PicklingError, match=r"argument value=<unlocked _thread\.lock"):
            bridge.call(identity, (), {"value": threading.Lock()})

    def test_function_is_named(self, bridge: Bridge) -> None:
        lock = threading.Lock()
        with pytest.raises(PicklingError, match="the function cannot be pickled"):
            bridge.call(lambda: lock, (), {})

    def test_result_is_named(self, bridge: Bridge) -> None:
        with pytest.raises(PicklingError, match=r"has run in .* of type _thread\.lock, cannot be pickled"):
            bridge.call(threading.Lock, (), {})

    def test_result_that_only_the_guest_can_import(
        self, bridge: Bridge, guest: Guest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = pickle.dumps(("value", collections.OrderedDict()), protocol=5)
        monkeypatch.setattr(guest, "call", lambda *_: (answer.replace(b"OrderedDict", b"OtherDictXY"), []))
        with pytest.raises(PicklingError, match=r"has run in .*cannot be rebuilt here .*OtherDictXY"):
            bridge.call(collections.OrderedDict, (), {})


class StubbornError(Exception):
    def __reduce__(self) -> Any:
        return type(self), ()

    def __init__(self, first: int) -> None:
        super().__init__(first)


def fail(kind: Any, *args: Any) -> None:
    raise kind(*args)


class TestExceptions:
    def test_comes_home_with_the_traceback(self, bridge: Bridge) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            bridge.call(divmod, (1, 0), {})
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "ZeroDivisionError" in str(caught.value.__cause__)

    def test_traceback_shows_the_users_frames_only(self, bridge: Bridge) -> None:
        with pytest.raises(KeyError) as caught:
            bridge.call(fail, (KeyError, "x"), {})
        assert "raise kind(*args)" in str(caught.value.__cause__)
        assert "vlcs guest" not in str(caught.value.__cause__)

    def test_notes_and_attributes_come_too(self, bridge: Bridge) -> None:
        error = OSError(2, "gone", "file")
        error.add_note("note")
        with pytest.raises(FileNotFoundError) as caught:
            bridge.call(fail, (identity, error), {})
        assert (caught.value.filename, caught.value.__notes__) == ("file", ["note"])

    def test_one_that_cannot_be_rebuilt_is_a_remote_error(self, bridge: Bridge) -> None:
        with pytest.raises(
            RemoteError, match=r"raised \S+\.StubbornError, which cannot be rebuilt here: 1"
        ) as caught:
            bridge.call(fail, (StubbornError, 1), {})
        assert caught.value.type_name == f"{__name__}.StubbornError"
        assert "in fail" in caught.value.traceback

    @pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
    def test_even_those_that_end_programs(self, bridge: Bridge, kind: type[BaseException]) -> None:
        with pytest.raises(kind):
            bridge.call(fail, (kind,), {})

    def test_missing_module_says_its_name(self, bridge: Bridge) -> None:
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            bridge.import_module("no_such_module")


class TestOutput:
    def test_goes_to_the_host_by_line(self, bridge: Bridge, printed: list[tuple[int, str]]) -> None:
        bridge.call(print, ("hello",), {})
        assert printed == [(1, "hello\n")]

    def test_rest_of_a_line_is_there_when_the_call_returns(
        self, bridge: Bridge, printed: list[tuple[int, str]]
    ) -> None:
        bridge.call(print, ("a",), {"end": ""})
        assert printed == [(1, "a")]

    def test_bytes_and_half_characters(self, guest: Guest, printed: list[tuple[int, str]]) -> None:
        stream = guest.stdout
        for piece in (b"\xc3", b"\xa9", b"\xc3", b"\xff\n", b"a"):
            assert stream.buffer.write(piece) == len(piece)
            stream.flush()
        assert [text for _, text in printed] == ["é", repr(b"\xc3\xff\n"), "a"]

    def test_looks_like_a_stream(self, guest: Guest) -> None:
        stdout, stderr = guest.stdout, guest.stderr
        assert (stdout.fileno(), stderr.fileno()) == (1, 2)
        assert (stdout.encoding, stdout.line_buffering, stderr.errors) == ("utf-8", True, "backslashreplace")
        assert stdout.isatty() in {True, False}


@pytest.mark.usefixtures("bridge")
def test_cloudpickle_is_lent_to_a_guest_without_one() -> None:
    finder = sys.meta_path[-1]
    spec = finder.find_spec("cloudpickle", None)
    assert spec is not None
    assert spec.name == "cloudpickle"
    assert finder.find_spec("numpy", None) is None


class TestWhatStays:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            3,
            "text",
            [1, [2.5, {"a": (b"x",)}]],
            list(range(20_000)),
            np.arange(3.0),
            np.datetime64("2020-01-01"),
            np.array([None, "x"]),
            dt.date(2020, 1, 2),
        ],
        ids=str,
    )
    def test_plain_data_comes_by_value(self, value: Any) -> None:
        answer = _serving.encode_result(value, False)
        assert answer is not None
        kind, back = _sharing.loads(answer[0], [lend(item) for item in answer[1]])
        assert (kind, type(back), repr(back)) == ("value", type(value), repr(value))

    def test_a_list_that_holds_itself_is_data_too(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        answer = _serving.encode_result(endless, False)
        assert answer is not None
        _, back = _sharing.loads(*answer)
        assert back[0] is back

    def test_all_else_stays(self) -> None:
        for value in (collections.OrderedDict(a=1), [collections.Counter()], len, dict, math):
            assert _serving.encode_result(value, False) is None

    def test_large_attributes_stay(self) -> None:
        assert _serving.encode_result(list(range(20_000)), True) is None

    def test_methods_and_what_a_module_holds_are_found_by_name(self) -> None:
        counter = collections.Counter("a")
        assert _serving.is_method(counter, "total", counter.total)
        assert _serving.is_method([], "append", None) is False
        assert _serving.is_method(math, "floor", math.floor)
        assert not _serving.is_method(math, "pi", math.pi)
        counter.total = collections.Counter("b").total  # type: ignore[method-assign]
        assert not _serving.is_method(counter, "total", counter.total)


class TestClassesOfMain:
    def test_ones_that_come_back_stay_as_they_are(self, bridge: Bridge) -> None:
        settings = {"rate": 1}

        class Model:
            total = 0

            def rate(self) -> int:
                return settings["rate"]

        Model.__module__ = "__main__"
        before = Model.rate
        # As it comes from a guest that made its own copy of the class.
        answer = _by_value(("value", Model()))
        Model.total = 5
        settings["rate"] = 2
        back = bridge._decode("f", answer, [])
        assert type(back) is Model
        assert (Model.total, Model.rate, back.rate()) == (5, before, 2)


def _by_value(answer: Any) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(answer, protocol=5))


class Nesting:
    """Pickled by code that pickles others itself, as a call in `__reduce__` does."""

    def __reduce__(self) -> Any:
        memory = bytearray(b"lent")
        assert _codec.dumps(memoryview(memory), plain=True)[1] == [memory]
        assert pickle.loads(_codec.dumps_in_band(memoryview(memory))) == memory  # noqa: S301 - our own
        return list, ()


@pytest.mark.parametrize("plain", [True, False])
def test_pickling_while_pickling(*, plain: bool) -> None:
    value = [Nesting(), memoryview(b"own")]
    assert pickle.loads(_codec.dumps_in_band(value)) == [[], b"own"]  # noqa: S301 - our own
    assert len(_codec.dumps(value, plain=plain)[1]) == 1
