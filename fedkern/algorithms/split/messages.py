"""Defines the messages of the vertical protocols (see `machine`). Source: docs/spec/vertical.md, section 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.messages import Message

Rows = Annotated[NDArray[np.float64], "s n"]
Draws = Annotated[NDArray[np.float64], "s"]
Dispersions = Annotated[NDArray[np.float64], "s gamma"]


@dataclass(frozen=True)
class Begin(Message, kind=50):
    """Server to client: draw, and send the first z."""

    round: int


@dataclass(frozen=True)
class ZShare(
    Message,
    kind=51,
    tells=tells.PerRow(
        f"{tells.DRAW} for every row",
        f"{tells.PART}, and of columns of few values these values, up to their names",
        private="a noised number for every row, charged to its budget",
    ),
):
    """Client to server: z_j of the round's rows, for each of S draws."""

    round: int
    z: Rows


@dataclass(frozen=True)
class Residual(Message, kind=52):
    """Server to client: the slopes r of the log-likelihood, and nothing else."""

    round: int
    r: Rows


@dataclass(frozen=True)
class PredictorSum(Message, kind=53):
    """Server to client: Z = offset + sum_j z_j, and the draws of b and of log sigma."""

    round: int
    Z: Rows
    b: Draws
    log_scale: Dispersions


@dataclass(frozen=True)
class LikelihoodShare(Message, kind=54, tells=tells.PerRow()):
    """Client to server (PL): rho_j, its sum over rows, and this client's part of the slope in log sigma."""

    round: int
    rho: Rows
    slopes: Draws
    scales: Dispersions


@dataclass(frozen=True)
class LikelihoodSum(Message, kind=55):
    """Server to client (PL): R = sum_j rho_j."""

    round: int
    R: Rows


@dataclass(frozen=True)
class BoundShare(Message, kind=56, tells=tells.Figure()):
    """Client to server, if the job asks for the trace of the ELBO: this client's terms of it, one number."""

    round: int
    value: float
