"""Objects that stay in their interpreter, and calls in every direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.child import run_child

if TYPE_CHECKING:
    from pathlib import Path

CONTEXTS = """
import gc, sys, threading, time, vlcs
a, b, r = vlcs.VLC("a"), vlcs.VLC("b"), vlcs.VLC("r", resident=True)

def fails(kind, words, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert words in str(error), error
        return error
    sys.exit(f"no {kind.__name__}")

def wait_until(reached):
    end = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)
"""


PLAYERS = """
class Player:
    def meet(self, others):
        self.others = others
    def play(self, path):
        import threading
        here = [threading.get_ident()]
        return here + self.others[path[0]].play(path[1:]) if path else here
    def forever(self, one, other, depth):
        return self.others[one].forever(other, one, depth + 1)

s = vlcs.VLC("s", resident=True)
players = [vlc.run(Player, keep=True) for vlc in (a, b, r, s)] + [vlcs.remote(Player())]
for player in players:
    player.meet(players)
"""


def test_contexts_call_each_other_and_the_host_to_any_depth() -> None:
    run_child(
        CONTEXTS
        + PLAYERS
        + """
for one in range(5):
    for other in range(5):
        assert len(players[one].play([other, one] * 25)) == 51, (one, other)
threads = players[0].play([1, 2, 3, 4] * 12)
assert len(threads) == 49 and len(set(threads)) == 3, threads  # this, and its companions in r and s

# Without end it is an error in the end, and not a crash, on a small stack too.
def raise_limits():
    import sys
    sys.setrecursionlimit(100_000)
raise_limits()
for vlc in (a, b, r, s):
    vlc.run(raise_limits)
failed = []
def endless(one, other):
    failed.append(fails(RecursionError, "nested too deeply", players[one].forever, other, one, 1))
threading.stack_size(1 << 19)
for pair in ((0, 4), (0, 1), (2, 4), (2, 3), (1, 2)):
    thread = threading.Thread(target=endless, args=pair)
    thread.start()
    thread.join()
assert len(failed) == 5 and len(players[4].play([0, 1, 2, 3])) == 5
""",
        timeout=60,
    )


def test_threads_and_contexts_in_any_order() -> None:
    run_child(
        CONTEXTS
        + PLAYERS
        + """
import random
right = []
def work(seed):
    chance = random.Random(seed)
    made = 0
    while made < 1250:
        path = [chance.randrange(5) for _ in range(chance.randrange(1, 12))]
        assert len(players[path[0]].play(path[1:])) == len(path)
        made += len(path)
    right.append(seed)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(right) == 8
""",
        timeout=120,
    )


def test_a_handle_is_the_object_at_home_and_a_handle_elsewhere() -> None:
    run_child(
        CONTEXTS
        + """
kind = lambda value: type(value).__name__
log = []
mine = vlcs.remote(log)
assert isinstance(mine, vlcs.RemoteObject) and mine == []
for vlc in (a, b, r):
    assert vlc.run(kind, mine) == "RemoteObject"
    vlc.run(lambda log, name: log.append(name), mine, vlc.name)
assert log == ["a", "b", "r"]
assert a.run(lambda value: value, mine) is log  # home again
assert a.run(lambda value: [value, {"x": value}], mine)[1]["x"] is log

counter = a.import_module("collections").Counter("aab")
assert a.run(kind, counter) == "Counter"
assert b.run(kind, counter) == "RemoteObject"
assert b.run(lambda counter, vlc: (counter["a"], len(counter), counter.total()), counter, None) == (2, 2, 3)
there = b.run(lambda f: f, lambda counter: counter["a"], keep=True)
assert a.run(lambda call, counter: call(counter), there, counter) == 2
back = b.run(lambda counter: counter, counter)
assert isinstance(back, vlcs.RemoteObject) and a.run(lambda x, y: x is y, back, counter)
assert back == counter and counter == {"a": 2, "b": 1} and counter != {} and not counter == object()

