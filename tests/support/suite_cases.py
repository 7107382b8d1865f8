"""`pytest --cases N`: of a test of many cases those N whose turn it is, chosen by the hash of the commit; `make test` has one.

Every test runs at every push, and every commit has other cases of it. All run at night, and where somebody runs a file without
the option. That is for the folders whose cases are jobs, fits or chains: other numbers for the same lines. They take most of the
suite's processor time. Elsewhere a case is another kernel, attack, page or message, as in the tables of these folders, whose rows
are another rule each and take milliseconds. What minima.json counts by a kind of its own is whole, too.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from .suite_minima import KINDS
from .suite_share import commit, turn

FOLDERS = ("algorithms/", "jobs/", "methods/", "models/", "results/", "statistics/")
TABLES = (
    *(f"algorithms/test_{name}.py" for name in ("agreement", "alignment", "certificates", "hostile", "level", "rounds")),
    *(f"jobs/test_{name}.py" for name in ("config", "policy", "tells")),
    "models/test_formula.py",
)
WHOLE = [re.compile(pattern) for kind, pattern in KINDS.items() if kind != "tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, metavar="N", help="of each test, in the order of the commit's hash")


def chosen(names: list[str], most: int, commit: str) -> set[str]:
    """The cases that run, of all of a suite."""
    cases = defaultdict(list)
    for name in names:
        cases[name.partition("[")[0]].append(name)
    kept = set[str]()
    for of_one in cases.values():
        name = of_one[0].removeprefix("tests/")
        whole = not name.startswith(FOLDERS) or name.startswith(TABLES) or any(pattern.search(name) for pattern in WHOLE)
        kept.update(of_one if whole else sorted(of_one, key=lambda name: turn(commit, name))[:most])
    return kept


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.cases is None:
        return
    kept = chosen([item.nodeid for item in items], config.option.cases, commit())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]
