"""Defines rows of generalised linear models, their Gaussian priors, and measures of how well a posterior predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arrays import Vector
from ..kernels import glm as kernels
from ..kernels import homes
from ..kernels.families import FAMILIES, Scale
from ..kernels.homes import Home, on_host
from .expfam import Gaussian

BLOCK = 1 << 14
NORMAL = 1.482602218505602  # standard deviation of a normal variable over its median absolute deviation
FEW = 1 << 10  # rows, where each has a number for each draw
LARGEST = 30.0  # of a predictor that is looked for


@dataclass(frozen=True)
class Rows:
    """Holds a client's rows; no message has them as a field.

    Attributes
    ----------
    X : (n, d) float32 or float64, any strides; of the host, then also a memory map, or of a device, as all others; a row with a
        number that is not finite counts as nothing in private jobs
    y : (n,) response: 0 or 1, counts, or real numbers
    offset, weights : (n,) or None
    units : where weights are numbers of equal rows (successes and failures of trials), (n,) which row of a file each is
    """

    X: Vector
    y: Vector
    offset: Vector | None = None
    weights: Vector | None = None
    units: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def home(self) -> Home:
        """The host or device that holds the arrays."""
        return homes.of(self.X)

    def at(self, home: Home) -> Rows:
        """Returns the same rows on that home; copied, if it is another."""
        return replace(Rows(*home.all(self.X, self.y, self.offset, self.weights)), units=self.units)

    @cached_property
    def largest(self) -> Vector:
        """The (n,) largest size of a number in X of each row."""
        xp = self.home.xp
        blocks = (self.X[begin : begin + BLOCK] for begin in range(0, len(self), BLOCK))  # X may be a memory map
        largest: Vector = xp.concatenate([xp.zeros(0), *(xp.abs(block).max(axis=1, initial=0.0) for block in blocks)])
        return largest

    @property
    def counts(self) -> Vector | None:
        """The (n,) number of equal rows that each row stands for; None where each is one, whatever it weighs."""
        return None if self.units is None else self.weights

    @property
    def n_units(self) -> int:
        """The number of rows of the file."""
        return len(self) if self.units is None else len(np.unique(self.units))

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether, (n,), all numbers of a row are finite."""
        good = np.isfinite(self.y)
        for values in (self.offset, self.weights):
            if values is not None:
                good &= np.isfinite(values)
        for begin in range(0, len(self), BLOCK):  # X may be a memory map
            good[begin : begin + BLOCK] &= np.isfinite(self.X[begin : begin + BLOCK]).all(axis=1)
        is_finite: NDArray[np.bool_] = on_host(good)
        return is_finite

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Returns some of the rows, copied where they live."""
        index = self.home.put(index)
        offset = None if self.offset is None else self.offset[index]
        weights = None if self.weights is None else self.weights[index]
        return Rows(self.X[index], self.y[index], offset, weights)


def prior(d: int, precision: float = 1.0, covariance: str = "diagonal") -> Gaussian:
    """Returns N(0, I / precision), in the form that the posterior will have."""
    P = np.full(d, float(precision))
    squares = P if covariance == "diagonal" else np.diag(P)
    return Gaussian(np.zeros(d), squares)


def averaged(*, private: bool) -> str:
    """Returns how probabilities of a logistic model are averaged for metrics.

    In private jobs it is the published figures' way (pvi.md, section 13), which is too large by a quarter and more for rare
    events.
    """
    return "probit" if private else "quadrature"


def predictive_mean(q: Gaussian, rows: Rows, family: str, scale: float = 1.0, method: str = "quadrature") -> Vector:
    """Returns the posterior predictive mean of each row's response; `method` of a bernoulli one is as in `kernels.predict`."""
    spread = -0.5 * np.log(q.P) if q.diagonal else q.scale_tril
    return kernels.predict(rows.X, q.mean, spread, family=family, method=method, offset=rows.offset, scale=scale)


def metrics(q: Gaussian, rows: Rows, family: str, scale: float = 1.0, method: str = "quadrature") -> dict[str, float]:
    """Measures how well q predicts held-out rows; `method` is as in `predictive_mean`. Returns log_likelihood, the mean of the
    family's `predictive` (bernoulli: log(p + 1e-10), docs/spec/pvi.md, section 13; counts: at the predictive mean; gaussian: the
    log predictive density), and accuracy at 1/2 of a binary response, else rmse."""
    p, y, record = predictive_mean(q, rows, family, scale, method), rows.y, FAMILIES[family]
    assert record.predictive is not None  # a record without it is refused where pvi takes the family
    density = record.predictive(y, p, lambda: q.variance_of(np.asarray(rows.X, np.float64)), scale)
    log_likelihood = float(np.average(density, weights=rows.counts))
    if record.binary:
        right = (p > 0.5) == (y > 0.5)
        return {"accuracy": float(np.average(right, weights=rows.counts)), "log_likelihood": log_likelihood}
    return {"log_likelihood": log_likelihood, "rmse": float(np.sqrt(((y - p) ** 2).mean()))}


