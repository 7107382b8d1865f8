"""Computes a site's part where every sweep touches its rows: a logistic response, or covariates that are missing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Floats
from .._checks import POSITIVE, SWITCH, Domain, require
from .._docs import documented
from .._record import F64, Array, Kernel, Out, Scalar, here, names
from .local import EXPANDED, N_SWEEPS, NAMES, SCALE_LAMBDA, SLAB, VARIANCE, WORDS, check_steps, per_chain, raise_fault

__all__ = ["Patterns", "imputed_sweeps", "logistic_sweeps", "missing_patterns"]

_CHAINS = ("c", "p")
_STATE = tuple(Array(name, _CHAINS, F64) for name in ("theta", "tau_sq", "deviation", "lambda_sq"))
_NEW = tuple(Array(f"new_{name}", _CHAINS, F64) for name in ("deviation", "lambda_sq"))
_EVENTS = Array("events", ("c", "4"), (np.dtype("int64"),))
_Y = Array("y", ("c", "n"), F64)
_PATTERNS = tuple(
    Scalar(name, Domain("`missing_patterns(X, psi)`", passed=f"x.{field}"), None, of="patterns")
    for name, field in (("pattern", "of_row"), ("K", "K"), ("L", "L"), ("shift", "shift"))
)

_LOGISTIC = (
    *(*NAMES, N_SWEEPS, EXPANDED, SCALE_LAMBDA),
    *(Scalar("scale_intercept", POSITIVE, 10.0), Scalar("intercept", SWITCH, True), SLAB),
)
_SITE = (*NAMES, N_SWEEPS, EXPANDED, SCALE_LAMBDA, *VARIANCE, SLAB, Scalar("intercept", SWITCH, True))

_WORDS = WORDS | {
    "X": "The site's covariates.",
    "n_sweeps": "How many sweeps.",
    "intercept": "False: there is none, and alpha comes back as 0.",
    "events": "Scales clipped to [1e-60, 1e60], systems factorised again by QR, 0, -1.",
    **{f"new_{name}": f"{WORDS[name][:-1]}, after the sweeps." for name in ("deviation", "lambda_sq", "sigma_sq")},
    "new_alpha": "The site's intercepts, after the sweeps.",
}
LOGISTIC_SWEEPS = Kernel(
    "shrinkage.logistic_sweeps",
    __name__,
    purpose="Gibbs sweeps of one site's logistic regression: scales, Polya-Gamma variables, coefficients with intercept.",
    source="docs/spec/sparse.md, section 11; Polson, Scott and Windle (2013)",
    inputs=(Array("X", ("n", "p"), F64), *_STATE, Array("alpha", ("c",), F64), _Y),
    outputs=(*_NEW, Array("new_alpha", ("c",), F64), _EVENTS),
    scalars=_LOGISTIC,
    order=("X", "y", *names(*_STATE), "alpha", *names(*_LOGISTIC, *_NEW), "new_alpha", "events", "n_threads"),
    streams=("scales", "augmentation", "coefficients"),
    blas=True,
    host="one chain a site: its rows are worked on one after the other",
    words=_WORDS
    | {
        "y": "0 or 1: of each chain, or (n,): the same for all.",
        "alpha": "The site's intercepts.",
        "scale_intercept": "Standard deviation of the intercept's normal prior.",
    },
    example="""
        >>> X, y = np.array([[0.5, -1.0], [-1.0, 0.0], [2.0, 1.0]]), np.array([1.0, 0.0, 1.0])
        >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
        >>> deviation, lambda_sq, alpha, events = shrinkage.logistic_sweeps(
        ...     X, y, theta, ones, deviation, ones, np.zeros(1), seed=7
        ... )
        >>> deviation.round(3), alpha.round(3)
        (array([[ 0.235, -0.031]]), array([2.363]))
    """,
)
IMPUTED_SWEEPS = Kernel(
    "shrinkage.imputed_sweeps",
    __name__,
    purpose="Gibbs sweeps of one site's regression with missing covariates, which are drawn given the others and the response.",
    source="docs/spec/sparse.md, section 11",
    inputs=(
        Array("X", ("n", "p"), F64),
        Array("psi", ("p", "p"), F64),
        *_STATE,
        Array("sigma_sq", ("c",), F64),
        Array("alpha", ("c",), F64),
        Array("completed", ("c", "n", "p"), F64),
        _Y,
    ),
    outputs=(
        *_NEW,
        Array("new_sigma_sq", ("c",), F64),
        Array("new_alpha", ("c",), F64),
        Array("new_completed", ("c", "n", "p"), F64),
        _EVENTS,
    ),
    scalars=(*_PATTERNS, *_SITE),
    order=(
        *("y", *names(*_PATTERNS, *_STATE), "sigma_sq", "alpha", "completed"),
        *names(*_SITE, *_NEW),
        *("new_sigma_sq", "new_alpha", "new_completed", "events", "n_threads"),
    ),
    streams=("scales", "coefficients", "variances", "imputation"),
    blas=True,
    host="one chain a site: its rows are worked on one after the other",
    words=_WORDS
    | {
        "X": "The site's covariates about the centre, NaN where missing.",
        "y": "The response: of each chain, or (n,): the same for all. Rows without one have been dropped.",
        "psi": "Covariance of the covariates, positive definite.",
        "alpha": "The site's intercepts, which have a flat prior.",
        "completed": "X with its missing values filled by the sweep before; at first by anything finite.",
        "shape": "Shape of the prior of sigma^2, IG(shape, rate); it is drawn with n degrees of freedom: the intercept is "
        "drawn, too.",
        "patterns": "The result of `missing_patterns(X, psi)`: saves its work in every call but the first. Then psi and "
        "completed are not checked. With `missing_patterns(X, psi, mean)` rows are N(mean, psi).",
        "new_completed": "X with its missing values as drawn last.",
    },
    example="""
        >>> X, y = np.array([[0.5, -1.0], [-1.0, np.nan], [0.5, 1.0]]), np.array([1.0, 0.2, -0.4])
        >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
        >>> deviation, lambda_sq, sigma_sq, alpha, completed, events = shrinkage.imputed_sweeps(
        ...     X, y, np.eye(2), theta, ones, deviation, ones, np.ones(1), np.zeros(1), np.nan_to_num(X)[np.newaxis], seed=7
        ... )
        >>> completed[0].round(3)
        array([[ 0.5  , -1.   ],
               [-1.   ,  0.621],
               [ 0.5  ,  1.   ]])
    """,
)

Swept = tuple[np.ndarray, ...]


class Patterns(NamedTuple):
    """Groups rows by the columns that they lack.

    Attributes
    ----------
    of_row : (n,) number of each row's pattern, -1: nothing is missing
    K : (k, p, p) regression of the missing columns on the others
    L : (k, p, p) Cholesky factor of their covariance given the others
    shift : (k, p) their mean where the others are 0

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, psi = np.array([[0.5, -1.0], [-1.0, np.nan], [np.nan, 1.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> patterns = shrinkage.missing_patterns(X, psi)
    >>> isinstance(patterns, shrinkage.Patterns), patterns.K.shape
    (True, (2, 2, 2))
    """

    of_row: NDArray[np.int64]
    K: Floats
    L: Floats
    shift: Floats


@documented(LOGISTIC_SWEEPS)
def logistic_sweeps(
    X: Floats,
    y: Floats,
    theta: Floats,
    tau_sq: Floats,
    deviation: Floats,
    lambda_sq: Floats,
    alpha: Floats,
    *,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    n_sweeps: int = 1,
    scales: str = "exact",
    scale_lambda: float = 1.0,
    scale_intercept: float = 10.0,
    intercept: bool = True,
    slab: float = np.inf,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Swept:
    """Makes Gibbs sweeps of one site's P(y = 1) = 1 / (1 + exp(-x'theta_k - alpha)), theta_k = theta + deviation.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, a response that is neither 0 nor 1.
    NumericalError
        A draw is not finite: chain, client, sweep and quantity are named.
    """
    kernel = LOGISTIC_SWEEPS
    numbers = kernel.numbers(
        seed=seed, chain=chain, client=client, step=step, n_sweeps=n_sweeps, scales=scales, scale_lambda=scale_lambda,
        scale_intercept=scale_intercept, intercept=intercept, slab=slab,
    )  # fmt: skip
    check_steps(kernel, step, n_sweeps)
    y = per_chain(y, theta, 1)
    inputs = {"X": X, "y": y, "theta": theta, "tau_sq": tau_sq, "deviation": deviation, "lambda_sq": lambda_sq, "alpha": alpha}
    arrays = kernel.prepare(inputs, out)
    require(kernel.name, bool(((arrays[6] == 0) | (arrays[6] == 1)).all()), "y", "must be 0 or 1", "another number")
    kernel.call(backend, arrays, numbers, n_threads)
    raise_fault(kernel.name, arrays[-1], chain, client, step)
    return tuple(arrays[-4:])


@documented(IMPUTED_SWEEPS)
def imputed_sweeps(
    X: Floats,
    y: Floats,
    psi: Floats,
    theta: Floats,
    tau_sq: Floats,
    deviation: Floats,
    lambda_sq: Floats,
    sigma_sq: Floats,
    alpha: Floats,
    completed: Floats,
    *,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    n_sweeps: int = 1,
    scales: str = "exact",
    scale_lambda: float = 1.0,
    shape: float = 2.0,
    rate: float = 1.0,
    slab: float = np.inf,
    intercept: bool = True,
    patterns: Patterns | None = None,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Swept:
    """Makes Gibbs sweeps of one site's y = alpha + X theta_k + e, where values of X are missing: its rows are N(0, psi).

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, no row, a psi that is not positive definite, a completed matrix that
        differs from X where X is known.
    NumericalError
        A draw is not finite: chain, client, sweep and quantity are named.
    """
    kernel = IMPUTED_SWEEPS
    y = per_chain(y, theta, 1)
    inputs = {
        "X": X, "y": y, "psi": psi, "theta": theta, "tau_sq": tau_sq, "deviation": deviation, "lambda_sq": lambda_sq,
        "sigma_sq": sigma_sq, "alpha": alpha, "completed": completed,
    }  # fmt: skip
    arrays = kernel.prepare(inputs, out)
    X, psi, completed = arrays[0], arrays[1], arrays[8]
    n, p = X.shape
    require(kernel.name, n > 0, "X", "must have rows", X.shape)
    require(kernel.name, n * (p // 2 + 1) < 2**32, "X", "must have fewer than 2^32 values", X.shape)
    # Who gives patterns has had psi and the completed matrix checked by the first call.
    if patterns is None:
        seen = ~np.isnan(X)
        known = bool((completed[:, seen] == X[seen]).all())
        require(kernel.name, known, "completed", "must be X where X is known", "other values")
        patterns = missing_patterns(X, psi)
    numbers = kernel.numbers(
        patterns=patterns, seed=seed, chain=chain, client=client, step=step, n_sweeps=n_sweeps, scales=scales,
        scale_lambda=scale_lambda, shape=shape, rate=rate, slab=slab, intercept=intercept,
    )  # fmt: skip
    check_steps(kernel, step, n_sweeps)
    kernel.call(backend, arrays, numbers, n_threads)
    raise_fault(kernel.name, arrays[-1], chain, client, step)
    return tuple(arrays[-6:])


def missing_patterns(X: Floats, psi: Floats, mean: Floats | None = None) -> Patterns:
    """Returns which rows lack the same columns, and the regression of these columns on the others under psi.

    Parameters
    ----------
    X : (n, p) array
        NaN where a value is missing.
    psi : (p, p) array
        Covariance of the columns, positive definite.
    mean : (p,) array
        Their mean, by default 0.

    Returns
    -------
    Patterns

    Raises
    ------
    ValueError
        A psi that is not symmetric and positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, psi = np.array([[0.5, -1.0], [-1.0, np.nan], [np.nan, 1.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> patterns = shrinkage.missing_patterns(X, psi)
    >>> patterns.of_row  # row 0 lacks nothing
    array([-1,  0,  1])
    """
    X, psi = here(X), here(psi)
    kernel, missing = IMPUTED_SWEEPS.name, np.isnan(X)
    try:
        np.linalg.cholesky(psi)
        symmetric = bool(np.allclose(psi, psi.T, rtol=1e-10, atol=0))
    except np.linalg.LinAlgError:
        symmetric = False
    require(kernel, symmetric, "psi", "must be symmetric and positive definite", "another matrix")
    # Rows that lack the same columns share one regression: it is computed once for each such set.
    incomplete, p = np.flatnonzero(missing.any(axis=1)), len(psi)
    kinds, number = np.unique(missing[incomplete], axis=0, return_inverse=True)
    of_row = np.full(len(missing), -1)
    of_row[incomplete] = number.ravel()
    K, L = np.zeros((2, len(kinds), p, p))
    centre = np.zeros(p) if mean is None else mean
    shift = np.zeros((len(kinds), p))
    for i, u in enumerate(kinds):
        o = ~u
        # Conditional normal distribution of the missing columns u given the observed ones o.
        K[i][np.ix_(u, o)] = np.linalg.solve(psi[np.ix_(o, o)], psi[np.ix_(o, u)]).T
        L[i][np.ix_(u, u)] = np.linalg.cholesky(psi[np.ix_(u, u)] - K[i][np.ix_(u, o)] @ psi[np.ix_(o, u)])
        shift[i, u] = centre[u] - K[i][np.ix_(u, o)] @ centre[o]
    return Patterns(of_row, K, L, shift)
