"""Writes rows of families that are declared: of a number's derivatives `_jets` makes the others. C++: mixed/declared.hpp.

`scale` is as `families` has it; scale and eta may carry derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Vector
from . import _rows as of
from ._jets import chain, chain_two, number, where
from ._rows import HALF_LOG_TAU, MOST_ETA, expit, special

FAR = 300.0  # of a logarithm whose exponential is squared


def softplus(x: Any) -> Any:
    """Returns log(1 + exp(x))."""
    v = number(x)
    return chain(x, of.softplus(v), expit(v), expit(v) * expit(-v))


def log_rising(y: Any, log_a: Any) -> Any:
    """Returns the sum of log(1 + k / a) over k < y."""
    a = np.exp(np.minimum(number(log_a), MOST_ETA))
    slope, share = -of.less(y, a), a / (a + y)
    curve = slope + y * (1 - share) + share**2 * of.rest_curve(a + y) - of.rest_curve(a)
    return chain(log_a, of.log_rising(y, a), slope, curve)


# Log-normal: scale is the standard deviation of log y --------------------


def lognormal_part(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
    r = (np.log(y) - eta) / scale
    return -0.5 * r * r - np.log(scale)


# Inverse Gaussian: scale is the shape --------------------


def inverse_gaussian_part(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
    r = np.log(y) - eta
    v = np.minimum(number(r), FAR)
    ratio = chain(r, np.expm1(v), np.exp(v), np.exp(v))
    return 0.5 * (np.log(scale) - scale / y * ratio * ratio)


def inverse_gaussian_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y, of two numbers with one chi-square (Michael, Schucany and Haas 1976)."""
    a = 0.5 * source.normal(len(mean)) ** 2 * mean / scale
    low = 1 / (1 + a + np.sqrt(a * (2 + a)))
    return np.asarray(mean * np.where(source.uniform(len(mean)) * (1 + low) < 1, low, 1 / low))


def inverse_gaussian_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    root = np.sqrt(scale / y)
    reflected = 2 * scale / mean + special("log_ndtr")(-root * (y / mean + 1))
    return np.asarray(special("ndtr")(root * (y / mean - 1)) + np.exp(np.minimum(reflected, 0.0)))


# Beta-binomial: scale is the precision --------------------


