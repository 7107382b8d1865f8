"""What a row of a mixed model is, family by family: log p(y | eta, w) with its derivatives, w the shape numbers of a point.

A family splits it into what depends on eta (`row`), and what does not (`constant`): the sum over all rows. `parts` are what `row`
has of the response and of w: arrays (S, n), or such as broadcast to it.
"""

import numpy as np
from scipy.special import digamma, expit, gammaln, polygamma

MOST_ETA = 690.0  # of a logarithm of a mean: beyond it a value is as bad as it gets, and finite
MOST_TERMS = 1e8  # of a negative binomial's count, whose curvature is a sum of so many
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


class Family:
    concave = True  # in eta
    counted = False  # a mean that is far too large is left by one in each step: see `modes`

    def __init__(self, y, trials, upper, cuts, entry):
        self.y, self.trials, self.upper, self.cuts, self.entry = y, trials, upper, cuts, entry
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


def log_1m_exp(x):
    """log(1 - exp(-e^x)) and two derivatives in x."""
    x = np.minimum(x, MOST_ETA)
    g = np.exp(x)
    few = np.where(g < 1e-12, x, np.log(-np.expm1(-g)))
    value = np.where(g > 0.5, np.log1p(-np.exp(-g)), few)
    first = np.where(g < 1e-300, 1.0, g * np.exp(-g) / -np.expm1(-np.maximum(g, 1e-300)))
    whole = np.where(g < 1e-300, 1.0, g / -np.expm1(-np.maximum(g, 1e-300)))
    return value, first, first * (1 - whole)
