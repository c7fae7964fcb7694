"""Case R10: pointers that leave a context and are called later, from threads of the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.machine import two_cpus

if TYPE_CHECKING:
    from pathlib import Path

    from support.libraries import Builder

# Called by code of the context while it runs: Python of the host, so it sees what the kernel has.
HOST = """
import ctypes, os, sys, threading, vlcs
from vlcs._core import _native
seen = []
@ctypes.CFUNCTYPE(None)
def observer():
    seen.append((_native.context_name_of(0), sorted(os.sched_getaffinity(0))))
def on_thread(function, *args):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]
"""

GUEST = '''
"""A module of the guest: what it gives away as addresses."""
import ctypes, os, weakref
libc = ctypes.CDLL(None)
values, kept = [], []

def address_of(callback):
    kept.append(callback)
    return ctypes.cast(callback, ctypes.c_void_p).value

def make():
    def called(value):
        values.append(value)
        return libc.sched_getcpu() * 1000 + value
    return address_of(ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(called))

def seen():
    return sorted(values)

def make_reader(begun, end):
    def called():
        os.write(begun, b"x")
        return len(os.read(end, 1))
    return address_of(ctypes.CFUNCTYPE(ctypes.c_int)(called))

def make_raising():
    def called():
        print("before")
        raise ValueError("in a callback")
    return address_of(ctypes.CFUNCTYPE(ctypes.c_int)(called))

def export_numpy():
    """A DLManagedTensor that a consumer has taken over."""
    import numpy
    class Array(numpy.ndarray): pass
    array = numpy.arange(1000.0).view(Array)
    kept.append(weakref.ref(array))
    return take(array.__dlpack__())

def export_torch():
    import torch
    tensor = torch.arange(1000.0, dtype=torch.float64)
    kept.append(weakref.ref(tensor))
    return take(torch.utils.dlpack.to_dlpack(tensor))

def take(capsule):
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, b"used_dltensor")
    return pointer

def export_polars(array, schema):
    import polars
    polars.Series("x", range(1000))._s._export_arrow_to_c(array, schema)

def is_alive():
    return kept[-1]() is not None
'''


@pytest.fixture
def guest(tmp_path: Path) -> dict[str, str]:
    """The environment in which `import given` finds GUEST."""
    (tmp_path / "given.py").write_text(GUEST)
    folders = [str(tmp_path), os.environ.get("PYTHONPATH")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def test_r10_callbacks_in_structs(build: Builder) -> None:
    run_child(
        HOST
        + """
class Tensor(ctypes.Structure): pass
Tensor._fields_ = [("data", ctypes.c_void_p), ("manager", ctypes.c_void_p),
                   ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Tensor)))]
class Array(ctypes.Structure): pass
Array._fields_ = [("length", ctypes.c_long), ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
                  ("private_data", ctypes.c_void_p)]
cpu = int(sys.argv[2])
vlc = vlcs.VLC("a", cpus=[cpu], interpreter=False)
library = vlc.load_library(sys.argv[1])
library.set_observer(observer)
library.tensor_make.restype = ctypes.POINTER(Tensor)
tensor, array = library.tensor_make(100), Array()
library.array_export(ctypes.byref(array))
tensor.contents.deleter = vlc.wrap(tensor.contents.deleter)
array.release = vlc.wrap(array.release)
before = os.sched_getaffinity(0)
on_thread(tensor.contents.deleter, tensor)
on_thread(array.release, ctypes.byref(array))
assert seen == [("a", [cpu])] * 2, seen
assert library.release_count(0) == 2 and not array.release
assert os.sched_getaffinity(0) == before and _native.context_name_of(0) is None

# An address gives an address, the same function the same pointer, and a wrapped one itself.
address = library.address_of("identity")
wrapped = vlc.wrap(address)
assert wrapped != address and vlc.wrap(address) == wrapped == vlc.wrap(wrapped)
identity = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(wrapped)
assert on_thread(identity, 5) == 5 and seen[-1] == ("a", [cpu])
for wrong in (0, -1, None, "f", True, 1 << 64, ctypes.CFUNCTYPE(None)()):
    try:
        vlc.wrap(wrong)
    except vlcs.ArgumentError as error:
        assert "function" in str(error) and "'a'" in str(error), error
    else:
        sys.exit(f"{wrong!r} was wrapped")

vlc.close()
assert identity(5) == 0 and len(seen) == 3
try:
    vlc.wrap(address)
except vlcs.StateError as error:
    assert "closed" in str(error), error
else:
    sys.exit("wrapped in a closed context")
""",
        timeout=30,
        args=[str(build("wrapped.c", "libwrapped.so", "-O1")), str(two_cpus()[0])],
    )


def test_r10_a_comparator_for_the_hosts_libc(build: Builder) -> None:
    """Functions of a Library are wrapped as they are."""
    run_child(
        HOST
        + """
cpu = int(sys.argv[2])
vlc = vlcs.VLC("a", cpus=[cpu], interpreter=False)
library = vlc.load_library(sys.argv[1])
library.set_observer(observer)
numbers = (ctypes.c_int * 5)(5, 3, 9, 1, 7)
host = ctypes.CDLL(None)
on_thread(host.qsort, numbers, 5, 4, library.compare)
assert list(numbers) == [1, 3, 5, 7, 9] and seen and all(one == ("a", [cpu]) for one in seen), seen
assert vlc.wrap(library.compare) is library.compare
count = len(seen)
vlc.close()
host.qsort(numbers, 5, 4, library.compare)
assert len(seen) == count and sorted(numbers) == [1, 3, 5, 7, 9]
""",
        timeout=30,
        args=[str(build("wrapped.c", "libwrapped.so", "-O1")), str(two_cpus()[0])],
    )


def test_r10_a_ctypes_callback_of_a_guest(guest: dict[str, str]) -> None:
    run_child(
        HOST
        + """
