"""The extension module: the only door between Python and libvlcs.so.

Every failure raises a class of `vlcs._core._errors`, made in one place from the
`vlc_error` record (`status` picks the class; `message` is the text; `subject` and
`os_error` become attributes).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, Self, TypeVar, final, overload

from vlcs._core._remote import RemoteObject

_P = ParamSpec("_P")
_T = TypeVar("_T")

ABI_VERSION: int

@final
class Lease:
    """A buffer of another interpreter, shared and not copied (buffer protocol).

    Keeps its owner alive there; the owner is released by its own interpreter.
    """

    readonly: bool
    nbytes: int

    def take(self) -> Any:
        """The object that it stands for."""

@final
class Context:
    """A `vlc_context`. Methods release the GIL while they wait or load."""

    def __init__(
        self,
        *,
        name: str | None,
        cpus: Sequence[int] | None,
        env: Sequence[str],
        share: Sequence[str],
        threads: int,
        heap: int,
        residence: int,
        scheduling: int,
        nice: int | None,
        groups: Sequence[str],
        memory: int,
        nodes: Sequence[int] | None,
        memory_limit: int,
        huge_pages: int,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def resident(self) -> bool:
        """Whether its code runs on threads of its own only; then `enter` and `leave` do nothing."""
    def load(self, file: str, flags: int) -> int:
        """Loads a library; gives its handle (a `vlc_library *`)."""
    def symbol(self, library: int, name: str) -> int:
        """Address of a symbol; library 0 means the context's global scope."""
    def wrap(self, address: int) -> int:
        """`vlc_wrap`: an address that enters the context when it is called, and runs the function."""
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def submit(self, function: Callable[[], object], thread: int = -1) -> None:
        """Runs a host callable on a thread of the context's pool, with the host's GIL, inside the context.

        `thread` picks one of the pool's threads; -1: any. An exception goes to `sys.unraisablehook`.
        """
    def call_address(self, address: int, argument: int) -> int:
        """`vlc_run` of a native `void *(*)(void *)` on this thread, without the GIL."""
    def resize(self, cpus: Sequence[int]) -> None: ...
    def cpus(self) -> list[int]: ...
    def set_memory(self, memory: int, nodes: Sequence[int] | None) -> None:
        """`vlc_set_memory`: a vlc_memory, and its nodes; None: those of the slice's CPUs."""
    def memory(self) -> tuple[int, list[int]]:
        """The vlc_memory in force, and its nodes."""
    def migrate_memory(self) -> tuple[int, int]:
        """`vlc_migrate_memory`: bytes moved, and left elsewhere."""
    def memory_nodes(self) -> dict[int, int]:
        """`vlc_memory_nodes`: bytes that were touched, by node; none that has none."""
    def set_memory_limit(self, limit: int) -> None: ...
    def threads(self) -> list[int]: ...
    def libraries(self) -> list[str]: ...
    def control(self, library: str, getter: int, setter: int, most: int) -> None:
        """`vlc_control`, with the addresses of the two functions."""
    def pools(self) -> list[tuple[str, str, int, int]]:
        """Libraries with pools of threads: name, path, `vlc_pool_state`, threads."""
    def stats(self) -> dict[str, int]: ...
    def after_fork(self) -> bool:
        """In a forked child: whether it lives on there, as it was its interpreter that forked."""
    def destroy(self, timeout_ms: int = -1, abandon: bool = False) -> None:
        """Ends the interpreter on its home thread, then the context. Again: nothing.

        Waits for calls and threads, 5 s each where `timeout_ms` is negative, longer while the interpreter's
        end computes; BusyError where they do not end. While arrays of the interpreter are held outside,
        the rest goes by itself with the last of them; `abandon` finalises the interpreter all the same,
        and its memory stays (at exit).
        """

@final
class Visit:
    """One stay inside of a context, for one `with`. Made by `Door.visit`."""

    def __enter__(self) -> Self:
        """Counts this thread in. Raises `Door.refusal` where the door is closed and the thread not inside."""
    def stay(self) -> None:
        """Enters until `Door.leave`, for who has no `with`."""
    def __exit__(self, *unused: object) -> None:
        """Counts it out, whatever happens; again: nothing.

        Raises `Door.misplaced` where this thread cannot leave the visit's context now. It does at one of
        its next visits.
        """

