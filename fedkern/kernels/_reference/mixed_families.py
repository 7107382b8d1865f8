"""Defines a row of a mixed model, family by family: log p(y | eta, w) with its derivatives, w the shape numbers of a point.

A family splits it into a part that depends on eta (`row`), and one that does not (`constant`), which is the sum over all rows.
`parts` are the arrays (S, n), or such as broadcast to it, that `row` needs of the response and of w.
"""

from dataclasses import replace

import numpy as np
from scipy.special import expit

from .. import _rows as of
from .. import families
from .._rows import HALF_LOG_TAU, MOST_ETA, rest, rest_curve, rest_slope

MOST_TERMS = 1e8  # of a negative binomial's count, whose curvature is a sum of so many
LEAST_SQUARE = 1e-100  # phi^2 = 1 / r of a negative binomial that is Poisson


class Family:
    concave = True  # in eta
    counted = False  # a mean that is far too large is left by one in each step: see `modes`

    def __init__(self, y, trials, upper, cuts, entry):
        self.y, self.trials, self.upper, self.cuts, self.entry = y, trials, upper, cuts, entry
        self.n = len(y)

    def good(self, m):
        """Returns (n,) whether the family has the response, where points have m shape numbers."""
        return np.isfinite(self.y)

    def parts(self, w):
        return (self.y,)

    @staticmethod
    def row(eta, *parts):
        """Returns the value without `constant`, d / deta, -d2 / deta2."""
        raise NotImplementedError

    def constant(self, w):
        """Returns (S,) the sum over rows of the part that does not depend on eta."""
        return np.zeros(len(w))

    def constant_slopes(self, w):
        """Returns its derivatives (m,) and (m, m) at one w (m,)."""
        return np.zeros(len(w)), np.zeros((len(w), len(w)))

    def own(self, eta, w):
        """Returns derivatives of `row` at eta (n,) and w (m,): d / dw (m, n), d2 / dw deta (m, n), d2 / dw2 (m, m, n)."""
        return np.zeros((0, self.n)), np.zeros((0, self.n)), np.zeros((0, 0, self.n))

    def start(self, w):
        """Returns, for `counted` families, weights and targets (S, n) of the least squares from which a search begins, and sizes
        of rows."""
        raise NotImplementedError


class OfRecord(Family):
    """Defines rows by a record of `families`."""

    record: families.Family

    def good(self, m):
        return self.record.domain.has(self.y)

    def scale(self, w):
        """Returns the record's scale, each number of it (S, 1)."""
        return ()

    def parts(self, w):
        return self.y, self.trials, *self.scale(w)

    @classmethod
    def row(cls, eta, y, trials, *scale):
        record, scale = cls.record, single(scale)
        eta = np.minimum(eta, MOST_ETA) if record.whole else eta
        return tuple(function(y, eta, scale, trials) for function in (record.part, record.slope, record.observed))

    def constant(self, w):
        scale = single(self.scale(w))
        rows = self.record.base(self.y, scale, self.trials) + self.record.normaliser(scale)
        return (rows + np.zeros((len(w), self.n))).sum(axis=1)


def single(scale):
    """Returns the scale as a record takes it: not in a tuple if it is one number."""
    return scale[0] if len(scale) == 1 else scale


class Binomial(OfRecord):
    record = families.BINOMIAL

    def good(self, m):
        return super().good(m) & self.record.domain.has(self.trials) & (self.y <= self.trials)


class Poisson(OfRecord):
    record = families.POISSON
    counted = True

    def start(self, w):
        return self.y + 0.5 + np.zeros((len(w), 1)), np.log(self.y + 0.5), self.y


class Gaussian(OfRecord):
    """Defines gaussian rows; w = log sd."""

    record = families.GAUSSIAN

    def scale(self, w):
        return (np.exp(w[:, :1]),)

    def own(self, eta, w):
        first, cross, second = of.gaussian_by_sd(self.y, eta, np.exp(w[0]))
        return first[None], cross[None], second[None, None]


