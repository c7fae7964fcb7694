"""The workloads: ordinary use of each library, one call of 0.3 to 1 second on one core of 2025.

Functions here are run by the demo's worker process and, by name, inside contexts, where this module
is imported again. So it imports nothing heavy itself: each workload imports its own libraries when
it is prepared, and keeps its data in `_state`, which belongs to that import alone.

Every workload has the same three functions, all called on the thread that will run it:

`prepare_x(directory)`
    imports, makes the data from a fixed seed, and runs once, so that nothing lazy is left to be timed;
`limit_x(threads)`
    sets the library's thread count, as a person who tunes by hand would;
`x()`
    the timed call. It returns a few numbers that tell whether the work was done right.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Prepare = Callable[[str], None]
Limit = Callable[[int], None]
Run = Callable[[], list[float]]

_state: dict[str, Any] = {}


# Gradient boosting, scikit-learn: OpenMP over features and rows, a parallel region per step of each node.


def prepare_boosting(_directory: str) -> None:
    import numpy as np

    random = np.random.default_rng(1)
    table = random.standard_normal((4_000, 20))
    _state["boosting"] = table, (table[:, 0] + table[:, 1] * table[:, 2] > 0.3).astype(np.int64)
    boosting()


def limit_boosting(threads: int) -> None:
    _limit("openmp", threads)


def boosting() -> list[float]:
    return _boost(200)


def long_boosting() -> list[float]:
    return _boost(500)


def _boost(trees: int) -> list[float]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    table, labels = _state["boosting"]
    model = HistGradientBoostingClassifier(max_iter=trees, early_stopping=False, random_state=0)
    model.fit(table, labels)
    chances = model.predict_proba(table)[:, 1]
    return [float(chances.mean()), float((chances**2).mean()), float(model.score(table, labels))]


# Gradient boosting, LightGBM: an OpenMP of its own.


def prepare_lightgbm(_directory: str) -> None:
    import numpy as np

    random = np.random.default_rng(2)
    table = random.standard_normal((4_000, 20))
    _state["lightgbm"] = table, (table[:, 0] - table[:, 1] * table[:, 2] > 0.3).astype(np.int64)
    lightgbm()


def limit_lightgbm(threads: int) -> None:
    _state["lightgbm threads"] = threads


def lightgbm() -> list[float]:
    from lightgbm import LGBMClassifier

    table, labels = _state["lightgbm"]
    # None is the default: LightGBM asks joblib for the number of physical cores.
    threads = _state.get("lightgbm threads")
    model: Any = LGBMClassifier(n_estimators=525, random_state=0, verbose=-1, n_jobs=threads)
    model.fit(table, labels)
    chances = model.predict_proba(table)[:, 1]
    return [float(chances.mean()), float((chances**2).mean()), float(model.score(table, labels))]


# A small network, PyTorch: thousands of short parallel regions.


def prepare_training(_directory: str) -> None:
    import torch

    random = torch.Generator().manual_seed(3)
    points = torch.randn(4_096, 64, generator=random)
    _state["training"] = points, (points[:, :1] * points[:, 1:2]).tanh()
    training()


def limit_training(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def training() -> list[float]:
    import torch

    points, targets = _state["training"]
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128),
        torch.nn.Tanh(),
        torch.nn.Linear(128, 128),
        torch.nn.Tanh(),
        torch.nn.Linear(128, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(17):
        for batch in range(0, len(points), 64):
            rows = slice(batch, batch + 64)
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.mse_loss(model(points[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return [sum(losses) / len(losses), sum(losses[-64:]) / 64]


# KMeans and SVD, scikit-learn and NumPy: OpenMP and OpenBLAS.


def prepare_clustering(_directory: str) -> None:
    import numpy as np

    random = np.random.default_rng(4)
    centres = random.standard_normal((12, 32)) * 4
    _state["clustering"] = centres[random.integers(12, size=30_000)] + random.standard_normal((30_000, 32))
    _state["matrix"] = random.standard_normal((1_200, 800))
    clustering()


def limit_clustering(threads: int) -> None:
    _limit("openmp", threads)
    _limit("blas", threads)


def clustering() -> list[float]:
    import numpy as np
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters=12, n_init=20, random_state=0).fit(_state["clustering"])
    values = np.linalg.svd(_state["matrix"], compute_uv=False)
    return [float(model.inertia_), float(values[0]), float(values.sum())]


# Reading a compressed HDF5 file, frame by frame, as a data loader does. HDF5 has one lock per process.


def prepare_first_file(directory: str) -> None:
    _prepare_file(directory, 5)


def prepare_second_file(directory: str) -> None:
    _prepare_file(directory, 6)


def _prepare_file(directory: str, seed: int) -> None:
    import h5py
    import numpy as np

    path = Path(directory, f"frames-{seed}.h5")
    if not path.exists():
        random = np.random.default_rng(seed)
        new = path.with_suffix(f".{os.getpid()}")
        with h5py.File(new, "w") as file:
            shape, chunk = (500, 128, 128), (1, 128, 128)
            frames = file.create_dataset("frames", shape, "i2", chunks=chunk, compression="gzip")
            for index in range(len(frames)):
                frames[index] = random.poisson(20, chunk[1:])
        new.replace(path)
    _state[f"path {seed}"] = path
    _read(seed)


def first_file() -> list[float]:
    return _read(5)


def second_file() -> list[float]:
    return _read(6)


def _read(seed: int) -> list[float]:
    import h5py

    total = peak = 0
    with h5py.File(_state[f"path {seed}"], "r") as file:
        frames = file["frames"]
        for _ in range(8):
            for index in range(len(frames)):
                frame = frames[index]
                total += int(frame.sum())
                peak = max(peak, int(frame.max()))
    return [float(total), float(peak)]


# A loop of pure Python: one interpreter, one GIL, one core.


def prepare_loop(_directory: str) -> None:
    loop()


def loop() -> list[float]:
    longest = 0
    for start in range(1, 95_000):
        value, steps = start, 0
        while value != 1:  # Collatz
            value = 3 * value + 1 if value % 2 else value // 2
            steps += 1
        longest = max(longest, steps)
    return [float(longest)]


def _limit(api: str, threads: int) -> None:
    """Sets the pools that are loaded, in this thread for OpenMP, in the process for BLAS."""
    from threadpoolctl import ThreadpoolController

    ThreadpoolController().select(user_api=api).limit(limits=threads)
