"""What a row of a mixed model is, family by family: log p(y | eta, w) with its derivatives, w the shape numbers of a point.

A family splits it into what depends on eta (`row`), and what does not (`constant`): the sum over all rows. `parts` are what `row`
has of the response and of w: arrays (S, n), or such as broadcast to it.
"""

import numpy as np
from scipy.special import digamma, expit, gammaln, log_ndtr, polygamma

MOST_ETA = 690.0  # of a logarithm of a mean: beyond it a value is as bad as it gets, and finite
MOST_TERMS = 1e8  # of a negative binomial's count, whose curvature is a sum of so many
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


class Family:
    concave = True  # in eta
    counted = False  # a mean that is far too large is left by one in each step: see `modes`

    def __init__(self, y, trials, upper, cuts):
        self.y, self.trials, self.upper, self.cuts = y, trials, upper, cuts
        self.n = len(y)

    def good(self, m):
        """(n,) whether the family has the response, where points have m shape numbers."""
        return np.isfinite(self.y)

    def parts(self, w):
        return (self.y,)

    @staticmethod
    def row(eta, *parts):
        """Value without `constant`, d / deta, -d2 / deta2."""
        raise NotImplementedError

    def constant(self, w):
        """(S,) the sum over rows of what does not depend on eta."""
        return np.zeros(len(w))

    def constant_slopes(self, w):
        """Its derivatives (m,) and (m, m) at one w (m,)."""
        return np.zeros(len(w)), np.zeros((len(w), len(w)))

    def own(self, eta, w):
        """Of `row` at eta (n,) and w (m,): d / dw (m, n), d2 / dw deta (m, n), d2 / dw2 (m, m, n)."""
        return np.zeros((0, self.n)), np.zeros((0, self.n)), np.zeros((0, 0, self.n))

    def start(self, w):
        """Of `counted` ones: weights and targets (S, n) of the least squares from which a search begins, and sizes of rows."""
        raise NotImplementedError


def whole(y):
    return (y >= 0) & (y == np.floor(y)) & np.isfinite(y)


class Binomial(Family):
    def good(self, m):
        return whole(self.y) & whole(self.trials) & (self.y <= self.trials)

    def parts(self, w):
        return self.y, self.trials

    @staticmethod
    def row(eta, y, trials):
        p = expit(eta)
        return y * eta - trials * np.logaddexp(0, eta), y - trials * p, trials * p * expit(-eta)

    def constant(self, w):
        y, trials = self.y, self.trials
        return np.full(len(w), (gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)).sum())


class Poisson(Family):
    counted = True

    def good(self, m):
        return whole(self.y)

    @staticmethod
    def row(eta, y):
        eta = np.minimum(eta, MOST_ETA)
        mean = np.exp(eta)
        return y * eta - mean, y - mean, mean

    def constant(self, w):
        return np.full(len(w), -gammaln(self.y + 1).sum())

    def start(self, w):
        return self.y + 0.5 + np.zeros((len(w), 1)), np.log(self.y + 0.5), self.y


class Gaussian(Family):
    """w = log sd."""

    def parts(self, w):
        return self.y, np.exp(-2 * w[:, :1])

    @staticmethod
    def row(eta, y, precision):
        return -0.5 * precision * (y - eta) ** 2, precision * (y - eta), precision + 0 * eta

    def constant(self, w):
        return -self.n * (w[:, 0] + HALF_LOG_2PI)

    def constant_slopes(self, w):
        return np.array([-self.n]), np.zeros((1, 1))

    def own(self, eta, w):
        r, precision = self.y - eta, np.exp(-2 * w[0])
        return (precision * r**2)[None], (-2 * precision * r)[None], (-2 * precision * r**2)[None, None]


