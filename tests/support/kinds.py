"""Objects of every kind that has memory to share, and functions on them; imported here and in contexts.

A module of its own, which needs the standard library only, so that calls of its functions cross by name.
"""

from __future__ import annotations

import array
import builtins
import ctypes
import mmap
import tempfile
from typing import Any


def kinds(*, numpy: bool) -> dict[str, Any]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - mapped for as long as the value lives
    file.write(b"x" * 8192)
    file.flush()
    flat = memoryview(bytearray(range(24)))
    made = {
        "bytearray": bytearray(b"some bytes"),
        "empty bytearray": bytearray(),
        "array": array.array("d", [1, 2]),
        "empty array": array.array("i"),
        "unicode array": array.array("u", "text"),
        "mmap": mmap.mmap(-1, 8192),
        "read-only mmap": mmap.mmap(file.fileno(), 8192, access=mmap.ACCESS_READ),
        "memoryview": flat,
        "typed memoryview": flat.cast("h"),
        "matrix memoryview": flat.cast("B", [2, 3, 4]),
        "strided memoryview": flat[::2],
        "reversed memoryview": flat[::-3],
        "read-only memoryview": memoryview(b"bytes"),
        "read-only strided": flat.toreadonly()[1::2],
        "0-d memoryview": memoryview(ctypes.c_double(7.5)),
        "struct memoryview": memoryview(Pair(3, 4.5)),
        "empty memoryview": flat[:0],
    }
    if numpy:
        import numpy as np

        base = np.arange(60.0).reshape(3, 4, 5)
        fixed = np.arange(5)
        fixed.flags.writeable = False
        record = np.zeros(
            3, dtype=np.dtype([("a", "i4"), ("b", "f8"), ("c", "M8[s]"), ("O:O", "u1", 3)], align=True)
        )
        made |= {f"letter {code}": np.ones(4, dtype=code) for code in "?bBhHiIlLqQefdgFDG"}
        made |= {
            "base": base,
            "Fortran": np.asfortranarray(base),
            "negative": base[::-1, :, ::-2],
            "part": base[1:, :, 2],
            "transposed": base.T,
            "zero strides": np.broadcast_to(base[0], (2, 4, 5)),
            "fixed": fixed,
            "0-d": np.array(2.5),
            "empty": np.zeros((0, 3)),
            "empty inside": np.zeros((2, 0, 3), order="F"),
            "swapped": np.arange(5, dtype=">i4"),
            "times": np.array(["2026-01-02", "NaT"], "M8[ms]"),
            "spans of time": np.arange(6, dtype="m8[D]")[::2],
            "text": np.array(["ab", "c"]),
            "bytes": np.array([b"ab"]),
            "record": record,
            "field": record["b"],
            "raw": np.zeros(2, "V5"),
            "sub": np.zeros(2, dtype=("i4", (2,))),
            "of bytes": np.frombuffer(b"abcd", "i2"),
            "titles": np.zeros(
                2, np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [4], "itemsize": 12})
            ),
            "windows": np.lib.stride_tricks.sliding_window_view(np.arange(6), 3),
        }
    return made


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]


class Box:  # crosses by pickle
    def __init__(self, content: Any) -> None:
        self.content = content


def is_array(value: Any) -> Any:
    return type(value).__name__ == "ndarray"


def outline(value: Any) -> Any:
    # Equal for values that have the same memory in the same way.
    if is_array(value):
        places = value.__array_interface__
        return (
            places["data"],
            value.shape,
            value.strides,
            value.dtype.str,
            value.dtype.names,
            value.dtype.itemsize,
            value.dtype.isalignedstruct,
        )
    view = memoryview(value)
    return view.format, view.shape, view.strides, view.readonly, view.itemsize, view.tobytes()


def address(view: Any) -> Any:
    import numpy as np

    return np.asarray(view).__array_interface__["data"]


def look(value: Any) -> Any:
    expected = "ndarray" if is_array(value) else "memoryview"
    assert type(value).__name__ == expected, type(value)
    return outline(value)


def same(value: Any) -> Any:
    return value


def keep(value: Any) -> Any:
    builtins.kept = value


def give() -> Any:
    return builtins.kept


def drop() -> Any:
    del builtins.kept


def mark(value: Any) -> Any:
    value[0] = 5


def is_kept(value: Any) -> Any:
    return value is builtins.kept