import given
cpu = int(sys.argv[1])
vlc = vlcs.VLC("a", cpus=[cpu])
call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(vlc.wrap(vlc.run(given.make)))
results = []
def many(start):
    results.extend(call(start + i) for i in range(100))
threads = [threading.Thread(target=many, args=[start]) for start in (0, 100, 200, 300)]
for thread in threads: thread.start()
while any(thread.is_alive() for thread in threads):
    vlc.run(given.seen)  # its interpreter is used by others meanwhile
assert sorted(results) == [cpu * 1000 + i for i in range(400)], sorted(results)
assert vlc.run(given.seen) == list(range(400))
with vlc:
    assert call(1000) == cpu * 1000 + 1000
assert vlc.submit(given.seen).result()[-1] == 1000

raising = ctypes.CFUNCTYPE(ctypes.c_int)(vlc.wrap(vlc.run(given.make_raising)))
on_thread(raising)  # ctypes says nothing of what it gives then
vlc.close()
assert call(5) == 0 and raising() == 0
""",
        timeout=60,
        env=guest,
        args=[str(two_cpus()[0])],
    )


def test_r10_callbacks_of_a_guest_while_it_is_closed(guest: dict[str, str]) -> None:
    """Each call is made or does nothing; none meets an interpreter that is going."""
    run_child(
        HOST
        + """
import given
for round in range(3):
    vlc = vlcs.VLC("a")
    call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(vlc.wrap(vlc.run(given.make)))
    started = threading.Semaphore(0)
    def until_closed():
        call(1)
        started.release()
        while call(1): pass
    threads = [threading.Thread(target=until_closed) for _ in range(3)]
    for thread in threads: thread.start()
    for _ in threads: started.acquire()
    vlc.close()
    for thread in threads: thread.join()
    assert call(1) == 0
""",
        timeout=60,
        env=guest,
    )


def test_r10_close_waits_for_a_callback(guest: dict[str, str]) -> None:
    run_child(
        HOST
        + """
import given
begun, end = os.pipe(), os.pipe()
vlc = vlcs.VLC("a")
call = ctypes.CFUNCTYPE(ctypes.c_int)(vlc.wrap(vlc.run(given.make_reader, begun[1], end[0])))
results = []
thread = threading.Thread(target=lambda: results.append(call()))
thread.start()
os.read(begun[0], 1)
try:
    vlc.close(timeout=0.2)
except vlcs.BusyError as error:
    assert "wrapped pointers" in str(error) and "'a'" in str(error), error
else:
    sys.exit("closed while a callback was inside")
assert thread.is_alive() and call() == 0
os.write(end[1], b"x")
vlc.close()
thread.join()
assert results == [1], results
""",
        timeout=60,
        env=guest,
    )


DLPACK = """
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int * 2), ("ndim", ctypes.c_int),
                ("dtype", ctypes.c_uint32), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]
class Managed(ctypes.Structure): pass
Managed._fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p),
                    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed)))]
"""


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_r10_the_dlpack_deleter_of(package: str, guest: dict[str, str]) -> None:
    run_child(
        HOST
        + DLPACK
        + """
import given
vlc = vlcs.VLC("a")
def exported():
    managed = Managed.from_address(vlc.run(getattr(given, "export_" + sys.argv[1])))
    assert managed.tensor.ndim == 1 and managed.tensor.shape[0] == 1000
    data = (ctypes.c_double * 1000).from_address(managed.tensor.data)
    assert list(data) == list(range(1000))
    return managed, vlc.wrap(managed.deleter)
for round in range(3):
    managed, deleter = exported()
    on_thread(deleter, ctypes.byref(managed))
    if sys.argv[1] == "numpy":
        assert not vlc.run(given.is_alive)
managed, deleter = exported()
vlc.close()
on_thread(deleter, ctypes.byref(managed))  # its memory is gone, and nobody looks
""",
        timeout=120,
        env=guest,
        args=[package],
    )


def test_r10_the_arrow_release_of_polars(guest: dict[str, str]) -> None:
    run_child(
        HOST
        + """
import given
class Struct(ctypes.Structure): pass
Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(Struct))
class Array(Struct):
    _fields_ = [("length", ctypes.c_int64), ("counts", ctypes.c_int64 * 4), ("buffers", ctypes.c_void_p),
                ("children", ctypes.c_void_p), ("dictionary", ctypes.c_void_p), ("release", Release),
                ("private_data", ctypes.c_void_p)]
class Schema(Struct):
    _fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p),
                ("counts", ctypes.c_int64 * 2), ("children", ctypes.c_void_p),
                ("dictionary", ctypes.c_void_p), ("release", Release), ("private_data", ctypes.c_void_p)]
vlc = vlcs.VLC("a")
for round in range(3):
    array, schema = Array(), Schema()
    vlc.run(given.export_polars, ctypes.addressof(array), ctypes.addressof(schema))
    assert (array.length, schema.format, schema.name) == (1000, b"l", b"x")
    for struct in array, schema:
        on_thread(vlc.wrap(struct.release), ctypes.byref(struct))
        assert not struct.release
vlc.close()
""",
        timeout=60,
        env=guest,
    )
