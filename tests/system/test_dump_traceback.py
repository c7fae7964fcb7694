"""vlcs.dump_traceback(): where everybody is, whatever they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.child import Finished, run_child

if TYPE_CHECKING:
    from pathlib import Path

# What the programs below have in common: the text as {thread: {interpreter: functions}}.
PARSED = """
import io, re, sys, threading, time, vlcs

def dump(**options):
    file = io.StringIO()
    vlcs.dump_traceback(file, **options)
    return file.getvalue()

def parsed(text):
    threads, notes = {}, []
    for line in text.splitlines():
        if found := re.match(r"Thread 0x[0-9a-f]{16} \\((.*)\\).*, most recent call last:", line):
            groups = threads[found[1]] = [("host", [])]
        elif line.startswith("The context"):
            notes.append(line)
        elif found := re.match(r"  in the (?:context '(.*)'|(host)):", line):
            groups.append((found[1] or found[2], []))
        elif found := re.match(r'  File ".*", line \\d+, in (.*)', line):
            groups[-1][1].append(found[1])
    return threads, notes

def innermost(text):
    return {name: groups[-1][1][-1:] for name, groups in parsed(text)[0].items()}

def dump_when(**functions):
    "The text once each of these threads is in its function."
    end = time.monotonic() + 20
    expected = {name: [function] for name, function in functions.items()}
    while True:
        text = dump()
        if expected.items() <= innermost(text).items():
            return text
        assert time.monotonic() < end, text
"""


def run_script(folder: Path, program: str) -> Finished:
    """Runs a program from a file, so that there are lines of source to be shown."""
    (folder / "program.py").write_text(PARSED + program)
    return run_child(folder / "program.py", timeout=60)


def test_every_thread_is_shown_whatever_it_does(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        r"""
import ctypes, os

def computes(stop):
    while not stop[0]:
        pass

def sleeps(stop):
    import threading, time
    def of_its_own():
        while not stop[0]:
            time.sleep(0.05)
    own = threading.Thread(target=of_its_own, name="own")
    own.start()
    while not stop[0]:
        time.sleep(0.05)
    own.join()

def waits(stop):
    import threading
    lock = threading.Lock()
    with lock:
        while not stop[0]:
            lock.acquire(timeout=0.05)

def holds_the_gil(fd):
    import ctypes
    ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)

a, b, c, unused = (vlcs.VLC(name, resident=False) for name in ("a", "b", "c", "unused"))
native = vlcs.VLC("native", interpreter=False)
stop = memoryview(bytearray(1))
(reader, writer), (reading, writing) = os.pipe(), os.pipe()
def start(name, *call):
    thread = threading.Thread(target=call[0], args=call[1:], name=name, daemon=True)
    thread.start()
    return thread
threads = [
    start("first", a.run, computes, stop),
    start("second", a.run, sleeps, stop),
    start("third", b.run, waits, stop),
    start("host's", sleeps, stop),
    start("fifth", b.run, os.read, reading, 1),
]
future = b.submit(waits, stop)
dump_when(first="computes", second="sleeps", third="waits", **{"MainThread of 'b'": "waits"})
threads.append(start("fourth", c.run, holds_the_gil, reader))
if sys.version_info < (3, 13):
    dump_when(fourth="holds_the_gil")
else:
    time.sleep(0.5)
began = time.monotonic()
text = dump(timeout=1)
took = time.monotonic() - began
assert took < 4, took
found, notes = parsed(text)
calls = {name: groups[-1] for name, groups in found.items()}
assert calls["first"] == ("a", ["computes"]), text
assert calls["second"] == ("a", ["sleeps"]), text
assert calls["own of 'a'"] == ("a", ["_bootstrap", "_bootstrap_inner", "run", "of_its_own"]), text
assert calls["third"] == ("b", ["waits"]), text
assert calls["fifth"] == ("b", []) and text.count("  (no frame of Python)") == 1, text
assert calls["MainThread of 'b'"] == ("b", ["waits"]), text     # a job of submit
assert calls["host's"][0] == "host" and calls["host's"][1][-1] == "sleeps", text
assert found["first"][0][0] == "host" and "_bootstrap_inner" in found["first"][0][1], text
assert list(found)[0] == "MainThread" and calls["MainThread"] == ("host", ["<module>", "dump"]), text
assert "    while not stop[0]:\n" in text and text.count("which asks") == 1, text
assert not any(word in text for word in ("_ask", "<vlcs", "unused", "native")), text
if sys.version_info < (3, 13):
    assert calls["fourth"] == ("c", ["holds_the_gil"]) and "_bridge.py" not in text, text
assert len(notes) == 1 and notes[0].startswith("The context 'c': its GIL did not come in time"), text
# Who asks again asks no second time where nobody answered.
before = len(sys._current_frames())
for _ in range(5):
    dump(timeout=0.01)
assert len(sys._current_frames()) <= before + 1
stop[0] = 1
os.write(writer, b"x")
os.write(writing, b"x")
for thread in threads:
    thread.join()