# beside what is pickled
assert b.run(lambda counter, f: f(counter["a"]), counter, lambda x: x + 1) == 3
assert counter.most_common(key := 1) == [("a", 2)]
assert a.run(sorted, [3, 1, 2], key=vlcs.remote(lambda x: -x)) == [3, 2, 1]
""",
        timeout=60,
    )


def test_keep_and_remote() -> None:
    run_child(
        CONTEXTS
        + """
import asyncio, functools
made = [a.run(dict, x=1, keep=True), a.submit(dict, x=1, keep=True).result(), a.remote({"x": 1}),
        asyncio.run(a.run_async(dict, x=1, keep=True))]
for kept in made:
    assert isinstance(kept, vlcs.RemoteObject)
    kept["y"] = 2
    assert kept == {"x": 1, "y": 2} and a.run(type, kept) is dict
assert a.run(dict, x=1, keep=False) == {"x": 1}
def own(value, keep=None):
    return value, keep
fails(vlcs.ArgumentError, "it has a parameter of that name", a.run, own, 1, keep=True)
fails(vlcs.ArgumentError, "it has a parameter of that name", a.submit, own, 1, keep=True)
fails(vlcs.ArgumentError, "it is True", a.run, dict, keep=3)
fails(vlcs.PicklingError, "the value <unlocked", a.remote, threading.Lock())
bound = functools.partial(own, keep=5)
assert a.run(bound, 1) == (1, 5) and a.run(bound, 1, keep=True)[1] == 5
assert a.stats().kept >= 4
del made, kept
wait_until(lambda: a.stats().kept == 0)
""",
        timeout=60,
    )


def test_what_changes_in_place_stays_there() -> None:
    run_child(
        CONTEXTS
        + """
import contextlib, mmap
class Total:  # which gives another object, that is no data
    def __init__(self, of): self.of = of
    def __iadd__(self, more): return Total(self.of + more)
for vlc in (a, r):
    for kind, more, whole in ((list, [2], [1, 2]), (set, {2}, {1, 2})):
        there = vlc.run(kind, [1], keep=True)
        kept = there
        if kind is list: there += more
        else: there |= more
        assert there is kept and there == whole
    numbers = vlc.run(list, [1], keep=True)
    numbers += vlc.run(list, [2], keep=True)  # by a handle
    numbers += numbers
    assert isinstance(numbers, vlcs.RemoteObject) and numbers == [1, 2, 1, 2]
    number = vlc.run(int, 3, keep=True)
    number **= 2
    assert type(number) is int and number == 9
    # What `with` gives, too: of an mmap it was a memoryview.
    with vlc.run(mmap.mmap, -1, 8, keep=True) as memory:
        memory.write(b"there")
        assert memory[:5] == b"there"
    assert memory.closed
    with vlc.run(contextlib.nullcontext, print, keep=True) as found:
        assert isinstance(found, vlcs.RemoteObject) and found.__name__ == "print"
    total = vlc.run(Total, 1, keep=True)
    total += 4
    assert isinstance(total, vlcs.RemoteObject) and total.of == 5
""",
        timeout=60,
    )


def test_exceptions_come_through_all_levels() -> None:
    run_child(
        CONTEXTS
        + """
import traceback
def inner(key):
    return {}[key]
def outer(call, key):
    return call(key)
there = b.run(lambda f: f, inner, keep=True)
error = fails(KeyError, "lost", a.run, outer, there, "lost")
text = "".join(traceback.format_exception(error))
assert text.count("in the context 'a'") == text.count("in the context 'b'") == 1, text
assert "in inner" in text and "in outer" in text
here = vlcs.remote(inner)
text = "".join(traceback.format_exception(fails(KeyError, "lost", a.run, outer, here, "lost")))
assert "in the context 'host'" in text and "in inner" in text
class Own(Exception): pass
def own(): raise Own("mine")
caught = fails(Own, "mine", a.run, lambda call: call(), vlcs.remote(own))
assert type(caught) is Own
assert a.run(lambda call: next(iter(call(3)), None), vlcs.remote(lambda n: (i for i in range(n)))) == 0
assert list(a.run(iter, range(3), keep=True)) == [0, 1, 2]
assert a.run(lambda make: list(make(3)), vlcs.remote(lambda n: (i * i for i in range(n)))) == [0, 1, 4]
""",
        timeout=60,
    )


def test_is_released_from_whatever_thread_and_context(tmp_path: Path) -> None:
    run_child(
        CONTEXTS
        + """gone = []
