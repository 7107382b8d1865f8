"""What a finished run prints: a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from ..methods import load_method
from ..results.result import Result
from ..results.verdict import ending


def describe_result(result: Result) -> Iterator[str]:
    """Whether the result has converged, why the run ended, and what its method has to say."""
    yield result.summary["verdict"]
    yield from load_method(result.summary["method"]).show.describe_run(result.summary, ending(result.stop).clause)
