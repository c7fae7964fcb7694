"""The demo: tuning by hand, ratios, and what it says of them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from vlcs._core._topology import CPU, Topology
from vlcs._demo import _command, _measure, _pairs, _table, main
from vlcs._demo._machine import Machine, without_thread_variables
from vlcs._demo._measure import CONTEXTS, DEFAULTS, IN_TURN, TUNED, Measured, agree
from vlcs._demo._progress import Progress
from vlcs._demo._ratio import ratio
from vlcs._demo._search import Found, search
from vlcs._demo._setting import SERIAL, UNTOUCHED, Setting, SideSetting, candidates, halves
from vlcs._demo._worker import Order, Outcome, Worker, WorkerError

if TYPE_CHECKING:
    from pathlib import Path

BOOSTING, TRAINING, CLUSTERING, READING, PYTHON = _pairs.PAIRS


def topology(*cores: set[int], packages: dict[int, int] | None = None) -> Topology:
    places = packages or {}
    return Topology({n: CPU(n, places.get(n, 0), frozenset(core)) for core in cores for n in core})


def measured(pair: _pairs.Pair = BOOSTING, *, a: float = 2.0, b: float = 1.0, c: float = 1.0) -> Measured:
    found = Found(UNTOUCHED, {UNTOUCHED: [b], SERIAL: [a]})
    jitter = [1.0, 1.01, 0.99] * 5
    times = {DEFAULTS: a, TUNED: b, CONTEXTS: c}
    return Measured(pair, found, {way: [time * part for part in jitter] for way, time in times.items()})


# Settings


def test_two_cpus_have_every_count_together_in_turn_and_pinned() -> None:
    found = candidates([0, 1], (True, True))
    counts = [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert found == [
        *(Setting((SideSetting(one), SideSetting(two))) for one, two in counts),
        *(Setting((SideSetting(one), SideSetting(two)), together=False) for one, two in counts),
        Setting((SideSetting(1, (0,)), SideSetting(1, (1,)))),
    ]


def test_libraries_without_a_thread_count_are_pinned_and_put_on_one_cpu() -> None:
    found = candidates([0, 1], (False, False))
    assert found == [
        UNTOUCHED,
        SERIAL,
        Setting((SideSetting(None, (0,)), SideSetting(None, (1,)))),
        Setting((SideSetting(None, (0,)), SideSetting(None, (0,)))),
    ]


def test_more_cpus_are_also_split_unevenly_and_no_setting_comes_twice() -> None:
    found = candidates(range(8), (True, True))
    parts = {tuple(len(side.cpus) for side in each.sides if side.cpus) for each in found} - {()}
    assert parts == {(2, 6), (4, 4), (6, 2)}
    assert len(set(found)) == len(found)
    for each in found:
        for side in each.sides:
            assert side.threads is not None
            assert side.cpus is None or side.threads <= len(side.cpus)


@pytest.mark.parametrize(
    ("machine", "first", "second"),
    [
        (topology({0}, {1}), (0,), (1,)),
        (topology({0}, {1}, {2}), (0,), (1, 2)),
        (topology({0, 4}, {1, 5}, {2, 6}, {3, 7}), (0, 4, 1, 5), (2, 6, 3, 7)),
        (topology({0, 1}), (0,), (1,)),
        (topology({0}, {1}, {2}, {3}, packages={0: 1, 2: 1}), (1, 3), (0, 2)),
    ],
    ids=["two", "odd", "smt", "one core", "packages"],
)
def test_halves_keep_cores_and_packages_whole(
    machine: Topology, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    assert halves(sorted(machine.online), machine) == (first, second)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (UNTOUCHED, "together, not pinned"),
        (
            Setting((SideSetting(2), SideSetting(1)), together=False),
            "one after the other, 2 and 1 threads, not pinned",
        ),
        (
            Setting((SideSetting(2, (0, 1)), SideSetting(1, (2, 3)))),
            "together, 2 and 1 threads, pinned to CPUs 0-1 and 2-3",
        ),
        (Setting((SideSetting(None, (0,)), SideSetting(None, (0,)))), "together, both pinned to CPU 0"),
    ],
)
def test_a_setting_says_what_it_is(setting: Setting, words: str) -> None:
    assert str(setting) == words


# The search


def test_the_search_finds_the_fastest_and_drops_slow_ones_early() -> None:
    one, two, three = candidates([0, 1], (False, False))[:3]
    speed = {one: 3.0, two: 1.0, three: 1.2}
    found = search([one, two, three], speed.__getitem__, passes=4)
    assert found.best == two
    assert {setting: len(seconds) for setting, seconds in found.seconds.items()} == {one: 1, two: 4, three: 2}


def test_one_slow_run_of_the_best_does_not_drop_it() -> None:
    one, two = UNTOUCHED, SERIAL
    times = {one: iter([1.4, 1.0, 1.0, 1.0]), two: iter([1.1, 1.1, 1.1, 1.1])}
    assert search([one, two], lambda setting: next(times[setting]), passes=4).best == one


def test_the_search_says_how_far_it_is() -> None:
    seen: list[str] = []
    search([UNTOUCHED, SERIAL], lambda _: 1.0, passes=1, progress=seen.append)
    assert seen == [
        "searching the best setting: pass 1 of 1, 1 of 2",
        "searching the best setting: pass 1 of 1, 2 of 2",
    ]


# Ratios


def test_a_ratio_is_taken_round_by_round() -> None:
    # The machine is ten times slower in the last round, for both.
    got = ratio([2.0, 2.2, 20.0], [1.0, 1.0, 10.0])
    assert (got.median, got.low, got.high) == (2.0, 2.0, 2.2)
    assert got.coverage == 0.75  # the range of three values


def test_fifteen_rounds_leave_out_three_at_each_end() -> None:
    got = ratio([float(value) for value in range(1, 16)], [1.0] * 15)
    assert (got.low, got.median, got.high) == (4.0, 8.0, 12.0)
    assert got.coverage == pytest.approx(0.9648, abs=1e-4)
    assert str(got) == "8.00 [4.00, 12.00]"


def test_one_round_is_certain_of_nothing() -> None:
    assert ratio([2.0], [1.0]).coverage == 0


# Equal numbers


def test_numbers_agree_up_to_a_part_of_their_size() -> None:
    assert agree([1e9, 0.0], [1e9 + 1, 0.0], 1e-6)
    assert not agree([1.0], [1.001], 1e-6)
    assert not agree([1.0], [1.0, 2.0], 1)
    assert not agree([float("nan")], [float("nan")], 1)
    assert not agree([1.0], [1.0 + 1e-15], 0)


def test_a_way_that_computes_something_else_is_named() -> None:
    one = measured()
    same = [[1.0, 2.0], [3.0]]
    _measure._check(one, {DEFAULTS: Outcome(1, same), CONTEXTS: Outcome(1, [[1.0, 2.5], [3.0]])})
    assert one.mismatches == [
        (
            "HistGradientBoosting computed [1.0, 2.5] in the way 'contexts', but [1.0, 2.0] in the way "
            "'defaults'; they may differ by 1e-06 of their size"
        )
    ]


# What it prints


def test_the_table_has_a_row_for_each_pair_and_says_what_was_set() -> None:
    one, two = measured(), measured(PYTHON)
    two.seconds[IN_TURN] = [1.9] * 15
    text = _table.table([one, two])
    assert (
        "HistGradientBoosting, LightGBM  2.00 s  1.00 s  1.00 s  2.00 [2.00, 2.00]  1.00 [1.00, 1.00]" in text
    )
    assert "HistGradientBoosting, LightGBM  together, not pinned (of 2 tried)" in text
    assert "Medians of 15 rounds in which the ways take turns; ratios with 96% intervals." in text
    assert (
        "One after the other, 2 x pure Python takes 1.90 s: 1.90 [1.88, 1.92] times as long as (c)." in text
    )
    assert max(map(len, text.splitlines())) <= 110


def test_the_meaning_of_good_figures() -> None:
    text = _table.meaning([measured(a=4), measured(READING, a=2, b=2)])
    assert text == (
        "All ways did the same work and computed the same numbers. Two VLCs were 2.00 to 4.00 times as fast "
        "as two threads with untouched defaults. They match the best of up to 2 settings by hand for "
        "'HistGradientBoosting, LightGBM'. No setting by hand reaches them for '2 x h5py': threads of one "
        "process share its interpreter's lock, and often a library's lock too. Nobody had to find a setting "
        "for that: each VLC has its own copies of the libraries, with their own interpreter, locks and "
        "thread pools, and to them its half of the CPUs is the machine."
    )


def test_the_meaning_of_bad_figures_is_said_too() -> None:
    text = _table.meaning([measured(a=1, c=1.3)])
    assert "were not faster than two threads with untouched defaults" in text
    assert "For HistGradientBoosting, LightGBM the best setting by hand is faster: they took 1.30" in text
    assert "Nobody had to" not in text


def test_different_numbers_are_not_compared() -> None:
    wrong = measured()
    wrong.mismatches.append("x")
    assert _table.meaning([wrong]) == (
        "The ways computed different numbers for 'HistGradientBoosting, LightGBM', so their times cannot be "
        "compared."
    )


def test_progress_on_a_terminal_is_one_line_that_changes() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Progress(2, stream) as progress:
        progress.pair("2 x pure Python")
        progress.step("round 1 of 15")
        progress.step("round 2 of 15")
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("2 x pure Python: round 2 of 15\r\x1b[K")


def test_progress_in_a_file_is_a_line_for_each_kind_of_step() -> None:
    stream = io.StringIO()
    with Progress(2, stream) as progress:
        for title in ("one", "two"):
            progress.pair(title)
            for number in range(1, 16):
                progress.step(f"round {number} of 15")
    assert stream.getvalue() == "[1/2] one: round 1 of 15\n[2/2] two: round 1 of 15\n"


# The machine


def test_variables_that_size_pools_are_left_out_and_named() -> None:
    given = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2", "KMP_AFFINITY": "x", "PATH": "/bin"}
    assert without_thread_variables(given) == (
        {"PATH": "/bin"},
        ["KMP_AFFINITY", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"],
    )


def test_a_busy_or_bounded_machine_is_cautioned_about() -> None:
    idle = Machine("CPU", (0, 1), None, 0.1, "Linux", "2026-01-01", {})
    assert idle.cautions() == []
    assert "the time of 1.5 CPUs, not of 2" in replace(idle, quota=1.5).cautions()[0]
    assert "load 3.0" in replace(idle, load=3.0).cautions()[0]


# The command


def test_an_unknown_pair_names_the_near_miss(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--pairs", "boost"])
    assert exit_.value.code == 2
    assert "there is no pair 'boost': did you mean 'boosting'?" in capsys.readouterr().err


@pytest.mark.parametrize("runs", ["0", "x", "-1"])
def test_runs_must_be_a_number(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([f"--runs={runs}"])
    assert exit_.value.code == 2
    assert "is not a number of rounds: give 1 or more" in capsys.readouterr().err


def test_one_cpu_is_not_enough(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert main([]) == 2
    assert "needs two CPUs to share out, but this process may use 1 (CPU 3)" in capsys.readouterr().err


def test_a_pair_that_lacks_packages_is_left_out_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        _pairs.importlib.util, "find_spec", lambda name: None if name != "numpy" else object()
    )
    assert _command._installed(_pairs.PAIRS) == [PYTHON]
    assert capsys.readouterr().err == (
        "Left out: HistGradientBoosting, LightGBM. To have it: pip install scikit-learn lightgbm\n"
        "Left out: PyTorch, HistGradientBoosting. To have it: pip install torch scikit-learn\n"
        "Left out: PyTorch, KMeans + SVD. To have it: pip install torch scikit-learn\n"
        "Left out: 2 x h5py. To have it: pip install h5py\n"
    )


def test_a_failed_pair_makes_exit_code_1_and_the_others_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fake(pair: _pairs.Pair, *_: object) -> Measured:
        if pair is PYTHON:
            raise WorkerError("the worker ended with signal 11. It wrote nothing.")
        return measured(pair)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(_command, "measure", fake)
    monkeypatch.setattr(_command, "_installed", list)
    assert main(["--json", str(tmp_path / "out.json")]) == 1
    out, err = capsys.readouterr()
    assert "FAILED: 2 x pure Python: the worker ended with signal 11." in err
    assert "2 x h5py: (a) 2.00 s, (b) 1.00 s, (c) 1.00 s\n2 x pure Python: failed\n" in err
    assert "2 x h5py" in out
    record = json.loads((tmp_path / "out.json").read_text())
    assert set(record["pairs"]) == {"boosting", "training", "clustering", "reading"}
    assert record["pairs"]["boosting"]["ratios"]["defaults/contexts"]["median"] == pytest.approx(2)
    assert record["failures"]


# Workers


def test_guests_import_the_workloads_without_anything_heavy() -> None:
    program = (
        "import sys, vlcs._demo._workloads\n"
        "print([name for name in ('numpy', 'torch', 'argparse') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_runs_a_pair_whenever_it_is_told(tmp_path: Path) -> None:
    with Worker(Order("python", str(tmp_path)), os.environ) as worker:
        pinned = Setting((SideSetting(None, (min(os.sched_getaffinity(0)),)), SideSetting()))
        outcomes = [worker.run(setting) for setting in (UNTOUCHED, SERIAL, pinned)]
    assert all(outcome.seconds > 0 for outcome in outcomes)
    assert [outcome.values for outcome in outcomes] == [[[350.0]] * 2] * 3


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkerError, match=r"KeyError: 'nothing'"),
        Worker(Order("nothing", str(tmp_path)), os.environ),
    ):
        pass


def test_a_worker_that_dies_says_its_last_words(tmp_path: Path) -> None:
    broken = {**os.environ, "PYTHONHOME": str(tmp_path)}
    with (
        pytest.raises(WorkerError, match=r"ended with exit code 1\. It wrote:\n[\s\S]*encodings"),
        Worker(Order("python", str(tmp_path)), broken),
    ):
        pass


def test_a_worker_that_fails_at_its_end_has_failed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import atexit, os; atexit.register(os._exit, 3)")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with (
        pytest.raises(WorkerError, match="ended with exit code 3 after its work"),
        Worker(Order("python", str(tmp_path)), {**os.environ, "PYTHONPATH": path}),
    ):
        pass