class NegativeBinomial(Family):
    """w = phi, where the variance is mu + phi^2 mu^2."""

    counted = True

    def good(self, m):
        return whole(self.y)

    def parts(self, w):
        return self.y, w[:, :1] ** 2

    @staticmethod
    def row(eta, y, a):
        eta = np.minimum(eta, MOST_ETA)
        mean = np.exp(eta)
        x = a * mean
        value = y * eta - y * np.log1p(x) - mean * log1p_ratio(x)[0]
        return value, (y - mean) / (1 + x), mean / (1 + x) * ((1 + a * y) / (1 + x))

    def constant(self, w):
        return np.array([rising(self.y, phi**2)[0] for phi in w[:, 0]]) - gammaln(self.y + 1).sum()

    def constant_slopes(self, w):
        _, one, two = rising(self.y, w[0] ** 2)
        return np.array([2 * w[0] * one]), np.array([[2 * one + 4 * w[0] ** 2 * two]])

    def own(self, eta, w):
        first, cross, second = dispersion(self.y, eta, w[0])
        return first[None], cross[None], second[None, None]

    def start(self, w):
        count = self.y + 0.5
        return count / (1 + w[:, :1] ** 2 * count), np.log(count), self.y


def dispersion(y, eta, w):
    """Of a negative binomial's rows: dl / dphi, d2l / dphi deta, d2l / dphi2, without what `rising` has."""
    a, mean = w**2, np.exp(np.minimum(eta, MOST_ETA))
    x, m = a * mean, mean / (1 + a * mean)
    _, one, two = log1p_ratio(x)  # of h = log(1 + a mean) / a
    near = x < 0.1
    h_a = np.where(near, mean**2 * one, (m - mean * log1p_ratio(x)[0]) / a)
    h_aa = np.where(near, mean**3 * two, (-(m**2) - 2 * h_a) / a)
    l_a, l_aa, l_ae = -y * m - h_a, y * m**2 - h_aa, -(y - mean) / (1 + x) * m
    return 2 * w * l_a, 2 * w * l_ae, 2 * l_a + 4 * a * l_aa


def log1p_ratio(x):
    """log(1 + x) / x and its first two derivatives, x >= 0."""
    small = np.minimum(x, 0.1)
    series = [np.zeros_like(x) for _ in range(3)]
    for j in reversed(range(18)):  # sum (-x)^j / (j + 1)
        c = (-1) ** j / (j + 1)
        series[0] = series[0] * small + c
        if j >= 1:
            series[1] = series[1] * small + j * c
        if j >= 2:
            series[2] = series[2] * small + j * (j - 1) * c
    large = np.maximum(x, 0.1)
    zeroth = np.log1p(large) / large
    first = (1 / (1 + large) - zeroth) / large
    second = (-1 / (1 + large) / (1 + large) - 2 * first) / large
    return [np.where(x < 0.1, s, closed) for s, closed in zip(series, (zeroth, first, second))]


def rising(y, a):
    """sum over rows of sum_{k < y} log(1 + k a) = log Gamma(y + 1/a) - log Gamma(1/a) + y log a, and two derivatives in a."""
    if y.max(initial=0) > MOST_TERMS:
        return (gammaln(y + 1 / a) - gammaln(1 / a) + y * np.log(a)).sum(), np.nan, np.nan
    k = np.arange(int(y.max(initial=0)))
    count = len(y) - np.searchsorted(np.sort(y), k, side="right")  # rows with y > k
    slope = k / (1 + k * a)
    return (count * np.log1p(k * a)).sum(), (count * slope).sum(), -(count * slope**2).sum()


# Gamma functions without what cancels --------------------


def stirling(x):
    """r of log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + r, then 1/2 + x dr/dx - 1 = x (digamma(x) - log x), and
    1/2 + x^2 d2r/dx2 = x^2 trigamma(x) - x."""
    far = np.maximum(x, 10.0)
    s = far**-2.0
    r = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360))))) / far
    first = -0.5 - (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * 691 / 32760))))) / far
    second = 0.5 + (1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66 - s * 691 / 2730))))) / far
    at = np.clip(x, 1e-300, 10.0)
    one = 1 + at  # x^2 trigamma(x) = 1 + x^2 trigamma(1 + x), which holds where x^2 is 0
    near = gammaln(at) - (at - 0.5) * np.log(at) + at - HALF_LOG_2PI, at * (digamma(one) - np.log(at)) - 1
    near = *near, 1 + at**2 * polygamma(1, one) - at
    return tuple(np.where(x < 10, close, away) for close, away in zip(near, (r, first, second)))


