"""Defines the messages of Hamiltonian Monte Carlo (see `machine`). Source: docs/spec/sigma.md, section 7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core.messages import AREAS, FEW, KNOWN, LABELLED, LIKELIHOOD, Message, Tells

Positions = Annotated[NDArray[np.float64], "s xi"]
Chains = Annotated[NDArray[np.float64], "s"]


@dataclass(frozen=True)
class Place(Message, kind=90):
    """Server to client, once: where xi starts. The answer is `Slope`."""

    xi: Positions


@dataclass(frozen=True)
class Launch(Message, kind=91):
    """Server to client: which chains accept the last trajectory (1 or 0), the steps of a new one, and xi after its first."""

    round: int
    accepted: Chains
    step: Chains
    xi: Positions


@dataclass(frozen=True)
class Move(Message, kind=92):
    """Server to client: xi after the next step of this trajectory."""

    xi: Positions


@dataclass(frozen=True)
class Decided(Message, kind=93):
    """Server to client, at the end: which chains accept the last trajectory."""

    round: int
    accepted: Chains


@dataclass(frozen=True)
class Slope(Message, kind=94, tells=Tells(LIKELIHOOD, AREAS, KNOWN)):
    """Client to server: dF_j/dxi, and nothing else."""

    gradient: Positions


@dataclass(frozen=True)
class SlopeChange(Message, kind=95, tells=Tells(LIKELIHOOD, AREAS, KNOWN)):
    """Client to server, at the end of a trajectory: dF_j/dxi, and the change of F_j less that of the kinetic energy."""

    gradient: Positions
    change: Chains


@dataclass(frozen=True)
class LikelihoodSlope(Slope, kind=212, tells=Tells(LIKELIHOOD, LABELLED, FEW)):
    """Client to server, of a client without local unknowns: the same, of its log-likelihood."""


@dataclass(frozen=True)
class LikelihoodChange(SlopeChange, kind=213, tells=Tells(LIKELIHOOD, LABELLED, FEW)):
    """Client to server, of a client without local unknowns: the same, of its log-likelihood, which is all that changes."""
