"""Writes posterior draws as ArviZ reads them; all differences of ArviZ 0.x (InferenceData) and 1.x (DataTree) are in this module.

The file is made by h5py alone, and both generations read it: importing xarray, or ArviZ, would take longer than a small job, and
h5netcdf looks dimensions up some thirty times for each variable. It is made in memory, since HDF5 leaves a torn file, or crashes,
on a full disk.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from itertools import count
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
    posterior: Released,
    *,
    seed: int,
    chains: int = 4,
    draws: int = 1000,
    made: Mapping[str, Any] | None = None,
    own: Mapping[str, Group] | None = None,
) -> dict[str, Any]:
    """Returns groups posterior (theta, intercept, theta_std and intercept_std if they differ), sample_stats (lp), constant_data.

    For a sampler they hold all kept draws, or the thinned ones beside streaming summaries. Raises JobError: xarray is not
    installed.

    Parameters
    ----------
    posterior : of a job
    seed, chains, draws : of a Gaussian's draws, see `Drawing`
    made : `created_at`, `sampling_time` in seconds, and `inference` where it is neither of the two, as far as they are known
    own : groups in the place of the posterior's

    Returns
    -------
    name -> xarray.Dataset with the attributes that ArviZ knows; `inference` is "mcmc" or "variational", and `draws` says where
    draws are independent
    """
    try:
        from xarray import Dataset
    except ImportError as error:
        raise JobError(f"draws need xarray ({error}): {REMEDY}") from None
    about = _about(posterior, made)
    named_groups = posterior.groups(Drawing(seed, chains, draws)) if own is None else own
    return {name: Dataset(*group, about) for name, group in named_groups.items()}


def _about(posterior: Released, made: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the attributes of every group."""
    about = {"inference_library": "fedkern", "inference_library_version": __version__}
    about |= {"inference": SAMPLED} if posterior.sampled else {"inference": VARIATIONAL, "draws": INDEPENDENT}
    return about | {key: made[key] for key in MADE if made and key in made}


def inference_data(
    posterior: Released,
    *,
    seed: int,
    chains: int = 4,
    draws: int = 1000,
    made: Mapping[str, Any] | None = None,
    own: Mapping[str, Group] | None = None,
) -> Any:
    """Returns the same as ArviZ's InferenceData (0.x) or xarray's DataTree (ArviZ 1.x). Raises JobError: ArviZ is not
    installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 when it is imported
            import arviz
    except ImportError as error:
        raise JobError(f"draws for ArviZ need ArviZ ({error}): {REMEDY}") from None
    data = groups(posterior, seed=seed, chains=chains, draws=draws, made=made, own=own)
    if int(arviz.__version__.partition(".")[0]) < 1:
        return arviz.InferenceData(**data)
    from xarray import DataTree

    return DataTree.from_dict(data)


def netcdf(posterior: Released, *, seed: int, chains: int, draws: int, made: Mapping[str, Any] | None = None) -> bytes:
    """Returns the bytes of `posterior.nc` (netCDF 4), which `arviz.from_netcdf` reads. Raises JobError: h5py is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise JobError(f"posterior.nc needs h5py ({error}): {REMEDY}") from None
    content, about, dimensions = io.BytesIO(), _about(posterior, made), count()
    with h5py.File(content, "w", track_order=True) as file:
        by = f"version=2,fedkern={__version__},hdf5={h5py.version.hdf5_version},h5py={h5py.__version__}"
        file.attrs["_NCProperties"] = np.bytes_(by)
        for name, group in posterior.groups(Drawing(seed, chains, draws)).items():
            to = file.create_group(name, track_order=True)
            _write(to, group, h5py.string_dtype(), dimensions)
            for key, value in about.items():
                to.attrs[key] = value if isinstance(value, str) else np.atleast_1d(value)
    return content.getvalue()  # shares its bytes; a buffer that outlives its owner is an error from Python 3.13 on


def _write(to: Any, group: Group, text: Any, dimensions: Iterator[int]) -> None:
    """Writes one group of a netCDF file.

    A dimension is a data set that is marked as one, with a number of its own in the file; a coordinate is the data set of its
    dimension. `text`: the type of names; `dimensions`: the next numbers of dimensions.
    """
    variables = {name: (np.atleast_1d(dims).tolist(), np.asarray(values)) for name, (dims, values) in group.variables.items()}
    sizes = {name: len(values) for name, values in group.coordinates.items()}
    sizes |= {dim: size for dims, values in variables.values() for dim, size in zip(dims, values.shape)}
    scales = dict[str, tuple[Any, np.int32]]()
    for name, size in sizes.items():
        alone = name not in group.coordinates  # such a dimension has no values
        values = np.zeros(size, ">f4") if alone else np.asarray(group.coordinates[name])
        scale = _data_set(to, name, values, text)
        label = f"This is a netCDF dimension but not a netCDF variable. {size:9d}" if alone else name
        scale.make_scale(label)
        scales[name] = scale, np.int32(next(dimensions))
        scale.attrs["_Netcdf4Dimid"] = scales[name][1]
        if not alone:
            scale.attrs["_Netcdf4Coordinates"] = scales[name][1:]
    for name, (dims, values) in variables.items():
        data = _data_set(to, name, values, text)
        for axis, dim in zip(data.dims, dims):
            axis.attach_scale(scales[dim][0])
        if dims:
            data.attrs["_Netcdf4Coordinates"] = [scales[dim][1] for dim in dims]
            data.attrs["_Netcdf4Dimid"] = scales[dims[0]][1]


def _data_set(to: Any, name: str, values: Any, text: Any) -> Any:
    """Makes a data set; names are stored as texts."""
    if values.dtype.kind == "U":
        return to.create_dataset(name, data=values.astype(object), dtype=text, track_order=True)
    return to.create_dataset(name, data=values, track_order=True)
