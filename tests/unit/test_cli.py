"""The command `vlcs`, apart from `run`."""

from __future__ import annotations

import json

import pytest

import vlcs
from vlcs import _cli
from vlcs._core import _python


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
