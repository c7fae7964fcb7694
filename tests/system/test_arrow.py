"""Tables of polars and pyarrow between contexts: shared, whatever is in them, and released by their owner."""

from __future__ import annotations

from support.child import run_child

POLARS = """
import contextlib, datetime as dt, gc, os, time, decimal, polars as pl, pyarrow as pa, vlcs
a = vlcs.VLC("a")
same = lambda value: value

def where(series):
    \"\"\"Addresses of the memory of a series, and of what is nested in it.\"\"\"
    def addresses(array):
        if array.type.num_fields and isinstance(array, pa.StructArray):
            return [addresses(array.field(number)) for number in range(array.type.num_fields)]
        return [buffer.address for buffer in array.buffers() if buffer is not None]
    array = series.to_arrow(compat_level=pl.CompatLevel.newest())
    return [addresses(chunk) for chunk in getattr(array, "chunks", [array])]

def is_there(context):
    \"\"\"Whether the first thread of a context is, which goes with its interpreter.\"\"\"
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):               # it ends right now
            names.append(open(f"/proc/self/task/{thread}/comm").read().strip())
    return f"vlc:{context}" in names

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def wait_until(reached):
    deadline = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


def test_polars_shares_every_type() -> None:
    run_child(
        POLARS
        + """
numbers = {
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
}
day, moment = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)
columns = {
    **{str(dtype): pl.Series([1, None, 3] * 2, dtype=dtype) for dtype in numbers},
    "bool": pl.Series([True, None, False] * 2), "str": pl.Series(["a", None, "long enough for a buffer"] * 2),
    "bin": pl.Series([b"a", None, b"x" * 40] * 2), "date": pl.Series([day] * 6),
    "time": pl.Series([dt.time(1, 2, 3)] * 6), "ms": pl.Series([moment] * 6, dtype=pl.Datetime("ms")),
    "zone": pl.Series([moment] * 6).dt.replace_time_zone("Europe/Berlin"),
    "span": pl.Series([dt.timedelta(1)] * 6), "decimal": pl.Series([decimal.Decimal("1.10")] * 6),
    "list": pl.Series([[1, 2], None, []] * 2), "array": pl.Series([[1, 2]] * 6, dtype=pl.Array(pl.Int64, 2)),
    "struct": pl.Series([{"x": 1, "y": "s"}] * 6), "nested": pl.Series([[{"x": ["q"]}]] * 6),
    "category": pl.Series(["a", "b", None] * 2, dtype=pl.Categorical), "null": pl.Series([None] * 6),
    "enum": pl.Series(["a", "b", None] * 2, dtype=pl.Enum(["a", "b"])),
    "Int128": pl.Series(range(6), dtype=pl.Int128),
}
moves = {"bool", "category", "enum", "null", "Int128"}      # to_arrow() itself makes something new of these
for name, series in columns.items():
    series = series.alias(name)
    back = a.run(same, series)
    assert back.dtype == series.dtype and back.name == name and back.equals(series, null_equal=True), name
    if name not in moves:
        assert a.run(where, series) == where(series) == where(back), name

frame = pl.DataFrame(columns)
for value in (
    frame, frame.head(0), pl.concat([frame, frame], rechunk=False), frame[2:4],
    frame.filter(pl.col("Int8") > 1),
):
    back = a.run(same, value)
    assert back.equals(value) and back.schema == value.schema and back.n_chunks() == value.n_chunks()
empty = pl.DataFrame(), pl.Series(dtype=pl.String), pl.Series("n", [], dtype=pl.Int8)
for value in (*empty, frame["str"][1:3]):
    back = a.run(same, value)
    assert type(back) is type(value) and back.equals(value)
assert a.run(same, frame.lazy().select("str")).collect().equals(frame.select("str"))   # its plan crosses
objects = pl.Series([object()], dtype=pl.Object)
try:
    a.run(same, objects)
except vlcs.PicklingError as error:
    assert "type Object" in str(error), error
else:
    raise SystemExit("objects crossed")

