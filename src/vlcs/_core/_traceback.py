"""Where every thread is: its frames in the host's interpreter and in those of contexts.

A program that hangs is looked at from a signal handler or another thread. So nothing here waits for a lock
of `threading` or of the registry, nor for a GIL longer than it was told.
"""

from __future__ import annotations

import _thread
import itertools
import linecache
import os
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TextIO
from weakref import WeakKeyDictionary

from vlcs._core._bridge import Bridge
from vlcs._core._registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from vlcs._core._instance import Instance

MOST_FRAMES = 100
"""So many calls of a thread are shown for one interpreter, as faulthandler does: recursion can be endless."""

_CALL = Bridge._perform.__code__  # noqa: SLF001 - from its frames threads go into guests
_ENTRIES = frozenset({"serve", "apply"})
"""Functions of `_serving.py` in which a call begins."""

_FAULTHANDLER_LINE = re.compile(
    r'(?:Current t|T)hread 0x(?P<ident>[0-9a-f]+)|  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)'
)


class Frame(NamedTuple):
    """One call, in whichever interpreter."""

    file: str
    line: int
    name: str
    into: str = ""
    """Of frames of the host: the context that it calls into."""


class Threads(NamedTuple):
    """What an interpreter says of its threads, by `threading.get_ident()`, which is the same in all."""

    stacks: dict[int, list[Frame]]
    """Outermost call first."""
    names: dict[int, str]
    note: str = ""


def dump_traceback(file: TextIO | None = None, *, timeout: float = 0.5) -> None:
    """Writes where every thread of the process is: in the host's Python, and in those of all contexts.

    One thread after the other, the main thread first, the most recent call last. Where a thread is in a call
    into a context, its frames there follow under the context's name. Made for programs that hang: call it
    from another thread, or by `signal.signal(SIGUSR1, lambda *_: vlcs.dump_traceback())`. While the main
    thread is in a call into a context, such a handler runs when that returns, as all handlers of Python;
    a thread that waits in `signal.sigwait({SIGUSR1})`, blocked before other threads were made, does not wait.

    A context whose code in C keeps the GIL for longer than `timeout` is read without it, as faulthandler
    does, and the text says so. Python 3.13 has no function for that: then the text says only that.

    Args:
        file: A text stream. None: the `sys.stderr` of this moment.
        timeout: Seconds that all contexts together have to answer in; `math.inf` waits for all of them.
    """
    stream = sys.stderr if file is None else file
    if stream is None:  # in a process without one
        return
    host = _host()
    deadline = time.monotonic() + timeout
    asked = [
        (member, _Question.put_to(bridge))
        for member in REGISTRY.members()
        if (bridge := member.bridge)  # read once: it goes when the context is closed meanwhile
    ]
    guests = {member.name: question.answer(member, deadline) for member, question in asked}
    text = "\n".join(_pages(host, guests)) + "\n"
    try:
        stream.write(text)
        stream.flush()
    except RuntimeError:  # of a signal handler that came in the middle of a write to this very stream
        os.write(stream.fileno(), text.encode("utf-8", "backslashreplace"))


def _host() -> Threads:
    # Not by threading.enumerate(), whose lock may be what is waited for.
    threads: dict[int, threading.Thread] = vars(threading)["_active"]
    stacks = {ident: _stack(frame) for ident, frame in sys._current_frames().items()}  # noqa: SLF001 - documented
    return Threads(stacks, {ident: thread.name for ident, thread in threads.copy().items()})


def _stack(innermost: FrameType) -> list[Frame]:
    stack: list[Frame] = []
    frame: FrameType | None = innermost
    while frame is not None:
        code = frame.f_code
        if code is _Question._ask.__code__:  # noqa: SLF001 - a thread of ours
            return []
        if code.co_filename != __file__:
            into = frame.f_locals["self"].name if code is _CALL else ""
            stack.append(Frame(code.co_filename, frame.f_lineno or 0, code.co_name, into))
        frame = frame.f_back
    stack.reverse()
    return stack


class _Question:
    """Asks one interpreter, on a thread of its own: its GIL may never come."""

    _open: ClassVar[WeakKeyDictionary[Bridge, _Question]] = WeakKeyDictionary()
    """Those that wait for an answer: nobody asks a second time."""

    def __init__(self, bridge: Bridge) -> None:
        self._told = Threads({}, {})
        self._answered = _thread.allocate_lock()
        self._answered.acquire()
        self._open[bridge] = self
        try:
            _thread.start_new_thread(self._ask, (bridge,))
        except RuntimeError as error:  # there are no threads to have, which may be why one looks
            self._tell(bridge, Threads({}, {}, str(error)))

    @classmethod
    def put_to(cls, bridge: Bridge) -> _Question:
        """Asks, unless a question from before still waits."""
        return cls._open.get(bridge) or cls(bridge)

    def _ask(self, bridge: Bridge) -> None:
        try:
            stacks = bridge.frames()
        except BaseException as error:  # noqa: BLE001 - it is what there is to say; a KeyboardInterrupt of there too
            told = Threads({}, {}, str(error))
        else:
            told = Threads(
                {ident: [Frame(*frame) for frame in frames] for ident, _, frames in stacks},
                {ident: name for ident, name, _ in stacks if name},
            )
        self._tell(bridge, told)

    def _tell(self, bridge: Bridge, told: Threads) -> None:
        self._told = told
        self._open.pop(bridge, None)
        self._answered.release()

    def answer(self, member: Instance, deadline: float) -> Threads:
        """What the context told until the deadline, or what can be seen from outside."""
        left = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        if not self._answered.acquire(timeout=left):
            why = "its GIL did not come in time"
        else:
            self._answered.release()
            if not self._told.note:
                return self._told._replace(stacks=_without_frames(member) | self._told.stacks)
            why = f"it does not answer ({self._told.note})"
        stacks = _read_without_gil(member)
        if stacks is None:
            return Threads({}, {}, f"{why}, and it cannot be read without.")
        return Threads(stacks, {}, f"{why}; it was read without, while it may have gone on.")


