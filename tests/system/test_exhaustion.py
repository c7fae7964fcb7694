"""Mappings, descriptors and addresses run out: an error in words, earlier contexts work on (case L6)."""

from __future__ import annotations

from support.child import run_child

STATE = """
import errno, os, resource
import vlcs

def left():  # what a failed call may not leave
    with open("/proc/self/maps") as maps:
        mappings = len(maps.readlines())
    descriptors, threads = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))
    return mappings, descriptors, threads, len(vlcs.contexts())

def kept_nothing(before):
    now = left()  # the host's own heap may have grown by an arena
    assert now[1:] == before[1:] and now[0] <= before[0] + 4, (now, before)

def refusal(call):
    try:
        call()
    except vlcs.VLCError as error:
        return error
    raise SystemExit("nothing was refused")
"""


def test_mappings_run_out() -> None:
    run_child(
        STATE
        + """
import itertools, mmap
most = vlcs.limits().mappings_max
assert most == 3000, most  # so few are soon used up, half of them by the host
filler = [mmap.mmap(-1, 4096) for _ in range(most // 2)]  # each of a file of its own, so none are joined

def work():
    import numpy as np
    return float((np.ones((100, 100)) @ np.ones((100, 100))).sum())

contexts, numbers = [], itertools.count()
def add():
    contexts.append(vlcs.VLC(f"c{next(numbers)}"))
    assert contexts[-1].run(work) == 1e6
def fill():
    while len(contexts) < 20:
        add()
error = refusal(fill)
before = left()
for n in range(20):
    error = refusal(lambda: vlcs.VLC("late"))
    assert type(error) is vlcs.LimitError and error.subject == "late", repr(error)
    assert str(error).startswith("cannot create context 'late': the process has "), error
    assert f"limit of 3000, with {len(contexts)} contexts open; close" in str(error), error
    assert "vm.max_map_count" in str(error), error
kept_nothing(before)
assert len(contexts) >= 3 and vlcs.limits().mappings > 2700, (len(contexts), vlcs.limits())

# What has begun may load on for a while; then that is refused too, and Python hears it as of dlopen().
filler += [mmap.mmap(-1, 4096) for _ in range(2900 - vlcs.limits().mappings)]
error = refusal(lambda: contexts[0].load_library("libstdc++.so.6"))
assert type(error) is vlcs.LimitError and "cannot load more into context 'c0'" in str(error), error
try:
    contexts[0].run(__import__, "_lsprof")
except ImportError as error:
    assert "vm.max_map_count" in str(error), error
else:
    raise SystemExit("a module came in over the limit")
assert all(context.run(work) == 1e6 for context in contexts)

del filler[2900 - most // 2:]
for mapping in filler[-400:]:
    mapping.close()
contexts.pop(0).close()
add()
contexts[0].load_library("libstdc++.so.6")
for context in contexts:
    context.close()
""",
        env={"VLCS_MAX_MAPPINGS": "3000"},
        timeout=60,
    )


def test_a_limit_of_mappings_is_only_lowered() -> None:
    run_child(
        """
import vlcs
with open("/proc/sys/vm/max_map_count") as file:
    assert vlcs.limits().mappings_max == int(file.read())
""",
        env={"VLCS_MAX_MAPPINGS": str(1 << 40)},
        timeout=30,
    )


def test_descriptors_run_out() -> None:
    run_child(
        STATE
        + """
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
first = vlcs.VLC("first")
cos = vlcs.VLC("native", interpreter=False).load_library("libm.so.6").cos
assert first.run(len, "abc") == 3

def use_up(free):
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    for _ in range(free):
        os.close(taken.pop())
    try:
        vlcs.VLC("late").close()
        assert free >= 8, free
    except vlcs.VLCError as error:
        assert free < 8 and error.os_error == errno.EMFILE, (free, error)
        assert (type(error) is vlcs.LimitError and "ulimit -n" in str(error)) or free == 0, error
    except OSError as error:  # the host's own Python, which looks for the program to start
        assert free == 0 and error.errno == errno.EMFILE, (free, error)
    assert first.run(len, "abcd") == 4
    cos(0)
    for descriptor in taken:
        os.close(descriptor)

for free in range(16):
    use_up(free)
before = left()
for free in range(16):
    use_up(free)
kept_nothing(before)
with vlcs.VLC("after") as after:
    assert after.run(len, "ab") == 2
""",
        timeout=60,
    )


def test_addresses_run_out() -> None:
    run_child(
        STATE
        + """
first = vlcs.VLC("first")
assert first.run(len, "abc") == 3
refused = created = 0
for kilobytes in [*range(0, 8000, 2000), *range(8100, 8600, 40), *range(9000, 12000, 1000), 100_000]:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + kilobytes * 1024, resource.RLIM_INFINITY))
    try:
        vlcs.VLC(f"with {kilobytes} kB")
        created += 1
    except (vlcs.VLCError, MemoryError) as error:
        refused += 1
        assert type(error) is MemoryError or "damaged" not in str(error), error
        assert type(error) is not vlcs.LimitError or "ulimit -v" in str(error), error
    assert first.run(len, "abcd") == 4
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    for context in vlcs.contexts():
        if context.name != "first":
            context.close()
assert refused > 4 and created, (refused, created)
""",
        timeout=60,
    )
