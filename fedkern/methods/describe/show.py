"""Prints what only a finished description has: the log-rank test of its groups."""

from __future__ import annotations

from collections.abc import Iterator

from ...results import described
from ...results.plain import Record


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields how many clients were described, and the log-rank test."""
    about = content["describe"]
    yield f"{len(content['clients'])} clients, {len({row['column'] for row in about['rows']})} columns"
    if about["survival"]:
        yield f"an event is {about['event']}; {described.log_rank(about) or 'no log-rank test'}"
