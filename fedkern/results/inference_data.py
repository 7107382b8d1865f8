"""Posterior draws as ArviZ has them. What differs between ArviZ 0.x (InferenceData) and 1.x (DataTree) stands here alone.

The file is written by xarray, which both generations read: importing ArviZ would take longer than a small job.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..errors import JobError
from .draws import Draws
from .gaussian import PLAIN, Posterior
from .samples import Samples
from .streamed import Streamed

REMEDY = "pip install 'fedkern[results]'"


def groups(posterior: Any, *, seed: int, chains: int = 4, draws: int = 1000) -> dict[str, Any]:
    """Groups posterior (theta, intercept, and theta_std, intercept_std where they differ), sample_stats (lp) and constant_data.

    Of a sampler: all kept draws, or the thinned ones beside streaming summaries.

    Parameters
    ----------
    posterior : Posterior of d coefficients, or Samples, Streamed or Draws, which have draws of their own
    seed, chains, draws : independent draws from the keyed stream "posterior", one chain key each

    Returns
    -------
    name -> xarray.Dataset

    Raises
    ------
    JobError
        xarray is not installed.
    """
    try:
        from xarray import Dataset
    except ImportError as error:
        raise JobError(f"draws need xarray ({error}): {REMEDY}") from None
    about = {"inference_library": "fedkern", "inference_library_version": __version__}
    if isinstance(posterior, Draws):
        return posterior.groups(Dataset, about)
    if isinstance(posterior, Samples | Streamed):
        return _sampled(Dataset, posterior)
    standard = np.stack([posterior.draws(draws, seed=seed, chain=c) for c in range(chains)])
    axes = ("chain", "draw")
    slopes = [j for j, name in enumerate(posterior.names) if name not in PLAIN]
    variables: dict[str, Any] = {}
    scales = {"": posterior.on_data_scale(standard)} | ({} if posterior.affine is None else {"_std": standard})
    for suffix, values in scales.items():
        if slopes:
            variables[f"theta{suffix}"] = ((*axes, "column"), values[..., slopes])
        for name in (name for name in PLAIN if name in posterior.names):
            variables[f"{name}{suffix}"] = (axes, values[..., posterior.names.index(name)])
    sampled = {"chain": np.arange(chains), "draw": np.arange(draws)}
    columns = {"column": [posterior.names[j] for j in slopes]} if slopes else {}
    moments = {"mean_std": ("coefficient", posterior.q.mean), "sd_std": ("coefficient", posterior.q.sd)}
    return {
        "posterior": Dataset(variables, {**sampled, **columns}, about),
        "sample_stats": Dataset({"lp": (axes, _log_density(posterior, standard))}, sampled, about),
        "constant_data": Dataset(moments, {"coefficient": list(posterior.names)}, about),
    }


def _sampled(dataset: Any, found: Samples | Streamed) -> dict[str, Any]:
    """The kept draws of a sampler; coordinates are the names of coefficients, clients and nodes."""
    about = {"inference_library": "fedkern", "inference_library_version": __version__}
    axes, per = ("chain", "draw"), "coefficient"
    names = {per: list(found.names)}
    constants: dict[str, Any] = {"scale": (per, found.scale), "pip": (per, found.pip)}
    if isinstance(found, Streamed):
        theta = found.streams["theta"].draws
        variables: dict[str, Any] = {"theta": ((*axes, per), theta * found.scale), "theta_std": ((*axes, per), theta)}
        constants |= {
            f"{name}_{what}": (per, getattr(found.streams[name], what))
            for name in ("theta", "inclusion")
            for what in ("mean", "sd")
        }
        stats: dict[str, Any] = {}
    else:
        theta = found.theta
        own = {"theta_std": theta, "theta": theta * found.scale, "tau": np.sqrt(found.tau_sq)}
        own |= {} if found.average is None else {"average_std": found.average}
        variables = {name: ((*axes, per), draws) for name, draws in own.items()}
        variables |= {name: ((*axes, f"{name}_of"), getattr(found, name)) for name in ("eta", "rho")}
        if found.sites:
            names["client"] = list(found.sites)
            variables["theta_std_at"] = ((*axes, "client", per), np.stack(list(found.sites.values()), axis=2))
        stats = {"inclusion": ((*axes, per), found.inclusion)}
    sampled = {"chain": np.arange(theta.shape[0]), "draw": np.arange(theta.shape[1])}
    return {
        "posterior": dataset(variables, {**sampled, **names}, about),
        "sample_stats": dataset(stats, {**sampled, per: list(found.names)}, about),
        "constant_data": dataset(constants, {per: list(found.names)}, about),
    }


def inference_data(posterior: Posterior | Samples | Streamed | Draws, *, seed: int, chains: int = 4, draws: int = 1000) -> Any:
    """The same as ArviZ's InferenceData (0.x) or xarray's DataTree (ArviZ 1.x).

    Raises
    ------
    JobError
        ArviZ is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 when it is imported
            import arviz
    except ImportError as error:
        raise JobError(f"draws for ArviZ need ArviZ ({error}): {REMEDY}") from None
    data = groups(posterior, seed=seed, chains=chains, draws=draws)
    if int(arviz.__version__.partition(".")[0]) < 1:
        return arviz.InferenceData(**data)
    from xarray import DataTree

    return DataTree.from_dict(data)


def write(posterior: Posterior | Samples | Streamed | Draws, path: Path, *, seed: int, chains: int, draws: int) -> None:
    """Writes `posterior.nc` (netCDF 4), which `arviz.from_netcdf` reads.

    Raises
    ------
    JobError
        xarray or h5netcdf is not installed, or the file cannot be written.
    """
    data = groups(posterior, seed=seed, chains=chains, draws=draws)
    try:
        import h5netcdf  # noqa: F401
    except ImportError as error:
        raise JobError(f"posterior.nc needs h5netcdf ({error}): {REMEDY}") from None
    try:
        for mode, (group, dataset) in zip("waa", data.items()):
            dataset.to_netcdf(path, mode=mode, group=group, engine="h5netcdf")
    except OSError as error:
        raise JobError(f"{path}: cannot be written ({error})") from None


def _log_density(posterior: Posterior, standard: Any) -> Any:
    """(chains, draws) log q of each draw."""
    q, z = posterior.q, standard - posterior.q.mean
    square = (z * z) @ q.P if q.diagonal else np.einsum("cdi,ij,cdj->cd", z, q.P, z)
    return 0.5 * (q.log_det_precision - q.d * np.log(2 * np.pi) - square)
