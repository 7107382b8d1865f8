"""Which files a run spends its processor time on, printed at its end: tests, fixtures, and the processes that they waited for.

On a busy machine these seconds mean more than those on the clock.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from . import command

SHOWN = 40
NAME = "processor seconds"
before = pytest.StashKey[float]()
spent: Counter[str] = Counter()


def now() -> float:
    """Seconds of this process, of those that it has waited for, and of those that were forked."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + command.seconds()


def dearest(seconds: Counter[str]) -> list[str]:
    """A line for each of the files that took most, at least a second, and one for all."""
    lines = [f"{value:7.1f}  {file}" for file, value in seconds.most_common(SHOWN) if value >= 1]
    return [*lines, f"{seconds.total():7.1f}  in all {len(seconds)} files"]


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[before] = now()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    """The time since the report before it, which is of this worker's last test or of an earlier phase of this one."""
    report = yield
    at = now()
    report.user_properties = [*report.user_properties, (NAME, at - item.config.stash[before])]
    item.config.stash[before] = at
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    spent[report.nodeid.partition("::")[0]] += sum(value for name, value in report.user_properties if name == NAME)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.option.collectonly or len(spent) < 2:
        return
    terminalreporter.section("processor seconds by file")
    for line in dearest(spent):
        terminalreporter.write_line(line)
