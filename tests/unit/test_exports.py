"""The public names: a name that comes or goes must come or go here too."""

import importlib.metadata
import importlib.resources
import types

import pytest

import vlcs

NAMES = [
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


def test_public_names_are_these() -> None:
    assert sorted(vlcs.__all__) == sorted(NAMES)
    public = {
        name
        for name, value in vars(vlcs).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_says_that_it_is_public(name: str) -> None:
    assert getattr(vlcs, name).__module__ == "vlcs"
    assert getattr(vlcs, name).__doc__


def test_all_modules_in_the_package_are_private() -> None:
    shown = {entry.name for entry in importlib.resources.files("vlcs").iterdir()}
    public = {name for name in shown if not name.startswith("_")}
    assert public <= {"py.typed", "include"}
    assert "py.typed" in public


def test_version_is_that_of_the_distribution() -> None:
    assert vlcs.__version__ == importlib.metadata.version("vlcs")
