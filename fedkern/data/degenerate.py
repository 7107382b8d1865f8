"""Finds columns from which little can be learnt, and columns in which few cells decide.

Such columns have one value, follow from others, or have lost digits. They are found by one pass over a party's rows and, for
columns that follow from others, by a QR factorisation of a limited number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr

from ..algorithms.exchanges.column_notes import Degenerate
from ..arrays import Array
from ..kernels.families import FAMILIES
from ..models.encoding import Column, Encoding
from ..models.formula_effects import units_of_effects
from .isolated import decide, find_codes, judge

__all__ = ["Degenerate", "degenerate", "with_far", "with_response"]

COARSE = 1e10  # values over their range: fewer than six of a number's sixteen digits are left
LEFT = 1e-3  # of an effect's standard deviation beside what follows from others: its variance is inflated 10^6 times
NAMED = 1e-2  # of a standardised coefficient of the others
WORK = 4e9  # operations of the factorisation: more rows are thinned, and where too few are left nothing is said
BLOCK = 1 << 12
ROUNDING = 1e-9  # of a column's constants: what is left of a zero that was standardised; of its sd: what may be its effect's


def degenerate(X: np.ndarray, encoding: Encoding, *, intercept: bool = True) -> Degenerate:
    """Returns the degenerate ones among a party's encoded columns.

    Parameters
    ----------
    X : (n, d) in the order of `encoding.names`; rows or cells may be NaN
    encoding : of the columns; the one of an intercept is not looked at
    intercept : whether the model has one: without, a column with one value is no fault

    Returns
    -------
    names of columns, a categorical one as a whole
    """
    low, high, count = _ends(X)
    with np.errstate(invalid="ignore", over="ignore"):
        moves = high > low
    constant, apart, coarse, informative = list[str](), list[str](), [], []
    for column, places in _columns(encoding):
        moving = places[moves[places]]
        if not len(moving):
            if intercept and count[places].max() > 1:
                constant.append(column.name)
                apart += [column.name] * (column.levels is None and _is_apart(column, float(low[places[0]])))
        elif column.levels is not None:
            informative += [(column.name, int(j)) for j in moving[1:]]  # all levels together are the intercept
        elif _is_coarse(column, float(low[moving[0]]), float(high[moving[0]])):
            coarse.append(column.name)
        else:
            informative.append((column.name, int(moving[0])))
    collinear = _collinear(X, [j for _, j in informative], intercept, units_of_effects(encoding))
    names = dict(zip((j for _, j in informative), (name for name, _ in informative)))
    follows: dict[str, tuple[str, ...]] = {}
    for j, others in (collinear or {}).items():
        from_names = dict.fromkeys(names[i] for i in others if names[i] != names[j])
        if from_names:
            follows[names[j]] = tuple(dict.fromkeys([*follows.get(names[j], ()), *from_names]))
    several = bool((count > 1).any())
    return Degenerate(tuple(constant), tuple(coarse), follows, (several, several and collinear is not None), apart=tuple(apart))


def with_far(
    known: Degenerate, columns: Mapping[str, Array], encoding: Encoding, y: Array | None, offset: Array | None
) -> Degenerate:
    """Adds the columns, or the response, in which few cells, or a repeated value, are far from the others.

    Of a response that is a count they are codes for a missing value; of other responses nothing is looked for. What a formula
    makes of columns is not looked at, for a product with an indicator is 0 in many rows, and so is a spline's basis.

    Parameters
    ----------
    known : the degenerate columns so far
    columns : the numeric ones of the file, in their own units (`far.columns`)
    y, offset : (n,) the response, and what is added to the predictor; NaN where a row has none
    """
    far, zeros = judge(columns)
    family = FAMILIES[encoding.family]
    if y is not None and encoding.response is not None and family.continuous and family.concave:  # else few cells decide nothing
        far += [encoding.response] * decide(np.asarray(y, np.float64))
    elif y is not None and encoding.response is not None and family.counted and family.link == "log":
        far += [encoding.response] * bool(find_codes(np.asarray(y, np.float64), offset).any())
    return replace(known, far=tuple(far), zeros=zeros)


def with_response(known: Degenerate, y: Array, encoding: Encoding) -> Degenerate:
    """Adds the response (n,), which may be NaN, to the columns with one value where no row has the event, or each has it."""
    family, values = FAMILIES[encoding.family], y[np.isfinite(y)]
    if encoding.response is None or not len(values):
        return known
    nothing = (family.binary or family.counted) and not values.any()
    return replace(known, constant=(*known.constant, encoding.response)) if nothing or (family.binary and values.all()) else known


def _columns(encoding: Encoding) -> Iterator[tuple[Column, NDArray[np.int64]]]:
    """Yields each column with the places of its coefficients."""
    place = int(encoding.intercept)
    for column in encoding.columns:
        width = 1 if column.levels is None else len(column.levels)
        yield column, np.arange(place, place + width)
        place += width


def _ends(X: np.ndarray) -> tuple[Array, Array, NDArray[np.int64]]:
    """Returns smallest and largest value (d,), and number of values, block by block: X may be larger than memory."""
    d = X.shape[1]
    low, high, count = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d, np.int64)
    for begin in range(0, len(X), BLOCK):
        part = np.asarray(X[begin : begin + BLOCK], np.float64)
        if np.isfinite(part.sum()):  # all are there
            low, high, count = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0)), count + len(part)
            continue
        known = np.isfinite(part)
        low = np.minimum(low, np.where(known, part, np.inf).min(axis=0))
        high = np.maximum(high, np.where(known, part, -np.inf).max(axis=0))
        count += known.sum(axis=0)
    return low, high, count


def _is_apart(column: Column, value: float) -> bool:
    """Tells whether a column's one value is not its centre: where that is the mean of all rows, others have other values."""
    centre, scale = column.constants
    return bool(np.isfinite(value) and abs(value) * scale > ROUNDING * (abs(centre) + scale))


