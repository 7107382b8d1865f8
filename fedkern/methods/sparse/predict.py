"""Explains why the server of a sparse job cannot predict new rows alone."""

from __future__ import annotations

from typing import NoReturn

from ...errors import JobError
from ...results.result import Result

WHY = (
    "a sparse job cannot predict at the server: each site's intercept and noise are in its own folder, and the server has "
    "slopes alone; a client predicts with the posterior.json of its own folder"
)


def predicted(result: Result, rows: object) -> NoReturn:
    """Raises JobError with the reason why the server of a sparse job cannot predict."""
    raise JobError(WHY)
