"""Draws a site's missing covariates at home: the values, and the mean and covariance of its rows.

Rows are N(mean, precision^-1); the mean has a flat prior (but that of a column without a value, which stays), the covariance an
inverse Wishart prior about the matrix that all sites have in common. All arrays have the chain first. The draws of one site
depend on its own rows and that matrix alone, and never leave it. Source: docs/spec/sparse.md, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...kernels import rng

State = dict[str, Array]

NUMBERS = 2_000_000  # of rows' matrices that are held at once
OF_LAW = 1 << 32  # added to a chain's number: streams of the law, beside those of the rows' values


@dataclass(frozen=True)
class Alike:
    """Holds rows that lack the same number u of columns.

    Attributes
    ----------
    rows : (r,) numbers of the rows
    columns : (g, u) the columns of each pattern
    of : (r,) the pattern of each row
    first : number of the first of them among the rows with gaps, which selects random numbers
    """

    rows: Indices
    columns: Indices
    of: Indices
    first: int


def alike(X: Array, chains: int) -> list[Alike]:
    """Groups the rows of X (n, p) with gaps (NaN) by the number of columns that they lack, in pieces that fit into memory."""
    missing = np.isnan(X)
    lacks, out, first = missing.sum(axis=1), list[Alike](), 0
    for u in np.unique(lacks[lacks > 0]).tolist():
        lacking = np.flatnonzero(lacks == u)
        for rows in np.array_split(lacking, -(-len(lacking) * chains * u * u // NUMBERS)):
            kinds, of = np.unique(missing[rows], axis=0, return_inverse=True)
            out.append(Alike(rows, np.nonzero(kinds)[1].reshape(len(kinds), u), of.ravel(), first))
            first += len(rows)
    return out


def imputed(
    gaps: list[Alike], X: Array, mean: Array, precision: Array, slopes: Array, residual: Array, variance: Array, normals: Array
) -> Array:
    """Returns rows (c, n, p) with new values in their gaps, given the others and the response.

    Parameters
    ----------
    X : (c, n, p) rows, filled with anything finite
    mean, precision : (c, p), (c, p, p) of rows
    slopes : (c, p) of the response
    residual : (c, n) of the response, after the effects of covariates
    variance : (c, n) of the response's error
    normals : (c, m, p + 1) of each of the m rows with gaps, in the order of `gaps`; the last is the response's

    A draw of x_U given x_O alone is moved by the information in the response.
    """
    X = X.copy()
    for part in gaps:
        mask, size = np.zeros((len(part.columns), X.shape[2])), part.columns.shape[1]
        np.put_along_axis(mask, part.columns, 1.0, axis=1)
        z = normals[:, part.first : part.first + len(part.rows)]
        inner = precision[:, part.columns[:, :, None], part.columns[:, None, :]]
        L = np.linalg.inv(np.linalg.cholesky(inner)).swapaxes(-1, -2)[:, part.of]  # L L' = Q_UU^-1, of each row
        columns = np.broadcast_to(part.columns[part.of], (len(X), len(part.rows), size))
        away = np.where(mask[part.of] > 0, 0.0, X[:, part.rows] - mean[:, None])
        along = np.take_along_axis(away @ precision, columns, axis=2)
        about = z[:, :, :size] - _times(L.swapaxes(-1, -2), along)
        centre, b = (np.take_along_axis(np.broadcast_to(a[:, None], away.shape), columns, axis=2) for a in (mean, slopes))
        drawn = centre + _times(L, about)
        rows, sd = X[:, part.rows], np.sqrt(variance[:, part.rows])
        np.put_along_axis(rows, columns, drawn, axis=2)
        of_response = _times(L.swapaxes(-1, -2), b)
        surprise = residual[:, part.rows] - (rows @ slopes[:, :, None])[:, :, 0] - sd * z[:, :, -1]
        gain = surprise / ((of_response**2).sum(axis=2) + sd**2)
        np.put_along_axis(rows, columns, drawn + _times(L, of_response) * gain[:, :, None], axis=2)
        X[:, part.rows] = rows
    return X


def _times(matrices: Array, vectors: Array) -> Array:
    """Returns each row's matrix times its vector (c, r, u)."""
    product: Array = np.matmul(matrices, vectors[..., None])[..., 0]
    return product


