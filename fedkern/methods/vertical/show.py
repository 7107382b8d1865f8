"""Prints what only a finished vertical job has: its predictive scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...results.bounds import elbo_line
from ...results.plain import Record
from ...results.report import against_guessing

FILLED = {"conditional": "given the others", "mean": "by its mean", "columns": "by the others' columns"}


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, scores under every rule, and rows without a party."""
    n_clients = len(content["clients"])
    yield f"{why}: {content['rounds']} rounds, {n_clients} clients, {content['inference']['rows']} rows"
    prediction = content.get("prediction")
    if prediction:
        yield ""
        yield from _scores(prediction)
    if "elbo" in content:
        yield elbo_line(content)


def _scores(prediction: Record) -> Iterator[str]:
    """Yields a table of the scores."""
    rules = prediction["rules"]
    names = list(dict.fromkeys(name for row in rules.values() for name in row))
    yield f"{prediction['rows']} test rows; the rule of this job is {prediction['rule']!r}"
    rows = dict(rules)
    for party, ways in prediction.get("without", {}).items():
        rows |= {f"without {party}, {FILLED[way]}": row for way, row in ways.items()}
    width = max(map(len, rows))
    yield " " * width + "".join(f"{name.replace('_', ' '):>22}" for name in names)
    for label, row in rows.items():
        yield f"{label:<{width}}" + _cells(names, row)
    if worse := against_guessing(rules[prediction["rule"]]["log_likelihood"], prediction.get("guess")):
        yield worse
    bins = prediction.get("reliability", [])
    if bins:
        yield "predicted / observed: " + ", ".join(f"{b['probability']:.2f}/{b['frequency']:.2f} ({b['rows']})" for b in bins)


def _cells(names: list[str], row: Mapping[str, float]) -> str:
    """Formats one row of scores."""
    return "".join(f"{row[name]:>22.4f}" if name in row else f"{'':>22}" for name in names)
