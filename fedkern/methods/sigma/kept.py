"""What a client keeps of its areas' posterior, for `fedkern predict` to foresee other rows of them: areas.bin of its own folder.

Of each draw the map's part of every area, and the coefficients that all clients share. They have no message.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data.artifact import OwnFile
from ...errors import JobError
from ...jobs.files import RunFolder
from ...models.encoding import Encoding
from ...results.plain import Record, plain
from ...transports.codec import pack, unpack
from .areas import Areas
from .model import SigmaModel

Array = NDArray[np.float64]

NAME = "areas.bin"
MAGIC = b"fedkern areas 1\n"
DIGEST = 32


class About(NamedTuple):
    """What stands beside the numbers.

    Attributes
    ----------
    run, client : whose
    converged : whether the server's checks found nothing
    encoding : of the columns
    family, scale : of the response, and its dispersion where the job gives it
    areas : names, in the order of the numbers
    lacks : why other rows cannot be foreseen; empty where they can
    """

    run: str
    client: str
    converged: bool
    encoding: Any
    family: str
    scale: float
    areas: list[str]
    lacks: str = ""


@dataclass(frozen=True)
class Kept:
    """A client's posterior: (m, p) coefficients of the encoding's columns, and (m, d) what the map adds, both on the data's
    scale; NaN of areas of which nothing is said."""

    about: About
    coefficients: Array
    spatial: NDArray[np.float32]

    @property
    def encoding(self) -> Encoding:
        """Of the columns."""
        return Encoding.from_dict(self.about.encoding)


def write(folder: RunFolder, model: SigmaModel, client: int, file: OwnFile, areas: Areas, xi: Array, said: Record) -> None:
    """Into the client's own folder; `said` is the server's verdict, `xi` (m, P) the draws that the areas' are made of."""
    parts, units, scale = model.layout.parts, model.units, areas.likelihood.scale
    first = xi[:, parts["intercept"]] if model.layout.intercept else np.zeros((len(xi), 1))
    coefficients = np.column_stack([units.natural(first), units.scale * xi[:, parts["beta"]]])
    about = About(
        run=folder.run.hex(),
        client=file.name,
        converged=said.get("converged") is not False,
        encoding=model.encoding.to_dict(),
        family=areas.likelihood.family,
        scale=scale if isinstance(scale, float) else 1.0,
        areas=list(file.areas),
        lacks=_lacks(model),
    )
    content: dict[str, Any] = {
        "about": json.dumps(plain(about._asdict()), allow_nan=False).encode(),
        "coefficients": coefficients,
        "spatial": areas.spatial.astype(np.float32),
    }
    body = pack(content)
    folder.write(folder.home(client) / NAME, MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest() + body, secret=True)


def _lacks(model: SigmaModel) -> str:
    if model.periods:
        return "the effects of periods are not kept; area_periods.csv has the rate of each area in each period"
    if model.dispersion in ("dispersion", "sigma_extra") and model.likelihood.dispersed:
        return f"how much more than its family a new count varies ({model.dispersion}) is not kept; areas.csv has each level"
    return ""


def read(folder: Path, run: str, client: str) -> Kept:
    """Of a client's own folder, which a run's id and the client's name are of.

    Raises
    ------
    JobError
        The run left none there, or none that can be read.
    """
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        remedy = "give a run over areas that has ended"
        raise JobError(f"{folder}: holds no {NAME}, which a client's part of a finished run leaves there: {remedy}") from None
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror})") from None
    head = len(MAGIC) + DIGEST
    body = data[head:]
    if data[:head] != MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest():
        raise JobError(f"{path}: was altered, or written by another version of fedkern; put it back as the run left it")
    content: dict[str, Any] = unpack(body)
    about = About(**json.loads(content["about"]))
    if (about.run, about.client) != (run, client):
        raise JobError(f"{path}: is of another run, or of another client; put back what the run left there")
    return Kept(about, content["coefficients"], content["spatial"])
