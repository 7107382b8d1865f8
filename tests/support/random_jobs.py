"""Random jobs from a seed, as people set them up, and what an analysis of all rows in one place says instead.

A partitioned job draws a family, sites, columns (correlated, factors, skewed, age and age^2, units from 1e-3 to 1e4),
offsets, weights, rare events, counts that vary more than the model says, and settings, mostly the defaults; a vertical one
columns of two or three parties, a sparse one sites that differ, a spatial one a map of several clients. `Drawn.reference` is
the posterior of all rows together by NumPy alone: conjugate, by importance sampling about the mode, by a Gibbs sampler of its
own, or on a grid. Of the package it has nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, logsumexp

import fedkern
from fedkern.arrays import Vector
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior import keys as prior_keys

DRAWS = 20_000  # of a reference
LEAST_DRAWS = 500  # effective ones, below which a reference is none


@dataclass(frozen=True)
class Reference:
    """Name of a parameter -> mean, sd, and the Monte-Carlo errors of both; `draws`: effective ones, infinite of an exact one."""

    of: dict[str, tuple[float, float, float, float]]
    draws: float = np.inf

    @property
    def known(self) -> bool:
        return self.draws >= LEAST_DRAWS


@dataclass(frozen=True)
class Drawn:
    """A random job."""

    seed: int  # of which it is made
    # tables, data: what `fedkern.run` is given
    tables: dict[str, dict[str, Any]]
    data: dict[str, Any]
    reference: Callable[[], Reference]  # computes what is right, of a result's own scale of the columns where it has one
    kind: str  # words for a table
    more: dict[str, Any] = field(default_factory=dict)  # other arguments of `fedkern.run`
    draws: float = np.inf  # effective ones of a fit by noisy steps, which says none


# Rows --------------------


@dataclass
class Federation:
    """Rows of all sites, and the predictor that their responses are drawn with."""

    frames: dict[str, pd.DataFrame]
    eta: dict[str, Vector]

    def add(self, name: str, values: dict[str, Any], effect: float | dict[Any, float]) -> None:
        """A column, and what it does: a slope in units of its pooled standard deviation, or a number for each level."""
        whole = np.concatenate(list(values.values()))
        sd = 1.0 if isinstance(effect, dict) else max(float(whole.std()), 1e-9)
        mean = 0.0 if isinstance(effect, dict) else float(whole.mean())
        for site, frame in self.frames.items():
            frame[name] = values[site]
            if isinstance(effect, dict):
                self.eta[site] += np.array([effect[level] for level in values[site]])
            else:
                self.eta[site] += effect * (values[site] - mean) / sd


def federation(rng: np.random.Generator, fewest: int = 40, most: int = 200) -> Federation:
    """Sites of unequal sizes, still without columns."""
    sizes = rng.integers(fewest, most, rng.integers(2, 6))
    names = [f"s{k}" for k in range(len(sizes))]
    frames = {name: pd.DataFrame(index=range(n)) for name, n in zip(names, sizes)}
    return Federation(frames, {name: np.zeros(n) for name, n in zip(names, sizes)})


def add_columns(made: Federation, rng: np.random.Generator, blocks: int, spread: float = 0.5) -> list[str]:
    """Columns of so many kinds; their kinds."""
    kinds = [str(kind) for kind in rng.choice(list(KINDS), blocks)]
    for k, kind in enumerate(kinds):
        KINDS[kind](made, rng, f"x{k}", spread)
    return kinds


def _sites(made: Federation, draw: Callable[[int], Any]) -> dict[str, Any]:
    return {site: draw(len(frame)) for site, frame in made.frames.items()}


def _normal(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    """In any unit, and not about zero."""
    unit, centre = 10 ** rng.uniform(-3, 4), rng.normal(0, 3)
    made.add(name, _sites(made, lambda n: unit * (centre + rng.normal(size=n))), spread * rng.normal())


def _correlated(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    """Two columns, as two blood pressures."""
    r = rng.choice([0.5, 0.8, 0.95])
    first = _sites(made, lambda n: 130 + 15 * rng.normal(size=n))
    second = {site: 80 + 10 * (r * (x - 130) / 15 + np.sqrt(1 - r * r) * rng.normal(size=len(x))) for site, x in first.items()}
    made.add(name, first, spread * rng.normal())
    made.add(f"{name}b", second, spread * rng.normal())


def _age(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    """And its square."""
    age = _sites(made, lambda n: np.round(rng.normal(55, 12, n)))
    made.add(name, age, spread * rng.normal())
    made.add(f"{name}sq", {site: x**2 for site, x in age.items()}, spread * rng.normal())


def _binary(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    share = rng.choice([0.5, 0.2, 0.05])
    made.add(name, _sites(made, lambda n: (rng.random(n) < share) * 1.0), spread * rng.normal())


def _skewed(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    """Costs, or hormones."""
    made.add(name, _sites(made, lambda n: np.exp(rng.normal(0, 1, n))), 0.6 * spread * rng.normal())


def _factor(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    levels = ["low", "middle", "high", "none"][: rng.integers(2, 5)]
    share = rng.dirichlet(np.full(len(levels), 4.0)) * 0.8 + 0.2 / len(levels)
    effect = dict(zip(levels, spread * rng.normal(size=len(levels))))
    made.add(name, _sites(made, lambda n: rng.choice(levels, n, p=share)), effect)


def _by_site(made: Federation, rng: np.random.Generator, name: str, spread: float) -> None:
    """Of another level at each site."""
    made.add(name, _sites(made, lambda n: rng.normal() + rng.normal(size=n)), spread * rng.normal())


KINDS = {
    "normal": _normal,
    "correlated": _correlated,
    "age": _age,
    "binary": _binary,
    "skewed": _skewed,
    "factor": _factor,
    "by site": _by_site,
}


# Generalised linear models --------------------

FAMILIES = ("bernoulli", "poisson", "gaussian", "negative-binomial")
SETTINGS: tuple[dict[str, dict[str, Any]], ...] = (
    {"algorithm": {"schedule": "synchronous"}},
    {"algorithm": {"schedule": "random"}, "job": {"rounds": 10}},
    {"algorithm": {"schedule": "asynchronous"}, "job": {"rounds": 10}},
    {"algorithm": {"schedule": "synchronous"}, "job": {"rounds": 10}},
    {"job": {"rounds": 1}},
    {"job": {"rounds": 3}},
    {"model": {"covariance": "diagonal"}},
    {"model": {"covariance": "diagonal"}, "algorithm": {"schedule": "synchronous"}, "job": {"rounds": 20}},
    {"model": {"prior_sd": 3.16228}},
    {"model": {"prior_sd": 0.5}},
    {"model": {"intercept_sd": 2.0}},
    {"data": {"standardise": "none"}},
    {"algorithm": {"damping": 0.5}},
    {"algorithm": {"optimiser": "adam", "learning_rate": 0.02, "local_steps": 100}, "job": {"rounds": 20}},
    {"algorithm": {"average": "half"}, "job": {"rounds": 10}},
    {"algorithm": {"variant": "bcm-split"}},
)


def pvi(seed: int, draws: int = DRAWS, most: int = 200) -> Drawn:
    """A partitioned job; `most`: rows of a site."""
    rng = np.random.default_rng([seed, 1])
    family = str(rng.choice(FAMILIES, p=[0.4, 0.25, 0.2, 0.15]))
    made = federation(rng, most=most)
    kinds = add_columns(made, rng, int(rng.integers(1, 4)))
    tables: dict[str, dict[str, Any]] = {
        "job": {"method": "pvi", "seed": seed},
        "data": {"response": "y"},
        "model": {"family": family},
        "algorithm": {},
    }
    if rng.random() < 0.2:
        tables["data"]["offset"] = "off"
        for frame in made.frames.values():
            frame["off"] = rng.normal(0, 0.4, len(frame)) * (10 if family == "gaussian" else 1)
    if rng.random() < 0.15:
        tables["data"]["weight"] = "w"
        counting = rng.random() < 0.5
        for frame in made.frames.values():
            frame["w"] = rng.integers(1, 4, len(frame)) * 1.0 if counting else rng.uniform(0.5, 1.5, len(frame))
    shift = rng.choice([0.0, 0.0, 0.0, 0.7])
    varied = float(rng.choice([np.inf, np.inf, 3.0, 1.0])) if family == "poisson" else float(rng.choice([2.0, 2.0, 0.7]))
    rare = rng.random() < 0.25
    level = _level(family, rng, rare=rare)
    for site, frame in made.frames.items():
        eta = level + made.eta[site] + shift * rng.normal()
        frame["y"] = _response(family, eta, frame, varied, rng)
    if family == "negative-binomial":
        tables["model"]["scale"] = 2.0
    settings = SETTINGS[int(rng.integers(len(SETTINGS)))] if rng.random() < 0.4 else {}
    for section, keys in settings.items():
        tables[section].update(keys)
    set_by_hand = [f"{k}={v}" for keys in settings.values() for k, v in keys.items()]
    said = ", ".join([family, *kinds, *(["rare"] if rare else []), *set_by_hand])
    said += "".join(f", {key}" for key in ("offset", "weight") if key in tables["data"])
    return Drawn(seed, tables, made.frames, partial(reference_of, tables, made.frames, draws, seed), said)


def _level(family: str, rng: np.random.Generator, *, rare: bool) -> float:
    if family == "gaussian":
        return float(rng.normal(0, 3))
    if family == "bernoulli":
        return float(logit(0.03)) if rare else float(rng.normal(0, 1))
    return float(np.log(0.06)) if rare else float(rng.uniform(-0.5, 3))


def _response(family: str, eta: Vector, frame: pd.DataFrame, varied: float, rng: np.random.Generator) -> Vector:
    n = len(eta)
    if family == "gaussian":
        errors = rng.normal(size=n) if varied > 1 else rng.standard_t(4, n)
        return np.round(120 + 12 * (eta + errors), 1) + frame.get("off", 0.0)
    eta = np.clip(eta + frame.get("off", 0.0), -20, 7)
    if family == "bernoulli":
        return (rng.random(n) < expit(eta)) * 1.0
    return rng.poisson(np.exp(eta) * (rng.gamma(varied, 1 / varied, n) if np.isfinite(varied) else 1.0)) * 1.0


@dataclass(frozen=True)
class Design:
    """All rows in one place: standardised columns, and what makes coefficients on the data's scale of theirs."""

    names: list[str]
    X: Vector
    centre: Vector
    scale: Vector


