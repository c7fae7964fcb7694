"""One noun per file: a file past 800 lines has more than one. And a design that can be read at once."""

from __future__ import annotations

from support.machine import ROOT
from support.source import files, name, refuse

LIMIT = 800
DESIGN_LIMIT = 60


def test_no_file_is_too_long() -> None:
    sources = files(
        "native",
        "src",
        "tests",
        "benchmarks",
        "examples",
        "tools",
        suffixes=(".c", ".h", ".hpp", ".S", ".cc", ".py", ".pyi"),
    )
    lengths = {name(path): len(path.read_text().splitlines()) for path in sources}
    refuse(
        (f"{file}: {length} lines" for file, length in lengths.items() if length >= LIMIT),
        f"Split these by noun into files under {LIMIT} lines.",
    )


def test_the_design_is_short() -> None:
    length = len((ROOT / "DESIGN.md").read_text().splitlines())
    refuse(
        [f"DESIGN.md: {length} lines"] if length > DESIGN_LIMIT else [],
        f"Say it in {DESIGN_LIMIT} lines; the rest belongs to comments and docs/.",
    )
