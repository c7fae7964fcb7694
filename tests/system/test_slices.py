"""Requests for cores, plans of whole programs, and what the kernel says of the threads then."""

from __future__ import annotations

import json

from support.child import run_child
from support.machine import two_cpus


def test_a_planned_program_keeps_to_its_plan() -> None:
    two_cpus()
    finished = run_child(
        """
        import json, os, vlcs

        def work():
            import os
            import numpy as np
            x = np.ones((300, 300))
            return float((x @ x).sum()), sorted(os.sched_getaffinity(0))

        plan = vlcs.plan({"blas": {"fraction": 0.5, "exclusive": True}, "nn": {"cpus": 1, "near": "blas"}})
        contexts = {name: vlcs.VLC(name, **options) for name, options in plan["options"].items()}
        for name, vlc in contexts.items():
            total, cpus = vlc.submit(work).result()
            assert total == 300.0**3
            assert cpus == list(vlc.cpus) == plan["options"][name]["cpus"]
        blas, nn = contexts.values()
        assert not set(blas.cpus) & set(nn.cpus)
        for vlc in contexts.values():
            found = vlc.verify()
            assert found.holds and found.cpus == vlc.cpus and set(found.threads) == set(vlc.threads()), found
            assert all(set(cpus) <= set(vlc.cpus) for cpus in found.threads.values()), found
        print(json.dumps(plan["notes"]))
        print(json.dumps(blas.slice.report()["cpus"]))
        """,
        timeout=60,
    )
    notes, report = map(json.loads, finished.lines)
    assert isinstance(notes, list)
    assert (report["state"], report["requested"]) == (
        "advisory",
        f'cpus="{report["granted"]}", exclusive=True',
    )


def test_a_thread_that_the_kernel_was_told_to_move_is_found() -> None:
    """As a library does that makes the system call itself: here the host does it, which nothing stops."""
    first, second = two_cpus()
    run_child(
        """
        import os, sys, vlcs
        first, second = map(int, sys.argv[1:])
        vlc = vlcs.VLC(cpus={first}, threads=2)
        assert vlc.verify().holds
        moved, stays = vlc.threads()[:2]
        os.sched_setaffinity(moved, {first, second})
        found = vlc.verify()
        assert not found.holds
        assert found.outside == {moved: (second,)}, found
        assert found.threads[moved] == tuple(sorted((first, second)))
        assert found.threads[stays] == (first,)
        vlc.resize({first, second})
        assert vlc.verify().holds
        """,
        timeout=30,
        args=[str(first), str(second)],
    )


def test_no_thread_stays_behind_when_the_slice_moves_while_it_begins() -> None:
    first, second = two_cpus()
    run_child(
        """
        import sys, vlcs
        first, second = map(int, sys.argv[1:])
        vlc = vlcs.VLC(cpus={first})

        def begin(count):
            import threading
            leave, started = threading.Event(), threading.Barrier(count + 1)
            threading.leave = leave  # where end() finds it: functions of __main__ share no globals there

            def wait():
                started.wait()
                leave.wait()

            for _ in range(count):
                threading.Thread(target=wait, daemon=True).start()
            started.wait()

        def end():
            import threading
            threading.leave.set()

        resized = 0
        for _ in range(10):
            future = vlc.submit(begin, 12)
            while not future.done():
                vlc.resize({second} if resized % 2 else {first})
                resized += 1
            future.result()
            found = vlc.verify()
            assert len(found.threads) >= 13 and found.holds, found
            vlc.submit(end).result()
        assert resized >= 10, resized
        """,
        timeout=60,
        args=[str(first), str(second)],
    )
