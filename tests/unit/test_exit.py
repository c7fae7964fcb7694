"""The end of the process and of a parent's contexts in a forked child."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

import vlcs
from vlcs._core import _exit
from vlcs._core._registry import REGISTRY

if TYPE_CHECKING:
    from conftest import Native


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    monkeypatch.setattr(_exit, "WORK_SECONDS", 0.2)
    monkeypatch.setattr(_exit, "TOTAL_SECONDS", 0.4)


def test_closes_in_reverse_order(native: Native) -> None:
    for name in "abc":
        vlcs.VLC(name)
    _exit.close_all()
    assert [line for line in native.log if line.startswith("destroy")] == [
        "destroy c",
        "destroy b",
        "destroy a",
    ]
    assert vlcs.contexts() == []


def test_submitted_work_is_finished(native: Native) -> None:  # noqa: ARG001 - contexts are made of it
    future = vlcs.VLC("a").submit(time.sleep, 0.05)
    _exit.close_all()
    assert future.done()


def test_endless_work_is_interrupted_and_the_others_are_closed(
    native: Native, caplog: pytest.LogCaptureFixture
) -> None:
    endless, other = vlcs.VLC("endless"), vlcs.VLC("other")
    interpreter = endless._instance._interpreter
    go = threading.Event()
    endless.submit(go.wait, 5)
    queued = endless.submit(len, "x")
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "vlcs"):
        _exit.close_all()
    assert time.monotonic() - start < 2
    assert interpreter.interrupted == 1  # type: ignore[union-attr]
    assert queued.cancelled()
    assert "destroy other" in native.log
    assert other.closed
    assert "the context 'endless' still had work after 0.2 s: threading.Event.wait()" in caplog.text
    assert "len() (queued). 1 of its jobs had not begun and will not; Python code" in caplog.text
    assert "cannot close the context 'endless': " in caplog.text
    assert "threading.Event.wait()" in caplog.text
    go.set()


def test_contexts_end_whatever_is_held_of_them(native: Native) -> None:  # noqa: ARG001 - contexts are made of it
    context = vlcs.VLC("a")._instance.native
    _exit.close_all()
    assert context.abandoned  # type: ignore[attr-defined]


def test_a_block_of_the_exiting_thread_is_not_waited_for(
    native: Native, caplog: pytest.LogCaptureFixture
) -> None:
    vlcs.VLC("a").__enter__()
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "vlcs"):
        _exit.close_all()
    assert time.monotonic() - start < 0.1
    assert native.log[-1] == "destroy a"
    assert not caplog.records


def test_after_a_fork_the_parents_contexts_are_dead(native: Native) -> None:
    vlc = vlcs.VLC("a", cpus="0", exclusive=True)
    library = vlc.load_library("libx.so")
    instance = vlc._instance
    with vlc:
        REGISTRY.after_fork()
        with pytest.raises(vlcs.StateError, match="before this process was forked from its parent"):
            vlc.run(len, "x")
    with pytest.raises(vlcs.StateError, match="Make a context in the child"):
        vlc.submit(len, "x")
    with pytest.raises(vlcs.StateError):
        library.function()
    assert vlc.closed
    assert vlcs.contexts() == []
    vlc.close()
    assert "destroy a" not in native.log
    vlcs.VLC("a", cpus="0").close()
    instance.native.destroy()
