"""What the built libraries need from others, and what they show."""

from __future__ import annotations

import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from support.machine import ROOT

CORE = Path(str(files("vlcs._core").joinpath("libvlcs.so")))
CHILD = CORE.with_name("libvlcs_child.so")
POOLS = sorted(CORE.parent.glob("libvlcs_tls*.so"))
LIBC = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", library)))


def exported(library: Path) -> set[str]:
    return {
        line.split()[-1].partition("@")[0]
        for line in output("nm", "-D", "--defined-only", library).splitlines()
    }


def test_the_core_needs_only_libc() -> None:
    others = needed(CORE) - LIBC
    assert not others, f"libvlcs.so must load wherever libc does: drop what brought in {sorted(others)}"


def test_the_core_exports_what_its_header_declares() -> None:
    header = (ROOT / "native/include/vlcs.h").read_text()
    declared = set(re.findall(r"^VLC_API [^;(]*?(\w+)\(", header, re.MULTILINE))
    assert declared, "no declaration was found in vlcs.h: has VLC_API moved?"
    assert all(symbol.startswith("vlc_") for symbol in declared)
    extra, missing = sorted(exported(CORE) - declared), sorted(declared - exported(CORE))
    assert not extra, (
        f"exported, but not in vlcs.h: {extra}. Declare them there, or name them vlci_ and hide them"
    )
    assert not missing, f"in vlcs.h, but not exported: {missing}. Define them"


def test_the_library_for_children_needs_only_libc_and_hides_the_rest() -> None:
    others = needed(CHILD) - LIBC
    assert not others, f"it is loaded into every program that a context starts: drop {sorted(others)}"
    assert exported(CHILD) == {"sysconf", "get_nprocs"} | {
        name + size for name in ("open", "openat", "fopen") for size in ("", "64")
    } | {"__open_2", "__open64_2", "__openat_2", "__openat64_2"}, (
        "what it exports replaces libc's in children: only what tells CPUs"
    )
    tls = re.findall(r"^ +TLS ", output("readelf", "-lW", CHILD), re.MULTILINE)
    assert not tls, "thread-local variables take room of static TLS that programs may need"


@pytest.mark.parametrize("library", POOLS, ids=lambda path: path.stem)
def test_a_pool_is_an_array_and_nothing_else(library: Path) -> None:
    assert exported(library) == {"vlc_tls_pool"}
    assert not needed(library), "a pool must load at any time: no library, not even libc (-nostdlib)"


def test_every_pool_is_there() -> None:
    sizes = {"", "_768", "_512", "_256", "_128", "_64"}
    assert {path.stem.removeprefix("libvlcs_tls") for path in POOLS} == sizes


def test_the_core_has_no_writable_code() -> None:
    segments = re.findall(
        r"^ +(LOAD|GNU_STACK|GNU_RELRO) .* ([R ][W ][E ]) ", output("readelf", "-lW", CORE), re.MULTILINE
    )
    assert {kind for kind, _ in segments} == {"LOAD", "GNU_STACK", "GNU_RELRO"}
    assert not [flags for _, flags in segments if "W" in flags and "E" in flags], (
        "a segment is writable and executable: keep code out of .data"
    )
    assert ("GNU_STACK", "RW ") in segments, (
        "an executable stack: an assembler file lacks .section .note.GNU-stack"
    )
