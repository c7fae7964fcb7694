"""What is preloaded into the host (L9): contexts use it as the host does, and end as ever."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.child import run_child

# A few functions of each allocator, or of the clock, as the host's and a context's ctypes see them.
WORK = """
import ctypes, logging, os, sys
import vlcs

preload = sys.argv[1]
allocates = preload != "faketime"

def address(name):
    import ctypes
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value

def work(n):
    import numpy as np, time
    return float((np.ones((100, 100)) @ np.ones((100, 100))).sum()) + n, time.time()

class Seen(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())

logging.getLogger("vlcs").addHandler(Seen())
for round in range(2):
    contexts = [vlcs.VLC(f"c{n}") for n in range(2)]
    for n, context in enumerate(contexts):
        total, now = context.submit(work, n).result()
        assert total == 1e6 + n, total
        if "faketime" in preload:
            assert 978307200 < now < 1009843200, now  # 2001
        for name in ("malloc", "free", "calloc", "posix_memalign"):
            assert (context.run(address, name) == address(name)) is allocates, name
        for name in ("clock_gettime", "gettimeofday", "strlen", "memcpy"):
            assert context.run(address, name) == address(name), name
    for context in contexts:
        context.close()
    assert not vlcs.contexts()
file = vlcs.limits().host_malloc
assert (file is not None) is allocates, file
assert len(Seen.lines) == allocates, Seen.lines
if allocates:
    assert preload.split("+")[0] in file and file in Seen.lines[0], (file, Seen.lines)
"""


def preloads(*names: str) -> str:
    """Their paths, as LD_PRELOAD takes them; a compiler finds libraries by their names."""
    paths = []
    for name in names:
        command = ["gcc", f"-print-file-name={name}"]
        path = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        if not path.is_absolute():
            pytest.fail(f"there is no {name}: run `tools/setup test`")
        paths.append(str(path.resolve()))
    return ":".join(paths)


JEMALLOC, TCMALLOC, ASAN = "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libasan.so"
FAKETIME = "faketime/libfaketime.so.1"


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ((JEMALLOC,), "jemalloc"),
        ((TCMALLOC,), "tcmalloc"),
        ((ASAN,), "asan"),
        ((FAKETIME,), "faketime"),
        ((TCMALLOC, FAKETIME), "tcmalloc+faketime"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contexts_use_what_is_preloaded(names: tuple[str, ...], what: str) -> None:
    env = {
        "LD_PRELOAD": preloads(*names),
        "ASAN_OPTIONS": "detect_leaks=0",  # CPython's own
        "FAKETIME": "2001-02-03 04:05:06",
        "PYTHONMALLOC": None,
    }
    run_child(WORK, args=[what], env=env, timeout=60)