class Student(Family):
    """w = log sd, log nu."""

    concave = False

    def parts(self, w):
        return self.y, np.exp(-2 * w[:, :1]), np.exp(-w[:, 1:2])

    @staticmethod
    def row(eta, y, precision, a):
        """a = 1 / nu."""
        rho = y - eta
        q = precision * rho**2
        z = a * q
        value = -0.5 * (1 + a) * q * log1p_ratio(z)[0]
        return value, (1 + a) * precision * rho / (1 + z), (1 + a) * precision * (1 - z) / (1 + z) / (1 + z)

    def constant(self, w):
        x = 0.5 * np.exp(w[:, 1])
        of_nu = x * np.log1p(0.5 / x) - 0.5 + stirling(x + 0.5)[0] - stirling(x)[0] - HALF_LOG_2PI
        return self.n * (of_nu - w[:, 0])

    def constant_slopes(self, w):
        x = 0.5 * np.exp(w[1])
        (_, f, s), (_, f_half, s_half) = stirling(x), stirling(x + 0.5)
        share = x / (x + 0.5)  # of log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2
        first = x * np.log1p(0.5 / x) + share * f_half - f - 0.5
        second = share**2 * s_half - s - 0.5 * share + first + 0.5
        return self.n * np.array([-1, first]), self.n * np.array([[0, 0], [0, second]])

    def own(self, eta, w):
        precision, a, rho = np.exp(-2 * w[0]), np.exp(-w[1]), self.y - eta
        q = precision * rho**2
        z = a * q
        by, nu_log = 1 / (1 + z), q * log1p_ratio(z)[0]
        change = -a * by + (1 + a) * z * by**2  # of (1 + a) / (1 + z), in log nu
        first = np.array([(1 + a) * q * by, -0.5 * (nu_log - (1 + a) * q * by)])
        cross = precision * rho * np.array([-2 * (1 + a) * by**2, change])
        both = q * change
        last = -0.5 * (nu_log - 2 * q * by + (1 + a) * q * by**2)
        return first, cross, np.array([[-2 * (1 + a) * q * by**2, both], [both, last]])

    def mode(self, w):
        """Where a row's density is largest."""
        return self.y + np.zeros((len(w), 1))


class Gamma(Family):
    """w = log shape s; l = s (r - (e^r - 1)) with r = log y - eta."""

    counted = True

    def good(self, m):
        return np.isfinite(self.y) & (self.y > 0)

    def parts(self, w):
        return np.log(self.y), np.exp(w[:, :1])

    @staticmethod
    def row(eta, log_y, s):
        r = np.minimum(log_y - eta, MOST_ETA)
        return s * (r - np.expm1(r)), s * np.expm1(r), s * np.exp(r)

    def constant(self, w):
        return self.n * (0.5 * w[:, 0] - HALF_LOG_2PI - stirling(np.exp(w[:, 0]))[0]) - np.log(self.y).sum()

    def constant_slopes(self, w):
        _, first, second = stirling(np.exp(w[0]))
        return -self.n * np.array([first]), -self.n * np.array([[first + second]])

    def own(self, eta, w):
        value, slope, _ = self.row(eta, *self.parts(w[None]))
        return value[0][None], slope[0][None], value[0][None, None]

    def start(self, w):
        return np.exp(w[:, :1]) + np.zeros(self.n), np.log(self.y), np.exp(w[:, :1]) + np.zeros(self.n)


