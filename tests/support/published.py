"""Tests that need published data."""

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("FEDKERN_DATA", "."))


def needs(part: str) -> pytest.MarkDecorator:
    """Skips a test, and says so, where a folder or file of FEDKERN_DATA is missing."""
    return pytest.mark.skipif(not (ROOT / part).exists(), reason=f"needs {part} in the folder FEDKERN_DATA")
