"""The command `vlcs`, apart from `run`."""

from __future__ import annotations

import json
import os

import pytest

import vlcs
from vlcs import _cli
from vlcs._core import _doctor, _python, _scheduling
from vlcs._core._registry import REGISTRY


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == vlcs.__version__


def test_show_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["show"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"version", "platform", "python", "cpus", "nodes", "limits"}
    assert "libpython" in shown["python"]["libpython"]
    assert {"online", "usable", "quota", "cores", "cache_domains", "packages", "kinds"} <= set(shown["cpus"])
    assert shown["nodes"][0]["number"] == 0
    assert shown["limits"]["mappings"] > 0


def test_show_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise vlcs.LoadError("there is no libpython. Install it.")

    monkeypatch.setattr(_python, "host", refuse)
    assert _cli.main(["show"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["python"]["error"] == "there is no libpython. Install it."
    assert shown.err == "vlcs show: there is no libpython. Install it.\n"


@pytest.mark.parametrize("line", [["bogus"], ["show", "--bogus"], ["--bogus"]])
def test_wrong_use(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _cli.main(line)
    assert ended.value.code == 2
    assert "usage: vlcs" in capsys.readouterr().err


def test_doctor_says_what_each_resource_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"cpus", "memory", "nice", "scheduling", "weight", "quota", "confine", "bandwidth", "gpu"} <= set(
        found
    )
    for name, line in found.items():
        assert set(line) == {"state", "reason", "cure"}, name
        assert line["state"] in {"enforced", "advisory", "unavailable"}, name
        assert line["cure"] or line["state"] != "unavailable", name
        assert "not asked for" not in line["reason"], name
    assert _cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if not line.startswith(" ")] == [
        [name, line["state"]] for name, line in found.items()
    ]
    assert all(len(line) <= 100 for line in lines)


def test_doctor_says_that_no_nice_value_below_the_own_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _scheduling, "try_nice", lambda nice: "Permission denied" if nice < os.getpriority(0, 0) else None
    )
    line = _doctor.examine(REGISTRY.machine())["nice"]
    assert line["state"] == "advisory"
    assert "none below the process's own" in line["reason"]
    assert "CAP_SYS_NICE" in line["cure"]
