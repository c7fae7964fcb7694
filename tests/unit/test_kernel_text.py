"""Sets of numbers as the kernel writes them, and files that may be missing."""

from pathlib import Path

import pytest

from vlcs._core import _kernel_text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), (" 1 , 3-4\n", {1, 3, 4}), ("5,5,4-5", {4, 5})],
)
def test_lists_are_read(text: str, numbers: set[int]) -> None:
    assert _kernel_text.parse_list(text) == numbers


@pytest.mark.parametrize(
    "text", ["", ",", "a", "1-", "-1", "3-1", "1--2", "1;2", "0-99999999999", "1.5", "²"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        _kernel_text.parse_list(text)


@pytest.mark.parametrize(
    ("numbers", "text"), [({0}, "0"), ({0, 1, 2, 3, 8}, "0-3,8"), ({1, 3, 5, 6}, "1,3,5-6"), (set(), "")]
)
def test_lists_are_written(numbers: set[int], text: str) -> None:
    assert _kernel_text.format_list(numbers) == text


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"caf\xe9 1-2\n")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "words"):
        assert _kernel_text.read_list(path) == frozenset()
        assert _kernel_text.read_integer(path) is None
        assert _kernel_text.read_fields(path) == {}
    assert _kernel_text.read(tmp_path / "missing") == ""


def test_fields(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nno field\nCpus_allowed_list:\t0-3\n")
    assert _kernel_text.read_fields(tmp_path / "status") == {"Name": "python", "Cpus_allowed_list": "0-3"}
