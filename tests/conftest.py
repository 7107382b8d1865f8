"""What all tests share."""

import os
import secrets

import pytest

pytest_plugins = ("suite_order", "suite_share", "suite_minima")


@pytest.fixture(scope="session")
def seed():
    """The seed of statistical tests: fixed, or FEDKERN_TEST_SEED (a number, or "any"). Every test must pass for every seed."""
    wanted = os.environ.get("FEDKERN_TEST_SEED", "1")
    value = secrets.randbelow(2**32) if wanted == "any" else int(wanted)
    print(f"FEDKERN_TEST_SEED={value}")
    return value
