"""Survival: Cox's partial log-likelihood, in strata, with tied times by Efron's rule, late entry and case weights.

With R who is at risk at a time of a stratum, D the d of them that have their event then, and eta_i = offset_i + X_i beta, each
such time adds

    sum_D w_i eta_i - mean_D(w) sum_{l < d} log( sum_R w_i e^eta_i - (l / d) sum_D w_i e^eta_i ).

Rows are given in the order of `arranged`, which is made once: by stratum, in each from the last time to the first. What is not
finite at a point is NaN, and nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Indices
from ._docs import documented
from ._record import COMPILED, F64, Array, Kernel, Out, on_host

__all__ = ["Arranged", "arranged", "cox_curvature", "cox_values"]

_I64 = (np.dtype("int64"),)
_INPUTS = (
    Array("points", ("s", "p"), F64),
    Array("X", ("n", "p"), F64),
    Array("weights", ("n",), F64, optional=True),
    Array("offset", ("n",), F64, optional=True),
    Array("first", ("k",), _I64),
    Array("ends", ("k",), _I64),
    Array("deaths", ("k",), _I64),
    Array("until", ("n",), _I64, optional=True),
)
_VALUE = Array("value", ("s",), F64)
_WORDS = {
    "points": "Points at which the log-likelihood is wanted: coefficients.",
    "X": "Rows, in the order of `arranged`.",
    "weights": "Case weights, positive; 1 if they are not given.",
    "offset": "Added to the predictor.",
    "first": "A set is all rows that have their event at one time of one stratum. Of each set the first row of its stratum.",
    "ends": "Of each set how many rows there are up to its last. At risk are rows first .. ends - 1.",
    "deaths": "Of each set how many rows have their event, which are the last of them.",
    "until": "Of each row the number of the first set at which it is no longer at risk, for it enters there or later; not given: "
    "none enters late.",
    "value": "The partial log-likelihood.",
    "gradient": "Its gradient.",
    "minus_hessian": "Minus its matrix of second derivatives: the lower triangle, row by row.",
}

COX_VALUES = Kernel(
    "survival.cox_values",
    __name__,
    purpose="Cox's partial log-likelihood at many points, in strata, with ties, late entry and case weights.",
    source="Cox (1972, 1975); Efron (1977)",
    inputs=_INPUTS,
    outputs=(_VALUE,),
    backends=COMPILED,
    host="sums over who is at risk follow each other",
    words=_WORDS,
    example="""
        >>> X = np.array([[0.5], [-1.0], [2.0], [0.0]])
        >>> rows = survival.arranged(time=np.array([4.0, 5.0, 2.0, 3.0]), event=np.array([True, False, True, True]))
        >>> survival.cox_values(np.array([[0.0], [0.7]]), X[rows.order], None, None, *rows[1:]).round(3)
        array([-3.178, -1.912])
    """,
)

COX_CURVATURE = Kernel(
    "survival.cox_curvature",
    __name__,
    purpose="Cox's partial log-likelihood with its gradient and minus its Hessian, in strata, with ties, late entry and weights.",
    source="Cox (1972, 1975); Efron (1977)",
    inputs=_INPUTS,
    outputs=(_VALUE, Array("gradient", ("s", "p"), F64), Array("minus_hessian", ("s", "p*(p+1)/2"), F64)),
    backends=COMPILED,
    host="a point a round, which takes a CPU milliseconds",
    words=_WORDS,
    example="""
        >>> X = np.array([[0.5], [-1.0], [2.0], [0.0]])
        >>> rows = survival.arranged(time=np.array([4.0, 5.0, 2.0, 3.0]), event=np.array([True, False, True, True]))
        >>> value, gradient, minus_hessian = survival.cox_curvature(np.array([[0.0]]), X[rows.order], None, None, *rows[1:])
        >>> value.round(3), gradient.round(3), minus_hessian.round(3)
        (array([-3.178]), array([[2.542]]), array([[2.123]]))
    """,
)


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


def arranged(time: Floats, event: NDArray[np.bool_], entry: Floats | None = None, strata: NDArray[Any] | None = None) -> Arranged:
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
    array([1, 1, 1])
    """
    time = np.asarray(time, np.float64)
    n = len(time)
    code = np.zeros(n, np.int64) if strata is None else np.unique(strata, return_inverse=True)[1].reshape(n)
    begin = np.full(n, -np.inf) if entry is None else np.asarray(entry, np.float64)
    if not np.isfinite(time).all() or np.isnan(begin).any() or not (begin < time).all():
        raise ValueError("survival.arranged: time must be finite, and entry before time")
    event = np.asarray(event, np.bool_)
    order = np.lexsort((event, -time, code)).astype(np.int64)
    code, time, event, begin = code[order], time[order], event[order], begin[order]
    changed = np.flatnonzero((np.diff(code) != 0) | (np.diff(time) != 0)) + 1  # where another time or stratum begins
    starts, stops = np.concatenate([[0], changed]), np.concatenate([changed, [n]])
    if n == 0:
        starts = stops = np.empty(0, np.int64)
    deaths = np.add.reduceat(event.astype(np.int64), starts) if n else np.empty(0, np.int64)
    dying = deaths > 0
    ends, deaths = stops[dying].astype(np.int64), deaths[dying]
    first = np.searchsorted(code, code[ends - 1]).astype(np.int64)
    if entry is None:
        return Arranged(order, first, ends, deaths, None)
    # Sets of a stratum follow each other with falling times: a row leaves before the first whose time is not above its entry.
    until = np.empty(n, np.int64)
    of_set, time_of_set = code[ends - 1], time[ends - 1]
    for number in np.unique(code):
        rows, sets = code == number, np.flatnonzero(of_set == number)
        base = int(np.searchsorted(of_set, number))
        until[rows] = base + np.searchsorted(-time_of_set[sets], -begin[rows])
    return Arranged(order, first, ends, deaths, until)


