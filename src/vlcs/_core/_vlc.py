"""The public face of a context, and the three calls of the paper."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, overload

from vlcs._core import (
    _awaiting,
    _library,
    _memory,
    _memory_limit,
    _placement,
    _plan,
    _quality,
    _request,
    _stats,
    _verification,
)
from vlcs._core._errors import ArgumentError, StateError, describe
from vlcs._core._gate import State
from vlcs._core._instance import Instance
from vlcs._core._kernel_text import format_list
from vlcs._core._library import Library
from vlcs._core._memory import Migration
from vlcs._core._native import Caller
from vlcs._core._registry import REGISTRY
from vlcs._core._task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from vlcs._core._bridge import Bridge
    from vlcs._core._memory import Nodes
    from vlcs._core._pool import Resized
    from vlcs._core._remote import RemoteObject
    from vlcs._core._request import CPURequest
    from vlcs._core._slice import Slice
    from vlcs._core._stats import Stats
    from vlcs._core._verification import Verification

P = ParamSpec("P")
T = TypeVar("T")


class VLC(Caller):
    """A Virtual Library Context: private copies of libraries, and a slice of the machine's CPUs.

    It is made at once, with its own Python interpreter (own GIL, own `sys.modules`, own copies of
    all packages), and lives until `close()` or the end of the process. One that is forgotten is closed in the
    background, with a ResourceWarning, as a file is: when nothing refers to it any more, to its modules,
    libraries or functions, and no call, `with` block or submitted job is under way. Its arrays do not
    keep it; they stay valid all the same.

    All contexts share one address space, file descriptors, working directory and umask, so
    arrays pass by pointer; and a crash or `exit()` in a library ends the process. As with
    `multiprocessing`'s spawn, modules are imported again in each context and globals are not shared.

    Args:
        name: For messages and debuggers; unique among open contexts. None: one is made ("vlc-1").
        cpus: The slice: "0-3,8"; a set, list or range of CPU numbers; or how many (free CPUs are
            picked, each on a physical core of its own where there are enough). Without `cpus`, `cores`,
            `fraction` and `node` it is all that the process may use.
        cores: Or so many physical cores, with all of their hardware threads. They share a cache, then a
            node, then a package where that is possible; docs/slices.md has the rules of choice.
        fraction: Or this part of what the process may use, rounded down to cores; of its control group's CPU
            quota where that is less.
        node: On this NUMA node; alone: all of it.
        near: Next to this context (or the one of this name): on its cache, else its node, else its package.
        env: Variables of the context's own environment, over a copy of the host's without
            thread-count variables (OMP_NUM_THREADS ...); None as value removes one.
        share: Sonames that bind to the host's copy instead of a private one (["libcuda.so.1"]).
        python: Path of another interpreter or of a venv's folder, of the host's minor version, with
            its own site-packages. None: this Python, with its venv and `sys.path` as they are now.
        threads: Threads behind `submit`. With 1, all submitted work runs on one fixed thread, which
            is the interpreter's main thread.
        heap: Where its libraries' `malloc` takes memory from. "own" is given back whole when the context is
            closed, also what leaked; "host" is for C code of the host that calls `free` on what they return.
        resident: Whether its code runs on threads of its own only, so that libraries with static thread-local
            storage (libgomp) find room in it however many contexts there are; a call costs some
            microseconds more then (docs/residence.md). None: when the process has too little room left.
        exclusive: No other context that asks for CPUs may overlap this one, in either order of creation.
        nice: Nice value of the threads that the context owns (its libraries', and those behind `submit`),
            from -20, which comes first, to 19. A thread that calls in, by `run` or `with`, keeps its own;
            this goes for all options down to `cache_ways`, and docs/slices.md has the ways out.
        scheduling: "batch" (SCHED_BATCH) for work that nobody waits for, "idle" (SCHED_IDLE) for work that
            takes only what others leave.
        weight: Part of the CPU time where several want the same CPUs: 1 to 10000, where 100 is what a control
            group has without it.
        quota: CPU time per time that it may take at most, in CPUs: 0.5 is half of one.
        confine: Whether the kernel is to keep its threads on the slice's CPUs also when a library makes the
            system call itself, by a control group's cpuset.
        bandwidth: Per cent of the memory bandwidth (resctrl).
        cache_ways: Ways of the last-level cache: how many (an int), or which part (a float) (resctrl).
        memory: On which NUMA nodes its memory lies: "bind" (on these and no others), "preferred" (while they
            have room), "interleave" (page by page on each in turn) or "local" (where the thread runs that
            touches it first). This goes for its heap, for mappings of its libraries, and for threads while
            they are inside. None: each thread's own policy.
        memory_nodes: The nodes: a number, a list, or "0-1". None: those of the slice's CPUs, also after
            `resize`.
        memory_limit: Bytes, or text ("2GiB"), that the heap and the anonymous mappings of its libraries may
            take together. Beyond it they get no more, as on a machine without memory: Python there raises
            MemoryError, others notice nothing, and it goes on when some is freed. See `memory_limit`.
        huge_pages: Whether that memory is to be on transparent huge pages, or on none. None: as the system
            does.
        gpu: Reserved. It is reported as unavailable, and a warning says so.
        interpreter: False makes a context for `load_library` alone, without Python.

    Raises:
        ArgumentError: A value is wrong: unknown CPUs, an empty set, a name used twice ...
        LoadError: The Python has no libpython, is free-threaded, or is built for musl.
        LimitError: The process is out of mappings, addresses or descriptors, or an exclusive context
            holds the CPUs.
        SystemRefusedError: The kernel refused. After any of these, nothing is left behind.

    Warns:
        OverlapWarning: Another open context was given some of these CPUs as well.
        UnavailableWarning: Something was asked for that cannot be had here (`slice.report()` says the same).
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        cpus: CPURequest = None,
        cores: int | None = None,
        fraction: float | None = None,
        node: int | None = None,
        near: VLC | str | None = None,
        env: Mapping[str, str | None] | None = None,
        share: Iterable[str] = (),
        python: str | os.PathLike[str] | None = None,
        threads: int = 1,
        heap: Literal["own", "host"] = "own",
        resident: bool | None = None,
        exclusive: bool = False,
        memory: Literal["bind", "preferred", "interleave", "local"] | None = None,
        memory_nodes: Nodes = None,
        memory_limit: int | str | None = None,
        huge_pages: bool | None = None,
        interpreter: bool = True,
        nice: int | None = None,
        scheduling: Literal["batch", "idle"] | None = None,
        weight: int | None = None,
        quota: float | None = None,
        confine: bool = False,
        bandwidth: int | None = None,
        cache_ways: float | None = None,
        gpu: object = None,
    ) -> None:
        if hasattr(self, "_instance"):
            raise StateError(
                f"the context {self.name!r} is made already: __init__ makes another, which this object "
                "cannot stand for too. Call vlcs.VLC() for that.",
                self.name,
            )
        plan = _plan.plan(
            name=name,
            env=env,
            share=share,
            threads=threads,
            heap=heap,
            resident=resident,
            memory=memory,
            memory_nodes=memory_nodes,
            memory_limit=memory_limit,
            huge_pages=huge_pages,
            python=python,
            interpreter=interpreter,
        )
        request = _request.read(
            cpus=cpus, cores=cores, fraction=fraction, node=node, near=near, exclusive=exclusive
        )
        quality = _quality.read(
            nice=nice,
            scheduling=scheduling,
            weight=weight,
            quota=quota,
            confine=confine,
            bandwidth=bandwidth,
            cache_ways=cache_ways,
        )
        self._instance = Instance(plan, request, quality, gpu=gpu, owner=self)
        self._gate = self._instance.gate
        if self._instance.bridge is not None:
            self._instance.bridge.connect(self)

    @property
    def name(self) -> str:
        """Its name."""
        return self._instance.name

    @property
    def cpus(self) -> tuple[int, ...]:
        """CPU numbers of the slice, in ascending order; () once it is closed."""
        return () if self.closed else tuple(self._instance.native.cpus())

    @property
    def slice(self) -> Slice:
        """What it was given of the machine, why, and how firmly each part is held (`slice.report()`).

        Raises StateError when the context is closed.
        """
        self._instance.gate.check("slice")
        return self._instance.slice

    @property
    def memory_limit(self) -> int | None:
        """Bytes that its heap and mappings may take together; None: no limit. It can be set.

        As for the constructor. Less than what is taken now means that it gets no more until so much is freed.
        `stats()` has what is taken, and the most that ever was. Setting it raises ArgumentError, and
        StateError when the context is closed.
        """
        return self._instance.memory_limit or None

    @memory_limit.setter
    def memory_limit(self, limit: int | str | None) -> None:
        self._instance.gate.check("memory_limit")
        self._instance.limit_memory(_memory_limit.read(limit))

    @property
    def resident(self) -> bool:
        """Whether its code runs on threads of its own only; see `resident` of the constructor."""
        return self._instance.native.resident

    @property
    def closed(self) -> bool:
        """Whether it takes no work any more: since `close()`, even if that raised BusyError."""
        return self._instance.gate.state is not State.OPEN

    # run() is Caller's.

    def _run(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        work = self._work(fn, args, kwargs)
        with self._instance.gate.visit(fn):
            return work()

    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]: ...
    @overload
    def submit(
        self, fn: Callable[..., Any], /, *args: Any, keep: Literal[True], **kwargs: Any
    ) -> Future[RemoteObject]: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queues `fn(*args, **kwargs)` for the context's own threads; the future gives the outcome.

        Values cross as with `run`, when the call starts: change no argument before the result is there.
        Only a call that has not begun can be cancelled. At the end of the program jobs get 2.5 s; those that
        have not begun then are cancelled, one that runs Python code on the first thread is interrupted,
        and a warning of the logger `vlcs` names them. `keep=True` is as with `run`. Raises StateError when
        the context is closed.
        """
        work = self._work(fn, args, kwargs)  # which raises what is wrong with it now
        if work.func is not fn:  # no function of a library
            work = partial(super().run, fn, *args, **kwargs)
        return self._instance.executor.submit(fn, work, self)

    @overload
    async def run_async(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def run_async(
        self, fn: Callable[..., Any], /, *args: Any, keep: Literal[True], **kwargs: Any
    ) -> RemoteObject: ...
    async def run_async(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls `fn(*args, **kwargs)` on one of the context's own threads, and awaits its outcome in asyncio.

        As `submit` in all else, and as `asyncio.to_thread` in that nothing begins before it is awaited, or
        made a task; but context variables are not carried over. With `threads=n`, n calls go on at once.

        When it is cancelled, by `asyncio.timeout` too, CancelledError is raised at once. A call that has not
        begun never runs then; one that runs goes on to its end in the context, which `close()` waits for, and
        its outcome is dropped: it cannot be interrupted. Where `fn` raises StopIteration, it comes as the
        cause of a RuntimeError, as out of any coroutine.

        Raises StateError when the context is closed, and ArgumentError for an `async def`.
        """
        _awaiting.refuse_coroutines(fn, self.name)
        return await _awaiting.outcome(self.submit(fn, *args, **kwargs))

    async def _await(self, work: Callable[[], Any]) -> Any:
        return await _awaiting.outcome(self._instance.executor.submit("await", work, self))

    def task(self, fn: Callable[P, T], /) -> Task[P, T]:
        """Makes a function that always runs in this context, as a decorator does: `@vlc.task`.

        For scripts and notebooks. A module that the context imports too takes `in_context`, by name: the line
        that makes the context would run in the context as well. Raises ArgumentError for an `async def`.
        """
        return Task(fn, self.name, self)

    def remote(self, obj: Any, /) -> RemoteObject:
        """Copies an object into the context, as an argument of a call is, and gives a handle to the copy.

        It stays there for later calls: arrives in them as itself, at no cost. What is made there in the first
        place is better kept there: `vlc.run(make, keep=True)`. To have contexts use an object of this
        interpreter, that is `vlcs.remote(obj)`. Raises PicklingError and StateError, as `run` does.
        """
        bridge = self._bridge("remote()")
        with self._instance.gate.visit("remote()", self._instance.native):
            handle: RemoteObject = bridge.place(obj)
        return handle

    def import_module(self, name: str) -> RemoteObject:
        """Imports a module in the context and gives an object that stands for it.

        Calls and attributes are forwarded, on the calling thread; what they give that is not plain data
        stays in the context too (`vlcs.RemoteObject`). Raises what the import raises there; StateError
        when the context is closed.
        """
        if not isinstance(name, str) or not name or name.startswith("."):
            raise ArgumentError(
                f"cannot import {name!r} in the context {self.name!r}: give a full name, 'numpy.linalg'.",
                repr(name),
            )
        bridge = self._bridge(f"import {name}")
        with self._instance.gate.visit(f"import {name}"):
            found: RemoteObject = bridge.import_module(name)
        return found

    def load_library(
        self, name: str | os.PathLike[str], mode: int = ctypes.DEFAULT_MODE, *, use_errno: bool = False
    ) -> Library:
        """Loads a private copy of a shared library, and of what it needs, on this thread.

        Args:
            name: A path, or a soname that is searched as `dlopen` does.
            mode: `ctypes.RTLD_GLOBAL` lets libraries that the context loads later use its symbols.
            use_errno: As with `ctypes.CDLL`.

        Raises:
            LoadError: The file, or one that it needs, is missing, damaged, for another machine or libc,
                or lacks a symbol or version. Nothing stays loaded.
            LimitError: Static TLS, mappings or addresses ran out.
            StateError: The context is closed.
        """
        try:
            path = os.fspath(name)
        except TypeError:
            path = None
        if not isinstance(path, str) or not path or "\0" in path or not _plan.is_encodable(path):
            raise ArgumentError(
                f"cannot load {name!r} in the context {self.name!r}: give a path or a soname as text.",
                repr(name),
            )
        gate, native = self._instance.gate, self._instance.native
        with gate.visit(f"load_library({path!r})"):
            handle = native.load(path, mode | os.RTLD_NOW)
        return Library(native, self, gate, path, handle, use_errno=use_errno)

    def wrap(self, function: T) -> T:
        """Makes a function of the context callable from outside: from C, by any thread, at any time.

        For pointers that leave the context and are called later, past vlcs: a destructor or release
        callback in a struct (DLPack, Arrow), a comparator, a ctypes callback made in the context. Who
        calls what this gives is inside the context meanwhile; functions of a `Library` are such already.
        Same function, same pointer.

        Args:
            function: An address (int), or a ctypes function pointer, of any signature: up to 256 bytes of
                arguments may be passed on the stack (32 words after the first six).

        Returns:
            The same kind of thing; a function pointer keeps the context open. It can be called for the life
            of the process; once the context is closed, a call does nothing and gives 0, NULL or 0.0: what
            it would free went with the context. Calls that are inside hold `close()` up.

        Call no function that runs Python of the context while you hold the host's GIL (`ctypes.PyDLL`,
        `PYFUNCTYPE`): the two interpreters could wait for each other. `CDLL` and `CFUNCTYPE` drop it.

        Raises:
            ArgumentError: NULL, or not a function pointer.
            StateError: The context is closed.
        """
        self._instance.gate.check("wrap()")
        wrapped: T = _library.wrap(self._instance.native, self, function)
        return wrapped

    def resize(
        self,
        cpus: CPURequest = None,
        *,
        cores: int | None = None,
        fraction: float | None = None,
        node: int | None = None,
        near: VLC | str | None = None,
    ) -> Resized:
        """Gives the context other CPUs: its threads move at once, and its libraries follow.

        It may be called by any thread, while others compute in the context. Those that are inside move too,
        and those that are in another context when they come back. Libraries that sized their pools of threads
        before are told the new number, where theirs was that of the slice; what somebody has set stays.
        OpenBLAS and MKL use it from their next call on; OpenMP and PyTorch have a number for each thread,
        which changes when the thread next enters: at the next `run`, or where a long one calls
        `vlcs.follow()` (docs/slices.md has the table).

        Options and errors are as for the constructor, and what was made with `exclusive` stays so; after an
        error the slice is as it was.

        Returns:
            The CPUs, the libraries with pools of threads, and which of these keep the number that they had,
            and why. `slice.report()` says it later.
        """
        instance = self._instance
        instance.gate.check("resize()")
        return instance.resize(
            _request.read(
                cpus=cpus,
                cores=cores,
                fraction=fraction,
                node=node,
                near=near,
                exclusive=instance.exclusive,
            )
        )

    def set_memory(
        self,
        memory: Literal["bind", "preferred", "interleave", "local"] | None,
        memory_nodes: Nodes = None,
    ) -> None:
        """Gives the context another memory policy, or none: for pages that are touched from now on.

        Options and errors are as for the constructor. Its heap and mappings change at once, threads when they
        next enter or take memory from the system. Pages that were touched stay: see `migrate_memory`.
        """
        self._instance.gate.check("set_memory()")
        self._instance.set_memory(_memory.read(memory, memory_nodes))

    def migrate_memory(self) -> Migration:
        """Moves touched pages of its heap and mappings to the nodes of its memory policy.

        Without a policy, or with "local", to the nodes of its CPUs: after `vlc.resize(node=1)` all of it goes
        to node 1. It goes on running meanwhile. Gives the bytes that were moved, and those that are left
        elsewhere. Pages of files, stacks, and data of libraries stay.

        Raises SystemRefusedError where the kernel moves no pages, StateError when the context is closed.
        """
        self._instance.gate.check("migrate_memory()")
        return Migration(*self._instance.native.migrate_memory())

    def verify(self) -> Verification:
        """Asks the kernel of the context's threads, its libraries' included: where they may run, and how.

        What is `outside` of the slice was moved there by a library that makes system calls itself; or it is
        just beginning and not pinned yet, right after a resize. `differences` has that in words, and whatever
        else is not as it was granted: nice values, policies, control groups, memory policies. Raises
        StateError when the context is closed.
        """
        instance = self._instance
        instance.gate.check("verify()")
        with REGISTRY.lock:  # against a resize() meanwhile
            return _verification.verify(instance.native, instance.inspectors())

    def stats(self, *, nodes: bool = False) -> Stats:
        """Figures of this moment: threads, CPU time, context switches, memory, libraries.

        With `nodes`, also the NUMA nodes of all pages of its memory, which are asked for one by one; raises
        SystemRefusedError where the kernel does not tell.
        """
        instance = self._instance
        instance.gate.check("stats()")
        return _stats.measure(
            instance.native.stats(),
            jobs=instance.gate.jobs(),
            leases=instance.leases(),
            kept=instance.kept(),
            node_bytes=instance.native.memory_nodes() if nodes else None,
        )

    def threads(self) -> list[int]:
        """Kernel ids (gettid) of the context's own threads that live now, its libraries' included."""
        self._instance.gate.check("threads()")
        return self._instance.native.threads()

    def libraries(self) -> list[str]:
        """Paths of the context's private libraries, in order of loading."""
        self._instance.gate.check("libraries()")
        return self._instance.native.libraries()

    def close(self, timeout: float | None = None) -> None:
        """Ends the context and gives everything back: threads, interpreter, libraries, memory.

        New work is refused at once; calls that are inside and jobs that were submitted are waited for, as
        `ThreadPoolExecutor.shutdown` does. Then the interpreter is finalised and libraries' exit handlers
        run. Closing again does nothing. Contexts that are still open at exit are closed then, in a few
        seconds at most: work that takes longer is interrupted.

        Arrays of the context that are held outside stay valid. Its threads and exit handlers end all the
        same, and its name and CPUs are free; the interpreter and its memory go by themselves, at no
        cost until then, when the last of these arrays is dropped, by whichever thread.

        Args:
            timeout: Seconds for all of it. None: as long as calls and jobs take, and as long as the
                interpreter's end computes; it may wait 5 s for its threads and atexit functions, and then
                5 s for threads of libraries.

        Raises:
            BusyError: A call, job or thread did not end in time; the message says which. The context takes
                no new work and keeps its memory, `contexts()` still lists it, and `close()` may be called
                again.
            StateError: The calling thread is inside the context.
        """
        if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
            raise ArgumentError(
                f"cannot close the context {self.name!r} with timeout={timeout!r}: give seconds, or None.",
                repr(timeout),
            )
        self._instance.close(timeout)

    def __enter__(self) -> Self:
        """Enters the context on this thread, so that many calls pay once for the change of CPUs.

        The block itself stays host code, on the slice's CPUs. Blocks nest, also across contexts. Leaving the
        block does not close the context. What is entered is the thread, so no `await` and no `yield` may
        be inside of the block: other code of the thread would run on the slice meanwhile, and leaving out
        of turn, or on another thread, is a StateError. The thread is out all the same; one that was
        left by another is out at its next visit of any context.

        A resident context is entered call by call, by the thread that stands for this one: the block only
        keeps it from being closed, and runs on the CPUs that it ran on before.
        """
        visit = self._instance.gate.visit(_Stay(self), self._instance.native)
        try:
            visit.stay()
        except BaseException:  # perhaps of a signal handler, and it is inside
            visit.__exit__()
            raise
        return self

    def __repr__(self) -> str:
        state = self._instance.gate.state
        details = f"cpus={format_list(self.cpus)}" if state is State.OPEN else state.value
        return f"<vlcs.VLC {self.name!r} {details}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(
            f"cannot pickle the context {self.name!r}: it is of this interpreter. Pass its name instead."
        )

    def _bridge(self, what: object) -> Bridge:
        gate = self._instance.gate
        if not gate.is_inside():  # a job that was accepted runs also when the gate was shut since
            gate.check(what)
        bridge = self._instance.bridge
        if bridge is None:
            raise StateError(
                f"cannot run Python in the context {self.name!r}: it was made with interpreter=False. "
                "Make it without that option.",
                self.name,
            )
        return bridge

    def _work(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> partial[T]:
        if not callable(fn):
            raise ArgumentError(
                f"cannot run {fn!r} in the context {self.name!r}: it cannot be called. Give the function and "
                "its arguments apart: vlc.run(solve, x), not vlc.run(solve(x)).",
                repr(fn),
            )
        if _library.owns(self._instance.gate, fn):
            return partial(fn, *args, **kwargs)
        if "keep" not in kwargs:
            return partial(self._bridge(fn).call, fn, args, kwargs)
        kwargs = dict(kwargs)
        keep = kwargs.pop("keep")
        self._check_keep(fn, keep)
        return partial(self._bridge(fn).call, fn, args, kwargs, keep=keep)

    def _check_keep(self, fn: Callable[..., Any], keep: object) -> None:
        import inspect  # noqa: PLC0415 - slow to import, and seldom needed

        subject = f"cannot run {describe(fn)} in the context {self.name!r} with keep={keep!r}"
        given = isinstance(fn, partial) and "keep" in fn.keywords
        try:
            is_its_own = not given and "keep" in inspect.signature(fn).parameters
        except (TypeError, ValueError):  # of a function of C that does not tell
            is_its_own = False
        if is_its_own:
            raise ArgumentError(
                f"{subject}: it has a parameter of that name, and `keep` says here whether the result stays "
                f"in the context. Give it its own with functools.partial(fn, keep={keep!r}).",
                "keep",
            )
        if not isinstance(keep, bool):
            raise ArgumentError(
                f"{subject}: it is True, for a result that stays in the context, or False.", "keep"
            )


class _Stay(str):
    """Names a `with` block in messages, and keeps its context open."""

    __slots__ = ("owner",)

    owner: VLC

    def __new__(cls, owner: VLC) -> Self:
        stay = super().__new__(cls, "a `with` block")
        stay.owner = owner
        return stay


def contexts() -> list[VLC]:
    """The contexts that are not closed, in order of creation; also those whose `close()` raised BusyError.

    Those that were forgotten, and are being closed therefore, are not among them.
    """
    return REGISTRY.owners()


def plan(contexts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Chooses the CPUs of all contexts of a program at once, and says why; it makes none of them.

    Each context is given by name with its options, as for `VLC`. Those about CPUs are decided, the others go
    through. Contexts that are open keep their CPUs, unless the plan names them: then they are planned anew.
    The same machine, options and order give the same plan. Make them with

        contexts = {name: vlcs.VLC(name, **options) for name, options in plan["options"].items()}

    Returns:
        Plain data (JSON, if the options that go through are):

        - `options`: by name, what to call `VLC` with; `cpus` is a list of CPU numbers
        - `contexts`: by name, `request`, `cpus`, `nodes`, `why`, and `overlaps`: by the other's name, the
          CPUs that both have
        - `order`: the names in the order in which they were placed
        - `free`: CPUs that no context has
        - `notes`: what to know of the whole, as a quota that is smaller than the CPUs

    Raises:
        ArgumentError: Options that `VLC` does not have, contradict each other or ask for what the machine
            lacks; a `near` that does not exist or leads in a circle. The message names the context.
        LimitError: Exclusive contexts do not fit beside the others.
    """
    import difflib  # noqa: PLC0415 - these two take a while to import, and nothing else needs them
    import inspect  # noqa: PLC0415

    known = list(inspect.signature(VLC).parameters)[1:]  # without the name
    if not isinstance(contexts, Mapping):
        raise ArgumentError(
            f"cannot plan {contexts!r}: it is a {type(contexts).__name__}. Give a mapping of names to "
            'options, {"blas": {"cores": 4}}.',
            repr(contexts),
        )
    for name, options in contexts.items():
        if not isinstance(name, str) or not isinstance(options, Mapping):
            raise ArgumentError(
                f"cannot plan the context {name!r} with {options!r}: give a mapping of options under a name, "
                '{"blas": {"cores": 4}}.',
                repr(name),
            )
        for option in options:
            if option not in known:
                near = difflib.get_close_matches(str(option), known, 1)
                hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
                raise ArgumentError(
                    f"cannot plan the context {name!r}: there is no option {option!r}. {hint}", repr(option)
                )
    with REGISTRY.lock:
        return _placement.place(contexts, REGISTRY.machine(), REGISTRY.claims())


def vlc_create(name: str | None = None, **options: Any) -> VLC:
    """Makes a context: the paper's name for `VLC(name, **options)`."""
    return VLC(name, **options)


def vlc_run(vlc: VLC, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a context: the paper's name for `vlc.run(fn, *args, **kwargs)`."""
    return vlc.run(fn, *args, **kwargs)


def vlc_destroy(vlc: VLC, timeout: float | None = None) -> None:
    """Ends a context: the paper's name for `vlc.close(timeout)`."""
    vlc.close(timeout)
