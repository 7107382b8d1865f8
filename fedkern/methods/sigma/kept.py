"""Keeps a client's posterior of its areas in areas.bin of its folder, so that `fedkern predict` can predict other rows of them.

For each draw it has the map's part of every area, and the unknowns that all clients share: coefficients, the periods' effects,
and how much more than its family a count varies. They have no message.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...data.artifact import OwnFile
from ...jobs import own_posterior
from ...jobs.files import RunFolder
from ...models.encoding import Encoding
from ...models.overdispersed import Overdispersed
from ...results.plain import Record
from .areas import Areas
from .model import SigmaModel

NAME = "areas.bin"
MAGIC = b"fedkern areas 2\n"


class About(NamedTuple):
    """Holds the description beside the numbers."""

    # run, client: whose they are
    run: str
    client: str
    converged: bool  # whether the server's checks found nothing
    encoding: Any  # of the columns
    # family, scale: of the response, and its dispersion where the job gives it
    family: str
    scale: float
    # areas, periods: names, in the order of the numbers
    areas: list[str]
    periods: list[str]
    effects: bool  # whether rows have effects of their own, whose standard deviation is the dispersion


@dataclass(frozen=True)
class Kept:
    """Holds a client's posterior on the data's scale, in m draws."""

    about: About
    coefficients: Array  # (m, p) of the encoding's columns
    spatial: NDArray[np.float32]  # (m, d) the map's part; NaN for areas that are hidden
    periods: Array  # (m, T) their effects
    step: Array  # (m,) the standard deviation of a step from one period to the next; without periods (0,)
    log_scale: Array  # (m,) logarithm of r, or of the standard deviation of the rows' effects, where it was learnt; else (0,)

    @property
    def encoding(self) -> Encoding:
        """The encoding of the columns."""
        return Encoding.from_dict(self.about.encoding)


def write(folder: RunFolder, model: SigmaModel, client: int, file: OwnFile, areas: Areas, xi: Array, verdict: Record) -> None:
    """Writes them to the client's folder. `xi`: (m, P) the draws from which the areas' are made; `verdict`: the server's
    verdict."""
    parts, units, scale = model.layout.parts, model.units, areas.likelihood.scale
    first = xi[:, parts["intercept"]] if model.layout.intercept else np.zeros((len(xi), 1))
    coefficients = np.column_stack([units.natural(first), units.scale * xi[:, parts["beta"]]])
    known = scale if isinstance(scale, float) else 1.0
    about = About(
        run=folder.run.hex(),
        client=file.name,
        converged=verdict.get("converged") is not False,
        encoding=model.encoding.to_dict(),
        family=areas.likelihood.family,
        scale=known,
        areas=list(file.areas),
        periods=list(model.periods),
        effects=isinstance(areas.likelihood, Overdispersed),
    )
    periods, step, log_scale = np.zeros((len(xi), 0)), np.zeros(0), np.zeros(0)
    if model.periods:
        periods, step = units.scale * model.layout.periods(xi), units.scale * model.layout.period_step(xi)
    if areas.likelihood.dispersed and areas.likelihood.record.counted:
        log_scale = xi[:, parts["log_sd"].start]
    content: dict[str, Any] = {
        "coefficients": coefficients,
        "spatial": areas.spatial.astype(np.float32),
        "periods": periods,
        "step": step,
        "log_scale": log_scale,
    }
    own_posterior.write(folder, client, NAME, MAGIC, about._asdict(), content)


def read(folder: Path, run: str, client: str) -> Kept:
    """Reads them from a client's folder, for a run's id and the client's name. Raises JobError: the run left none there, or none
    that can be read."""
    entries, content = own_posterior.read(folder, NAME, MAGIC, run, client, "give a run over areas that has ended")
    about = About(**entries)
    return Kept(about, **content)