@documented(COX_VALUES)
def cox_values(
    points: Floats,
    X: Floats,
    weights: Floats | None,
    offset: Floats | None,
    first: Indices,
    ends: Indices,
    deaths: Indices,
    until: Indices | None,
    *,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns Cox's partial log-likelihood at many points."""
    value: Floats
    (value,) = _call(COX_VALUES, (points, X, weights, offset, first, ends, deaths, until), out, n_threads, backend)
    return value


@documented(COX_CURVATURE)
def cox_curvature(
    points: Floats,
    X: Floats,
    weights: Floats | None,
    offset: Floats | None,
    first: Indices,
    ends: Indices,
    deaths: Indices,
    until: Indices | None,
    *,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Returns Cox's partial log-likelihood with its gradient and minus its Hessian."""
    inputs = (points, X, weights, offset, first, ends, deaths, until)
    value, gradient, minus_hessian = _call(COX_CURVATURE, inputs, out, n_threads, backend)
    return value, gradient, minus_hessian


def _call(kernel: Kernel, inputs: tuple[object, ...], out: Out, n_threads: int, backend: str | None) -> tuple[Any, ...]:
    arrays = kernel.prepare({a.name: value for a, value in zip(kernel.inputs, inputs)}, out, backend=backend)
    n, (first, ends, deaths) = len(arrays[1]), (np.asarray(on_host(numbers)) for numbers in arrays[4:7])
    before = np.concatenate([[0], ends])[:-1]
    same = np.concatenate([[False], first[1:] == first[:-1]])
    least = np.where(same, before, first)
    follows = (first >= before) | same
    if not ((first >= 0) & follows & (ends >= least) & (ends <= n) & (deaths >= 1) & (deaths <= ends - least)).all():
        raise ValueError(f"{kernel.name}: first, ends and deaths must be of sets that follow each other, as `arranged` has them")
    if arrays[7] is not None and (np.asarray(on_host(arrays[7])) < 0).any():
        raise ValueError(f"{kernel.name}: until must not be negative")
    kernel.call(backend, arrays, (), n_threads)
    return tuple(arrays[len(inputs) :])
