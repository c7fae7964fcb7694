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
    return {polars.DataFrame: _reduce, polars.Series: _reduce}


def _reduce(value: Any) -> Any:
    polars = sys.modules["polars"]
    is_frame = isinstance(value, polars.DataFrame)
    dtypes = value.dtypes if is_frame else [value.dtype]
    if not dtypes or polars.Object in dtypes or not hasattr(value, "__arrow_c_stream__"):  # that is of 1.3
        return value.__reduce_ex__(5)
    loan = sharing.native.arrow_lend(value.__arrow_c_stream__())
    if loan is None:
        return value.__reduce_ex__(5)
    kind = "DataFrame" if is_frame else "Series"
    return sharing.rebuilt("polars", "borrowed", kind, pickle.PickleBuffer(loan))


def borrowed(kind: str, lease: Any) -> Any:
    """A frame or series on memory that is shared."""
    # A context that makes contexts itself has two modules of C code, and the lease is one of either's.
    for native in (sharing.native, sys.modules.get("vlcs._core._native")):
        stream = native.arrow_borrow(lease) if native is not None else None
        if stream is not None:
            return getattr(importlib.import_module("polars"), kind)(stream)
    raise TypeError(f"{lease!r} is no lease of this interpreter")
