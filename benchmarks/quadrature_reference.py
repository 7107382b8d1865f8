"""Means and standard deviations of a posterior without Markov chains, and without this package: for the scripts of references.

A posterior of a few numbers is summed over points of Sobol's sequence, as weighted draws of a t distribution about its mode; the
effects of groups, one number each, are integrated at every point by the trapezoidal rule, whose range is halved in on twice. The
error is that of eight scrambled sequences, each a sum of its own: it stands beside each mean as the number of independent draws
with the same error, so that a file has the form of one of chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats
from scipy.stats import qmc

from fedkern.arrays import Vector

Function = Callable[[Vector], Vector]

SEQUENCES, FREEDOM, WIDER = 8, 7.0, 1.15
NODES, DEPTH, FAR = 25, 40.0, 9.0  # of the rule; nats below the top that count; sds of a standard normal effect at most
STEP = 1e-3


def differences(function: Function, x: Vector, unit: Vector) -> tuple[Vector, Vector]:
    """Returns the gradient and minus the Hessian at x (P,), by differences in one call."""
    k = len(x)
    e = np.diag(unit)
    pairs = [(i, j) for i in range(k) for j in range(i)]
    points = [x, *(x + s * e[i] for s in (1, -1) for i in range(k))]
    points += [x + a * e[i] + b * e[j] for i, j in pairs for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    value = function(np.array(points))
    up, down = value[1 : k + 1], value[k + 1 : 2 * k + 1]
    H = np.diag(2 * value[0] - up - down)
    for (i, j), (pp, pm, mp, mm) in zip(pairs, value[2 * k + 1 :].reshape(-1, 4)):
        H[i, j] = H[j, i] = (pm + mp - pp - mm) / 4
    return (up - down) / (2 * unit), H / np.outer(unit, unit)


def mode(log_posterior: Function, start: Vector) -> tuple[Vector, Vector]:
    """Returns the mode (P,) and the covariance (P, P) of the normal distribution about it."""
    unit = np.full(len(start), STEP)
    found = optimize.minimize(
        lambda x: -log_posterior(x[np.newaxis])[0],
        start,
        jac=lambda x: -differences(log_posterior, x, unit)[0],
        method="BFGS",
        options={"gtol": 1e-3},
    )
    return found.x, np.linalg.inv(differences(log_posterior, found.x, 30 * unit)[1])


def drawn(points: Vector, centre: Vector, root: Vector) -> tuple[Vector, Vector]:
    """Returns points of a t distribution about a centre, from points of the unit cube, and their log-densities."""
    normal = special.ndtri(points[:, :-1])
    squeeze = stats.chi2.ppf(points[:, -1:], FREEDOM) / FREEDOM
    x = normal / np.sqrt(squeeze)
    k = len(centre)
    log_density = -0.5 * (FREEDOM + k) * np.log1p((x**2).sum(axis=1) / FREEDOM)
    return centre + x @ root.T, log_density


def moments(
    log_posterior: Function, start: Vector, read: Callable[[Vector], dict[str, Vector]], log2_points: int = 8
) -> dict[str, dict[str, float]]:
    """Returns name -> mean, sd and the number of independent draws with as small an error.

    Parameters
    ----------
    log_posterior : (S, P) -> (S,), of coordinates that reach from minus to plus infinity
    start : (P,) where the mode is looked for
    read : (S, P) -> name -> (S,) the numbers that are wanted
    log2_points : of each of eight sequences
    """
    centre, covariance = mode(log_posterior, start)
    k = len(centre)
    for turn in range(3):  # the first two move the proposal to the posterior's own mean and covariance
        root = np.linalg.cholesky(WIDER * covariance)
        sets = []
        for seed in range(SEQUENCES):
            cube = qmc.Sobol(k + 1, seed=1000 * turn + seed).random_base2(log2_points - 2 * (turn < 2))
            sets.append(drawn(np.clip(cube, 1e-12, 1 - 1e-12), centre, root))
        values = [log_posterior(x) - log_density for x, log_density in sets]
        top = max(value.max() for value in values)
        weights = [np.exp(value - top) for value in values]
        x, w = np.concatenate([x for x, _ in sets]), np.concatenate(weights)
        w = w / w.sum()
        if turn < 2:
            centre = w @ x
            covariance = ((x - centre).T * w) @ (x - centre)
    assert 1 / (w**2).sum() > 0.2 * len(w), "weights are uneven: effects of few groups want chains"
    found = {}
    for name, number in read(x).items():
        mean = w @ number
        sd = np.sqrt(w @ (number - mean) ** 2)
        parts = number.reshape(SEQUENCES, -1)
        means = np.array([own @ part / own.sum() for own, part in zip(weights, parts)])
        sds = np.array([np.sqrt(own @ (part - m) ** 2 / own.sum()) for own, part, m in zip(weights, parts, means)])
        error = max(means.std(ddof=1), sds.std(ddof=1)) / np.sqrt(SEQUENCES) / sd
        found[name] = {"mean": float(mean), "sd": float(sd), "ess": float(min(error**-2, 1e9))}
    return found


def over_effects(density: Callable[[Vector, slice], Vector], eta: Vector, sd: Vector, groups: Sequence[slice]) -> Vector:
    """Returns (S,) the log-likelihood with an effect N(0, sd^2) of each group integrated out.

    Parameters
    ----------
    density : eta (S, K, n), the rows that it is of -> (S, K, n) log-densities, for all S draws
    eta : (S, n) predictors without effects, rows sorted by group
    sd : (S,)
    groups : the rows of each
    """
    total = np.zeros(len(eta))
    for rows in groups:

        def integrand(z: Vector, rows: slice = rows) -> Vector:
            moved = eta[:, np.newaxis, rows] + (sd[:, np.newaxis] * z)[:, :, np.newaxis]
            return density(moved, rows).sum(axis=2) - 0.5 * z**2

        low, high = np.full(len(eta), -FAR), np.full(len(eta), FAR)
        for turn in range(3):
            z = low[:, np.newaxis] + (high - low)[:, np.newaxis] * np.linspace(0, 1, NODES)
            value = integrand(z)
            top = value.max(axis=1, keepdims=True)
            step = (high - low) / (NODES - 1)
            if turn < 2:
                near = value > top - DEPTH
                first, last = near.argmax(axis=1), NODES - 1 - near[:, ::-1].argmax(axis=1)
                low, high = low + step * (first - 1), low + step * (last + 1)
        total += top[:, 0] + np.log(np.exp(value - top).sum(axis=1) * step) - 0.5 * np.log(2 * np.pi)
    return total


def in_parts(function: Function, size: int = 256) -> Function:
    """Returns the function of many points, computed for some at a time."""
    return lambda points: np.concatenate([function(points[k : k + size]) for k in range(0, len(points), size)])


def groups_of(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[slice]]:
    """Returns the order by which rows are sorted by group, and where each group then is."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.unique(codes, return_counts=True)[1]).tolist()
    return order, [slice(begin, end) for begin, end in zip([0, *ends], ends)]


