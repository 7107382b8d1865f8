"""Computes shares, mean, standard deviation, quantiles and survival of noisy counts, with intervals that contain the noise.

The noise is that of `Mechanism.count`: two-sided geometric, of each client that added it. An interval is for what the same rows
would say without noise; limits of a mean or a standard deviation hold
wherever in their bins the rows lie: values on a grid may all lie at the same end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ..arrays import Floats
from ..models.life_table import Counts

_STEP = 1e-30  # of a derivative in the direction of i, which loses no digit


class Interval(NamedTuple):
    """Holds an estimate with its limits.

    Examples
    --------
    >>> from fedkern.privacy.binned import Interval
    >>> Interval(0.3, 0.2, 0.4).lower
    0.2
    """

    value: float
    lower: float
    upper: float


class Noise(NamedTuple):
    """Says how noisy each count is: the decay of the geometric noise (`mechanism.decay * GRID`), added by so many clients.

    Examples
    --------
    >>> from fedkern.privacy.binned import Noise
    >>> round(Noise(1.0, clients=3).variance, 2)
    5.52
    """

    decay: float
    clients: int = 1

    @property
    def variance(self) -> float:
        """Of one count."""
        return self.clients / (2 * math.sinh(self.decay / 2) ** 2)


def share(noisy: ArrayLike, noise: Noise, cells: int | Sequence[int], level: float = 0.9) -> Interval:
    """Returns the share of one cell, or of some, in all rows.

    Examples
    --------
    >>> from fedkern.privacy.binned import Noise, share
    >>> [round(one, 3) for one in share([300, 700], Noise(1.0), 0)]
    [0.3, 0.298, 0.302]
    """
    some = np.atleast_1d(cells)
    return _interval(lambda n: n[some].sum() / n.sum(), noisy, noise, level, (0.0, 1.0))


def mean(noisy: ArrayLike, noise: Noise, ends: ArrayLike, level: float = 0.9) -> Interval:
    """Returns the mean of numbers; `ends`: (bins + 1,) finite, or (bins, 2) between which each bin's numbers lie.

    Examples
    --------
    >>> import math
    >>> from fedkern.privacy.binned import Noise, mean
    >>> mean([3, 1], Noise(math.inf), [[1, 1], [2, 6]])
    Interval(value=1.75, lower=1.25, upper=2.25)
    """
    low, high = _bins(ends)
    middle = (low + high) / 2
    return _interval(
        lambda n: middle @ n / n.sum(), noisy, noise, level, (float(low[0]), float(high[-1])), _half(noisy, high - low, 1)
    )


def sd(noisy: ArrayLike, noise: Noise, ends: ArrayLike, level: float = 0.9) -> Interval:
    """Returns the standard deviation, without what bins add to it; `ends` as `mean` takes them."""
    low, high = _bins(ends)
    middle, half = (low + high) / 2, _half(noisy, high - low, 2)

    def of(n: NDArray[Any]) -> Any:
        total = n.sum()
        square = (middle**2 @ n - (middle @ n) ** 2 / total) / (total - 1)
        return np.sqrt(square) if square.real > 0 else square * 0

    found = _interval(of, noisy, noise, level, (0.0, float(high[-1] - low[0])), half)
    # Sheppard's correction, for the value alone: the limits are those of rows anywhere in their bins.
    return found._replace(value=max(found.value**2 - half**2 / 3, 0.0) ** 0.5)


def quantile(noisy: ArrayLike, noise: Noise, ends: ArrayLike, at: float, level: float = 0.9) -> Interval:
    """Returns a quantile: its value and limits are ends of bins."""
    low, high = _bins(ends)
    # Noise may let cumulative counts fall. Made monotone once, they have all quantiles in their order.
    from scipy.optimize import isotonic_regression  # takes long to import

    until = isotonic_regression(np.cumsum(np.asarray(noisy, np.float64))).x
    before = np.arange(1, len(until))  # bins before each inner end
    off, inner = until[:-1] - at * until[-1], high[:-1]
    error = ndtri((1 + level) / 2) * np.sqrt(noise.variance * (before * (1 - at) ** 2 + (len(until) - before) * at**2))
    lower = inner[off < -error].max(initial=low[0])
    upper = inner[(off > error) & (inner > lower)].min(initial=high[-1])
    k = min(max(int(np.searchsorted(off, 0.0, "right")), 1), len(off) - 1)  # the first end beyond the quantile
    return Interval(float(inner[k - 1 if -off[k - 1] <= off[k] else k]), float(lower), float(upper))


def survival(counts: Counts, noise: Noise, level: float = 0.9) -> Floats:
    """Returns (groups, k, 3) survival at the ends of intervals with its limits, of noisy counts."""
    rest = counts.rows - (counts.events + counts.censored).sum(axis=1)
    each = [counts.events, counts.censored, rest[:, None], *([] if counts.entered is None else [counts.entered])]
    shapes = np.cumsum([rows.shape[1] for rows in each])[:-1]

    def at(end: int, n: NDArray[Any]) -> Any:
        dying, gone, after, *entered = np.split(n[None], shapes, axis=1)
        table = counts._replace(events=dying, censored=gone, rows=(dying + gone).sum(axis=1) + after[:, 0])
        exposed = table._replace(entered=entered[0] if entered else None).exposed
        return np.prod(1 - (dying / exposed)[0, : end + 1])

    with np.errstate(divide="ignore", invalid="ignore"):  # noise may leave nobody at risk
        found = [
            [_interval(partial(at, end), noisy, noise, level, (0.0, 1.0)) for end in range(counts.events.shape[1])]
            for noisy in np.hstack(each)
        ]
    return np.array(found)


def _bins(ends: ArrayLike) -> tuple[Floats, Floats]:
    """Returns the lower and the upper ends of bins."""
    all_ends = np.asarray(ends, np.float64)
    return (all_ends[:-1], all_ends[1:]) if all_ends.ndim == 1 else (all_ends[:, 0], all_ends[:, 1])


def _half(noisy: ArrayLike, width: Floats, power: int) -> float:
    """Returns half of bins' width, its mean over rows or root mean square: no mean, or sd, is farther from that of middles."""
    n = np.maximum(np.asarray(noisy, np.float64), 0)
    return float((n @ width**power / max(n.sum(), 1.0)) ** (1 / power)) / 2


def _interval(
    of: Callable[[NDArray[Any]], Any],
    noisy: ArrayLike,
    noise: Noise,
    level: float,
    limits: tuple[float, float],
    beside: float = 0.0,
) -> Interval:
    """Returns a smooth function of noisy counts, with limits by its derivatives; `beside`: by how much more they are apart."""
    n, (least, most) = np.asarray(noisy, np.float64), limits
    if n.sum() <= 0:
        return Interval(math.nan, least, most)
    slopes = [of(n + _STEP * 1j * axis).imag / _STEP for axis in np.eye(len(n))]
    value, error = float(of(n)), math.sqrt(noise.variance * float(np.square(slopes).sum()))
    lower, upper = (value + sign * (float(ndtri((1 + level) / 2)) * error + beside) for sign in (-1, 1))
    return Interval(*(min(max(number, least), most) for number in (value, lower, upper)))
