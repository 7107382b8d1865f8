"""Compares sites by a number each, and finds those that are not as the others: by spreads, means, or levels of a positive number.

A site is compared with the median of the sites, each of which counts once: a site with most of the rows would be its own median,
and its wrong cell would be blamed on the others. Where as many sites stand on either side nothing says which of them is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from ...arrays import Array
from ...finding import Finding, Value
from ...printing import listed

Sites = NDArray[np.bool_]

MANIFOLD = 15.0  # times, by which no hospitals differ, and a heavy tail hardly does: glucose in mg/dl among mmol/l is 18
# Standard deviations
APART = 25.0  # times one of two variances
SURE = 0.999  # quantile of F beyond which a ratio of variances is no chance
# Means
FAR = 3.0  # standard deviations, the geometric mean of both sites': few hospitals are so far apart
UNLIKE = 4.0  # and none of those whose mean and standard deviation are the same multiple of the others'
ALIKE = 1.2  # as which two multiples count
ANOTHER = 1.25  # a unit has at least that multiple
BEYOND = 20.0  # standard deviations: an age of 8 ± 5 is 11 of them from one of 80 ± 8
OUTLYING = 3.0  # times as far as any of those that are near
LEAST = 19.0  # degrees of freedom: of fewer rows mean and standard deviation say little
# Levels
FACTOR = 5.0  # times the others', by which hospitals hardly differ
NEARER = 3.5  # times, where the others differ little among themselves: weeks among months are 4.35
NOTED, NO_ORDINARY = 3.5, 4.5  # sds of the others by which a site is one that is noted, and one that is no ordinary one
USUAL, WORTH = 0.3, 4.0  # sd of hospitals' logarithms, and the degrees of freedom that it counts for
ERRORS = 4.0  # standard errors by which a logarithm is not that of the others
# Multiples
NO_CHANCE = 0.995  # quantile of t beyond which a site's mean is a multiple by a unit, where the others differ as they do
# One value
FEWEST = 4.0  # degrees of freedom of the site: fewer rows have one value by chance
SHOWN = 4  # sites in a sentence
MAD = 1.4826  # standard deviation of normal variables over their median absolute deviation


@dataclass(frozen=True)
class Apart:
    """Says how far sites are from the middle one, or where `torn` from those below the gap."""

    times: Array  # (m,) its standard deviation, mean or level over that; nan where a site is not compared
    off: Array  # (m,) the logarithm of `times`; of means the distance in standard deviations
    odd: Sites  # (m,) those that are not as the others; where `torn` those above the gap
    agree: Sites  # (m,) all others that are compared
    sure: Sites  # (m,) odd ones that no ordinary difference of sites makes so
    torn: bool = False  # whether as many stand on either side

    def others(self, names: Sequence[str]) -> str:
        """Names the sites that are as likely in another unit: where `torn`."""
        if not self.torn:
            return ""
        return f" or at {listed([name for name, agrees in zip(names, self.agree) if agrees], SHOWN)}"


def compare_spreads(
    squares: Array, degrees: Array, means: Array | None = None, *, apart: float = APART, sure: float = SURE
) -> Apart:
    """Compares sites by centred sums of squares and degrees of freedom (m,).

    Parameters
    ----------
    means : (m,) of the sites. A column that is far from 0 beside its spread (age, pressure) has not a fifth of it elsewhere, nor
        5 times; others may, where a value is rare, but not 15 times
    apart, sure : the constants above
    """
    varies, odd = (squares > 0) & (degrees > 0), np.zeros(len(squares), bool)
    variance = np.where(varies, squares, np.nan) / np.where(varies, degrees, 1.0)
    if varies.sum() < 2:
        return Apart(variance / variance, 0 * variance, odd, varies, odd)
    in_order = np.sort(variance[varies])
    base, high = in_order[(len(in_order) - 1) // 2], in_order[len(in_order) // 2]
    lower = varies & (variance <= base)
    torn = bool(high > apart * base and _beyond(high / base, degrees[varies & ~lower].sum(), degrees[lower].sum(), sure))
    if torn:
        odd = varies & ~lower
    else:
        base = np.sqrt(base) * np.sqrt(high)
        near = varies & (variance <= apart * base) & (variance >= base / apart)
        for k in np.flatnonzero(varies & ~near):
            ends = (degrees[k], degrees[near].sum())
            ordered = ends if variance[k] > base else ends[::-1]
            odd[k] = ends[1] > 0 and _beyond(variance[k] / base, *ordered, sure)
    times = np.sqrt(variance / base)
    far = _beyond_others(np.log(times), varies, 2 * USUAL, USUAL)
    odd &= far > NOTED
    agree = varies & ~odd
    certain = np.abs(np.log(np.where(varies, times, 1.0))) > np.log(MANIFOLD)
    if means is not None and agree.any() and np.median(np.abs(means[agree]) / np.sqrt(variance[agree])) > 1:
        # A wrong cell makes a standard deviation larger; a unit that makes it smaller makes the mean so too.
        with np.errstate(divide="ignore", invalid="ignore"):
            beside = means / np.median(means[agree]) / times
        multiple = (beside >= 1 / ALIKE) & (beside <= ALIKE)
        certain |= multiple & _beyond_sizes(means, variance, degrees, varies) | (times > 1) & ~multiple
    return Apart(times, np.log(times), odd, agree, odd & certain & (far > NO_ORDINARY) & (degrees >= LEAST), torn)


def _beyond_others(values: Array, with_value: Sites, alike: float | Array, usual: float | Array) -> Array:
    """Returns (m,) how far each site's value is from the others', in standard deviations by which these differ.

    Where firms are of all sizes, one that is twenty times as large as the middle one is in no other unit.

    Parameters
    ----------
    with_value : (m,) which sites have a value
    alike : (m,) the distance within which sites may be in the same other unit, and say nothing of each other
    usual : (m,) the standard deviation that sites have, which counts for `WORTH` degrees of freedom
    """
    found = np.full(len(values), np.inf)
    alike, usual = np.broadcast_to(alike, values.shape), np.broadcast_to(usual, values.shape)
    for k in np.flatnonzero(with_value):
        others = values[with_value & (np.abs(values - values[k]) > alike[k])]
        if len(others):
            variance = (WORTH * usual[k] ** 2 + ((others - others.mean()) ** 2).sum()) / (WORTH + len(others) - 1)
            found[k] = abs(values[k] - others.mean()) / np.sqrt(variance)
    return found


def _beyond_sizes(means: Array, variances: Array, degrees: Array, among: Sites) -> Sites:
    """Tells which sites have a mean that is another multiple of the others' than these are of each other's.

    Petals, incomes and years of service have mean and standard deviation in one ratio wherever they are large or small, as
    in another unit. What differs there is known by the other sites alone, and by chance, which counts as one more of them.
    """
    beyond = np.ones(len(means), bool)
    if not (means[among] > 0).all():
        return beyond  # no multiples of each other
    logs = np.log(np.where(among, means, 1.0))
    chance = variances / (degrees + 1) / np.where(among, means, 1.0) ** 2
    for k in np.flatnonzero(among):
        others = among & (np.abs(logs - logs[k]) > np.log(ALIKE))  # the rest may be in the same other unit
        if (n := int(others.sum())) > 1:
            variance = (((logs[others] - logs[others].mean()) ** 2).sum() + chance[others].mean()) / n
            far = np.abs(logs[k] - logs[others].mean()) / np.sqrt(variance * (1 + 1 / n))
            beyond[k] = far > scipy.special.stdtrit(n, NO_CHANCE)
    return beyond


def _beyond(ratio: float, above: float, below: float, sure: float) -> bool:
    """Tells whether no chance makes variances of so many degrees of freedom so different; `above` are the larger one's."""
    return bool(max(ratio, 1 / ratio) > scipy.special.fdtri(above, below, sure))


