"""Any nest of supported values comes back with equal types and values; what was one object is one object."""

from __future__ import annotations

import pytest

from support.child import run_child

# `same(value, back)` asserts it, and `values` is a hypothesis strategy of nests.
PRELUDE = """
import array, collections, dataclasses, datetime, decimal, enum, fractions, ipaddress, math, pathlib, struct
import types, typing, uuid, zoneinfo
import numpy as np, vlcs
from typing import cast  # cast(kind, value) gives the value
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
class Colour(enum.Enum):
    RED = "red"
    BLUE = (1, 2)
class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
class Whole(int): pass
class Words(str): pass
class Ratio(float): pass
class Row(list): pass
class Table(dict):
    def __init__(self, *args):
        super().__init__(*args)
        self.reads = 0
Pair = collections.namedtuple("Pair", "left right")
class Typed(typing.NamedTuple):
    name: str
    rest: object = None
@dataclasses.dataclass
class Open:
    one: object
    two: object = None
@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    one: object
    two: object = None
class Plain:
    def __init__(self, **fields): vars(self).update(fields)
class Slotted:
    __slots__ = ("one", "__dict__")
class Bare:
    __slots__ = ("one",)
class Custom(Exception):
    def __init__(self, code, *, detail):
        super().__init__(f"code {code}")
        self.code, self.detail = code, detail

NUMPY = (np.ndarray, np.generic)
ONE = (type(None), bool, type(...), type(NotImplemented), type, types.BuiltinFunctionType, enum.Enum)
EXACT = (
    int, str, bytes, range, slice, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, ipaddress.IPv4Address, array.array,
    bytearray,
)

def text(item):
    # Of what a set can hold, equal for equal values: a set in a set has no order of its own.
    kind = type(item).__name__
    if isinstance(item, (frozenset, tuple)):
        inside = map(text, item)
        return f"{kind}({', '.join(sorted(inside) if isinstance(item, frozenset) else inside)})"
    if isinstance(item, Closed):
        return f"{kind}({text(item.one)}, {text(item.two)})"
    return struct.pack("d", item).hex() if isinstance(item, float) else f"{kind} {item!r}"

def parts(value):
    # What a value is made of, beside its own items: attributes in dictionaries and slots.
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if kind.__module__ == "__main__" and isinstance(member, types.MemberDescriptorType):
                found[name] = getattr(value, name)
    return found

def same(value, back, there=None, here=None):
    there = {} if there is None else there
    here = {} if here is None else here
    assert type(value) is type(back), (value, back)
    if isinstance(value, ONE):
        assert value is back, (value, back)
        return
    if isinstance(value, (float, complex)) and not isinstance(value, np.generic):
        bits = (value.real, value.imag) if isinstance(value, complex) else (value,)
        bits_back = (back.real, back.imag) if isinstance(back, complex) else (back,)
        assert [struct.pack("d", x) for x in bits] == [struct.pack("d", x) for x in bits_back], (value, back)
        return
    if not isinstance(value, (int, range, slice, str)):  # the names of attributes are interned
        if id(value) in there:
            assert there[id(value)][1] is back, ("one object became two", value)
            return
        there[id(value)] = value, back
        if type(value).__hash__ is None or isinstance(value, (Plain, Slotted, Bare)):  # what can be changed
            assert id(back) not in here, ("two objects became one", value)
            here[id(back)] = back
    if isinstance(value, NUMPY):
        assert value.dtype == back.dtype and value.shape == back.shape, (value, back)
        if value.dtype.hasobject:
            for one, other in zip(value.flat, back.flat):
                same(one, other, there, here)
        else:
            assert value.tobytes() == back.tobytes(), (value, back)
        if isinstance(value, np.ndarray):
            assert value.flags.writeable == back.flags.writeable or value.size == 0 or value.dtype.hasobject
    elif isinstance(value, memoryview):
        assert (value.tobytes(), value.format, value.shape) == (back.tobytes(), back.format, back.shape)
    elif isinstance(value, EXACT):
        assert (value == back or value != value) and repr(value) == repr(back), (value, back)
        if isinstance(value, datetime.datetime):
            assert value.tzinfo == back.tzinfo and value.fold == back.fold
    elif isinstance(value, collections.abc.Mapping):
        assert len(value) == len(back), (value, back)
        for (key, item), (key_back, item_back) in zip(value.items(), back.items()):
            same(key, key_back, there, here)
            same(item, item_back, there, here)
        same(getattr(value, "default_factory", None), getattr(back, "default_factory", None))
    elif isinstance(value, (set, frozenset)):
        assert len(value) == len(back)
        assert sorted(map(text, value)) == sorted(map(text, back)), (value, back)
    elif isinstance(value, (tuple, list, collections.deque)):
        assert len(value) == len(back), (value, back)
        for item, item_back in zip(value, back):
            same(item, item_back, there, here)
        assert getattr(value, "maxlen", None) == getattr(back, "maxlen", None)
    elif isinstance(value, BaseException):
        same(value.args, back.args, there, here)
    else:
        assert isinstance(value, (Plain, Open, Closed, Slotted, Bare, types.SimpleNamespace)), type(value)
    mine, others = parts(value), parts(back)
    assert list(mine) == list(others), (value, back)
    for one, other in zip(mine.values(), others.values()):
        same(one, other, there, here)

zones = st.none() | st.just(datetime.timezone.utc) | st.sampled_from(["UTC"]).map(zoneinfo.ZoneInfo)
scalars = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**2000), 2**2000) | st.floats()
    | st.complex_numbers() | st.binary() | st.text(st.characters())
    | st.sampled_from([..., NotImplemented, int, len])
    | st.sampled_from([*Level, *Colour, Access.READ, Access.READ | Access.WRITE])
    | st.integers().map(Whole) | st.text().map(Words) | st.floats().map(Ratio)
    | st.datetimes(timezones=zones) | st.dates() | st.times() | st.timedeltas()
    | st.decimals(allow_nan=False) | st.fractions() | st.uuids() | st.ip_addresses(v=4)
    | st.text("ab/.", min_size=1).map(pathlib.Path)
    | st.builds(range, st.integers(), st.integers(), st.integers(1))
)
hashable = st.recursive(
    scalars,
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4) | st.builds(Pair, inner, inner)
    | st.builds(Closed, inner),
    max_leaves=5,
)
def sliced(draw):
    base = draw(arrays)
    return [base, base[::2], base[::-1], base.T, base[:0]] if base.ndim else [base]
dtypes = st.sampled_from([
    "?", "i1", "<i4", ">i8", "u2", "f2", "f4", ">f8", "c16", "S3", "U2", "M8[ns]", "m8[D]",
    [("a", "i4"), ("b", "f8", (2,))], "O",
])
def make_array(kind, shape, order, fixed):
    made = np.zeros(shape, dtype=kind, order=order)
    if made.dtype.kind in "biufc":
        made.flat[:] = np.arange(made.size) % 2
    made.flags.writeable = not fixed
    return made
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
arrays = st.builds(make_array, dtypes, shapes, st.sampled_from("CF"), st.booleans())
views = st.composite(sliced)()
others = (
    arrays | views | st.binary().map(bytearray) | st.binary(min_size=1).map(memoryview)
    | st.lists(st.floats(), max_size=4).map(lambda items: array.array("d", items))
    | st.floats().map(np.float64) | st.integers(-9, 9).map(np.int8) | st.just(np.datetime64("2026-01-02"))
    | st.builds(slice, st.integers(), st.integers()) | st.just(np.zeros(2, dtype=[("a", "i4")])[0])
)
def plain(one, two):
    made = Plain(one=one, two=two)
    made.me = made  # which holds itself
    return made
def several(one):
    return [one, one, (one, [one]), {"one": one}]  # one object in several places
def slotted(one, two):
    made = Slotted()
    made.one, made.two = one, two
    return made
def bare(one):
    made = Bare()
    made.one = one
    return made
def table(items):
    made = Table(items)
    made.reads = len(items)
    return made
def knot(items):
    items.append(items)  # and so does this
    items.append((items, {"knot": items}))
    return items
def nests(inner):
    lists, dicts = st.lists(inner, max_size=5), st.dictionaries(hashable, inner, max_size=5)
    return (
        lists | dicts | lists.map(tuple) | st.sets(hashable, max_size=4) | lists.map(Row) | lists.map(knot)
        | lists.map(collections.deque) | st.builds(collections.deque, lists, st.just(9)) | dicts.map(table)
        | dicts.map(collections.OrderedDict) | dicts.map(lambda d: collections.defaultdict(list, d))
        | st.lists(st.text(max_size=2)).map(collections.Counter) | st.builds(Pair, inner, inner)
        | st.builds(Typed, st.text(), inner) | st.builds(Open, inner, inner) | st.builds(Closed, inner, inner)
        | st.builds(plain, inner, inner) | st.builds(slotted, inner, inner)
        | st.builds(bare, inner)
        | st.builds(lambda one: types.SimpleNamespace(one=one), inner)
        | st.builds(lambda one, two: Custom(one, detail=two), inner, inner)
        | st.builds(several, inner)
    )
values = st.recursive(scalars | others, nests, max_leaves=15)
a, b = vlcs.VLC("a"), vlcs.VLC("b")
options = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
"""


