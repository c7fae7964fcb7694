"""Huge pages: what the system does, and what that makes of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from vlcs._core import _huge_pages

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("always [madvise] never\n", "madvise"),
        ("[always] madvise never\n", "always"),
        ("always madvise [never]\n", "never"),
        ("garbage", "never"),
        (None, "never"),
    ],
)
def test_setting_of_the_system(tmp_path: Path, text: str | None, setting: str) -> None:
    if text is not None:
        file = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert _huge_pages.setting(tmp_path) == setting


def test_numbers_are_those_of_the_header() -> None:
    assert [_huge_pages.number(value) for value in (None, True, False)] == [0, 1, 2]


@pytest.mark.parametrize("value", [1, 0, "yes", "always"])
def test_what_cannot_be_read(value: Any) -> None:
    with pytest.raises(vlcs.ArgumentError, match=f"huge_pages={value!r}: give True, False, or None"):
        _huge_pages.read(value)


@pytest.mark.parametrize(
    ("asked", "system", "state", "words"),
    [
        (True, "always", "advisory", "where it has no whole one"),
        (True, "madvise", "advisory", "where it has no whole one"),
        (True, "never", "unavailable", "the kernel gives nobody any"),
        (False, "always", "advisory", "are refused"),
        (False, "madvise", "advisory", "are refused"),
        (False, "never", "enforced", "the kernel gives nobody any"),
        (None, "madvise", "advisory", "as NumPy does"),
    ],
)
def test_report(asked: bool | None, system: str, state: str, words: str) -> None:
    """Each row of the table in docs/slices.md."""
    line = _huge_pages.resource(asked, system).data()
    assert line["state"] == state
    assert words in line["reason"]
    assert line["requested"] == (None if asked is None else f"huge_pages={asked}")
    assert bool(line["cure"]) == (state == "unavailable")
