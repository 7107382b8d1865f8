"""Prints a finished run: a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from ..methods import load_method
from ..results.result import Result
from ..results.verdict import ending


def describe_result(result: Result) -> Iterator[str]:
    """Yields whether the result has converged, why the run ended, and the lines of its method."""
    yield result.summary["verdict"]
    yield from load_method(result.summary["method"]).show.describe_run(result.summary, ending(result.stop).clause)