class Beta(Family):
    """w = log precision; y has the shapes a = precision mu and b = precision (1 - mu), mu = expit(eta)."""

    concave = False

    def good(self, m):
        return (self.y > 0) & (self.y < 1)

    def parts(self, w):
        return np.log(self.y), np.log1p(-self.y), np.exp(w[:, :1])

    @staticmethod
    def row(eta, log_y, log_not, precision):
        """The divergence of y from mu, and Stirling's rests, of which nothing cancels where the precision is large."""
        mu, nu = expit(eta), expit(-eta)
        log_mu, log_nu = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
        (r, f, s), (r_not, f_not, s_not) = stirling(precision * mu), stirling(precision * nu)
        value = precision * (mu * (log_y - log_mu) + nu * (log_not - log_nu)) + 0.5 * (log_mu + log_nu) - r - r_not
        slope = precision * mu * nu * (log_y - log_not - eta) - nu * f + mu * f_not
        curve = precision * mu * nu + nu**2 * s + mu**2 * s_not - (nu - mu) * slope
        return value, slope, curve

    def constant(self, w):
        of_precision = 0.5 * w[:, 0] - HALF_LOG_2PI + stirling(np.exp(w[:, 0]))[0]
        return self.n * of_precision - (np.log(self.y) + np.log1p(-self.y)).sum()

    def constant_slopes(self, w):
        _, first, second = stirling(np.exp(w[0]))
        return self.n * np.array([first]), self.n * np.array([[first + second]])

    def own(self, eta, w):
        log_y, log_not, precision = np.log(self.y), np.log1p(-self.y), np.exp(w[0])
        mu, nu = expit(eta), expit(-eta)
        (_, f, s), (_, f_not, s_not) = stirling(precision * mu), stirling(precision * nu)
        _, slope, _ = self.row(eta, log_y, log_not, precision)
        rest = precision * (mu * (log_y + np.logaddexp(0, -eta)) + nu * (log_not + np.logaddexp(0, eta)))
        first = rest - f - f_not
        return first[None], (slope + mu * s_not - nu * s)[None], (first - s - s_not)[None, None]

    def mode(self, w):
        """digamma(a) - digamma(b) = logit(y), between 0 and logit(y): by bisection."""
        logit, precision = np.log(self.y) - np.log1p(-self.y), np.exp(w[:, :1])
        low, high = np.zeros((len(w), self.n)), np.ones((len(w), 1)) * logit
        for _ in range(60):
            eta = 0.5 * (low + high)
            beyond = np.sign(logit) * self.row(eta, np.log(self.y), np.log1p(-self.y), precision)[1] < 0
            low, high = np.where(beyond, low, eta), np.where(beyond, eta, high)
        return 0.5 * (low + high)


class ZeroInflatedPoisson(Family):
    """w = logit of the probability that a zero is structural."""

    concave = False
    phi = False

    def good(self, m):
        return whole(self.y)

    def count(self, w):
        """phi^2 (S, 1) and the logit (S, 1)."""
        return np.zeros((len(w), 1)), w[:, :1]

    def parts(self, w):
        return self.y, *self.count(w)

    @staticmethod
    def row(eta, y, a, logit):
        value, slope, curve = NegativeBinomial.row(eta, y, a)
        share = expit(value - logit)  # of a zero: the probability that it is not structural
        gain = np.logaddexp(logit, value)
        of_zero = gain, share * slope, share * curve - (share * slope) * ((1 - share) * slope)
        return tuple(np.where(y == 0, zero, other) for zero, other in zip(of_zero, (value, slope, curve)))

    def constant(self, w):
        a, logit = self.count(w)
        counts = np.array([rising(self.y, one)[0] for one in a[:, 0]])
        return counts - gammaln(self.y + 1).sum() - self.n * np.logaddexp(0, logit[:, 0])

    def constant_slopes(self, w):
        m = len(w)
        first, second = np.zeros(m), np.zeros((m, m))
        first[-1], second[-1, -1] = -self.n * expit(w[-1]), -self.n * expit(w[-1]) * expit(-w[-1])
        if self.phi:
            _, one, two = rising(self.y, w[0] ** 2)
            first[0], second[0, 0] = 2 * w[0] * one, 2 * one + 4 * w[0] ** 2 * two
        return first, second

    def own(self, eta, w):
        a, logit = (one[0, 0] for one in self.count(w[None]))
        value, slope, _ = NegativeBinomial.row(eta, self.y, a)
        none = self.y == 0
        share = np.where(none, expit(value - logit), 1.0)
        both = share * (1 - share)
        first, cross, second = [1 - share], [-share * ((1 - share) * slope)], np.zeros((len(w), len(w), self.n))
        second[-1, -1] = both
        if self.phi:
            g, g_eta, g_phi = dispersion(self.y, eta, w[0])
            first.insert(0, share * g)
            cross.insert(0, share * g_eta + (share * g) * ((1 - share) * slope))
            second[0, 0] = share * g_phi + (share * g) * ((1 - share) * g)
            second[0, 1] = second[1, 0] = -share * ((1 - share) * g)
        return np.array(first), np.array(cross), second

    def mode(self, w):
        """A zero has none: its density falls all the way."""
        return np.where(self.y > 0, np.log(np.maximum(self.y, 1)), -MOST_ETA) + np.zeros((len(w), 1))


