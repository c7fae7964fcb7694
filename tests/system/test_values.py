"""What crosses between host and context, and how: arrays shared, the rest by value, exceptions whole."""

from __future__ import annotations

import time

import pytest

from support.child import run_child


def test_arrays_are_shared_both_ways() -> None:
    run_child(
        """
        import numpy as np, vlcs
        a = vlcs.VLC("a")
        there = np.zeros(1_000_000)
        pointer = lambda array: array.__array_interface__["data"][0]
        def fill(array, value):
            array[:] = value
            return array.__array_interface__["data"][0], str(array.dtype), array.shape
        assert a.run(fill, there, 7.0) == (pointer(there), "float64", (1_000_000,))
        assert there[0] == there[-1] == 7.0                      # written there, seen here

        def make():
            import numpy as np, vlcs_kept
            vlcs_kept.array = np.arange(500_000, dtype="int32").reshape(500, 1000)
            return vlcs_kept.array
        def prepare():
            import sys, types
            sys.modules["vlcs_kept"] = types.ModuleType("vlcs_kept")
        a.run(prepare)
        back = a.run(make)
        kept = lambda: __import__("vlcs_kept").array.__array_interface__["data"][0]
        assert pointer(back) == a.run(kept)
        assert back.dtype == np.int32 and back.shape == (500, 1000) and back[499, 999] == 499_999
        back[0, 0] = -5
        assert a.run(lambda: int(__import__("vlcs_kept").array[0, 0])) == -5  # written here, seen there

        # A round trip is the same memory; so is a view of part of it, and an array inside of other values.
        again = a.run(lambda array: array, there)
        assert pointer(again) == pointer(there)
        part = a.run(lambda array: array[10:20:2], there)
        assert part.tolist() == [7.0] * 5
        nested = a.run(lambda box: {"sum": box["x"][0].sum(), "x": box["x"][0]}, {"x": [there, "y"]})
        assert nested["sum"] == 7e6 and pointer(nested["x"]) == pointer(there)

        # Fortran order, read-only arrays, bytearray and memoryview.
        columns = np.asfortranarray(np.arange(200_000.0).reshape(400, 500))
        assert a.run(lambda array: bool(array.flags.f_contiguous), columns)
        fixed = np.arange(100_000)
        fixed.flags.writeable = False
        assert a.run(lambda array: bool(array.flags.writeable), fixed) is False
        """,
        timeout=60,
    )


def test_arrays_do_not_cost_their_size() -> None:
    run_child(
        """
        import time, numpy as np, vlcs
        a = vlcs.VLC("a")
        big = np.zeros(40_000_000)  # 320 MB
        touch = lambda array: array
        a.run(touch, big)
        def best(array):
            times = []
            for _ in range(20):
                start = time.perf_counter()
                back = a.run(touch, array)
                times.append(time.perf_counter() - start)
                assert back.__array_interface__["data"] == array.__array_interface__["data"]
            return min(times)
        small, large = best(big[:100_000]), best(big)
        assert large < small * 3 + 0.001, (small, large)  # a copy takes tenths of a second
        """,
        timeout=60,
    )


def test_owners_stay_alive() -> None:
    run_child(
        """
        import gc, weakref, numpy as np, vlcs
        a = vlcs.VLC("a")
        # The context drops its array; the host still reads it.
        held = a.run(lambda: __import__("numpy").full(300_000, 3.5))
        for _ in range(20):
            a.run(lambda: len([__import__("numpy").zeros(300_000) for _ in range(3)]))
            a.run(gc.collect)
        assert (held == 3.5).all()
        # The host drops its array; the context still reads it.
        def keep(array):
            import builtins
            builtins.vlcs_kept = array
        mine = np.full(300_000, 2.25)
        alive = weakref.ref(mine)
        a.run(keep, mine)
        del mine
        gc.collect()
        for _ in range(20):
            np.zeros(300_000)
        assert a.run(lambda: bool((__import__("builtins").vlcs_kept == 2.25).all()))
        # And lets go: the owner ends when its last user does.
        def drop():
            import builtins, gc
            del builtins.vlcs_kept
            gc.collect()
        a.run(drop)
        gc.collect()
        import time
        for _ in range(100):  # released by its own interpreter, when that next gets to it
            if alive() is None:
                break
            a.run(len, "")
            gc.collect()
            time.sleep(0.01)
        assert alive() is None
        """,
        timeout=60,
    )


def test_arrays_between_two_contexts() -> None:
    run_child(
        """
        import numpy as np, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        made = a.run(lambda: __import__("numpy").arange(200_000.0))
        where = lambda array: array.__array_interface__["data"][0]
        assert b.run(where, made) == where(made)
        def double(array):
            array *= 2
        b.run(double, made)
        assert made[100] == 200.0
        """,
        timeout=30,
    )


