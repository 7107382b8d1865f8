"""Writes a row of each likelihood once: its value, slope and curvature, and expectations of them under a normal predictor.

A function takes numbers or arrays, element by element, and has no branch of its own: `where` and `pick` choose. On arrays NumPy
runs it: the records of `families` hold it, and it is the reference of the kernels. `_numba/_rows.py` compiles it for numbers: the
Numba backend, and what other people's nopython code calls. C++ and CUDA have a text of their own (csrc/include/fedkern).

`part`, `slope` and `observed` are those of `families.Family`. `Any` is a number or an array.

A zero-inflated count is 0 with probability pi (a structural zero), and else a count with the mean exp(eta), which may be 0 too:
`mean` is of that count, and E[y] is 1 - pi times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Vector
from . import rng


@cache
def special(name: str) -> Callable[..., Any]:
    """Returns one function of `scipy.special`."""
    function: Callable[..., Any] = getattr(import_module("scipy.special"), name)
    return function


HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)
FAR = 1e100  # of a draw, in standard deviations: squares are then numbers, however heavy a tail is
LEAST = 1e-300
MOST_ETA = 690.0  # of a logarithm of a mean: beyond it a value is as bad as it gets, and finite
BELOW_ONE = 1 - 2.0**-53


# What NumPy and Numba do in different ways --------------------


def where(condition: Any, first: Any, other: Any) -> Any:
    """Returns `one` where the condition holds, and `other` elsewhere."""
    return np.where(condition, first, other)


def some(condition: Any) -> Any:
    """Tells whether the condition holds for the number, or for one of the array."""
    return np.any(condition)


def pick(condition: Any, first_of: Callable[..., Any], second_of: Callable[..., Any], *rows: Any) -> Any:
    """Returns the results that `one` computes of the rows where the condition holds, and `other` of the rest."""
    chosen, *rows = np.broadcast_arrays(condition, *rows)  # type: ignore[assignment]
    if chosen.all():
        return first_of(*rows)
    if not chosen.any():
        return second_of(*rows)
    results = []
    for first, second in zip(first_of(*(a[chosen] for a in rows)), second_of(*(a[~chosen] for a in rows)), strict=True):
        result = np.empty(chosen.shape)
        result[chosen], result[~chosen] = first, second
        results.append(result)
    return tuple(results)


def expit(x: Any) -> Any:
    """Returns 1 / (1 + exp(-x)), in vectors of numbers as `scipy.special` has none."""
    odds = np.asarray(-1.0 * x)  # no integers
    with np.errstate(over="ignore"):
        np.exp(odds, out=odds)  # in place: an array of its own costs more than the sum
    odds += 1
    return np.divide(1, odds, out=odds)[()]


def softplus(x: Any) -> Any:
    """Returns log(1 + exp(x))."""
    return np.logaddexp(0.0, x)


def gammaln(x: Any) -> Any:
    """Returns log |Gamma(x)|."""
    return special("gammaln")(x)


def normal_cdf(x: Any) -> Any:
    """Returns the distribution function of a standard normal number."""
    return special("ndtr")(x)


def gaussian_by_sd(y: Any, eta: Any, sd: Any) -> Any:
    """Returns the derivatives in w = log sd of the value: first, mixed with eta, second."""
    precision, r = 1 / sd**2, y - eta
    return precision * r * r - 1.0, -2 * precision * r, -2 * precision * r * r


# Chances of an event by other links than the logit --------------------

ONE_TAIL = 8.0  # from where a fraction of few terms has all digits


def normal_tail(x: Any) -> Any:
    """Returns log Phi(-x), r = phi(x) / Phi(-x), and r (r - x), of which nothing cancels far away."""
    far, near = np.maximum(x, ONE_TAIL), np.minimum(x, ONE_TAIL)
    fraction = far
    for j in range(24, 1, -1):
        fraction = far + j / fraction
    ratio = where(x < ONE_TAIL, np.sqrt(2 / np.pi) / special("erfcx")(near / np.sqrt(2.0)), far + 1 / fraction)
    return special("log_ndtr")(-x), ratio, ratio * where(x < ONE_TAIL, ratio - near, 1 / fraction)


def log_1m_exp(x: Any) -> Any:
    """Returns log(1 - exp(-e^x)) and two derivatives in x."""
    g = np.exp(np.minimum(x, MOST_ETA))
    with np.errstate(divide="ignore"):
        few = where(g < 1e-12, x, np.log(-np.expm1(-g)))
        value = where(g > 0.5, np.log1p(-np.exp(-g)), few)
    first = where(g < 1e-300, 1.0, g * np.exp(-g) / -np.expm1(-np.maximum(g, 1e-300)))
    whole = where(g < 1e-300, 1.0, g / -np.expm1(-np.maximum(g, 1e-300)))
    return value, first, first * (1 - whole)


def probit_logs(eta: Any) -> Any:
    """Returns log Phi(eta), its slope and minus its curvature; and those of log Phi(-eta)."""
    value, slope, curve = normal_tail(-eta)
    other, fall, bend_of_other = normal_tail(eta)
    return (value, slope, curve), (other, -fall, bend_of_other)


def cloglog_logs(eta: Any) -> Any:
    """Returns log P, P = 1 - exp(-e^eta), its slope and minus its curvature; and those of log(1 - P)."""
    (value, slope, curve), mean = log_1m_exp(eta), np.exp(np.minimum(eta, MOST_ETA))
    return (value, slope, -curve), (-mean, -mean, mean)


# Negative binomial: scale is r --------------------

RAISED = 10.0  # arguments of gamma functions: from there on the series of Stirling hold to 1e-14


def negative_by_r(y: Any, eta: Any, r: Any) -> Any:
    """Returns the derivative in log r, which is of the order of 1 / r where r is large, and each of its parts with it."""
    x = np.exp(np.minimum(eta - np.log(r), 700.0))
    p = x / (1 + x)
    return y * p - less(y, r) - r * bend(x, p)


def negative_by_phi(y: Any, eta: Any, phi: Any) -> Any:
    """Returns the derivatives in phi, 1 / phi^2 = r, of the part with eta: first, mixed with eta, second."""
    a, mean = phi * phi, np.exp(eta)
    x, m = a * mean, mean / (1 + a * mean)
    slope, curve = pick(x < 0.1, _bent_little, _bent, x, a, mean)  # derivatives in a of log(1 + a mean) / a
    first = -y * m - slope
    return 2 * phi * first, -2 * phi * (y - mean) / (1 + x) * m, 2 * first + 4 * a * (y * m * m - curve)


def _bent_little(x: Any, a: Any, mean: Any) -> Any:
    slope, curve = 0.0 * x, 0.0 * x
    for j in range(17, 0, -1):
        sign = -1.0 if j % 2 else 1.0
        slope = sign * j / (j + 1) + slope * x
        if j > 1:
            curve = sign * j * (j - 1) / (j + 1) + curve * x
    return slope * mean * mean, curve * mean * mean * mean


def _bent(x: Any, a: Any, mean: Any) -> Any:
    m = mean / (1 + x)
    slope = (m - np.log1p(x) / a) / a
    return slope, (-m * m - 2 * slope) / a


def log_rising(y: Any, r: Any) -> Any:
    """Returns log Gamma(y + r) - log Gamma(r) - y log r, the sum of log(1 + k / r) over k < y, without what cancels."""
    steps = np.ceil(np.maximum(RAISED - r, 0.0))  # so many factors are taken off, from where the series holds
    top, k, high, low = r + steps, 0.0, 1.0, 1.0
    of_high, of_low = 1 / (y + top), 1 / top
    while some(k < steps):
        high = high * where(k < steps, (y + r + k) * of_high, 1.0)
        low = low * where(k < steps, (r + k) * of_low, 1.0)
        k = k + 1.0
    growth = (y + r - 0.5) * np.log1p(y * of_low) - y + stirling(y + top) - stirling(top)
    return growth + y * np.log(top / r) - np.log(high / low)


def stirling(x: Any) -> Any:
    """Returns log Gamma(x) less (x - 1/2) log x - x + log(2 pi) / 2, x >= 10."""
    i = 1 / x
    s = i * i
    return (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * (691 / 360360)))))) * i


def stirling_slope(x: Any) -> Any:
    """Returns log x - 1 / (2 x) less digamma(x), x >= 10."""
    s = 1 / (x * x)
    return s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760))))))


def rest(x: Any) -> Any:
    """Returns the number of `stirling` for any x > 0."""
    (value,) = pick(x < RAISED, _rest_near, lambda far: (stirling(far),), np.maximum(x, LEAST))
    return value


def _rest_near(x: Any) -> Any:
    return (gammaln(x) - (x - 0.5) * np.log(x) + x - HALF_LOG_TAU,)


def rest_slope(x: Any) -> Any:
    """Returns x (digamma(x) - log x)."""
    (value,) = pick(x < RAISED, _slope_near, lambda far: (-0.5 - far * stirling_slope(far),), np.maximum(x, LEAST))
    return value


def _slope_near(x: Any) -> Any:
    return (x * (special("psi")(1 + x) - np.log(x)) - 1,)


def rest_curve(x: Any) -> Any:
    """Returns x^2 trigamma(x) - x."""
    (value,) = pick(x < RAISED, _curve_near, _curve_far, np.maximum(x, LEAST))
    return value


def _curve_near(x: Any) -> Any:
    return (1 + x**2 * special("polygamma")(1, 1 + x) - x,)


def _curve_far(x: Any) -> Any:
    s = 1 / (x * x)
    return (0.5 + (1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66 - s * (691 / 2730)))))) / x,)


def less(y: Vector, r: Any) -> Any:
    """Returns the sum of k / (r + k) over k < y, which is y - r (digamma(y + r) - digamma(r))."""
    above, steps = r + RAISED, 0.0
    for k in range(int(RAISED)):
        steps = steps + r / (r + k) * (y / (y + r + k))
    z, part = y / above, y / (y + above)
    ends = stirling_slope(above) - stirling_slope(y + above)
    difference = np.log1p(z) + part / (2 * above) + ends  # digamma(y + above) - digamma(above)
    whole = above * (z * part - bend(z, part)) - part / 2 - above * ends  # y - above difference
    return whole + RAISED * difference - steps


def bend(x: Vector, p: Vector) -> Vector:
    """Returns log(1 + x) - p, p = x / (1 + x): the sum of p^j / j over j > 1."""
    few, series = np.minimum(p, 0.1), np.zeros(np.shape(p))
    for j in range(18, 1, -1):
        series = (series + 1 / j) * few
    return np.asarray(np.where(p < 0.1, series * few, np.log1p(x) - p))


# Expectations of value, slope and minus curvature where eta ~ N(m, s^2) --------------------
# Those of a logistic row are sums by the trapezoid rule for N(0, 1), with nodes +-(j + 1/2) STEP; for wider s the logistic
# distribution is a mixture of steps.

PAIRS, STEP, WIDEST = 32, 13 / 63, 5.0
T_WEIGHT = np.exp(-0.5 * ((np.arange(PAIRS) + 0.5) * STEP) ** 2)
T_WEIGHT /= 2 * T_WEIGHT.sum()
U = 0.8 * (np.arange(96) - 47.5)
U_WEIGHT = 1 / ((1 + np.exp(U)) * (1 + np.exp(-U)))
U_WEIGHT /= U_WEIGHT.sum()


def bernoulli_expected(m: Any, s: Any, y: Any, scale: Any) -> Any:
    sign = 2.0 * y - 1.0
    value, slope, curvature = log_sigmoid_expected(sign * m, s)
    return value, sign * slope, curvature


def log_sigmoid_expected(b: Any, s: Any) -> Any:
    """Returns E log sigmoid(a), a ~ N(b, s^2), and the expectations of its first two derivatives."""
    return pick(s <= WIDEST, _by_trapezoids, _by_steps, b, s)


def _by_trapezoids(b: Any, s: Any) -> Any:
    # exp(-a) over equidistant nodes is a geometric series. Beyond |b| = 340 the sigmoid is 0 or 1 at every node.
    inside, down = np.minimum(np.maximum(b, -340.0), 340.0), np.exp(-0.5 * STEP * s)
    e1, e2 = np.exp(-inside) * down, np.exp(-inside) / down
    value, slope, curvature = 0.0 * b, 0.0 * b, 0.0 * b
    for j in range(PAIRS):
        d1, d2 = 1.0 + e1, 1.0 + e2
        inverse = 1.0 / (d1 * d2)
        up1, up2 = d2 * inverse, d1 * inverse
        slope += T_WEIGHT[j] * (e1 * up1 + e2 * up2)
        curvature -= T_WEIGHT[j] * (e1 * up1 * up1 + e2 * up2 * up2)
        value -= T_WEIGHT[j] * np.log(d1 * d2)
        e1 = e1 * (down * down)
        e2 = e2 / (down * down)
    return value + np.minimum(b + 340.0, 0.0), slope, curvature


def _by_steps(b: Any, s: Any) -> Any:
    value, slope, curvature = 0.0 * b, 0.0 * b, 0.0 * b
    for j in range(96):
        z = (U[j] - b) / s
        below, density = normal_cdf(z), np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
        value -= U_WEIGHT[j] * s * (z * below + density)
        slope += U_WEIGHT[j] * below
        curvature -= U_WEIGHT[j] * density / s
    return value, slope, curvature


def poisson_expected(m: Any, s: Any, y: Any, scale: Any) -> Any:
    rate = np.exp(m + 0.5 * s * s)
    return y * m - rate - gammaln(y + 1), y - rate, -rate


def gaussian_expected(m: Any, s: Any, y: Any, sd: Any) -> Any:
    off = (y - m) / sd
    return -0.5 * (off**2 + (s / sd) ** 2) - np.log(sd) - HALF_LOG_TAU, off / sd, 0.0 * off - 1 / sd**2


def negative_expected(m: Any, s: Any, y: Any, r: Any) -> Any:
    few, first, second, third = far_in_tail(np.log(r) - m, s)
    value, slope, curvature = pick(few, _by_few_terms, _by_log_sigmoid, m, s, y, r, first, second, third)
    return value + log_rising(y, r) - gammaln(y + 1), slope, curvature


def _by_few_terms(m: Any, s: Any, y: Any, r: Any, first: Any, second: Any, third: Any) -> Any:
    rate = np.exp(m + 0.5 * s * s) * (1 + y / r)
    return y * m - rate * first, y - rate * second, -rate * third


def _by_log_sigmoid(m: Any, s: Any, y: Any, r: Any, first: Any, second: Any, third: Any) -> Any:
    value, slope, curvature = log_sigmoid_expected(np.log(r) - m, s)
    return y * m + (y + r) * value, y - (y + r) * slope, (y + r) * curvature


def far_in_tail(b: Any, s: Any) -> Any:
    """Returns whether the series of log(1 + x), x = exp(-a), is short, and E log(1 + x) and minus the expectations of its first
    two derivatives by it, as multiples of E x: of a sigmoid far in its tail a quadrature loses what 1 - p has."""
    value, slope, curvature, before = 1.0 + 0.0 * b, 1.0 + 0.0 * b, 1.0 + 0.0 * b, 1.0 + 0.0 * b
    going = b > 3.0 + 1.5 * s * s
    few = going & (b < 0.0)  # none
    for k in range(2, 13):
        if not some(going):
            break
        size = np.exp((1 - k) * b + 0.5 * (k * k - 1) * s * s)  # E x^k / E x, by which what is left out is bounded
        signed = size if k % 2 else -size
        term = where(going, signed, 0.0)
        value, slope, curvature = value + term / k, slope + term, curvature + k * term
        few = few | (going & (k * size < 1e-15))
        going = going & (k * size >= 1e-15) & (size <= before)
        before = size
    return few, value, slope, curvature


# Counts one by one, and draws --------------------

ONE_BY_ONE = 200  # counts from 0 on whose probabilities are added up
LARGE = 1e15  # shapes from here on take each number; 1 is lost in them


def added_up(u: Any, most: Any, p: Any, a: Any, b: Any) -> tuple[Vector, Vector, NDArray[np.intp]]:
    """Adds up P(Y = k) = (a + b / k) P(Y = k - 1) from P(Y = 0) = p, until P(Y <= k) reaches u or k is `most`.

    Returns
    -------
    k and P(Y <= k) of n rows, and the indices of those whose means or counts are too large for it
    """
    near = a + b < (1 - a) * ONE_BY_ONE / 4  # the mean is (a + b) / (1 - a)
    given = np.broadcast_arrays(u, np.where(near, most, 0.0), near, p, a, b)
    u, most, near, *chances = (array.reshape(-1) for array in given)
    counts, sums = rng.counts(u, most, *chances, terms=ONE_BY_ONE)
    return counts, sums, np.flatnonzero(~near | (counts == ONE_BY_ONE - 1))


def log_gamma_numbers(source: Any, shape: Any, n: int) -> Vector:
    """Returns logarithms of n gamma numbers of mean 1 (Marsaglia and Tsang 2000); what is not taken comes by quantiles."""
    whole = np.where(np.asarray(shape) < 1, shape + 1.0, shape)
    d = whole - 1 / 3
    normal, u = source.normal(n), source.uniform(n)
    step = np.maximum(normal / (3 * np.sqrt(d)), -1.0)
    with np.errstate(divide="ignore"):
        root = np.log1p(step)
        missed = np.flatnonzero(np.log(u) >= 0.5 * normal**2 + np.minimum(d, LARGE) * (3 * (root - step) - step**2 * (3 + step)))
    log = 3 * root + np.log1p(-1 / (3 * whole))
    if missed.size:
        of = np.broadcast_to(whole, u.shape)[missed]
        log[missed] = np.log(special("gammaincinv")(of, source.uniform(n)[missed]) / of)
    if np.any(shape < 1):
        with np.errstate(divide="ignore"):
            log += np.where(shape < 1, np.log(source.uniform(n)) / shape + np.log1p(shape) - np.log(shape), 0.0)
    return np.asarray(log)


# Student: scale is standard deviation (of the kernel) and degrees of freedom --------------------


def student_part(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
    """Returns that of y = eta + sd t, t with nu degrees of freedom."""
    sd, nu = scale
    return -0.5 * (nu + 1) * np.log1p(((y - eta) / sd) ** 2 / nu)


def student_normaliser(scale: Any) -> Any:
    sd, nu = scale
    return gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu) - np.log(sd)


def student_slope(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns d log p / d eta, which is bounded: a row far away has no weight."""
    sd, nu = scale
    z = (y - eta) / sd
    return np.asarray((nu + 1) * z / (sd * (nu + z**2)))