def fail(frame):
    raise ValueError(frame)                              # an exception crosses in one piece: by a copy
try:
    a.run(fail, frame)
except ValueError as error:
    assert error.args[0].equals(frame)

big = pl.DataFrame({"x": range(1_000_000), "s": ["some text"] * 1_000_000})
assert a.run(lambda frame: [where(frame[name]) for name in "xs"], big) == [where(big[name]) for name in "xs"]
summed = a.run(lambda frame: frame.group_by("s").agg(pl.col("x").sum()), big)
assert summed.to_dicts() == [{"s": "some text", "x": 499_999_500_000}]
""",
        timeout=90,
    )


def test_polars_memory_lives_as_long_as_it_is_held() -> None:
    run_child(
        POLARS
        + """
import builtins
b = vlcs.VLC("b")
def hold(frame):
    builtins.held = frame
make = lambda: pl.DataFrame({"x": [1.5] * 300_000, "s": ["some longer text"] * 300_000})
made = a.run(make)
passed = b.run(same, made)                               # a -> host -> b -> host
kept = passed["x"][:100_000]                             # of its memory, a part
b.run(hold, made)
del made
a.close()
assert passed.equals(make()) and b.run(lambda: builtins.held.equals(make()))
del passed
b.run(hold, None)
gc.collect()
b.run(gc.collect)
time.sleep(0.2)
assert is_there("a") and kept.sum() == 150_000
del kept
wait_until(lambda: not is_there("a"))          # a's memory goes with its last part

# A column that goes to and fro does not keep what else was there each time.
b.run(make)
frame, before = make(), resident()
for number in range(100):
    frame = b.run(lambda frame: frame.with_columns(y=pl.col("x") + 1), frame)
    frame = frame.drop("y") if number % 2 else frame
gc.collect()
b.run(gc.collect)
assert resident() - before < 60 << 20, resident() - before  # of 100 times 2.4 MB, a few
del frame

# The host's, held by a context that is closed with it.
mine = make()
b.run(hold, mine)
b.close()
assert mine.equals(make())

# Called within Arrow's threads: a frame that is dropped in the middle of a query.
c = vlcs.VLC("c")
lazy = c.run(make).lazy().with_columns(pl.col("x") * 2)
assert lazy.collect(engine="streaming")["x"].sum() == 900_000
del lazy
gc.collect()
c.close()
wait_until(lambda: not is_there("b") and not is_there("c"))
""",
        timeout=90,
    )


def test_polars_many_calls_leave_nothing() -> None:
    run_child(
        POLARS
        + """
def some_calls(count):
    for number in range(count):
        frame = pl.DataFrame({"x": [float(number)] * 1000, "s": ["some longer text"] * 1000})
        assert a.run(same, frame)["x"][0] == number
        assert a.run(pl.Series, "made", [number] * 1000)[-1] == number
    gc.collect()
    a.run(gc.collect)
