"""Finds sites whose standard deviation of a column is not that of the others: another unit, or a wrong cell, from sums alone.

A site is compared with the median of the sites, each of which counts once: a site with most of the rows would be its own median,
and its wrong cell would be blamed on the others. Where as many sites stand on either side nothing says which of them is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sites = NDArray[np.bool_]

APART = 25.0  # times one of two variances
SURE = 0.999  # quantile of F beyond which a ratio of variances is no chance
CERTAIN = 25.0  # times the others' standard deviation: even a column with a heavy tail has not that
SHOWN = 4  # sites in a note


@dataclass(frozen=True)
class Spreads:
    """Says how the sites' standard deviations of one column compare.

    Attributes
    ----------
    ratio : (m,) each site's standard deviation over that of those that agree; nan where the column does not vary
    odd : (m,) those that are not as the others; where `torn` the larger ones
    agree : (m,) all others where the column varies
    torn : whether there are no more that agree than `odd` ones
    """

    ratio: Array
    odd: Sites
    agree: Sites
    torn: bool = False


def variances(means: Array, shifts: Array, squares: Array) -> Array:
    """Returns the sites' variances from their means, the means' `shifts` from a centre, and the mean squares about it.

    A variance is 0 if it is no more than rounding leaves of a constant column.
    """
    own = squares - shifts**2
    return np.where((own > (1e-14 * means) ** 2) & (own > 1e-10 * squares), own, 0.0)


def compare_spreads(squares: Array, degrees: Array, apart: float = APART, sure: float = SURE) -> Spreads:
    """Compares sites by centred sums of squares and degrees of freedom (m,); `apart` and `sure` are the constants above."""
    varies = (squares > 0) & (degrees > 0)
    variance = np.where(varies, squares, np.nan) / np.where(varies, degrees, 1.0)
    nobody = np.zeros(len(squares), bool)
    if varies.sum() < 2:
        return Spreads(np.sqrt(variance / variance), nobody, varies)
    own = np.sort(variance[varies])
    low, high = own[(len(own) - 1) // 2], own[len(own) // 2]
    lower = varies & (variance <= low)
    upper = varies & ~lower
    # The two middle sites are far apart: as many stand on either side, and nothing says which is right.
    if high > apart * low and _sure(high / low, degrees[upper].sum(), degrees[lower].sum(), sure):
        base = squares[lower].sum() / degrees[lower].sum()
        return Spreads(np.sqrt(variance / base), upper, lower, torn=True)
    middle = float(np.sqrt(low) * np.sqrt(high))
    ratio = variance / middle
    near = varies & (ratio <= apart) & (ratio >= 1 / apart)
    odd = nobody.copy()
    for k in np.flatnonzero(varies & ~near):
        ends = (degrees[k], degrees[near].sum())
        odd[k] = ends[1] > 0 and _sure(ratio[k], *(ends if ratio[k] > 1 else ends[::-1]), sure)
    return Spreads(np.sqrt(ratio), odd, varies & ~odd)


def _sure(ratio: float, above: float, below: float, sure: float) -> bool:
    """Tells whether no chance makes variances of so many degrees of freedom so different; `above` are the larger one's."""
    return bool(max(ratio, 1 / ratio) > scipy.special.fdtri(above, below, sure))


def certain(spread: Spreads, means: Array) -> Sites:
    """Returns the odd sites (m,) that no ordinary column has, whatever its tail.

    A column that is far from 0 beside its spread (age, pressure) has not a fifth of it elsewhere, nor 5 times; others may, where
    a value is rare, but not 25 times.

    `means` : (m,) over the standard deviation of each site
    """
    return spread.odd & (_far_from_zero(spread, means) | (np.nan_to_num(spread.ratio) > CERTAIN))


def multiplied(spread: Spreads, means: Array, variances: Array, least: float) -> Sites:
    """Returns the odd sites (m,) whose mean and standard deviation are both a multiple of the others', `least` at least.

    That is the geometric mean of both multiples. A heavy tail or a wrong cell makes a standard deviation as large, and no mean of
    a column that is far from 0.

    Parameters
    ----------
    means, variances : (m,) of each site
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if not _far_from_zero(spread, means / np.sqrt(variances)):
            return np.zeros_like(spread.odd)
        both = spread.ratio * means / np.median(means[spread.agree])
    return np.asarray(spread.odd & (both > 0) & (np.abs(np.log(np.where(both > 0, both, 1.0))) > 2 * np.log(least)))


def _far_from_zero(spread: Spreads, means: Array) -> bool:
    """Tells whether the sites that agree have their means, in standard deviations, more than one of them from 0."""
    return bool(np.median(np.abs(means[spread.agree])) > 1) if spread.agree.any() else False


QUESTION = "is it in another unit there (mg/dl for mmol/l), or is a cell wrong?"
LOOK = "rows.json of that client names cells that are far away"


def notes(spread: Spreads, what: str, sites: Sequence[str], remedy: str = "") -> Iterator[str]:
    """Yields notes for the reader of the result: one line a site, or one line if nothing says who is right.

    `what`: the column.
    """
    if spread.torn:
        yield (
            f"the standard deviation of {what} at {some(sites, spread.odd)} is {np.nanmin(spread.ratio[spread.odd]):.3g} times "
            f"or more that at {some(sites, spread.agree)}, and nothing says which is right: is it in another unit on one side "
            f"(mg/dl for mmol/l), or is a cell wrong? rows.json of these clients names cells that are far away{remedy}"
        )
        return
    for k in np.flatnonzero(spread.odd).tolist():
        yield (
            f"{sites[k]}: the standard deviation of {what} is {spread.ratio[k]:.3g} times that of the sites' median: {QUESTION} "
            f"{LOOK}{remedy}"
        )


def doubt(spread: Spreads, sure: Sites, what: str, sites: Sequence[str], more: str = "") -> str:
    """Returns the reason why a result cannot stand, or "" if it can. `more`: another possible cause."""
    if not sure.any():
        return ""
    where = f"{some(sites, sure)} or {some(sites, spread.agree)}" if spread.torn else some(sites, sure)
    worst = np.nanmax(np.where(sure, np.maximum(spread.ratio, 1 / spread.ratio), np.nan))
    return (
        f"{what} is in another unit at {where}, or has a wrong cell there{more}: standard deviations are {worst:.3g}-fold apart "
        "(a note says what to do)"
    )


def some(sites: Sequence[str], those: Sites) -> str:
    """Names the first few of these sites."""
    at = np.flatnonzero(those)
    return ", ".join(sites[k] for k in at[:SHOWN]) + (f" and {len(at) - SHOWN} more" if len(at) > SHOWN else "")
