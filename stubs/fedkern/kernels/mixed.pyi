# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Mixed models: rows in groups, each with effects of its own that are integrated out, by adaptive Gauss-Hermite quadrature.

Row i of group g has the predictor eta_i = offset_i + X_i beta + Z_i T u_g with u_g ~ N(0, I) of d numbers (d <= 3) and T lower
triangular, so that the effects T u_g have the covariance T T'. A point holds, one after the other: beta; the rows of T,
(0, 0), (1, 0), (1, 1), .., whose diagonal stands there as logarithms; of "gaussian" log sd, of "negative-binomial" phi, where the
variance of y is mu + phi^2 mu^2 (phi = 0: Poisson; phi and -phi are the same).

A group's integral is taken around its mode, by `nodes` nodes a dimension: log integral exp(l(u)) du = -log|C| + (d/2) log 2 pi +
log sum_k w_k exp(l(mode + C^-T t_k) + t_k't_k / 2) with -l'' = C C' at the mode. Where a group's mode is not found or a number is
not finite, what belongs to that point is NaN, and nothing else.
"""
from typing import Any
from typing import Any
import numpy as np
from numpy.typing import NDArray
from ._checks import Domain, choice_of
from ._record import BACKENDS, F64, WITHOUT_CUDA, Array, Kernel, Out, Scalar, on_host
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
CODES: dict[str, Any]
DISPERSED: tuple[Any, ...]
MOST_EFFECTS: int
MOST_NODES: int
VALUES: Kernel
CURVATURE: Kernel
def values(points: Floats, X: Floats, Z: Floats, y: Floats, trials: Floats | None, offset: Floats | None, starts: Indices, *, family: str, nodes: int, out: Floats | None=None, n_threads: int=1, backend: str | None=None) -> Floats:
    """Log-likelihood of a mixed model at many points, the effects of groups integrated out; NaN where a mode is not found.

    Parameters
    ----------
    points : (s, k) float64 array
        Points at which the log-likelihood is wanted: coefficients, T, dispersion.
    X : (n, p) float64 array
        Rows, sorted by group.
    Z : (n, d) float64 array
        What the group's effects are multiplied by: ones for an intercept, then slopes; at most 3 columns. Without columns the
        value is the sum over rows.
    y : (n,) float64 array
        The response. A value that the family does not have makes all results NaN.
    trials : (n,) float64 array, optional
        Of a binomial response; 1 if it is not given.
    offset : (n,) float64 array, optional
        Added to the predictor.
    starts : (g,) int64 array
        Where each group begins, from 0, and the number of rows at the end.
    family : str, one of bernoulli, binomial, poisson, gaussian, negative-binomial
        The likelihood of a row.
    nodes : int, in [1, 128]
        Of the quadrature, a dimension. For gaussian rows 1 (the value) and 3 are exact, and taken.
    out : (s,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (s,) float64 array
        The log-likelihood, normalised in y.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Pinheiro and Bates (1995), section 2.4."""
    ...
def curvature(points: Floats, X: Floats, Z: Floats, y: Floats, trials: Floats | None, offset: Floats | None, starts: Indices, *, family: str, nodes: int, out: Out=None, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats, Floats]:
    """The same with its gradient and minus its Hessian: those of the integral (Louis 1982), by the nodes of the value.

    Parameters
    ----------
    points : (s, k) float64 array
        Points at which the log-likelihood is wanted: coefficients, T, dispersion.
    X : (n, p) float64 array
        Rows, sorted by group.
    Z : (n, d) float64 array
        What the group's effects are multiplied by: ones for an intercept, then slopes; at most 3 columns. Without columns the
        value is the sum over rows.
    y : (n,) float64 array
        The response. A value that the family does not have makes all results NaN.
    trials : (n,) float64 array, optional
        Of a binomial response; 1 if it is not given.
    offset : (n,) float64 array, optional
        Added to the predictor.
    starts : (g,) int64 array
        Where each group begins, from 0, and the number of rows at the end.
    family : str, one of bernoulli, binomial, poisson, gaussian, negative-binomial
        The likelihood of a row.
    nodes : int, in [1, 128]
        Of the quadrature, a dimension. For gaussian rows 1 (the value) and 3 are exact, and taken.
    out : tuple of 3 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (s,) float64 array
        The log-likelihood, normalised in y.
    gradient : (s, k) float64 array
        Its gradient.
    minus_hessian : (s, k*(k+1)/2) float64 array
        Minus its matrix of second derivatives: the lower triangle, row by row.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Pinheiro and Bates (1995), section 2.4; Louis (1982)."""
    ...
def size(p: int, d: int, family: str) -> int:
    """How many numbers a point has.

    Parameters
    ----------
    p : int
        Coefficients.
    d : int
        Effects of a group.
    family : str
        The likelihood, which may have a dispersion.

    Returns
    -------
    int"""
    ...
