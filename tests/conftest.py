"""Rules for the whole test run: a skip must be one that a list names (tests/allowed_skips.txt)."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def allowed_skips(file: Path) -> set[str]:
    """Names of the skips that a run may have."""
    lines = file.read_text().splitlines()
    return {name for line in lines if (name := line.partition("#")[0].strip())}


def name_of_skip(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What a skip's reason begins with: `pytest.skip("no-mdwe: kernel 5.10")` is named `no-mdwe`."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ").partition(":")[0].strip()


class Skips:
    """Watches a run for skips that nobody allowed."""

    def __init__(self, file: Path) -> None:
        self.allowed = allowed_skips(file)
        self.others: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Remembers a skip that is not allowed; an expected failure is no skip."""
        if report.skipped and not hasattr(report, "wasxfail") and name_of_skip(report) not in self.allowed:
            self.others.append(f"{report.nodeid}: {name_of_skip(report)!r}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sees each test's result."""
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Sees modules that skip themselves as a whole."""
        self.note(report)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fails the run."""
        if self.others and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says which, and what to do."""
        if self.others:
            terminalreporter.section("skips that are not allowed", red=True)
            for line in self.others:
                terminalreporter.line(line)
            terminalreporter.line(
                "Make the machine able to run them (./run-tests installs all that they need). Only where a "
                "machine cannot have the capability, add the skip's name and why to tests/allowed_skips.txt."
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    """A machine that is there to run what others skip has a list of its own (tests/vm/run)."""
    parser.addoption("--allowed-skips", type=Path, default=HERE / "allowed_skips.txt", metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the watch."""
    config.pluginmanager.register(Skips(config.getoption("allowed_skips")), "vlcs-skips")
