"""What pickle copies, but a context can share: memoryviews and PyTorch tensors.

Both sides of the bridge need these rules, and the guest may be a Python that has no vlcs: this file
travels as text, as `_guest.py` does. So it imports the standard library only, keeps to the syntax of
Python 3.8, and its pickles name nothing of vlcs: the receiver rebuilds with what every Python has.
NumPy arrays need no rule, as they pickle out of band by themselves.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping


def extend(table: MutableMapping[Any, Callable[[Any], Any]]) -> None:
    """Adds the rules to a pickler's dispatch table; those of packages once they are imported."""
    table.setdefault(memoryview, _reduce_view)
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # None while it is being imported
    if tensor is not None:
        table.setdefault(tensor, _reduce_tensor)


class _Reduced:
    """A step of a rebuilding: pickled as the call that gives its value."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = (function, args)

    def __reduce__(self) -> Any:
        return self._call

    def __call__(self) -> None:
        """Never: but pickle wants what it is to be called as a function to be callable."""


def _named(module: str, name: str) -> Any:
    """A function by its place; many C functions do not know theirs, and pickle would search all modules."""
    return _Reduced(getattr, _Reduced(importlib.import_module, module), name)


def _reduce_view(view: memoryview) -> Any:
    if not view.c_contiguous or not view.nbytes:
        return memoryview, (view.tobytes(),)
    flat = _Reduced(memoryview, pickle.PickleBuffer(view))
    if view.ndim == 1 and view.format == "B":
        return memoryview, (flat,)
    return memoryview.cast, (flat, view.format, view.shape)


def _reduce_tensor(tensor: Any) -> Any:
    shareable = (
        tensor.device.type == "cpu"
        and str(tensor.layout) == "torch.strided"
        and tensor.is_contiguous()
        and tensor.numel() > 0
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
        and not tensor.__dict__
    )
    if not shareable:
        return tensor.__reduce_ex__(5)
    torch = sys.modules["torch"]
    data = tensor.reshape(-1).view(torch.uint8).numpy()
    rebuild = functools.partial(_named("torch", "frombuffer"), dtype=tensor.dtype)
    flat = _Reduced(rebuild, pickle.PickleBuffer(data))
    return _named("torch", "reshape"), (flat, tuple(tensor.shape))