@pytest.mark.parametrize(
    "way", ["a.run(cast, int, value)", "a.run(lambda x: x, value)", "a.run(dict, x=value)['x']"]
)
def test_any_nest_of_values_survives_a_round_trip(way: str) -> None:
    run_child(
        PRELUDE.replace("EXAMPLES", "250")
        + f"""
@options
@given(values)
def check(value):
    same(value, {way})
with a:
    check()
""",
        timeout=200,
    )


def test_values_that_went_through_two_contexts_and_a_job() -> None:
    run_child(
        PRELUDE.replace("EXAMPLES", "80")
        + """
@options
@given(values)
def check(value):
    same(value, b.submit(lambda x: x, a.submit(cast, int, value).result()).result())
check()
""",
        timeout=200,
    )


def test_strided_arrays_are_shared_there_and_back() -> None:
    run_child(
        """
        import numpy as np, vlcs
        from typing import cast
        a = vlcs.VLC("a")
        where = lambda array: array.__array_interface__["data"][0]
        for kind in ("f8", ">i8", [("a", "i4"), ("b", "f8")], "S3", "M8[s]"):
            base = np.zeros((6, 4), dtype=kind)
            for array in (base[::2], base[::-1], base.T, base[1:, ::3], base[:, 2]):
                for fixed in (False, True):
                    array.flags.writeable = not fixed
                    for _ in range(2):
                        back = a.run(cast, None, [array, object])[0]  # by pickle, for the class beside it
                        assert (where(back), back.strides) == (where(array), array.strides), kind
                        assert back.dtype == array.dtype and back.flags.writeable == array.flags.writeable
                        assert where(a.run(lambda x: x, back)) == where(array)
        # What cannot be shared is copied as it is.
        items = np.array([(1, None), (2, "x")], dtype=[("a", ">i4"), ("b", "O")])
        back = a.run(cast, None, [items["a"], object])[0]
        assert back.dtype == np.dtype(">i4") and back.tolist() == [1, 2]
        """,
        timeout=60,
    )


def test_slots_of_classes_without_a_name_to_import() -> None:
    run_child(
        """
        import vlcs
        a = vlcs.VLC("a")
        class Base:
            __slots__ = ("one", "__private")
            def __init__(self, one): self.one, self.__private = one, [one]
            def both(self): return self.one, self.__private
        class Derived(Base):
            __slots__ = "two"
        value = Derived(1)
        value.two = 2
        def look(value):
            value.one += 10
            return hasattr(value, "__dict__"), value.both(), value.two, value
        has_dict, both, two, back = a.run(look, value)
        assert (has_dict, both, two) == (False, (11, [1]), 2)
        assert type(back) is Derived and back.both() == (11, [1]) and back.two == 2
        def make():
            class There:
                __slots__ = ("x",)
            made = There()
            made.x = 5
            return made
        made = a.run(make)
        assert made.x == 5 and not hasattr(made, "__dict__")
        assert a.run(lambda made: made.x, made) == 5
        """,
        timeout=30,
    )
