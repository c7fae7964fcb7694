"""docs/cases.md has every case, each with a test that is there."""

from __future__ import annotations

import re

from support.machine import ROOT
from support.source import refuse

TABLE = ROOT / "docs/cases.md"
CASES = {
    **{f"L{n}": "libraries" for n in range(1, 10)},
    **{f"U{n}": "thread-unsafe libraries" for n in range(1, 5)},
    **{f"I{n}": "interpreters" for n in range(1, 3)},
    **{f"P{n}": "parallelism" for n in range(1, 7)},
    **{f"F{n}": "processes" for n in range(1, 4)},
    **{f"D{n}": "data" for n in range(1, 3)},
    **{f"R{n}": "rough weather" for n in range(1, 12)},
}


def rows() -> dict[str, list[str]]:
    """The cells of each row, by the name of its case."""
    found = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if re.fullmatch(r"[A-Z]\d+", cells[0]):
            found[cells[0]] = cells[1:]
    return found


def is_there(name: str) -> bool:
    """Whether `system/file.py::test` or `native/program` exists; a `*` stands for the rest of a name."""
    folder, _, rest = name.partition("/")
    if folder == "native":
        programs = re.findall(r"\w+", (ROOT / "tests/native/CMakeLists.txt").read_text())
        return rest in programs and any((ROOT / "tests/native").glob(f"{rest}.c*"))
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    if not path.exists():
        return False
    pattern = re.escape(test).replace(r"\*", r"\w*")
    return not test or re.search(rf"^def {pattern}\(", path.read_text(), re.MULTILINE) is not None


def test_every_case_names_tests_that_are_there() -> None:
    found = rows()
    wrong = [f"{case} is no case" for case in found if case not in CASES]
    for case in CASES:
        tests = re.findall(r"`((?:system|unit|rules|native)/[^`]+)`", " ".join(found.get(case, [])))
        if not tests:
            wrong.append(f"{case}: names no test")
        wrong += [f"{case}: {name} is not there" for name in tests if not is_there(name)]
    refuse(iter(wrong), f"{TABLE.name}: a case without a test is a hope: write it, or correct its name.")
