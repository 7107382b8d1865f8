"""Prints a finished run: a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from ..methods import load_method
from ..results import guard, head, shown
from ..results.result import Result
from ..results.verdict import ending


def describe_result(result: Result) -> Iterator[str]:
    """Yields whether the result has converged, why the run ended, and the lines of its method."""
    yield shown.first_line(result.summary)
    yield from head.by_summary(result.summary)
    with guard.collecting() as faults:
        lines = _describe_run(result)
    yield from lines
    yield from ("the other lines failed; summary.json has the numbers" for _ in faults.found)


@guard.figure("lines for the terminal", [])
def _describe_run(result: Result) -> list[str]:
    """Returns the lines of the method."""
    return list(load_method(result.summary["method"]).show.describe_run(result.summary, ending(result.stop).clause))
