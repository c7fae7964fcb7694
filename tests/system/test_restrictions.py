"""Processes that may not make executable memory (R4), or whose address space is limited (R3)."""

from __future__ import annotations

import ctypes
import errno

import pytest

from support.child import run_child

PR_SET_MDWE, PR_GET_MDWE = 65, 66

WORK = """
def work(n):
    import numpy as np
    return float(np.linalg.norm(np.ones((200, 200)) @ np.ones((200, 200)))) + n

contexts = [vlcs.VLC(f"c{n}") for n in range(5)]
futures = [context.submit(work, n) for n, context in enumerate(contexts)]
assert [future.result() for future in futures] == [40000.0 + n for n in range(5)]
native = vlcs.VLC("native", interpreter=False)
native.load_library("libstdc++.so.6")
for context in contexts:
    context.close()
native.close()
"""


def test_no_memory_may_become_executable() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0 and ctypes.get_errno() == errno.EINVAL:
        pytest.skip("no-mdwe: this kernel has no prctl(PR_GET_MDWE)")
    run_child(
        """
import ctypes, mmap, sys
assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    pass
else:
    sys.exit("the kernel grants what it should refuse")
import vlcs
"""
        + WORK,
        timeout=60,
    )


def test_address_space_is_limited() -> None:
    run_child(
        """
import os, resource, sys
if len(sys.argv) == 1:  # `ulimit -v 64000000`, and then the program
    resource.setrlimit(resource.RLIMIT_AS, (64_000_000 * 1024,) * 2)
    os.execv(sys.executable, [*sys.orig_argv, "limited"])
import vlcs
"""
        + WORK,
        timeout=60,
    )
