"""The extension module: the only door between Python and libvlcs.so.

Every failure raises a class of `vlcs._core._errors`, made in one place from the
`vlc_error` record (`status` picks the class; `message` is the text; `subject` and
`os_error` become attributes).
"""

from collections.abc import Callable, Sequence
from typing import Any, final

ABI_VERSION: int

@final
class Lease:
    """A buffer of another interpreter, shared and not copied (buffer protocol, 1-d bytes).

    Keeps its owner alive there; the owner is released by its own interpreter.
    """

    readonly: bool
    nbytes: int

@final
class Context:
    """A `vlc_context`. Methods release the GIL while they wait or load."""

    def __init__(
        self, *, name: str | None, cpus: Sequence[int] | None, env: Sequence[str], share: Sequence[str], threads: int
    ) -> None: ...
    @property
    def name(self) -> str: ...
    def load(self, file: str, flags: int) -> int:
        """Loads a library; gives its handle (a `vlc_library *`)."""
    def symbol(self, library: int, name: str) -> int:
        """Address of a symbol; library 0 means the context's global scope."""
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
    def threads(self) -> list[int]: ...
    def libraries(self) -> list[str]: ...
    def stats(self) -> dict[str, int]: ...
    def destroy(self, timeout_ms: int = -1) -> None: ...

@final
class Interpreter:
    """A private CPython in a context. Started and stopped on the home thread (the pool's thread 0).

    Start: loads `libpython`, sets the program name, initialises, sets `sys.path` (when given) and
    `sys.argv`, then executes `bootstrap` (source text of `_guest.py`) in a fresh module named
    `_vlcs_guest`, which must define `serve(payload: bytes, buffers: list) -> tuple[bytes, list]`.
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
        write: Callable[[int, str], object],
    ) -> None:
        """`settings` (pickle) is handed to the guest as `_vlcs_host.settings`.

        `write(fd, text)` is the host function behind the guest's `sys.stdout` (1) and `sys.stderr` (2).
        """
    @property
    def version(self) -> str: ...
    def call(self, payload: bytes, buffers: Sequence[Any]) -> tuple[bytes, list[Lease]]:
        """Runs the guest's `serve` on this thread; buffers cross without a copy, both ways."""
    def interrupt(self) -> None:
        """Raises KeyboardInterrupt in the guest's home thread at its next bytecode."""
    @property
    def leases(self) -> int:
        """Arrays of this interpreter that are held outside."""
    def stop(self, timeout_ms: int = -1, abandon: bool = False) -> None:
        """Finalises the interpreter on its home thread. Safe to call again.

        Waits for the calls inside. Arrays still held outside are refused with their number, or, with
        `abandon`, left as they are (at exit).
        """

def limits() -> dict[str, int]:
    """`vlc_get_limits`: contexts, static_tls_total, static_tls_used, mappings, mappings_max."""

def context_name_of(address: int) -> str | None:
    """Name of the context whose library holds the address; 0: that this thread is inside of."""
