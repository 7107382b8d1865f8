"""Defines the messages of SOUL (see `machine`). Source: docs/spec/vertical.md, section 10."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.messages import Message

Rows = Annotated[NDArray[np.float64], "n"]
Dispersion = Annotated[NDArray[np.float64], "gamma"]


@dataclass(frozen=True)
class Auxiliary(Message, kind=80):
    """Server to client (AV, y at the server): z_j."""

    round: int
    z: Rows


@dataclass(frozen=True)
class Predicted(Message, kind=81, tells=tells.PerRow(computed=tells.SPAN)):
    """Client to server (AV, y at the server): the mean of g_j over its steps."""

    round: int
    g: Rows


@dataclass(frozen=True)
class Total(Message, kind=82):
    """Server to client (AV, y shared): Z = offset + sum_j z_j, b and log sigma."""

    round: int
    Z: Rows
    b: float
    log_scale: Dispersion


@dataclass(frozen=True)
class Moved(Message, kind=83, tells=tells.PerRow()):
    """Client to server (AV, y shared): z_j after its step."""

    round: int
    z: Rows


@dataclass(frozen=True)
class AuxiliaryTotal(Message, kind=84):
    """Server to client (PL): z_j and Z, b and log sigma."""

    round: int
    z: Rows
    Z: Rows
    b: float
    log_scale: Dispersion


@dataclass(frozen=True)
class Slopes(Message, kind=85, tells=tells.PerRow(computed=tells.SPAN)):
    """Client to server (PL): means over its steps of g_j, of rho_j, and of its part of the slope in log sigma."""

    round: int
    g: Rows
    rho: Rows
    scales: Dispersion
