"""Predicts rows of clients and groups that a posterior has not seen.

A row's mean is an average over draws of the posterior, and over the effects of a new group and of a new client: together they are
one normal number of each row. A gaussian response has both integrals in closed form.

Source: docs/spec/likelihood.md, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from ...arrays import Array
from ...data.design import Design
from ...kernels import rng
from ...kernels.families import FAMILIES
from ...models.encoding import INTERCEPT, Encoding
from ...models.glm import Rows, on_average, reliability
from ...models.mixed import Layout
from ...models.mixed.layout import title
from ...models.mixed.predictive import Keyed
from ...models.mixed.quadrature import even
from ...models.reference import with_references
from ...results.prediction import anew
from ...results.released import Group

MOST_DRAWS = 1000  # over which rows are averaged
NODES = 21  # effects of a new group and a new client at once
MOST_NODES, NEAR = 2000, 1e-5  # such effects in all; of means and log-densities, between a step and its half
BLOCK = 2_000_000  # numbers at once
EFFECT = 9  # chain of the stream "posterior" by which effects of new groups are drawn


class Foreseen(NamedTuple):
    """Holds the prediction of n rows.

    Attributes
    ----------
    mean : (n,) E[y]; (K, n) the chance of each level
    quantiles : name -> of the mean, over the posterior
    linear_mean, linear_sd : (n,) of the linear predictor
    log_density : (n,) log p(y); None where y is not given
    """

    mean: Array
    quantiles: Mapping[str, Array]
    linear_mean: Array
    linear_sd: Array
    log_density: Array | None


@dataclass(frozen=True)
class Predictive:
    """Holds draws of a posterior, and predicts rows by them.

    Attributes
    ----------
    encoding, family : of the columns, of one row's response
    theta : (m, p) coefficients of the encoding's columns
    covariances : of effects: their terms ("intercept", or numeric columns on the data's scale), and (m, d, d)
    scale : (m,) of the family; of several numbers (k, m); (.., m, n) of rows that each have their own (`by_row`)
    sigma : name of a column -> (m,) its coefficient of log sigma, where each row has its own; scale is then the other numbers
    """

    encoding: Encoding
    family: str
    theta: Array
    covariances: Sequence[tuple[tuple[str, ...], Array]]
    scale: Array
    sigma: Mapping[str, Array] = field(default_factory=dict)
    by_row: bool = False

    @classmethod
    def of(
        cls, posterior: Group, encoding: Encoding, family: str, terms: Mapping[str, Sequence[str]], nu: float | None = None
    ) -> Predictive:
        """Makes it of the group "posterior" that a run releases.

        Parameters
        ----------
        terms : name of an effect (`Layout.effects`) -> its terms
        nu : degrees of freedom, where the job gives them
        """
        flat = cls.thinned(posterior)
        m = len(next(iter(flat.values())))
        suffix = "_std" if "theta_std" in flat or f"{INTERCEPT}_std" in flat else ""
        slopes = [str(name) for name in posterior.coordinates.get("slope", ())]
        slopes_told = {name: flat[f"theta{suffix}"][:, j] for j, name in enumerate(slopes)}
        slopes_told |= {INTERCEPT: flat[INTERCEPT + suffix]} if encoding.intercept else {}
        theta = with_references(encoding, slopes_told, m)
        covariances = []
        for level, names in terms.items():
            if not names:
                continue
            sd = np.column_stack([flat[title(level, "sd", name)] for name in names])
            correlation = np.broadcast_to(np.eye(len(names)), (m, len(names), len(names))).copy()
            for i in range(len(names)):
                for k in range(i):
                    of_both = flat.get(title(level, "correlation", f"{names[k]},{names[i]}"), 0.0)  # none of independent ones
                    correlation[:, i, k] = correlation[:, k, i] = of_both
            covariances.append((tuple(names), correlation * sd[:, :, np.newaxis] * sd[:, np.newaxis, :]))
        coefficients = np.column_stack(theta) if theta else np.zeros((m, 0))
        sigma = {name[6:-1]: values for name, values in flat.items() if name.startswith("sigma[")}
        if sigma:
            given = np.full(m, nu) if nu is not None else flat.get("nu", np.zeros(0))
            return cls(encoding, family, coefficients, covariances, given, sigma)
        return cls(encoding, family, coefficients, covariances, cls.scale_of(family, flat, coefficients, encoding, nu))

    @staticmethod
    def thinned(posterior: Group) -> dict[str, Array]:
        """Returns name -> draws of all chains one after the other, at most `MOST_DRAWS` of them."""
        flat = {name: np.asarray(values).reshape(-1, *values.shape[2:]) for name, (_, values) in posterior.variables.items()}
        m = len(next(iter(flat.values())))
        some = np.unique(np.linspace(0, m - 1, min(m, MOST_DRAWS)).astype(int))
        return {name: values[some] for name, values in flat.items()}

    @classmethod
    def scale_of(cls, family: str, flat: Mapping[str, Array], theta: Array, encoding: Encoding, nu: float | None) -> Array:
        """Returns (m,) the family's second number, or (k, m) of several."""
        return Layout((), family, given=() if nu is None else (math.log(nu),)).scale_of(flat, len(theta))

    @property
    def width(self) -> int:
        """The number of means that a row has."""
        return 1

    @property
    def natural(self) -> Array:
        """`scale` as the family's record takes it, beside predictors (m, n)."""
        return self.scale if self.by_row else self.scale[..., np.newaxis]

    def for_rows(self, X: Array) -> Predictive:
        """Returns what predicts rows X (n, p) of the encoding, with the sigma of each."""
        if not self.sigma:
            return self
        log = np.sum([np.outer(values, self._column(X, name)) for name, values in self.sigma.items()], axis=0)
        sd, nu = np.exp(log), self.scale[:, np.newaxis]
        scale = np.stack([sd, np.broadcast_to(nu, sd.shape)]) if self.scale.size else sd
        return replace(self, scale=scale, sigma={}, by_row=True)

    def means(self, shifted: Array, weights: Array) -> Array:
        """Returns (m, n) averages of the mean over nodes of the predictor (nodes, m, n)."""
        record = FAMILIES[self.family]
        return np.tensordot(weights, np.asarray(record.expected(record.mean(shifted), self.natural)), 1)

    def of_rows(self, X: Array, offset: Array | None, y: Array | None, at: Mapping[str, float]) -> Foreseen:
        """Returns the prediction of rows X (n, p) of the encoding.

        Parameters
        ----------
        offset : (n,), or (m, n) at each draw
        at : names of quantiles -> their probabilities
        """
        n, m = len(X), len(self.theta)
        nodes = 1 if self.family == "gaussian" or not self.covariances else NODES
        parts = []
        for a, b in blocks(n, max(1, BLOCK // (m * nodes * self.width))):
            shift, seen = None if offset is None else offset[..., a:b], None if y is None else y[a:b]
            parts.append(self.for_rows(X[a:b])._block(X[a:b], shift, seen, tuple(at.values())))
        mean, spread, linear_mean, linear_sd, density = (np.concatenate(column, axis=-1) for column in zip(*parts))
        return Foreseen(mean, dict(zip(at, spread)), linear_mean, linear_sd, None if y is None else density)

    def linear(self, X: Array, offset: Array | None) -> tuple[Array, Array]:
        """Returns (m, n) predictors without effects, and variances of the effects of a new group and a new client."""
        eta = self.theta @ X.T
        eta = eta if offset is None else eta + offset
        variance = np.zeros_like(eta)
        for terms, covariance in self.covariances:
            Z = np.column_stack([self._column(X, name) for name in terms])
            variance += np.einsum("ni,mij,nj->mn", Z, covariance, Z)
        return eta, variance

    def _block(self, X: Array, offset: Array | None, y: Array | None, at: tuple[float, ...]) -> tuple[Array, ...]:
        eta, variance = self.linear(X, offset)
        linear_mean = eta.mean(axis=0)
        linear_sd = np.sqrt(eta.var(axis=0) + variance.mean(axis=0))
        means, density = self._means(eta, variance, y)
        return means.mean(axis=-2), np.quantile(means, at, axis=-2), linear_mean, linear_sd, density

    def _means(self, eta: Array, variance: Array, y: Array | None) -> tuple[Array, Array]:
        """Returns means (.., m, n) over effects, and log-densities (n,) over draws, too."""
        if self.family == "gaussian":
            return self._over(eta, np.zeros_like(eta), y, np.sqrt(self.natural**2 + variance), np.zeros(1))
        return self._average(eta, np.sqrt(variance), y)

    def sampled(self, X: Array, offset: Array | None, seed: int) -> tuple[Array, Array]:
        """Returns (m, n) means of the response in each draw, or (m, n, K) chances of levels; and (m, n) new responses."""
        m, parts = len(self.theta), list[tuple[Array, Array]]()
        for a, b in blocks(len(X), max(1, BLOCK // (m * NODES * self.width))):
            eta, variance = self.linear(X[a:b], None if offset is None else offset[..., a:b])
            source = Keyed(rng.key(seed, "posterior", EFFECT), a)
            shifted = eta + np.sqrt(variance) * source.normal(eta.size).reshape(eta.shape)
            predictive = self.for_rows(X[a:b])
            means = predictive._means(eta, variance, None)[0]
            if self.width == 1:
                parts.append((means, anew(self.family, shifted, predictive.natural, seed + a)))
                continue
            chances = np.moveaxis(self.means(shifted[np.newaxis], np.ones(1)), 0, -1)
            parts.append((np.moveaxis(means, 0, -1), levels_of(chances, source)))
        means, responses = (np.concatenate(part, axis=1) for part in zip(*parts))
        return means, responses

    def _average(self, eta: Array, sd: Array, y: Array | None) -> tuple[Array, Array]:
        """Returns means (.., m, n) over effects, and log-densities (n,) over draws, too.

        Steps between effects are halved until it changes neither: as a function of an effect the density of a large count is a
        narrow peak, which any fixed rule would miss.
        """
        most = float(sd.max(initial=0.0))
        if most == 0:
            return self._over(eta, sd, y, self.natural, np.zeros(1))
        points = even(most)[0]
        means, density = self._over(eta, sd, y, self.natural, points)
        while len(points) < MOST_NODES:
            step = points[1] - points[0]
            more, other = self._over(eta, sd, y, self.natural, points[:-1] + step / 2)
            points = np.linspace(points[0], points[-1], 2 * len(points) - 1)
            wrong = np.abs(more - means).max(initial=0.0) / max(1.0, np.abs(means).max(initial=0.0))
            means, before, density = (means + more) / 2, density, np.logaddexp(density, other) - math.log(2)
            if wrong < NEAR and np.abs(density - before).max(initial=0.0) < NEAR:
                break
        return means, density

    def _over(self, eta: Array, sd: Array, y: Array | None, scale: Array, points: Array) -> tuple[Array, Array]:
        """Returns the same for these effects, in standard deviations: at a constant distance from each other."""
        record = FAMILIES[self.family]
        log_w = -0.5 * points**2
        log_w = log_w - logsumexp(log_w)
        means: Array = np.zeros(())
        density = np.full(eta.shape[1] if y is not None else 0, -np.inf)
        for a, b in blocks(len(points), NODES):
            shifted = eta + sd * points[a:b, np.newaxis, np.newaxis]  # (nodes, m, n)
            means = means + self.means(shifted, np.exp(log_w[a:b]))
            if y is not None:
                values = record.value(y, record.kept(shifted), scale, None)
                density = np.logaddexp(density, logsumexp(values + log_w[a:b, np.newaxis, np.newaxis], axis=(0, 1)))
        return means, density - np.log(len(eta))

    def _column(self, X: Array, name: str) -> Array:
        """(n,) a term of an effect, or of sigma, on the data's scale."""
        if name == INTERCEPT:
            return np.ones(len(X))
        numeric = (column.constants for column in self.encoding.columns if column.name == name and column.levels is None)
        center, scale = next(numeric, (0.0, 1.0))  # of a level
        return X[:, self.encoding.names.index(name)] * scale + center

    def scores(self, design: Design, predicted: Foreseen | None = None) -> tuple[dict[str, float], dict[str, Any]]:
        """Returns `metrics` and `test` of summary.json: how well rows with a response are predicted; each trial counts as a row.

        Parameters
        ----------
        predicted : the rows' prediction, where it is known
        """
        family, record = self.family, FAMILIES[self.family]
        if predicted is None:
            predicted = self.of_rows(np.asarray(design.X, np.float64), design.offset, design.y, {})
        assert predicted.log_density is not None
        counts = design.weights if design.units is not None else None
        metrics = {"log_likelihood": float(np.average(predicted.log_density, weights=counts))}
        rows = Rows(design.X, design.y, design.offset, design.weights, design.units)
        n = len(design.y) if counts is None else int(counts.sum())
        test: dict[str, Any] = {
            "rows": n,
            "guess": on_average(rows, family, np.median(self.for_rows(design.X).natural, axis=(-2, -1))),
        }
        if record.binary:
            right = (predicted.mean > 0.5) == (design.y > 0.5)
            metrics = {"accuracy": float(np.average(right, weights=counts))} | metrics
            test["reliability"] = reliability(predicted.mean, design.y, counts=counts)
        else:
            metrics["rmse"] = float(np.sqrt(((design.y - predicted.mean) ** 2).mean()))
        return metrics, test


def blocks(n: int, size: int) -> list[tuple[int, int]]:
    """Returns 0 .. n in parts (from, to) of at most `size`; one empty part where n is 0."""
    return [(begin, min(begin + size, n)) for begin in range(0, n, size)] or [(0, 0)]


def levels_of(chances: Array, source: Keyed) -> Array:
    """Returns (m, n) numbers of levels, drawn by their chances (m, n, K)."""
    u = source.uniform(chances[..., 0].size).reshape(chances.shape[:2])
    return np.asarray((u[..., np.newaxis] > np.cumsum(chances, axis=-1)[..., :-1]).sum(axis=-1), np.float64)