def test_results_outlive_a_closed_context() -> None:
    finished = run_child(
        """
        import os, threading, time, numpy as np, vlcs
        a, b = vlcs.VLC("a", cpus=None, threads=2), vlcs.VLC("b")
        def make():
            import atexit, threading, numpy, time
            atexit.register(print, "end of a")
            threading.Thread(target=lambda: (time.sleep(0.2), print("thread of a"))).start()
            return numpy.full(300_000, 1.5)
        held = a.run(make)
        part = held[:10]
        there = b.run(lambda array: (globals().__setitem__("kept", array), array)[1], held)
        assert vlcs.contexts() == [a, b]
        a.close()
        print("closed")
        assert a.closed and vlcs.contexts() == [b]
        vlcs.VLC("a", interpreter=False).close()  # its name and its place are free
        assert vlcs.limits().contexts == 1
        try:
            a.run(len, "x")
        except vlcs.StateError as error:
            assert "it is closed" in str(error)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.05  # who waits for the arrays costs nothing
        assert (held == 1.5).all() and b.run(lambda: __builtins__ and True)
        held[0] = 0
        def contexts():
            threads = os.listdir("/proc/self/task")
            names = [open(f"/proc/self/task/{thread}/comm").read().strip() for thread in threads]
            return vlcs.limits().contexts, names.count("vlc:a")
        assert contexts()[1] == 1, contexts()
        del held, there
        time.sleep(0.1)
        assert contexts()[1] == 1, contexts()  # a view of a part holds it as well
        box = [part]
        del part
        thread = threading.Thread(target=box.clear)  # any thread may drop the last
        thread.start()
        thread.join()
        b.close()
        deadline = time.monotonic() + 5
        while contexts() != (0, 0):
            assert time.monotonic() < deadline, contexts()
            time.sleep(0.01)
        print("gone")
        """,
        timeout=30,
    )
    assert finished.lines == ["thread of a", "end of a", "closed", "gone"]
    assert not finished.stderr


def test_a_closed_context_frees_each_array_as_it_is_given_back() -> None:
    finished = run_child(
        """
        import contextlib, os, time, vlcs
        a = vlcs.VLC("a")
        def make(name):
            import numpy, os
            class Memory(bytearray):
                def __del__(self): os.write(1, name)
            return numpy.frombuffer(Memory(80_000), "f8")
        one, two = a.run(make, b"one "), a.run(make, b"two ")
        a.close()
        del one
        time.sleep(0.2)
        os.write(1, b"- ")                               # while the other is still held
        assert two.sum() == 0
        del two
        time.sleep(0.2)

        # What is given back holds something of another context, which holds the next: one after the other.
        def keep(made, name):
            import numpy, os
            class Memory(bytearray):
                def __del__(self): os.write(1, name)
            memory = Memory(80_000)
            memory.kept = made
            return numpy.frombuffer(memory, "f8")
        c, d = vlcs.VLC("c"), vlcs.VLC("d")
        chain = c.run(make, b"first ")
        for number in range(6):
            chain = (c, d)[number % 2].run(keep, chain, b"%d " % number)
        c.close()
        d.close()
        del chain
        deadline = time.monotonic() + 10
        def names():
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):       # it ends right now
                    yield open(f"/proc/self/task/{thread}/comm").read().strip()
        while {"vlc:c", "vlc:d"} & set(names()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        """,
        timeout=30,
    )
    assert finished.stdout == "one - two 5 4 3 2 1 0 first "


@pytest.mark.parametrize("close", ["a.close()", "pass"])
def test_arrays_that_are_held_at_exit(close: str) -> None:
    finished = run_child(
        f"""
        import sys, time, vlcs
        a = vlcs.VLC("a")
        def make():
            import atexit, builtins, numpy
            class Last:
                def __del__(self): print("finalised")
            builtins.last = Last()
            atexit.register(print, "end of a")
            return numpy.ones(300_000)
        held = a.run(make)
        {close}
        print(time.monotonic())
        sys.exit(4)
        """,
        timeout=30,
        code=4,
    )
    words = [line for line in finished.lines if line[0] in "ef"]
    assert words == ["end of a", "finalised"]
    assert time.monotonic() - float(next(line for line in finished.lines if line[0] not in "ef")) < 2
    assert not finished.stderr


