"""Prints what only a finished partitioned job has: its updates, and a scale that it has learnt."""

from __future__ import annotations

from collections.abc import Iterator

from ...results.plain import Record, real


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, and a learnt scale."""
    updates = sum(client["updates"] for client in content["clients"].values())
    yield f"{why}: {content['rounds']} rounds, {updates} updates of {len(content['clients'])} clients"
    if "scale" in content:
        yield f"standard deviation of the errors, learnt: {real(content['scale']):.4g}"
