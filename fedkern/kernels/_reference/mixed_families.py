"""Defines a row of a mixed model, family by family: log p(y | eta, w) with its derivatives, w the shape numbers of a point.

A family splits it into a part that depends on eta (`row`), and one that does not (`constant`), which is the sum over all rows.
`parts` are the arrays (S, n), or such as broadcast to it, that `row` needs of the response and of w.
"""

from dataclasses import replace

import numpy as np
from scipy.special import expit

from .. import _declared as by_jets
from .. import _rows as of
from .. import families
from .._jets import variables
from .._rows import HALF_LOG_TAU, MOST_ETA, log_1m_exp, rest, rest_curve, rest_slope
from ..families import LEVELS

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


class Probit(Binomial):
    record = families.BINOMIAL_PROBIT


class Cloglog(Binomial):
    record = families.BINOMIAL_CLOGLOG
    counted = True

    def start(self, w):
        p = (self.y + 0.5) / (self.trials + 1)
        mean = -np.log1p(-p)
        return self.trials * mean**2 * (1 - p) / p + np.zeros((len(w), 1)), np.log(mean), self.trials


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
        slope_sum, curve_sum = rising_slopes(self.y, w[0] ** 2)
        return np.array([2 * w[0] * slope_sum]), np.array([[2 * slope_sum + 4 * w[0] ** 2 * curve_sum]])

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
        first, second = of.student_constant(np.exp(w[1]))
        return self.n * np.array([-1, first]), self.n * np.array([[0, 0], [0, second]])

    def own(self, eta, w):
        return of.student_by_shapes(self.y, eta, *np.exp(w))

    def mode(self, w):
        """Returns where a row's density is largest."""
        return self.y + np.zeros((len(w), 1))


class Gamma(OfRecord):
    """Defines gamma rows, y a mean of m numbers (`trials`); w = log shape s; l = m s (r - (e^r - 1)) with r = log y - eta."""

    record = families.GAMMA
    counted = True

    def good(self, m):
        return super().good(m) & self.record.domain.has(self.trials)

    def scale(self, w):
        return (np.exp(w[:, :1]) * self.trials,)

    def constant_slopes(self, w):
        (shape,) = self.scale(w[None])
        first, second = rest_slope(shape).sum(), rest_curve(shape).sum()
        return -np.array([first]), -np.array([[first + second]])

    def own(self, eta, w):
        value, slope, _ = self.row(eta, *self.parts(w[None]))
        return value[0][None], slope[0][None], value[0][None, None]

    def start(self, w):
        (shape,) = self.scale(w)
        return shape, np.log(self.y), shape


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
        """Solves digamma(a) - digamma(b) = logit(y), between 0 and logit(y)."""
        logit, precision = np.log(self.y) - np.log1p(-self.y), np.exp(w[:, :1])
        return middle(lambda eta: of.beta_slope(self.y, eta, precision, None), 0.0 * precision, logit + 0.0 * precision)