class NegativeBinomial(OfRecord):
    """Defines negative binomial rows; w = phi, where the variance is mu + phi^2 mu^2."""

    record = families.NEGATIVE_BINOMIAL
    counted = True

    def scale(self, w):
        return (1 / np.maximum(w[:, :1] ** 2, LEAST_SQUARE),)

    def constant_slopes(self, w):
        one, two = rising_slopes(self.y, w[0] ** 2)
        return np.array([2 * w[0] * one]), np.array([[2 * one + 4 * w[0] ** 2 * two]])

    def own(self, eta, w):
        first, cross, second = of.negative_by_phi(self.y, np.minimum(eta, MOST_ETA), w[0])
        return first[None], cross[None], second[None, None]

    def start(self, w):
        count = self.y + 0.5
        return count / (1 + w[:, :1] ** 2 * count), np.log(count), self.y


def rising_slopes(y, a):
    """Returns two derivatives in a of the sum over rows of sum_{k < y} log(1 + k a)."""
    if y.max(initial=0) > MOST_TERMS:
        return np.nan, np.nan
    k = np.arange(int(y.max(initial=0)))
    count = len(y) - np.searchsorted(np.sort(y), k, side="right")  # rows with y > k
    slope = k / (1 + k * a)
    return (count * slope).sum(), -(count * slope**2).sum()


class Student(OfRecord):
    """Defines student rows; w = log sd, log nu."""

    record = families.STUDENT
    concave = False

    def scale(self, w):
        return np.exp(w[:, :1]), np.exp(w[:, 1:2])

    def constant(self, w):
        """Returns the sum without what the record's gamma functions lose to each other where nu is large."""
        x = 0.5 * np.exp(w[:, 1])
        return self.n * (x * np.log1p(0.5 / x) - 0.5 + rest(x + 0.5) - rest(x) - HALF_LOG_TAU - w[:, 0])

    def constant_slopes(self, w):
        x = 0.5 * np.exp(w[1])
        share = x / (x + 0.5)  # of log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2
        first = x * np.log1p(0.5 / x) + share * rest_slope(x + 0.5) - rest_slope(x) - 0.5
        second = share**2 * rest_curve(x + 0.5) - rest_curve(x) - 0.5 * share + first + 0.5
        return self.n * np.array([-1, first]), self.n * np.array([[0, 0], [0, second]])

    def own(self, eta, w):
        (sd, nu), rho = np.exp(w), self.y - eta
        precision, a = 1 / sd**2, 1 / nu
        q = precision * rho**2
        z = a * q
        by, nu_log = 1 / (1 + z), nu * np.log1p(z)
        change = -a * by + (1 + a) * z * by**2  # of (1 + a) / (1 + z), in log nu
        first = np.array([(1 + a) * q * by, -0.5 * (nu_log - (1 + a) * q * by)])
        cross = precision * rho * np.array([-2 * (1 + a) * by**2, change])
        both = q * change
        last = -0.5 * (nu_log - 2 * q * by + (1 + a) * q * by**2)
        return first, cross, np.array([[-2 * (1 + a) * q * by**2, both], [both, last]])

    def mode(self, w):
        """Returns where a row's density is largest."""
        return self.y + np.zeros((len(w), 1))


class Gamma(OfRecord):
    """Defines gamma rows; w = log shape s; l = s (r - (e^r - 1)) with r = log y - eta."""

    record = families.GAMMA
    counted = True

    def scale(self, w):
        return (np.exp(w[:, :1]),)

    def constant_slopes(self, w):
        first, second = rest_slope(np.exp(w[0])), rest_curve(np.exp(w[0]))
        return -self.n * np.array([first]), -self.n * np.array([[first + second]])

    def own(self, eta, w):
        value, slope, _ = self.row(eta, *self.parts(w[None]))
        return value[0][None], slope[0][None], value[0][None, None]

    def start(self, w):
        return np.exp(w[:, :1]) + np.zeros(self.n), np.log(self.y), np.exp(w[:, :1]) + np.zeros(self.n)


