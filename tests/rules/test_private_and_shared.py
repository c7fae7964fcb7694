"""docs/private_and_shared.md names a test for each row, and these are there."""

from __future__ import annotations

import re

from support.machine import ROOT
from support.source import refuse

TABLE = ROOT / "docs/private_and_shared.md"
WITHOUT = {"multibyte state"}  # rows that only say a limit


def rows() -> list[list[str]]:
    """The cells of each row below a header that ends with "test"."""
    lines = TABLE.read_text().splitlines()
    tables = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in tables if row[-1].strip() != "test"]


def test_every_row_names_a_test_that_is_there() -> None:
    programs = set(re.findall(r"\w+", (ROOT / "tests/native/CMakeLists.txt").read_text()))

    def is_there(name: str) -> bool:
        folder, _, rest = name.partition("/")
        if folder == "native":
            return rest in programs and (ROOT / f"tests/native/{rest}.c").exists()
        return (ROOT / "tests" / name).exists()

    found = rows()
    assert len(found) > 30, f"{TABLE.name} was not understood: {len(found)} rows"
    wrong = []
    for row in found:
        tests = re.findall(r"`([^`]+)`", row[-1])
        if not tests and not row[0].startswith(tuple(WITHOUT)):
            wrong.append(f"{row[0]}: names no test")
        wrong += [f"{row[0]}: {name} is not there" for name in tests if not is_there(name)]
    refuse(
        iter(wrong), f"{TABLE.name}: a promise without a test is a hope; write the test, or correct its name."
    )
