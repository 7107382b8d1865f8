"""Whether the test that an entry of the catalogue of findings names as its example makes that finding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from fedkern.finding import Finding, catalogue

NEAR = {  # whose example is about the same, and does not make them
    "column-of-zeros",
    "response-varies-otherwise",
    "times-odd-somewhere",
    "few-hidden-in-sums",
    "levels-unlike",
    "levels-unseen",
    "not-among-sites",
    "not-in-sums",
    "one-level",
    "patient-at-0",
    "times-apart-here",
    "times-uneven",
    "times-uneven-together",
    "unknown-without-a-client",
    "unreliable-loo",
}
EXAMPLES: dict[str, set[str]] = defaultdict(set)
for id, entry in catalogue().items():
    EXAMPLES[entry.example].add(id)
made: list[set[str]] = [set()]  # of the fixture or test that runs, the innermost last
shared = set[str]()  # by fixtures of several tests

_of = Finding.of.__func__  # type: ignore[attr-defined]


def _noted(cls: type[Finding], id: str, **values: Any) -> Finding:
    for one in made:
        one.add(id)
    return _of(cls, id, **values)


Finding.of = classmethod(_noted)  # type: ignore[method-assign,assignment]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[object]:
    """Notes what fixtures of several tests make."""
    made.append(set())
    try:
        return (yield)
    finally:
        shared.update(made.pop() if fixturedef.scope != "function" else made.pop() & set())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails an example that has not made its findings. Of a test with parameters each makes them, or the example names one."""
    name = item.nodeid.removeprefix("tests/")
    wanted = EXAMPLES.get(name, set()) | EXAMPLES.get(name.partition("[")[0], set())
    made.append(set())
    try:
        yield
    finally:
        here = made.pop() | shared
    assert wanted - NEAR <= here, f"examples of findings that were not made: {wanted - here}"
