"""Running Python in contexts: calls, futures, modules, nesting, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.child import run_child
from support.machine import two_cpus

if TYPE_CHECKING:
    from pathlib import Path


def test_run_has_an_interpreter_of_its_own() -> None:
    run_child(
        """
        import os, sys, threading, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        assert a.run(pow, 2, 10) == 1024
        assert a.run(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
        assert a.run(os.getpid) == os.getpid()
        def identity():
            import sys, threading
            return id(sys.modules), threading.get_native_id(), sys.prefix, sys.version
        mine, in_a, in_b = identity(), a.run(identity), b.run(identity)
        assert len({mine[0], in_a[0], in_b[0]}) == 3     # three interpreters
        assert mine[1:] == in_a[1:] == in_b[1:]          # on one thread, of one Python
        # Globals and modules are not shared.
        def put(value):
            import json
            json.vlcs_test = value
        a.run(put, 5)
        assert a.run(lambda: __import__("json").vlcs_test) == 5
        assert not b.run(lambda: hasattr(__import__("json"), "vlcs_test"))
        assert not hasattr(__import__("json"), "vlcs_test")
        # The paper's three calls.
        context = vlcs.vlc_create("paper")
        assert vlcs.vlc_run(context, len, "four") == 4
        vlcs.vlc_destroy(context)
        assert context.closed and context not in vlcs.contexts()
        """,
        timeout=30,
    )


def test_user_modules_are_imported_again(tmp_path: Path) -> None:
    (tmp_path / "user_module.py").write_text(
        "state = []\ndef add(x):\n    state.append(x)\n    return len(state)\n"
    )
    (tmp_path / "program.py").write_text(
        "import user_module, vlcs\n"
        "def square(x):\n    return x * x\n"
        "if __name__ == '__main__':\n"
        "    a, b = vlcs.VLC('a'), vlcs.VLC('b')\n"
        "    assert [user_module.add(1), a.run(user_module.add, 1), b.run(user_module.add, 1)] == [1, 1, 1]\n"
        "    assert a.run(user_module.add, 1) == 2 and user_module.add(1) == 2\n"
        "    assert a.run(square, 12) == 144\n"
    )
    run_child(tmp_path / "program.py", timeout=30)


def test_submit_gives_futures_on_one_thread() -> None:
    run_child(
        """
        import concurrent.futures, threading, time, vlcs
        a = vlcs.VLC("a")
        futures = [a.submit(divmod, n, 7) for n in range(30)]
        assert all(isinstance(future, concurrent.futures.Future) for future in futures)
        assert [future.result(10) for future in futures] == [divmod(n, 7) for n in range(30)]
        ident = lambda: __import__("threading").get_native_id()
        ids = {a.submit(ident).result() for _ in range(10)}
        assert len(ids) == 1 and ids != {threading.get_native_id()}
        def is_main():
            import threading
            return threading.current_thread() is threading.main_thread()
        assert a.submit(is_main).result()
        failed = a.submit(lambda: 1 / 0)
        assert isinstance(failed.exception(10), ZeroDivisionError)
        called = []
        a.submit(len, "xyz").add_done_callback(lambda future: called.append(future.result()))
        a.submit(len, "").result()
        assert called == [3]
        # What has not begun can be cancelled.
        slow = a.submit(time.sleep, 0.5)
        queued = a.submit(len, "never")
        assert queued.cancel() and queued.cancelled()
        slow.result(10)
        done, _ = concurrent.futures.wait([a.submit(time.sleep, 0.01) for _ in range(3)], timeout=10)
        assert len(done) == 3

        wide = vlcs.VLC("wide", threads=3)
        barrier = [wide.submit(time.sleep, 0.3) for _ in range(3)]
        start = time.monotonic()
        concurrent.futures.wait(barrier)
        assert time.monotonic() - start < 0.8  # they sleep at once
        assert len({wide.submit(ident).result() for _ in range(50)}) <= 3
        """,
        timeout=30,
    )


def test_contexts_run_python_at_the_same_time() -> None:
    first, second = two_cpus()
    run_child(
        """
        import sys, threading, time, vlcs
        def count(until):
            n = 0
            while n < until:
                n += 1
            return n
        contexts = [vlcs.VLC(cpus=cpu) for cpu in sys.argv[1:]]
        def both():
            start = time.perf_counter()
            futures = [context.submit(count, 4_000_000) for context in contexts]
            assert [future.result() for future in futures] == [4_000_000] * 2
            return time.perf_counter() - start
        def one():
            start = time.perf_counter()
            contexts[0].submit(count, 4_000_000).result()
            return time.perf_counter() - start
        ratios = sorted(2 * one() / both() for _ in range(7))
        # Two GILs: benchmarks measure how much; here only that it is not one (which gives 1.0 or less).
        assert ratios[-2] > 1.3, ratios
        """,
        timeout=60,
        args=[str(first), str(second)],
    )


def test_import_module_forwards() -> None:
    run_child(
        """
        import math, vlcs
        a = vlcs.VLC("a")
        there = a.import_module("math")
        assert there.sqrt(16) == 4.0 and there.pi == math.pi
        numpy = a.import_module("numpy")
        assert numpy.linalg.norm([3.0, 4.0]) == 5.0
        assert numpy.__name__ == "numpy" and "linalg" in dir(numpy)
        assert "numpy" in repr(numpy) and "'a'" in repr(numpy)
        import sys
        settings = a.import_module("json")
        settings.vlcs_test = [1, 2]
        assert a.run(lambda: __import__("json").vlcs_test) == [1, 2]
        import json
        assert not hasattr(json, "vlcs_test")
        assert a.run(lambda f, x: f(x), there.sqrt, 9.0) == 3.0  # arrives as the function itself
        try:
            a.import_module("no_such_module_anywhere")
        except ModuleNotFoundError as error:
            assert "no_such_module_anywhere" in str(error)
        else:
            sys.exit("imported what is not there")
        try:
            there.no_such_function
        except AttributeError as error:
            assert "no_such_function" in str(error)
        else:
            sys.exit("found what is not there")
        """,
        timeout=30,
    )


def test_with_block_and_nesting() -> None:
    first, second = two_cpus()
    run_child(
        """
        import os, sys, vlcs
        first, second = map(int, sys.argv[1:])
        outside = os.sched_getaffinity(0)
        a, b = vlcs.VLC("a", cpus={first}), vlcs.VLC("b", cpus={second})
        with a as entered:
            assert entered is a
            assert os.sched_getaffinity(0) == {first}
            with b:
                assert os.sched_getaffinity(0) == {second}
                assert a.run(os.sched_getaffinity, 0) == {first}
                assert os.sched_getaffinity(0) == {second}
            assert os.sched_getaffinity(0) == {first}
            assert [a.run(pow, n, 2) for n in range(20)] == [n * n for n in range(20)]
        assert os.sched_getaffinity(0) == outside
        try:
            with a:
                raise KeyError("through the block")
        except KeyError:
            pass
        assert os.sched_getaffinity(0) == outside
        assert not a.closed
        assert a.run(os.sched_getaffinity, 0) == {first}
        """,
        timeout=30,
        args=[str(first), str(second)],
    )


def test_contexts_stats_limits_and_resize() -> None:
    first, second = two_cpus()
    run_child(
        """
        import os, sys, threading, time, vlcs
        first, second = map(int, sys.argv[1:])
        assert vlcs.contexts() == []
        a = vlcs.VLC("a", cpus={first})
        b = vlcs.VLC(cpus={second})
        assert vlcs.contexts() == [a, b] and b.name and b.name != "a"
        assert a.cpus == (first,) and "'a'" in repr(a)
        def burn():
            import time
            end = time.thread_time() + 0.2
            while time.thread_time() < end: pass
        a.submit(burn).result()
        stats = a.stats()
        assert stats.threads >= 1 and stats.cpu_time >= 0.15, stats
        assert stats.libraries >= 1 and min(stats.library_bytes, stats.heap_bytes) > 1_000_000, stats
        assert any("libpython" in path for path in a.libraries())
        assert stats.visitors == 0 and stats.jobs == 0, stats
        blocked = a.submit(time.sleep, 0.5)
        queued = a.submit(len, "")
        time.sleep(0.1)
        assert a.stats().jobs == 1
        blocked.result(); queued.result()
        limits = vlcs.limits()
        assert limits.contexts == 2 and 0 < limits.mappings < limits.mappings_max, limits

        a.resize({first, second})
        assert a.cpus == (first, second) and a.run(os.cpu_count) == 2
        a.resize(f"{second}")
        assert a.cpus == (second,) and a.run(os.sched_getaffinity, 0) == {second}
        for thread in a.threads():
            assert os.sched_getaffinity(thread) == {second}, thread
        a.close()
        assert a.closed and a.cpus == () and vlcs.contexts() == [b]
        a.close()  # again does nothing
        assert "closed" in repr(a)
        vlcs.VLC("a").close()  # the name is free again
        """,
        timeout=30,
        args=[str(first), str(second)],
    )


def test_slices_as_they_are_written() -> None:
    first, second = two_cpus()
    run_child(
        """
        import sys, warnings, vlcs
        first, second = map(int, sys.argv[1:])
        both = (first, second)
        one = (first,)
        for cpus, expected in (
            (f"{first},{second}", both), ([second, first], both),
            ({first}, one), (range(first, first + 1), one),
        ):
            context = vlcs.VLC(cpus=cpus)
            assert context.cpus == expected, (cpus, context.cpus)
            context.close()
        one = vlcs.VLC(cpus=1)
        other = vlcs.VLC(cpus=1)  # a free one
        assert len(one.cpus) == len(other.cpus) == 1 and one.cpus != other.cpus
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            third = vlcs.VLC("third", cpus=one.cpus)
        assert [warning.category for warning in caught] == [vlcs.OverlapWarning]
        words = str(caught[0].message)
        assert "'third'" in words and f"'{one.name}'" in words and str(one.cpus[0]) in words, words
        assert caught[0].filename == "<string>"  # the caller's line
        """,
        timeout=30,
        args=[str(first), str(second)],
    )


def test_env_belongs_to_the_context() -> None:
    run_child(
        """
        import os, vlcs
        os.environ["VLC_TEST_KEPT"] = "kept"
        os.environ["VLC_TEST_REMOVED"] = "here"
        a = vlcs.VLC("a", env={"VLC_TEST_SET": "a", "VLC_TEST_REMOVED": None})
        b = vlcs.VLC("b", env={"VLC_TEST_SET": "b"})
        def seen():
            import os
            return [os.environ.get("VLC_TEST_" + name) for name in ("KEPT", "REMOVED", "SET")]
        assert a.run(seen) == ["kept", None, "a"]
        assert b.run(seen) == ["kept", "here", "b"]
        assert seen() == ["kept", "here", None]
        def change():
            import os
            os.environ["VLC_TEST_SET"] = "changed"
        a.run(change)
        assert a.run(seen)[2] == "changed" and b.run(seen)[2] == "b" and seen()[2] is None
        """,
        timeout=30,
    )


OPTIONS = """
import sys
if sys.argv[1:2] == ["check"]:
    sys.path[:0] = sys.argv[2:]  # -I and -E hide PYTHONPATH
    import vlcs
    def options():
        import sys
        names = ("bytes_warning debug dev_mode dont_write_bytecode ignore_environment isolated no_site "
                 "no_user_site optimize utf8_mode verbose int_max_str_digits").split()
        return [(name, getattr(sys.flags, name)) for name in names], sys.warnoptions, dict(sys._xoptions)
    here, there = options(), vlcs.VLC("a").run(options)
    assert here == there, (here, there)
else:
    import subprocess
    for options in ("-OO -B", "-I", "-E -s", "-S", "-X dev", "-X utf8 -b", "-X int_max_str_digits=5000",
                    "-W error::FutureWarning -W ignore"):
        subprocess.run([sys.executable, *options.split(), __file__, "check", *sys.path], check=True)
"""


def test_a_guest_has_the_options_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "options.py").write_text(OPTIONS)
    run_child(tmp_path / "options.py", timeout=60)


def test_what_a_guest_takes_over_when_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        """
import faulthandler, sys, warnings, vlcs
def seen():
    import faulthandler, sys
    return (sys.argv, sys.path, sys.executable, sys.prefix, hash("x"), sys.warnoptions,
            faulthandler.is_enabled(), sys.getfilesystemencoding(), sys._xoptions)
def changed():
    import sys, warnings
    return len(warnings.filters), sys.getrecursionlimit(), sys.getswitchinterval()
before = changed()
warnings.simplefilter("error")
sys.setrecursionlimit(2000)
sys.setswitchinterval(0.1)
sys.path.append("/also")
sys.argv.append("appended")
a = vlcs.VLC("a")
assert a.run(seen) == seen(), (a.run(seen), seen())
# What the host's Python was told since its start is its own; and its program runs in no guest.
assert changed() != before == a.run(changed), (before, a.run(changed))
assert a.run(lambda: sorted(set(vars(__import__("__main__"))) & {"seen", "__file__", "vlcs"})) == []
sys.path.append("/later")
assert "/later" not in a.run(seen)[1]
"""
    )
    run_child(tmp_path / "program.py", timeout=30, args=["--option"], env={"PYTHONHASHSEED": "7"})


def test_threads_that_a_call_starts_are_no_daemons() -> None:
    finished = run_child(
        """
        import vlcs
        a = vlcs.VLC("a")
        def start():
            import threading, time
            thread = threading.Thread(target=lambda: (time.sleep(0.3), print("ended")))
            thread.start()
            return thread.daemon
        assert a.run(start) is False and a.submit(start).result() is False
        a.close()
        print("closed")
        """,
        timeout=30,
    )
    assert finished.lines == ["ended", "ended", "closed"]


def test_objects_of_a_module_stay_in_the_context() -> None:
    run_child(
        """
        import copy, gc, sys, numpy as np, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        linear = a.import_module("sklearn.linear_model")
        x = np.arange(10.0)[:, None]
        model = linear.LinearRegression()
        assert isinstance(model, vlcs.RemoteObject) and str(model) == "LinearRegression()"
        assert isinstance(model.fit(x, 2 * x[:, 0] + 1), vlcs.RemoteObject)
        assert type(model.coef_) is np.ndarray and abs(model.predict(x)[3] - 7) < 1e-9
        assert "sklearn" not in sys.modules
        assert a.run(lambda model: model.get_params()["fit_intercept"], model) is True  # the object itself
        model.marked = 5
        assert a.run(lambda model: model.marked, model) == 5
        assert a.submit(lambda model: model.marked, model).result() == 5
        assert abs(b.run(lambda model, x: model.predict(x)[3], model, x) - 7) < 1e-9  # from there, here
        assert b.run(lambda models: models[0], [model]).marked == 5

        collections, itertools = a.import_module("collections"), a.import_module("itertools")
        counter = collections.Counter("aab")
        counter["c"] = 7
        del counter["b"]
        assert (len(counter), counter["c"], "b" in counter, sorted(counter)) == (2, 7, False, ["a", "c"])
        assert bool(counter) and not collections.Counter() and collections
        assert list(itertools.islice(itertools.count(3), 4)) == [3, 4, 5, 6]
        assert "Counter({'c': 7, 'a': 2})" in repr(counter)
        for wrong in (lambda: iter(collections), lambda: counter.nothing, lambda: counter["x"]["y"]):
            try:
                wrong()
            except (TypeError, AttributeError):
                pass
            else:
                raise SystemExit("accepted")
        del linear, collections, itertools
        gc.collect()
        b.run(gc.collect)
        a.run(len, "")
        assert a.stats().kept == 2, a.stats()  # the model and the counter
        del model
        gc.collect()
        a.run(len, "")
        assert a.stats().kept == 1, a.stats()
        assert a.run(copy.copy, counter) == {"a": 2, "c": 7}  # by value: run's result
        a.close()
        assert "Counter" in repr(counter)
        try:
            len(counter)
        except vlcs.StateError as error:
            assert "closed" in str(error)
        """,
        timeout=60,
    )


def test_a_path_that_came_later_is_named(tmp_path: Path) -> None:
    (tmp_path / "late_module.py").write_text("def answer(): return 42\n")
    run_child(
        """
        import site, sys, vlcs
        a = vlcs.VLC("a")
        sys.path.append(sys.argv[1])
        import late_module
        try:
            a.run(late_module.answer)
        except ModuleNotFoundError as error:
            assert sys.argv[1] in error.__notes__[0] and "site.addsitedir" in error.__notes__[0]
        else:
            raise SystemExit("found")
        a.run(site.addsitedir, sys.argv[1])
        assert a.run(late_module.answer) == 42
        """,
        timeout=30,
        args=[str(tmp_path)],
    )