def _without_frames(member: Instance) -> dict[int, list[Frame]]:
    """The threads that are in a call, each with an empty stack: a function of C is called from C.

    Not of resident contexts, where other threads make the calls.
    """
    return {} if member.native.resident else {ident: [] for ident in member.gate.callers()}


def _read_without_gil(member: Instance) -> dict[int, list[Frame]] | None:
    try:
        memory = os.memfd_create("vlcs-traceback", os.MFD_CLOEXEC)
    except OSError:  # no descriptor is left, say
        return None
    try:
        if not member.dump_frames(memory):
            return None
        text = os.pread(memory, os.fstat(memory).st_size, 0).decode("ascii", "backslashreplace")
    finally:
        os.close(memory)
    stacks: dict[int, list[Frame]] = {}
    stack: list[Frame] = []
    for line in text.splitlines():
        if found := _FAULTHANDLER_LINE.match(line):
            if found["ident"]:
                stack = stacks[int(found["ident"], 16)] = []
            else:  # it has the most recent call first
                stack.insert(0, Frame(found["file"], int(found["line"]), found["name"]))
    return {ident: stack for ident, stack in stacks.items() if stack}


def _pages(host: Threads, guests: dict[str, Threads]) -> Iterator[str]:
    for context, threads in guests.items():
        if threads.note:
            yield f"The context {context!r}: {threads.note}\n"
    calls = {context: _calls(threads) for context, threads in guests.items()}
    idents = dict.fromkeys([threading.main_thread().ident or 0, *host.stacks])
    idents.update(dict.fromkeys(ident for stacks in calls.values() for ident in stacks))
    for ident in idents:
        stack = host.stacks.get(ident)
        if stack == []:  # a thread of ours
            continue
        inside = {context: stacks[ident] for context, stacks in calls.items() if ident in stacks}
        names = [host.names.get(ident)]
        names += [
            f"{found} of {name!r}" for name, guest in guests.items() if (found := guest.names.get(ident))
        ]
        name = next(filter(None, names), "without a name")
        this = ", which asks" if ident == threading.get_ident() else ""
        sections = "".join(itertools.starmap(_section, _merge(stack or [], inside)))
        yield f"Thread {ident:#018x} ({name}){this}, most recent call last:\n{sections}"


def _calls(threads: Threads) -> dict[int, list[list[Frame]]]:
    """The frames of each call into a guest, none of C; of threads that began there, all as one call."""
    calls: dict[int, list[list[Frame]]] = {}
    for ident, stack in threads.stacks.items():
        found: list[list[Frame]] = [[]]
        for frame in stack:
            if not frame.file.startswith("<vlcs "):
                found[-1].append(frame)
            elif frame.name in _ENTRIES:
                found.append([])
        calls[ident] = found[1:] if len(found) > 1 and not found[0] else found
    return calls


def _merge(host: list[Frame], inside: dict[str, list[list[Frame]]]) -> Iterator[tuple[str, list[Frame]]]:
    """The frames in order of calling, in groups of one interpreter, each with words for where that is."""
    place = ""
    group: list[Frame] = []
    for frame in host:
        if inside.get(frame.into):
            while group and group[-1].file == _CALL.co_filename:
                group.pop()  # how the call is made is of no interest when where it went is known
            if group:
                yield place, group
            yield f"in the context {frame.into!r}:", inside[frame.into].pop(0)
            place, group = "in the host:", []
        else:
            group.append(frame)
    if group:
        yield place, group
    for context, calls in inside.items():  # of threads that began there
        for call in calls:
            yield f"in the context {context!r}:", call


def _section(place: str, frames: list[Frame]) -> str:
    text = f"  {place}\n" if place else ""
    if not frames:
        text += "  (no frame of Python)\n"
    if len(frames) > MOST_FRAMES:
        text += f"  ... {len(frames) - MOST_FRAMES} calls ...\n"
    for frame, same in itertools.groupby(frames[-MOST_FRAMES:]):
        entry = f'  File "{frame.file}", line {frame.line}, in {frame.name}\n'
        if line := linecache.getline(frame.file, frame.line).strip():
            entry += f"    {line}\n"
        count = len(list(same))
        text += entry * min(count, 3)
        if count > 3:
            text += f"  [Previous line repeated {count - 3} more times]\n"
    return text
