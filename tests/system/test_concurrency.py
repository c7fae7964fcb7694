"""Many threads and contexts at once, contexts inside of each other, and no value that stays behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.child import run_child

if TYPE_CHECKING:
    from pathlib import Path


def test_many_threads_call_into_a_few_contexts() -> None:
    run_child(
        """
        import threading, numpy as np, vlcs
        contexts = [vlcs.VLC(f"c{n}") for n in range(3)]
        def work(array, n):
            import json
            array += n
            return json.loads(json.dumps({"n": n})), array
        wrong = []
        def hammer(seed):
            mine = np.zeros(20_000)
            total = 0
            for turn in range(60):
                n = (seed * 7 + turn) % 11
                total += n
                values, back = contexts[(seed + turn) % 3].run(work, mine, n)
                if values != {"n": n} or back[-1] != total or mine[0] != total:
                    wrong.append((seed, turn))
                if turn % 10 == 0:
                    try:
                        contexts[turn % 3].run(int, "not a number")
                    except ValueError:
                        pass
                    else:
                        wrong.append((seed, turn, "no error"))
        threads = [threading.Thread(target=hammer, args=[seed]) for seed in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not wrong, wrong[:5]
        for context in contexts:
            context.close()
        """,
        timeout=60,
    )


def test_contexts_come_and_go_while_others_work() -> None:
    run_child(
        """
        import threading, vlcs
        stays = vlcs.VLC("stays")
        stop = threading.Event()
        counted = []
        def keep_busy():
            n = 0
            while not stop.is_set():
                assert stays.run(pow, 2, 20) == 1048576
                n += 1
            counted.append(n)
        def come_and_go(name):
            for turn in range(8):
                context = vlcs.VLC(f"{name}-{turn}")
                assert context.run(lambda: __import__("decimal").Decimal("1.5") * 2) == 3
                assert context.submit(len, "abc").result() == 3
                context.close()
        workers = [threading.Thread(target=keep_busy) for _ in range(2)]
        makers = [threading.Thread(target=come_and_go, args=[name]) for name in "ab"]
        for thread in workers + makers: thread.start()
        for thread in makers: thread.join()
        stop.set()
        for thread in workers: thread.join()
        assert len(counted) == 2 and min(counted) > 10, counted
        assert [context.name for context in vlcs.contexts()] == ["stays"]
        """,
        timeout=60,
    )


def test_a_job_of_one_context_calls_another() -> None:
    run_child(
        """
        import vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        # Callbacks of futures are host code on a thread of `a`, and may use any context.
        seen = []
        future = a.submit(len, "four")
        future.add_done_callback(lambda done: seen.append(b.run(pow, done.result(), 2)))
        future.result()
        a.submit(len, "").result()
        assert seen == [16], seen
        with a, b, a:
            assert [a.run(len, "x"), b.run(len, "xy"), a.run(len, "xyz")] == [1, 2, 3]
        deep = lambda n: n if n == 0 else 1 + (a, b)[n % 2].run(len, "x" * 0) + deep(n - 1)
        with a:
            assert deep(30) == 30
        """,
        timeout=30,
    )


def test_values_do_not_stay_behind() -> None:
    run_child(
        """
        import gc, os, numpy as np, vlcs
        def megabytes():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
        a = vlcs.VLC("a")
        def work(array, text, values):
            import numpy as np
            return array + 1, text * 2, {**values, "more": np.zeros(1000)}
        def turns(count):
            for turn in range(count):
                array, text, values = a.run(work, np.ones(100_000), "x" * 1000, {"n": turn})
                assert array[0] == 2 and values["n"] == turn
                try:
                    a.run(lambda: {}["missing"])
                except KeyError:
                    pass
            a.run(gc.collect)
        turns(100)
        before = megabytes()
        turns(400)  # 320 MB one way and as much back
        after = megabytes()
        assert after < before + 8, (before, after)
        """,
        timeout=60,
    )


def test_what_a_thread_kept_is_destroyed_where_c_finds_the_interpreter() -> None:
    """The next thread that comes does it. Destructors may call C code that calls Python."""
    run_child(
        """
        import ctypes, threading, time, vlcs
        local, ended = threading.local(), []
        # A call of this does not drop the GIL, and PyGILState_Ensure has to see that.
        callback = ctypes.PYFUNCTYPE(None)(lambda: ended.append(threading.get_ident()))
        class Last:
            def __del__(self):
                callback()
        def keep(future):
            local.last = Last()
        gone, stays = vlcs.VLC("gone"), vlcs.VLC("stays")
        future = gone.submit(time.sleep, 0.2)
        future.add_done_callback(keep)  # runs on the thread of the context
        future.result()
        gone.close()
        deadline = time.monotonic() + 20
        while not ended:
            assert time.monotonic() < deadline
            stays.submit(len, "x").result()
        assert len(ended) == 1
        """,
        timeout=60,
    )


def test_python_checks_its_memory_while_threads_of_contexts_end() -> None:
    """Debug hooks of the allocators refuse threads without the GIL, and whom PyGILState does not know."""
    run_child(
        """
        import vlcs
        contexts = [vlcs.VLC() for _ in range(3)]
        futures = [context.submit(pow, 2, n) for context in contexts for n in range(5)]
        assert sum(future.result() for future in futures) == 3 * 31
        for context in contexts:
            context.close()
        """,
        timeout=60,
        env={"PYTHONDEVMODE": "1"},
    )


def test_a_module_that_another_thread_is_importing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.5)\ndef value(): return 5\n")
    run_child(
        """
        import sys, threading, time, vlcs
        sys.path.insert(0, sys.argv[1])
        a = vlcs.VLC("a")
        import slow_module
        found = []
        def call(way):
            found.append(way())
        ways = [lambda: a.run(slow_module.value)] * 4 + [lambda: a.import_module("slow_module").value()] * 4
        threads = [threading.Thread(target=call, args=(way,)) for way in ways]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        for thread in threads: thread.join()
        assert found == [5] * 8, found
        """,
        timeout=30,
        args=[str(tmp_path)],
    )
