"""The programs in README.md and docs/ are whole, and run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.machine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def programs() -> list[tuple[str, str]]:
    """(file and line, source) of each Python block."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (f"{page.name}:{page.read_text()[: block.start()].count(chr(10)) + 1}", block[1])
        for page in pages
        for block in BLOCK.finditer(page.read_text())
    ]


def test_there_are_programs() -> None:
    assert any(name.startswith("README.md") for name, _ in programs())


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in programs()])
def test_program_runs(source: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(source)
    finished = run_child(tmp_path / "app.py", timeout=60, cwd=tmp_path)
    assert not finished.stderr, finished.stderr
