"""Explains why nothing is predicted."""

from __future__ import annotations

from typing import NoReturn

from ...errors import JobError
from ...results.result import Result


def predicted(result: Result, rows: object) -> NoReturn:
    """Raises JobError: a description has no model."""
    raise JobError('method = "describe" has no model, and predicts nothing; take method = "likelihood"')
