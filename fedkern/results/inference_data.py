"""Posterior draws as ArviZ has them. What differs between ArviZ 0.x (InferenceData) and 1.x (DataTree) stands here alone.

The file is made by xarray, which both generations read: importing ArviZ would take longer than a small job. It is made in memory,
since HDF5 leaves a torn file, or crashes, where a disk is full.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..errors import JobError
from .released import Drawing, Released

REMEDY = "pip install 'fedkern[results]'"


SAMPLED, VARIATIONAL = "mcmc", "variational"  # the attribute `inference`
MADE = ("created_at", "sampling_time", "inference")
INDEPENDENT = "independent: R-hat and ESS say nothing of whether the fit has converged"


def groups(
    posterior: Released, *, seed: int, chains: int = 4, draws: int = 1000, made: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Groups posterior (theta, intercept, and theta_std, intercept_std where they differ), sample_stats (lp) and constant_data.

    Of a sampler: all kept draws, or the thinned ones beside streaming summaries.

    Parameters
    ----------
    posterior : what a job has released
    seed, chains, draws : of a Gaussian's draws, see `Drawing`
    made : `created_at`, `sampling_time` in seconds, and `inference` where it is neither of the two, as far as they are known

    Returns
    -------
    name -> xarray.Dataset with the attributes that ArviZ knows; `inference` is "mcmc" or "variational", and of independent draws
    `draws` says so

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
    about |= {"inference": SAMPLED} if posterior.sampled else {"inference": VARIATIONAL, "draws": INDEPENDENT}
    about |= {key: made[key] for key in MADE if made and key in made}
    return {name: Dataset(*group, about) for name, group in posterior.groups(Drawing(seed, chains, draws)).items()}


def inference_data(
    posterior: Released, *, seed: int, chains: int = 4, draws: int = 1000, made: Mapping[str, Any] | None = None
) -> Any:
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
    data = groups(posterior, seed=seed, chains=chains, draws=draws, made=made)
    if int(arviz.__version__.partition(".")[0]) < 1:
        return arviz.InferenceData(**data)
    from xarray import DataTree

    return DataTree.from_dict(data)


def netcdf(posterior: Released, *, seed: int, chains: int, draws: int, made: Mapping[str, Any] | None = None) -> memoryview:
    """The bytes of `posterior.nc` (netCDF 4), which `arviz.from_netcdf` reads.

    Raises
    ------
    JobError
        xarray or h5netcdf is not installed.
    """
    data = groups(posterior, seed=seed, chains=chains, draws=draws, made=made)
    try:
        import h5netcdf
        from xarray.backends import H5NetCDFStore
    except ImportError as error:
        raise JobError(f"posterior.nc needs h5netcdf ({error}): {REMEDY}") from None
    content = io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        for group, dataset in data.items():
            dataset.dump_to_store(H5NetCDFStore(file, group=group, mode="a"))
    return content.getbuffer()
