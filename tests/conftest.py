"""What all tests share."""

import os
import re
import secrets
from functools import cache
from pathlib import Path

import pytest


@cache
def _group(path: Path) -> str:
    """Files that start ranks take turns; of all others each is a group, so that a kernel is compiled in one worker."""
    return "mpi" if re.search(r"^from (mpirun|kills) |import .*\bmpirun\b", path.read_text(encoding="utf-8"), re.M) else str(path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Who works on what, where there are several workers (`pytest -n 2 --dist loadgroup`)."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item.path)))


@pytest.fixture(scope="session")
def seed():
    """The seed of statistical tests: fixed, or FEDKERN_TEST_SEED (a number, or "any"). Every test must pass for every seed."""
    wanted = os.environ.get("FEDKERN_TEST_SEED", "1")
    value = secrets.randbelow(2**32) if wanted == "any" else int(wanted)
    print(f"FEDKERN_TEST_SEED={value}")
    return value