def middle(slope, first, second):
    """Returns (S, n) where a slope is 0 that falls, between two sides, by bisection."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    low, high = np.broadcast_arrays(low, high)
    for _ in range(60):
        eta = 0.5 * (low + high)
        falls = slope(eta) < 0
        low, high = np.where(falls, low, eta), np.where(falls, eta, high)
    return 0.5 * (low + high)


class Declared(OfRecord):
    """Defines rows of a record whose `part` has all that depends on eta or on the shape numbers; w = log scale."""

    def scale(self, w):
        return (np.exp(w[:, :1]),)

    def own(self, eta, w):
        eta, log_scale = variables(eta, w[0])
        part = self.record.part(self.y, eta, np.exp(log_scale), self.trials)
        return part.first[1:], part.second[1:, 0], part.second[1:, 1:]


class LogNormal(Declared):
    record = families.LOGNORMAL


class InverseGaussian(Declared):
    record = families.INVERSE_GAUSSIAN
    concave = False

    def mode(self, w):
        return np.log(self.y) + np.zeros((len(w), 1))


class BetaBinomial(Declared):
    record = families.BETA_BINOMIAL
    concave = False

    def good(self, m):
        return super().good(m) & self.record.domain.has(self.trials) & (self.y <= self.trials)

    def mode(self, w):
        """Returns the mode; where all or none of the trials succeed there is none, as the density rises all the way."""
        scale = np.exp(w[:, :1])
        with np.errstate(divide="ignore"):
            logit = np.clip(np.log(self.y) - np.log(self.trials - self.y), -MOST_ETA, MOST_ETA)
        between = middle(lambda eta: self.record.slope(self.y, eta, scale, self.trials), 0.0 * scale, logit + 0.0 * scale)
        return np.where((self.y > 0) & (self.y < self.trials), between, logit)


class PoissonLognormal(Declared):
    record = families.POISSON_LOGNORMAL
    counted = True

    @classmethod
    def row(cls, eta, y, trials, scale):
        return by_jets.effects_derivatives(y, eta, scale)[:3]

    def own(self, eta, w):
        first, mixed, second = by_jets.effects_derivatives(self.y, eta, np.exp(w[0]))[3:]
        return first[None], mixed[None], second[None, None]

    def start(self, w):
        count = self.y + 0.5
        return count / (1 + np.exp(2 * w[:, :1]) * count), np.log(count), self.y


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
            slope_sum, curve_sum = rising_slopes(self.y, w[0] ** 2)
            first[0], second[0, 0] = 2 * w[0] * slope_sum, 2 * slope_sum + 4 * w[0] ** 2 * curve_sum
        return first, second

    def own(self, eta, w):
        value, slope, _ = self.count.row(eta, self.y, None, *(numbers[0] for numbers in self.scale(w[None])[:-1]))
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


class HurdlePoisson(ZeroInflatedPoisson):
    """Defines hurdle Poisson rows; w = logit of the probability of 0."""

    concave = True
    counted = True
    record = replace(families.HURDLE_POISSON, **families.hurdled(families.POISSON, lambda logit: 1.0, lambda logit: logit))

    def own(self, eta, w):
        first, cross, second = np.zeros((len(w), self.n)), np.zeros((len(w), self.n)), np.zeros((len(w), len(w), self.n))
        first[-1] = self.y == 0
        if self.count is NegativeBinomial:  # log P(count > 0) by x = log t, t = -log P(0)
            eta, some = np.minimum(eta, MOST_ETA), self.y > 0
            g, g_eta, g_phi = of.negative_by_phi(self.y, eta, w[0])
            t, *by = (-x for x in (*self.count.row(eta, 0.0, None, 1 / np.maximum(w[0] ** 2, LEAST_SQUARE))[:2],))
            by_phi, by_both, by_twice = (-x / t for x in of.negative_by_phi(0.0, eta, w[0]))
            _, rise, turn = log_1m_exp(np.log(t))
            bent = turn - rise
            first[0] = np.where(some, g - rise * by_phi, 0.0)
            cross[0] = np.where(some, g_eta - bent * by[0] / t * by_phi - rise * by_both, 0.0)
            second[0, 0] = np.where(some, g_phi - bent * by_phi**2 - rise * by_twice, 0.0)
        return first, cross, second

    def start(self, w):
        return np.where(self.y > 0, self.y + 0.5, 0.0) + np.zeros((len(w), 1)), np.log(self.y + 0.5), self.y


class HurdleNegativeBinomial(HurdlePoisson):
    """Defines hurdle negative binomial rows; w = phi, and the logit."""

    count = NegativeBinomial
    concave = False
    counted = False
    record = replace(
        families.HURDLE_NEGATIVE_BINOMIAL,
        **families.hurdled(families.NEGATIVE_BINOMIAL, lambda scale: scale[0], lambda scale: scale[1]),
    )

    def scale(self, w):
        return *NegativeBinomial.scale(self, w), w[:, -1:]

    def mode(self, w):
        """Returns the mode; a zero says nothing, and the density of 1 falls all the way."""
        scale, square, y = self.scale(w), w[:, :1] ** 2, np.maximum(self.y, 2)
        ends = np.log((y - 1) / (1 + square)), np.log(y) + 0.0 * square
        return np.where(self.y > 1, middle(lambda eta: self.record.slope(y, eta, scale, None), *ends), -MOST_ETA)


# Defines rows of mixed models whose responses are levels in an order --------------------


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
        _, slope_sum, curve_sum = log_1m_exp(w[1:])
        first[1:] = self.gaps(w) * slope_sum
        second[range(1, len(w)), range(1, len(w))] = self.gaps(w) * curve_sum
        return first, second

    @staticmethod
    def of_high(a, b):
        """Returns derivatives in the upper threshold alone, a = low - eta, b = high - eta: first, mixed with eta, second."""
        v = expit(b) * expit(-b)
        return expit(-b), v, -v

    def own(self, eta, w):
        """Returns derivatives in w. Thresholds that move together move against eta; a row's gap moves the upper one alone."""
        m, level = len(w), np.nan_to_num(self.y).astype(int)
        parts = [numbers[0] for numbers in self.parts(w[None])]
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
        value, mean, variance = by_jets.normal_interval(low - eta, high - eta, gap)
        return value, mean, 1 - variance

    def constant(self, w):
        return np.zeros(len(w))

    def constant_slopes(self, w):
        return Family.constant_slopes(self, w)

    @staticmethod
    def of_high(a, b, gap):
        value, mean, _ = by_jets.normal_interval(a, b, gap)
        end = np.where(np.isfinite(b), b, 0.0)
        ratio = np.where(np.isfinite(b), np.exp(-0.5 * end**2 - HALF_LOG_TAU - value), 0.0)
        return ratio, ratio * (end - mean), -ratio * (ratio + end)


