"""Calls by name with plain values, which take the short way in C: the same outcome as the ordinary way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.child import run_child

if TYPE_CHECKING:
    from pathlib import Path


def test_any_nest_of_values_survives_a_round_trip() -> None:
    run_child(
        """
        import struct, vlcs
        from typing import cast  # cast(kind, value) gives the value
        from hypothesis import HealthCheck, given, settings, strategies as st

        scalars = (
            st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.binary()
            | st.text(st.characters())  # with lone surrogates
            | st.integers(-(2**3000), 2**3000) | st.sampled_from([2**63, 2**63 - 1, -(2**63), -(2**63) - 1])
        )
        keys = st.recursive(
            scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4), max_leaves=5
        )
        values = st.recursive(
            scalars | keys,
            lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=6)
            | st.lists(inner, max_size=4).map(tuple) | st.sets(keys, max_size=5)
            | st.lists(st.floats(), max_size=9) | st.lists(st.integers(-(2**65), 2**65), max_size=9)
            | inner.map(lambda one: [one, one, (one, [one])]),  # one object in several places
            max_leaves=30,
        )

        def text(value):  # that is equal for values of equal types, for nan and -0.0 too
            if isinstance(value, float):
                return struct.pack("d", value).hex()
            if isinstance(value, complex):
                return f"({text(value.real)}, {text(value.imag)})"
            if isinstance(value, dict):
                return f"dict{[(text(key), text(item)) for key, item in value.items()]}"
            if isinstance(value, (list, tuple)):
                return f"{type(value)}{[text(item) for item in value]}"
            if isinstance(value, (set, frozenset)):
                return f"{type(value)}{sorted(text(item) for item in value)}"
            return repr(value)

        def places(value, found, path=()):
            # Where each object stands that can be changed: what is one object there is one here.
            if isinstance(value, (list, dict)):
                found.setdefault(id(value), []).append(path)
                if len(found[id(value)]) > 1:
                    return found
            inner = value.values() if isinstance(value, dict) else value
            if isinstance(value, (list, dict, tuple)):
                for number, item in enumerate(inner):
                    places(item, found, (*path, number))
            return found

        a = vlcs.VLC("a")

        @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(values)
        def check(value):
            back = a.run(cast, int, value)
            assert text(back) == text(value)
            assert list(places(back, {}).values()) == list(places(value, {}).values())
            named = a.run(dict, first=value, second=[value])
            assert text(named) == text({"first": value, "second": [value]})
            if isinstance(value, (list, dict)):
                assert named["second"][0] is named["first"]

        with a:
            check()
        """,
        timeout=100,
    )


def test_containers_that_hold_themselves_or_go_deep() -> None:
    run_child(
        """
        import vlcs
        from typing import cast
        a = vlcs.VLC("a")
        ring = []
        ring += [ring, {"ring": ring}, (1, ring)]
        back = a.run(cast, None, ring)
        assert back[0] is back and back[1]["ring"] is back and back[2] == (1, back)
        knot = ([],)  # a tuple that holds itself
        knot[0].append(knot)
        back = a.run(cast, None, knot)
        assert type(back) is tuple and back[0][0] is back
        for depth in (190, 210, 400):
            deep = []
            for _ in range(depth):
                deep = [deep]
            back = a.run(cast, None, deep)
            while back:
                (back,) = back
                depth -= 1
            assert depth == 0
        """,
        timeout=30,
    )


def test_other_values_go_the_ordinary_way() -> None:
    run_child(
        """
        import array, collections, enum, fractions, http, operator, vlcs
        from typing import cast
        a = vlcs.VLC("a")
        class Level(enum.IntEnum):
            LOW = 1
        class Text(str): pass
        Pair = collections.namedtuple("Pair", "a b")
        for value in (
            True, Level.LOW, http.HTTPStatus.OK, Text("x"), Pair(1, 2), collections.OrderedDict(a=1),
            collections.Counter("aab"), bytearray(b"x"), array.array("d", [1.0]), fractions.Fraction(1, 3),
            range(3), slice(1), ..., NotImplemented, int, len,
        ):
            for nest in (value, [value], {"a": (value,)}):
                back = a.run(cast, None, nest)
                inner = back if nest is value else back[0] if type(back) is list else back["a"][0]
                assert type(inner) is type(value) and inner == value, value
        # Results too, of a call that went the short way.
        assert a.run(fractions.Fraction, "1/3") == fractions.Fraction(1, 3)
        assert type(a.run(collections.Counter, "aab")) is collections.Counter
        for value, words in (
            ((number for number in ()), "generator"), (__import__("threading").Lock(), "lock"),
            (memoryview(b"x"), "released"),
        ):
            if isinstance(value, memoryview):
                value.release()
            try:
                a.run(cast, None, [value])
            except vlcs.PicklingError as error:
                assert words in str(error), error
            else:
                raise AssertionError(value)
        try:
            a.run(__import__("_thread").allocate_lock)
        except vlcs.PicklingError as error:
            assert "its result" in str(error) and "lock" in str(error)
        """,
        timeout=30,
    )


def test_a_name_is_looked_up_in_each_call(tmp_path: Path) -> None:
    module = "def which(): return 'first'\nclass Box:\n    def which(): return 1\n"
    (tmp_path / "changing.py").write_text(module)
    run_child(
        """
        import gc, importlib, sys, weakref, vlcs
        sys.path.insert(0, sys.argv[1])
        import changing
        a = vlcs.VLC("a")
        old = changing.which
        assert [a.run(old) for _ in range(3)] == ["first"] * 3
        assert [a.run(changing.Box.which) for _ in range(2)] == [1, 1]

        # The host's name means something else now: the function that was given is called all the same.
        changing.which = lambda: "replaced"
        assert a.run(old) == "first" and a.run(changing.which) == "replaced"
        changing.which = old
        assert a.run(old) == "first"

        # The context's module is changed, or loaded again: its name is what counts.
        a.run(exec, "import changing; changing.which = lambda: 'patched'")
        assert a.run(old) == "patched"
        a.run(exec, "import importlib, changing; importlib.reload(changing)")
        assert a.run(old) == "first"
        a.run(exec, "import sys; del sys.modules['changing']")
        assert a.run(old) == "first"  # imported again
        a.run(exec, "import changing; del changing.which")
        for _ in range(2):
            try:
                a.run(old)
            except AttributeError as error:
                assert "which" in str(error)
            else:
                raise AssertionError
        a.run(exec, "import importlib, changing; importlib.reload(changing)")

        # Modules that cloudpickle is told to send by value, also after the first call.
        import cloudpickle
        here = {"value": 5}
        exec("def which(): return value", vars(changing) | here, here)
        a.run(old)
        a.run(exec, "import changing; changing.which = lambda: 'patched'")
        cloudpickle.register_pickle_by_value(changing)
        assert a.run(old) == "first"
        cloudpickle.unregister_pickle_by_value(changing)
        assert a.run(old) == "patched"

        # Many functions, more than are remembered; and none is kept alive.
        source = "".join(f"def f{number}(): return {number}\\n" for number in range(500))
        open(sys.argv[1] + "/many.py", "w").write(source)
        many = importlib.import_module("many")
        for _ in range(3):
            assert [a.run(getattr(many, f"f{number}")) for number in range(500)] == list(range(500))
        gone = weakref.ref(many.f7)
        del sys.modules["many"], many
        gc.collect()
        assert gone() is None
        """,
        timeout=60,
        args=[str(tmp_path)],
    )


def test_exceptions_of_the_short_way() -> None:
    run_child(
        """
        import json, operator, vlcs
        a = vlcs.VLC("a")
        for function, args, kind, words in (
            (operator.truediv, (1, 0), ZeroDivisionError, "division by zero"),
            (json.loads, ("{",), json.JSONDecodeError, "Expecting property name"),
            (int, ("x",), ValueError, "'x'"),
            (exec, ("raise SystemExit(3)",), SystemExit, "3"),
            (exec, ("raise KeyboardInterrupt",), KeyboardInterrupt, ""),
            (next, ([],), TypeError, "not an iterator"),
            (exec, ("class E(Exception):\\n __reduce__ = None\\nraise E",), vlcs.RemoteError, "E"),
        ):
            for _ in range(2):
                try:
                    a.run(function, *args)
                except kind as error:
                    assert words in str(error), error
                else:
                    raise AssertionError(function)
        try:
            a.run(json.loads, "{")
        except json.JSONDecodeError as error:
            there = str(error.__cause__)  # the frames over there, without those of the bridge
            assert "decoder.py" in there and "<vlcs guest>" not in there, there
        assert a.run(operator.add, 1, 2) == 3
        a.close()
        for function in (operator.add, lambda a, b: a):
            try:
                a.run(function, 1, 2)
            except vlcs.StateError as error:
                assert "it is closed" in str(error)
            else:
                raise AssertionError
        try:
            a.run()
        except TypeError as error:
            assert "'fn'" in str(error)
        """,
        timeout=30,
    )


def test_numbers_in_a_row() -> None:
    run_child(
        """
        import random, vlcs
        from typing import cast
        a = vlcs.VLC("a")
        random.seed(1)
        makers = (lambda: random.random(), lambda: random.getrandbits(63), lambda: -random.getrandbits(70),
                  lambda: True, lambda: "text", lambda: [1, 2, 3, 4, 5.0], lambda: (1.0,) * 5)
        with a:
            for _ in range(300):
                value = []
                for _ in range(random.randrange(6)):
                    make = random.choice(makers)
                    value += [make() for _ in range(random.randrange(9))]
                for nest in (value, tuple(value), {"x": value}):
                    back = a.run(cast, None, nest)
                    assert back == nest and type(back) is type(nest)
                    items = back["x"] if type(nest) is dict else back
                    assert list(map(type, items)) == list(map(type, value))
            large = [2**70 + number for number in range(20_000)]  # none fits: no more time than others
            assert a.run(cast, None, large) == large
        """,
        timeout=30,
    )


def test_functions_that_look_at_the_frame_of_their_caller() -> None:
    run_child(
        """
        import builtins, operator, sys, warnings, vlcs
        a = vlcs.VLC("a")
        a.run(exec, "frames = 1")
        assert a.run(eval, "1 + 1") == 2 and "__name__" in a.run(eval, "list(globals())")
        for function in (globals, locals, vars, dir):
            try:
                a.run(function)
            except vlcs.PicklingError:  # of the result: it has run
                pass
        assert type(a.run(eval, "__import__('sys')._getframe().f_lineno")) is int
        a.run(exec, "import warnings; warnings.simplefilter('error')")
        calls = (warnings.warn, ("from there",)), (operator.truediv, (1, 0)), (sys.exit, (3,))
        for function, args in calls:
            try:
                a.run(function, *args)
            except (UserWarning, ZeroDivisionError, SystemExit) as error:
                assert error.__cause__ is not None
            else:
                raise AssertionError(function)
        """,
        timeout=30,
    )


def test_text_without_a_line_end_is_shown_before_the_host_prints() -> None:
    finished = run_child(
        """
        import sys, vlcs
        a = vlcs.VLC("a")
        for _ in range(2):
            a.run(print, "there", end=" ")
            print("here", end=" ")
            a.run(exec, "import sys; sys.stdout.buffer.write(b'bytes ')")
            print("end")
            a.run(exec, "import sys; sys.stderr.write('error ')")
            print("end", file=sys.stderr)
        """,
        timeout=30,
    )
    assert finished.lines == ["there here bytes end"] * 2
    assert finished.stderr.splitlines() == ["error end"] * 2


def test_calls_of_a_thread_that_no_context_knows_yet() -> None:
    run_child(
        """
        import gc, operator, threading, vlcs
        contexts = [vlcs.VLC(name) for name in "abc"]
        wrong = []
        def work(number):
            for step in range(300):
                vlc = contexts[(number + step) % 3]
                value = [number, str(step), {"x": 1.5}, (None, b"b")]
                if vlc.run(list, value) != value or vlc.run(operator.add, step, number) != step + number:
                    wrong.append((number, step))
        for _ in range(5):
            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        assert not wrong
        """,
        timeout=60,
    )


def test_the_short_way_is_a_method() -> None:
    run_child(
        """
        import gc, inspect, operator, time, warnings, weakref, vlcs
        class Logged(vlcs.VLC):
            calls = 0
            def run(self, fn, /, *args, **kwargs):
                self.calls += 1
                return super().run(fn, *args, **kwargs)
        a = Logged("a")
        assert a.run(operator.add, 1, 2) == 3 and a.run(lambda x: x, 1) == 1 and a.calls == 2
        assert str(inspect.signature(vlcs.VLC.run)) == "(self, fn, /, *args, **kwargs)"
        assert vlcs.VLC.run.__doc__.startswith("Calls `fn(*args, **kwargs)`")
        without = vlcs.VLC("b", interpreter=False)
        try:
            without.run(operator.add, 1, 2)
        except vlcs.StateError as error:
            assert "interpreter=False" in str(error)
        # A context is there until its call ends, and then it goes without a collection.
        gc.disable()
        warnings.simplefilter("ignore", ResourceWarning)
        assert vlcs.VLC("c").run(operator.add, 1, 2) == 3
        gone = weakref.ref(a)
        del a
        assert gone() is None
        """,
        timeout=30,
    )


def test_arrays_on_the_short_way() -> None:
    run_child(
        """
        import gc, numpy as np, operator, time, weakref, vlcs
        from typing import cast
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        pointer = lambda array: array.__array_interface__["data"][0]
        base = np.arange(24.0).reshape(2, 3, 4)
        fixed = np.arange(5)
        fixed.flags.writeable = False
        record = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
        shared = [base, np.asfortranarray(base), base[0], base[:, 1], base.T, base[::-1], base[..., ::2]]
        shared += [fixed]
        shared += [np.array(7.5), np.float32([[1]]), np.ones((1, 5, 1)), np.ones((3, 1), order="F")]
        shared += [np.zeros(4, dtype=code) for code in "?bBhHiIlLqQefdgFDG"]
        shared += [record, np.zeros(3, dtype=">i4"), np.zeros(2, "S3"), np.zeros(2, "U3")]
        shared += [np.array(["2026-01-02"], dtype="M8[D]"), np.array([3], dtype="m8[s]")]
        copied = [np.zeros((0, 3)), np.array([1, "x", None], dtype=object), np.matrix([[1]]), np.ma.ones(3)]
        for _ in range(3):  # the first array makes the context import NumPy
            for array in shared + copied:
                back = a.run(cast, None, array)
                assert type(back) is type(array) and back.dtype == array.dtype and back.shape == array.shape
                assert np.array_equal(back, array), array
                assert back.flags.writeable == array.flags.writeable
                if array is base or array is shared[1]:
                    assert back.strides == array.strides
                if any(array is one for one in shared) and array.flags.forc:
                    assert pointer(back) == pointer(array), array.dtype
        pair = a.run(cast, None, [base, {"again": base}, (1, base[1])])
        assert pair[0] is pair[1]["again"] and pointer(pair[2][1]) == pointer(base[1])
        a.run(operator.setitem, base, (), 3.0)
        assert (base == 3.0).all()  # written there
        made = a.run(np.full, 300_000, 2.5)
        assert made.flags.writeable and pointer(b.run(cast, None, made)) == pointer(made)
        b.run(operator.setitem, made, 0, 9.0)
        assert made[0] == 9.0

        # Owners end with their last user, wherever that is.
        mine = np.ones(300_000)
        alive = weakref.ref(mine)
        back = a.run(cast, None, mine)
        del mine
        assert alive() is not None and back.sum() == 300_000
        del back
        deadline = time.monotonic() + 10
        while alive() is not None:
            assert time.monotonic() < deadline
            a.run(abs, 1)
        assert a.stats().leases == 1  # `made`
        a.close()
        assert made[1] == 2.5
        """,
        timeout=60,
    )


def test_arrays_where_one_side_has_no_numpy() -> None:
    run_child(
        """
        import sys, vlcs
        a = vlcs.VLC("a")
        a.run(exec, "import numpy")
        assert "numpy" not in sys.modules
        sys.modules["numpy"] = None  # as if it were not installed here
        try:
            a.run(eval, "__import__('numpy').ones(3)")
        except vlcs.PicklingError as error:
            assert "its result cannot be rebuilt here" in str(error)
        del sys.modules["numpy"]
        assert a.run(eval, "__import__('numpy').ones(3)").sum() == 3
        b = vlcs.VLC("b")
        import numpy
        assert a.run(numpy.ones, 2).sum() == 2
        b.run(exec, "import sys; sys.modules['numpy'] = None")
        for _ in range(2):
            try:
                b.run(len, numpy.ones(3))
            except ModuleNotFoundError as error:
                assert "numpy" in str(error)
            else:
                raise AssertionError
        """,
        timeout=60,
    )


def test_mixed_calls_from_many_threads_leave_nothing_behind() -> None:
    run_child(
        """
        import gc, numpy as np, operator, os, threading, vlcs
        from typing import cast
        contexts = [vlcs.VLC(name) for name in "abcd"]
        array = np.arange(1000.0)
        def work(number, calls, wrong):
            for step in range(calls):
                vlc = contexts[(number + step) % 4]
                kind = step % 7
                if kind < 3:
                    good = vlc.run(operator.add, step, number) == step + number
                elif kind == 3:
                    good = vlc.run(list, ("x", step, {"y": 1.5})) == ["x", step, {"y": 1.5}]
                elif kind == 4:
                    good = vlc.run(cast, None, array)[7] == 7
                elif kind == 5:
                    good = vlc.run(np.full, 100, step)[99] == step
                else:
                    try:
                        good = vlc.run(operator.truediv, step, 0) is None
                    except ZeroDivisionError:
                        good = True
                if not good:
                    wrong.append((number, step))
        def round_of(calls):
            wrong = []
            threads = [threading.Thread(target=work, args=(number, calls, wrong)) for number in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert not wrong, wrong[:5]
            for vlc in contexts: vlc.run(gc.collect)
            gc.collect()
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        round_of(1000)
        before = round_of(1000)
        after = round_of(2500)
        assert after - before < 2 << 20, (before, after)
        assert [vlc.stats().leases for vlc in contexts] == [0] * 4
        """,
        timeout=100,
    )


def test_jobs_take_the_short_way_and_run_also_when_the_context_was_shut_since() -> None:
    run_child(
        """
        import fractions, operator, threading, time, vlcs
        a = vlcs.VLC("a")
        futures = [a.submit(time.sleep, 0.3)]
        futures += [a.submit(operator.add, 1, 2), a.submit(lambda x: x, 4)]
        futures += [a.submit(fractions.Fraction, "1/2")]
        a.close()
        assert [future.result() for future in futures[1:]] == [3, 4, fractions.Fraction(1, 2)]
        try:
            a.submit(operator.add, 1, 2)
        except vlcs.StateError as error:
            assert "it is closed" in str(error)
        """,
        timeout=30,
    )
