"""One noun per file: a file past 800 lines has more than one."""

from __future__ import annotations

from support.source import files, name, refuse

LIMIT = 800


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
