"""Virtual Library Contexts: private copies of unmodified libraries, each on its slice of the machine.

`VLC` makes a context; `docs/` explains it. Everything public is here, and implementation modules
are underscored:

- `_core`: contexts, slices, private interpreters, the bridge between them, errors
- `_cli`: the command `vlcs` (also `python -m vlcs`)
- `_demo`: `vlcs demo`
"""

from vlcs._core._errors import (
    ArgumentError,
    BusyError,
    InternalError,
    LimitError,
    LoadError,
    OverlapWarning,
    PicklingError,
    RemoteError,
    RemoteTraceback,
    StateError,
    SymbolError,
    SystemRefusedError,
    UnavailableWarning,
    VLCError,
)
from vlcs._core._library import Library
from vlcs._core._memory import Migration
from vlcs._core._pool import Pool, Resized, follow
from vlcs._core._remote import RemoteObject, remote
from vlcs._core._slice import Slice
from vlcs._core._stats import Limits, Stats, limits
from vlcs._core._task import Task, in_context
from vlcs._core._traceback import dump_traceback
from vlcs._core._verification import Verification
from vlcs._core._vlc import VLC, contexts, plan, vlc_create, vlc_destroy, vlc_run

__all__ = [
    "VLC",
    "ArgumentError",
    "BusyError",
    "InternalError",
    "Library",
    "LimitError",
    "Limits",
    "LoadError",
    "Migration",
    "OverlapWarning",
    "PicklingError",
    "Pool",
    "RemoteError",
    "RemoteObject",
    "RemoteTraceback",
    "Resized",
    "Slice",
    "StateError",
    "Stats",
    "SymbolError",
    "SystemRefusedError",
    "Task",
    "UnavailableWarning",
    "VLCError",
    "Verification",
    "contexts",
    "dump_traceback",
    "follow",
    "in_context",
    "limits",
    "plan",
    "remote",
    "vlc_create",
    "vlc_destroy",
    "vlc_run",
]

# So that tracebacks, reprs and pickles say vlcs.LoadError and not where it is written.
for _name in __all__:
    globals()[_name].__module__ = "vlcs"
del _name


def __getattr__(name: str) -> str:
    if name == "__version__":
        # Asked for seldom, and importlib.metadata takes longer to import than all of this.
        from importlib.metadata import version  # noqa: PLC0415

        return version("vlcs")
    raise AttributeError(f"module 'vlcs' has no attribute {name!r}")
