"""Rules for PyTorch: tensors share their memory, and all that is not memory crosses as PyTorch pickles it.

A storage is the block of memory that tensors are views of. The usual tensor is taken apart here; every other
kind (parameters, sparse and quantized tensors, subclasses, those with attributes) by PyTorch, as for
`torch.save`, into storages and plain values that its later versions read too.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import Any

import _vlcs_sharing as sharing  # type: ignore[import-not-found]  # what `_sharing.py` is called on both sides


def rules() -> dict[Any, Any]:
    """The rules by type."""
    torch = sys.modules["torch"]
    if not hasattr(torch.Tensor, "untyped_storage"):  # before PyTorch 2: copied
        return {torch.Tensor: _reduce_by_itself}
    return {
        torch.Tensor: _reduce_tensor,
        torch.storage.TypedStorage: _reduce_typed_storage,
        torch.UntypedStorage: _reduce_storage,
    }


def _reduce_by_itself(tensor: Any) -> Any:
    return tensor.__reduce_ex__(5)


def _reduce_tensor(tensor: Any) -> Any:
    if (
        tensor.requires_grad and not tensor.is_leaf
    ):  # as torch.multiprocessing; torch.save drops the graph silently
        raise ValueError(
            "autograd computed this tensor, and the graph that it belongs to cannot leave its context; pass "
            "tensor.detach()"
        )
    is_usual = (
        tensor.layout is sys.modules["torch"].strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_nested or tensor.__dict__)
    )
    if not is_usual:
        return _reduce_by_itself(tensor)
    place = tensor.dtype, tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
    marks = tensor.requires_grad, tensor.is_conj(), tensor.is_neg()
    return sharing.rebuilt("torch", "tensor", tensor.untyped_storage(), place, marks)


def tensor(storage: Any, place: Any, marks: Any) -> Any:
    """A tensor that is a view of a storage."""
    torch = sys.modules["torch"]
    dtype, *view = place
    made = torch.empty(0, dtype=dtype).set_(storage._untyped_storage, *view)  # noqa: SLF001
    requires_grad, is_conj, is_neg = marks
    if is_conj:
        made = made.conj()
    if is_neg:
        made = torch._neg_view(made)  # noqa: SLF001
    return made.requires_grad_() if requires_grad else made


def _reduce_typed_storage(storage: Any) -> Any:
    untyped = storage._untyped_storage  # noqa: SLF001 - the public names warn that the type will go
    if untyped.device.type != "cpu":
        return storage.__reduce__()
    return sharing.rebuilt("torch", "typed_storage", untyped, storage.dtype)


def typed_storage(storage: Any, dtype: Any) -> Any:
    """A storage with a type, by which kinds of tensors name theirs when they are pickled."""
    untyped = storage._untyped_storage  # noqa: SLF001
    return type(storage)(wrap_storage=untyped, dtype=dtype, _internal=True)


def _reduce_storage(storage: Any) -> Any:
    if storage.device.type != "cpu":
        return storage.__reduce__()
    torch = sys.modules["torch"]
    # numpy() makes the storage keep its place: PyTorch refuses to resize it from then on.
    memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return sharing.rebuilt("torch", "storage", pickle.PickleBuffer(memory) if memory.nbytes else b"")


def storage(memory: Any) -> Any:
    """A storage on shared memory. With a type, as `torch.load` gives it and rebuilding tensors expects it."""
    torch = importlib.import_module("torch")
    untyped = (
        torch.UntypedStorage(0)
        if memory == b""
        else torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    )
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=torch.uint8, _internal=True)
