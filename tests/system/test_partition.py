"""Cases P1 to P5: libraries size their pools from the slice, and their threads stay inside of it."""

from __future__ import annotations

import json

import pytest

from support.child import run_child
from support.machine import two_cpus

# Every library's own word for "how many", asked inside a context of the slice in sys.argv[1].
ASK = """
import json, sys, vlcs

def ask():
    import ctypes, os, sys
    import joblib, numba, numpy, polars, threadpoolctl, torch
    gomp, omp = ctypes.CDLL("libgomp.so.1"), ctypes.CDLL("libomp.so.5")
    tbb = ctypes.CDLL(os.path.join(sys.prefix, "lib", "libtbb.so.12"))
    blas = {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}
    return {
        "os.cpu_count": os.cpu_count(),
        "sched_getaffinity": len(os.sched_getaffinity(0)),
        "openblas": max(blas) if len(blas) == 1 else sorted(blas),
        "libgomp": gomp.omp_get_max_threads(),
        "libgomp, processors": gomp.omp_get_num_procs(),
        "libomp": omp.omp_get_max_threads(),
        "libomp, processors": omp.omp_get_num_procs(),
        "torch": torch.get_num_threads(),
        "numba": numba.get_num_threads(),
        "joblib": joblib.cpu_count(),
        "polars": polars.thread_pool_size(),
        "tbb": tbb._ZN3tbb6detail2r115max_concurrencyEPKNS0_2d115task_arena_baseE(None),
    }

cpus, env = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps(vlcs.VLC(cpus=cpus, env=env).run(ask)))
"""
MACHINE = {
    "os.cpu_count",
    "sched_getaffinity",
    "libgomp, processors",
    "libomp, processors",
    "numba",
    "joblib",
    "polars",
    "tbb",
}


def ask(cpus: str, given: dict[str, str], *, outer: dict[str, str] | None = None) -> dict[str, int]:
    """Answers in a slice, with variables given to the context, in a process that has `outer` set."""
    finished = run_child(ASK, timeout=100, args=[cpus, json.dumps(given)], env=outer, preload=True)
    answers: dict[str, int] = json.loads(finished.stdout)
    return answers


@pytest.mark.preload
def test_p1_a_slice_of_one_says_one() -> None:
    first, _ = two_cpus()
    answers = ask(str(first), {})
    assert answers == dict.fromkeys(answers, 1)


@pytest.mark.preload
def test_p1_a_slice_of_two_says_two_also_under_an_outer_thread_count() -> None:
    first, second = two_cpus()
    outer = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    answers = ask(f"{first},{second}", {}, outer=outer)
    assert answers == dict.fromkeys(answers, 2)


@pytest.mark.preload
def test_p1_a_thread_count_given_to_the_context_wins() -> None:
    first, second = two_cpus()
    answers = ask(f"{first},{second}", {"OMP_NUM_THREADS": "1"})
    assert answers == {name: 2 if name in MACHINE else 1 for name in answers}


@pytest.mark.preload
@pytest.mark.parametrize("variable", ["OMP_PROC_BIND=close", "GOMP_CPU_AFFINITY=0-7"])
def test_p2_a_pinning_variable_of_one_context_pins_nobody_else(variable: str) -> None:
    first, second = two_cpus()
    run_child(
        """
        import os, sys, threading, vlcs
        first, second = int(sys.argv[1]), int(sys.argv[2])
        name, _, value = sys.argv[3].partition("=")
        def work():
            import os, numpy as np, torch
            from sklearn.ensemble import HistGradientBoostingClassifier
            x = np.random.default_rng(0).normal(size=(500, 4))
            HistGradientBoostingClassifier(max_iter=3).fit(x, x[:, 0] > 0)
            torch.randn(200, 200) @ torch.randn(200, 200)
            return sorted(os.sched_getaffinity(0))
        before = os.sched_getaffinity(0)
        bound, other = vlcs.VLC("bound", cpus={first}, env={name: value}), vlcs.VLC("other", cpus={second})
        assert bound.run(work) == [first]
        assert other.run(work) == [second]
        assert bound.submit(work).result() == [first]
        assert os.sched_getaffinity(0) == before
        masks = []
        thread = threading.Thread(target=lambda: masks.append(os.sched_getaffinity(0)))
        thread.start(); thread.join()
        assert masks == [before], masks
        for context, cpu in ((bound, first), (other, second)):
            for thread in context.threads():
                assert os.sched_getaffinity(thread) == {cpu}, (context, thread)
        """,
        timeout=100,
        args=[str(first), str(second), variable],
        preload=True,
    )


