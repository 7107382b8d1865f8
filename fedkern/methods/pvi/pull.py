"""Finds coefficients that the prior moves by more than a part of their posterior standard deviation.

Near the posterior, with mean b and precision P, the log-likelihood is taken for a parabola of precision L = P - P0. Without the
prior N(b0, 1 / P0) its top lies at b + L^-1 P0 (b - b0). (P^-1 in the place of L^-1 would be one step of Newton's towards it, far
too short where the prior has much of the information.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...models.expfam import Gaussian
from .response import Given

Vector = NDArray[np.float64]
LIMIT = 0.25  # posterior standard deviations
AIM = 0.1  # to which the advice would bring the largest; what is below is not worth a word
LEAST = 1e-6  # of the posterior's precision: what rows tell less of has no top
MOST = 100.0  # a number that is larger is not worth a digit


def pulls(q: Gaussian, prior: Gaussian) -> tuple[Vector, Vector]:
    """Computes by how many standard deviations the prior of coefficient j moves coefficient i.

    Returns
    -------
    (d, d) moves by the prior of the job, in standard deviations of the posterior
    (d, d) moves by a far weaker prior of the same shape, times how much weaker it is, in standard deviations of the rows alone
    """
    own = np.diag(prior.P) if prior.P.ndim == 2 else prior.P  # all priors here have independent coefficients
    whole = np.diag(q.P) if q.diagonal else q.P
    of_rows, root = whole - np.diag(own), np.sqrt(np.diag(whole))
    values, vectors = np.linalg.eigh(of_rows / np.outer(root, root))
    values = np.maximum(values, LEAST)
    covariance = (vectors / values) @ vectors.T / np.outer(root, root)
    top = q.mean + covariance @ (own * q.mean - prior.h)
    moves = covariance * (own * q.mean - prior.h) / q.sd[:, None]
    weaker = covariance * (own * top - prior.h) / np.sqrt(np.diag(covariance))[:, None]
    return moves, weaker


def notes(names: Sequence[str], q: Gaussian, prior: Gaussian, given: Given, intercept: bool) -> list[str]:
    """Returns a note for a reader that names moved coefficients and the remedy; nothing where none moves by more than `LIMIT`."""
    each, weaker = pulls(q, prior)
    total = np.abs(each.sum(axis=1))
    moved = np.flatnonzero(total > LIMIT)
    if not moved.size:
        return []
    sizes = {int(i): f"{total[i]:.2g}" if total[i] < MOST else f"more than {MOST:g}" for i in moved}
    listed = ", ".join(f"{names[i]} ({sizes[int(i)]})" for i in moved[np.argsort(-total[moved], kind="stable")])
    first = int(intercept)
    of_slopes = float(np.abs(weaker[moved][:, first:].sum(axis=1)).max()) if len(names) > first else 0.0
    of_intercept = float(np.abs(weaker[moved, 0]).max()) if intercept else 0.0
    advice = " and ".join(_advice(of_slopes, of_intercept, given, intercept))
    return [
        f"the prior moves these by so many of their posterior standard deviations: {listed}. Where it is not meant to, {advice}; "
        "what is still named then is what the rows alone do not tell (as where a column separates the responses)"
    ]


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
