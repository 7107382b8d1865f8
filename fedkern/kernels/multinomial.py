"""Multinomial models: a response that is one of K levels without an order, each but the first with coefficients of its own.

A row of level y, with the predictors eta_0 = 0 of the first level and eta_k = X_i beta_k of the others, adds
eta_y - log sum_k e^eta_k. A point holds the blocks beta_1, .., beta_(K-1), one after the other. Results that are
not finite at a point are NaN, and no others.
"""

from __future__ import annotations

from typing import Any

from ..arrays import Floats
from ._checks import Domain
from ._docs import documented
from ._record import COMPILED, F64, Array, Kernel, Out, Scalar

__all__ = ["curvature", "values"]

_INPUTS = (Array("points", ("s", "k"), F64), Array("X", ("n", "p"), F64), Array("y", ("n",), F64))
_SCALARS = (Scalar("levels", Domain("must be a whole number of at least 2, below 2^31", "2 <= x < 2**31", "index(x)")),)
_VALUE = Array("value", ("s",), F64)
_WORDS = {
    "points": "Points at which the log-likelihood is wanted: the coefficients of the second level, of the third, ..",
    "X": "Rows.",
    "y": "The number of each row's level, 0 of the first, which is the reference. A value that is none makes all results NaN.",
    "levels": "How many levels there are.",
    "value": "The log-likelihood.",
    "gradient": "Its gradient.",
    "minus_hessian": "Minus its matrix of second derivatives: the lower triangle, row by row.",
}

VALUES = Kernel(
    "multinomial.values",
    __name__,
    purpose="Log-likelihood of a multinomial logistic model at many points.",
    source="McFadden (1974)",
    inputs=_INPUTS,
    outputs=(_VALUE,),
    scalars=_SCALARS,
    backends=COMPILED,
    host="a client's rows are few beside the points, and each needs few exponentials",
    words=_WORDS,
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([0.0, 2.0, 1.0])
        >>> points = np.array([[0.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, -1.0]])  # two coefficients of level 1, then two of level 2
        >>> multinomial.values(points, X, y, levels=3).round(3)
        array([-3.296, -2.018])
    """,
)

CURVATURE = Kernel(
    "multinomial.curvature",
    __name__,
    purpose="Log-likelihood of a multinomial logistic model with its gradient and minus its Hessian.",
    source="McFadden (1974)",
    inputs=_INPUTS,
    outputs=(_VALUE, Array("gradient", ("s", "k"), F64), Array("minus_hessian", ("s", "k*(k+1)/2"), F64)),
    scalars=_SCALARS,
    backends=COMPILED,
    host="a point a round, which takes a CPU milliseconds",
    words=_WORDS,
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([0.0, 2.0, 1.0])
        >>> value, gradient, minus_hessian = multinomial.curvature(np.zeros((1, 4)), X, y, levels=3)
        >>> value.round(3), gradient.round(3), minus_hessian.shape
        (array([-3.296]), array([[ 0. ,  1.5,  0. , -1.5]]), (1, 10))
    """,
)


@documented(VALUES)
def values(
    points: Floats,
    X: Floats,
    y: Floats,
    *,
    levels: int,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns the log-likelihood of a multinomial logistic model at many points."""
    value: Floats
    (value,) = _call(VALUES, (points, X, y), out, n_threads, backend, levels)
    return value


@documented(CURVATURE)
def curvature(
    points: Floats, X: Floats, y: Floats, *, levels: int, out: Out = None, n_threads: int = 1, backend: str | None = None
) -> tuple[Floats, Floats, Floats]:
    """Returns the log-likelihood with its gradient and minus its Hessian."""
    value, gradient, minus_hessian = _call(CURVATURE, (points, X, y), out, n_threads, backend, levels)
    return value, gradient, minus_hessian


def _call(
    kernel: Kernel, inputs: tuple[object, ...], out: Out, n_threads: int, backend: str | None, levels: int
) -> tuple[Any, ...]:
    arrays = kernel.prepare({a.name: value for a, value in zip(kernel.inputs, inputs)}, out, backend=backend)
    numbers = kernel.numbers(levels=levels)
    k, p = arrays[0].shape[1], arrays[1].shape[1]
    if k != (levels - 1) * p:
        of = f"{p} coefficients of each of {levels - 1} levels"
        raise ValueError(f"{kernel.name}: points must have {(levels - 1) * p} columns ({of}), got {k}")
    kernel.call(backend, arrays, numbers, n_threads)
    return tuple(arrays[len(inputs) :])