class ZeroInflatedNegativeBinomial(ZeroInflatedPoisson):
    """w = phi, and the logit."""

    phi = True

    def count(self, w):
        return w[:, :1] ** 2, w[:, 1:2]


# Levels in an order --------------------


class Ordinal(Family):
    """P(y <= k) = F(c_k - eta); w = c_1, log(c_2 - c_1), ..: as many as levels, less one. Here `low` and `high` are the row's two
    thresholds, and an infinite one is at the end.

    log(F(high) - F(low)) = log F(high) + log F(-low) + log(1 - e^(low - high)) of the logistic F, the last of which has no eta.
    """

    def good(self, m):
        return whole(self.y) & (self.y <= m)

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
        """How many rows stand between the thresholds that follow each other."""
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
        """a = low - eta, b = high - eta: what the upper threshold alone does: its derivative, that with eta, and the second."""
        v = expit(b) * expit(-b)
        return expit(-b), v, -v

    def own(self, eta, w):
        """Thresholds that move together move against eta; the gap between a row's own moves the upper one alone."""
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
    """(S, m + 2) from -inf to inf."""
    steps = np.concatenate([w[:, :1], np.exp(w[:, 1:])], axis=1)
    ends = np.full((len(w), 1), np.inf)
    return np.concatenate([-ends, np.cumsum(steps, axis=1), ends], axis=1)


def log_1m_exp(x):
    """log(1 - exp(-e^x)) and two derivatives in x."""
    x = np.minimum(x, MOST_ETA)
    g = np.exp(x)
    few = np.where(g < 1e-12, x, np.log(-np.expm1(-g)))
    value = np.where(g > 0.5, np.log1p(-np.exp(-g)), few)
    first = np.where(g < 1e-300, 1.0, g * np.exp(-g) / -np.expm1(-np.maximum(g, 1e-300)))
    whole = np.where(g < 1e-300, 1.0, g / -np.expm1(-np.maximum(g, 1e-300)))
    return value, first, first * (1 - whole)


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
        at = np.where(np.isfinite(b), np.exp(-0.5 * end**2 - HALF_LOG_2PI - value), 0.0)
        return at, at * (end - mean), -at * (at + end)


LEGENDRE = np.polynomial.legendre.leggauss(12)
ONE_TAIL = 30.0


def tail(x):
    """log Phi(-x), the mean of -t and the variance of t beyond x (t > x) of a standard normal."""
    far = np.maximum(x, ONE_TAIL)
    fraction = far
    for j in range(24, 1, -1):
        fraction = far + j / fraction
    beyond = 1 / fraction  # phi(x) / Phi(-x) - x, by its continued fraction
    near = np.minimum(x, ONE_TAIL)
    rate = np.exp(-0.5 * near**2 - HALF_LOG_2PI - log_ndtr(-near))
    mean = np.where(x < ONE_TAIL, rate, far + beyond)
    variance = np.where(x < ONE_TAIL, 1 - rate * (rate - near), 1 - (far + beyond) * beyond)
    return log_ndtr(-x), mean, variance


def normal_interval(a, b, gap):
    """log(Phi(b) - Phi(a)), b = a + gap, with the mean and the variance of a standard normal in (a, b)."""
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
    value = np.where(narrow, np.log(h * total) - 0.5 * m**2 - HALF_LOG_2PI, below + np.log1p(-less))
    mean, variance = np.where(narrow, m + shift, mean), np.where(narrow, spread, second)
    return value, np.where(turn, -mean, mean), np.clip(variance, 0, 1)


# Times --------------------


