"""Why the server of a vertical job cannot predict new rows alone."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import JobError
from ...results.result import Result

WHY = (
    "a vertical job cannot predict at the server: each client's coefficients are in its own folder, and a row's columns at "
    "several parties; put new rows, without a response, into the job's files, and the run writes predictions.csv"
)


def predicted(result: Result, rows: Any) -> NoReturn:
    """Nothing: JobError with the reason."""
    raise JobError(WHY)
