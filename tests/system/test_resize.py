"""Libraries follow when their context gets other CPUs, also while they compute: from wheels and Debian."""

from __future__ import annotations

import pytest

from support.child import run_child
from support.machine import two_cpus

# Every library that has a number of threads, and what it says on the calling thread.
NUMBERS = """
import sys, vlcs
first, second = map(int, sys.argv[1:3])
resident = sys.argv[3] == "resident"
def load():
    import ctypes, os, sys
    import numpy, scipy.linalg, torch
    from sklearn.cluster import KMeans
    KMeans(2, n_init=1).fit(numpy.random.default_rng(0).normal(size=(100, 3)))
    for name in ("libgomp.so.1", "libopenblas.so.0", os.path.join(sys.prefix, "lib", "libtbb.so.12")):
        ctypes.CDLL(name)
def numbers():
    import os, warnings
    import threadpoolctl, torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pools = threadpoolctl.threadpool_info()
    told = {os.path.basename(pool["filepath"]): pool["num_threads"] for pool in pools}
    return {**told, "torch": torch.get_num_threads(), "os.cpu_count": os.cpu_count()}
def on_a_new_thread():
    import threading
    found = []
    thread = threading.Thread(target=lambda: found.append(numbers()))
    thread.start(); thread.join()
    return found[0]
def compute(seed):
    import numpy as np, torch
    from sklearn.ensemble import HistGradientBoostingClassifier
    x = np.random.default_rng(seed).normal(size=(300, 300))
    y = (x[:, 0] > 0).astype(int)
    score = HistGradientBoostingClassifier(max_iter=2, random_state=0).fit(x[:, :3], y).score(x[:, :3], y)
    t = torch.from_numpy(x)
    return float(np.abs(x @ x - (t @ t).numpy()).max()) < 1e-10, score
def told(pools):  # without those that nobody can tell: pyarrow, which pandas loads, has a thread
    return [pool for pool in pools if not pool.library.startswith("lib")]
def names(pools):
    return {pool.library for pool in told(pools)}
def words(resized):
    return {pool.library: pool.reason for pool in resized.pools}
"""


@pytest.mark.preload
@pytest.mark.parametrize("residence", ["visited", "resident"])
def test_every_library_follows_on_every_thread(residence: str) -> None:
    first, second = two_cpus()
    run_child(
        NUMBERS
        + """
vlc = vlcs.VLC("a", cpus={first}, resident=resident)
assert "no library is loaded" in vlc.slice.report()["libraries"]["reason"]
vlc.run(load)
assert "OpenBLAS, OpenBLAS, OpenMP, PyTorch" in vlc.slice.report()["libraries"]["granted"], vlc.slice.report()
right = vlc.run(compute, 1)
vlc.submit(numbers).result()
for cpus in ({first, second}, {second}, {first, second}, {first}):
    resized = vlc.resize(cpus)
    assert resized.cpus == vlc.cpus == tuple(sorted(cpus))
    found = [vlc.run(numbers), vlc.submit(numbers).result(), vlc.run(on_a_new_thread)]
    assert len(found[0]) >= 7 and all(set(said.values()) == {len(cpus)} for said in found), found
    left = names(resized.left_behind)
    assert left == ({"oneTBB"} if len(cpus) == 2 else set()), resized  # its arenas are as large as they began
    assert {pool.threads for pool in told(resized.pools)} == {1, len(cpus)}, resized
    assert "next call" in words(resized)["OpenBLAS"] and "next enters" in words(resized)["OpenMP"], resized
    report = vlc.slice.report()["libraries"]
    assert all(f"{name} {len(cpus)}" in report["granted"] for name in ("OpenBLAS", "PyTorch")), report
    assert ("oneTBB 1: it did not take" in report["reason"]) == (len(cpus) == 2), report
    assert vlc.run(compute, 1) == right
    assert vlc.verify().holds, vlc.verify()
    with vlc:  # entered once: each call is a step, too
        vlc.resize({first, second} - cpus or {first})
        vlc.run(abs, 1)
        assert set(vlc.run(numbers).values()) == {1}
vlc.close()
""",
        timeout=150,
        args=[str(first), str(second), residence],
        preload=True,
    )


