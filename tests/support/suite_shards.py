"""`pytest --shard K/N`: one of N parts of the suite, for as many machines. Together they are all of it, and no test is in two.

What runs on one worker (`group` of `suite_order`) stays together. Groups are dealt in turn, those that take longest first.
"""

from __future__ import annotations

import re

import pytest

from .suite_order import group


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", help="one of N parts of the suite")


def parsed(text: str) -> tuple[int, int]:
    """K and N. Raises pytest.UsageError: the text is none of these."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    k, n = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= k <= n:
        raise pytest.UsageError(f"--shard must be K/N with 1 <= K <= N, such as 1/4, got {text!r}")
    return k, n


@pytest.hookimpl(trylast=True)  # after they are in order
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.shard is None:
        return
    k, n = parsed(config.option.shard)
    groups = {name: at for at, name in enumerate(dict.fromkeys(group(item.nodeid) for item in items))}
    own = [item for item in items if groups[group(item.nodeid)] % n == k - 1]
    config.hook.pytest_deselected(items=[item for item in items if groups[group(item.nodeid)] % n != k - 1])
    items[:] = own