class Weibull(Family):
    """w = log k; the cumulative hazard is t^k e^eta. Those up to y, and from y to upper, at eta = 0, are a row's `clock`."""

    counted = True

    def __init__(self, *rows):
        super().__init__(*rows)
        self.upper = self.y if self.upper is None else self.upper
        with np.errstate(invalid="ignore"):
            self.event, self.within = self.y == self.upper, (self.y < self.upper) & np.isfinite(self.upper)
        self.until = np.where(self.within, self.upper, np.nan)

    def good(self, m):
        return np.isfinite(self.y) & (self.y >= 0) & (self.upper >= self.y) & ~(self.event & (self.y == 0))

    def clock(self, w):
        """log A and log D (S, n): the cumulative hazards up to y, and from y to upper."""
        k = self.k(w)
        with np.errstate(divide="ignore"):
            log_y, log_upper = np.log(self.y), np.log(self.until)
        early = np.where(self.y > 0, k * log_y, -np.inf)
        ratio = k * (log_upper - np.where(self.y > 0, log_y, log_upper))
        more = np.where(self.y > 0, early + np.log(np.expm1(np.minimum(ratio, 700.0))), k * log_upper)
        return early, np.where(ratio > 700, k * log_upper, more)

    def clock_slopes(self, w):
        """A_j / A, A_jk / A, and those of D, of one point: (m, n), (m, m, n)."""
        k = np.exp(w[0])
        with np.errstate(divide="ignore"):
            log_y, log_upper = np.where(self.y > 0, np.log(self.y), 0.0), np.log(self.until)
        of_a = k * log_y
        share = np.where(self.y > 0, 1 / np.expm1(np.minimum(k * (log_upper - log_y), 700.0)), 0.0)  # A / D
        of_d = k * (log_upper + share * (log_upper - log_y))
        of_dd = of_d + k**2 * (log_upper**2 + share * (log_upper**2 - log_y**2))
        return of_a[None], (of_a + of_a**2)[None, None], of_d[None], of_dd[None, None]

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
        """Of events, less the logarithm of A (S, n): derivatives are those of `hazard_slopes`."""
        return np.where(self.event, w[:, :1] - np.log(np.where(self.event, self.y, 1.0)), 0.0)

    def constant(self, w):
        return self.log_hazard(w).sum(axis=1)

    def hazard_slopes(self, w):
        """Of the events' log hazards: (m, n) and (m, m, n)."""
        of = np.where(self.event, np.exp(w[0]) * np.log(np.where(self.event, self.y, 1.0)), 0.0)
        return (of + self.event)[None], of[None, None]

    def own(self, eta, w):
        early, gap = (one[0] for one in self.clock(w[None]))
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
        known = (self.y > 0) | self.within
        last = np.where(self.within, np.logaddexp(early, np.where(self.within, gap, 0.0)), early)
        return np.where(known, count, 0.0) + np.zeros((len(w), 1)), np.log(count) - np.where(known, last, 0.0), np.ones(self.n)


class Exponential(Weibull):
    """k = 1."""

    def k(self, w):
        return np.ones((len(w), 1))

    def clock_slopes(self, w):
        none = np.zeros((0, self.n))
        return none, np.zeros((0, 0, self.n)), none, np.zeros((0, 0, self.n))

    def log_hazard(self, w):
        return np.where(self.event, -np.log(np.where(self.event, self.y, 1.0)), 0.0) + np.zeros((len(w), 1))

    def hazard_slopes(self, w):
        return np.zeros((0, self.n)), np.zeros((0, 0, self.n))


class Piecewise(Weibull):
    """w = log hazards of the pieces; an event at a cut belongs to the piece that ends there."""

    def __init__(self, *rows):
        super().__init__(*rows)
        edges, y = np.concatenate([[0.0], self.cuts, [np.inf]]), np.where(np.isfinite(self.y), self.y, 0.0)
        self.spent = self.time_in(edges, np.zeros(self.n), y)
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


FAMILIES = (
    Binomial, Poisson, Gaussian, NegativeBinomial, Student, Gamma, Beta, ZeroInflatedPoisson, ZeroInflatedNegativeBinomial,
    Ordinal, OrdinalProbit, Weibull, Exponential, Piecewise,
)  # fmt: skip
