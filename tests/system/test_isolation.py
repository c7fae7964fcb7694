"""Cases I1, I2, U2 and U3: packages that refuse, or cannot bear, a second copy in one process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.machine import numpy1_python, two_cpus

if TYPE_CHECKING:
    from pathlib import Path

REPEATS = int(os.environ.get("VLCS_TEST_REPEATS", "2"))  # of the cases that used to crash now and then


@pytest.mark.preload
@pytest.mark.timeout(180)
def test_i1_numpy_scikit_learn_and_torch_in_host_and_four_contexts() -> None:
    run_child(
        """
        import threading, vlcs
        def compute():
            import numpy as np, torch
            from sklearn.cluster import KMeans
            from sklearn.linear_model import LinearRegression
            random = np.random.default_rng(7)
            x = random.normal(size=(300, 5))
            y = x @ np.arange(5.0) + 1
            torch.manual_seed(3)
            model = torch.nn.Linear(5, 1)
            optimiser = torch.optim.SGD(model.parameters(), 0.01)
            for _ in range(20):
                optimiser.zero_grad()
                loss = ((model(torch.from_numpy(x).float())[:, 0] - torch.from_numpy(y).float()) ** 2).mean()
                loss.backward()
                optimiser.step()
            return {
                "svd": np.linalg.svd(x)[1].round(9).tolist(),
                "regression": LinearRegression().fit(x, y).coef_.round(9).tolist(),
                "inertia": round(float(KMeans(3, n_init=1, random_state=0).fit(x).inertia_), 6),
                "loss": round(loss.item(), 4),
            }
        contexts = [vlcs.VLC(f"c{n}") for n in range(4)]
        futures = [context.submit(compute) for context in contexts]
        mine = compute()                                      # all five at once
        answers = [future.result() for future in futures]
        assert answers == [mine] * 4, (mine, answers)
        """,
        timeout=170,
        preload=True,
    )


def test_i1_numpy_without_a_preload() -> None:
    run_child(
        """
        import numpy as np, vlcs
        def compute():
            import numpy as np
            return np.linalg.eigvalsh(np.arange(100.0).reshape(10, 10) % 7).round(9).tolist()
        contexts = [vlcs.VLC(f"c{n}") for n in range(4)]
        futures = [context.submit(compute) for context in contexts]
        mine = compute()
        assert [future.result() for future in futures] == [mine] * 4
        assert np.float64(mine[0]) == mine[0]
        """,
        timeout=60,
    )


def test_i2_numpy_1_beside_numpy_2() -> None:
    run_child(
        """
        import sys, numpy as np, vlcs
        assert np.__version__.startswith("2."), np.__version__
        old = vlcs.VLC("old", python=sys.argv[1])
        assert old.import_module("numpy").__version__.startswith("1.26")
        assert old.run(lambda: __import__("sys").prefix) != sys.prefix
        pointer = lambda array: array.__array_interface__["data"][0]
        dtypes = "float64", "float32", "int16", "uint8", "bool", "complex128", "datetime64[s]", "U5", ">f8"
        for dtype in dtypes:
            mine = np.arange(60_000).astype(dtype).reshape(200, 300)
            def seen(array):
                pointer = array.__array_interface__["data"][0]
                return pointer, array.dtype.str, array.shape, array[3:5, ::100].tolist()
            assert old.run(seen, mine) == seen(mine), dtype
            def make(dtype):
                import builtins, numpy as np
                builtins.kept = np.arange(60_000).astype(dtype).reshape(300, 200)
                return builtins.kept
            theirs = old.run(make, dtype)
            assert seen(theirs) == old.run(lambda: seen(__import__("builtins").kept)), dtype
            assert isinstance(theirs, np.ndarray)
            assert (theirs == np.arange(60_000).astype(dtype).reshape(300, 200)).all()
        there = np.zeros(100_000)
        def write(array):
            array[5] = 42
        old.run(write, there)
        assert there[5] == 42
        """,
        timeout=60,
        args=[str(numpy1_python())],
    )


@pytest.mark.parametrize("turn", range(REPEATS))
@pytest.mark.timeout(180)
def test_u2_netcdf4_from_two_threads(tmp_path: Path, turn: int) -> None:
    del turn
    run_child(
        """
        import sys, threading, vlcs
        def write(path, start):
            import netCDF4
            with netCDF4.Dataset(path, "w") as file:
                file.createDimension("x", 200)
                file.createVariable("v", "i8", ("x",), zlib=True)[:] = range(start, start + 200)
        def read(path, times):
            import netCDF4
            total = 0
            for _ in range(times):
                with netCDF4.Dataset(path) as file:
                    total += int(file["v"][:].sum())
            return total
        contexts = [vlcs.VLC("a"), vlcs.VLC("b")]
        paths = [sys.argv[1] + name for name in ("/a.nc", "/b.nc")]
        for context, path, start in zip(contexts, paths, (0, 1000)):
            context.run(write, path, start)
        totals = {}
        def work(which):
            totals[which] = contexts[which].run(read, paths[which], 400)
        threads = [threading.Thread(target=work, args=[which]) for which in (0, 1)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert totals == {0: 400 * sum(range(200)), 1: 400 * sum(range(1000, 1200))}, totals
        """,
        timeout=170,
        args=[str(tmp_path)],
    )


def test_u3_h5py_two_files(tmp_path: Path) -> None:
    first, second = two_cpus()
    run_child(
        """
        import sys, vlcs
        folder, *cpus = sys.argv[1:]
        def write(path, seed):
            import h5py, numpy as np
            with h5py.File(path, "w") as file:
                data = np.random.default_rng(seed).integers(0, 50, 300_000)
                file.create_dataset("x", data=data, chunks=(10_000,), compression="gzip")
        def read(path):
            import h5py
            with h5py.File(path) as file:
                return int(file["x"][:].sum())
        contexts = [vlcs.VLC(cpus=cpu) for cpu in cpus]
        paths = [f"{folder}/{n}.h5" for n in range(2)]
        for n in range(2):
            contexts[n].run(write, paths[n], n)
        for _ in range(5):
            futures = [contexts[n].submit(read, paths[n]) for n in range(2)]
            assert [future.result() for future in futures] == [read(path) for path in paths]
        # A file opened in one context is no business of the other's library.
        assert contexts[1].run(read, paths[0]) == read(paths[0])
        """,
        timeout=60,
        args=[str(tmp_path), str(first), str(second)],
    )


@pytest.mark.preload
def test_pandas_scipy_and_polars() -> None:
    run_child(
        """
        import vlcs
        def compute():
            import numpy as np, pandas, polars, scipy.optimize, scipy.sparse.linalg
            frame = pandas.DataFrame({"k": [1, 2, 1], "v": [1.0, 2.0, 3.0]}).groupby("k").sum()
            lazy = polars.DataFrame({"k": [1, 2, 1], "v": [1, 2, 3]}).group_by("k").sum().sort("k")
            root = scipy.optimize.brentq(lambda x: x * x - 2, 0, 2)
            eigen = scipy.sparse.linalg.eigsh(scipy.sparse.diags(np.arange(1.0, 101)), k=2)[0]
            return frame["v"].tolist(), lazy["v"].to_list(), round(root, 9), eigen.round(6).tolist()
        contexts = [vlcs.VLC(name) for name in "ab"]
        futures = [context.submit(compute) for context in contexts]
        expected = [4.0, 2.0], [4, 2], 1.414213562, [99.0, 100.0]
        assert [future.result() for future in futures] == [expected] * 2
        """,
        timeout=100,
        preload=True,
    )
