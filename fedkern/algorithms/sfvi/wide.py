"""Draws where q does not: wide in a few unknowns, and from q given these.

Draws of a q that is too narrow never see the regions that it leaves out, and their weights say that all is well. With h those of
the unknowns that scale others, r the rest,

    h ~ t_5(mean of q, 1.5^2 covariance of q),  r | h ~ q(r | h):

wide in all unknowns few draws would be worth anything. Source: docs/concepts/convergence.md, "Whether it is right".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ...models.variational import Block

Array = NDArray[np.float64]

FREEDOM = 5  # degrees of it
WIDER = 1.5  # than q


@dataclass(frozen=True)
class Wide:
    """Holds S draws.

    Attributes
    ----------
    inner : (S, P) in the coordinates in which q is normal
    log_q : (S,) log density of q at them
    beside : (S,) that less the log density that they are drawn from
    """

    inner: Array
    log_q: Array
    beside: Array


def normals(size: int) -> int:
    """Returns how many standard normals one draw of `size` unknowns takes."""
    return size + FREEDOM


def draws(block: Block, parameters: Array, places: Sequence[int], e: Array) -> Wide:
    """Returns the draws of standard normals `e` (S, `normals(P)`); `places`: those of h, none for draws of q itself."""
    P, k = block.size, len(places)
    order = np.array([*places, *(i for i in range(P) if i not in places)], int)
    scale = block.scale(parameters)
    covariance = scale @ scale.T if block.full else np.diag(scale**2)
    factor = np.linalg.cholesky(covariance[np.ix_(order, order)])
    y, u = e[:, :P].copy(), e[:, :k] * np.sqrt(FREEDOM / (e[:, P:] ** 2).sum(axis=1))[:, np.newaxis]
    y[:, :k] = WIDER * u
    inner = np.empty_like(y)
    inner[:, order] = parameters[:P][order] + y @ factor.T
    half_tau, square = 0.5 * np.log(2 * np.pi), (u**2).sum(axis=1)
    log_t = gammaln(0.5 * (FREEDOM + k)) - gammaln(0.5 * FREEDOM) - 0.5 * k * np.log(FREEDOM * np.pi) - k * np.log(WIDER)
    log_t = log_t - 0.5 * (FREEDOM + k) * np.log1p(square / FREEDOM)
    beside = -0.5 * WIDER**2 * square - k * half_tau - log_t
    log_q = -0.5 * (y**2).sum(axis=1) - np.log(factor.diagonal()).sum() - P * half_tau
    return Wide(inner, log_q, beside)