# Rows of mixed models that are times: events, censored on the right, or in an interval --------------------


class Weibull(Family):
    """w = log k; the cumulative hazard is t^k e^eta. From entry to y, and from y to upper, at eta = 0, it is a row's `clock`."""

    counted = True

    def __init__(self, *rows):
        super().__init__(*rows)
        self.upper = self.y if self.upper is None else self.upper
        with np.errstate(invalid="ignore"):
            self.event, self.within = self.y == self.upper, (self.y < self.upper) & np.isfinite(self.upper)
        self.until = np.where(self.within, self.upper, np.nan)
        self.entry = np.zeros(self.n) if self.entry is None else self.entry
        self.begun, self.late = self.y > self.entry, self.entry > 0
        with np.errstate(all="ignore"):
            grown = (self.y - self.entry) / self.entry  # where it is small, a difference of logarithms cancels
            since = np.where(grown < 1, np.log1p(grown), np.log(self.y) - np.log(self.entry))
        self.since = np.where(self.begun & self.late, since, np.inf)  # log(y / entry)

    def good(self, m):
        seen = (self.entry >= 0) & (self.y >= self.entry)
        return np.isfinite(self.y) & seen & (self.upper >= self.y) & ~(self.event & ~self.begun)

    def clock(self, w):
        """log A and log D (S, n): the cumulative hazards from entry to y, y^k (1 - (entry / y)^k), and from y to upper."""
        k = self.k(w)
        with np.errstate(divide="ignore"):
            log_y, log_upper = np.log(self.y), np.log(self.until)
        early = np.where(self.y > 0, k * log_y, -np.inf)
        ratio = k * (log_upper - np.where(self.y > 0, log_y, log_upper))
        more = np.where(self.y > 0, early + np.log(np.expm1(np.minimum(ratio, 700.0))), k * log_upper)
        seen = np.where(self.begun, early + self.log_share(k), -np.inf)
        return seen, np.where(ratio > 700, k * log_upper, more)

    def log_share(self, k):
        """log(1 - (entry / y)^k)."""
        return np.log(-np.expm1(-k * self.since))

    def clock_slopes(self, w):
        """A_j / A, A_jk / A, and those of D, of one point: (m, n), (m, m, n)."""
        k = np.exp(w[0])
        with np.errstate(divide="ignore"):
            log_y, log_upper = np.where(self.y > 0, np.log(self.y), 0.0), np.log(self.until)
        rest = np.where(self.begun & self.late, 1 / np.expm1(np.minimum(k * self.since, 700.0)), 0.0)  # entry^k / A
        gone = np.where(self.late & self.begun, self.since, 0.0)
        of_a = np.where(self.begun, k * (log_y + rest * gone), 0.0)
        of_aa = np.where(gone > 0, of_a + k**2 * (log_y**2 + rest * gone * (2 * log_y - gone)), of_a + of_a**2)
        share = np.where(self.y > 0, 1 / np.expm1(np.minimum(k * (log_upper - log_y), 700.0)), 0.0)  # A / D
        of_d = k * (log_upper + share * (log_upper - log_y))
        of_dd = of_d + k**2 * (log_upper**2 + share * (log_upper**2 - log_y**2))
        return of_a[None], of_aa[None, None], of_d[None], of_dd[None, None]

    def k(self, w):
        return np.exp(w[:, :1])

    def parts(self, w):
        early, within = self.clock(w)
        return self.event, self.within, early, within

    @staticmethod
    def row(eta, event, within, early, gap):
        x = np.minimum(eta + early, MOST_ETA)
        mean = np.exp(x)
        value, slope, curve = np.where(event, x, 0.0) - mean, event - mean, mean
        x = np.where(within, eta + np.where(within, gap, 0.0), 0.0)
        extra, first, second = log_1m_exp(x)
        return value + within * extra, slope + within * first, curve - within * second

    def log_hazard(self, w):
        """Returns log hazards of events less the logarithm of A (S, n): derivatives are those of `hazard_slopes`."""
        at_event = w[:, :1] - np.log(np.where(self.event, self.y, 1.0)) - self.log_share(self.k(w))
        return np.where(self.event, at_event, 0.0)

    def constant(self, w):
        return self.log_hazard(w).sum(axis=1)

    def hazard_slopes(self, w):
        """Returns derivatives of the events' log hazards: (m, n) and (m, m, n)."""
        of = np.where(self.event, np.exp(w[0]) * np.log(np.where(self.event, self.y, 1.0)), 0.0)
        return (of + self.event)[None], of[None, None]

    def own(self, eta, w):
        early, gap = (numbers[0] for numbers in self.clock(w[None]))
        of_a, of_aa, of_d, of_dd = self.clock_slopes(w)
        first, second = self.hazard_slopes(w)
        mean = np.exp(np.minimum(eta + early, MOST_ETA))
        x = np.where(self.within, eta + np.where(self.within, gap, 0.0), 0.0)
        _, t, tt = log_1m_exp(x)
        t, tt = np.where(self.within, t, 0.0), np.where(self.within, tt, 0.0)
        of_d, of_dd = np.where(self.within, of_d, 0.0), np.where(self.within, of_dd, 0.0)
        outer = of_d[:, None] * of_d[None]
        return first - mean * of_a + t * of_d, tt * of_d - mean * of_a, second - mean * of_aa + tt * outer + t * (of_dd - outer)

    def start(self, w):
        early, gap = self.clock(w)
        count = self.event + self.within + 0.5
        known = self.begun | self.within
        last = np.where(self.within, np.logaddexp(early, np.where(self.within, gap, 0.0)), early)
        return np.where(known, count, 0.0) + np.zeros((len(w), 1)), np.log(count) - np.where(known, last, 0.0), np.ones(self.n)


