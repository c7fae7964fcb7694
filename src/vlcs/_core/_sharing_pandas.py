"""Rules for pandas: a frame crosses as `frame.copy(deep=False)` would make it.

Its columns are shared, as NumPy's or Arrow's arrays, and copied before either side writes to them for the
first time: pandas 3 copies on write what another frame refers to, so both sides are told that one does.
pandas 2 writes in place, unless its option mode.copy_on_write is on, and then both sides see it.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import _vlcs_sharing as sharing  # type: ignore[import-not-found]  # what `_sharing.py` is called on both sides

_INDEXES = ("Index", "CategoricalIndex", "DatetimeIndex", "IntervalIndex", "PeriodIndex", "TimedeltaIndex")


def rules() -> dict[Any, Any]:
    """The rules by type."""
    pandas = sys.modules["pandas"]
    blocks, managers = (sys.modules[f"pandas.core.internals.{name}"] for name in ("blocks", "managers"))
    table: dict[Any, Any] = {getattr(pandas, name): _reduce_index for name in _INDEXES}
    table[managers.BlockManager] = table[managers.SingleBlockManager] = _reduce_manager
    table.update((kind, _reduce_block) for kind in vars(blocks).values() if _is_block(kind, blocks.Block))
    for name in ("ArrowExtensionArray", "ArrowStringArray"):  # since 1.5, and without pyarrow too
        if hasattr(pandas.arrays, name):
            table[getattr(pandas.arrays, name)] = _reduce_arrow
    table[pandas.DataFrame] = _reduce_frame
    return table


def _reduce_frame(frame: Any) -> Any:
    return frame.__reduce_ex__(5)  # its manager has a rule


def _reduce_manager(manager: Any) -> Any:
    _mark_manager(manager)
    return sharing.rebuilt("pandas", "manager", sharing.by_reduction(manager.__reduce_ex__(5)))


def manager(made: Any) -> Any:
    """What holds the columns of a frame, on memory that is shared."""
    _mark_manager(made)
    return made


def _is_block(kind: Any, block: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, block)


def _reduce_block(block: Any) -> Any:
    return block.__reduce__()  # its __reduce_ex__ first copies what does not lie in one piece, since pandas 3


def _reduce_index(index: Any) -> Any:
    _mark(getattr(index, "_references", None))
    return sharing.rebuilt("pandas", "index", sharing.by_reduction(index.__reduce_ex__(5)))


def index(made: Any) -> Any:
    """An index on memory that is shared. Nobody writes to it, but to a Series that was made of it."""
    _mark(getattr(made, "_references", None))
    return made


def _reduce_arrow(array: Any) -> Any:
    """As pandas does, which joins the chunks first, and so copies even a single one."""
    values = array._pa_array  # noqa: SLF001
    state = {**vars(array), "_cache": {}, "_pa_array": values.chunks or values.combine_chunks()}
    return sharing.rebuilt("pandas", "arrow", type(array), state)


def arrow(kind: Any, state: Any) -> Any:
    """An array of pandas whose values are Arrow's."""
    made = kind.__new__(kind)
    made.__setstate__(state)
    return made


def _mark_manager(manager: Any) -> None:
    for block in manager.blocks:
        _mark(getattr(block, "refs", None))  # since pandas 2


@functools.lru_cache(maxsize=1)
def _other_side() -> Any:
    """What stands for the frame of the other side. References come from blocks of values and from indexes."""
    return sys.modules["pandas"].Index([])


def _mark(references: Any) -> None:
    """Has pandas believe that something else refers to the same memory, for good."""
    if references is None:
        return
    other = _other_side()
    if not any(reference() is other for reference in references.referenced_blocks):
        references.add_index_reference(other)
