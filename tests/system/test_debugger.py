"""gdb, attached to a Python program with contexts."""

from __future__ import annotations

import re
import shutil

import pytest

from support.child import run_child

SLEEPER = """
import ctypes, os, subprocess, sys, threading
import vlcs

ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)  # PR_SET_PTRACER_ANY

def work(reached):
    import numpy, time
    open(reached, "w").close()
    time.sleep(60)

import pathlib, tempfile, time
with tempfile.TemporaryDirectory() as folder:
    reached = pathlib.Path(folder, "reached")
    context = vlcs.VLC("seen")
    context.submit(work, str(reached))
    while not reached.exists():
        time.sleep(0.01)
    gdb = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all backtrace",
           "-ex", "info sharedlibrary", "-p", str(os.getpid())]
    print(subprocess.run(gdb, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90).stdout)
    sys.stdout.flush()
    os._exit(0)
"""


def test_gdb_names_what_a_context_runs() -> None:
    if shutil.which("gdb") is None:
        pytest.fail("there is no gdb: run `tools/setup test`")
    output = run_child(SLEEPER, timeout=110).stdout
    threads = re.split(r"^Thread ", output, flags=re.MULTILINE)
    of_context = [text for text in threads if '"vlc:seen"' in text.partition("\n")[0]]
    assert any("_PyEval_EvalFrameDefault" in text for text in of_context), output  # of its own libpython
    assert re.search(r"_multiarray_umath.*\.so", output), output  # numpy is in no library list of the host's
