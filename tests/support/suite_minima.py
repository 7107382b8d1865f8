"""How much a run has shown, counted by the names of the tests that passed; a whole run with less than minima.json fails.

So that a test that is left out, skipped or moved to the night is seen: who means it lowers the number in the same commit.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MINIMA = TESTS / "minima.json"
KINDS = {
    "tests": r"",
    "kernel-backend pairs": r"test_conforms_to_the_reference\[",
    "gradients": r"::test_\w*(gradient|differences|derivative|slope)",
    "joint tests": r"::test_(prior_and_chain_agree|the_server_alone|joint_distribution|rows_of_logistic_and_imputed_sites)\[",
    "planted faults": r"::test_negative_control|/test_planted\.py::",
    "same bits over MPI": r"transports/test_(mpi|vertical|hmc)\.py::test_the_same_bits|::test_\w*ranks\w*(a_bit|same_bits)\[",
    "jobs over MPI": r"transports/test_(mpi|vertical|hmc|beside)|test_mpi_command|(jobs|methods)/.*::test_\w*(over_mpi|ranks?_)",
    "kills": r"kill",
    "golden jobs": r"golden/test_golden\.py::test_a_job\w*\[",
}

passed: set[str] = set()


def counted(names: Iterable[str]) -> Counter[str]:
    """How many tests are of each kind."""
    return Counter({kind: sum(bool(re.search(pattern, name)) for name in names) for kind, pattern in KINDS.items()})


def fallen(found: Counter[str], minima: dict[str, int]) -> list[str]:
    """What is less than it has to be."""
    return [f"{kind}: {found[kind]}, not {least}" for kind, least in minima.items() if found[kind] < least]


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for, but perhaps those of the night."""
    option, here = config.option, config.invocation_params.dir
    everywhere = all(Path(here, arg).resolve() in (TESTS, TESTS.parent) for arg in config.args)
    chosen = option.keyword or option.deselect or option.shard
    return everywhere and not chosen and option.markexpr in ("not nightly", "nightly or not nightly")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        passed.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput") or not is_whole(config) or config.option.collectonly:
        return
    if session.exitstatus == 0 and fallen(counted(passed), json.loads(MINIMA.read_text())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if not is_whole(config) or config.option.collectonly:
        return
    found, minima = counted(passed), json.loads(MINIMA.read_text())
    terminalreporter.section("what passed, and at least has to")
    for kind in KINDS:
        terminalreporter.write_line(f"{kind:22}{found[kind]:6}{minima[kind]:6}")
    for line in fallen(found, minima):
        terminalreporter.write_line(f"Too few {line} (tests/minima.json)", red=True)