class LogNormalTime(Weibull):
    """log time = eta + sd e; w = log sd. Given an entry rows are not concave."""

    law = by_jets.NORMAL
    counted = False

    def parts(self, w):
        return self.y, self.upper, self.entry, np.exp(w[:, :1])

    @classmethod
    def row(cls, eta, *parts):
        part = by_jets.accelerated(cls.law, *parts[:3], *variables(eta), parts[3])
        return part.value, part.first[0], -part.second[0, 0]

    def constant(self, w):
        return np.full(len(w), -np.log(self.y[self.event]).sum())

    def own(self, eta, w):
        eta, log_scale = variables(eta, w[0])
        part = by_jets.accelerated(self.law, self.y, self.upper, self.entry, eta, np.exp(log_scale))
        return part.first[1:], part.second[1:, 0], part.second[1:, 1:]


class LogLogisticTime(LogNormalTime):
    law = by_jets.LOGISTIC


class Exponential(Weibull):
    """k = 1."""

    def k(self, w):
        return np.ones((len(w), 1))

    def clock_slopes(self, w):
        none = np.zeros((0, self.n))
        return none, np.zeros((0, 0, self.n)), none, np.zeros((0, 0, self.n))

    def log_hazard(self, w):
        at_event = -np.log(np.where(self.event, self.y, 1.0)) - self.log_share(self.k(w))
        return np.where(self.event, at_event, 0.0)

    def hazard_slopes(self, w):
        return np.zeros((0, self.n)), np.zeros((0, 0, self.n))


class Piecewise(Weibull):
    """w = log hazards of the pieces; an event at a cut belongs to the piece that ends there."""

    def __init__(self, *rows):
        super().__init__(*rows)
        edges, y = np.concatenate([[0.0], self.cuts, [np.inf]]), np.where(np.isfinite(self.y), self.y, 0.0)
        self.spent = self.time_in(edges, self.entry, y)
        self.later = self.time_in(edges, y, np.where(self.within, self.upper, y))
        self.piece = np.searchsorted(self.cuts, self.y, side="left")

    @staticmethod
    def time_in(edges, since, until):
        """(m, n) the time between the two in each piece."""
        return np.maximum(0.0, np.minimum(until, edges[1:, None]) - np.maximum(since, edges[:-1, None]))

    def clock(self, w):
        with np.errstate(divide="ignore"):
            return log_sums(w, np.log(self.spent)), log_sums(w, np.log(self.later))

    def clock_slopes(self, w):
        results = []
        with np.errstate(divide="ignore"):
            for time in (self.spent, self.later):
                total = log_sums(w[None], np.log(time))[0]
                share = np.exp(w[:, None] + np.log(time) - np.where(np.isfinite(total), total, 0.0))
                results += [share, np.einsum("ij,in->ijn", np.eye(len(w)), share)]
        return results

    def log_hazard(self, w):
        early, _ = self.clock(w)
        return np.where(self.event, w[:, self.piece] - np.where(self.event, early, 0.0), 0.0)

    def hazard_slopes(self, w):
        m = len(w)
        return (np.arange(m)[:, None] == self.piece) * self.event.astype(float), np.zeros((m, m, self.n))


def log_sums(w, log_time):
    """log sum_j e^(w_j) time_j: w (S, m), log_time (m, n)."""
    terms = w[:, :, None] + log_time
    most = terms.max(axis=1, initial=-np.inf)
    least = np.where(np.isfinite(most), most, 0.0)
    return least + np.log(np.exp(terms - least[:, None]).sum(axis=1))
