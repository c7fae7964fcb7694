"""How much memory a context may take, in words and numbers."""

from __future__ import annotations

from typing import Any

import pytest

import vlcs
from vlcs._core import _memory_limit


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, 0),
        (1 << 20, 1 << 20),
        ("2GiB", 2 << 30),
        ("1.5 GB", 1_500_000_000),
        (" 512MiB ", 512 << 20),
        ("4000000", 4_000_000),
        ("2000kB", 2_000_000),
        ("1TiB", 1 << 40),
    ],
)
def test_forms(text: Any, size: int) -> None:
    assert _memory_limit.read(text) == size


@pytest.mark.parametrize(
    "limit",
    [
        "",
        "GiB",
        "2 Gib",
        "-1GiB",
        "1e9",
        "2G iB",
        0,
        -5,
        True,
        1.5,
        b"1GiB",
        [1],
        1 << 63,
        "9999999TiB",
        "9" * 5000,
        f"{'9' * 400}.5GB",
    ],
)
def test_what_cannot_be_read(limit: Any) -> None:
    with pytest.raises(vlcs.ArgumentError, match='"2GiB"'):
        _memory_limit.read(limit)


def test_too_little_says_how_much_there_must_be() -> None:
    with pytest.raises(vlcs.ArgumentError, match=r"a context takes up to 1MiB .* 16 MiB to start"):
        _memory_limit.read("1023KiB")


def test_words_are_exact() -> None:
    for size in (1 << 20, 3 << 19, 2 << 30, 1_500_000_000, (1 << 40) + 1):
        assert _memory_limit.read(_memory_limit.words(size)) == size
    assert _memory_limit.words(2 << 30) == "2GiB"


class TestReport:
    """Each row of the table in docs/slices.md."""

    def test_none(self) -> None:
        line = _memory_limit.resource(0, own_heap=True).data()
        assert (line["state"], line["requested"], line["granted"]) == ("advisory", None, "no limit")

    def test_own_heap(self) -> None:
        line = _memory_limit.resource(2 << 30, own_heap=True).data()
        assert (line["state"], line["requested"]) == ("advisory", 'memory_limit="2GiB"')
        assert "malloc and mmap, as libraries call them through libc" in line["reason"]
        assert "memory.max" in line["cure"]

    def test_host_heap(self) -> None:
        line = _memory_limit.resource(2 << 30, own_heap=False).data()
        assert line["state"] == "advisory"
        assert 'mappings alone: its malloc is the host\'s (heap="host")' in line["reason"]

    def test_replaced_malloc(self) -> None:
        line = _memory_limit.resource(2 << 30, own_heap=True, host_malloc="/lib/libjemalloc.so.2").data()
        assert "its malloc is that of /lib/libjemalloc.so.2" in line["reason"]
