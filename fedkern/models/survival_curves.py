"""Computes curves of survival models whose baseline hazard all share: the probability to survive, and restricted means.

A row with predictor eta and effects of a new group and a new client, which are one normal number of the variance v, is without
event at t with the probability S(t) = E exp(-H(t) exp(eta + sqrt(v) z)), z ~ N(0, 1). Its restricted mean is the integral of S
from 0 to tau: the mean of the time until the event or tau, whichever comes first.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .mixed.quadrature import even
from .survival_parametric import Baseline

Vector = NDArray[np.float64]

STEPS = 24  # of an integral over time, a piece


def survival(base: Baseline, eta: Vector, variance: Vector, time: Vector) -> Vector:
    """Returns (S, T, n) probabilities to be without event at times (T,), or at one time a row (S, 1, n) where `time` is (1, n).

    Parameters
    ----------
    eta, variance : (S, n) predictors of rows, and variances of their effects
    """
    paired = time.ndim == 2
    H = base.at(time[0] if paired else time)[1]
    H = H[:, np.newaxis] if paired else H[:, :, np.newaxis]
    if not variance.any():
        return np.exp(-H * np.exp(eta)[:, np.newaxis])
    total, sd = np.zeros((len(eta), H.shape[1], eta.shape[1])), np.sqrt(variance)
    for one, share in zip(*even(2 * float(sd.max())), strict=True):  # exp(-exp(x)) bends within half a unit
        with np.errstate(over="ignore"):
            total += share * np.exp(-H * np.exp(eta + one * sd)[:, np.newaxis])
    return total


def restricted_mean(base: Baseline, eta: Vector, variance: Vector, tau: float) -> Vector:
    """Returns (S, n) the integral of `survival` from 0 to tau."""
    t, w = np.polynomial.legendre.leggauss(STEPS)
    ends = np.array([0.0, *(cut for cut in base.cuts if cut < tau), tau])
    total = np.zeros(eta.shape)
    for low, high in pairwise(ends.tolist()):
        u, share = (t + 1) / 2, w / 2
        # From 0 by squares: a hazard t^(k - 1) is no polynomial there.
        at, weight = (high * u**2, 2 * u * high * share) if low == 0 else (low + (high - low) * u, (high - low) * share)
        total += np.einsum("t,stn->sn", weight, survival(base, eta, variance, at))
    return total
