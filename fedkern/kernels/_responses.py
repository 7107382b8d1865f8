"""Computes rows of student, gamma, beta and zero-inflated responses for the records in `families.py`. The functions take y, eta
or mean, `scale` and trials.

A zero-inflated count is 0 with probability pi (a structural zero), and else a count with the mean exp(eta), which may be 0 too:
`mean` is of that count, and E[y] is 1 - pi times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._special import special

Vector = NDArray[np.float64]

FAR = 1e100  # of a draw, in standard deviations: squares are then numbers, however heavy a tail is
LEAST = 1e-300
MOST_ETA = 690.0
BELOW_ONE = 1 - 2.0**-53


# Student: scale is standard deviation (of the kernel) and degrees of freedom --------------------


def student_value(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns log p(y | eta) of y = eta + sd t, t with nu degrees of freedom."""
    sd, nu = scale
    gammaln = special("gammaln")
    constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu) - np.log(sd)
    return np.asarray(constant - 0.5 * (nu + 1) * np.log1p(((y - eta) / sd) ** 2 / nu))


def student_slope(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns d log p / d eta, which is bounded: a row far away has no weight."""
    sd, nu = scale
    z = (y - eta) / sd
    return np.asarray((nu + 1) * z / (sd * (nu + z**2)))


def student_information(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns minus the second derivative at the mode of the row."""
    sd, nu = scale
    return np.broadcast_to((nu + 1) / (nu * sd**2), np.shape(y))


def student_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y by quantiles."""
    sd, nu = scale
    return np.asarray(mean + sd * np.clip(special("stdtrit")(nu, source.uniform(len(mean))), -FAR, FAR))


def student_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    sd, nu = scale
    return np.asarray(special("stdtr")(nu, (y - mean) / sd))


def student_spread(mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns the variance of y; NaN with up to two degrees of freedom, where it does not exist."""
    sd, nu = scale
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.broadcast_to(np.where(nu > 2, sd**2 * nu / (nu - 2), np.nan), np.shape(mean))


# Gamma: scale is the shape --------------------


def gamma_value(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns log p(y | eta) with mean exp(eta) and variance mean^2 / shape."""
    constant = scale * np.log(scale) - scale - special("gammaln")(scale)
    ratio = np.log(y) - eta
    return np.asarray(constant - scale * (np.expm1(np.minimum(ratio, MOST_ETA)) - ratio) - np.log(y))


def gamma_slope(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns d log p / d eta, shape times (y / mean - 1)."""
    return np.asarray(scale * np.expm1(np.minimum(np.log(y) - eta, MOST_ETA)))


def gamma_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y by quantiles."""
    return np.asarray(np.maximum(mean * special("gammaincinv")(scale, source.uniform(len(mean))) / scale, LEAST))


def gamma_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    return np.asarray(special("gammainc")(scale, y * scale / mean))


# Beta: scale is the precision --------------------


def _parts(mean: Vector, scale: Any) -> tuple[Vector, Vector]:
    return np.maximum(mean * scale, LEAST), np.maximum((1 - mean) * scale, LEAST)


def _parts_at(eta: Vector, scale: Any) -> tuple[Vector, Vector]:
    expit = special("expit")
    return np.maximum(scale * expit(eta), LEAST), np.maximum(scale * expit(-eta), LEAST)


def beta_value(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns log p(y | eta) of y ~ Beta(mean precision, (1 - mean) precision)."""
    a, b = _parts_at(eta, scale)
    return np.asarray((a - 1) * np.log(y) + (b - 1) * np.log1p(-y) - special("betaln")(a, b))


def beta_slope(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns d log p / d eta: a multiple of the logit of y less its average."""
    a, b = _parts_at(eta, scale)
    psi = special("psi")
    return np.asarray(a * b / scale * (np.log(y) - np.log1p(-y) - psi(a) + psi(b)))


def beta_information(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns minus the second derivative, averaged over y."""
    a, b = _parts_at(eta, scale)
    polygamma = special("polygamma")
    return np.asarray((a * b / scale) ** 2 * (polygamma(1, a) + polygamma(1, b)))


def beta_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y by quantiles, inside of (0, 1)."""
    drawn = special("betaincinv")(*_parts(mean, scale), source.uniform(len(mean)))
    return np.asarray(np.clip(drawn, LEAST, BELOW_ONE))


def beta_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    return np.asarray(special("betainc")(*_parts(mean, scale), y))


# Zero-inflated counts: scale is pi, or r and pi --------------------


def inflated_value(y: Vector, count: Vector, pi: Any) -> Vector:
    """Returns log p(y) where `count` is the logarithm of the density without structural zeros."""
    return np.asarray(np.where(y > 0, np.log1p(-pi) + count, np.log(pi + (1 - pi) * np.exp(count))))


def inflated_slope(y: Vector, count: Vector, slope: Vector, pi: Any) -> Vector:
    """Returns the derivative from the logarithm of the density without structural zeros, and its slope. The slope of a zero is
    multiplied by the probability that the zero is not structural."""
    own = (1 - pi) * np.exp(count)
    return np.where(y > 0, slope, slope * own / (pi + own))


def inflated_draw(source: Any, pi: Any, drawn: Callable[[Any], Vector], n: int) -> Vector:
    """Draws structural zeros, and counts elsewhere; `drawn` makes counts of a source."""
    structural = source.uniform(n) < pi
    return np.asarray(np.where(structural, 0.0, drawn(source)))


def inflated_cdf(y: Vector, below: Vector, pi: Any) -> Vector:
    """Returns P(Y <= y) from the distribution function without structural zeros; y >= 0."""
    return np.where(y >= 0, pi + (1 - pi) * below, 0.0)


def inflated_spread(mean: Vector, spread: Vector, pi: Any) -> Vector:
    """Returns the variance of y from the variance without structural zeros."""
    return np.asarray((1 - pi) * (spread + pi * mean**2))


# Gamma functions of a negative binomial, without what cancels where its r is large --------------------

RAISED = 10  # to r, above which the series of Stirling hold to 1e-14


def log_rising(y: Vector, r: Any) -> Vector:
    """Returns log Gamma(y + r) - log Gamma(r) - y log r, the sum of log(1 + k / r) over k < y, without what cancels."""
    above, part = r + RAISED, y / _steps(y, r)
    moved = y * np.log1p(RAISED / r) - np.log1p(part).sum(axis=0)
    growth = (y + above - 0.5) * np.log1p(y / above) - y
    return np.asarray(moved + growth + _rest(y + above) - _rest(above))


def _steps(y: Vector, r: Any) -> Vector:
    """Returns r, r + 1, .. below r + RAISED, in a dimension of their own before those of y and r."""
    return np.asarray(r + np.arange(RAISED).reshape(-1, *(1 for _ in np.shape(y + r))))


def _rest(x: Vector) -> Vector:
    """Returns log Gamma(x) less (x - 1/2) log x - x + log(2 pi) / 2."""
    s = x**-2.0
    return np.asarray((1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / x)


def less(y: Vector, r: Any) -> Vector:
    """Returns the sum of k / (r + k) over k < y, which is y - r (digamma(y + r) - digamma(r))."""
    above, steps = r + RAISED, _steps(y, r)
    z, part = y / above, y / (y + above)
    ends = _digamma_rest(above) - _digamma_rest(y + above)
    difference = np.log1p(z) + part / (2 * above) + ends  # digamma(y + above) - digamma(above)
    whole = above * (z * part - bend(z, part)) - part / 2 - above * ends  # y - above difference
    return np.asarray(whole + RAISED * difference - (r / steps * (y / (y + steps))).sum(axis=0))


def _digamma_rest(x: Vector) -> Vector:
    """Returns log x - 1 / (2 x) less digamma(x)."""
    s = x**-2.0
    return np.asarray(s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * 691 / 32760))))))


def bend(x: Vector, p: Vector) -> Vector:
    """Returns log(1 + x) - p, p = x / (1 + x): the sum of p^j / j over j > 1."""
    few, series = np.minimum(p, 0.1), np.zeros(np.shape(p))
    for j in range(18, 1, -1):
        series = (series + 1 / j) * few
    return np.asarray(np.where(p < 0.1, series * few, np.log1p(x) - p))
