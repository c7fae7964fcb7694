"""Two contexts on two NUMA nodes: where their memory lies, and where their threads run."""

from __future__ import annotations

import textwrap

from support.child import run_child
from support.machine import rig
from support.pages import NODES_OF

FILL = """
def fill():
    import builtins, numpy as np
    sizes = [1000] * 200 + [100_000] * 50 + [4_000_000] * 4 + [40_000_000]
    builtins.kept = arrays = [np.ones(size, np.uint8) for size in sizes]
    return [(array.ctypes.data, array.nbytes) for array in arrays]
"""

SAMPLE = '''
import os, threading

class Sampler(threading.Thread):
    """Notes on which CPUs threads ran, for as long as the block lasts."""
    def __init__(self, *contexts):
        super().__init__()
        self.seen = {vlc.name: {} for vlc in contexts}
        self.contexts, self.done = contexts, threading.Event()
    def run(self):
        while not self.done.is_set():
            for vlc in self.contexts:
                for task in vlc.threads():
                    try:
                        with open(f"/proc/self/task/{task}/stat") as file:
                            fields = file.read().rpartition(")")[2].split()
                    except (FileNotFoundError, ProcessLookupError):
                        continue
                    self.seen[vlc.name].setdefault(task, set()).add(int(fields[36]))
    def __enter__(self):
        self.start()
        return self
    def __exit__(self, *_):
        self.done.set()
        self.join()
'''


def on_the_rig(*parts: str, timeout: float = 30, preload: bool = False) -> None:
    """Runs a program of some parts."""
    rig()
    run_child("\n".join(map(textwrap.dedent, parts)), timeout=timeout, preload=preload)


def test_arrays_lie_on_their_contexts_node() -> None:
    """By first touch: of the contexts' own threads, and of callers, which are on the slice while inside."""
    on_the_rig(
        NODES_OF,
        FILL,
        """
        import threading, vlcs
        contexts = [vlcs.VLC(node=node) for node in (0, 1)]
        for node, future in enumerate([vlc.submit(fill) for vlc in contexts]):
            assert set(found := nodes_of(future.result())) == {node}, (node, found)
        found = {}
        visitors = [
            threading.Thread(target=lambda vlc=vlc, node=node: found.update({node: vlc.run(fill)}))
            for node, vlc in enumerate(contexts)
        ]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        for node in (0, 1):
            assert set(there := nodes_of(found[node])) == {node}, (node, there)
        """,
    )


def test_threads_of_libraries_run_on_their_contexts_node() -> None:
    on_the_rig(
        SAMPLE,
        """
        import vlcs

        def blas_and_openmp():
            import ctypes, numpy as np, time
            gomp, usleep = ctypes.CDLL("libgomp.so.1"), ctypes.CDLL(None).usleep
            x = np.ones((300, 300))
            for _ in range(20):
                assert (x @ x)[0, 0] == 300
                gomp.GOMP_parallel(usleep, ctypes.c_void_p(2000), 0, 0)  # each thread of the team sleeps 2 ms
            return gomp.omp_get_max_threads()

        def torch():
            import torch
            x = torch.ones(300, 300)
            for _ in range(20):
                assert (x @ x)[0, 0] == 300 and torch.sin(x).sum() > 0
            return torch.get_num_threads()

        one, two = contexts = [vlcs.VLC(node=node) for node in (0, 1)]
        with Sampler(*contexts) as sampler:
            futures = [one.submit(torch), two.submit(blas_and_openmp), one.submit(blas_and_openmp)]
            counts = [future.result() for future in futures]
        assert counts[0] in {2, 4} and counts[1] == 4, counts  # PyTorch takes cores, and its libgomp with it
        for vlc in contexts:
            seen = sampler.seen[vlc.name]
            assert len(seen) >= 5, seen  # its own, 3 of OpenBLAS, 1 of OpenMP or more
            outside = {task: cpus for task, cpus in seen.items() if not cpus <= set(vlc.cpus)}
            assert not outside, (vlc.name, vlc.cpus, seen)
            assert len(set().union(*seen.values())) > 1, seen
            assert vlc.verify().holds
        """,
        timeout=100,
        preload=True,
    )


def test_a_slice_that_moves_to_another_node() -> None:
    on_the_rig(
        NODES_OF,
        FILL,
        """
        import vlcs

        def work():
            import numpy as np
            x = np.ones((300, 300))
            assert (x @ x)[0, 0] == 300

        vlc = vlcs.VLC(node=0)
        for node in (0, 1, 0):
            vlc.resize(node=node)
            assert vlc.slice.nodes == (node,)
            vlc.submit(work).result()
            blocks = vlc.submit(fill).result()
            assert set(found := nodes_of(blocks[-5:])) == {node}, (node, found)
            assert vlc.verify().holds
        """,
    )
