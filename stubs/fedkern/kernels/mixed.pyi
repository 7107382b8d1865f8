# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Mixed models: rows in groups, each with effects of its own that are integrated out, by adaptive Gauss-Hermite quadrature.

Row i of group g has the predictor eta_i = offset_i + X_i beta + Z_i T u_g with u_g ~ N(0, I) of d numbers (d <= 3) and T lower
triangular, so that the effects T u_g have the covariance T T'. A point holds, one after the other: beta; the rows of T,
(0, 0), (1, 0), (1, 1), .., whose diagonal stands there as logarithms; the shape numbers of the family.

| family | a row | shape numbers |
| --- | --- | --- |
| "bernoulli", "binomial" | y of `trials`, with the probability expit(eta) | |
| "poisson" | with the mean exp(eta) | |
| "gaussian" | around eta | log sd |
| "negative-binomial" | of variance mu + phi^2 mu^2 (phi = 0: Poisson; phi and -phi are the same) | phi |
| "student" | y = eta + sd t, t of nu degrees of freedom | log sd, log nu |
| "gamma" | with the mean mu = exp(eta), the variance mu^2 / shape | log shape |
| "beta" | of the shapes precision mu and precision (1 - mu), mu = expit(eta) | log precision |
| "zero-inflated-poisson" | 0 with probability pi, else as "poisson" | logit pi |
| "zero-inflated-negative-binomial" | the same of "negative-binomial" | phi, logit pi |
| "ordinal", "ordinal-probit" | y in 0 .. K - 1, P(y < k) = F(c_k - eta), F logistic or normal | c_1, log(c_2 - c_1), .. |
| "weibull" | a time of hazard k t^(k-1) exp(eta) | log k |
| "exponential" | the same with k = 1 | |
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
from typing import Any, Literal
from typing import Any
import numpy as np
from numpy.typing import NDArray
from ._checks import Domain, choice_of, describe
from ._record import BACKENDS, F64, WITHOUT_CUDA, Array, Kernel, Out, Scalar, on_host
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
CODES: dict[str, Any]
SHAPES: dict[str, Any]
SEVERAL_MODES: tuple[Any, ...]
ORDERED: tuple[Any, ...]
TIMES: tuple[Any, ...]
LATER: tuple[Any, ...]
LACKS: dict[str, Any]
MOST_EFFECTS: int
MOST_NODES: int
VALUES: Kernel
CURVATURE: Kernel
def values(points: Floats, X: Floats, Z: Floats, y: Floats, trials: Floats | None, offset: Floats | None, starts: Indices, upper: Floats | None=None, cuts: Floats | None=None, entry: Floats | None=None, *, family: Literal['bernoulli', 'binomial', 'poisson', 'gaussian', 'negative-binomial', 'student', 'gamma', 'beta', 'zero-inflated-poisson', 'zero-inflated-negative-binomial', 'ordinal', 'ordinal-probit', 'weibull', 'exponential', 'piecewise'], nodes: int, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Floats:
    """Returns the log-likelihood of a mixed model at many points, the effects of groups integrated out; NaN where a mode is not
    found.

    Parameters
    ----------
    points : (s, k) float64 array
        Points at which the log-likelihood is wanted: coefficients, T, shape numbers.
    X : (n, p) float64 array
        Rows, sorted by group.
    Z : (n, d) float64 array
        Factors of the group's effects: ones for an intercept, then slopes; at most 3 columns, and 1 where a product of
        densities may have several modes. Without columns the value is the sum over rows.
    y : (n,) float64 array
        The response. A value that the family does not have makes all results NaN.
    trials : (n,) float64 array, optional
        Trials of a binomial response; 1 if it is not given.
    offset : (n,) float64 array, optional
        Added to the predictor.
    starts : (g,) int64 array
        Where each group begins, from 0, and the number of rows at the end.
    upper : (n,) float64 array, optional
        The second column of a time: y itself for an event, inf where it is censored on the right at y, and the end of an
        interval in which it was. None: all are events.
    cuts : (m,) float64 array, optional
        Where the hazard of a piecewise model changes: rising, above 0.
    entry : (n,) float64 array, optional
        Of a time: from when on it was seen, at most y, and before it where the event is at y. None: from 0 on.
    family : str, one of bernoulli, binomial, poisson, gaussian, negative-binomial, student, gamma, beta, zero-inflated-poisson, zero-inflated-negative-binomial, ordinal, ordinal-probit, weibull, exponential, piecewise
        The likelihood of a row.
    nodes : int, in [1, 128]
        Nodes of the quadrature, a dimension, or on each panel where a group may have several modes. For gaussian rows 1 (the
        value) and 3 are exact, and taken.
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

    Source: Pinheiro and Bates (1995), section 2.4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import mixed
    >>> X, y = np.ones((4, 1)), np.array([3.0, 5.0, 0.0, 1.0])
    >>> Z, starts = np.ones((4, 1)), np.array([0, 2, 4])  # an intercept of each group; two groups of two rows
    >>> points = np.array([[0.5, 0.0], [0.5, -9.0]])  # the coefficient, and the logarithm of the groups' standard deviation
    >>> mixed.values(points, X, Z, y, None, None, starts, family="poisson", nodes=9).round(3)
    array([-7.457, -8.674])"""
    ...
def curvature(points: Floats, X: Floats, Z: Floats, y: Floats, trials: Floats | None, offset: Floats | None, starts: Indices, upper: Floats | None=None, cuts: Floats | None=None, entry: Floats | None=None, *, family: Literal['bernoulli', 'binomial', 'poisson', 'gaussian', 'negative-binomial', 'student', 'gamma', 'beta', 'zero-inflated-poisson', 'zero-inflated-negative-binomial', 'ordinal', 'ordinal-probit', 'weibull', 'exponential', 'piecewise'], nodes: int, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> tuple[Floats, Floats, Floats]:
    """Returns the log-likelihood with its gradient and minus its Hessian: those of the integral (Louis 1982), by the nodes of the
    value.

    Parameters
    ----------
    points : (s, k) float64 array
        Points at which the log-likelihood is wanted: coefficients, T, shape numbers.
    X : (n, p) float64 array
        Rows, sorted by group.
    Z : (n, d) float64 array
        Factors of the group's effects: ones for an intercept, then slopes; at most 3 columns, and 1 where a product of
        densities may have several modes. Without columns the value is the sum over rows.
    y : (n,) float64 array
        The response. A value that the family does not have makes all results NaN.
    trials : (n,) float64 array, optional
        Trials of a binomial response; 1 if it is not given.
    offset : (n,) float64 array, optional
        Added to the predictor.
    starts : (g,) int64 array
        Where each group begins, from 0, and the number of rows at the end.
    upper : (n,) float64 array, optional
        The second column of a time: y itself for an event, inf where it is censored on the right at y, and the end of an
        interval in which it was. None: all are events.
    cuts : (m,) float64 array, optional
        Where the hazard of a piecewise model changes: rising, above 0.
    entry : (n,) float64 array, optional
        Of a time: from when on it was seen, at most y, and before it where the event is at y. None: from 0 on.
    family : str, one of bernoulli, binomial, poisson, gaussian, negative-binomial, student, gamma, beta, zero-inflated-poisson, zero-inflated-negative-binomial, ordinal, ordinal-probit, weibull, exponential, piecewise
        The likelihood of a row.
    nodes : int, in [1, 128]
        Nodes of the quadrature, a dimension, or on each panel where a group may have several modes. For gaussian rows 1 (the
        value) and 3 are exact, and taken.
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

    Source: Pinheiro and Bates (1995), section 2.4; Louis (1982).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import mixed
    >>> X, y = np.ones((4, 1)), np.array([3.0, 5.0, 0.0, 1.0])
    >>> Z, starts = np.ones((4, 1)), np.array([0, 2, 4])  # an intercept of each group; two groups of two rows
    >>> points = np.array([[0.5, 0.0]])  # the coefficient, and the logarithm of the groups' standard deviation
    >>> value, gradient, minus_hessian = mixed.curvature(points, X, Z, y, None, None, starts, family="poisson", nodes=9)
    >>> value.round(3), gradient.round(3), minus_hessian.round(3)
    (array([-7.457]), array([[-0.06 , -0.334]]), array([[1.49 , 0.393, 1.524]]))"""
    ...
def size(p: int, d: int, family: str, own: int | None=None) -> int:
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
    7"""
    ...