class Door:
    """Counts who is inside of a context, without a lock.

    In C, so that no signal handler or asynchronous exception comes between the counting and the block.
    A subclass has `refusal(what)` and `misplaced()`, which make the exceptions.
    """

    open: bool
    """Whether newcomers are let in; threads that are inside always are."""
    def visit(self, what: object, context: Context | None = None, accepted: bool = False, /) -> Visit:
        """A stay, for `with`; enters `context` too. `accepted`: it is let in whether `open` or not."""
    def is_inside(self) -> bool:
        """Whether the calling thread is inside."""
    def inside(self) -> list[object]:
        """What each thread that is inside does there: the `what` of its latest visit."""
    def callers(self) -> list[int]:
        """Idents of the threads that are in a call made in C, one for each call."""
    def wait(self) -> None:
        """Waits until somebody leaves a door that is not open, a moment at most."""
    def wake(self) -> None:
        """Ends `wait`."""
    def leave(self) -> None:
        """Ends the latest `Visit.stay` of this thread, or of another that this one goes on for."""
    def forget(self, dead: bool, /) -> None:
        """In a forked child: forgets other threads, and lets nobody in any more where it is `dead`."""
    def expel(self) -> None:
        """Ends all visits of the calling thread."""

class Block:
    """The half of a `with` that leaves, in C as Door is. The other half begins with `Visit.stay`."""

    _gate: Door
    def __exit__(self, *unused: object) -> None:
        """Leaves."""

@final
class Interpreter:
    """A private CPython in a context. It begins and ends on the home thread (the pool's thread 0).

    Start: loads `libpython`, sets the program name, initialises, sets `sys.path` (when given) and
    `sys.argv`, then executes `bootstrap` (source text of `_guest.py`) in a fresh module named
    `_vlcs_guest`, which must define `serve(payload: bytes, buffers: list) -> tuple[bytes, list]` and
    `end()`, which ends what would go on: threads, and atexit functions.
    """

    def __init__(
        self,
        context: Context,
        *,
        libpython: str,
        program: str,
        sys_path: Sequence[str] | None,
        argv: Sequence[str],
        bootstrap: str,
        settings: bytes,
        answer: Callable[[str, int, str], tuple[str, str, str]],
        warn_options: Sequence[str],
        x_options: Sequence[str],
    ) -> None:
        """`warn_options` and `x_options` are as after -W and -X; other flags are those of the host.

        `settings` (pickle) is handed to the guest as `_vlcs_host.settings`.

        `answer(request, fd, text)` is the host function behind the guest's streams (`_vlcs_host.ask`); it
        gives an answer, or the name of a built-in exception and its words, for the guest to raise.
        """
    @property
    def version(self) -> str: ...
    def call(self, payload: bytes, buffers: Sequence[Any]) -> tuple[bytes, list[Lease]]:
        """Runs the guest's `serve` on this thread; buffers cross without a copy, both ways."""
    def interrupt(self) -> None:
        """Raises KeyboardInterrupt in the guest's home thread at its next bytecode."""
    def dump(self, fd: int) -> bool:
        """Writes the frames of its threads, as faulthandler does, without its GIL.

        What runs meanwhile may be shown wrong. False: it has no function for that (3.13), or is not there.
        """
    def shut(self) -> None:
        """Lets in no calls of other contexts any more, but on threads that are inside."""
    def is_inside(self) -> bool:
        """Whether the calling thread is in a call into it, also out of another context."""
    @property
    def inside(self) -> int:
        """How many calls are inside."""
    @property
    def kept(self) -> int:
        """How many of its objects are referred to by handles."""
    @property
    def leases(self) -> int:
        """Arrays of this interpreter that are held outside."""