class Watched:
    def __del__(self): gone.append(1)
def make():
    import collections
    return collections.deque([1])
# dropped by another thread, without another call
h = [a.run(make, keep=True)]
assert a.stats().kept == 1
t = threading.Thread(target=h.clear); t.start(); t.join(); gc.collect()
wait_until(lambda: a.stats().kept == 0)
# held by another context only
h = a.run(make, keep=True)
def hold(x):
    import builtins
    builtins.held = x
def drop():
    import builtins
    del builtins.held
b.run(hold, h); r.run(hold, h); del h; gc.collect(); time.sleep(0.1)
assert a.stats().kept == 1
b.run(drop); b.run(gc.collect); time.sleep(0.1)
assert a.stats().kept == 1
r.run(drop); r.run(gc.collect)
wait_until(lambda: a.stats().kept == 0)
# host's
w = vlcs.remote(Watched()); b.run(hold, w); del w; gc.collect()
assert not gone
b.run(drop); b.run(gc.collect)
wait_until(lambda: gone)
# with a context that closes
gone.clear()
b.run(hold, vlcs.remote(Watched())); gc.collect()
h = b.run(make, keep=True); a.run(hold, h)
text = repr(h)
b.close()
wait_until(lambda: gone)
fails(vlcs.StateError, "closed", lambda: h[0])
fails(vlcs.StateError, "deque.append in the context 'b': it is closed", lambda: h.append)
assert repr(h).startswith("<vlcs.RemoteObject collections.deque in context 'b': "), repr(h)
error = fails(vlcs.StateError, "stopped", a.run, lambda: __import__("builtins").held.append(1))
assert h == h and not h == 3
del h; a.run(drop); a.run(gc.collect)

def watched(path):
    class Watched:
        def use(self): pass
        def __del__(self): open(path, "a").write("gone")
    return Watched()
def text(): return open(sys.argv[1]).read()
open(sys.argv[1], "w").close()
# of which a method was used, or is all that is held
h = a.run(watched, sys.argv[1], keep=True)
h.use(); del h
wait_until(lambda: text() == "gone")
use = a.run(watched, sys.argv[1], keep=True).use
use(); time.sleep(0.1)
assert text() == "gone"
del use
wait_until(lambda: text() == "gone" * 2)

# with the object's own interpreter, destructors run
h = a.run(watched, sys.argv[1], keep=True)
a.close()
assert text() == "gone" * 3
""",
        timeout=60,
        args=[str(tmp_path / "gone")],
    )


def test_destructors_that_call_out_as_their_interpreter_ends() -> None:
    finished = run_child(
        CONTEXTS
        + """
def leave(call):
    import builtins
    class Late:
        def __del__(self):
            call(1)
    builtins.late = Late()
    class Cycle(Late): pass
    cycle = Cycle()
    cycle.self = cycle
log = []
def call(number):
    log.append(number)
    return gc  # which is no data: the answer would be a handle
for vlc in (a, r):
    vlc.run(leave, vlcs.remote(call))
    vlc.close()
print("ended", len(log) <= 4)
""",
        timeout=60,
    )
    assert finished.lines == ["ended True"]


def test_closing_and_calls_of_other_contexts() -> None:
    run_child(
        CONTEXTS
        + """def identity(x): return x
# close() from the host, from inside a callback
def close_a():
    fails(vlcs.StateError, "from inside", a.close)
