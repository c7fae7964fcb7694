"""Memory of contexts: its limit, the nodes that it lies on, huge pages; and what the kernel says of it."""

from __future__ import annotations

from support.child import run_child
from support.machine import two_nodes

# System calls past libc's wrappers, so that nothing answers in the kernel's place.
KERNEL = '''
import ctypes, errno, os
LIBC = ctypes.CDLL(None, use_errno=True)

def policy():
    """The mode of this thread's memory policy; 0 is none."""
    mode = ctypes.c_int(-1)
    assert LIBC.syscall(239, ctypes.byref(mode), None, 0, None, 0) == 0, os.strerror(ctypes.get_errno())
    return mode.value

def forbid(*calls):
    """As Docker's seccomp filter does: these system calls fail with EPERM."""
    def step(code, yes, no, value):
        return code.to_bytes(2, "little") + bytes([yes, no]) + value.to_bytes(4, "little")
    tests = [step(0x15, len(calls) - i, 0, call) for i, call in enumerate(calls)]  # equal: to the last
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    steps = [step(0x20, 0, 0, 0), *tests, step(0x06, 0, 0, allow), step(0x06, 0, 0, refuse)]
    class Program(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
    program = Program(len(steps), b"".join(steps))
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0 and LIBC.prctl(22, 2, ctypes.byref(program)) == 0
'''


def test_beyond_the_limit_python_raises_memory_error_and_goes_on() -> None:
    run_child(
        """
        import vlcs

        def arrays(count, size):
            import numpy as np
            try:
                return len([np.ones(size, np.uint8) for _ in range(count)])
            except MemoryError as error:
                return type(error).__name__

        def objects(count):
            try:
                return len([[i] for i in range(count)])
            except MemoryError as error:
                return type(error).__name__

        def grow():
            text, size = bytearray(), 0
            try:
                while True:
                    text += bytes(1 << 20)
                    size = len(text)
            except MemoryError:
                return size

        limited, other = vlcs.VLC(memory_limit="4GiB"), vlcs.VLC()
        assert limited.memory_limit == 4 << 30
        assert limited.run(arrays, 1, 1) == 1
        limit = limited.stats().memory_bytes + (200 << 20)  # OpenBLAS has mapped tens of MB for each CPU
        limited.memory_limit = limit
        for _ in range(3):
            assert limited.run(arrays, 100, 4 << 20) == "MemoryError"
            assert limited.submit(objects, 3_000_000).result() == "MemoryError"
            assert limited.run(arrays, 10, 4 << 20) == 10
            assert limited.run(grow) >= 50 << 20
            stats = limited.stats()
            assert stats.memory_bytes < stats.memory_peak <= stats.memory_limit == limit, stats
            assert stats.heap_used <= stats.heap_bytes <= stats.memory_bytes, stats
            assert other.run(arrays, 100, 4 << 20) == arrays(100, 4 << 20) == 100
        limited.memory_limit = "8GiB"
        assert limited.run(arrays, 100, 4 << 20) == 100
        assert limited.slice.report()["memory_limit"]["granted"] == "8GiB"
        limited.memory_limit = "2MiB"  # less than it has: it gets no more
        assert limited.run(arrays, 100, 4 << 20) == "MemoryError"
        limited.memory_limit = None
        assert limited.run(arrays, 200, 4 << 20) == 200
        assert other.stats().memory_limit is None
        """,
        timeout=60,
    )


def test_a_context_at_its_limit_is_closed() -> None:
    run_child(
        """
        import vlcs

        def keep_all():
            import atexit, builtins
            class Late:
                def __del__(self):
                    builtins.late = bytes(4 << 20)
            builtins.kept = kept = [Late()]
            atexit.register(lambda: kept.append(bytes(8 << 20)))
            for size in (1 << 20, 100_000, 1000, 16):
                try:
                    while True:
                        kept.append(bytes(size))
                except MemoryError:
                    pass

        def rss():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        for round in range(4):
            vlc = vlcs.VLC(memory_limit="64MiB")
            vlc.run(keep_all)
            assert vlc.stats().memory_bytes >= 63 << 20, vlc.stats()
            vlc.close()
            if round == 1:
                before = rss()
        assert rss() < before + (32 << 20), (before, rss())
        """,
        timeout=60,
    )