def _is_coarse(column: Column, low: float, high: float) -> bool:
    """Tells whether the column's cells, before standardising, are large beside their range."""
    centre, scale = column.constants
    with np.errstate(over="ignore"):
        size = max(abs(centre + scale * low), abs(centre + scale * high))
        return bool(size > COARSE * scale * (high - low))


def _stand_well_apart(products: Array) -> bool:
    """Tells, by cross-products of columns of length 1, whether far more is left of each than of one that follows from others.

    So it is with most, which then need no QR factorisation.
    """
    try:
        return bool((np.diag(np.linalg.cholesky(products)) > 10 * LEFT).all())
    except np.linalg.LinAlgError:
        return False


def _complete(X: np.ndarray, places: list[int]) -> Iterator[Array]:
    """Yields these columns of the rows without a gap, block by block."""
    for begin in range(0, len(X), BLOCK):
        part = np.asarray(X[begin : begin + BLOCK], np.float64)[:, places]
        yield part if np.isfinite(part.sum()) else part[np.isfinite(part).all(axis=1)]


def _collinear(X: np.ndarray, places: list[int], intercept: bool, units: Array) -> dict[int, list[int]] | None:
    """Returns column -> earlier ones that it follows from, or None if too few rows are complete to say so; `units`: see there."""
    q = len(places)
    if q < 2:
        return {}
    # Of a long table every k-th row is enough: the work of QR is bounded.
    most = int(WORK / (2 * q * q))
    some = X[:: max(1, -(-len(X) // most)) if most else len(X)]
    n, total, products = 0, np.zeros(q), np.zeros((q, q))
    with np.errstate(all="ignore"):
        for part in _complete(some, places):
            n, total = n + len(part), total + part.sum(axis=0)
        if n <= q + 1:
            return None
        centre = total / n if intercept else np.zeros(q)
        for part in _complete(some, places):
            part = part - centre
            products += part.T @ part
        norm = np.sqrt(np.diag(products))
        lengths = np.where(norm > 0, norm, 1.0)
        products /= np.outer(lengths, lengths)
    if not np.isfinite(products).all():
        return None
    if norm.all() and _stand_well_apart(products):
        return {}
    part = (np.concatenate([*_complete(some, places)]) - centre) / lengths
    # The length that is left of each column after its earlier ones are taken out.
    left = np.abs(np.diag(qr(part, mode="r", check_finite=False)[0][:q]))
    follows: dict[int, list[int]] = {}
    least = LEFT * np.clip(units[places], ROUNDING, 1.0)
    for j in np.flatnonzero((left < least) & (norm > 0)):
        before = [i for i in range(j) if left[i] >= least[i]]
        slopes = lstsq(part[:, before], part[:, j], check_finite=False)[0]
        follows[places[j]] = [places[i] for i, slope in zip(before, slopes) if abs(slope) > NAMED]
    return {j: others for j, others in follows.items() if others}
