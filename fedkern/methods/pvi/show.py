"""Prints a finished partitioned job: the clearest coefficients, how much was sent, and the certificates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from scipy.special import ndtri

from ...models import psis
from ...privacy.certificate import format_certificates
from ...results import loo, reweighed, shown
from ...results.plain import Record, real
from ...results.report import against_guessing
from ...results.table import ratio_of


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, metrics, the clearest coefficients, how much was sent, and the certificates."""
    updates = sum(client["updates"] for client in content["clients"].values())
    yield f"{why}: {content['rounds']} rounds, {updates} updates of {len(content['clients'])} clients"
    if content["metrics"]:
        yield "test rows: " + ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in content["metrics"].items())
        if worse := against_guessing(content["metrics"]["log_likelihood"], content.get("test", {}).get("guess")):
            yield worse
    if "weights" in content:
        weights = content["weights"]
        yield f"q against the pooled posterior: k-hat {real(weights['k_hat']):.2f} ({grade(weights)})"
    if "loo" in content:
        yield loo.line(content["loo"])
    if "scale" in content:
        yield f"standard deviation of the errors, learnt: {real(content['scale']):.4g}"
    yield ""
    yield from _coefficients(content)
    yield ""
    sent = sum(ways["to_server"]["bytes"] for ways in content["wire"].values())
    yield f"clients sent {sent:,} bytes in all"
    if content["privacy"]:
        yield from format_certificates(content["privacy"])
    else:
        yield "no privacy is claimed: what clients sent has no noise in it, and can tell rows where they are few"
    for note in shown.notes(content):
        yield f"note: {note}"
    yield f"digest {content['digest']}"


def grade(weights: Record) -> str:
    """Says in words how near q is, by a k-hat of this number of draws."""
    k_hat, limit, draws = real(weights["k_hat"]), real(weights["limit"]), weights["draws"]
    share = real(weights["effective"]) / draws
    if share >= reweighed.EVEN:
        return f"near: weights of {draws} draws hardly differ"
    if k_hat < limit:
        near = k_hat <= psis.GOOD and share >= reweighed.UNEVEN
        return f"{'near' if near else 'near enough for weighted means'}, as far as {draws} draws tell"
    few = psis.limit(draws) < psis.UNRELIABLE and (k_hat < psis.UNRELIABLE or share >= reweighed.UNEVEN)
    return f"{draws} draws are too few to tell: wanted below {limit:.2g}" if few else "not near"


def _coefficients(content: Record) -> Iterator[str]:
    """Yields the coefficients on the data's scale, of many those that are furthest from zero in standard deviations."""
    z = float(ndtri(0.975))
    every = [
        {"q025": row["mean"] - z * row["sd"], "q975": row["mean"] + z * row["sd"], **row} for row in shown.of_summary(content)
    ]
    named, slopes, ratios = shown.choose(every, content), shown.slopes_begin(content), dict[tuple[str, str], list[float]]()
    word = ratio_of(content["encoding"].get("family", ""))
    for row in named if word else ():
        if row["parameter"].startswith(slopes):
            ratios[row["parameter"], ""] = [math.exp(min(row[key], 700.0)) for key in ("mean", "q025", "q975")]
    yield from shown.table_lines(named, ratios, word.replace("_", " "))
    if len(named) < len(every):
        yield f"({len(named)} of {len(every)} rows, of slopes those furthest from zero in standard deviations)"