def test_classes_of_main_come_back_as_they_are() -> None:
    run_child(
        """
        import enum, vlcs
        settings = {"rate": 0.1}
        class Model:
            steps = 0
            def __init__(self): self.w = 0.0
            def fit(self):
                self.w += settings["rate"]
                return self
        class Failure(Exception):
            def rate(self): return settings["rate"]
        class Kind(enum.Enum):
            ONE = 1
            def rate(self): return settings["rate"]
        def fail(): raise Failure("there")
        a = vlcs.VLC("a")
        methods = Model.__init__, Model.fit, Failure.rate, Kind.rate
        for _ in range(2):
            model = a.run(lambda model: model.fit(), Model())
            assert type(model) is Model and isinstance(a.run(lambda: [Model()])[0], Model)
            assert a.run(lambda: Kind.ONE) is Kind.ONE and a.run(lambda: Model) is Model
            try:
                a.run(fail)
            except Failure as error:
                caught = error
            Model.steps += 1
            settings["rate"] = 1.0
        assert (Model.__init__, Model.fit, Failure.rate, Kind.rate) == methods
        assert Model.steps == 2 and Model().fit().w == caught.rate() == Kind.ONE.rate() == 1.0
        assert a.run(lambda: Model.steps) == 2  # the other side follows

        # The same for a class that was made there.
        def make():
            import builtins
            rates = [1]
            class Local:
                def rate(self): return rates[0]
            builtins.made = Local, rates, Local.rate
            return Local()
        def check(local):
            import builtins
            kind, rates, method = builtins.made
            rates[0] = 7
            return type(local) is kind and kind.rate is method and local.rate() == 7
        assert a.run(check, a.run(make))
        """,
        timeout=30,
    )


def test_values_cross_by_value() -> None:
    run_child(
        """
        import collections, datetime, decimal, enum, fractions, vlcs
        a = vlcs.VLC("a")
        same = lambda *values: values
        values = (
            None, True, 0, -1, 2**200, 1.5, float("inf"), 3 + 4j, "text \\U0001f600", b"bytes", (),
            [1, [2, [3]]], {"a": {1, 2}}, frozenset("xy"), range(5), slice(1, 2), datetime.date(2026, 1, 2),
            decimal.Decimal("1.10"), fractions.Fraction(1, 3), collections.OrderedDict(a=1),
            bytearray(b"array"),
        )
        assert a.run(same, *values) == values
        shared = [1, 2]
        assert a.run(lambda pair: pair[0] is pair[1], (shared, shared)) is True

        class Point:  # of __main__: crosses with its class
            def __init__(self, x): self.x = x
            def __eq__(self, other): return self.x == other.x
        assert a.run(lambda point: point.x, Point(3)) == 3

        offset = 10
        assert a.run(lambda x: x + offset, 5) == 15  # closures are copied
        """,
        timeout=30,
    )


def test_exceptions_come_home_with_their_traceback() -> None:
    run_child(
        """
        import json, traceback, vlcs
        a = vlcs.VLC("a")
        def outer(text):
            def inner():
                return {}[text]
            return inner()
        for call in (lambda: a.run(outer, "missing"), lambda: a.submit(outer, "missing").result()):
            try:
                call()
            except KeyError as error:
                assert error.args == ("missing",)
                words = "".join(traceback.format_exception(error))
                assert "in inner" in words and "in outer" in words, words  # frames of the context
            else:
                raise SystemExit("nothing was raised")

        # Attributes come too; classes of importable modules are the host's own.
        try:
            a.run(json.loads, "{]")
        except json.JSONDecodeError as error:
            assert error.pos == 1 and error.doc == "{]"
        def chained():
            try:
                1 / 0
            except ZeroDivisionError as error:
                raise ValueError("because of it") from error
        try:
            a.run(chained)
        except ValueError as error:
            words = "".join(traceback.format_exception(error))
            assert "ZeroDivisionError" in words and "because of it" in words, words

        # A class that cannot be rebuilt here is described.
        def strange():
            class Strange(Exception):
                def __reduce__(self): raise TypeError("no")
            raise Strange("odd")
        try:
            a.run(strange)
        except vlcs.RemoteError as error:
            assert "Strange" in error.type_name and "odd" in str(error) and "in strange" in error.traceback
        else:
            raise SystemExit("nothing was raised")
        assert a.run(len, "on") == 2  # and it goes on
        """,
        timeout=30,
    )


def test_system_exit_in_a_context_is_an_exception() -> None:
    run_child(
        """
        import sys, vlcs
        a = vlcs.VLC("a")
        try:
            a.run(sys.exit, 5)
        except SystemExit as error:
            assert error.code == 5
        assert a.run(len, "on") == 2
        """,
        timeout=30,
    )
