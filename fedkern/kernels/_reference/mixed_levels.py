"""Defines rows of mixed models whose responses are levels in an order."""

import numpy as np
from scipy.special import expit, log_ndtr

from .._rows import HALF_LOG_TAU
from ..families import LEVELS
from .mixed_families import Family, log_1m_exp


class Ordinal(Family):
    """P(y <= k) = F(c_k - eta); w = c_1, log(c_2 - c_1), ..: as many as levels, less one. Here `low` and `high` are the row's two
    thresholds, and an infinite one is at the end.

    log(F(high) - F(low)) = log F(high) + log F(-low) + log(1 - e^(low - high)) of the logistic F, the last of which has no eta.
    """

    def good(self, m):
        return LEVELS.has(self.y) & (self.y <= m)

    def parts(self, w):
        c = thresholds(w)
        level = np.clip(np.nan_to_num(self.y), 0, w.shape[1]).astype(int)
        return c[:, level], c[:, level + 1]

    @staticmethod
    def row(eta, low, high):
        a, b = low - eta, high - eta
        value = -np.logaddexp(0, -b) - np.logaddexp(0, a)
        return value, expit(a) - expit(-b), expit(a) * expit(-a) + expit(b) * expit(-b)

    def gaps(self, w):
        """Returns how many rows stand between the thresholds that follow each other."""
        return np.bincount(np.nan_to_num(self.y).astype(int), minlength=w.shape[-1] + 1)[1 : w.shape[-1]]

    def constant(self, w):
        return (self.gaps(w) * log_1m_exp(w[:, 1:])[0]).sum(axis=1)

    def constant_slopes(self, w):
        first, second = np.zeros(len(w)), np.zeros((len(w), len(w)))
        _, one, two = log_1m_exp(w[1:])
        first[1:] = self.gaps(w) * one
        second[range(1, len(w)), range(1, len(w))] = self.gaps(w) * two
        return first, second

    @staticmethod
    def of_high(a, b):
        """Returns derivatives in the upper threshold alone, a = low - eta, b = high - eta: first, mixed with eta, second."""
        v = expit(b) * expit(-b)
        return expit(-b), v, -v

    def own(self, eta, w):
        """Returns derivatives in w. Thresholds that move together move against eta; a row's gap moves the upper one alone."""
        m, level = len(w), np.nan_to_num(self.y).astype(int)
        parts = [one[0] for one in self.parts(w[None])]
        _, slope, curve = self.row(eta, *parts)
        high, e_high, s_high = self.of_high(parts[0] - eta, parts[1] - eta, *parts[2:])
        steps = np.append(1.0, np.exp(w[1:]))[:, None]
        together = steps * (np.arange(m)[:, None] <= np.maximum(level - 1, 0))
        alone = steps * ((np.arange(m)[:, None] == level) & (level > 0))
        first, cross = alone * high - together * slope, together * curve + alone * e_high
        both = np.einsum("n,in,jn->ijn", e_high, together, alone)
        second = np.einsum("n,in,jn->ijn", s_high, alone, alone) - np.einsum("n,in,jn->ijn", curve, together, together)
        second -= both + both.swapaxes(0, 1)
        second[range(1, m), range(1, m)] += first[1:]
        return first, cross, second


def thresholds(w):
    """Returns the thresholds (S, m + 2) from -inf to inf."""
    steps = np.concatenate([w[:, :1], np.exp(w[:, 1:])], axis=1)
    ends = np.full((len(w), 1), np.inf)
    return np.concatenate([-ends, np.cumsum(steps, axis=1), ends], axis=1)


class OrdinalProbit(Ordinal):
    """The interval's normal probability, from the tail in which it lies; narrow ones by Gauss and Legendre."""

    def parts(self, w):
        level, ends = np.clip(np.nan_to_num(self.y), 0, w.shape[1]).astype(int), np.full((len(w), 1), np.inf)
        gap = np.concatenate([ends, np.exp(w[:, 1:]), ends], axis=1)[:, level]
        return *super().parts(w), gap

    @staticmethod
    def row(eta, low, high, gap):
        value, mean, variance = normal_interval(low - eta, high - eta, gap)
        return value, mean, 1 - variance

    def constant(self, w):
        return np.zeros(len(w))

    def constant_slopes(self, w):
        return Family.constant_slopes(self, w)

    @staticmethod
    def of_high(a, b, gap):
        value, mean, _ = normal_interval(a, b, gap)
        end = np.where(np.isfinite(b), b, 0.0)
        at = np.where(np.isfinite(b), np.exp(-0.5 * end**2 - HALF_LOG_TAU - value), 0.0)
        return at, at * (end - mean), -at * (at + end)


LEGENDRE = np.polynomial.legendre.leggauss(12)
ONE_TAIL = 30.0


def tail(x):
    """Returns log Phi(-x), the mean of -t and the variance of t beyond x (t > x) of a standard normal."""
    far = np.maximum(x, ONE_TAIL)
    fraction = far
    for j in range(24, 1, -1):
        fraction = far + j / fraction
    beyond = 1 / fraction  # phi(x) / Phi(-x) - x, by its continued fraction
    near = np.minimum(x, ONE_TAIL)
    rate = np.exp(-0.5 * near**2 - HALF_LOG_TAU - log_ndtr(-near))
    mean = np.where(x < ONE_TAIL, rate, far + beyond)
    variance = np.where(x < ONE_TAIL, 1 - rate * (rate - near), 1 - (far + beyond) * beyond)
    return log_ndtr(-x), mean, variance


def normal_interval(a, b, gap):
    """Returns log(Phi(b) - Phi(a)), b = a + gap, with the mean and the variance of a standard normal in (a, b)."""
    turn = a + b > 0
    a, b = np.where(turn, -b, a), np.where(turn, -a, b)  # so that b is not far to the right
    below, high_mean, high_variance = tail(-b)
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
    away, low_mean, low_variance = tail(-a)
    finite = np.isfinite(a)
    less = np.where(finite, np.exp(np.where(finite, away - below, -1.0)), 0.0)
    keep = 1 - less
    low_mean, low_variance = np.where(finite, low_mean, 0.0), np.where(finite, low_variance, 0.0)
    mean = (-high_mean + less * low_mean) / keep
    second = (high_variance + (high_mean + mean) ** 2 - less * (low_variance + (low_mean + mean) ** 2)) / keep
    value = np.where(narrow, np.log(h * total) - 0.5 * m**2 - HALF_LOG_TAU, below + np.log1p(-less))
    mean, variance = np.where(narrow, m + shift, mean), np.where(narrow, spread, second)
    return value, np.where(turn, -mean, mean), np.clip(variance, 0, 1)
