# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Survival: Cox's partial log-likelihood, in strata, with tied times by Efron's rule, late entry and case weights.

With R who is at risk at a time of a stratum, D the d of them that have their event then, and eta_i = offset_i + X_i beta, each
such time adds

    sum_D w_i eta_i - mean_D(w) sum_{l < d} log( sum_R w_i e^eta_i - (l / d) sum_D w_i e^eta_i ).

Rows are given in the order of `arranged`, which is made once: by stratum, in each from the last time to the first. What is not
finite at a point is NaN, and nothing else.
"""
from typing import Any, Literal
from typing import Any, NamedTuple
import numpy as np
from numpy.typing import NDArray
from ._record import COMPILED, F64, Array, Kernel, Out, on_host
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
COX_VALUES: Kernel
COX_CURVATURE: Kernel
class Arranged(NamedTuple):
    """Holds the order in which kernels take rows, and who has an event at one time.

    Attributes
    ----------
    order : (n,) the number of the given row that stands at each place
    first, ends, deaths, until : as kernels take them

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import survival
    >>> rows = survival.arranged(time=np.array([4.0, 5.0, 2.0, 3.0]), event=np.array([True, False, True, True]))
    >>> isinstance(rows, survival.Arranged)
    True
    >>> rows.first, rows.ends  # at risk at the latest event are rows 0 and 1 of this order
    (array([0, 0, 0]), array([2, 3, 4]))
    """
    order: Indices
    first: Indices
    ends: Indices
    deaths: Indices
    until: Indices | None
def arranged(time: Floats, event: NDArray[np.bool_], entry: Floats | None=None, strata: NDArray[Any] | None=None) -> Arranged:
    """Puts rows into the order in which kernels take them, and tells who has an event at one time.

    Parameters
    ----------
    time : (n,) array
        When each row has its event, or is seen for the last time.
    event : (n,) array of bool
        Which of the two it is.
    entry : (n,) array, optional
        From when on each row is seen: it is at risk at times behind that, up to its own.
    strata : (n,) array, optional
        Rows of different strata are never at risk together.

    Returns
    -------
    Arranged

    Raises
    ------
    ValueError
        A number that is not finite, or an entry that is not before the row's time.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import survival
    >>> rows = survival.arranged(time=np.array([4.0, 5.0, 2.0, 3.0]), event=np.array([True, False, True, True]))
    >>> rows.order  # the last time first
    array([1, 0, 3, 2])
    >>> rows.deaths
    array([1, 1, 1])"""
    ...
def cox_values(points: Floats, X: Floats, weights: Floats | None, offset: Floats | None, first: Indices, ends: Indices, deaths: Indices, until: Indices | None, *, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> Floats:
    """Returns Cox's partial log-likelihood at many points.

    Parameters
    ----------
    points : (s, p) float64 array
        Points at which the log-likelihood is wanted: coefficients.
    X : (n, p) float64 array
        Rows, in the order of `arranged`.
    weights : (n,) float64 array, optional
        Case weights, positive; 1 if they are not given.
    offset : (n,) float64 array, optional
        Added to the predictor.
    first : (k,) int64 array
        A set is all rows that have their event at one time of one stratum. Of each set the first row of its stratum.
    ends : (k,) int64 array
        Of each set how many rows there are up to its last. At risk are rows first .. ends - 1.
    deaths : (k,) int64 array
        Of each set how many rows have their event, which are the last of them.
    until : (n,) int64 array, optional
        Of each row the number of the first set at which it is no longer at risk, for it enters there or later; not given: none
        enters late.
    out : (s,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (s,) float64 array
        The partial log-likelihood.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Cox (1972, 1975); Efron (1977).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import survival
    >>> X = np.array([[0.5], [-1.0], [2.0], [0.0]])
    >>> rows = survival.arranged(time=np.array([4.0, 5.0, 2.0, 3.0]), event=np.array([True, False, True, True]))
    >>> survival.cox_values(np.array([[0.0], [0.7]]), X[rows.order], None, None, *rows[1:]).round(3)
    array([-3.178, -1.912])"""
    ...
def cox_curvature(points: Floats, X: Floats, weights: Floats | None, offset: Floats | None, first: Indices, ends: Indices, deaths: Indices, until: Indices | None, *, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats]:
    """Returns Cox's partial log-likelihood with its gradient and minus its Hessian.

    Parameters
    ----------
    points : (s, p) float64 array
        Points at which the log-likelihood is wanted: coefficients.
    X : (n, p) float64 array
        Rows, in the order of `arranged`.
    weights : (n,) float64 array, optional
        Case weights, positive; 1 if they are not given.
    offset : (n,) float64 array, optional
        Added to the predictor.
    first : (k,) int64 array
        A set is all rows that have their event at one time of one stratum. Of each set the first row of its stratum.
    ends : (k,) int64 array
        Of each set how many rows there are up to its last. At risk are rows first .. ends - 1.
    deaths : (k,) int64 array
        Of each set how many rows have their event, which are the last of them.
    until : (n,) int64 array, optional
        Of each row the number of the first set at which it is no longer at risk, for it enters there or later; not given: none
        enters late.
    out : tuple of 3 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (s,) float64 array
        The partial log-likelihood.
    gradient : (s, p) float64 array
        Its gradient.
    minus_hessian : (s, p*(p+1)/2) float64 array
        Minus its matrix of second derivatives: the lower triangle, row by row.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Cox (1972, 1975); Efron (1977).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import survival
    >>> X = np.array([[0.5], [-1.0], [2.0], [0.0]])
    >>> rows = survival.arranged(time=np.array([4.0, 5.0, 2.0, 3.0]), event=np.array([True, False, True, True]))
    >>> value, gradient, minus_hessian = survival.cox_curvature(np.array([[0.0]]), X[rows.order], None, None, *rows[1:])
    >>> value.round(3), gradient.round(3), minus_hessian.round(3)
    (array([-3.178]), array([[2.542]]), array([[2.123]]))"""
    ...
