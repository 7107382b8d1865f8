"""Measures how well kept draws have mixed: by R-hat and ESS as ArviZ has them, by a stream's where these are NaN, and the error
of a mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from . import diagnostics, guard
from .streaming import Stream

Array = NDArray[np.float64]
Both = tuple[Array, Array]  # R-hat and ESS


def slowest(mixed: Mapping[str, Both], label: Callable[[int, int], str] = lambda j, n: "") -> tuple[float, float, str] | None:
    """Returns the largest R-hat, the least ESS, and whose it is: name and label(j, n) of number j of n; None without an ESS."""
    judged = {name: both for name, both in mixed.items() if np.isfinite(both[1]).any()}
    if not judged:
        return None
    name = min(judged, key=lambda name: float(np.nanmin(judged[name][1])))
    ess = judged[name][1]
    what, separator, site = name.partition("@")
    which = f"{what}{label(int(np.nanargmin(ess)), len(ess))}{separator}{site}"
    return max(float(np.nanmax(rhats)) for rhats, _ in judged.values()), float(np.nanmin(ess)), which


def rhat_ess(draws: Array) -> tuple[Array, Array]:
    """Computes R-hat and ESS of (c, t, P) draws, (P,) each, also where a chain is constant and others are not; NaN for
    constants."""
    rhat, ess = diagnostics.rhat_ess(draws)
    lacking = np.flatnonzero(np.isnan(rhat) & np.isfinite(draws).all(axis=(0, 1)) & (np.ptp(draws, axis=(0, 1)) > 0))
    if len(lacking):
        rhat[lacking], ess[lacking] = _stream(draws[..., lacking]).rhat_ess()
    return rhat, ess


def mean_error(draws: Array) -> Array:
    """Computes (P,) Monte-Carlo standard errors of the means of (c, t, P) draws; 0 for constants."""
    error = diagnostics.mean_error(draws)
    lacking = np.flatnonzero(np.isnan(error) & np.isfinite(draws).all(axis=(0, 1)))
    if len(lacking):
        error[lacking] = _stream(draws[..., lacking]).mean_error
    return error


def _unknown(draws: Array) -> tuple[Array, Array]:
    """Returns numbers that are not known."""
    return np.full(draws.shape[2:], np.nan), np.full(draws.shape[2:], np.nan)


@guard.check("R-hat and ESS", _unknown)
def published_rhat_ess(draws: Array) -> tuple[Array, Array]:
    """Computes R-hat and ESS for a result that is published, whatever happens."""
    return rhat_ess(draws)


@guard.figure("Monte-Carlo errors", lambda draws: _unknown(draws)[0])
def published_mean_error(draws: Array) -> Array:
    """Computes standard errors of means for a result that is published, whatever happens."""
    return mean_error(draws)


def _stream(draws: Array) -> Stream:
    """Adds draws to a stream, one after the other."""
    stream = Stream(len(draws), draws.shape[2], keep=False)
    for t in range(draws.shape[1]):
        stream.add(draws[:, t])
    return stream