@pytest.mark.preload
def test_what_somebody_has_set_stays() -> None:
    first, second = two_cpus()
    run_child(
        NUMBERS
        + """
vlc = vlcs.VLC(cpus={first, second})
vlc.run(load)
def choose():
    import threadpoolctl, torch
    torch.set_num_threads(1)
    threadpoolctl.threadpool_limits(1, user_api="blas")
vlc.run(choose)
for cpus in ({first}, {first, second}, {second}, {first, second}):
    resized = vlc.resize(cpus)
    said = vlc.run(numbers)
    assert said["torch"] == 1 and said["os.cpu_count"] == len(cpus), said
    assert names(resized.left_behind) == {"OpenBLAS", "PyTorch", "OpenMP"}, resized
    assert "was set by a call" in words(resized)["PyTorch"], resized
    assert {number for name, number in said.items() if "openblas" in name} == {1}, said
given = vlcs.VLC(cpus={first}, env={"OMP_NUM_THREADS": "1"})
given.run(load)
resized = given.resize({first, second})
said = given.run(numbers)
assert said.pop("os.cpu_count") == 2 and set(said.values()) == {1}, said
assert names(resized.left_behind) == {"OpenBLAS", "OpenMP", "PyTorch", "oneTBB"}, resized
""",
        timeout=120,
        args=[str(first), str(second), ""],
        preload=True,
    )


@pytest.mark.preload
def test_threads_that_compute_meanwhile_go_on_and_are_right() -> None:
    """Two callers are inside of one long call, as OpenBLAS follows at once; two call again and again."""
    first, second = two_cpus()
    run_child(
        NUMBERS
        + """
import os, threading, time
vlc = vlcs.VLC(cpus={first}, threads=2)
vlc.run(load)
def multiply(seconds):
    import time
    import numpy as np, scipy.linalg.blas as blas
    x = np.random.default_rng(2).integers(-9, 9, size=(220, 220)).astype(float)
    right, rounds, end = x.astype(int) @ x.astype(int), 0, time.monotonic() + seconds
    f = np.asfortranarray(x)
    while time.monotonic() < end:
        assert ((x @ x) == right).all()
        assert (blas.dgemm(1.0, f, f) == right).all()
        rounds += 1
    return rounds
def count():
    import threadpoolctl
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}
right = vlc.run(compute, 3)
stop = threading.Event()
wrong = []
def again_and_again():
    while not stop.is_set():
        if (found := vlc.run(compute, 3)) != right: wrong.append(found)
callers = [threading.Thread(target=again_and_again, daemon=True) for _ in range(2)]
long = [vlc.submit(multiply, 12)]
inside = threading.Thread(target=lambda: long.append(vlc.run(multiply, 12)), daemon=True)
for thread in (*callers, inside): thread.start()
time.sleep(0.5)
resizes, end = 0, time.monotonic() + 7
while time.monotonic() < end:
    cpus = {first, second} if resizes % 2 == 0 else {second} if resizes % 4 == 1 else {first}
    resized = vlc.resize(cpus)
    resizes += 1
    assert vlc.verify().holds, vlc.verify()
    if resizes % 8 == 0:
        assert vlc.run(count) == {len(cpus)}
        # the caller's too, which is inside all the while
        assert inside.is_alive() and os.sched_getaffinity(inside.native_id) <= cpus
stop.set()
for thread in (*callers, inside): thread.join()
assert not wrong and resizes >= 20, (wrong, resizes)
assert long[0].result() > 20 and long[1] > 20, long
vlc.close()
""",
        timeout=120,
        args=[str(first), str(second), ""],
        preload=True,
    )