def beta_binomial_part(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
    n = 1.0 if trials is None else trials
    log_p, log_q, log_scale = -softplus(-eta), -softplus(eta), np.log(scale)
    chances = y * log_p + (n - y) * log_q
    return chances + log_rising(y, log_p + log_scale) + log_rising(n - y, log_q + log_scale) - log_rising(n, log_scale)


def beta_binomial_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y by adding up its probabilities, from 0 on."""
    u, n, logit = source.uniform(len(mean)), np.asarray(trials), np.log(mean) - np.log1p(-mean)
    y, below = np.zeros(len(mean)), np.zeros(len(mean))
    left = np.arange(len(mean))
    for k in range(int(n.max(initial=0))):
        some = np.broadcast_to(scale, mean.shape)[left], n[left]
        below[left] += np.exp(_mass(np.full(len(left), float(k)), logit[left], *some))
        left = left[(u[left] > below[left]) & (n[left] > k)]
        y[left] = k + 1
        if not left.size:
            break
    return y


def _mass(y: Vector, eta: Vector, scale: Any, n: Vector) -> Vector:
    ways = special("gammaln")(n + 1) - special("gammaln")(y + 1) - special("gammaln")(n - y + 1)
    return np.asarray(beta_binomial_part(y, eta, scale, n) + ways)


def beta_binomial_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    logit, n = np.log(mean) - np.log1p(-mean), np.asarray(trials, np.float64)
    y, logit, scale, n = np.broadcast_arrays(np.floor(y), logit, scale, n)
    below = np.zeros(y.shape)
    for k in range(int(y.max(initial=-1)) + 1):
        counted = k <= np.minimum(y, n)
        below[counted] += np.exp(_mass(np.full(int(counted.sum()), float(k)), logit[counted], scale[counted], n[counted]))
    return np.minimum(below, 1.0)


# Poisson counts of rows with normal effects: scale is these effects' standard deviation --------------------

STEPS, LEFT_OUT = 240, 36.0  # of a row's integral, which is right to exp(-36)


def effects_of_rows(y: Any, eta: Any, sd: Any) -> tuple[Vector, Vector, Vector]:
    """Returns log p(y | eta) without log y!, effects e (.., k) of a row, and weights which add up to 1: the posterior of e.

    The mode of t = eta + e is by Wright's omega function, the integral by equal steps about it.
    """
    y, eta, log_sd = np.broadcast_arrays(y, eta, np.clip(np.log(sd), -300.0, 3.0))
    square, eta = np.exp(2 * log_sd), np.minimum(eta, MOST_ETA)
    v = special("wrightomega")(eta + square * y + 2 * log_sd)
    e = np.where(square < 1, square * (y - np.exp(np.log(v) - 2 * log_sd)), np.log(v) - 2 * log_sd - eta)
    mean = np.exp(eta + e)
    below = LEFT_OUT / mean + np.sqrt(2 * LEFT_OUT / mean)
    wide = np.sqrt(2 * LEFT_OUT * square)
    low, high = -np.minimum(wide, below), np.minimum(wide, np.log1p(below))
    step = (high - low) / STEPS
    d = low[..., np.newaxis] + step[..., np.newaxis] * np.arange(STEPS + 1)
    tilt, mean, half = ((x)[..., np.newaxis] for x in (y - mean - e / square, mean, 0.5 / square))
    weights = np.exp(tilt * d - mean * (np.expm1(d) - d) - half * d**2)
    total = weights.sum(axis=-1)
    value = y * (eta + e) - mean[..., 0] - 0.5 * e**2 / square - log_sd + np.log(total * step) - HALF_LOG_TAU
    return value, e[..., np.newaxis] + d, weights / total[..., np.newaxis]


def effects_derivatives(y: Any, eta: Any, sd: Any) -> tuple[Vector, ...]:
    """Returns the value, its derivatives in eta (first, minus second), in log sd (first, mixed, second)."""
    value, e, weights = effects_of_rows(y, eta, sd)
    rate = np.exp(np.minimum(np.asarray(eta), MOST_ETA)[..., np.newaxis] + e)
    g = np.asarray(y)[..., np.newaxis] - rate

    def mean(x: Vector) -> Vector:
        return np.asarray((weights * x).sum(axis=-1))

    slope, first = mean(g), mean(g * e)
    curve = mean(rate) - mean((g - slope[..., np.newaxis]) ** 2)
    mixed = mean(g * g * e) - mean(rate * e) - slope * first
    second = first + mean((g * e - first[..., np.newaxis]) ** 2) - mean(rate * e**2)
    return value, slope, curve, first, mixed, second


NODES = (np.arange(129) - 64) / 8.0  # of standard normal numbers


def effects_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y), `mean` being the rate without an effect."""
    weights = np.exp(-0.5 * NODES**2)
    below = sum(w * special("pdtr")(y, mean * np.exp(scale * z)) for w, z in zip(weights / weights.sum(), NODES.tolist()))
    return np.asarray(below)


# Times: log time = eta + scale * e, of a standard number e --------------------

LEGENDRE = np.polynomial.legendre.leggauss(12)


def _tail(x: Any) -> tuple[Any, Any, Any]:
    """Returns log Phi(-x), the mean of -t and the variance of t beyond x (t > x) of a standard normal."""
    value, mean, curve = of.normal_tail(x)
    return value, mean, 1 - curve


def normal_interval(a: Any, b: Any, gap: Any) -> tuple[Any, Any, Any]:
    """Returns log(Phi(b) - Phi(a)), b = a + gap, with the mean and the variance of a standard normal in (a, b)."""
    turn = a + b > 0
    a, b = np.where(turn, -b, a), np.where(turn, -a, b)  # so that b is not far to the right
    below, high_mean, high_variance = _tail(-b)
    middle, half = 0.5 * (a + b), 0.5 * gap
    narrow = half * (1 + np.abs(middle)) < 1
    m, h = np.where(narrow, middle, 0.0), np.where(narrow, half, 1.0)
    t, w = LEGENDRE
    x = h[..., None] * t
    density = w * np.exp(-m[..., None] * x - 0.5 * x**2)
    total = density.sum(axis=-1)
    shift = (density * x).sum(axis=-1) / total
    spread = (density * (x - shift[..., None]) ** 2).sum(axis=-1) / total
    # Two tails: what lies below a is taken away.
    away, low_mean, low_variance = _tail(-a)
    finite = np.isfinite(a)
    less = np.where(finite, np.exp(np.where(finite, away - below, -1.0)), 0.0)
    keep = 1 - less
    low_mean, low_variance = np.where(finite, low_mean, 0.0), np.where(finite, low_variance, 0.0)
    mean = (-high_mean + less * low_mean) / keep
    second = (high_variance + (high_mean + mean) ** 2 - less * (low_variance + (low_mean + mean) ** 2)) / keep
    value = np.where(narrow, np.log(h * total) - 0.5 * m**2 - HALF_LOG_TAU, below + np.log1p(-less))
    mean, variance = np.where(narrow, m + shift, mean), np.where(narrow, spread, second)
    return value, np.where(turn, -mean, mean), np.clip(variance, 0, 1)


class Law(NamedTuple):
    """Holds a standard number e: log p(e), log P(e > z), log P(a < e < a + gap) by log gap, and the z of a log P(e > z)."""

    density: Callable[[Any], Any]
    survival: Callable[[Any], Any]
    between: Callable[[Any, Any], Any]
    quantile: Callable[[Any], Any]


def _normal_survival(z: Any) -> Any:
    value, rate, curve = of.normal_tail(number(z))
    return chain(z, value, -rate, -curve)


def _normal_between(a: Any, log_gap: Any) -> Any:
    gap = np.exp(log_gap)
    b = number(a) + number(gap)
    value, mean, variance = normal_interval(number(a), b, number(gap))
    rate = np.exp(-0.5 * b**2 - HALF_LOG_TAU - value)  # of its end
    return chain_two(a, gap, value, (-mean, rate), (variance - 1, rate * (mean - b), -rate * (rate + b)))


def _logistic_between(a: Any, log_gap: Any) -> Any:
    return chain(log_gap, *of.log_1m_exp(number(log_gap))) - softplus(a) - softplus(-(a + np.exp(log_gap)))


NORMAL = Law(lambda z: -0.5 * z * z - HALF_LOG_TAU, _normal_survival, _normal_between, lambda log_p: -special("ndtri_exp")(log_p))
LOGISTIC = Law(
    lambda z: z - softplus(z) - softplus(z),
    lambda z: -softplus(z),
    _logistic_between,
    lambda log_p: np.log(-np.expm1(log_p)) - log_p,
)


def accelerated(law: Law, y: Any, upper: Any, entry: Any, eta: Any, scale: Any) -> Any:
    """Returns log-densities of rows (less -log y of an event): the event at y = `upper`, after y, or between the two, given none
    before `entry`."""
    begun, within = y > 0, (y < upper) & np.isfinite(upper)
    since, until = np.where(begun, y, 1.0), np.where(within, upper, 2.0)

    def standard(time: Any) -> Any:
        return (np.log(time) - eta) / scale

    z, grown = standard(since), np.where(begun & within, (until - since) / since, 1.0)
    after = where(begun, law.survival(z), 0.0)
    inside = where(begun, law.between(z, np.log(np.log1p(grown)) - np.log(scale)), law.survival(-standard(until)))
    value = where(within, inside, where(y == upper, law.density(z) - np.log(scale), after))
    return value - where(entry > 0, law.survival(standard(np.where(entry > 0, entry, 1.0))), 0.0)
