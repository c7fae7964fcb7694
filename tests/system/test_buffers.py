"""Memory that crosses is shared, whatever has it: what arrives, what comes home, who lets go of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.child import run_child
from support.machine import numpy1_python

SOURCE = Path(__file__).parents[1] / "support" / "kinds.py"


@pytest.fixture
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the module `kinds` is found."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "kinds.py").write_text(SOURCE.read_text())
    return {"PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))}


def test_every_kind_is_shared_and_comes_home_as_itself(kinds: dict[str, str]) -> None:
    run_child(
        """
        import kinds, numpy as np, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        for _ in range(2):
            made = kinds.kinds(numpy=True)
            for name, value in made.items():
                there = kinds.outline(value)
                assert a.run(kinds.look, value) == there, name
                # Home, it is the very object, alone and inside of others, by value and by pickle.
                assert a.run(kinds.same, value) is value, name
                assert a.run(lambda value: value, value) is value, name
                pair = a.run(kinds.same, [value, {"again": value}])
                assert pair[0] is value and pair[1]["again"] is value, name
                box = a.run(kinds.same, kinds.Box([value, value])).content
                assert box[0] is value and box[1] is value, name
                # Also by a second context, and after it was kept.
                a.run(kinds.keep, value)
                assert a.run(kinds.give) is value and a.run(kinds.is_kept, value) is False
                assert b.run(kinds.same, a.run(kinds.give)) is value, name
                a.run(kinds.drop)
        # Written on either side, seen on the other; what is read-only stays so.
        for name in ("bytearray", "array", "mmap", "memoryview", "strided memoryview", "base", "letter ?"):
            a.run(kinds.mark, made[name])
            assert (made[name][0] == np.asarray(made[name]).dtype.type(5)).all(), name
        fixed = "read-only mmap", "read-only memoryview", "read-only strided", "fixed", "of bytes"
        for name in fixed:
            try:
                a.run(kinds.mark, made[name])
            except (TypeError, ValueError) as error:
                assert "read" in str(error)
            else:
                raise AssertionError(name)
        # Changed there, or a part of it: a view of the same memory.
        memory = made["bytearray"]
        part = a.run(lambda view: view[2:4], memory)
        part[:] = b"ZZ"
        assert type(part) is memoryview and memory[2:4] == b"ZZ"
        assert type(a.run(lambda view: view.toreadonly(), memory)) is memoryview
        as_array = a.run(lambda view: __import__("numpy").frombuffer(view, "u1"), memory)
        assert type(as_array) is np.ndarray and kinds.address(as_array) == kinds.address(memory)
        flat = a.run(lambda array: array.reshape(-1), made["base"])
        assert flat.shape == (60,) and np.shares_memory(flat, made["base"])
        del part, as_array, flat
        # Lent memory stays where it is: its owner may not move it meanwhile.
        a.run(kinds.keep, memory)
        for change in (lambda: memory.append(1), made["mmap"].close):
            a.run(kinds.keep, memory if change.__name__ == "<lambda>" else made["mmap"])
            try:
                change()
            except BufferError:
                a.run(kinds.drop)
            else:
                raise AssertionError
            a.run(abs, 1)
            change()
        """,
        timeout=90,
        env=kinds,
    )


def test_results_of_every_kind_outlive_their_context(kinds: dict[str, str]) -> None:
    run_child(
        """
        import time, kinds, numpy as np, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        def make():
            import kinds
            made = kinds.kinds(numpy=True)
            kinds.keep(made)
            return made
        made = a.run(make)
        for name, value in made.items():
            assert type(value) in (np.ndarray, memoryview), name
        made["base"][0, 0, 0] = made["typed memoryview"][0] = 77
        made["bytearray"][:4] = b"SOME"
        assert a.run(lambda: float(__import__("kinds").give()["base"][0, 0, 0])) == 77
        assert a.run(lambda: bytes(__import__("kinds").give()["bytearray"])) == b"SOME bytes"
        # What comes home to the context is the object there, too.
        def compare(made):
            import kinds
            return [name for name, value in kinds.give().items() if value is not made[name]]
        assert a.run(compare, made) == []
        texts = {name: value.tobytes() for name, value in made.items()}
        there = b.run(kinds.same, made)
        a.close()
        assert {name: value.tobytes() for name, value in made.items()} == texts
        assert {name: value.tobytes() for name, value in there.items()} == texts
        del made, there, value
        b.close()
        deadline = time.monotonic() + 10
        while vlcs.limits().contexts:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        """,
        timeout=60,
        env=kinds,
    )


def test_copies_of_what_cannot_be_shared(kinds: dict[str, str]) -> None:
    run_child(
        """
        import array, kinds, numpy as np, vlcs
        a = vlcs.VLC("a")
        class Data(bytearray): pass
        objects = np.array([1, "x", None], dtype=object)
        records = np.array([(1, "x")], dtype=[("a", "i4"), ("b", "O")])
        masked = np.ma.array([1, 2], mask=[0, 1])
        for value in (objects, records, np.matrix([[1, 2]]), masked, np.rec.array([(1, 2.5)]), Data(b"x")):
            back = a.run(kinds.same, value)
            assert type(back) is type(value) and back is not value
            assert back.tolist() == value.tolist() if hasattr(value, "tolist") else back == value
        if hasattr(np.dtypes, "StringDType"):
            texts = np.array(["a", "longer than what fits inside"], dtype=np.dtypes.StringDType())
            assert a.run(kinds.same, texts).tolist() == texts.tolist()
        for value, words in ((memoryview(objects), "references to objects"), (memoryview(b"x"), "released")):
            if words == "released":
                value.release()
            for call in (kinds.same, lambda value: value):
                for nest in (value, [value], kinds.Box(value)):
                    try:
                        a.run(call, nest)
                    except vlcs.PicklingError as error:
                        assert words in str(error), error
                    else:
                        raise AssertionError
        # Scalars of NumPy keep their types.
        for code in "?bBhHiIlLqQefdgFDG":
            for scalar in (np.ones(1, code)[0], np.zeros((), code)[()]):
                for value in (scalar, [scalar, {"x": scalar}]):
                    back = a.run(kinds.same, value)
                    assert repr(back) == repr(value), (back, value)
                    assert type(back) is type(value)
        scalars = np.datetime64("2026-01-02"), np.timedelta64(3, "s"), np.str_("x"), np.bytes_(b"x")
        for scalar in scalars:
            back = a.run(kinds.same, scalar)
            assert type(back) is type(scalar) and back.dtype == scalar.dtype and repr(back) == repr(scalar)
        """,
        timeout=60,
        env=kinds,
    )


def test_a_context_without_numpy(kinds: dict[str, str]) -> None:
    run_child(
        """
        import kinds, vlcs
        a = vlcs.VLC("a")
        a.run(exec, "import sys; sys.modules['numpy'] = None")
        for name, value in kinds.kinds(numpy=False).items():
            assert a.run(kinds.look, value) == kinds.outline(value), name
            assert a.run(kinds.same, value) is value, name
            assert a.run(kinds.same, kinds.Box(value)).content is value, name
        import numpy as np
        for nest in (np.ones(3), [np.ones(3)], kinds.Box(np.ones(3)), np.float32(1)):
            for _ in range(2):
                try:
                    a.run(kinds.same, nest)
                except ModuleNotFoundError as error:
                    assert "numpy" in str(error)
                else:
                    raise AssertionError
        assert a.run(len, bytearray(3)) == 3
        assert a.run(memoryview, np.arange(3).data).tolist() == [0, 1, 2]  # as a memoryview
        """,
        timeout=60,
        env=kinds,
    )


def test_a_context_with_another_numpy(kinds: dict[str, str]) -> None:
    run_child(
        """
        import os, sys, kinds, numpy as np, vlcs
        a = vlcs.VLC("a", python=sys.argv[1])
        a.run(exec, f"import sys; sys.path.append({os.path.dirname(kinds.__file__)!r})")
        assert a.run(lambda: __import__("numpy").__version__)[0] != np.__version__[0]
        for name, value in kinds.kinds(numpy=True).items():
            there = kinds.outline(value)
            assert a.run(kinds.look, value) == there, name
            assert a.run(kinds.same, value) is value, name
            assert a.run(kinds.same, kinds.Box(value)).content is value, name
        made = a.run(kinds.kinds, numpy=True)
        for name, value in made.items():
            assert a.run(kinds.outline, value) == kinds.outline(value), name
        for code in "?bBhHiIlLqQefdgFDG":
            scalar = np.ones(1, code)[0]
            back = a.run(kinds.same, scalar)
            assert type(back) is type(scalar) and back == scalar
        """,
        timeout=60,
        env=kinds,
        args=[str(numpy1_python())],
    )


def test_owners_are_released_without_another_call(kinds: dict[str, str]) -> None:
    run_child(
        """
        import builtins, gc, operator, threading, time, weakref, kinds, numpy as np, vlcs
        a = vlcs.VLC("a", threads=2)

        def until(condition):
            deadline = time.monotonic() + 20
            while not condition():
                assert time.monotonic() < deadline
                time.sleep(0.001)  # nothing is called meanwhile

        # A context's owners: dropped here, by any thread, in a burst and one by one.
        def make(count):
            import builtins, numpy, weakref
            builtins.gone = getattr(builtins, "gone", 0)
            def count_down():
                builtins.gone += 1
            made = [numpy.ones(10) for _ in range(count)]
            for array in made: weakref.finalize(array, count_down)
            return made
        for drop in (lambda held: held.clear(), lambda held: threading.Thread(target=held.clear).start()):
            held = a.run(make, 10_000)
            assert a.stats().leases == 10_000
            drop(held)
            until(lambda: a.stats().leases == 0)
            assert a.run(eval, "__import__('builtins').gone") % 10_000 == 0
        for _ in range(5):
            held = a.run(make, 1)
            held.clear()
            until(lambda: a.stats().leases == 0)

        # The host's: dropped there, by a thread of the context while nobody calls.
        def keep(values): __import__("builtins").kept = values
        def drop_later():
            import builtins, threading, time
            threading.Thread(target=lambda: (time.sleep(0.2), builtins.kept.clear())).start()
        gone = []
        for one in (lambda: np.ones(10), lambda: bytearray(10), lambda: kinds.array.array("d", [1])):
            for count in (10_000, 1):
                made = [one() for _ in range(count)]
                if not isinstance(made[0], bytearray):  # which knows no weak references
                    for value in made: weakref.finalize(value, gone.append, None)
                a.run(keep, made)
                a.run(drop_later)
                watched = made if isinstance(made[0], bytearray) else None
                del made
                value = None
                if watched is None:
                    until(lambda: len(gone) == count)
                else:
                    def free():
                        try:
                            for value in watched: value.append(0)
                        except BufferError:
                            return False
                        return True
                    until(free)
                gone.clear()

        # By a context that another context calls, on a thread of that one: no call returns to the host.
        b = vlcs.VLC("b")
        made = np.ones(10)
        weakref.finalize(made, gone.append, None)
        b.run(kinds.keep, made)
        del made
        def start(drop):
            import threading, time
            threading.Thread(target=lambda: (time.sleep(0.2), drop())).start()
        a.run(start, b.import_module("kinds").drop)
        until(lambda: gone)
        gone.clear()

        # Dropped inside of a call of the owner's, more than may wait: it gets them when that returns.
        made = [np.ones(10) for _ in range(1000)]
        for value in made: weakref.finalize(value, gone.append, None)
        a.run(keep, made)
        del made, value
        a.run(lambda: __import__("builtins").kept.clear())
        assert len(gone) == 1000
        """,
        timeout=100,
        env=kinds,
    )
