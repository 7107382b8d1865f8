"""Makes times one that differ by rounding alone: .1 + .1 + .1 is no other time than .3, and ties are terms of a likelihood.

As in R (`timefix` of survival), neighbours among a client's times are one where they differ by less than 1.5e-8 of a scale. The
scale is the largest time that the job names, which all parties know; where it names none, no time of one client meets a number of
another's, and the scale is the mean of the client's own times, as R has it of a stratum. Nothing is exchanged.

A grid would not do: a time on the border of two cells falls into either by its rounding. Here all that rounding makes of a time
t, which is within half of the tolerance, is one wherever t lies, for each two of these numbers differ by less than the tolerance.
If the job names t, it is among them at every client, and they become it: they are at it at all clients, and no client has one of
them before or behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Array

TOLERANCE = float(np.finfo(float).eps ** 0.5)  # that of R


def join_rounded(named: Sequence[float], *times: Array) -> list[Array]:
    """Returns columns of times of a client's rows, of which those that differ by rounding alone are one; the rest is unchanged.

    Parameters
    ----------
    named : the times that the job names, with which all clients compare theirs
    times : (n,) each; what is not finite is no time
    """
    all_times = np.unique(np.concatenate([column[np.isfinite(column)] for column in times]))
    fixed = np.array(sorted(named), np.float64)
    scale = float(fixed[-1]) if len(named) else float(np.abs(all_times).mean()) if len(all_times) else 0.0
    values = np.union1d(all_times, fixed)
    if not len(values):
        return [*times]
    group = np.concatenate([[0], np.cumsum(np.diff(values) > TOLERANCE * scale)])
    first = values[np.searchsorted(group, np.arange(group[-1] + 1))]
    place = np.searchsorted(values, fixed[::-1])
    first[group[place]] = fixed[::-1]
    new = first[group]
    return [np.where(np.isfinite(column), new[np.searchsorted(values, column) % len(values)], column) for column in times]
