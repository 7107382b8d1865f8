"""The golden jobs, for tests of other things: `tests/golden` is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def golden_jobs() -> Any:
    """The module `tests/golden/jobs.py`."""
    spec = importlib.util.spec_from_file_location("golden_jobs", Path(__file__).parents[1] / "golden" / "jobs.py")
    assert spec is not None
    assert spec.loader is not None
    jobs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(jobs)
    return jobs
