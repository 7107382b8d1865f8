"""Makes the report's sections of a partitioned job: coefficients, predictions of test rows, and learning curves."""

from __future__ import annotations

from ...results import loo
from ...results.report import RunFiles, calibration, coefficients, guessing, learning
from ...results.report import measured as tiles

__all__ = ["sections", "tiles"]


def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run."""
    return [coefficients(run), guessing(run), loo.piece(run.summary), calibration(run), learning(run)]
