"""The prior that jobs of several files of tests have."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import built_priors


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a prior of small areas lies."""
    folder = tmp_path_factory.mktemp("built")
    built_priors.written(folder)
    return folder / "prior"
