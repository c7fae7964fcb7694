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
            (exec, ("class E(Exception):\\n def __init__(self, a): super().__init__()\\nraise E(1)",),
             vlcs.RemoteError, "E"),
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
