"""Rules for polars: frames and series share their memory, by the Arrow C stream interface.

polars pickles by a copy. So what its streams give is lent instead (`native/python/arrow.c`), and the polars
of the other side reads a stream of that. Neither needs pyarrow.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import Any

import _vlcs_sharing as sharing  # type: ignore[import-not-found]  # what `_sharing.py` is called on both sides


def rules() -> dict[Any, Any]:
    """The rules by type."""
    polars = sys.modules["polars"]
    if not hasattr(polars.Series, "__arrow_c_stream__"):  # before 1.3: copied
        return {polars.DataFrame: _reduce_by_itself}
    return {polars.DataFrame: _reduce_frame, polars.Series: _reduce_series}


def _reduce_by_itself(value: Any) -> Any:
    return value.__reduce_ex__(5)


def _reduce_frame(frame: Any) -> Any:
    # Each column by itself: what is made of one there does not keep the others here.
    return (
        sharing.rebuilt("polars", "frame", frame.get_columns()) if frame.width else _reduce_by_itself(frame)
    )


def frame(columns: Any) -> Any:
    """A frame of columns that are shared."""
    return sys.modules["polars"].DataFrame(columns)


def _reduce_series(series: Any) -> Any:
    is_object = series.dtype == sys.modules["polars"].Object
    if is_object or sharing.is_copying():
        return _reduce_by_itself(series)
    loan = sharing.native.arrow_lend(series.__arrow_c_stream__())
    if loan is None:
        return _reduce_by_itself(series)
    return sharing.rebuilt("polars", "series", pickle.PickleBuffer(loan))


def series(lease: Any) -> Any:
    """A series on memory that is shared."""
    polars = importlib.import_module("polars")
    # A context that makes contexts itself has two modules of C code, and the lease is one of either's.
    for native in (sharing.native, sys.modules.get("vlcs._core._native")):
        stream = native.arrow_borrow(lease) if native is not None else None
        if stream is not None:
            return polars.Series(stream)
    raise TypeError(f"{lease!r} is no lease of this interpreter")
