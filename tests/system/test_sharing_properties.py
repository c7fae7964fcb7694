"""Properties of shared memory: any type, shape and strides crosses as it is, and both sides see writes."""

from __future__ import annotations

from support.child import run_child

HYPOTHESIS = """
from hypothesis import HealthCheck, given, settings, strategies as st
import numpy as np, vlcs
a = vlcs.VLC("a")

@st.composite
def views(draw, negative):
    \"\"\"A shape, an order of its dimensions, a slice of each, and how often all of it repeats.\"\"\"
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    order = draw(st.permutations(range(len(shape))))
    steps = st.sampled_from([1, 2, 3] + ([-1, -2] if negative else []))
    slices = tuple(slice(draw(st.integers(0, 2)) or None, None, draw(steps)) for _ in shape)
    return shape, order, slices, draw(st.sampled_from([None, None, 1, 3]))

def each(limit):
    return settings(max_examples=limit, deadline=None, database=None, derandomize=True,
                    suppress_health_check=list(HealthCheck))
"""


def test_tensors_of_any_strides() -> None:
    run_child(
        HYPOTHESIS
        + """
import torch, warnings
warnings.simplefilter("ignore")
a.run(lambda: __import__("torch").set_num_threads(1))
dtypes = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint32, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e5m2)

def what(tensor):
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()

def as_bytes(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    return bytes(flat.view(torch.uint8).tolist())

def look(tensor):
    \"\"\"What it is there; and then its first item is another.\"\"\"
    was, before = what(tensor), as_bytes(tensor)
    if tensor.numel():
        first = tensor.as_strided((1,), (1,)).view(torch.uint8)
        first.copy_(first ^ 1)
    return was, before, tensor

@each(150)
@given(views(negative=False), st.sampled_from(dtypes))
def check(view, dtype):
    shape, order, slices, repeat = view
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    whole = (torch.arange(size, dtype=torch.uint8) % 2).view(dtype).reshape(shape)
    tensor = whole.permute(order)[slices] if shape else whole
    if repeat:
        tensor = tensor.expand(repeat, *tensor.shape)
    before = as_bytes(tensor)
    there, bytes_there, back = a.run(look, tensor)
    assert there == what(tensor) == what(back) and bytes_there == before
    assert as_bytes(back) == as_bytes(tensor)
    assert (as_bytes(tensor) != before) == (tensor.numel() > 0)   # written there, seen here
check()
""",
        timeout=120,
    )


def test_arrays_of_any_strides() -> None:
    run_child(
        HYPOTHESIS
        + """
dtypes = ("?", "b", "u1", "i2", ">i4", "u8", "f2", "f4", ">f8", "g", "F", "D",
          "M8[us]", "m8[D]", "S3", "U2", "V5", [("x", "i4"), ("y", "f8", 2)])

def look(array):
    was = array.__array_interface__["data"], array.dtype, array.shape, array.strides
    before = array.tobytes()
    if array.size and array.flags.writeable:
        first = np.lib.stride_tricks.as_strided(array, (1,), (array.itemsize,)).view("u1")
        first ^= 1
    return was, before, array

@each(250)
@given(views(negative=True), st.sampled_from(dtypes), st.booleans())
def check(view, dtype, writeable):
    shape, order, slices, repeat = view
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    whole = (np.arange(size, dtype=np.uint8) % 2).view(dtype).reshape(shape)
    array = whole.transpose(order)[slices] if shape else whole
    if repeat:
        array = np.lib.stride_tricks.as_strided(array, (repeat, *array.shape), (0, *array.strides))
    if not writeable:
        array.flags.writeable = False
    before = array.tobytes()
    there, bytes_there, back = a.run(look, array)
    assert bytes_there == before and there[1:3] == (array.dtype, array.shape) == (back.dtype, back.shape)
    assert not array.size or there[0] == array.__array_interface__["data"]
    strides = lambda strides: [stride for stride, size in zip(strides, array.shape) if size > 1]
    assert not array.size or strides(there[3]) == strides(array.strides)
    assert back.tobytes() == array.tobytes()
    assert (array.tobytes() != before) == bool(array.size and array.flags.writeable)
with np.errstate(all="ignore"):
    check()
""",
        timeout=120,
    )
