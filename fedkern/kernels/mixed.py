"""Mixed models: rows in groups, each with effects of its own that are integrated out, by adaptive Gauss-Hermite quadrature.

Row i of group g has the predictor eta_i = offset_i + X_i beta + Z_i T u_g with u_g ~ N(0, I) of d numbers (d <= 3) and T lower
triangular, so that the effects T u_g have the covariance T T'. A point holds, one after the other: beta; the rows of T,
(0, 0), (1, 0), (1, 1), .., whose diagonal stands there as logarithms; the shape numbers of the family.

| family | a row | shape numbers |
| --- | --- | --- |
| "bernoulli", "binomial" | y of `trials`, with the probability expit(eta) | |
| .. "-probit", "-cloglog" | with the probability Phi(eta), or 1 - exp(-e^eta) | |
| "poisson" | with the mean exp(eta) | |
| "gaussian" | around eta | log sd |
| "negative-binomial" | of variance mu + phi^2 mu^2 (phi = 0: Poisson; phi and -phi are the same) | phi |
| "student" | y = eta + sd t, t of nu degrees of freedom | log sd, log nu |
| "gamma" | with the mean mu = exp(eta), the variance mu^2 / shape | log shape |
| "beta" | of the shapes precision mu and precision (1 - mu), mu = expit(eta) | log precision |
| "zero-inflated-poisson" | 0 with probability pi, else as "poisson" | logit pi |
| "zero-inflated-negative-binomial" | the same of "negative-binomial" | phi, logit pi |
| "hurdle-poisson" | 0 with probability pi, else as "poisson" given that it is above 0 | logit pi |
| "hurdle-negative-binomial" | the same of "negative-binomial" | phi, logit pi |
| "poisson-lognormal" | with the mean exp(eta + e), e ~ N(0, sd^2) of each row, integrated | log sd |
| "beta-binomial" | as "binomial", of chances that are drawn as those of "beta" | log precision |
| "lognormal" | log y around eta | log sd |
| "inverse-gaussian" | with the mean mu = exp(eta), the variance mu^3 / shape | log shape |
| "ordinal", "ordinal-probit" | y in 0 .. K - 1, P(y < k) = F(c_k - eta), F logistic or normal | c_1, log(c_2 - c_1), .. |
| "weibull" | a time of hazard k t^(k-1) exp(eta) | log k |
| "exponential" | the same with k = 1 | |
| "lognormal-aft", "loglogistic-aft" | a time whose logarithm is eta + sd e, e standard normal or logistic | log sd |
| "piecewise" | a time of hazard exp(eta + a_j) after cuts[j-1], up to and with cuts[j] | a_0 .. a_m, of m cuts |

A time is two columns: y = `upper`: an event at y (> 0); `upper` inf: none until y; else: an event after y, and until `upper`. A
row with an `entry` was seen from then on: its density is given no event before, for each value of its group's effects.

A group's integral is taken around its mode, by `nodes` nodes a dimension: log integral exp(l(u)) du = -log|C| + (d/2) log 2 pi +
log sum_k w_k exp(l(mode + C^-T t_k) + t_k't_k / 2) with -l'' = C C' at the mode. Where a group's mode is not found or a number is
not finite, the results of that point are NaN, and no others.

The densities of `SEVERAL_MODES` have one mode in eta, each, but their product may have many. Their Z has one column, and there
are `nodes` of Gauss and Legendre on each of a few panels: those that hold all but e^-50 of the integrand's top, halved until its
logarithm is smooth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Floats, Indices
from . import families
from ._checks import Domain, choice_of, describe
from ._docs import documented
from ._record import BACKENDS, F64, WITHOUT_CUDA, Array, Kernel, Out, Scalar, on_host

__all__ = ["curvature", "size", "values"]

CODES = {
    "bernoulli": 0, "binomial": 0, "poisson": 1, "gaussian": 2, "negative-binomial": 3, "student": 4, "gamma": 5, "beta": 6,
    "zero-inflated-poisson": 7, "zero-inflated-negative-binomial": 8, "ordinal": 9, "ordinal-probit": 10, "weibull": 11,
    "exponential": 12, "piecewise": 13, "bernoulli-probit": 14, "binomial-probit": 14, "bernoulli-cloglog": 15,
    "binomial-cloglog": 15, "beta-binomial": 16, "lognormal": 17, "inverse-gaussian": 18, "hurdle-poisson": 19,
    "hurdle-negative-binomial": 20, "poisson-lognormal": 21, "lognormal-aft": 22, "loglogistic-aft": 23,
}  # fmt: skip
SHAPES = {  # how many numbers of its own a family has; "ordinal" at least so many, "piecewise" one more for each cut
    "gaussian": 1, "negative-binomial": 1, "student": 2, "gamma": 1, "beta": 1, "zero-inflated-poisson": 1,
    "zero-inflated-negative-binomial": 2, "ordinal": 1, "ordinal-probit": 1, "weibull": 1, "piecewise": 1,
    "beta-binomial": 1, "lognormal": 1, "inverse-gaussian": 1, "hurdle-poisson": 1, "hurdle-negative-binomial": 2,
    "poisson-lognormal": 1, "lognormal-aft": 1, "loglogistic-aft": 1,
}  # fmt: skip
SEVERAL_MODES = (
    "student", "beta", "zero-inflated-poisson", "zero-inflated-negative-binomial", "beta-binomial", "inverse-gaussian",
    "hurdle-negative-binomial",
)  # fmt: skip
ORDERED = ("ordinal", "ordinal-probit")
TIMES = families.LIFETIMES
LATER = tuple(CODES)[5:]
LACKS = {"numba": LATER, "cuda": LATER}
MOST_EFFECTS, MOST_NODES = 3, 128

_INPUTS = (
    Array("points", ("s", "k"), F64),
    Array("X", ("n", "p"), F64),
    Array("Z", ("n", "d"), F64),
    Array("y", ("n",), F64),
    Array("trials", ("n",), F64, optional=True),
    Array("offset", ("n",), F64, optional=True),
    Array("starts", ("g",), (np.dtype("int64"),)),
    Array("upper", ("n",), F64, optional=True),
    Array("cuts", ("m",), F64, optional=True),
    Array("entry", ("n",), F64, optional=True),
)
_SCALARS = (
    Scalar("family", choice_of(CODES, f"must be one of {', '.join(CODES)}")),
    Scalar("nodes", Domain(f"must be in [1, {MOST_NODES}]", f"1 <= x <= {MOST_NODES}", "index(x)")),
)
_VALUE = Array("value", ("s",), F64)
_WORDS = {
    "points": "Points at which the log-likelihood is wanted: coefficients, T, shape numbers.",
    "X": "Rows, sorted by group.",
    "Z": "Factors of the group's effects: ones for an intercept, then slopes; at most 3 columns, and "
    "1 where a product of densities may have several modes. Without columns the value is the sum over rows.",
    "y": "The response. A value that the family does not have makes all results NaN.",
    "trials": "Trials of a binomial response; of a gamma one of how many such numbers y is the mean; 1 if it is not given.",
    "offset": "Added to the predictor.",
    "starts": "Where each group begins, from 0, and the number of rows at the end.",
    "upper": "The second column of a time: y itself for an event, inf where it is censored on the right at y, and the end of an "
    "interval in which it was. None: all are events.",
    "cuts": "Where the hazard of a piecewise model changes: rising, above 0.",
    "entry": "Of a time: from when on it was seen, at most y, and before it where the event is at y. None: from 0 on.",
    "family": "The likelihood of a row.",
    "nodes": "Nodes of the quadrature, a dimension, or on each panel where a group may have several modes. For gaussian rows 1 "
    "(the value) and 3 are exact, and taken.",
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
    lacks=LACKS,
    words=_WORDS,
    example="""
        >>> X, y = np.ones((4, 1)), np.array([3.0, 5.0, 0.0, 1.0])
        >>> Z, starts = np.ones((4, 1)), np.array([0, 2, 4])  # an intercept of each group; two groups of two rows
        >>> points = np.array([[0.5, 0.0], [0.5, -9.0]])  # the coefficient, and the logarithm of the groups' standard deviation
        >>> mixed.values(points, X, Z, y, None, None, starts, family="poisson", nodes=9).round(3)
        array([-7.457, -8.674])
    """,
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
    lacks=LACKS,
    host="a point a round, which takes a CPU milliseconds",
    words=_WORDS,
    example="""
        >>> X, y = np.ones((4, 1)), np.array([3.0, 5.0, 0.0, 1.0])
        >>> Z, starts = np.ones((4, 1)), np.array([0, 2, 4])  # an intercept of each group; two groups of two rows
        >>> points = np.array([[0.5, 0.0]])  # the coefficient, and the logarithm of the groups' standard deviation
        >>> value, gradient, minus_hessian = mixed.curvature(points, X, Z, y, None, None, starts, family="poisson", nodes=9)
        >>> value.round(3), gradient.round(3), minus_hessian.round(3)
        (array([-7.457]), array([[-0.06 , -0.334]]), array([[1.49 , 0.393, 1.524]]))
    """,
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
    upper: Floats | None = None,
    cuts: Floats | None = None,
    entry: Floats | None = None,
    *,
    family: str,
    nodes: int,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns the log-likelihood of a mixed model at many points, the effects of groups integrated out; NaN where a mode is not
    found."""
    inputs = (points, X, Z, y, trials, offset, starts, upper, cuts, entry)
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
    upper: Floats | None = None,
    cuts: Floats | None = None,
    entry: Floats | None = None,
    *,
    family: str,
    nodes: int,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Returns the log-likelihood with its gradient and minus its Hessian: those of the integral (Louis 1982), by the nodes of the
    value."""
    inputs = (points, X, Z, y, trials, offset, starts, upper, cuts, entry)
    value, gradient, minus_hessian = _call(CURVATURE, inputs, out, n_threads, backend, family, nodes)
    return value, gradient, minus_hessian


def _call(
    kernel: Kernel, inputs: tuple[object, ...], out: Out, n_threads: int, backend: str | None, family: str, nodes: int
) -> tuple[Any, ...]:
    arrays = kernel.prepare({a.name: value for a, value in zip(kernel.inputs, inputs)}, out, backend=backend)
    numbers = kernel.numbers(family=family, nodes=nodes)
    (n, p), d, k = arrays[1].shape, arrays[2].shape[1], arrays[0].shape[1]
    # Integrands of several modes are integrated on panels, which exist in one dimension.
    most = 1 if family in SEVERAL_MODES else MOST_EFFECTS
    if d > most:
        of = f"{family} rows: Z must have at most 1 column" if most == 1 else f"Z must have at most {most} columns"
        raise ValueError(f"{kernel.name}: {of}, got {d}")
    if arrays[9] is not None and family not in TIMES:
        raise ValueError(f"{kernel.name}: entry is of times ({', '.join(TIMES)}), and {family} rows have none")
    if arrays[9] is not None and d and family in families.ACCELERATED:
        raise ValueError(f"{kernel.name}: entry of {family} rows is taken where Z has no column: given one they are not concave")
    cuts = _cuts(kernel, family, arrays[7], arrays[8])
    m = k - size(p, d, family, 0)
    n_shapes = SHAPES.get(family, 0) + len(cuts)
    if m < n_shapes or (m > n_shapes and family not in ORDERED):
        of = f"{p} coefficients, {d * (d + 1) // 2} of T and {n_shapes} of the {family} rows' own"
        least = "at least " if family in ORDERED else ""
        raise ValueError(f"{kernel.name}: points must have {least}{k - m + n_shapes} columns ({of}), got {k}")
    starts = on_host(arrays[6])
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
        raise ValueError(f"{kernel.name}: starts must rise from 0 to the number of rows, {n}")
    kernel.call(kernel.backend_of(family, backend, arrays), arrays, numbers, n_threads)
    return tuple(arrays[len(inputs) :])


def _cuts(kernel: Kernel, family: str, upper: object, cuts: object) -> Floats:
    """Returns the cuts of a piecewise hazard; refuses an array that the family does not take."""
    if upper is not None and family not in TIMES:
        raise ValueError(f"{kernel.name}: upper is of times ({', '.join(TIMES)}), and {family} rows have none")
    if (cuts is None) != (family != "piecewise"):
        raise ValueError(
            f"{kernel.name}: cuts must be given of piecewise rows, and of no others; got {describe(cuts)} of {family} rows"
        )
    if cuts is None:
        return np.zeros(0)
    edges: Floats = on_host(cuts)
    if not (np.isfinite(edges).all() and (np.diff(edges, prepend=0.0) > 0).all()):
        raise ValueError(f"{kernel.name}: cuts must rise from above 0, and be finite")
    return edges


def size(p: int, d: int, family: str, own: int | None = None) -> int:
    """Returns the length of a point.

    Parameters
    ----------
    p : int
        Coefficients.
    d : int
        Effects of a group.
    family : str
        The likelihood.
    own : int, optional
        Its shape numbers, of which ordinal levels and pieces of a hazard make more than the least.

    Returns
    -------
    int

    Examples
    --------
    >>> from fedkern.kernels import mixed
    >>> mixed.size(p=3, d=2, family="gaussian")  # 3 coefficients, 3 numbers of T, the standard deviation
    7
    """
    n_shapes = SHAPES.get(family, 0) if own is None else own
    return p + d * (d + 1) // 2 + n_shapes
