"""Posterior draws as ArviZ has them. What differs between ArviZ 0.x (InferenceData) and 1.x (DataTree) stands here alone.

The file is made by h5netcdf alone, as both generations read it: importing xarray, or ArviZ, would take longer than a small job.
It is made in memory, since HDF5 leaves a torn file, or crashes, where a disk is full.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import __version__
from ..errors import JobError
from .released import Drawing, Group, Released

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
    found, about = posterior.groups(Drawing(seed, chains, draws)), _about(posterior, made)
    return {name: Dataset(*group, about) for name, group in found.items()}


def _about(posterior: Released, made: Mapping[str, Any] | None) -> dict[str, Any]:
    """The attributes of every group."""
    about = {"inference_library": "fedkern", "inference_library_version": __version__}
    about |= {"inference": SAMPLED} if posterior.sampled else {"inference": VARIATIONAL, "draws": INDEPENDENT}
    return about | {key: made[key] for key in MADE if made and key in made}


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
        h5netcdf is not installed.
    """
    try:
        import h5netcdf
        import h5py
    except ImportError as error:
        raise JobError(f"posterior.nc needs h5netcdf ({error}): {REMEDY}") from None
    content, about = io.BytesIO(), _about(posterior, made)
    with h5netcdf.File(content, "w") as file:
        for name, group in posterior.groups(Drawing(seed, chains, draws)).items():
            _write(file.create_group(name), group, about, h5py.string_dtype())
    return content.getbuffer()


def _write(to: Any, group: Group, about: Mapping[str, Any], text: Any) -> None:
    """One group of a netCDF file: a coordinate is a variable with the name of its only dimension. `text`: the type of names."""
    variables = {name: ((name,), np.asarray(values)) for name, values in group.coordinates.items()}
    for name, (dims, values) in group.variables.items():
        variables[name] = ((dims,) if isinstance(dims, str) else tuple(dims)), np.asarray(values)
    to.dimensions = {dim: size for dims, values in variables.values() for dim, size in zip(dims, values.shape)}
    for name, (dims, values) in variables.items():
        if values.dtype.kind == "U":
            to.create_variable(name, dims, dtype=text, data=values.astype(object))
        else:
            to.create_variable(name, dims, dtype=values.dtype, data=values)
    to.attrs.update(about)