def student_observed(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    sd, nu = scale
    z = ((y - eta) / sd) ** 2 / nu
    return np.asarray((nu + 1) / (nu * sd**2) * (1 - z) / (1 + z) / (1 + z))


def student_by_shapes(y: Any, eta: Any, sd: Any, nu: Any) -> Any:
    """Returns the derivatives in log sd and log nu of `student_part`: first (2, n), mixed with eta (2, n), second (2, 2, n)."""
    rho, precision, a = y - eta, 1 / sd**2, 1 / nu
    q = precision * rho**2
    z = a * q
    by, nu_log = 1 / (1 + z), nu * np.log1p(z)
    change = -a * by + (1 + a) * z * by**2  # of (1 + a) / (1 + z), in log nu
    first = np.array([(1 + a) * q * by, -0.5 * (nu_log - (1 + a) * q * by)])
    cross = precision * rho * np.array([-2 * (1 + a) * by**2, change])
    both = q * change
    last = -0.5 * (nu_log - 2 * q * by + (1 + a) * q * by**2)
    return first, cross, np.array([[-2 * (1 + a) * q * by**2, both], [both, last]])


def student_constant(nu: Any) -> Any:
    """Returns two derivatives in log nu of `student_normaliser`."""
    x = 0.5 * nu
    share = x / (x + 0.5)  # of log Gamma(x + 1/2) - log Gamma(x) - log(x) / 2
    first = x * np.log1p(0.5 / x) + share * rest_slope(x + 0.5) - rest_slope(x) - 0.5
    return first, share**2 * rest_curve(x + 0.5) - rest_curve(x) - 0.5 * share + first + 0.5


def student_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y as a normal number over the root of a chi-square one."""
    sd, nu = scale
    with np.errstate(over="ignore"):
        tail = np.exp(-0.5 * log_gamma_numbers(source, 0.5 * nu, len(mean)))
    return np.asarray(mean + sd * np.clip(source.normal(len(mean)) * tail, -FAR, FAR))


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


def gamma_part(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    r = np.minimum(np.log(y) - eta, MOST_ETA)
    return np.asarray(scale * (r - np.expm1(r)))


def gamma_slope(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns d log p / d eta, shape times (y / mean - 1)."""
    return np.asarray(scale * np.expm1(np.minimum(np.log(y) - eta, MOST_ETA)))


def gamma_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y."""
    return np.asarray(np.maximum(mean * np.exp(log_gamma_numbers(source, scale, len(mean))), LEAST))


def gamma_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    return np.asarray(special("gammainc")(scale, y * scale / mean))


# Beta: scale is the precision --------------------


def _parts(mean: Vector, scale: Any) -> tuple[Vector, Vector]:
    return np.maximum(mean * scale, LEAST), np.maximum((1 - mean) * scale, LEAST)


def beta_part(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns the part with eta from the divergence of y from mu and Stirling's rests, where nothing cancels if the precision is
    large."""
    mu, nu, log_mu, log_nu = expit(eta), expit(-eta), -softplus(-eta), -softplus(eta)
    divergence = mu * (np.log(y) - log_mu) + nu * (np.log1p(-y) - log_nu)
    return np.asarray(scale * divergence + 0.5 * (log_mu + log_nu) - rest(scale * mu) - rest(scale * nu))


def beta_slope(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns d log p / d eta: a multiple of the logit of y less its average."""
    mu, nu = expit(eta), expit(-eta)
    far = np.log(y) - np.log1p(-y) - eta
    return np.asarray(scale * mu * nu * far - nu * rest_slope(scale * mu) + mu * rest_slope(scale * nu))


def beta_information(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    """Returns minus the second derivative, averaged over y."""
    mu, nu = expit(eta), expit(-eta)
    return np.asarray(scale * mu * nu + nu**2 * rest_curve(scale * mu) + mu**2 * rest_curve(scale * nu))


def beta_observed(y: Vector, eta: Vector, scale: Any, trials: Any) -> Vector:
    return beta_information(y, eta, scale, trials) + np.tanh(0.5 * eta) * beta_slope(y, eta, scale, trials)


def beta_draw(source: Any, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Draws y inside of (0, 1), as the first's part of the sum of two gamma numbers."""
    first, second = (np.log(part) + log_gamma_numbers(source, part, len(mean)) for part in _parts(mean, scale))
    return np.asarray(np.clip(expit(first - second), LEAST, BELOW_ONE))


def beta_cdf(y: Vector, mean: Vector, scale: Any, trials: Any) -> Vector:
    """Returns P(Y <= y)."""
    return np.asarray(special("betainc")(*_parts(mean, scale), y))


# Zero-inflated counts: scale is pi, or r and pi --------------------


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
