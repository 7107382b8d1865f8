"""Prints a finished partitioned job: the clearest coefficients, how much was sent, and the certificates."""

from __future__ import annotations

from collections.abc import Iterator

from ...models import psis
from ...printing import align_numbers
from ...privacy.certificate import format_certificates
from ...results import loo, reweighed, shown
from ...results.plain import Record, real
from ...results.report import against_guessing

SHOWN = 12  # coefficients; all of them are in summary.json


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
    yield from _coefficients(shown.beside_each_other(content))
    yield ""
    sent = sum(ways["to_server"]["bytes"] for ways in content["wire"].values())
    yield f"clients sent {sent:,} bytes in all"
    if content["privacy"]:
        yield from format_certificates(content["privacy"])
    else:
        yield "no privacy is claimed: what clients sent has no noise in it, and can tell rows where they are few"
    for note in shown.in_order(content["notes"]):
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


def _coefficients(standard: Record) -> Iterator[str]:
    """Yields a table of the coefficients that are furthest from zero, in posterior standard deviations."""
    clearest = sorted(standard, key=lambda name: -abs(standard[name]["mean"]) / standard[name]["sd"])[:SHOWN]
    width = max(map(len, clearest), default=0)
    yield f"{'coefficient':<{width}}     mean       sd       5 %      95 %"
    for name in (name for name in standard if name in clearest):
        v = standard[name]
        mean, sd, low, high = align_numbers(v["mean"], v["sd"], v["q05"], v["q95"])
        yield f"{name:<{width}} {mean} {sd}  {low}  {high}"
    if len(standard) > SHOWN:
        yield f"({SHOWN} of {len(standard)}, those furthest from zero in standard deviations)"