@pytest.mark.preload
def test_numba_follows_up_to_what_it_has_launched_and_loops_by_steps() -> None:
    first, second = two_cpus()
    run_child(
        """
        import sys, threading, vlcs
        first, second = map(int, sys.argv[1:])
        def load():
            import builtins, numba, numpy as np, torch
            @numba.njit(parallel=True)
            def total(x):
                s = 0.0
                for i in numba.prange(len(x)): s += x[i]
                return s
            builtins.total, builtins.x = total, np.ones(50000)
            builtins.step, builtins.go = __import__("threading").Event(), True
            return total(builtins.x)
        def numbers():
            import builtins, numba, torch
            assert builtins.total(builtins.x) == 50000
            return numba.get_num_threads(), torch.get_num_threads()
        def loop(steps):  # in one long call
            import numba, torch, vlcs
            seen = []
            while len(seen) < steps:
                vlcs.follow()
                now = numba.get_num_threads(), torch.get_num_threads()
                if not seen or seen[-1] != now:
                    seen.append(now)
                    builtins_step()
            return seen
        def builtins_step():
            import builtins
            builtins.step.set()
        def await_step():
            import builtins
            assert builtins.step.wait(30)
            builtins.step.clear()
        vlcs.follow()  # does nothing here
        for begin in (2, 1):
            vlc = vlcs.VLC(cpus={first, second} if begin == 2 else {first}, resident=begin == 1)
            vlc.run(load)
            for cpus in ({first}, {first, second}, {second}):
                resized = vlc.resize(cpus)
                expected = min(begin, len(cpus)), len(cpus)
                assert vlc.run(numbers) == vlc.submit(numbers).result() == expected, expected
                behind = {pool.library for pool in resized.left_behind} & {"numba", "PyTorch"}
                assert behind == ({"numba"} if begin < len(cpus) else set()), resized
            found = []
            thread = threading.Thread(target=lambda: found.append(vlc.run(loop, 3)))
            thread.start()
            vlc.submit(await_step).result()
            for cpus in ({first, second}, {first}):
                vlc.resize(cpus)
                vlc.submit(await_step).result()
            thread.join()
            assert found == [[(1, 1), (begin, 2), (1, 1)]], found
            vlc.close()
        """,
        timeout=150,
        args=[str(first), str(second)],
        preload=True,
    )


@pytest.mark.preload
def test_libraries_that_load_meanwhile_follow_too() -> None:
    first, second = two_cpus()
    run_child(
        NUMBERS
        + """
import time
vlc = vlcs.VLC(cpus={first}, threads=2)
job, resizes = vlc.submit(load), 0
while not job.done():
    vlc.resize({first, second} if resizes % 2 == 0 else {first})
    resizes += 1
    time.sleep(0.02)  # an import takes the same GIL
job.result()
assert resizes > 10, resizes
for cpus in ({first}, {first, second}, {second}):
    vlc.resize(cpus)
    for said in (vlc.run(numbers), vlc.run(on_a_new_thread)):
        assert set(said.values()) == {len(cpus)}, (cpus, said)
assert vlc.verify().holds
""",
        timeout=100,
        args=[str(first), str(second), ""],
        preload=True,
    )


@pytest.mark.preload
def test_a_context_that_forks_meanwhile_lives_on_in_the_child() -> None:
    first, second = two_cpus()
    run_child(
        """
        import sys, vlcs
        first, second = map(int, sys.argv[1:])
        vlc = vlcs.VLC(cpus={first})
        def product():
            import numpy as np
            return float((np.ones((200, 200)) @ np.ones((200, 200))).sum())
        def fork_often(times):
            import os
            import numpy as np
            x = np.ones((200, 200))
            for _ in range(times):
                child = os.fork()
                if child == 0:
                    right = float((x @ x).sum()) == 200.0**3
                    os._exit(0 if right and len(os.sched_getaffinity(0)) in (1, 2) else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            return times
        vlc.run(product)
        job, resizes = vlc.submit(fork_often, 40), 0
        while not job.done():
            vlc.resize({first, second} if resizes % 2 == 0 else {first})
            resizes += 1
        assert job.result() == 40 and resizes > 10, resizes
        assert vlc.run(product) == 200.0**3 and vlc.verify().holds
        vlc.close()
        """,
        timeout=100,
        args=[str(first), str(second)],
        preload=True,
    )