def design(tables: dict[str, dict[str, Any]], frames: dict[str, pd.DataFrame]) -> Design:
    """Intercept, numeric columns less their mean over their sd, a column for every level."""
    pooled = pd.concat(frames.values(), keys=frames.keys())
    plain = tables["data"].get("standardise") == "none"
    names, columns, centre, scale = ["intercept"], [np.ones(len(pooled))], [0.0], [1.0]
    for name in pooled.columns:
        if name in ("y", "off", "w"):
            continue
        if pooled[name].dtype == object or str(pooled[name].dtype).startswith("str"):
            for one in sorted(set(pooled[name])):
                names.append(f"theta[{name}={one}]")
                columns.append((pooled[name] == one).to_numpy() * 1.0)
                centre.append(0.0)
                scale.append(1.0)
            continue
        x = pooled[name].to_numpy(np.float64)
        at, by = (0.0, 1.0) if plain else (float(x.mean()), float(x.std()))
        names.append(f"theta[{name}]")
        columns.append((x - at) / by)
        centre.append(at)
        scale.append(by)
    return Design(names, np.column_stack(columns), np.array(centre), np.array(scale))


def reference_of(tables: dict[str, dict[str, Any]], frames: dict[str, pd.DataFrame], draws: int, seed: int) -> Reference:
    """The normal distribution that is nearest to the posterior of all rows, as q is to be: under the job's priors."""
    pooled, model, made = pd.concat(frames.values()), tables["model"], design(tables, frames)
    family = model["family"]
    y, (off, w) = pooled["y"].to_numpy(np.float64), (_column(pooled, "off", 0.0), _column(pooled, "w", 1.0))
    precision = np.full(len(made.names), float(model.get("prior_sd", 1.0)) ** -2)
    of_intercept = 1.0 if tables["algorithm"].get("optimiser") == "adam" else 5.0
    precision[0] = 1 / float(model.get("intercept_sd", of_intercept)) ** 2
    if family == "gaussian":
        return _linear(made, y - off, w, precision)
    centre = np.zeros(len(precision))
    events, at_risk = float(w @ y), float(w.sum() if family == "bernoulli" else w @ np.exp(off))
    rate = max(events, 0.5) / at_risk
    centre[0] = logit(min(rate, 1 - 0.5 / at_risk)) - float(off.mean()) if family == "bernoulli" else np.log(rate)

    def rows(eta: Vector) -> tuple[Vector, Vector, Vector]:
        return log_likelihood(family, y, eta + off, float(model.get("scale", 1.0)))

    mean, covariance = nearest(made.X, w, rows, centre, precision)
    half = np.random.default_rng([seed, 2]).standard_normal((draws // 2, len(mean))) @ np.linalg.cholesky(covariance).T
    return weighed(made, np.concatenate([mean + half, mean - half]), np.full(2 * len(half), 0.5 / len(half)))


def _column(pooled: pd.DataFrame, name: str, default: float) -> Vector:
    return pooled[name].to_numpy(np.float64) if name in pooled else np.full(len(pooled), default)


def log_likelihood(family: str, y: Vector, eta: Vector, scale: float) -> tuple[Vector, Vector, Vector]:
    """Of each row, with two derivatives in eta; but for constants."""
    if family == "bernoulli":
        p = expit(eta)
        return y * eta - np.logaddexp(0, eta), y - p, -p * (1 - p)
    if family == "poisson":
        mean = np.exp(np.minimum(eta, 300))
        return y * eta - mean, y - mean, -mean
    p = expit(eta - np.log(scale))
    return y * eta - (y + scale) * np.logaddexp(0, eta - np.log(scale)), y - (y + scale) * p, -(y + scale) * p * (1 - p)


Rows = Callable[[Vector], tuple[Vector, Vector, Vector]]


def importance(
    X: Vector, w: Vector, rows: Rows, centre: Vector, precision: Vector, draws: int, rng: np.random.Generator
) -> tuple[Vector, Vector]:
    """Draws and their normalised weights, from t distributions about the mode and then about the weighted moments."""
    mean, covariance = _mode(X, w, rows, centre, precision)
    d, df = len(mean), 8.0
    theta, weights = np.zeros((0, d)), np.zeros(0)
    for _ in range(3):
        L = np.linalg.cholesky(covariance)
        half = rng.standard_normal((draws // 2, d)) / np.sqrt(rng.chisquare(df, (draws // 2, 1)) / df)
        e = np.concatenate([half, -half])
        theta = mean + e @ L.T
        log_p = np.concatenate([rows(part @ X.T)[0] @ w for part in np.array_split(theta, 20)])
        log_p -= 0.5 * ((theta - centre) ** 2 @ precision)
        log_w = log_p + 0.5 * (df + d) * np.log1p((e**2).sum(axis=1) / df)
        weights = np.exp(log_w - logsumexp(log_w))
        if 1 / (weights**2).sum() > 0.4 * draws:
            break
        mean = weights @ theta
        covariance = (theta - mean).T @ (weights[:, None] * (theta - mean)) + 1e-12 * np.diag(np.diag(covariance))
    return theta, weights


def nearest(X: Vector, w: Vector, rows: Rows, centre: Vector, precision: Vector) -> tuple[Vector, Vector]:
    """Mean and covariance of the q that has the least KL(q || posterior): means of slopes and curvatures by quadrature."""
    mean, covariance = _mode(X, w, rows, centre, precision)
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    P = np.linalg.inv(covariance)
    for _ in range(500):  # by halves, for whole steps go round where a column separates the responses
        eta = (X @ mean)[:, None] + np.sqrt(np.einsum("ij,jk,ik->i", X, covariance, X))[:, None] * nodes
        parts = [rows(column) for column in eta.T]
        slope, bend = (np.stack([part[i] for part in parts], axis=1) @ weights / weights.sum() for i in (1, 2))
        P = 0.5 * P + 0.5 * (X.T @ (-(w * bend)[:, None] * X) + np.diag(precision))
        covariance = np.linalg.inv(P)
        step = 0.5 * covariance @ (X.T @ (w * slope) - precision * (mean - centre))
        mean = mean + step
        if (np.abs(step) < 1e-9 * np.sqrt(np.diag(covariance))).all():
            break
    return mean, covariance


def _mode(X: Vector, w: Vector, rows: Rows, centre: Vector, precision: Vector) -> tuple[Vector, Vector]:
    """Newton's, halved where it does not climb; with the inverse of its curvature."""
    theta = centre.copy()

    def value(at: Vector) -> float:
        return float(w @ rows(X @ at)[0] - 0.5 * precision @ (at - centre) ** 2)

    for _ in range(200):
        _, slope, bend = rows(X @ theta)
        H = X.T @ (-(w * bend)[:, None] * X) + np.diag(precision)
        step = np.linalg.solve(H, X.T @ (w * slope) - precision * (theta - centre))
        size, now = 1.0, value(theta)
        while value(theta + size * step) < now - 1e-9 * abs(now) and size > 1e-10:
            size /= 2
        theta = theta + size * step
        if np.abs(step).max() < 1e-9:
            break
    return theta, np.linalg.inv(H)


def on_data(made: Design, theta: Vector, level: float = 0.0, unit: float = 1.0) -> dict[str, Vector]:
    """Parameters under the names of a result: on the data's scale, and on that of standardised columns where it differs.

    The first level of each column is its reference: the intercept is there, and other levels are their differences from it.
    """
    slopes, first = theta * unit, dict[str, int]()
    for j, name in enumerate(made.names):
        column = name.partition("=")[0]
        if "=" in name and column != "theta[client":
            slopes[:, j] -= slopes[:, first[column]] if first.setdefault(column, j) != j else 0.0
    at_first = slopes[:, [*first.values()]].sum(axis=1)
    slopes[:, 0] += at_first
    kept = [j for j in range(len(made.names)) if j not in first.values()]
    slopes, scale, centre, names = slopes[:, kept], made.scale[kept], made.centre[kept], [made.names[j] for j in kept]
    natural = slopes / scale
    natural[:, 0] = level + slopes[:, 0] - (slopes[:, 1:] * (centre / scale)[1:]).sum(axis=1)
    found = {name: natural[:, j] for j, name in enumerate(names)}
    if np.any(centre != 0) or np.any(scale != 1):
        found["intercept_std"] = level + slopes[:, 0]
        for j, name in enumerate(names[1:], 1):
            if scale[j] != 1 or centre[j] != 0:
                found[name.replace("theta[", "theta_std[")] = slopes[:, j]
    return found


def weighed(made: Design, theta: Vector, weights: Vector) -> Reference:
    """Of weighted draws, with errors by the delta method."""
    out = {}
    for name, x in on_data(made, theta).items():
        mean = float(weights @ x)
        square = (x - mean) ** 2
        sd = float(np.sqrt(weights @ square))
        error = float(np.sqrt(weights**2 @ square))
        out[name] = (mean, sd, error, float(np.sqrt(weights**2 @ (square - sd**2) ** 2)) / (2 * sd))
    return Reference(out, float(1 / (weights**2).sum()))


def _linear(made: Design, y: Vector, w: Vector, precision: Vector) -> Reference:
    """Conjugate, with the errors' sd where the marginal likelihood is largest; priors are in sds of the response."""
    level = float(w @ y / w.sum())
    unit = float(np.sqrt(w @ (y - level) ** 2 / w.sum()))
    z, d = (y - level) / unit, len(precision)
    gram, cross, square, n = made.X.T @ (w[:, None] * made.X), made.X.T @ (w * z), float(w @ z**2), float(w.sum())

    def loss(log_sd: float) -> float:
        v = np.exp(2 * log_sd)
        L = np.linalg.cholesky(gram / v + np.diag(precision))
        half = solve_triangular(L, cross / v, lower=True)
        return float(n * log_sd + 0.5 * square / v - 0.5 * half @ half + np.log(np.diag(L)).sum())

    v = np.exp(2 * minimize_scalar(loss, bounds=(-8, 3), method="bounded", options={"xatol": 1e-10}).x)
    covariance = np.linalg.inv(gram / v + np.diag(precision))
    mean = covariance @ (cross / v)
    # The map to the data's scale is linear: its columns are what it makes of unit vectors.
    zero = on_data(made, np.zeros((1, d)), level, unit)
    units = on_data(made, np.eye(d), level, unit)
    out = {}
    for name in zero:
        row = units[name] - zero[name][0]
        out[name] = (float(zero[name][0] + row @ mean), float(np.sqrt(row @ covariance @ row)), 0.0, 0.0)
    return Reference(out)


# Columns of the same rows at several parties --------------------

SEEN = 2500.0  # draws that the noise of a fit by steps is worth, at least: it says that it moved by less than 0.1 sd


def vertical(seed: int, draws: int = DRAWS) -> Drawn:
    """A vertical job whose parties' columns have nothing to do with each other: of others its first line says what is off."""
    rng = np.random.default_rng([seed, 2])
    family = str(rng.choice(["bernoulli", "poisson", "gaussian"]))
    n, eta = int(rng.integers(120, 250)), np.zeros(0)
    data = {}
    for party in ("a", "b", "c")[: rng.integers(2, 4)]:
        made = Federation({party: pd.DataFrame(index=range(n))}, {party: np.zeros(n)})
        kinds = [str(one) for one in rng.choice(["normal", "binary", "skewed"], rng.integers(1, 3))]
        for k, kind in enumerate(kinds):
            KINDS[kind](made, rng, f"{party}{k}", 0.4)
        eta = (eta if len(eta) else np.zeros(n)) + made.eta[party]
        data[party] = made.frames[party].assign(id=np.arange(n))
    level = {"bernoulli": rng.normal(0, 1), "poisson": rng.uniform(-0.3, 1.5), "gaussian": rng.normal(0, 0.5)}[family]
    eta = eta + level
    if family == "gaussian":
        y = eta + rng.choice([0.5, 1.0]) * rng.normal(size=n)
    else:
        y = (rng.random(n) < expit(eta)) * 1.0 if family == "bernoulli" else rng.poisson(np.exp(np.clip(eta, -9, 5))) * 1.0
    tables = {"job": {"method": "vertical", "seed": seed}, "data": {"id": "id", "response": "y"}, "model": {"family": family}}
    server = pd.DataFrame({"id": np.arange(n), "y": y})
    reference = partial(_undivided, family, data, y, draws, seed)
    return Drawn(seed, tables, data, reference, f"vertical {family}, {len(data)} parties", {"server": server}, SEEN)


def _undivided(family: str, data: dict[str, pd.DataFrame], y: Vector, draws: int, seed: int) -> Reference:
    """All columns together; the intercept's prior is N(level, 5^2), as that of an open amortised job."""
    own = [frame.drop(columns="id") for frame in data.values()]
    joined = pd.concat(own, axis=1).assign(y=y)
    made = design({"data": {}, "model": {}}, {"all": joined})
    d = len(made.names)
    centre, precision = np.zeros(d), np.ones(d)
    centre[0] = {"gaussian": y.mean(), "poisson": np.log(y.mean()), "bernoulli": logit(y.mean())}[family]
    precision[0] = 1 / 25
    if family == "gaussian":
        wide = precision**-0.5
        theta, weights, extra = _with_sigma(made.X * wide, y - centre[0], draws, np.random.default_rng([seed, 3]))
        theta = centre + theta * wide
    else:
        extra = np.zeros(0)

        def rows(eta: Vector) -> tuple[Vector, Vector, Vector]:
            return log_likelihood(family, y, eta, 1.0)

        theta, weights = importance(made.X, np.ones(len(y)), rows, centre, precision, draws, np.random.default_rng([seed, 3]))
    mean = weights @ theta
    sds = np.sqrt(weights @ (theta - mean) ** 2)
    ess = float(1 / (weights**2).sum())
    out = {
        name.replace("theta[", "theta_std["): (float(m), float(sd), float(sd / np.sqrt(ess)), float(sd / np.sqrt(2 * ess)))
        for name, m, sd in zip(made.names, mean, sds)
    }
    if len(extra):
        at = float(weights @ extra)
        sd = float(np.sqrt(weights @ (extra - at) ** 2))
        out["log_sigma"] = (at, sd, float(sd / np.sqrt(ess)), float(sd / np.sqrt(2 * ess)))
    return Reference(out, ess)


def _with_sigma(X: Vector, y: Vector, draws: int, rng: np.random.Generator) -> tuple[Vector, Vector, Vector]:
    """Draws of coefficients ~ N(0, 1), equal weights, and log sigma of sigma ~ HalfNormal(1): by a grid, and conjugate."""
    grid = np.linspace(-4, 3, 4000)
    values, vectors = np.linalg.eigh(X.T @ X)
    cross, v = vectors.T @ (X.T @ y), np.exp(2 * grid)[:, None]
    P = values / v + 1
    log_p = -len(y) * grid - 0.5 * (y @ y) / v[:, 0] + 0.5 * ((cross / v) ** 2 / P).sum(1) - 0.5 * np.log(P).sum(1)
    log_p += grid - 0.5 * np.exp(2 * grid)
    k = rng.choice(len(grid), draws, p=np.exp(log_p - logsumexp(log_p)))
    theta = ((cross / v[k]) / P[k] + rng.standard_normal((draws, len(values))) / np.sqrt(P[k])) @ vectors.T
    return theta, np.full(draws, 1 / draws), grid[k]


# Sparse regressions --------------------


def sparse(seed: int, sweeps: int = 4000) -> Drawn:
    """A regression of three or five sites of one size, some of whose effects differ."""
    rng = np.random.default_rng([seed, 4])
    m, n, p = int(rng.choice([3, 5])), int(rng.integers(40, 120)), int(rng.integers(1, 5))
    effect = rng.normal(0, 0.5, p) * (rng.random(p) < 0.6)
    unit, data = 10 ** rng.uniform(-3, 3, p), {}
    r = rng.choice([0.0, 0.6])
    for k in range(m):
        X = rng.normal(size=(n, p))
        X[:, 1:] = r * X[:, :1] + np.sqrt(1 - r * r) * X[:, 1:]
        own = effect + rng.choice([0.0, 0.2]) * rng.normal(size=p)
        y = rng.normal() + X @ own + rng.choice([0.6, 1.0]) * rng.normal(size=n)
        data[f"s{k}"] = pd.DataFrame(X * unit, columns=[f"x{j}" for j in range(p)]).assign(y=80 + 12 * y)
    tables = {"job": {"method": "sparse", "seed": seed}, "data": {"response": "y"}, "model": {}}
    return Drawn(seed, tables, data, partial(_hierarchy, data, sweeps, seed), f"sparse, {m} sites of {n}, {p} columns")


def _hierarchy(data: dict[str, pd.DataFrame], sweeps: int, seed: int) -> Reference:
    """Section 1 of the sparse models' page, in units of the median site's sds, by Gibbs steps with auxiliary scales.

    Sixty-four chains; a quarter of the sweeps is left out, and errors are those of chains' means.
    """
    rng, chains = np.random.default_rng([seed, 5]), 64
    names = [name for name in next(iter(data.values())) if name != "y"]
    units = {name: np.sqrt(np.median([frame[name].var(ddof=1) for frame in data.values()])) for name in [*names, "y"]}
    centred = [frame - frame.mean() for frame in data.values()]
    X = np.stack([(frame[names] / [units[name] for name in names]).to_numpy() for frame in centred])
    y = np.stack([(frame["y"] / units["y"]).to_numpy() for frame in centred])
    (m, n, p), c0 = X.shape, 0.01
    gram, cross, square = np.einsum("mni,mnj->mij", X, X), np.einsum("mni,mn->mi", X, y), (y**2).sum(1)

    def inverse_gamma(shape: Any, rate: Any) -> Vector:
        return np.asarray(np.clip(rate, 1e-200, 1e200) / rng.standard_gamma(shape, np.shape(rate)))

    theta, tau, xi = np.zeros((chains, p)), np.ones((chains, p)), np.ones((chains, p))
    own, lam, nu = np.zeros((chains, m, p)), np.ones((chains, m, p)), np.ones((chains, m, p))
    sigma, eta, rho = np.ones((chains, m)), np.ones((chains, 1)), np.full((chains, 1), 0.5)
    kept: list[Vector] = []
    for sweep in range(sweeps):
        w = 1 / np.clip(lam * tau[:, None], 1e-12, 1e12)
        P = gram / sigma[..., None, None] + w[..., None] * np.eye(p)
        L = np.linalg.cholesky(P)
        rhs = cross / sigma[..., None] + w * theta[:, None]
        mean = np.linalg.solve(P, rhs[..., None])
        own = (mean + np.linalg.solve(np.swapaxes(L, -1, -2), rng.standard_normal((chains, m, p, 1))))[..., 0]
        misfit = square - 2 * np.einsum("cmi,mi->cm", own, cross) + np.einsum("cmi,mij,cmj->cm", own, gram, own)
        sigma = inverse_gamma(2.0 + (n - 1) / 2, 1.0 + misfit / 2)
        d = (own - theta[:, None]) ** 2
        nu = inverse_gamma(1.0, 1 + 1 / lam)
        lam = inverse_gamma(1.0, 1 / nu + d / (2 * tau[:, None]))
        xi = inverse_gamma(1.0, 1 + 1 / tau)
        tau = inverse_gamma((m + 1) / 2, 1 / xi + (d / lam).sum(1) / 2)
        w = 1 / np.clip(lam * tau[:, None], 1e-12, 1e12)
        W, at = w.sum(1), (w * own).sum(1) / w.sum(1)
        wide, narrow = eta + 1 / W, c0 * eta + 1 / W
        odds = logit(np.clip(rho, 1e-12, 1 - 1e-12)) - 0.5 * (np.log(wide / narrow) + at**2 / wide - at**2 / narrow)
        chance = expit(odds)
        inside = rng.random((chains, p)) < chance
        v = np.where(inside, eta, c0 * eta)
        theta = W * at / (W + 1 / v) + rng.standard_normal((chains, p)) / np.sqrt(W + 1 / v)
        eta = inverse_gamma(2.0 + p / 2, 1.0 + (theta**2 / np.where(inside, 1.0, c0)).sum(1, keepdims=True) / 2)
        rho = rng.beta(1 + inside.sum(1), 1 + p - inside.sum(1))[:, None]
        if sweep >= sweeps // 4:
            kept.append(np.concatenate([theta, own.mean(1), own.std(1, ddof=1), chance], axis=1))
    draws = np.stack(kept)  # (sweeps, chains, 4 p)
    out = {}
    for k, kind in enumerate(("theta", "average", "between_sd", "pip")):
        for j, name in enumerate(names):
            x = draws[..., k * p + j]
            square_of = (x - x.mean()) ** 2
            sd = float(np.sqrt(square_of.mean()))
            errors = [float(one.mean(0).std(ddof=1) / np.sqrt(chains)) for one in (x, square_of)]
            out[f"{kind}_std[{name}]"] = (float(x.mean()), sd, errors[0], errors[1] / (2 * sd))
    return Reference(out)


# Maps --------------------


@dataclass(frozen=True)
class Map:
    """A grid of areas in strips, one strip a client; `pairs` of neighbours, `area` and y of each row."""

    clients: list[str]
    places: Vector
    pairs: list[tuple[int, int]]
    area: NDArray[np.int64]
    y: Vector


def sigma(seed: int, folder: Path, rounds: int | None = None, inference: str = "sfvi") -> Drawn:
    """A map of two to four clients with Gaussian rows, whose prior (CAR) is exact inside each client; files in `folder`."""
    rng = np.random.default_rng([seed, 6])
    wide, high = int(rng.integers(4, 8)), int(rng.integers(3, 6))
    n = wide * high
    places = np.array([(i % wide, i // wide) for i in range(n)], float)
    pairs = [(i, j) for i in range(n) for j in range(i) if np.abs(places[i] - places[j]).sum() == 1]
    strips = np.minimum(places[:, 0] * int(rng.integers(2, 5)) // wide, 3).astype(int)
    phi, sd, error = rng.uniform(0.3, 0.97), rng.uniform(0.3, 1.5), rng.uniform(0.3, 1.0)
    theta = np.linalg.solve(np.linalg.cholesky(_car(n, pairs, phi)).T, rng.standard_normal(n))
    area = np.repeat(np.arange(n), int(rng.integers(1, 4)))
    y = np.round(120 + 10 * (sd * theta[area] + error * rng.standard_normal(len(area))), 2)
    made = Map([f"c{k}" for k in strips], places, pairs, area, y)
    _built(made, folder)
    rows = pd.DataFrame({"area": [f"a{i}" for i in area], "y": y})
    here = {client: [made.clients[i] == client for i in area] for client in sorted(set(made.clients))}
    data = {client: rows[those].reset_index(drop=True) for client, those in here.items()}
    tables: dict[str, dict[str, Any]] = {
        "job": {"method": "sigma", "seed": seed} | ({} if rounds is None else {"rounds": rounds}),
        "data": {"area": "area", "response": "y", "rows_per_area": "any"},
        "model": {"family": "gaussian"},
        "algorithm": {"inference": inference},
    }
    said = f"sigma {inference}, gaussian, {len(data)} clients, {n} areas, {len(area) // n} rows each"
    return Drawn(seed, tables, data, partial(_smoothed, made), said, {"prior": folder / "prior"}, SEEN)


def _car(n: int, pairs: list[tuple[int, int]], phi: float) -> Vector:
    """The precision D - phi W."""
    Q = np.zeros((n, n))
    for i, j in pairs:
        Q[i, j] = Q[j, i] = -phi
        Q[i, i] += 1
        Q[j, j] += 1
    return Q


def _built(made: Map, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"a{i},{client},{x:g},{y:g}" for i, (client, (x, y)) in enumerate(zip(made.clients, made.places))]
    (folder / "areas.csv").write_text("\n".join(["area,client,x,y", *lines]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["one,other", *(f"a{i},a{j}" for i, j in made.pairs)]) + "\n")
    data = {"areas": "areas.csv", "area": "area", "client": "client", "x": "x", "y": "y", "adjacency": "edges.csv"}
    build.perform(prior_keys.parse({"prior": {"kind": "car"}, "data": data}), folder, Output(folder / "prior", quiet=True))


def _smoothed(made: Map) -> Reference:
    """phi, sigma_theta, sigma and the intercept by a grid over the first three: given these all else is normal. In units of the
    response: sigma_theta, sigma ~ HalfNormal(1), the intercept N(0, 25), logit phi ~ N(0, 2) below 0.99."""
    level, unit, n = float(made.y.mean()), float(made.y.std()), len(made.places)
    z, A = (made.y - level) / unit, np.eye(n)[made.area]
    phis = expit(np.linspace(-6, logit(0.99), 60))
    spatial, errors = np.exp(np.linspace(np.log(0.01), np.log(4), 70)), np.exp(np.linspace(np.log(0.05), np.log(3), 70))
    s2, e2 = spatial[:, None, None] ** 2, errors[None, :, None] ** 2
    log_p, at, variance = (np.empty((len(phis), len(spatial), len(errors))) for _ in range(3))
    for k, phi in enumerate(phis):
        values, vectors = np.linalg.eigh(A @ np.linalg.inv(_car(n, made.pairs, phi)) @ A.T)
        v = s2 * np.maximum(values, 0) + e2
        one, own = vectors.T @ np.ones(len(z)), vectors.T @ z
        precision = (one**2 / v).sum(-1) + 1 / 25
        at[k], variance[k] = (one * own / v).sum(-1) / precision, 1 / precision
        log_p[k] = -0.5 * (np.log(v).sum(-1) + (own**2 / v).sum(-1) + np.log(precision)) + 0.5 * at[k] ** 2 * precision
        log_p[k] -= 0.25 * logit(phi) ** 2  # even steps of logit phi: its own density
    log_p += np.log(spatial)[:, None] - 0.5 * s2[..., 0] + np.log(errors) - 0.5 * e2[..., 0]
    p = np.exp(log_p - logsumexp(log_p))

    def moments(x: Vector) -> tuple[float, float]:
        mean = float((p * x).sum())
        return mean, float(np.sqrt((p * (x - mean) ** 2).sum()))

    mean, spread = moments(at)
    intercept = level + unit * mean, unit * np.hypot(spread, np.sqrt((p * variance).sum()))
    found = {"phi": moments(phis[:, None, None]), "intercept": intercept}
    for name, x in (("sigma_theta", spatial[:, None]), ("sigma", errors)):
        own_mean, own_sd = moments(x)
        found[name] = unit * own_mean, unit * own_sd
    return Reference({name: (float(m), float(sd), 0.0, 0.0) for name, (m, sd) in found.items()})


# What is asked --------------------

MEAN, SD, ERRORS = 0.1, 0.10, 4.0  # sds of a mean, parts of an sd, and Monte-Carlo errors beside them
SURE = 0.03  # of an inclusion probability


@dataclass(frozen=True)
class Fitted:
    """The word and the first line of a result, and all that it says of parameters, in every party's folder."""

    converged: Any
    verdict: str
    parameters: dict[str, dict[str, float]]

    @property
    def judged(self) -> bool:
        """Whether it says that its numbers are right, and not that this is not known."""
        return self.converged in (True, "settled") and "whether it is right is not known" not in self.verdict


def fitted(job: Drawn) -> Fitted:
    """The real job, in this process."""
    with TemporaryDirectory() as folder:
        result = fedkern.run(job.tables, data=job.data, out=f"{folder}/run", **job.more)
        parameters = {name: dict(one) for name, one in result.summary["parameters"].items()}
        for file in Path(folder).glob("run/*/posterior.json"):
            if job.tables["job"]["method"] == "vertical":
                parameters |= json.loads(file.read_text("utf-8"))["parameters"]
    return Fitted(result.summary["converged"], result.summary["verdict"], parameters)


def faults(fit: Fitted, reference: Reference, draws: float = np.inf) -> list[str]:
    """Parameters that are farther from the reference than is allowed, in words. Both have Monte-Carlo errors: a result's by
    its effective draws (`ess`), or `draws` where it says none."""
    said = []
    for name, (mean, sd, mean_error, sd_error) in reference.of.items():
        if name.startswith("pip_std["):
            found = fit.parameters[name.replace("pip", "theta", 1)]
            room = SURE + ERRORS * np.hypot(mean_error, found["pip_mcse"])
            if not abs(found["pip"] - mean) <= room:
                said.append(f"{name}: {found['pip']:.3f}, right is {mean:.3f} (allowed {room:.3f})")
            continue
        found = fit.parameters[name if name in fit.parameters else name.replace("_std", "")]
        ess = found.get("ess", draws)
        off, room = abs(found["mean"] - mean) / sd, MEAN + ERRORS * np.hypot(mean_error / sd, 1 / np.sqrt(ess))
        ratio, width = found["sd"] / sd, SD + ERRORS * np.hypot(sd_error / sd, 1 / np.sqrt(2 * ess))
        if not off <= room:
            said.append(f"{name}: mean {off:.3f} sds off (allowed {room:.3f})")
        if not abs(ratio - 1) <= width:
            said.append(f"{name}: sd {ratio:.3f} times the right one (allowed within {width:.3f})")
    return said
