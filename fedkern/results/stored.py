"""Reads a posterior from a run's folder: summary.json and posterior.nc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import JobError
from ..models.encoding import Encoding
from ..models.expfam import Gaussian
from ..models.reference import coding_of, references_of
from . import released
from .gaussian import Posterior, label
from .inference_data import REMEDY, SAMPLED
from .plain import Record
from .released import Drawing, Drawn, Group, Released


@dataclass(frozen=True)
class Stored:
    """Holds a posterior that was released as draws, or with no file of draws."""

    summary: Record  # summary.json
    kept: Mapping[str, Group] = field(default_factory=dict)  # the groups of posterior.nc; empty without such a file
    path: str = ""  # of that file
    sampled: bool = False  # whether its draws are the states of Markov chains

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.summary["parameters"])

    def parameters(self) -> dict[str, dict[str, float]]:
        """Returns the parameters of summary.json."""
        return dict(self.summary["parameters"])

    def marginal(self, name: str, site: str = "") -> Drawn | None:
        """Returns a parameter by its draws."""
        return released.of_draws(self.kept, name, site)

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns the groups of the file, whatever number of draws is asked for. Raises JobError: the run wrote none."""
        if not self.kept:
            raise JobError(f"{self.path}: the run left no draws there; its notes say why, if it had any")
        return dict(self.kept)


def read(folder: Path, summary: Record) -> Released:
    """Reads the posterior of a finished run, with the bits that the run released. Raises JobError: xarray or h5netcdf is not
    installed, or the file cannot be read."""
    path = folder / "posterior.nc"
    if not path.exists():
        return Stored(summary, path=str(path))
    groups = open_groups(path)
    constants = groups["constant_data"].variables if "constant_data" in groups else {}
    if "precision" not in constants:
        return Stored(summary, groups, str(path), attributes(folder).get("inference") == SAMPLED)
    names = tuple(str(name) for name in groups["constant_data"].coordinates["coefficient"])
    affine = coding = None
    if "columns" in summary["encoding"]:
        encoding = Encoding.from_dict(summary["encoding"])
        affine = encoding.affine() if encoding.standardised else None
        references = references_of(encoding, [name for name in names if label(name) in summary["parameters"]])
        coding = coding_of(encoding, references, absorbs=True) if references else None
    return Posterior(names, Gaussian(constants["shift"][1], constants["precision"][1]), affine, coding)


def shape(posterior: Released) -> tuple[int, int] | None:
    """Returns numbers of chains and draws of a file of draws; None where draws are made anew."""
    if not isinstance(posterior, Stored) or "posterior" not in posterior.kept:
        return None
    coordinates = posterior.kept["posterior"].coordinates
    return len(coordinates["chain"]), len(coordinates["draw"])


def attributes(folder: Path) -> dict[str, str | float]:
    """Returns the attributes of the run's posterior.nc, which say how its draws were made; empty without such a file."""
    path = folder / "posterior.nc"
    if not path.exists():
        return {}
    import h5netcdf

    with h5netcdf.File(path, "r") as file:
        return {str(name): value.item() if hasattr(value, "item") else value for name, value in file["posterior"].attrs.items()}


def open_groups(path: Path) -> dict[str, Group]:
    """Reads all groups of a netCDF file. Raises JobError: xarray or h5netcdf is not installed, or the file cannot be read."""
    try:
        import h5netcdf
        import xarray
    except ImportError as error:
        raise JobError(f"{path}: reading draws needs xarray and h5netcdf ({error}): {REMEDY}") from None
    try:
        with h5netcdf.File(path, "r") as file:
            names = list(file.groups)
        by_group = {}
        for name in names:
            with xarray.open_dataset(path, group=name, engine="h5netcdf") as data:
                variables = {str(key): (tuple(map(str, x.dims)), np.asarray(x.values)) for key, x in data.data_vars.items()}
                by_group[name] = Group(variables, {str(key): np.asarray(x.values) for key, x in data.coords.items()})
    except (OSError, ValueError, KeyError) as error:
        raise JobError(f"{path}: not a netCDF file of draws that can be read ({' '.join(str(error).split())})") from None
    return by_group
