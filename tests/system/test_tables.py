"""Frames, tables and sparse matrices between contexts: their columns are shared."""

from __future__ import annotations

from support.child import run_child

PANDAS = """
import numpy as np, pandas as pd, pyarrow as pa, vlcs
a = vlcs.VLC("a")
same = lambda value: value

def where(frame):
    \"\"\"Addresses of the memory of each column.\"\"\"
    found = {}
    for name in frame.columns:
        array = frame[name].array
        if hasattr(array, "_pa_array"):
            buffers = [buffer for chunk in array._pa_array.chunks for buffer in chunk.buffers()]
            found[name] = [buffer.address for buffer in buffers if buffer is not None]
            continue
        names = ("_ndarray", "_data", "_mask", "sp_values")
        parts = [getattr(array, part) for part in names if hasattr(array, part)]
        if hasattr(array, "_left"):
            parts = [array._left, array._right]
        found[name] = [part.__array_interface__["data"][0] for part in parts]
        assert found[name], type(array)
    return found
"""


def test_pandas_columns_are_shared() -> None:
    run_child(
        PANDAS
        + """
big = pd.DataFrame(np.random.default_rng(1).random((1_000_000, 8)), columns=list("abcdefgh"))
assert a.run(where, big) == where(big) == where(a.run(same, big))
part = big.iloc[::2, 1:4]
assert a.run(where, part) == where(part) and where(part)["b"] == where(big)["b"]

n = 1000
frame = pd.DataFrame({
    "float": np.arange(n) * 1.5, "int": np.arange(n, dtype="int16"), "bool": np.arange(n) % 2 == 0,
    "complex": np.arange(n) * 1j, "time": pd.date_range("2020", periods=n),
    "zone": pd.date_range("2020", periods=n, tz="Europe/Berlin"),
    "span": pd.to_timedelta(np.arange(n), unit="s"),
    "category": pd.Categorical(["x", "y"] * (n // 2)), "Int": pd.array([*range(n - 1), None], dtype="Int64"),
    "Bool": pd.array([True, None] * (n // 2), dtype="boolean"), "str": ["a", "b"] * (n // 2),
    "period": pd.period_range("2020", periods=n, freq="D"), "interval": pd.interval_range(0, n),
    "arrow int": pd.array(range(n), dtype="int32[pyarrow]"),
    "arrow str": pd.array(["q"] * n, dtype="string[pyarrow]"),
    "arrow list": pd.Series([[1, 2]] * n, dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "sparse": pd.arrays.SparseArray([0, 0, 1, 0] * (n // 4)),
})
pd.testing.assert_frame_equal(a.run(same, frame), frame)
here = where(frame)
assert a.run(where, frame) == here == where(a.run(same, frame))

objects = pd.DataFrame({"object": np.array([1, "x", None] * 5, dtype=object)})  # copied
pd.testing.assert_frame_equal(a.run(same, objects), objects)

def make():
    import builtins
    builtins.made = pd.DataFrame({"x": np.arange(9.0), "y": ["a"] * 9})
    return builtins.made
assert where(a.run(make)) == a.run(lambda: where(__import__("builtins").made))
""",
        timeout=90,
    )


def test_pandas_copies_when_either_side_writes() -> None:
    run_child(
        PANDAS
        + """
def write(frame, value):
    frame.iloc[0, 0] = value
    return float(frame.iloc[0, 0])

for make in (
    lambda: pd.DataFrame({"x": np.arange(5.0), "y": np.arange(5.0)}),
    lambda: pd.DataFrame({"x": pd.array([0.0, 1.0, None], dtype="Float64")}),
):
    frame = make()
    view = frame[["x"]]                                  # as frame's, its values may not change
    assert a.run(write, frame, -1.0) == -1.0
    pd.testing.assert_frame_equal(frame, make())
    back = a.run(same, frame)
    frame.iloc[0, 0] = 7.0                               # nor do those of who received it
    pd.testing.assert_frame_equal(back, make())
    pd.testing.assert_frame_equal(view, make()[["x"]])
    assert where(back) != where(frame)
    address = where(frame)
    frame.iloc[1, 0] = 8.0                               # a frame of its own by now: written in place
    assert where(frame) == address

series = pd.Series(np.arange(5))
other = a.run(same, series)
other.iloc[0] = 9
assert series.iloc[0] == 0

index = pd.Index(np.arange(5))
received = a.run(same, index)
values = pd.Series(received, copy=False)
del received
values.iloc[0] = 9                                       # of an index that nobody else has
assert index[0] == 0

# It is said once, however often a frame crosses.
for _ in range(20):
    a.run(same, frame)
assert len(frame._mgr.blocks[0].refs.referenced_blocks) < 5
""",
        timeout=90,
    )


