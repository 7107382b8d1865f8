"""Prints a finished vertical job: its predictive scores, the server's parameters, and how much was sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...printing import align_numbers
from ...privacy.certificate import format_certificates
from ...results import shown
from ...results.bounds import elbo_line
from ...results.plain import Record
from ...results.report import against_guessing

FILLED = {"conditional": "given the others", "mean": "by its mean", "columns": "by the others' columns"}


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, scores under every rule, rows without a party, parameters, and bytes."""
    n_clients = len(content["clients"])
    yield f"{why}: {content['rounds']} rounds, {n_clients} clients, {content['inference']['rows']} rows"
    prediction = content.get("prediction")
    if prediction:
        yield ""
        yield from _scores(prediction)
    parameters = content["parameters"]
    if parameters:
        yield ""
    for name, row in parameters.items():
        mean, sd, low, high = align_numbers(*(row[what] for what in ("mean", "sd", "q05", "q95")))
        yield f"{name:<12} {mean} sd {sd.strip()}  ({low.strip()}, {high.strip()})"
    if "elbo" in content:
        yield elbo_line(content)
    yield ""
    sent = sum(ways["to_server"]["bytes"] for ways in content["wire"].values())
    yield f"clients sent {sent:,} bytes in all" + (
        "" if content["privacy"] else "; no privacy is claimed, and each row's part of the predictor is told"
    )
    for note in shown.notes(content):
        yield f"note: {note}"
    yield f"digest {content['digest']}"
    if content["privacy"]:
        yield from format_certificates(content["privacy"])


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
