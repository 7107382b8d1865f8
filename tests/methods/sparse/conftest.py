"""What tests of sparse jobs share."""

from __future__ import annotations

import itertools

import pytest


@pytest.fixture(autouse=True)
def the_same_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients' own seeds are the same in every run of a test: what holds once holds always."""
    numbers = itertools.count(1)
    monkeypatch.setattr("fedkern.jobs.run.Run.secret_key", lambda *about: next(numbers) * 0x9E3779B97F4A7C15 % 2**64)