a.run(lambda f: f(), vlcs.remote(close_a))
# of a context that only a guest has called
hb = b.run(identity, lambda f: f(), keep=True)
def close_b():
    fails(vlcs.StateError, "from inside", b.close)
    fails(vlcs.StateError, "from inside", b.close, 0.1)
a.run(lambda hb, f: hb(f), hb, vlcs.remote(close_b))
assert not b.closed
# waits for a call of another context
entered, go, order = threading.Event(), threading.Event(), []
def inside():
    entered.set(); go.wait(20); order.append("call")
t = threading.Thread(target=lambda: a.run(lambda hb, f: hb(f), hb, vlcs.remote(inside)))
t.start(); entered.wait(10)
fails(vlcs.BusyError, "calls of other contexts", b.close, 0.3)
fails(vlcs.StateError, "being closed", a.run, lambda hb: hb(int), hb)
def close():
    b.close(); order.append("closed")
c = threading.Thread(target=close); c.start(); time.sleep(0.2)
assert order == []
go.set(); t.join(); c.join()
assert order == ["call", "closed"], order
fails(vlcs.StateError, "", a.run, lambda hb: hb(int), hb)
# threads of a context that call the host
def start(f):
    import threading
    threads = [threading.Thread(target=f) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
for v in (a, r):
    seen = []
    v.run(start, vlcs.remote(lambda: seen.append(threading.get_ident())))
    assert len(seen) == 3, seen
""",
        timeout=60,
    )


def test_ctrl_c_reaches_the_innermost_code() -> None:
    run_child(
        CONTEXTS
        + """
import os, signal
def press(after): threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT]).start()
def endless():
    while True: pass
def identity(x): return x
def call(f): return f()
def call_and_tell(f):
    import builtins
    try: return f()
    except BaseException as e: builtins.told = type(e).__name__; raise
def told():
    import builtins
    return builtins.__dict__.pop("told", None)
def swallow(f):
    try: f()
    except KeyboardInterrupt: return "swallowed"
inner = {n: v.run(identity, endless, keep=True) for n, v in (("a", a), ("b", b), ("r", r))}
inner["host"] = vlcs.remote(endless)
for outer in (a, r):
    for name, f in inner.items():
        press(0.3); t = time.monotonic()
        try: outer.run(call_and_tell, f)
        except KeyboardInterrupt: pass
        else: sys.exit("not interrupted")
        assert time.monotonic() - t < 3, (outer, name, time.monotonic() - t)
        assert outer.run(told) == "KeyboardInterrupt", (outer, name)
        assert outer.run(len, "ab") == 2
# swallowed within: who called is interrupted
sw = b.run(identity, swallow, keep=True)
press(0.3)
try:
    a.run(lambda sw, f: (sw(f), [None for _ in iter(int, 1)]), sw, inner["a"]); sys.exit("no")
except KeyboardInterrupt: pass
assert a.run(len, "ab") == b.run(len, "ab") == 2
""",
        timeout=60,
    )


def test_fork_inside_of_nested_calls() -> None:
    run_child(
        CONTEXTS
        + """
import os, signal
def fork_here(after):
    import os
    pid = os.fork()
    if pid == 0:
        try: after()
        finally: os._exit(7)
    return os.waitpid(pid, 0)[1] >> 8
def identity(x): return x
hb = b.run(identity, len, keep=True)
def in_child():
    try: hb("abc")
    except vlcs.StateError as e:
        assert "fork" in str(e), e
        os._exit(3)
    os._exit(4)
signal.alarm(40)
assert fork_here(in_child) == 3
# host forks inside of a callback of a
assert a.run(lambda f: f(), vlcs.remote(lambda: fork_here(in_child))) == 3
# a forks: it lives on in the child, and the host with it, b does not
def fork_in_a(hb, host):
    import os
    pid = os.fork()
    if pid == 0:
        code = 10
        try:
            code += host("ab")          # the host goes along
            try: hb("abc")
            except RuntimeError as e: code += 20 if "fork" in str(e) else 40
        finally: os._exit(code)
    return os.waitpid(pid, 0)[1] >> 8