def test_a_limit_that_is_too_small_for_python_says_so() -> None:
    run_child(
        """
        import os, re, vlcs
        def state():
            with open("/proc/self/maps") as maps:
                return len(os.listdir("/proc/self/task")), len(maps.readlines())
        def refused(limit):
            try:
                vlcs.VLC("small", memory_limit=limit)
            except vlcs.LimitError as error:
                assert re.search("16 MB .* Raise its memory_limit", str(error)), error
            else:
                raise AssertionError(limit)
            assert vlcs.contexts() == []
        refused("1MiB")
        before = state()
        for limit in ("1MiB", "4MiB", "15MiB"):
            refused(limit)
        after = state()
        assert after[0] == before[0] and after[1] <= before[1] + 4, (before, after)
        for limit in ("17MiB", "20MiB", "24MiB"):  # little, and no reason to end the process
            try:
                small = vlcs.VLC("little", memory_limit=limit)
            except vlcs.VLCError as error:
                print(limit, error)
                continue
            try:
                small.run(len, small.run(bytes, 64 << 20))
            except MemoryError as error:
                print(limit, repr(error))
            small.close()
        """,
        timeout=60,
    )


def test_the_host_s_heap_is_not_limited_and_the_report_says_so() -> None:
    run_child(
        """
        import mmap, vlcs

        def text(size):
            return len(bytes(size))

        def mapped(size):
            import mmap
            try:
                return len(mmap.mmap(-1, size))
            except OSError as error:
                return error.strerror

        vlc = vlcs.VLC(memory_limit="100MiB", heap="host")
        assert vlc.run(text, 200 << 20) == 200 << 20
        assert vlc.run(mapped, 50 << 20) == 50 << 20
        assert vlc.run(mapped, 200 << 20) == "Cannot allocate memory"
        line = vlc.slice.report()["memory_limit"]
        assert line["state"] == "advisory" and "anonymous mappings alone" in line["reason"], line
        """,
        timeout=30,
    )


def test_every_thread_of_a_context_has_its_policy_and_callers_only_inside() -> None:
    run_child(
        KERNEL
        + """
import threading, vlcs

def inside():
    import ctypes, threading
    libc, found = ctypes.CDLL(None), []
    def ask():
        mode = ctypes.c_int(-1)
        libc.syscall(239, ctypes.byref(mode), None, 0, None, 0)
        found.append(mode.value)
    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found

bound, local, plain = (vlcs.VLC(memory=memory, resident=False) for memory in ("bind", "local", None))
resident = vlcs.VLC(memory="bind", resident=True)
for vlc, mode in ((bound, 2), (local, 4), (plain, 0), (resident, 2)):
    assert vlc.run(inside) == vlc.submit(inside).result() == [mode, mode], vlc
    assert policy() == 0
    found = vlc.verify()
    assert found.holds and len(found.threads) >= 1, found
with bound:
    assert policy() == 2
    with local:
        assert policy() == 4
        with plain:
            assert policy() == 0
        assert policy() == 4
    assert policy() == 2
assert policy() == 0
bound.set_memory("interleave")
assert bound.run(inside) == bound.submit(inside).result() == [3, 3]
bound.set_memory(None)
assert bound.run(inside) == bound.submit(inside).result() == [0, 0]
assert bound.slice.report()["memory"]["requested"] is None
""",
        timeout=60,
    )


def test_a_thread_that_left_its_policy_is_found() -> None:
    """As a library does that makes the system call itself, and not through libc."""
    run_child(
        """
        import vlcs

        def leave():
            import ctypes
            # mov eax, 238; xor edi, edi; xor esi, esi; xor edx, edx; syscall; ret
            code = bytes.fromhex("b8ee000000 31ff 31f6 31d2 0f05 c3")
            import mmap
            memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            memory.write(code)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            return ctypes.CFUNCTYPE(ctypes.c_long)(address)()

        vlc = vlcs.VLC(memory="bind")
        assert vlc.verify().holds
        assert vlc.submit(leave).result() == 0
        found = vlc.verify()
        assert not found.holds and not found.outside, found
        assert "has the memory policy default, not bind:" in found.differences[0], found.differences
        """,
        timeout=30,
    )


def test_where_the_kernel_refuses_the_context_is_made_without() -> None:
    run_child(
        KERNEL
        + """
import warnings, vlcs
from vlcs._core import _memory
from vlcs._core._registry import REGISTRY
from dataclasses import replace

forbid(237, 238, 239, 279)  # mbind, set_mempolicy, get_mempolicy, move_pages
with warnings.catch_warnings():
    warnings.simplefilter("error")
    if len(REGISTRY.machine().nodes) == 1:  # there is nothing to be refused
        with vlcs.VLC(memory="bind") as vlc:
            assert vlc.slice.report()["memory"]["state"] == "enforced"
two = replace(REGISTRY.machine(), nodes=frozenset({0, 1}))
REGISTRY.machine = lambda: two
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    vlc = vlcs.VLC(memory="bind", memory_nodes=0)
    assert [w.category for w in caught] == [vlcs.UnavailableWarning], caught
    assert "seccomp filter" in str(caught[0].message) and "SYS_NICE" in str(caught[0].message), caught[0]
assert vlc.run(sum, [1, 2]) == 3
assert vlc.verify().holds
assert vlc.slice.report()["memory"]["state"] == "unavailable"
for ask in (vlc.migrate_memory, lambda: vlc.stats(nodes=True)):
    try:
        ask()
    except vlcs.SystemRefusedError as error:
        assert error.errno == errno.EPERM and "seccomp" in str(error), error
    else:
        raise AssertionError(ask)
assert vlc.stats().heap_bytes > 0
""",
        timeout=30,
    )


