"""Prints a finished run: what `print(result)` shows, what only its method has to say, and how much was sent."""

from __future__ import annotations

from collections.abc import Iterator

from ..methods import load_method
from ..privacy.certificate import format_certificates
from ..results import guard
from ..results.report import against_guessing
from ..results.result import Result
from ..results.verdict import ending

ALL = "fedkern report", "fedkern report --table text"  # where all notes stand, and all rows of the table


def describe_result(result: Result) -> Iterator[str]:
    """Yields the model, whether the result has converged, its table and notes, the lines of its method, and the bytes."""
    summary = result.summary
    yield from result._lines(*ALL)
    yield ""
    if worse := against_guessing(summary["metrics"].get("log_likelihood"), summary.get("test", {}).get("guess")):
        yield worse
    with guard.collecting() as faults:
        lines = _describe_run(result)
    yield from lines
    yield from ("the other lines failed; summary.json has the numbers" for _ in faults.found)
    sent = sum(ways["to_server"]["bytes"] for ways in summary["wire"].values())
    claim = "" if summary["privacy"] else "; no privacy is claimed: it has no noise in it, and can tell rows where they are few"
    yield f"clients sent {sent:,} bytes in all{claim}"
    certificates = format_certificates(summary["privacy"]) if summary["privacy"] else ()
    yield from certificates
    yield f"digest {result.digest}"


@guard.figure("lines for the terminal", [])
def _describe_run(result: Result) -> list[str]:
    """Returns the lines of the method."""
    return list(load_method(result.summary["method"]).show.describe_run(result.summary, ending(result.stop).clause))