assert a.run(fork_in_a, hb, vlcs.remote(len)) == 32
""",
        timeout=60,
    )


def test_await() -> None:
    run_child(
        CONTEXTS
        + """
import asyncio
def module():
    import asyncio, types
    m = types.ModuleType("m")
    async def double(x, after=0.01):
        await asyncio.sleep(after)
        return 2 * x
    async def fail(): raise KeyError("lost")
    async def obj():
        import collections
        return collections.deque([1])
    async def ticks(n):
        for i in range(n):
            await asyncio.sleep(0.001); yield i
    m.double, m.fail, m.obj, m.ticks = double, fail, obj, ticks
    return m
for v in (a, r):
    m = v.run(module, keep=True)
    async def main():
        assert await m.double(4) == 8
        assert await asyncio.gather(*(m.double(i) for i in range(5))) == [0, 2, 4, 6, 8]
        try: await m.fail()
        except KeyError as e: assert e.args == ("lost",)
        else: sys.exit("no")
        d = await m.obj()
        assert isinstance(d, vlcs.RemoteObject) and d[0] == 1
        try: await m.double
        except TypeError as e: pass
        else: sys.exit("no")
    asyncio.run(main())
async def here(x): return x + 1
def elsewhere(f):
    import asyncio
    async def main(): return await f(3)
    return asyncio.run(main())
assert a.run(elsewhere, vlcs.remote(here)) == 4
# time limit
async def limited():
    m = a.run(module, keep=True)
    t = time.monotonic()
    try:
        async with asyncio.timeout(0.1): await m.double(1, 0.5)
    except TimeoutError: pass
    assert time.monotonic() - t < 0.4
asyncio.run(limited())
""",
        timeout=60,
    )


def test_many_are_made_and_dropped_without_a_trace() -> None:
    run_child(
        CONTEXTS
        + """
def resident_set():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
def many(make, argument):
    for _ in range(1000):
        make(argument)
make = a.import_module("collections").Counter
sizes = []
for _ in range(5):
    for _ in range(20_000):
        make("ab")
    b.run(many, make, "ab")
    a.run(many, vlcs.remote(iter), [1])
    for vlc in (a, b): vlc.run(gc.collect)
    gc.collect()
    sizes.append(resident_set())
assert sizes[-1] - sizes[1] < 2 << 20, sizes
wait_until(lambda: a.stats().kept == 1)  # the class
""",
        timeout=120,
    )


def test_modules_feel_local() -> None:
    run_child(
        CONTEXTS
        + """
import inspect, pydoc
import numpy as np
np2 = a.import_module("numpy")
svd = np2.linalg.svd
assert np2.linalg is np2.linalg and np2.linalg.svd is svd
assert svd(np.eye(2))[1].tolist() == [1.0, 1.0]
assert str(inspect.signature(svd)) == str(inspect.signature(np.linalg.svd))
assert svd.__doc__ == np.linalg.svd.__doc__ and svd.__name__ == "svd"
shown = pydoc.plain(pydoc.render_doc(svd))
assert "svd(a, full_matrices=True" in shown and "Singular Value Decomposition" in shown, shown[:300]
assert "svd" in dir(np2.linalg) and callable(svd)
# what was replaced there is seen
mod = a.import_module("json")
dumps = mod.dumps
a.run(lambda: setattr(__import__("json"), "dumps", lambda _: "other"))
assert mod.dumps(1) == dumps(1) == "other"
mod.dumps = 3
assert mod.dumps == 3
# another context may be run by one that has it
assert a.run(lambda vlc: vlc.run(len, "abc"), vlcs.remote(b)) == 3
# and a context makes handles to its own
def make():
    import vlcs
    return vlcs.remote([1])
assert isinstance(a.run(make), vlcs.RemoteObject) and a.run(make) == [1]
""",
        timeout=60,
    )