def test_huge_pages_as_asked_for() -> None:
    run_child(
        """
        import vlcs
        from vlcs._core import _huge_pages

        def huge(size):
            import numpy as np
            array = np.ones(size, np.uint8)
            found, inside = 0, False
            with open("/proc/self/smaps") as maps:
                for line in maps:
                    first, *rest = line.split()
                    if "-" in first and not first.endswith(":"):
                        start, end = (int(part, 16) for part in first.split("-"))
                        inside = start < array.ctypes.data + size and array.ctypes.data < end
                    elif inside and first == "AnonHugePages:":
                        found += int(rest[0]) << 10
            return found, array.ctypes.data % (2 << 20)

        system, size = _huge_pages.setting(), 64 << 20
        with_, without = vlcs.VLC(huge_pages=True), vlcs.VLC(huge_pages=False)
        assert without.run(huge, size)[0] == 0  # though NumPy asks for them
        found, offset = with_.run(huge, size)
        print(found, offset)
        if system != "never":
            assert found >= size // 2, (found, size)  # all that the kernel has free
            assert offset < 4096, offset
        else:
            assert with_.slice.report()["huge_pages"]["state"] == "unavailable"
        """,
        timeout=30,
        env={"PYTHONWARNINGS": "ignore"},
    )


def test_pages_are_counted_by_node() -> None:
    run_child(
        """
        import vlcs

        def fill(size):
            import builtins, numpy as np
            builtins.kept = np.ones(size, np.uint8)

        vlc = vlcs.VLC()
        assert vlc.stats().node_bytes is None
        before = sum(vlc.stats(nodes=True).node_bytes.values())
        vlc.run(fill, 100 << 20)
        after = vlc.stats(nodes=True)
        assert 100 << 20 <= sum(after.node_bytes.values()) - before <= 130 << 20, (before, after)
        assert sum(after.node_bytes.values()) <= after.memory_bytes, after
        """,
        timeout=30,
    )


def test_arrays_lie_on_the_node_that_they_are_bound_to_and_move() -> None:
    """Whoever touches them first: here threads on the other node's CPUs."""
    one, other = two_nodes()
    run_child(
        """
        import os, sys, threading, vlcs
        one, other = map(int, sys.argv[1:])

        def empty(size):
            import builtins, numpy as np
            builtins.kept = np.empty(size, np.uint8)
            return builtins.kept

        def fill(array):
            array[:] = 7

        contexts = {node: vlcs.VLC(f"on {node}", memory="bind", memory_nodes=node) for node in (one, other)}
        far = {one: other, other: one}
        cpus = {node: vlcs._core._registry.REGISTRY.machine().topology.nodes[node].cpus for node in contexts}
        start = {node: vlc.stats(nodes=True).node_bytes.get(far[node], 0) for node, vlc in contexts.items()}
        for node, vlc in contexts.items():
            array = vlc.run(empty, 30 << 20)
            os.sched_setaffinity(0, cpus[far[node]])
            fill(array)  # outside of the context
            found = vlc.stats(nodes=True).node_bytes
            assert found[node] > 30 << 20 and found.get(far[node], 0) == 0, found
            line = vlc.slice.report()["memory"]
            assert (line["state"], line["granted"]) == ("advisory", f"bound to node {node}"), line
            vlc.set_memory("bind", far[node])
            done = vlc.migrate_memory()
            assert done.moved > 30 << 20 and done.left == 0, done
            assert set(vlc.stats(nodes=True).node_bytes) == {far[node]}
            assert (array == 7).all()

        follower = vlcs.VLC("follower", node=one, memory="bind")
        assert follower.slice.report()["memory"]["granted"] == f"bound to node {one}"
        follower.run(empty, 10 << 20)[:] = 1
        follower.resize(node=other)
        assert follower.slice.report()["memory"]["granted"] == f"bound to node {other}"
        assert follower.migrate_memory().left == 0
        assert set(follower.stats(nodes=True).node_bytes) == {other}
        """,
        timeout=60,
        args=[str(one), str(other)],
    )
