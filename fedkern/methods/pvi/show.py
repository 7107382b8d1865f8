"""Prints what only a finished partitioned job has: how near q is to the posterior of all rows."""

from __future__ import annotations

from collections.abc import Iterator

from ...models import psis
from ...results import loo, reweighed
from ...results.plain import Record, real


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, weights, leave-one-out densities, and a learnt scale."""
    updates = sum(client["updates"] for client in content["clients"].values())
    yield f"{why}: {content['rounds']} rounds, {updates} updates of {len(content['clients'])} clients"
    if "weights" in content:
        weights = content["weights"]
        yield f"q against the pooled posterior: k-hat {real(weights['k_hat']):.2f} ({grade(weights)})"
    if "loo" in content:
        yield loo.line(content["loo"])
    if "scale" in content:
        yield f"standard deviation of the errors, learnt: {real(content['scale']):.4g}"


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