def log_normal(x: Vector, mean: float, sd: float) -> Vector:
    return np.asarray(-0.5 * ((x - mean) / sd) ** 2)


def log_half_normal(log_x: Vector) -> Vector:
    """Returns the log-density of log x, x ~ HalfNormal(1)."""
    return np.asarray(-0.5 * np.exp(2 * log_x) + log_x)


def log_half_cauchy_root(log_x: Vector) -> Vector:
    """Returns the log-density of log x, x^(-1/2) ~ HalfCauchy(1)."""
    return np.asarray(-np.log1p(np.exp(-log_x)) - 0.5 * log_x)


def weibull(data: dict[str, Vector], effect: str) -> dict[str, dict[str, float]]:
    """Returns the moments of a Weibull model whose groups have effects.

    Parameters
    ----------
    data : X, time, upper (time itself of an event, inf of none, else the end of an interval), group, and entry where there is one
    effect : the name of the standard deviation of effects
    """
    order, groups = groups_of(data["group"])
    X, time, upper = (data[name][order] for name in ("X", "time", "upper"))
    entry = data["entry"][order] if "entry" in data else None
    exact, between = upper == time, np.isfinite(upper) & (upper != time)
    end, log_time = np.where(between, upper, time), np.log(np.maximum(time, 1e-300))

    def log_posterior(points: Vector) -> Vector:
        log_shape = points[:, 3:4]
        k = np.exp(log_shape)[:, :, np.newaxis]

        def density(eta: Vector, of: slice) -> Vector:
            hazard = np.exp(eta)
            begin, later = time[of] ** k, (end[of] ** k - time[of] ** k) * hazard
            event = np.where(exact[of], log_shape[:, :, np.newaxis] + (k - 1) * log_time[of] + eta, 0.0)
            within = np.where(between[of], np.log(-np.expm1(-np.where(between[of], later, 1.0))), 0.0)
            since = begin if entry is None else begin - entry[of] ** k
            return event + within - since * hazard

        eta = points[:, :1] + points[:, 1:3] @ X.T
        value = over_effects(density, eta, np.exp(points[:, 4]), groups)
        value = value + log_normal(points[:, 0], 0.0, 5.0) + log_normal(points[:, 1:3], 0.0, 2.5).sum(axis=1)
        return np.asarray(value + log_half_cauchy_root(points[:, 3]) + log_half_normal(points[:, 4]))

    def read(points: Vector) -> dict[str, Vector]:
        names = ("intercept", "beta[0]", "beta[1]", "log_shape")
        return dict(zip(names, points.T)) | {effect: np.exp(points[:, 4])}

    return moments(in_parts(log_posterior), np.array([0.0, 0.0, 0.0, 0.0, -0.7]), read)
