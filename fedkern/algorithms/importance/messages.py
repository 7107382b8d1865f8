"""Messages of importance sampling (see `machine`). Source: docs/methods/likelihood.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core.messages import FEW, LABELLED, LIKELIHOOD, Message, Tells

Places = Annotated[NDArray[np.float64], "c xi"]
PerPlace = Annotated[NDArray[np.float64], "c"]
Packed = Annotated[NDArray[np.float64], "c tri"]
Points = Annotated[NDArray[np.float64], "s xi"]
PerPoint = Annotated[NDArray[np.float64], "s"]
Told = Annotated[NDArray[np.float64], "t xi"]

LOST = -1e300  # the log-likelihood of a point where it is not finite: a message holds finite numbers alone


@dataclass(frozen=True)
class AskCurvature(Message, kind=200):
    """Server to client: where the log-likelihood and its derivatives are wanted, and by how many quadrature nodes a dimension."""

    round: int
    nodes: int
    points: Places


@dataclass(frozen=True)
class Curvature(Message, kind=201, tells=Tells(LIKELIHOOD, LABELLED, FEW)):
    """Client to server: L_j at each point, its gradient, minus its Hessian (lower triangle, row by row), and by how much L_j is
    another with more nodes."""

    round: int
    value: PerPlace
    gradient: Places
    hessian: Packed
    rule: PerPlace


@dataclass(frozen=True)
class AskValues(Message, kind=202):
    """Server to client: draws of xi at which the log-likelihood is wanted, and by how many quadrature nodes a dimension."""

    round: int
    nodes: int
    points: Points


@dataclass(frozen=True)
class Values(Message, kind=203, tells=Tells(LIKELIHOOD, LABELLED, FEW)):
    """Client to server: L_j at each draw, in thousandths of a nat or coarser; the most by which it is another with more nodes, at
    the first draws."""

    round: int
    values: PerPoint
    rule: float


@dataclass(frozen=True)
class Posterior(Message, kind=204):
    """Server to client, at the end: draws of the posterior, with which the client knows its own effects, and whether the server's
    checks found nothing (1 or 0)."""

    round: int
    nodes: int
    converged: int
    draws: Told
