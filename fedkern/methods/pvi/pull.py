"""Finds coefficients that the prior moves by more than a part of their posterior standard deviation, or of which it knows most.

Near the posterior, with mean b and precision P, the log-likelihood is taken for a parabola of precision L = P - P0. Without the
prior N(b0, 1 / P0) its top lies at b + L^-1 P0 (b - b0). (P^-1 in the place of L^-1 would be one step of Newton's towards it, far
too short where the prior has much of the information.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import Vector
from ...models.expfam import Gaussian
from ...models.reference import Coding
from .response import Given

LIMIT = 0.25  # posterior standard deviations
AIM = 0.1  # to which the advice would bring the largest; what is below is not worth a word
HALF = 0.5  # of a variance by the rows alone, which a posterior's must be
LEAST = 1e-10  # of the posterior's precision: what rows tell less of has no top
MOST = 100.0  # a number that is larger is not worth a digit


class Pulls(NamedTuple):
    """Says what the priors of d coefficients do to n numbers that are linear in them."""

    moves: Vector  # (n, d) by the prior of each coefficient, in standard deviations of the posterior
    weaker: Vector  # (n, d) by a far weaker one, times how much weaker it is, in standard deviations of the rows alone
    left: Vector  # (n,) variances of the posterior over those of the rows alone
    taken: Vector  # (n, d) the part of these that the far weaker one takes, times how much weaker it is


def pulls(q: Gaussian, prior: Gaussian, R: Vector) -> Pulls:
    """Computes what the prior does to R theta (n,)."""
    prior_precision = np.diag(prior.P) if prior.P.ndim == 2 else prior.P  # all priors here have independent coefficients
    whole = np.diag(q.P) if q.diagonal else q.P
    of_rows, root = whole - np.diag(prior_precision), np.sqrt(np.diag(whole))
    values, vectors = np.linalg.eigh(of_rows / np.outer(root, root))
    factor = vectors / root[:, None] / np.sqrt(np.maximum(values, LEAST))
    top = q.mean + factor @ (factor.T @ (prior_precision * q.mean - prior.h))
    reached = R @ factor @ factor.T
    variance, posterior = ((R @ factor) ** 2).sum(axis=1), np.diag(R @ q.covariance @ R.T)
    return Pulls(
        reached * (prior_precision * q.mean - prior.h) / np.sqrt(posterior)[:, None],
        reached * (prior_precision * top - prior.h) / np.sqrt(variance)[:, None],
        posterior / variance,
        reached**2 * prior_precision / variance[:, None],
    )


def notes(coding: Coding, q: Gaussian, prior: Gaussian, given: Given, intercept: bool) -> list[str]:
    """Returns a note for a reader on coefficients that the prior moves or tells, and the remedy; nothing where there are none."""
    each = pulls(q, prior, coding.matrix)
    total = np.abs(each.moves.sum(axis=1))
    texts = []
    if moved := _listed(coding.spoken, total, LIMIT):
        texts.append(f"the prior moves these by so many of their posterior standard deviations: {moved}")
    if narrower := _listed(coding.spoken, each.left**-0.5, HALF**-0.5):
        texts.append(f"the prior tells more of these than rows, and makes their sds so many times smaller: {narrower}")
    if not texts:
        return []
    named, first = (total > LIMIT) | (each.left < HALF), int(intercept)
    by_slopes, by_intercept = (
        max(float(np.abs(each.weaker[named, part].sum(axis=1)).max()), float(each.taken[named, part].sum(axis=1).max()))
        for part in (slice(first, None), slice(first))
    )
    advice = " and ".join(_advice(by_slopes, by_intercept, given, intercept))
    return [
        f"{'; '.join(texts)}. Where it is not meant to, {advice}; "
        "what is still named then is what the rows alone do not tell (as where a column separates the responses)"
    ]


def _listed(names: Sequence[str], sizes: Vector, least: float) -> str:
    """Returns names with their sizes, where these are above the least, the largest first."""
    order = [i for i in np.argsort(-sizes, kind="stable") if sizes[i] > least]
    return ", ".join(f"{names[i]} ({f'{sizes[i]:.2g}' if sizes[i] < MOST else f'more than {MOST:g}'})" for i in order)


def _advice(of_slopes: float, of_intercept: float, given: Given, intercept: bool) -> Iterator[str]:
    """Yields the keys to set so that no coefficient is moved by more than `AIM`."""
    shared = intercept and given.sd is None
    worst = max(of_slopes, of_intercept) if shared else of_slopes
    if worst > AIM:
        less = max(_down(given.precision * AIM / worst), 1e-10)
        yield f"raise model.prior_sd = {given.precision**-0.5:g} to {1 / _down(less**0.5):.2g}"
    if intercept and not shared and of_intercept > AIM and given.sd is not None:
        wider = 1 / _down(1 / (given.sd * (of_intercept / AIM) ** 0.5))
        yield f"raise model.intercept_sd = {given.sd:g} to {wider:.2g}"


def _down(value: float) -> float:
    """Rounds down to one digit."""
    power = float(10.0 ** np.floor(np.log10(value)))
    return float(np.floor(value / power * (1 + 1e-12)) * power)
