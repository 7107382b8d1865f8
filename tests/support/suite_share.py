"""`pytest -m nightly --nightly-share=SECONDS`: those nightly tests whose turn it is, chosen by the hash of the commit.

Every commit begins with others, and no test begins after SECONDS: one push sees few of them, many pushes all. Those that need
more than the ordinary time of a test are left to the whole night.
"""

from __future__ import annotations

import subprocess
import time
from hashlib import sha256
from pathlib import Path

import pytest

LEFT = "left to other commits"
BEGAN = pytest.StashKey[float]()


def commit() -> str:
    """Of the tests' own repository; empty where there is none."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def turn(commit: str, nodeid: str) -> str:
    """Tests are sorted by it."""
    return sha256(f"{commit} {nodeid.removeprefix('tests/')}".encode()).hexdigest()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly-share", type=float, metavar="SECONDS", help="in the order of the commit's hash, for so long")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.nightly_share is None:
        return
    long = [item for item in items if item.get_closest_marker("timeout")]
    config.hook.pytest_deselected(items=long)
    now = commit()
    items[:] = sorted((item for item in items if item not in long), key=lambda item: turn(now, item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    share, now = item.config.option.nightly_share, time.monotonic()
    if share is not None and now - item.config.stash.setdefault(BEGAN, now) >= share:
        pytest.skip(LEFT)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(LEFT):
        return LEFT, "", ""
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A share in which nothing ran has shown nothing."""
    config = session.config
    if config.option.nightly_share is None or hasattr(config, "workerinput"):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if session.exitstatus == 0 and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