def drawn_law(
    X: Array, precision: Array, common: Array, rows: float, known: NDArray[np.bool_], mean: Array, normals: Array, gammas: Array
) -> tuple[Array, Array]:
    """Draws the mean (c, p) and then the precision (c, p, p) of rows X (c, n, p), each given all else.

    Parameters
    ----------
    common, rows : the covariance has the prior IW(p + 1 + rows, rows x common): so many rows about the common one
    known : (p,) columns whose mean stays as in `mean`
    normals : (c, p + p (p - 1) / 2)
    gammas : (c, p) of the shapes in `shapes`
    """
    c, n, p = X.shape
    free, mean, centre = ~known, mean.copy(), X.mean(axis=1)
    Q = precision[:, free][:, :, free]
    away = np.matmul(precision[:, free][:, :, known], (centre - mean)[:, known, None])
    noise = np.linalg.solve(np.linalg.cholesky(Q).swapaxes(1, 2), normals[:, :p][:, free, None]) / np.sqrt(n)
    mean[:, free] = centre[:, free] + (np.linalg.solve(Q, away) + noise)[:, :, 0]
    about = X - mean[:, None]
    scale = rows * common + np.matmul(about.swapaxes(1, 2), about)
    T, (below, before), diagonal = np.zeros((c, p, p)), np.tril_indices(p, -1), np.arange(p)
    T[:, diagonal, diagonal], T[:, below, before] = np.sqrt(2 * gammas), normals[:, p:]
    half = np.linalg.solve(np.linalg.cholesky(scale).swapaxes(1, 2), T)  # T T' is a Wishart matrix of scale 1 (Bartlett)
    return mean, np.matmul(half, half.swapaxes(1, 2))


def shapes(p: int, rows: float, n: int) -> Array:
    """Returns the shapes (p,) of the gamma numbers of a Wishart matrix with p + 1 + rows + n degrees of freedom."""
    return np.asarray((p + 1 + rows + n - np.arange(p)) / 2)


