"""Mixed models: rows in groups, each with effects of its own that are integrated out, by adaptive Gauss-Hermite quadrature.

Row i of group g has the predictor eta_i = offset_i + X_i beta + Z_i T u_g with u_g ~ N(0, I) of d numbers (d <= 3) and T lower
triangular, so that the effects T u_g have the covariance T T'. A point holds, one after the other: beta; the rows of T,
(0, 0), (1, 0), (1, 1), .., whose diagonal stands there as logarithms; of "gaussian" log sd, of "negative-binomial" phi, where the
variance of y is mu + phi^2 mu^2 (phi = 0: Poisson; phi and -phi are the same).

A group's integral is taken around its mode, by `nodes` nodes a dimension: log integral exp(l(u)) du = -log|C| + (d/2) log 2 pi +
log sum_k w_k exp(l(mode + C^-T t_k) + t_k't_k / 2) with -l'' = C C' at the mode. Where a group's mode is not found or a number is
not finite, what belongs to that point is NaN, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._checks import Domain, choice_of
from ._docs import documented
from ._record import BACKENDS, F64, WITHOUT_CUDA, Array, Kernel, Out, Scalar, on_host

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

CODES = {"bernoulli": 0, "binomial": 0, "poisson": 1, "gaussian": 2, "negative-binomial": 3}
DISPERSED = ("gaussian", "negative-binomial")
MOST_EFFECTS, MOST_NODES = 3, 128

_INPUTS = (
    Array("points", ("s", "k"), F64),
    Array("X", ("n", "p"), F64),
    Array("Z", ("n", "d"), F64),
    Array("y", ("n",), F64),
    Array("trials", ("n",), F64, optional=True),
    Array("offset", ("n",), F64, optional=True),
    Array("starts", ("g",), (np.dtype("int64"),)),
)
_SCALARS = (
    Scalar("family", choice_of(CODES, f"must be one of {', '.join(CODES)}")),
    Scalar("nodes", Domain(f"must be in [1, {MOST_NODES}]", f"1 <= x <= {MOST_NODES}", "index(x)")),
)
_VALUE = Array("value", ("s",), F64)
_WORDS = {
    "points": "Points at which the log-likelihood is wanted: coefficients, T, dispersion.",
    "X": "Rows, sorted by group.",
    "Z": "What the group's effects are multiplied by: ones for an intercept, then slopes; at most 3 columns. Without columns "
    "the value is the sum over rows.",
    "y": "The response. A value that the family does not have makes all results NaN.",
    "trials": "Of a binomial response; 1 if it is not given.",
    "offset": "Added to the predictor.",
    "starts": "Where each group begins, from 0, and the number of rows at the end.",
    "family": "The likelihood of a row.",
    "nodes": "Of the quadrature, a dimension. For gaussian rows 1 (the value) and 3 are exact, and taken.",
    "value": "The log-likelihood, normalised in y.",
    "gradient": "Its gradient.",
    "minus_hessian": "Minus its matrix of second derivatives: the lower triangle, row by row.",
}

VALUES = Kernel(
    "mixed.values",
    __name__,
    purpose="Log-likelihood of a mixed model at many points, effects of groups integrated out.",
    source="Pinheiro and Bates (1995), section 2.4",
    inputs=_INPUTS,
    outputs=(_VALUE,),
    scalars=_SCALARS,
    backends=BACKENDS,
    words=_WORDS,
)

CURVATURE = Kernel(
    "mixed.curvature",
    __name__,
    purpose="Log-likelihood of a mixed model with its gradient and minus its Hessian, effects of groups integrated out.",
    source="Pinheiro and Bates (1995), section 2.4; Louis (1982)",
    inputs=_INPUTS,
    outputs=(_VALUE, Array("gradient", ("s", "k"), F64), Array("minus_hessian", ("s", "k*(k+1)/2"), F64)),
    scalars=_SCALARS,
    backends=WITHOUT_CUDA,
    host="a point a round, which takes a CPU milliseconds",
    words=_WORDS,
)


@documented(VALUES)
def values(
    points: Floats,
    X: Floats,
    Z: Floats,
    y: Floats,
    trials: Floats | None,
    offset: Floats | None,
    starts: Indices,
    *,
    family: str,
    nodes: int,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Log-likelihood of a mixed model at many points, the effects of groups integrated out; NaN where a mode is not found."""
    inputs = (points, X, Z, y, trials, offset, starts)
    value: Floats
    (value,) = _call(VALUES, inputs, out, n_threads, backend, family, nodes)
    return value


@documented(CURVATURE)
def curvature(
    points: Floats,
    X: Floats,
    Z: Floats,
    y: Floats,
    trials: Floats | None,
    offset: Floats | None,
    starts: Indices,
    *,
    family: str,
    nodes: int,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats]:
    """The same with its gradient and minus its Hessian: those of the integral (Louis 1982), by the nodes of the value."""
    inputs = (points, X, Z, y, trials, offset, starts)
    value, gradient, minus_hessian = _call(CURVATURE, inputs, out, n_threads, backend, family, nodes)
    return value, gradient, minus_hessian


def _call(
    kernel: Kernel, inputs: tuple[object, ...], out: Out, n_threads: int, backend: str | None, family: str, nodes: int
) -> tuple[Any, ...]:
    arrays = kernel.prepare({a.name: value for a, value in zip(kernel.inputs, inputs)}, out, backend=backend)
    numbers = kernel.numbers(family=family, nodes=nodes)
    (n, p), d, k = arrays[1].shape, arrays[2].shape[1], arrays[0].shape[1]
    if d > MOST_EFFECTS:
        raise ValueError(f"{kernel.name}: Z must have at most {MOST_EFFECTS} columns, got {d}")
    if k != (wanted := size(p, d, family)):
        of = f"{p} coefficients, {d * (d + 1) // 2} of T and {wanted - p - d * (d + 1) // 2} of the dispersion"
        raise ValueError(f"{kernel.name}: points must have {wanted} columns ({of}), got {k}")
    starts = on_host(arrays[6])
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
        raise ValueError(f"{kernel.name}: starts must rise from 0 to the number of rows, {n}, got {starts}")
    kernel.call(backend, arrays, numbers, n_threads)
    return tuple(arrays[len(inputs) :])


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
    int
    """
    return p + d * (d + 1) // 2 + (family in DISPERSED)