future.result()
text = dump()
assert parsed(text)[1] == [] and "in the context" not in text, text
""",
    )


def test_calls_that_go_through_several_interpreters_are_in_order(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        r"""
import os
a, b = vlcs.VLC("a"), vlcs.VLC("b")
def shout(text):
    import time
    if text.strip():
        time.sleep(3)
    return text
class Through(io.StringIO):
    def write(self, text):
        return super().write(b.run(shout, text))
def says():
    print("something")
def deep(n):
    import time
    return deep(n - 1) if n else time.sleep(60)
sys.stdout = Through()
threads = [
    threading.Thread(target=a.run, args=[says], name="nested", daemon=True),
    threading.Thread(target=a.run, args=[deep, 300], name="deep", daemon=True),
]
for thread in threads:
    thread.start()
dump_when(nested="shout", deep="deep")
text = dump()  # while it called, its frames in the host were older than those in the contexts
groups = parsed(text)[0]["nested"]
assert [name for name, _ in groups] == ["host", "a", "host", "b"], text
assert groups[1][1] == ["says"] and groups[3][1] == ["shout"], text
assert groups[2][1][0] == "answer" and "write" in groups[2][1], text
assert "  ... 201 calls ...\n" in text and "[Previous line repeated 97 more times]" in text, text
os._exit(0)
""",
    )


def test_from_signals_while_the_main_thread_waits_or_is_inside(tmp_path: Path) -> None:
    finished = run_script(
        tmp_path,
        r"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})  # before there are other threads to take it
a = vlcs.VLC("a")
def computes(begun):
    import time
    begun[0] = 1
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
def begins(signum):
    "What computes() sets, to be told of it 0.2 s later."
    begun = memoryview(bytearray(1))
    def tell():
        while not begun[0]:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signum)
    threading.Thread(target=tell).start()
    return begun
signal.signal(signal.SIGUSR1, lambda *_: vlcs.dump_traceback())
a.submit(computes, begins(signal.SIGUSR1)).result()

# No handler of Python runs in a thread that is inside: another waits for the signal.
def watch():
    signal.sigwait({signal.SIGUSR2})
    vlcs.dump_traceback(sys.stdout)
threading.Thread(target=watch).start()
a.run(computes, begins(signal.SIGUSR2))

# In the middle of a write to the stream itself.
class Interrupted(io.RawIOBase):
    writable = lambda self: True
    fileno = lambda self: 1
    def write(self, data):
        signal.raise_signal(signal.SIGUSR1)
        return len(data)
sys.stderr = io.TextIOWrapper(io.BufferedWriter(Interrupted()))
print("reentrant", flush=True)
sys.stderr.write("x")
sys.stderr.flush()
sys.stderr = None
vlcs.dump_traceback()
""",
    )
    waiting = finished.stderr.partition("(MainThread of 'a')")
    assert "in result" in waiting[0] or "in result" in waiting[2], finished.stderr
    assert "in computes" in waiting[2], finished.stderr
    inside, _, reentrant = finished.stdout.partition("reentrant\n")
    assert inside.startswith("Thread 0x")
    main = inside.partition("\n\n")[0]
    assert "(MainThread)" in main, inside
    assert "in the context 'a':" in main, inside
    assert main.splitlines()[-2].endswith("in computes"), inside
    assert reentrant.count("(MainThread)") == 1, reentrant


def test_contexts_that_end_or_were_left_behind(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        r"""
import os
assert list(parsed(dump())[0]) == ["MainThread"]     # before there are any
a, b = vlcs.VLC("a"), vlcs.VLC("b")
def hangs_at_exit():
    import atexit, time
    def last_words():
        time.sleep(3)
    atexit.register(last_words)
a.run(hangs_at_exit)
closing = threading.Thread(target=a.close, name="closing")
closing.start()
time.sleep(1)
text = dump()
found, notes = parsed(text)
assert len(notes) == 1 and "does not answer" in notes[0], text
if sys.version_info < (3, 13):
    assert "in last_words" in text, text
closing.join()
b.run(len, "x")
text = dump()
assert parsed(text)[1] == [] and "'a'" not in text, text

pid = os.fork()
if not pid:
    text = dump()
    assert list(parsed(text)[0]) == ["MainThread"] and "'b'" not in text, text
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
b.close()
assert list(parsed(dump())[0]) == ["MainThread"]
""",
    )


def test_code_of_a_resident_context_is_on_threads_of_its_own(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        r"""
def waits(stop):
    while not stop[0]:
        pass

context = vlcs.VLC("resident", resident=True)
stop = memoryview(bytearray(1))
caller = threading.Thread(target=context.run, args=(waits, stop), name="caller")
caller.start()
end = time.monotonic() + 20
while True:
    text = dump()
    found = [groups[-1] for groups in parsed(text)[0].values()]
    if ("resident", ["waits"]) in found:
        break
    assert time.monotonic() < end, text
stop[0] = 1
caller.join()
assert parsed(text)[0]["caller"][-1][0] == "host", text
""",
    )
