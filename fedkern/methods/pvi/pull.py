"""Where a prior decides: coefficients that it moves by more than a part of their own posterior standard deviation.

Near the posterior the log-likelihood is a parabola; without the prior N(b0, 1 / P0) its top would lie by Cov P0 (b - b0) from the
posterior's mean b. Under a diagonal q this is |b - b0| x prior precision x posterior variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...models.expfam import Gaussian
from .keys import ModelSection

Vector = NDArray[np.float64]
LIMIT = 0.25  # posterior standard deviations
AIM = 0.1  # to which the advice would bring the largest; what is below is not worth a word


def pulls(q: Gaussian, prior: Gaussian) -> Vector:
    """(d, d) by how many of coefficient i's posterior standard deviations the prior of coefficient j moves i."""
    own = np.diag(prior.P) if prior.P.ndim == 2 else prior.P
    push = own * q.mean - prior.h  # both priors have independent coefficients
    covariance = np.diag(1 / q.P) if q.diagonal else q.scale_tril @ q.scale_tril.T
    return np.asarray(covariance * push / q.sd[:, None])


def notes(names: Sequence[str], q: Gaussian, prior: Gaussian, m: ModelSection, intercept: bool) -> list[str]:
    """What a reader should know of it, and what to do; nothing where no coefficient is moved so far."""
    each = pulls(q, prior)
    total = np.abs(each.sum(axis=1))
    moved = np.flatnonzero(total > LIMIT)
    if not moved.size:
        return []
    listed = ", ".join(f"{names[i]} ({total[i]:.2g})" for i in moved[np.argsort(-total[moved], kind="stable")])
    first = int(intercept)
    of_slopes = float(np.abs(each[moved][:, first:].sum(axis=1)).max()) if len(names) > first else 0.0
    of_intercept = float(np.abs(each[moved, 0]).max()) if intercept else 0.0
    advice = " and ".join(_advice(of_slopes, of_intercept, m, intercept))
    return [
        f"the prior moves these by so many of their posterior standard deviations: {listed}. Where it is not meant to, {advice}; "
        "what is still named then is what the rows alone do not tell (as where a column separates the responses)"
    ]


def _advice(of_slopes: float, of_intercept: float, m: ModelSection, intercept: bool) -> Iterator[str]:
    """What to set, so that no coefficient is moved by more than `AIM`."""
    shared = intercept and m.intercept_sd is None
    worst = max(of_slopes, of_intercept) if shared else of_slopes
    if worst > AIM:
        yield f"lower model.prior_precision = {m.prior_precision:g} to {max(_down(m.prior_precision * AIM / worst), 1e-10):g}"
    if intercept and not shared and of_intercept > AIM and m.intercept_sd is not None:
        wider = 1 / _down(1 / (m.intercept_sd * (of_intercept / AIM) ** 0.5))
        yield f"raise model.intercept_sd = {m.intercept_sd:g} to {wider:.2g}"


def _down(value: float) -> float:
    """The number of one digit below."""
    power = float(10.0 ** np.floor(np.log10(value)))
    return float(np.floor(value / power * (1 + 1e-12)) * power)