some_calls(500)
before = resident()
some_calls(2000)
grown = resident() - before
assert grown < 8 << 20, grown                            # held, they would be 100 MB
""",
        timeout=120,
    )


def test_pyarrow_shares_every_type() -> None:
    run_child(
        """
        import datetime as dt, decimal, pyarrow as pa, vlcs
        a = vlcs.VLC("a")
        same = lambda value: value
        def where(value):
            if isinstance(value, (pa.Table, pa.RecordBatch)):
                return [where(column) for column in value.columns]
            if isinstance(value, pa.ChunkedArray):
                return [where(chunk) for chunk in value.chunks]
            inner = [where(value.dictionary)] if isinstance(value, pa.DictionaryArray) else []
            return [buffer and buffer.address for buffer in value.buffers()] + [value.offset, *inner]

        text = ["a", None, "long enough for a buffer"]
        numbers, words, first = pa.array([1, 2]), pa.array(["a", "b"]), pa.array([0, 0], pa.int32())
        arrays = [
            pa.array([1, None, 3]), pa.array(text), pa.array(text, pa.large_string()),
            pa.array(text, pa.string_view()), pa.array([b"a" * 30], pa.binary_view()),
            pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("ns", "UTC")), pa.array([dt.date(2020, 1, 1)]),
            pa.array([True, None]), pa.array([decimal.Decimal("1.1")]),
            pa.array([[1], None, [2, 3]]), pa.array([[1]], pa.large_list(pa.int8())),
            pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.array([{"x": 1, "y": ["z"]}]),
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.array(text).dictionary_encode(),
            pa.nulls(3), pa.array([b"ab"], pa.binary(2)), pa.array([1], pa.duration("s")),
            pa.array([(1, 2, 3)], pa.month_day_nano_interval()), pa.array([], pa.string()),
            pa.RunEndEncodedArray.from_arrays([2, 3], words), pa.array([b"0" * 16], pa.uuid()),
            pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [numbers, words]),
            pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), first, [numbers, words]),
        ]
        for whole in arrays:
            for array in (whole, whole[1:]):
                back = a.run(same, array)
                assert back.equals(array) and back.type == array.type
                assert a.run(where, array) == where(array) == where(back), array.type

        table = pa.table({"x": [1.5] * 1000, "s": ["text"] * 1000}, metadata={"unit": "m"})
        table = pa.concat_tables([table, table.slice(10, 20)])
        for value in (table, table.to_batches()[0], table["s"], table.slice(5, 3)):
            back = a.run(same, value)
            assert back.equals(value) and a.run(where, value) == where(value) == where(back)
        assert a.run(same, table).schema.equals(table.schema, check_metadata=True)
        for value in (table.schema, pa.scalar(1), pa.int8(), pa.field("x", pa.int8()), pa.py_buffer(b"abc")):
            assert a.run(same, value).equals(value)
        assert a.run(same, pa.py_buffer(b"abc")).is_mutable is False

        made = a.run(lambda: pa.table({"x": range(300_000), "s": ["text"] * 300_000}))
        a.run(__import__("gc").collect)
        a.close()
        assert made["x"][-1].as_py() == 299_999 and made["s"][0].as_py() == "text"
        """,
        timeout=60,
    )


def test_many_threads_and_contexts() -> None:
    run_child(
        POLARS
        + """
import queue, threading, numpy as np, pandas as pd
contexts = [a, vlcs.VLC("b"), vlcs.VLC("c")]
dropped = queue.SimpleQueue()                            # whatever it is, another thread drops it
def drop():
    while dropped.get() is not None:
        pass
make = {
    "polars": lambda n: pl.DataFrame({"x": [n] * 3000, "s": ["some longer text"] * 3000}),
    "pandas": lambda n: pd.DataFrame({"x": np.full(3000, n), "s": ["text"] * 3000}),
    "arrow": lambda n: pa.table({"x": [n] * 3000, "s": ["text"] * 3000}),
}
first = {
    "polars": lambda frame: frame["x"][0],
    "pandas": lambda frame: frame["x"].iloc[0],
    "arrow": lambda table: table["x"][0].as_py(),
}
failures = []
def work(number):
    try:
        for turn in range(number * 1000, number * 1000 + 60):
            one, other = contexts[turn % 3], contexts[(turn + 1) % 3]
            for kind in make:
                value = make[kind](turn) if turn % 2 else one.run(make[kind], turn)
                value = other.run(same, one.run(same, value))
                assert first[kind](value) == turn
                dropped.put(value)
    except BaseException as error:
        failures.append(error)
        raise
def run_all():
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    droppers = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads + droppers: thread.start()
    for thread in threads: thread.join()
    for _ in droppers: dropped.put(None)
    for thread in droppers: thread.join()
    assert not failures, failures
    gc.collect()
    for context in contexts: context.run(gc.collect)
run_all()
for context in contexts:
    wait_until(lambda: context.run(gc.collect) is not None and context.stats().leases == 0)
before = resident()
run_all()
assert resident() - before < 16 << 20, resident() - before  # held, they would be 150 MB
for context in contexts: context.close()
wait_until(lambda: not any(map(is_there, "abc")))
""",
        timeout=150,
    )