def pearson_sums(
    rows: Rows, theta: Vector, family: str, scale: float = 1.0, most: float = np.inf
) -> tuple[int, float, float, float, float, float]:
    """Sums how responses vary about their means at theta (d,), relative to the family, block by block.

    Blocks are for an X that may be a memory map.

    Returns
    -------
    number of rows that have a weight; the mean of these weights; sum of y where it is a count; with weights of mean 1, sums of
    (y - mu)^2 / V, of the variance that this has where the model is right (with squared weights) and, for counts, of mu^2 / V.
    Sums
    are 0 in families whose variance the mean decides alone. A row adds at most `most`, and nothing where that is no number.
    """
    record, counts = FAMILIES[family], FAMILIES[family].counted
    all_weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    weighed = np.flatnonzero(all_weights)
    if rows.weights is None:
        weight = 1.0
    elif len(weighed):
        weight = float(rows.weights[weighed].mean())
    else:
        weight = 0.0
    total = np.zeros(4)
    n_noisy = len(weighed) if record.noise is not None else 0
    for begin in range(0, n_noisy, BLOCK):
        some = rows.take(weighed[begin : begin + BLOCK])
        eta = np.asarray(some.X, np.float64) @ theta
        shifted = eta if some.offset is None else eta + some.offset
        mean = record.mean(shifted)
        mean = np.maximum(mean, 1e-30) if counts else mean
        assert record.noise is not None
        variance, noise = record.spread(mean, scale, None), record.noise(mean, scale)
        w = np.ones(len(some)) if some.weights is None else some.weights / weight
        parts = some.y * counts, w * (some.y - mean) ** 2 / variance, w**2 * noise, w * mean**2 / variance * counts
        total += [_added(part, most) for part in parts]
    events, misfit, noisy, slope = total.tolist()
    return len(weighed), weight, events, misfit, noisy, slope


def _added(parts: Vector, most: float) -> float:
    """Returns the sum of what rows add."""
    bounded = parts if most == np.inf else np.fmin(np.nan_to_num(parts), most)
    return float(bounded.sum())


def on_average(rows: Rows, family: str, scale: Scale = 1.0) -> float:
    """Returns the mean log-likelihood of rows that are all predicted by their average; to predict worse is worse than guessing.

    The average is their rate (of counts, by exposure), or their mean and variance, of a heavy-tailed response median and spread.
    Of a family whose mean says no density it is the predictor that predicts them best.
    """
    record, y = FAMILIES[family], rows.y
    if record.predictive is None:
        from scipy.optimize import minimize_scalar  # takes long to import

        offset = np.zeros(len(y)) if rows.offset is None else rows.offset

        def worse(eta: float) -> float:
            return -float(np.average(record.value(y, eta + offset, scale, None), weights=rows.counts))

        return -float(minimize_scalar(worse, bounds=(-LARGEST, LARGEST), method="bounded").fun)
    exposure = np.ones(len(y)) if record.link != "log" or rows.offset is None else np.exp(rows.offset)
    mean = exposure * y.sum() / exposure.sum() if rows.counts is None else np.full(len(y), np.average(y, weights=rows.counts))
    if record.link == "log":
        mean = np.maximum(mean, 1e-10)
    if record.name == "student":  # which has no variance where tails are heavy
        offset = np.zeros(len(y)) if rows.offset is None else rows.offset
        centre = float(np.median(y - offset))
        sd, nu = np.asarray(scale).tolist()
        mean, scale = offset + centre, np.array([max(sd, NORMAL * float(np.median(np.abs(y - offset - centre)))), nu])
    noise = max(float(y.var()) - float(scale) ** 2, 1e-12) if record.linear else 0.0
    spread = np.full(len(y), noise)
    return float(np.average(record.predictive(y, mean, lambda: spread, scale), weights=rows.counts))


def tested(q: Gaussian, rows: Rows, family: str, scale: float, method: str) -> dict[str, object]:
    """Returns the number of test rows, `on_average` of them and, of a binary response, the bins of a calibration plot. `method`:
    as in `predictive_mean`."""
    n = len(rows) if rows.counts is None else int(rows.counts.sum())
    content: dict[str, object] = {"rows": n, "guess": on_average(rows, family, scale)}
    if FAMILIES[family].binary:
        content["reliability"] = reliability(predictive_mean(q, rows, family, scale, method), rows.y, counts=rows.counts)
    return content


def reliability(p: Vector, y: Vector, bins: int = 10, counts: Vector | None = None) -> list[dict[str, float]]:
    """Groups predicted probabilities (n,) in tenths: rows, mean probability and observed frequency of each bin that has some.
    `counts`: number of equal rows that each stands for."""
    which = np.minimum((p * bins).astype(int), bins - 1)
    n = np.ones(len(p)) if counts is None else counts
    return [
        {
            "rows": int(n[here].sum()),
            "probability": float(np.average(p[here], weights=None if counts is None else n[here])),
            "frequency": float(np.average(y[here], weights=None if counts is None else n[here])),
        }
        for here in (which == b for b in np.unique(which))
    ]
