"""Convergence of chains: rank-normalised split R-hat and bulk effective sample size, as ArviZ computes them."""

from __future__ import annotations

import math
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
    """Whether ArviZ is installed (nothing is imported to find out)."""
    return find_spec("arviz") is not None


def rhat_ess(draws: Array) -> tuple[Array, Array]:
    """Rank-normalised split R-hat (the larger of bulk and folded) and bulk ESS (Vehtari et al., 2021).

    Parameters
    ----------
    draws : (c, t, ...) c chains of t draws

    Returns
    -------
    rhat, ess : (...); NaN where a chain is constant or holds a number that is not finite, and where there are fewer than 4 draws

    Raises
    ------
    JobError
        ArviZ is not installed.
    """
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2:
        raise ValueError(f"diagnostics.rhat_ess: draws need shape (chains, draws, ...), got {draws.shape}")
    c, t, *shape = draws.shape
    flat = draws.reshape(c, t, math.prod(shape))
    rhat, ess = np.full(flat.shape[2], np.nan), np.full(flat.shape[2], np.nan)
    if c == 0 or t < LEAST:
        return rhat.reshape(shape), ess.reshape(shape)
    varies = (flat.min(axis=1) < flat.max(axis=1)).all(axis=0)  # false where there is a NaN
    usable = np.flatnonzero(varies & np.isfinite(flat).all(axis=(0, 1)))
    if len(usable):
        rhat[usable], ess[usable] = _arviz_both(np.ascontiguousarray(flat[..., usable]))
    return rhat.reshape(shape), ess.reshape(shape)


def normal_scores(values: Array) -> Array:
    """Normal scores of the ranks of each column of (n, P) values; equal values share a rank."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(np.ascontiguousarray(values.T), axis=1).T  # columns side by side in memory are sorted faster
    scores: Array = ndtri((ranks - 0.375) / (len(ranks) + 0.25))
    return scores


def _arviz_both(draws: Array) -> tuple[Array, Array]:
    """Of (c, t, P) draws. The ranks of all quantities are taken at once, which ArviZ does one by one; the rest is ArviZ's."""
    try:
        from xarray import Dataset

        arviz = _import_arviz()
    except ImportError as error:
        raise JobError(f"R-hat and effective sample sizes need ArviZ ({error}): {REMEDY}") from None

    def normal(values: Array) -> Any:
        """Normal scores of the ranks over all chains, as a Dataset: both generations of ArviZ take one."""
        scores = normal_scores(values.reshape(-1, values.shape[-1])).reshape(values.shape)
        return Dataset({"x": (("chain", "draw", "quantity"), scores)})

    half = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
    bulk, tail = normal(halves), normal(np.abs(halves - np.median(halves, axis=(0, 1))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = (arviz.rhat(data, method="identity")["x"].values for data in (bulk, tail))
        ess = arviz.ess(bulk, method="identity")["x"].values
    return np.maximum(first, second), np.asarray(ess)


def _import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 when it is imported
        import arviz
    return arviz
