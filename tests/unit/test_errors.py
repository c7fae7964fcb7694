"""Exceptions: each by whose fault it is, each also a fitting built-in."""

import pickle
import re
from pathlib import Path

import pytest

import vlcs
from vlcs._core import _errors

HEADER = Path(__file__).parents[2] / "native" / "include" / "vlcs.h"

KINDS = {
    vlcs.ArgumentError: ValueError,
    vlcs.StateError: RuntimeError,
    vlcs.LoadError: OSError,
    vlcs.LimitError: RuntimeError,
    vlcs.SystemRefusedError: OSError,
    vlcs.BusyError: TimeoutError,
    vlcs.InternalError: RuntimeError,
    vlcs.PicklingError: pickle.PicklingError,
}


@pytest.mark.parametrize(("kind", "builtin"), KINDS.items())
def test_is_a_vlc_error_and_a_builtin(kind: type[vlcs.VLCError], builtin: type[Exception]) -> None:
    error = kind("cannot do it", "thing", 13)
    assert isinstance(error, vlcs.VLCError)
    assert isinstance(error, builtin)
    assert str(error) == "cannot do it"
    assert (error.subject, error.os_error) == ("thing", 13)


@pytest.mark.parametrize("kind", KINDS)
def test_survives_pickling(kind: type[vlcs.VLCError]) -> None:
    error = pickle.loads(pickle.dumps(kind("cannot do it", "thing", 13)))  # noqa: S301 - our own bytes
    assert type(error) is kind
    assert (str(error), error.subject, error.os_error) == ("cannot do it", "thing", 13)


def test_remote_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(vlcs.RemoteError("boom", "lib.Strange", "Traceback ...")))  # noqa: S301
    assert (str(error), error.type_name, error.traceback) == ("boom", "lib.Strange", "Traceback ...")


def test_refusal_of_the_system_has_its_errno() -> None:
    assert vlcs.SystemRefusedError("cannot map", os_error=12).errno == 12


def test_every_status_of_the_header_has_a_class() -> None:
    listed = re.search(r"typedef enum vlc_status \{(.*?)\}", HEADER.read_text(), re.DOTALL)
    assert listed
    statuses = {int(number): name for name, number in re.findall(r"(VLC_[A-Z_]+) = (\d+)", listed[1])}
    named = {
        "VLC_BAD_ARGUMENT": vlcs.ArgumentError,
        "VLC_MISUSE": vlcs.StateError,
        "VLC_LOAD_FAILED": vlcs.LoadError,
        "VLC_LIMIT": vlcs.LimitError,
        "VLC_SYSTEM": vlcs.SystemRefusedError,
        "VLC_BUSY": vlcs.BusyError,
        "VLC_BUG": vlcs.InternalError,
    }
    assert set(statuses.values()) == {"VLC_OK", *named}
    for number, name in statuses.items():
        if number:
            error = _errors.from_status(number, "message", "subject", 5)
            assert type(error) is named[name]
            assert (str(error), error.subject, error.os_error) == ("message", "subject", 5)


def test_unknown_status_is_our_bug_and_says_so() -> None:
    error = _errors.from_status(99, "something")
    assert type(error) is vlcs.InternalError
    assert "status 99" in str(error)
    assert "something" in str(error)
