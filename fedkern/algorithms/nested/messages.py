"""Defines the messages of the nested Laplace approximation (see `machine`). Source: docs/spec/sigma.md, section 6.8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.messages import Message

Places = Annotated[NDArray[np.float64], "c xi"]
PerPlace = Annotated[NDArray[np.float64], "c"]
Slopes = Annotated[NDArray[np.float64], "c u"]
Packed = Annotated[NDArray[np.float64], "c tri"]
Draws = Annotated[NDArray[np.float64], "s xi"]
PerDraw = Annotated[NDArray[np.float64], "s"]
Told = Annotated[NDArray[np.float64], "t xi"]

LOST = -1e300  # a log-likelihood that is not finite: a message holds finite numbers alone


@dataclass(frozen=True)
class AskCurvatures(Message, kind=219):
    """Server to client: places of xi where F_j and its derivatives in u are wanted; the first `count` of them."""

    round: int
    count: int
    points: Places


@dataclass(frozen=True)
class Curvatures(Message, kind=220, tells=tells.AreaSums()):
    """Client to server: F_j at each place, its gradient in u, and minus its Hessian in u (lower triangle, row by row)."""

    round: int
    value: PerPlace
    gradient: Slopes
    hessian: Packed


@dataclass(frozen=True)
class AskMarginals(Message, kind=221):
    """Server to client: draws of xi at which the log-likelihood is wanted."""

    round: int
    points: Draws


@dataclass(frozen=True)
class Marginals(Message, kind=222, tells=tells.AreaSums()):
    """Client to server: log p(y_j | xi) at each draw, and the standard deviation over these of the error that integrating by
    draws has."""

    round: int
    value: PerDraw
    spread: float


@dataclass(frozen=True)
class Mixture(Message, kind=223):
    """Server to client, at the end: draws of the posterior of xi, with which the client knows its own areas."""

    round: int
    draws: Told