@dataclass(frozen=True)
class Covariates:
    """Holds the part of a site's covariates that does not change.

    Attributes
    ----------
    X : (n, p) NaN where a value is missing
    common : (p, p) the covariance that all sites have in common
    rows : as how many rows it counts here
    """

    X: Array
    common: Array
    rows: float
    _gaps: dict[int, list[Alike]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def without_value(self) -> NDArray[np.bool_]:
        """(p,) The columns whose mean is not drawn, since the intercept has their part."""
        return np.asarray(np.isnan(self.X).all(axis=0))

    def start(self, chains: int, mean: Array | None) -> State:
        """Returns the first state: every value at its mean, 0 by default, and the common covariance."""
        centre = np.zeros(self.X.shape[1]) if mean is None else mean
        first = {"completed": np.where(np.isnan(self.X), centre, self.X), "mean": centre, "precision": np.linalg.inv(self.common)}
        return {name: np.repeat(value[None], chains, axis=0) for name, value in first.items()}

    def drawn(
        self, state: State, slopes: Array, residual: Array, variance: Array, *, seed: int, client: int, step: int, chain: int = 0
    ) -> State:
        """Draws new missing values, given everything else, then a new mean and precision.

        Parameters
        ----------
        slopes, residual, variance : (c, p), (c, n), (c, n) see `imputed`
        chain : number of the first chain, which selects random numbers
        """
        (c, n, p), mean, precision = state["completed"].shape, state["mean"], state["precision"]
        if c not in self._gaps:
            self._gaps[c] = alike(self.X, c)
        gaps = self._gaps[c]
        if not gaps:  # nothing here depends on the law of rows
            return {}
        m, size = sum(len(part.rows) for part in gaps), p + p * (p - 1) // 2
        of_values, of_law = ([rng.key(seed, "imputation", first + i) for i in range(c)] for first in (chain, chain + OF_LAW))
        normals = np.stack([rng.normal(m * (p + 1), key=key, client=client, step=step) for key in of_values])
        X = imputed(gaps, state["completed"], mean, precision, slopes, residual, variance, normals.reshape(c, m, p + 1))
        normals = np.stack([rng.normal(size, key=key, client=client, step=step) for key in of_law])
        shape = shapes(p, self.rows, n)
        gammas = np.stack([rng.gamma(shape, key=key, client=client, step=step, first_item=size) for key in of_law])
        mean, precision = drawn_law(X, precision, self.common, self.rows, self.without_value, mean, normals, gammas)
        return {"completed": X, "mean": mean, "precision": precision}


def rows_for_law(X: Array) -> float:
    """Returns as how many rows of (n, p) the common covariance counts at a site: its rows that lack none of the columns that it
    has.

    That covariance is partly of these rows themselves, and the other sites' share is not told here. It counts as at least one
    row, also if all rows have gaps.
    """
    measured = ~np.isnan(X)
    return float(max(1, int(measured[:, measured.any(axis=0)].all(axis=1).sum())))


# Locations --------------------
# Draws the locations of a site of structural equations: B (y - m) = e, m with a flat prior (docs/spec/sparse.md, section 9).
#
# Given B = I - Theta and b, the components of B m are independent of each other, and each has a density that is exponential
# between neighbouring values of its residuals. It is drawn exactly: a piece by its mass, then a place in it.


def drawn(Y: Array, coefficients: Array, rates: Array, uniforms: Array) -> Array:
    """Draws the locations m (c, p) of the columns, of each chain.

    Parameters
    ----------
    Y : (p, n) the columns, one row each
    coefficients : (c, p, p) Theta, [to, from], with a zero diagonal
    rates : (c, p) 1 / b, times the power of the likelihood
    uniforms : (c, p, 2) on (0, 1)
    """
    B: Array = np.eye(len(Y)) - coefficients
    centres = laplace_centres(B @ Y, rates, uniforms)
    return np.asarray(np.linalg.solve(B, centres[..., None])[..., 0])


def laplace_centres(values: Array, rates: Array, uniforms: Array) -> Array:
    """Draws x (...) from densities proportional to exp(-rate sum_i |value_i - x|), the posterior of a Laplace centre.

    Parameters
    ----------
    values, rates, uniforms : (..., n), (...) and (..., 2); one uniform chooses the piece, the other the place in it
    """
    n = values.shape[-1]
    knots = np.sort(values, axis=-1)
    rate = rates[..., None]
    slopes = rate * (n - 2 * np.arange(n + 1))  # of the logarithm of the density, left of the first knot and right of each
    widths = np.diff(knots, axis=-1)
    heights = np.concatenate([np.zeros_like(rate), np.cumsum(slopes[..., 1:n] * widths, axis=-1)], axis=-1)
    steep = np.abs(slopes)
    width = np.concatenate([np.full_like(rate, np.inf), widths, np.full_like(rate, np.inf)], axis=-1)
    top = np.concatenate([heights[..., :1], np.maximum(heights[..., 1:], heights[..., :-1]), heights[..., -1:]], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = -np.expm1(-steep * width)  # of an endless piece of the same slope
        mass = np.exp(top - top.max(axis=-1, keepdims=True)) * np.where(steep > 0, part / steep, width)
    passed = np.cumsum(mass, axis=-1)
    piece = np.sum(passed[..., :-1] <= uniforms[..., :1] * passed[..., -1:], axis=-1, keepdims=True)
    slope, share, size = (np.take_along_axis(a, piece, axis=-1)[..., 0] for a in (slopes, part, width))
    left, right = (np.take_along_axis(knots, np.clip(piece + k, 0, n - 1), axis=-1)[..., 0] for k in (-1, 0))
    u = uniforms[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        down = -np.log1p(-u * share) / np.abs(slope)  # from the end at which the piece is higher
        x: Array = np.where(slope > 0, right - down, np.where(slope < 0, left + down, left + u * size))
    return x