def test_pandas_kinds() -> None:
    run_child(
        PANDAS
        + """
frame = pd.DataFrame({"i": [1, 2, 3], "s": list("abc"), "f": [1.0, 2.0, 3.0]})
frame.attrs["unit"] = "m"
for value in (
    frame, frame.head(0), frame.iloc[::2], frame[["f"]].T, frame.set_index(["i", "s"]), frame["s"],
    pd.DataFrame(),
    pd.Series([1, 2], name="n"), pd.Series(dtype="float64"), pd.RangeIndex(3), pd.CategoricalIndex(["a"]),
    pd.IntervalIndex.from_breaks([1, 2]), pd.PeriodIndex(["2020"], freq="D"), pd.TimedeltaIndex([1]),
    pd.date_range("2020", periods=3), pd.MultiIndex.from_product([list("ab"), range(3)], names=["x", "y"]),
    pd.Index(["a", None]), pd.array([1, None], dtype="Int64"), pd.array(["a"], dtype="string[pyarrow]"),
):
    back = a.run(same, value)
    assert type(back) is type(value) and back.equals(value), value
assert a.run(same, frame).attrs == {"unit": "m"}
assert a.run(lambda frame: frame.groupby("s").f.sum().to_dict(), frame) == {"a": 1.0, "b": 2.0, "c": 3.0}

class Table(pd.DataFrame):                               # of __main__
    @property
    def _constructor(self): return Table
assert type(a.run(same, Table({"x": [1.0]}))) is Table
try:
    a.run(lambda: pd.DataFrame({"f": [open("/dev/null")]}))
except vlcs.PicklingError as error:
    assert "cannot be pickled" in str(error)
""",
        timeout=90,
    )


def test_frames_outlive_their_context() -> None:
    run_child(
        PANDAS
        + """
import contextlib, gc, os, time
def is_there(context):
    \"\"\"Whether the first thread of a context is, which goes with its interpreter.\"\"\"
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):               # it ends right now
            names.append(open(f"/proc/self/task/{thread}/comm").read().strip())
    return f"vlc:{context}" in names

b = vlcs.VLC("b")
frame = b.run(same, a.run(lambda: pd.DataFrame({"x": np.full(300_000, 1.5), "s": ["text"] * 300_000})))
a.run(gc.collect)
a.close()
assert is_there("a") and (frame.x == 1.5).all() and frame.s.iloc[-1] == "text"
assert b.run(lambda frame: float(frame.x.sum()), frame) == 450_000
del frame
b.run(gc.collect)
gc.collect()
deadline = time.monotonic() + 10
while is_there("a"):
    assert time.monotonic() < deadline
    time.sleep(0.01)
""",
        timeout=90,
    )


def test_scipy_sparse() -> None:
    run_child(
        """
        import numpy as np, scipy.sparse as sparse, vlcs
        a = vlcs.VLC("a")
        dense = np.arange(24.0).reshape(4, 6) % 3
        where = lambda matrix: [
            array.__array_interface__["data"][0]
            for array in vars(matrix).values() for array in (array if type(array) is tuple else (array,))
            if isinstance(array, np.ndarray)
        ]
        for kind in ("csr", "csc", "coo", "bsr", "dia"):
            for flavour in ("array", "matrix"):
                matrix = getattr(sparse, f"{kind}_{flavour}")(dense)
                there, back = a.run(lambda matrix: (where(matrix), matrix), matrix)
                assert type(back) is type(matrix) and len(there) >= 2
                assert there == where(back) == where(matrix)
                assert (back.toarray() == dense).all()
                matrix.data.flat[0] = 9
                assert back.data.flat[0] == 9
        for kind in ("dok", "lil"):                      # of Python's objects: copied
            matrix = getattr(sparse, f"{kind}_array")(dense)
            back = a.run(lambda matrix: matrix, matrix)
            assert type(back) is type(matrix) and (back.toarray() == dense).all()
        """,
        timeout=60,
    )