class Caller(Block):
    """Calls functions of an interpreter, on the short way where it can: in C, without pickle.

    That is for functions that the interpreter finds by name, and values of plain types: None, bool, int,
    float, complex, str, bytes, and tuples, lists, dicts, sets and frozensets of them, exactly; and NumPy
    arrays. Everything else goes to `_run(fn, args, kwargs)` of the subclass.
    """

    @overload
    def run(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Calls `fn(*args, **kwargs)` in the context's interpreter, on this thread, and gives its result.

        In a resident context, on a thread of the context that stands for this one, the same in every call.
        The thread runs on the slice's CPUs meanwhile. Functions that can be imported cross by name (their
        module is imported in the context); others, and those of `__main__`, by cloudpickle. NumPy
        arrays, memoryview, bytearray, array.array, mmap and CPU tensors of PyTorch are shared both ways, not
        copied: writes are seen by both sides (`docs/values.md`). Everything else is copied, also `bytes`,
        arrays of objects and subclasses of arrays. A function of one of the context's libraries
        (`load_library`) is called as it is.

        With `keep=True` the result stays in the context, and a RemoteObject that stands for it comes. That
        keyword is never passed to `fn`: for one that has a parameter of that name, use functools.partial.

        Ctrl-C on the main thread interrupts Python code there, at its next bytecode. A C function that blocks
        or computes, `time.sleep` too, ends first; and the host's Python waits meanwhile, so handlers
        of other signals, and handlers of your own for Ctrl-C (asyncio's too), run when the call returns.
        For what must be answered at once, use `submit` and wait for the future.

        Raises:
            StateError: The context is closed.
            PicklingError: An argument, or the result, cannot cross.
            RemoteError: `fn` raised what cannot be rebuilt here. Other exceptions of `fn` come as
                they are, with the traceback of the context attached.
        """
    @overload
    def run(
        self, fn: Callable[..., Any], /, *args: Any, keep: Literal[True], **kwargs: Any
    ) -> RemoteObject: ...
    def _connect(
        self,
        interpreter: Interpreter,
        decode: Callable[[Any, bytes, list[Lease]], Any],
        find: Callable[[Any], tuple[str, tuple[str, ...]] | None],
        /,
    ) -> None:
        """Opens the short way, once, for who is let in by `_gate`.

        `decode(fn, payload, leases)` gives the value of an answer of `serve`, or raises. `find` gives a
        function's module and the attributes that lead to it, or None; what it gave holds as long as that
        name stands for the same function here. With the keyword `keep`, calls go to `_run`.
        """

def allowed_nodes() -> list[int]:
    """`vlc_allowed_nodes`. Raises SystemRefusedError where the kernel lets nobody set a policy of memory."""

def limits() -> dict[str, Any]:
    """The figures of `vlc_get_limits`."""

def arrow_lend(capsule: object) -> object | None:
    """What an "arrow_array_stream" gives, as an object with a buffer, to be lent; None: the stream fails."""

def arrow_borrow(lease: Lease) -> Any:
    """An object with `__arrow_c_stream__` on what `arrow_lend` made; None: it is no lease of here."""

def context_name_of(address: int) -> str | None:
    """Name of the context whose library holds the address; 0: that this thread is inside of."""

class Handle:
    """Refers to an object that stays in its interpreter; what RemoteObject is made of."""

    _vlcs_label: str
    """What it is, in messages: the name of a module, function or class, or of an object's class."""
    _vlcs_context: str
    """Name of the context where it is; "host"."""
    _vlcs_is_here: bool
    """Whether that is this interpreter."""
    _vlcs_is_attribute: bool
    """Whether it is an attribute that is read anew at each use."""
    _vlcs_vlc: Any
    """The VLC where it is, which stays open therefore, in the host; None elsewhere."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def _vlcs_operate(self, number: int, *args: Any) -> Any:
        """Has one of `_serving.operations` done to it, there."""
    def _vlcs_exchange(self, payload: bytes, buffers: list[Any], /) -> tuple[bytes, list[Any]]:
        """Runs `serve` there, as `Interpreter.call`."""

def keep(obj: object, /) -> Any:
    """A handle to an object of this interpreter."""

def furnish(functions: dict[str, Any], /) -> None:
    """Takes over what calls into this interpreter use, by name (`VLCI_FUNCTIONS` in realm.h)."""
