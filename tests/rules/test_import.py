"""Nothing happens at import but the loading of our own native libraries."""

from __future__ import annotations

from support.child import run_child

PROGRAM = """
    import ctypes, os, signal, sys, threading

    def state():
        handlers = [signal.getsignal(n) for n in sorted(signal.valid_signals())]
        return {
            "threads": sorted(os.listdir("/proc/self/task")),
            "descriptors": sorted(set(os.listdir("/proc/self/fd"))),
            "environment": dict(os.environ),
            "affinity": os.sched_getaffinity(0),
            "handlers": [repr(h) for h in handlers],
            "folder": os.getcwd(),
            "umask": [os.umask(0o22), os.umask(0o22)][0],
            "locale": ctypes.CDLL(None).setlocale(6, None),
        }

    ctypes.CDLL(None).setlocale.restype = ctypes.c_char_p
    before = state()
    modules = set(sys.modules)
    import vlcs
    after = state()
    for what in before:
        assert before[what] == after[what], f"import vlcs changed {what}: {before[what]} -> {after[what]}"
    heavy = {"numpy", "torch", "multiprocessing", "asyncio"} & (set(sys.modules) - modules)
    assert not heavy, f"import vlcs imported {sorted(heavy)}: import where it is used"
    print(sum("rwxp" in line for line in open("/proc/self/maps")))
"""


def test_import_changes_nothing_of_the_process() -> None:
    assert run_child(PROGRAM, timeout=30).lines == ["0"], (
        "a mapping is writable and executable after import vlcs"
    )


def test_import_writes_nothing(tmp_path: object) -> None:
    program = "import os, vlcs; print(os.listdir('.'))"
    assert run_child(program, timeout=30, cwd=str(tmp_path)).lines == ["[]"]
