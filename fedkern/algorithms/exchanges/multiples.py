"""Finds sites whose level of a positive number (a mean, a rate, a time per event) is a multiple of the others': another unit.

No spread beside such a level tells a unit from patients who differ. So the site is compared with how the others differ among
themselves: their logarithms have an sd s, of which chance makes too little where they are few, and which is taken with some
degrees of freedom of an sd that hospitals have. As in `spreads` each site counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sites = NDArray[np.bool_]

FACTOR = 5.0  # times the others', by which hospitals hardly differ
NEARER = 3.5  # times, where the others differ little among themselves: weeks among months are 4.35
ANOTHER = 15.0  # times, by which they do not differ, however few they are: glucose in mg/dl among mmol/l is 18
NOTED, CERTAIN = 3.5, 4.5  # sds of the others by which a site is one that is noted, and one that is no ordinary one
USUAL, WORTH = 0.3, 4.0  # sd of hospitals' logarithms, and the degrees of freedom that it counts for
SURE = 4.0  # standard errors by which a logarithm is not that of the others


@dataclass(frozen=True)
class Multiples:
    """Says how the sites' levels compare.

    Attributes
    ----------
    off : (m,) logarithm of each site's level over that of the median site; where `torn` over that of the sites below the gap
    odd : (m,) those that are noted; where `torn` the larger ones
    unit : (m,) odd ones that no ordinary difference of hospitals makes so
    torn : whether as many sites stand on either side of a gap, so that nothing says which are right
    """

    off: Array
    odd: Sites
    unit: Sites
    torn: bool = False


@dataclass(frozen=True)
class Named:
    """Names the sites of `Multiples`.

    Attributes
    ----------
    odd : each noted site with the logarithm of its multiple
    others : where `torn`, " or at" and those on the other side; else empty
    unit : those of `odd` that are in another unit
    """

    odd: tuple[tuple[str, float], ...]
    others: str
    unit: tuple[tuple[str, float], ...]

    @property
    def where(self) -> str:
        """The sites that are in another unit."""
        return ", ".join(name for name, _ in self.unit)

    @property
    def times(self) -> str:
        """The largest multiple of these, in words."""
        return in_words(max((off for _, off in self.unit), key=abs))


def name_multiples(names: Sequence[str], logs: Sequence[float], errors: Sequence[float]) -> Named:
    """Compares sites as `compare_multiples` does, and names those that are odd."""
    found = compare_multiples(np.array(logs), np.array(errors))
    others = f" or at {', '.join(repr(names[k]) for k in np.flatnonzero(~found.odd).tolist())}" if found.torn else ""
    odd, unit = (
        tuple((names[k], float(found.off[k])) for k in np.flatnonzero(those).tolist()) for those in (found.odd, found.unit)
    )
    return Named(odd, others, unit)


def compare_multiples(logs: Array, errors: Array) -> Multiples:
    """Compares sites by the logarithms of their levels (m,), and the standard errors of these."""
    m, nobody = len(logs), np.zeros(len(logs), bool)
    if m < 2:
        return Multiples(np.zeros(m), nobody, nobody)
    order = np.sort(logs)
    low, high = float(order[(m - 1) // 2]), float(order[m // 2])
    torn = high - low > np.log(NEARER)
    off = logs - (low if torn else (low + high) / 2)
    above = off > 0 if torn else nobody
    agree = ~above if torn else np.abs(off) <= np.log(NEARER)
    sides = [one for one in (logs[agree], logs[above]) if len(one)]
    sure = (above if torn else ~agree) & (np.abs(off) > SURE * errors)
    squares = sum(float(((one - one.mean()) ** 2).sum()) for one in sides)
    free = agree.sum() + above.sum() - len(sides)
    sd = np.sqrt((WORTH * USUAL**2 + squares) / (WORTH + free))
    # The distance of two means, or of one site from the mean of those that agree, each as well as its own rows tell it; but a
    # site in another unit makes all errors look large, which are no larger than those that agree differ.
    apart = np.abs((logs[above].mean() if torn else logs) - logs[agree].mean()) * np.ones(m)
    errors = np.minimum(errors, sd)
    own = (errors[above] ** 2).mean() if torn else errors**2
    apart /= np.sqrt((sd**2 + (errors[agree] ** 2).mean()) / agree.sum() + (sd**2 + own) / max(int(above.sum()), 1))
    gap = np.full(m, high - low) if torn else np.abs(off)
    several = m > 2  # two sites do not tell how sites differ
    odd = sure & ((gap > np.log(FACTOR)) | (several & (apart > NOTED)))
    unit = odd & ((gap > np.log(ANOTHER)) | (several & (gap > np.log(FACTOR)) & (apart > CERTAIN)))
    return Multiples(off, odd, unit, bool(torn and odd.any()))


def is_another(off: float, error: float, *, several: bool) -> tuple[bool, bool]:
    """Tells whether one site is noted, and whether it is in another unit, where only all others together are known.

    Parameters
    ----------
    off, error : logarithm of its level over that of all others, and its standard error
    several : whether the others are more than one
    """
    noted = abs(off) > max(np.log(FACTOR), SURE * error)
    return bool(noted), bool(noted and abs(off) > np.log(FACTOR**1.1 if several else ANOTHER))


def in_words(log: float) -> str:
    """Says a multiple."""
    return f"{np.exp(log):.3g} times" if log > 0 else f"1/{np.exp(-log):.3g} of"