@pytest.mark.preload
def test_p3_every_thread_of_a_context_is_inside_its_slice() -> None:
    first, second = two_cpus()
    run_child(
        """
        import os, sys, time, warnings, vlcs
        warnings.simplefilter("ignore", vlcs.OverlapWarning)
        cpus = [int(word) for word in sys.argv[1:]]
        def work():
            import numpy as np, torch
            from sklearn.cluster import KMeans
            x = np.random.default_rng(0).normal(size=(700, 700))
            (x @ x).sum()
            KMeans(4, n_init=1).fit(x)
            (torch.randn(400, 400) @ torch.randn(400, 400)).sum()
        folder = "/proc/self/task"
        names = lambda: {int(task): open(f"{folder}/{task}/comm").read() for task in os.listdir(folder)}
        contexts = [vlcs.VLC("one", cpus={cpus[1]}), vlcs.VLC("two", cpus=set(cpus), threads=2)]
        before = names()
        for future in [context.submit(work) for context in contexts]:
            future.result()
        for context in contexts:
            context.run(work)
        time.sleep(0.2)  # pools of threads that have just ended go too
        own = [set(context.threads()) for context in contexts]
        masks = {task: os.sched_getaffinity(task) for task in names()}
        assert len(own[0]) >= 1 and len(own[1]) >= 3, own  # two of submit, and pools of OpenBLAS and OpenMP
        assert not own[0] & own[1]
        for context, threads in zip(contexts, own):
            outside = {thread: masks[thread] for thread in threads if not masks[thread] <= set(context.cpus)}
            assert not outside, (context, outside)
        # There is no thread that nobody owns up to: besides the contexts' own there are only the host's.
        rest = {task: name for task, name in names().items() if task not in own[0] | own[1] | set(before)}
        assert not rest, rest
        """,
        timeout=100,
        args=[str(first), str(second)],
        preload=True,
    )


@pytest.mark.preload
def test_p4_limits_do_not_leak_between_contexts() -> None:
    two_cpus()
    run_child(
        """
        import vlcs
        def load():
            import numpy, torch
            from sklearn.cluster import KMeans
            KMeans(2, n_init=1).fit(numpy.random.default_rng(0).normal(size=(100, 3)))
        def counts():
            import threadpoolctl
            return sorted((pool["prefix"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info())
        def limit():
            import builtins, threadpoolctl
            builtins.limits = threadpoolctl.threadpool_limits(1)
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        for context in (a, b):
            context.run(load)
        before = a.run(counts)
        assert b.run(counts) == before and {count for _, count in before} == {2}, before
        a.run(limit)
        assert {count for _, count in a.run(counts)} == {1}, a.run(counts)
        assert b.run(counts) == before, b.run(counts)
        """,
        timeout=100,
        preload=True,
    )


@pytest.mark.preload
@pytest.mark.timeout(180)
def test_p5_pairs_compute_the_same_numbers() -> None:
    # How fast they are is for `vlcs demo` to say.
    first, second = two_cpus()
    run_child(
        """
        import sys, vlcs
        def data():
            import numpy as np
            x = np.random.default_rng(1).normal(size=(2000, 10))
            return x, (x[:, 0] * x[:, 1] > 0).astype(int)
        def boost():
            from sklearn.ensemble import HistGradientBoostingClassifier
            x, y = data()
            model = HistGradientBoostingClassifier(max_iter=15, random_state=0).fit(x, y)
            return model.predict_proba(x)[:, 1].sum()
        def light():
            import lightgbm
            x, y = data()
            model = lightgbm.LGBMClassifier(n_estimators=15, random_state=0, verbose=-1).fit(x, y)
            return model.predict_proba(x)[:, 1].sum()
        def train():
            import torch
            x, y = map(torch.from_numpy, data())
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
            optimiser = torch.optim.Adam(model.parameters(), 0.01)
            for _ in range(30):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(x.float()), y).backward()
                optimiser.step()
            return round(sum(parameter.abs().sum().item() for parameter in model.parameters()), 2)
        alone = [boost(), light(), train()]
        one, two = vlcs.VLC(cpus=sys.argv[1]), vlcs.VLC(cpus=sys.argv[2])
        for first, second in ((0, 1), (2, 0)):
            work = [boost, light, train]
            futures = [one.submit(work[first]), two.submit(work[second])]
            found = [future.result() for future in futures]
            expected = [alone[first], alone[second]]
            assert all(abs(a - b) <= 1e-3 * abs(b) for a, b in zip(found, expected)), (found, expected)
        """,
        timeout=170,
        args=[str(first), str(second)],
        preload=True,
    )
