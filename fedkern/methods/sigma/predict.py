"""Why the server of a spatial job cannot predict new rows alone."""

from __future__ import annotations

from typing import NoReturn

from ...errors import JobError
from ...results.result import Result

WHY = (
    "a spatial job cannot predict at the server: the areas' effects are in their clients' own folders; areas.csv there has the "
    "level of every area, also of those without rows"
)


def predicted(result: Result, rows: object) -> NoReturn:
    """Nothing: JobError with the reason."""
    raise JobError(WHY)
