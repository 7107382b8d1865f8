"""Posterior draws for ArviZ. What differs between ArviZ 0.x (InferenceData) and 1.x (DataTree) stands here and nowhere else."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JobError
from .posterior import INTERCEPT, Posterior


def inference_data(posterior: Posterior, *, seed: int, chains: int = 4, draws: int = 1000) -> Any:
    """Groups posterior (theta, intercept, and theta_std, intercept_std where they differ), sample_stats (lp) and constant_data.

    Parameters
    ----------
    posterior : of d coefficients
    seed, chains, draws : independent draws from the keyed stream "posterior", one chain key each

    Returns
    -------
    InferenceData (ArviZ 0.x) or DataTree (ArviZ 1.x)

    Raises
    ------
    JobError
        ArviZ is not installed.
    """
    arviz = _arviz()
    standard = np.stack([posterior.draws(draws, seed=seed, chain=c) for c in range(chains)])
    z = standard - posterior.q.mean
    square = (z * z) @ posterior.q.P if posterior.q.diagonal else np.einsum("cdi,ij,cdj->cd", z, posterior.q.P, z)
    lp = 0.5 * (posterior.q.log_det_precision - posterior.q.d * np.log(2 * np.pi) - square)
    slopes = [j for j, name in enumerate(posterior.names) if name != INTERCEPT]
    variables: dict[str, Any] = {}
    scales = {"": posterior.on_data_scale(standard)} | ({} if posterior.affine is None else {"_std": standard})
    for suffix, values in scales.items():
        variables[f"theta{suffix}"] = values[..., slopes]
        if INTERCEPT in posterior.names:
            variables[f"intercept{suffix}"] = values[..., posterior.names.index(INTERCEPT)]
    names = [posterior.names[j] for j in slopes]
    groups = {
        "posterior": variables,
        "sample_stats": {"lp": lp},
        "constant_data": {"mean_std": posterior.q.mean, "sd_std": posterior.q.sd},
    }
    coords = {"column": names, "coefficient": list(posterior.names)}
    dims = {name: ["column"] for name in variables if name.startswith("theta")}
    dims |= {name: ["coefficient"] for name in groups["constant_data"]}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups, coords=coords, dims=dims)
    return arviz.from_dict(**groups, coords=coords, dims=dims)


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 when it is imported
            import arviz
    except ImportError as error:
        raise JobError(f"draws for ArviZ need ArviZ ({error}): pip install 'fedkern[results]'") from None
    return arviz


def write(posterior: Posterior, path: Path, *, seed: int, chains: int, draws: int) -> None:
    """Writes `posterior.nc` (netCDF 4)."""
    inference_data(posterior, seed=seed, chains=chains, draws=draws).to_netcdf(str(path), engine="h5netcdf")
