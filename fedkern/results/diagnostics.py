"""Computes the convergence of chains as ArviZ does: rank-normalised split R-hat and bulk effective sample size.

It calls arviz-stats on plain arrays: ArviZ itself would import plots, data frames and compilers, which takes longer than a small
job.
"""

from __future__ import annotations

import math
import sys
import threading
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError

Array = NDArray[np.float64]

REMEDY = "pip install 'fedkern[results]'"
LEAST = 4  # draws of each chain below which ArviZ computes nothing
MARKED = 1.05  # R-hat above which a number bears a mark wherever people read it


@cache
def available() -> bool:
    """Returns whether arviz-stats is installed, without importing it."""
    return find_spec("arviz_stats") is not None


def rhat_ess(draws: Array) -> tuple[Array, Array]:
    """Computes rank-normalised split R-hat (the larger of bulk and folded) and bulk ESS (Vehtari et al., 2021).

    Parameters
    ----------
    draws : (c, t, ...) c chains of t draws

    Returns
    -------
    rhat, ess : (...); NaN where a chain is constant or holds a number that is not finite, with fewer than 4 draws

    Raises
    ------
    JobError
        arviz-stats is not installed.
    """
    flat, usable, shape = _usable(draws, "rhat_ess")
    rhat, ess = np.full(flat.shape[2], np.nan), np.full(flat.shape[2], np.nan)
    if len(usable):
        rhat[usable], ess[usable] = _arviz_both(np.ascontiguousarray(flat[..., usable]))
    return rhat.reshape(shape), ess.reshape(shape)


def mean_error(draws: Array) -> Array:
    """Computes the (...) Monte-Carlo standard errors of the means of draws (c, t, ...); NaN and errors as in `rhat_ess`."""
    flat, usable, shape = _usable(draws, "mean_error")
    error = np.full(flat.shape[2], np.nan)
    if len(usable):
        chosen = flat[..., usable]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ess = _stats().ess(_halves(chosen), chain_axis=0, draw_axis=1, method="identity")
        error[usable] = chosen.std(axis=(0, 1), ddof=1) / np.sqrt(ess)
    return error.reshape(shape)


def _usable(draws: Array, what: str) -> tuple[Array, NDArray[np.intp], list[int]]:
    """Returns draws (c, t, P), the columns of which something can be computed, and the shape that P stands for."""
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2:
        raise ValueError(f"diagnostics.{what}: draws need shape (chains, draws, ...), got {draws.shape}")
    c, t, *shape = draws.shape
    flat = draws.reshape(c, t, math.prod(shape))
    if c == 0 or t < LEAST:
        return flat, np.empty(0, np.intp), shape
    varies = (flat.min(axis=1) < flat.max(axis=1)).all(axis=0)  # false where there is a NaN
    return flat, np.flatnonzero(varies & np.isfinite(flat).all(axis=(0, 1))), shape


def normal_scores(values: Array) -> Array:
    """Returns the normal scores of the ranks of each column of (n, P) values; equal values share a rank."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(np.ascontiguousarray(values.T), axis=1).T  # columns side by side in memory are sorted faster
    scores: Array = ndtri((ranks - 0.375) / (len(ranks) + 0.25))
    return scores


def _arviz_both(draws: Array) -> tuple[Array, Array]:
    """Computes R-hat and ESS of (c, t, P) draws: ranks of all quantities at once, which ArviZ takes one by one, the rest by
    ArviZ."""
    stats = _stats()

    def normal(values: Array) -> Array:
        """Returns the normal scores of the ranks over all chains."""
        return normal_scores(values.reshape(-1, values.shape[-1])).reshape(values.shape)

    halves = _halves(draws)
    bulk, tail = normal(halves), normal(np.abs(halves - np.median(halves, axis=(0, 1))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = (stats.rhat(scores, chain_axis=0, draw_axis=1, method="identity") for scores in (bulk, tail))
        ess = stats.ess(bulk, chain_axis=0, draw_axis=1, method="identity")
    return np.maximum(first, second), np.asarray(ess)


def _halves(draws: Array) -> Array:
    """Returns each chain's first and second half as two chains."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


@cache
def _stats() -> Any:
    """Returns arviz-stats' functions of arrays; JobError where it is not installed.

    For its functions of data sets arviz-stats imports xarray, and pandas with it, which takes longer and more memory than a small
    job. So xarray is hidden from it, if neither is imported yet and no other thread could import it meanwhile. The module is then
    incomplete, and is forgotten afterwards: a later import loads it anew.
    """
    alone, before = threading.active_count() == 1, set(sys.modules)
    hides = alone and not {"arviz_stats", "xarray"} & before
    if hides:
        sys.modules["xarray"] = None  # type: ignore[assignment]  # what Python takes for a module that is not there
    try:
        from arviz_stats.base.array import array_stats
    except ImportError as error:
        raise JobError(f"R-hat and effective sample sizes need arviz-stats ({error}): {REMEDY}") from None
    finally:
        if hides:
            for name in sys.modules.keys() - before:
                if name.partition(".")[0] in ("arviz_stats", "arviz_base", "xarray"):
                    del sys.modules[name]
    return array_stats