def compare_means(means: Array, variances: Array, degrees: Array, among: Sites) -> Apart:
    """Compares sites by means, variances and degrees of freedom (m,); `among`: those that may be compared.

    In Fahrenheit beside Celsius, lb beside kg or cm beside inches a standard deviation is 1.8 to 2.5 times the others', as
    hospitals may differ, and the mean many standard deviations away. A unit multiplies both alike, or moves the mean very far.
    """
    agree = among & (variances > 0) & (degrees >= LEAST)
    odd, places, nothing = np.zeros(len(means), bool), np.flatnonzero(agree), np.full(len(means), np.nan)
    if len(places) < 2:
        return Apart(nothing, nothing, odd, agree, odd)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        spread = np.sqrt(variances)
        order = places[np.argsort(means[places], kind="stable")]
        low, high = order[(len(order) - 1) // 2], order[len(order) // 2]
        middle, scale = means[low], spread[low]
        torn = bool(means[high] - middle > FAR * np.sqrt(spread[low] * spread[high]))
        if not torn:
            middle, scale = (means[low] + means[high]) / 2, np.sqrt(spread[low]) * np.sqrt(spread[high])
        distance, times, wider = np.abs(means - middle) / (np.sqrt(spread) * np.sqrt(scale)), means / middle, spread / scale
        odd[places] = means[places] > middle if torn else distance[places] > FAR
        odd &= _beyond_others(means, agree, FAR * spread, spread) > FAR
        if (means[agree] > 0).all():  # of positive numbers that sites have in other sizes, by their logarithms too
            odd &= _beyond_others(np.log(np.where(agree, means, 1.0)), agree, FAR * spread / means, spread / means) > FAR
        agree &= ~odd
        another = (times <= 0) | (np.maximum(times, 1 / times) >= ANOTHER)
        factor = (np.maximum(wider, 1 / wider) >= ANOTHER) & (np.maximum(times / wider, wider / times) <= ALIKE)
        outlying = distance > max(UNLIKE, OUTLYING * float(distance[agree].max(initial=0.0)))
        factor &= _beyond_sizes(means, variances, degrees, among & (variances > 0) & (degrees >= LEAST))
        sure = odd & outlying & another & (factor | (distance > BEYOND))
    return Apart(times, distance, odd, agree, sure, torn)


def compare_levels(logs: Array, errors: Array) -> Apart:
    """Compares sites by the logarithms of a positive number (m,), as a rate or a time per event, and their standard errors.

    No spread beside it tells a unit from patients who differ. So the site is compared with how the others differ among
    themselves: their logarithms have an sd, of which chance makes too little where they are few, and which is taken with some
    degrees of freedom of one that hospitals have.
    """
    m, nobody = len(logs), np.zeros(len(logs), bool)
    if m < 2:
        return Apart(np.ones(m), np.zeros(m), nobody, ~nobody, nobody)
    order = np.sort(logs)
    low, high = float(order[(m - 1) // 2]), float(order[m // 2])
    torn = high - low > np.log(NEARER)
    middle = low if torn else (low + high) / 2
    off = logs - middle
    above = off > 0 if torn else nobody
    agree = ~above if torn else np.abs(off) <= np.log(NEARER)
    far = above if torn else ~agree
    differs = far & (np.abs(off) > ERRORS * errors)
    sides = [side for side in (logs[agree], logs[above]) if len(side)]
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    sd = np.sqrt((WORTH * USUAL**2 + squares) / (WORTH + agree.sum() + above.sum() - len(sides)))
    # The distance of two means, or of one site from the mean of those that agree, each as well as its own rows tell it; but a
    # site in another unit makes all errors look large, which are no larger than those that agree differ.
    centre = logs[above].mean() if torn else logs
    apart = np.abs(centre - logs[agree].mean()) * np.ones(m)
    errors = np.minimum(errors, sd)
    error = (errors[above] ** 2).mean() if torn else errors**2
    apart /= np.sqrt((sd**2 + (errors[agree] ** 2).mean()) / agree.sum() + (sd**2 + error) / max(int(above.sum()), 1))
    gap = np.full(m, high - low) if torn else np.abs(off)
    several = m > 2  # two sites do not tell how sites differ
    odd = differs & ((gap > np.log(FACTOR)) | (several & (apart > NOTED)))
    sure = odd & ((gap > np.log(MANIFOLD)) | (several & (gap > np.log(FACTOR)) & (apart > NO_ORDINARY)))
    return Apart(np.exp(off), off, odd, ~odd, sure, bool(torn and odd.any()))


def describe_levels(
    names: Sequence[str],
    logs: Sequence[float],
    errors: Sequence[float],
    note: str,
    doubt: str,
    *,
    more: Callable[[float], Mapping[str, Value]] = lambda off: {},
    **of: Value,
) -> list[Finding]:
    """Compares sites as `compare_levels` does, and returns a finding on each odd one, and one on those that surely are.

    Parameters
    ----------
    note, doubt : ids
    more : the logarithm of a multiple -> further values of its note
    of : values of all findings
    """
    found = compare_levels(np.array(logs), np.array(errors))
    of["others"] = found.others(list(map(repr, names)))
    notes = [
        Finding.of(note, client=names[k], times=in_words(found.times[k]), **more(found.off[k]), **of) for k in _at(found.odd)
    ]
    if not found.sure.any():
        return notes
    largest = max(found.off[found.sure], key=abs)
    return [*notes, Finding.of(doubt, where=[names[k] for k in _at(found.sure)], times=in_words(np.exp(largest)), **of)]


def _at(those: Sites) -> list[int]:
    return np.flatnonzero(those).tolist()


def is_another_level(off: float, error: float, *, several: bool) -> tuple[bool, bool]:
    """Tells whether one site is noted, and whether it is in another unit, where only all others together are known. `off`,
    `error`: logarithm of its level over that of all others, and its standard error; `several`: whether the others are more than
    one."""
    noted = abs(off) > max(np.log(FACTOR), ERRORS * error)
    factor = FACTOR**1.1 if several else MANIFOLD
    return bool(noted), bool(noted and abs(off) > np.log(factor))


def in_words(times: float) -> str:
    """Says a multiple."""
    return f"1/{1 / times:.3g} of" if 0 < times < 1 else f"{times:.3g} times"


def with_one_value(means: Array, variances: Array, degrees: Array) -> Sites:
    """Returns the sites (m,) with one value, far from what those where it varies have: a code of what was never measured.

    Not among them are sites with a value of two that others have as well (a dose that one site gives to all, and others rarely),
    nor sites that have each another value: then the column is of places (an altitude, a year).
    """
    constant = (variances <= 0) & (degrees >= FEWEST) & np.isfinite(means)
    varied = (variances > 0) & (degrees >= LEAST)
    if not (constant.any() and varied.any()):
        return np.zeros(len(means), bool)
    theirs, their_variances = means[varied], variances[varied]
    middle = float(np.median(theirs))
    # The lower of two middle spreads: the code may stand in a part of the other's cells.
    scale = max(np.sqrt(np.sort(their_variances)[(varied.sum() - 1) // 2]), MAD * np.median(np.abs(theirs - middle)))
    odd: Sites = constant & (np.abs(means - middle) > FAR * scale)
    if not odd.any():
        return odd
    value = float(means[odd][0])
    # With two values, this and another a, the variance is (value - mean) (mean - a): a is the same at all, and 0 at one alone.
    with np.errstate(divide="ignore", invalid="ignore"):
        another = theirs - their_variances / (value - theirs)
    size = np.abs(theirs).max() + np.sqrt(their_variances.max())
    first = another[0] if len(another) > 1 else 0.0
    of_two = np.abs(another - first).max() < 1e-6 * size
    alike = np.allclose(means[odd] - middle, value - middle, rtol=1e-9, atol=0)
    return np.asarray(odd & bool(alike and not of_two))
