"""Defines the messages of the Gibbs sampler (see `machine`), and of its pooled form.

Source: docs/spec/sparse.md, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import ONCE
from ..core import tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .settings import Settings

Coefficients = Annotated[NDArray[np.float64], "c n"]


@dataclass(frozen=True)
class Globals(Message, kind=30):
    """Server to client: theta and tau^2 of all chains. `since`: the round in which this burn-in began."""

    round: int
    since: int
    theta: Coefficients
    tau_sq: Coefficients


@dataclass(frozen=True)
class GlobalsMoved(Message, kind=31):
    """Server to client: the same after a move. The client's d becomes t w, and then follows theta from `moved` to `theta`."""

    round: int
    since: int
    moved: Coefficients
    t: Coefficients
    theta: Coefficients
    tau_sq: Coefficients


@dataclass(frozen=True)
class Locals(Message, kind=32, tells=tells.Draw()):
    """Client to server: its deviations and lambda^2."""

    round: int
    deviation: Coefficients
    lambda_sq: Coefficients


@dataclass(frozen=True)
class MoveTerms(Message, kind=33, tells=tells.Products(tells.LIKELIHOOD)):
    """Client to server, with `Locals`, if the job has a move: its terms of the move's gradient and precision."""

    round: int
    gradient: Annotated[NDArray[np.float64], "c g w"]
    precision: Annotated[NDArray[np.float64], "c g w w"]


@dataclass(frozen=True)
class SecondMoveTerms(Message, kind=39, tells=tells.Products(tells.LIKELIHOOD)):
    """Client to server, in the place of `MoveTerms`, in the rounds of the job's second move."""

    round: int
    gradient: Annotated[NDArray[np.float64], "c g v"]
    precision: Annotated[NDArray[np.float64], "c g v v"]


@dataclass(frozen=True)
class GlobalsTempered(Message, kind=37):
    """Server to client: theta and tau^2, and the power of each chain's likelihood from now on."""

    round: int
    since: int
    theta: Coefficients
    tau_sq: Coefficients
    temperature: Annotated[NDArray[np.float64], "c"]


@dataclass(frozen=True)
class Loglik(Message, kind=38, tells=tells.Points(computed="its centred rows, up to the sign of each", where="")):
    """Client to server, with `Locals`, if chains exchange temperatures: its log-likelihood, one number for each chain."""

    round: int
    loglik: Annotated[NDArray[np.float64], "c"]


@dataclass(frozen=True)
class Sums(Message, kind=34, tells=tells.Draw()):
    """Client to server, instead of `Locals`: 1 / lambda^2, d / lambda^2, d^2 / lambda^2 (and d, with a slab), to be added."""

    round: int
    sums: Annotated[NDArray[np.float64], "s c n"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["c"] * dims["n"]

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers that are added."""
        return self.sums.ravel()

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Sums:
        """Returns the sums of all clients together."""
        return cls(round, numbers.reshape(dims["s"], dims["c"], dims["n"]))


@dataclass(frozen=True)
class MaskedSums(Masked, Message, kind=267, tells=tells.Draw().masked):
    """Client to server: `Sums`, masked."""

    words: Annotated[bytes, "masked_sums"]


# 1 / lambda^2 is between 1e-60 and 1e60: the wide words hold it with all the digits of a float (spec, section 5).
SUMS = (Sum(Sums, MaskedSums, ONCE),)


@dataclass(frozen=True)
class AskStatistics(Message, kind=35):
    """Server to client: send them."""

    round: int


@dataclass(frozen=True)
class Statistics(Message, kind=36, tells=tells.Products()):
    """Client to server: R and q (with zeros below its rows), rss, its number of rows, its degrees of freedom."""

    round: int
    R: Annotated[NDArray[np.float64], "p p"]
    q: Annotated[NDArray[np.float64], "p"]
    rss: float
    rows: int
    n: float


MOVES = (MoveTerms, SecondMoveTerms)  # in the order of `Settings.moves`


def sent(settings: Settings) -> tuple[type[Message], ...]:
    """Returns all messages that a client may answer."""
    if settings.aggregate == "sums":
        return (Sums,)
    if settings.tempering > 1:
        return (Locals, Loglik)
    return (Locals, *MOVES[: len(settings.moves)])


def expected(settings: Settings, move: int | None) -> tuple[str, ...]:
    """Returns, by name, the messages of an answer in a round with this move (`Settings.move`)."""
    return _names(sent(settings), move)


@cache
def _names(kinds: tuple[type[Message], ...], move: int | None) -> tuple[str, ...]:
    others = [kind for number, kind in enumerate(MOVES) if number != move]
    return tuple(kind.__name__ for kind in kinds if kind not in others)
