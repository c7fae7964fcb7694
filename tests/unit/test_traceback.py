"""vlcs.dump_traceback() where something it needs is not to be had."""

from __future__ import annotations

import errno
import io
import math
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import vlcs
from vlcs._core import _traceback

if TYPE_CHECKING:
    import pytest


class Bridge:
    """One that answers."""

    def __init__(self) -> None:
        self.asked = 0

    def frames(self) -> list[tuple[int, str, list[tuple[str, int, str]]]]:
        self.asked += 1
        return [(1, "worker", [("app.py", 7, "step")])]


class Member:
    """A context whose interpreter goes, as by close() on another thread, when it was looked at so often."""

    name = "a"
    native = SimpleNamespace(resident=True)

    def __init__(self, looks: int = 99) -> None:
        self.looks = looks
        self.kept = Bridge()

    @property
    def bridge(self) -> Bridge | None:
        self.looks -= 1
        return self.kept if self.looks >= 0 else None

    def dump_frames(self, fd: int) -> bool:
        text = b'Thread 0x01 (most recent call first):\n  File "app.py", line 8 in stuck\n'
        return os.write(fd, text) == len(text)


def dump(monkeypatch: pytest.MonkeyPatch, member: Member) -> str:
    monkeypatch.setattr(_traceback, "REGISTRY", SimpleNamespace(members=lambda: [member]))
    file = io.StringIO()
    vlcs.dump_traceback(file, timeout=math.inf)
    return file.getvalue()


def no_thread(*_: Any) -> NoReturn:
    raise RuntimeError("can't start new thread")


def no_descriptor(*_: Any) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_context_that_closes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "in step" in dump(monkeypatch, Member(looks=1))


def test_no_thread_is_left_to_ask_with(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    with monkeypatch.context() as patch:
        patch.setattr(_traceback._thread, "start_new_thread", no_thread)
        text = dump(patch, member)
    assert "can't start new thread" in text
    assert "in stuck" in text
    assert "in step" in dump(monkeypatch, member)  # the question that could not be put is in nobody's way


def test_no_descriptor_is_left_to_read_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_traceback._thread, "start_new_thread", no_thread)
    monkeypatch.setattr(os, "memfd_create", no_descriptor)
    assert "it cannot be read without" in dump(monkeypatch, Member())