class Beta(OfRecord):
    """Defines beta rows; w = log precision. y has the shapes a = precision mu and b = precision (1 - mu), mu = expit(eta)."""

    record = families.BETA
    concave = False

    def scale(self, w):
        return (np.exp(w[:, :1]),)

    def constant_slopes(self, w):
        first, second = rest_slope(np.exp(w[0])), rest_curve(np.exp(w[0]))
        return self.n * np.array([first]), self.n * np.array([[first + second]])

    def own(self, eta, w):
        log_y, log_not, precision = np.log(self.y), np.log1p(-self.y), np.exp(w[0])
        mu, nu = expit(eta), expit(-eta)
        (f, s), (f_not, s_not) = ((rest_slope(a), rest_curve(a)) for a in (precision * mu, precision * nu))
        slope = of.beta_slope(self.y, eta, precision, None)
        rest = precision * (mu * (log_y + np.logaddexp(0, -eta)) + nu * (log_not + np.logaddexp(0, eta)))
        first = rest - f - f_not
        return first[None], (slope + mu * s_not - nu * s)[None], (first - s - s_not)[None, None]

    def mode(self, w):
        """Solves digamma(a) - digamma(b) = logit(y), between 0 and logit(y), by bisection."""
        logit, precision = np.log(self.y) - np.log1p(-self.y), np.exp(w[:, :1])
        low, high = np.zeros((len(w), self.n)), np.ones((len(w), 1)) * logit
        for _ in range(60):
            eta = 0.5 * (low + high)
            beyond = np.sign(logit) * of.beta_slope(self.y, eta, precision, None) < 0
            low, high = np.where(beyond, low, eta), np.where(beyond, eta, high)
        return 0.5 * (low + high)


class ZeroInflatedPoisson(OfRecord):
    """Defines zero-inflated Poisson rows; w = logit of the probability that a zero is structural."""

    count: type[OfRecord] = Poisson
    record = replace(
        families.ZERO_INFLATED_POISSON, **families.inflated(families.POISSON, lambda logit: 1.0, lambda logit: logit)
    )
    concave = False

    def scale(self, w):
        return (w[:, -1:],)

    def constant_slopes(self, w):
        m = len(w)
        first, second = np.zeros(m), np.zeros((m, m))
        first[-1], second[-1, -1] = -self.n * expit(w[-1]), -self.n * expit(w[-1]) * expit(-w[-1])
        if self.count is NegativeBinomial:
            one, two = rising_slopes(self.y, w[0] ** 2)
            first[0], second[0, 0] = 2 * w[0] * one, 2 * one + 4 * w[0] ** 2 * two
        return first, second

    def own(self, eta, w):
        value, slope, _ = self.count.row(eta, self.y, None, *(one[0] for one in self.scale(w[None])[:-1]))
        share = np.where(self.y > 0, 1.0, expit(value - w[-1]))
        both = share * (1 - share)
        first, cross, second = [1 - share], [-share * ((1 - share) * slope)], np.zeros((len(w), len(w), self.n))
        second[-1, -1] = both
        if self.count is NegativeBinomial:
            g, g_eta, g_phi = of.negative_by_phi(self.y, np.minimum(eta, MOST_ETA), w[0])
            first.insert(0, share * g)
            cross.insert(0, share * g_eta + (share * g) * ((1 - share) * slope))
            second[0, 0] = share * g_phi + (share * g) * ((1 - share) * g)
            second[0, 1] = second[1, 0] = -share * ((1 - share) * g)
        return np.array(first), np.array(cross), second

    def mode(self, w):
        """Returns the mode; a zero has none, for its density falls all the way."""
        return np.where(self.y > 0, np.log(np.maximum(self.y, 1)), -MOST_ETA) + np.zeros((len(w), 1))


class ZeroInflatedNegativeBinomial(ZeroInflatedPoisson):
    """Defines zero-inflated negative binomial rows; w = phi, and the logit."""

    count = NegativeBinomial
    record = replace(
        families.ZERO_INFLATED_NEGATIVE_BINOMIAL,
        **families.inflated(families.NEGATIVE_BINOMIAL, lambda scale: scale[0], lambda scale: scale[1]),
    )

    def scale(self, w):
        return *NegativeBinomial.scale(self, w), w[:, -1:]


def log_1m_exp(x):
    """Returns log(1 - exp(-e^x)) and two derivatives in x."""
    x = np.minimum(x, MOST_ETA)
    g = np.exp(x)
    few = np.where(g < 1e-12, x, np.log(-np.expm1(-g)))
    value = np.where(g > 0.5, np.log1p(-np.exp(-g)), few)
    first = np.where(g < 1e-300, 1.0, g * np.exp(-g) / -np.expm1(-np.maximum(g, 1e-300)))
    whole = np.where(g < 1e-300, 1.0, g / -np.expm1(-np.maximum(g, 1e-300)))
    return value, first, first * (1 - whole)
