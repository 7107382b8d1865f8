"""Finds sites whose mean of a column is not that of the others: a wrong unit that the standard deviation alone does not show.

In Fahrenheit beside Celsius, lb beside kg or cm beside inches a standard deviation is 1.8 to 2.5 times the others', as hospitals
may differ; the mean is then many standard deviations away. As in `spreads` a site is compared with the median one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import spreads

Array = NDArray[np.float64]
Sites = NDArray[np.bool_]

FAR = 3.0  # standard deviations, the geometric mean of both sites': few hospitals are so far apart
UNLIKE = 4.0  # and none of those whose mean and standard deviation are the same multiple of the others'
ALIKE = 1.2  # as which two multiples count
ANOTHER = 1.25  # a unit has at least that multiple
BEYOND = 20.0  # standard deviations: an age of 8 ± 5 is 11 of them from one of 80 ± 8
OUTLYING = 3.0  # times as far as any of those that are near
LEAST = 19.0  # degrees of freedom: of fewer rows mean and standard deviation say little


@dataclass(frozen=True)
class Centres:
    """Says how far apart the sites' means of one column are.

    Attributes
    ----------
    distance : (m,) of each site's mean from the median site's in standard deviations (of both, their geometric mean)
    ratio : (m,) its mean over that
    odd : (m,) sites that are far from the others; where `torn` those above
    agree : (m,) all others that are compared
    unit : (m,) odd ones that are in another unit: no ordinary difference of hospitals is so
    factor : (m,) those of which mean and standard deviation are the same multiple of the others'
    torn : whether as many sites stand on either side
    """

    distance: Array
    ratio: Array
    odd: Sites
    agree: Sites
    unit: Sites
    factor: Sites
    torn: bool = False


def compare_centres(means: Array, variances: Array, degrees: Array, among: Sites) -> Centres:
    """Compares the sites (m,) by their means, variances and degrees of freedom; `among`: those that may be compared."""
    there = np.flatnonzero(among & (variances > 0) & (degrees >= LEAST))
    nobody, nothing = np.zeros(len(means), bool), np.full(len(means), np.nan)
    if len(there) < 2:
        return Centres(nothing, nothing, nobody, among, nobody, nobody)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        spread = np.sqrt(variances)
        order = there[np.argsort(means[there], kind="stable")]
        low, high = order[(len(order) - 1) // 2], order[len(order) // 2]
        # With two middle sites far apart nothing says which half is right: both halves are reported.
        torn = bool(means[high] - means[low] > FAR * np.sqrt(spread[low] * spread[high]))
        middle, scale = (
            (means[low], spread[low]) if torn else ((means[low] + means[high]) / 2, np.sqrt(spread[low]) * np.sqrt(spread[high]))
        )
        distance = np.abs(means - middle) / (np.sqrt(spread) * np.sqrt(scale))
        times, wider = means / middle, spread / scale
        odd = nobody.copy()
        odd[there] = means[there] > middle if torn else distance[there] > FAR
        agree = nobody.copy()
        agree[there] = ~odd[there]
        # A change of unit multiplies mean and standard deviation alike, or moves the mean very far.
        another = (times <= 0) | (np.maximum(times, 1 / times) >= ANOTHER)
        factor = odd & another & (np.maximum(wider, 1 / wider) >= ANOTHER)
        factor &= np.maximum(times / wider, wider / times) <= ALIKE
        outlying = distance > max(UNLIKE, OUTLYING * float(distance[agree].max(initial=0.0)))
    unit = odd & outlying & another & (factor | (distance > BEYOND))
    return Centres(distance, times, odd, agree, unit, factor & unit, torn)


FIRST = (
    "look at this first, for no setting of the job mends another unit (lb for kg, inches for cm, Fahrenheit for Celsius, mmol/l "
    "for g/dl): correct the file"
)


def notes(centres: Centres, what: str, sites: Sequence[str], remedy: str = "") -> Iterator[str]:
    """Yields notes for the reader of the result: one line a site, or one line if nothing says who is right.

    `what`: the column.
    """
    if centres.torn:
        yield (
            f"the mean of {what} at {spreads.some(sites, centres.odd)} is {np.nanmin(centres.distance[centres.odd]):.2g} "
            f"standard deviations or more from that at {spreads.some(sites, centres.agree)}, and nothing says which is "
            f"right: is it in another unit on one side, or are patients so different? {FIRST}{remedy}"
        )
        return
    for k in np.flatnonzero(centres.odd).tolist():
        both = f" (it and the standard deviation are {centres.ratio[k]:.2g} times the median's)" if centres.factor[k] else ""
        yield (
            f"{sites[k]}: the mean of {what} is {centres.distance[k]:.2g} standard deviations from the sites' median{both}: "
            f"is it in another unit there, or are patients so different? {FIRST}{remedy}"
        )


def doubt(centres: Centres, what: str, sites: Sequence[str]) -> str:
    """Returns the reason why a result cannot stand, or "" if it can."""
    if not centres.unit.any():
        return ""
    where = f" or {spreads.some(sites, centres.agree)}" if centres.torn else ""
    k = int(np.argmax(np.where(centres.unit, centres.distance, 0.0)))
    how = (
        f"mean and standard deviation are both {centres.ratio[k]:.2g} times those of the others"
        if centres.factor[k]
        else f"means are {centres.distance[k]:.2g} standard deviations apart"
    )
    return f"{what} is in another unit at {spreads.some(sites, centres.unit)}{where}: {how} (a note says what to do)"
