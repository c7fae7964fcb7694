"""Arrow streams as `native/python/arrow.c` reads them; made by hand, with their mishaps."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from errno import EIO
from typing import Any

import pytest

from vlcs._core import _native


class Schema(Structure):
    pass


class Array(Structure):
    pass


class Stream(Structure):
    pass


RELEASE_SCHEMA, RELEASE_ARRAY = CFUNCTYPE(None, POINTER(Schema)), CFUNCTYPE(None, POINTER(Array))
RELEASE_STREAM = CFUNCTYPE(None, POINTER(Stream))
GET_SCHEMA, GET_NEXT = (CFUNCTYPE(c_int, POINTER(Stream), POINTER(kind)) for kind in (Schema, Array))

Schema._fields_ = [
    *[(name, c_char_p) for name in ("format", "name", "metadata")],
    *[(name, c_int64) for name in ("flags", "n_children")],
    *[("children", c_void_p), ("dictionary", c_void_p), ("release", RELEASE_SCHEMA), ("private", c_void_p)],
]
Array._fields_ = [
    *[(name, c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")],
    *[(name, c_void_p) for name in ("buffers", "children", "dictionary")],
    *[("release", RELEASE_ARRAY), ("private", c_void_p)],
]
Stream._fields_ = [
    *[("get_schema", GET_SCHEMA), ("get_next", GET_NEXT), ("get_last_error", c_void_p)],
    *[("release", RELEASE_STREAM), ("private", c_void_p)],
]


class Source:
    """A stream of `arrays` arrays, and then an end, or an error; counts what is released."""

    def __init__(self, *, arrays: int, error: int = 0, schema_error: int = 0) -> None:
        self.released: list[str] = []
        self.left = arrays

        @RELEASE_SCHEMA
        def release_schema(schema: Any) -> None:
            self.released.append("schema")
            schema.contents.release = RELEASE_SCHEMA()

        @RELEASE_ARRAY
        def release_array(array: Any) -> None:
            self.released.append("array")
            array.contents.release = RELEASE_ARRAY()

        @RELEASE_STREAM
        def release_stream(stream: Any) -> None:
            self.released.append("stream")
            stream.contents.release = RELEASE_STREAM()

        @GET_SCHEMA
        def get_schema(_stream: Any, out: Any) -> int:
            out.contents.format = b"n"
            out.contents.release = release_schema if not schema_error else RELEASE_SCHEMA()
            return schema_error

        @GET_NEXT
        def get_next(_stream: Any, out: Any) -> int:
            self.left -= 1
            out.contents.length = 3
            out.contents.release = release_array if self.left >= 0 else RELEASE_ARRAY()
            return error if self.left < 0 else 0

        self.callbacks = release_schema, release_array
        self.stream = Stream(get_schema, get_next, None, release_stream, None)

    def capsule(self) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object
        return make(ctypes.addressof(self.stream), b"arrow_array_stream", None)


@pytest.mark.parametrize("arrays", [0, 1, 9])  # more than the first room holds
def test_a_loan_keeps_what_the_stream_gave(arrays: int) -> None:
    source = Source(arrays=arrays)
    loan: Any = _native.arrow_lend(source.capsule())
    assert source.released == ["stream"]
    with memoryview(loan) as view:
        assert view.readonly
        assert view.nbytes > arrays * ctypes.sizeof(Array)
    del loan
    assert source.released == ["stream", *["array"] * arrays, "schema"]


def test_a_stream_that_fails_leaves_nothing() -> None:
    source = Source(arrays=2, error=EIO)
    assert _native.arrow_lend(source.capsule()) is None
    assert sorted(source.released) == ["array", "array", "schema", "stream"]
    source = Source(arrays=2, schema_error=EIO)
    assert _native.arrow_lend(source.capsule()) is None
    assert source.released == ["stream"]


def test_what_is_no_stream_is_refused() -> None:
    source = Source(arrays=1)
    capsule = source.capsule()
    assert _native.arrow_lend(capsule) is not None
    assert _native.arrow_lend(capsule) is None  # it was read and released
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        _native.arrow_lend(object())
    assert _native.arrow_borrow(b"") is None  # type: ignore[arg-type]
