"""posterior.nc is what h5netcdf would make of the same groups: for readers by name, and for those that follow netCDF's marks."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import h5netcdf
import h5py
import numpy as np
import xarray

from fedkern.results.inference_data import netcdf
from fedkern.results.released import Group

RANDOM = np.random.default_rng(0)
GROUPS = {
    "posterior": Group(
        {
            "theta": (("chain", "draw", "coefficient"), RANDOM.random((2, 5, 3))),
            "intercept": (("chain", "draw"), np.ones((2, 5))),
        },
        {"chain": np.arange(2), "draw": np.arange(5), "coefficient": ["a", "ü", "c/d"]},
    ),
    "constant_data": Group(
        {"scale": ("coefficient", np.ones(3)), "P": (("row", "column"), np.eye(3)), "one": ((), 2.0), "of": ("z", ["p", "q"])},
        {"coefficient": ["a", "ü", "c/d"]},
    ),
}
MADE = {"created_at": "2020-01-01", "sampling_time": 1.5}


def by_h5netcdf(about: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        for name, group in GROUPS.items():
            to = file.create_group(name)
            found = {key: ((key,), np.asarray(values)) for key, values in group.coordinates.items()}
            for key, (dims, values) in group.variables.items():
                found[key] = ((dims,) if isinstance(dims, str) else dims, np.asarray(values))
            to.dimensions = {dim: size for dims, values in found.values() for dim, size in zip(dims, values.shape)}
            for key, (dims, values) in found.items():
                if values.dtype.kind == "U":
                    to.create_variable(key, dims, dtype=h5py.string_dtype(), data=values.astype(object))
                else:
                    to.create_variable(key, dims, dtype=values.dtype, data=values)
            to.attrs.update(about)
    return content.getvalue()


def marks(content: bytes) -> dict[str, Any]:
    """Of every data set: its type, its dimensions, and all attributes but references, which `dims` follows."""
    found = dict[str, Any]()

    def look(name: str, node: Any) -> None:
        attributes = {key: repr(value) for key, value in node.attrs.items() if key not in ("REFERENCE_LIST", "DIMENSION_LIST")}
        is_set = isinstance(node, h5py.Dataset)
        found[name] = attributes, is_set and (node.dtype, node.shape, [[one.name for one in dim.values()] for dim in node.dims])

    with h5py.File(io.BytesIO(content)) as file:
        file.visititems(look)
    return found


def test_posterior_nc_is_what_h5netcdf_would_write() -> None:
    posterior: Any = SimpleNamespace(sampled=True, groups=lambda drawing: GROUPS)
    ours = bytes(netcdf(posterior, seed=1, chains=2, draws=5, made=MADE))
    with xarray.open_datatree(io.BytesIO(ours), engine="h5netcdf") as one:
        theirs = by_h5netcdf(dict(one["posterior"].attrs))
        assert one["posterior"].attrs["sampling_time"] == 1.5
        with xarray.open_datatree(io.BytesIO(theirs), engine="h5netcdf") as other:
            assert one.identical(other)
            assert list(one.children) == list(other.children) == list(GROUPS)
    assert marks(ours) == marks(theirs)
