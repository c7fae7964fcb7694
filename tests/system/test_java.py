"""A JVM (jpype1) in the host, in contexts, and in both: its compiled code has faults for null checks (F3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.child import run_child

JAVA = """
import vlcs

def java(repeats):
    import jpype, jpype.imports
    if not jpype.isJVMStarted():
        jpype.startJVM("-Xmx64m", "-XX:-UsePerfData")  # which is a file per process
    from java.lang import NullPointerException, System
    from java.util import ArrayList, Collections
    caught = 0
    nothing = jpype.JObject(None, "java.util.List")
    for _ in range(repeats):  # compiled after a while: then each is a fault that the JVM's handler resolves
        try:
            Collections.sort(nothing)
        except NullPointerException:
            caught += 1
    numbers = ArrayList()
    for number in range(100):
        numbers.add(jpype.JInt(number * 7919 % 101))
    Collections.sort(numbers)
    System.gc()  # stops all its threads
    return caught, int(numbers.get(5))

def report_faults():
    import faulthandler
    faulthandler.enable()

RIGHT = (1000, 5)
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = Path(home).exists() if home else any(Path("/usr/lib/jvm").glob("*/lib/server/libjvm.so"))
    if not found:
        pytest.skip("no-java: there is no JVM in /usr/lib/jvm, and JAVA_HOME names none")
    pytest.importorskip("jpype", reason="no-java: jpype1 is not installed")


def test_a_jvm_of_the_host_beside_contexts_that_have_handlers() -> None:
    run_child(
        JAVA
        + """
assert java(1000) == RIGHT
a = vlcs.VLC("a")
a.submit(report_faults).result()  # ours is before the JVM's now
assert java(1000) == RIGHT
a.close()
assert java(1000) == RIGHT
""",
        timeout=100,
    )


def test_a_jvm_in_each_context_and_in_the_host() -> None:
    run_child(
        JAVA
        + """
a, b = vlcs.VLC("a"), vlcs.VLC("b")
jobs = [a.submit(java, 1000), b.submit(java, 1000)]
assert [job.result() for job in jobs] == [RIGHT] * 2
assert java(1000) == a.run(java, 1000) == b.run(java, 1000) == RIGHT
a.close(timeout=20)
assert java(1000) == b.submit(java, 1000).result() == RIGHT
assert vlcs.VLC("a").submit(java, 10).result() == (10, 5)
""",
        timeout=100,
    )
