"""Defines the messages of importance sampling (see `machine`). Source: docs/spec/likelihood.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import WIDE
from ..core import tells
from ..core.masked import Masked, Sum
from ..core.messages import Message

Places = Annotated[NDArray[np.float64], "c xi"]
PerPlace = Annotated[NDArray[np.float64], "c"]
Packed = Annotated[NDArray[np.float64], "c tri"]
Centre = Annotated[NDArray[np.float64], "xi"]
Steps = Annotated[bytes, "steps"]
Drops = Annotated[bytes, "drops"]
Told = Annotated[NDArray[np.float64], "t xi"]
Triangle = Annotated[NDArray[np.float64], "tri"]

LOST = -1e300  # the log-likelihood of a point where it is not finite: a message holds finite numbers alone
REFUSED = 2 * LOST  # that of a point where the client tells none, for it would be that of few of its rows
OF_FEW = "where few of its rows have weight, or one has nearly all (disclosure.rows, rows_per_coefficient, leverage)"
CHECKED = 32  # draws at which the quadrature is compared with one of more nodes
WIDTH = 4  # bytes of a step and of a drop: thousands of them are most of what travels
OF_WORDS = 2.0**-10  # nats: the unit of values as they travel; a client's own is a multiple
NO_VALUE = 2**32 - 1  # the drop of a point where the log-likelihood is not finite


@dataclass(frozen=True)
class AskCurvature(Message, kind=200):
    """Server to client: the points at which the log-likelihood and its derivatives are wanted, the quadrature nodes a dimension,
    and the number of the prior beside which answers are rounded and rows are counted (`widening`).
    """

    round: int
    nodes: int
    points: Places
    prior: int = 0


@dataclass(frozen=True)
class Curvature(Message, kind=201, tells=tells.WeightedSums()):
    """Client to server: L_j at each point, its gradient, minus its Hessian (lower triangle, row by row), and by how much L_j is
    another with more nodes."""

    round: int
    value: PerPlace
    gradient: Places
    hessian: Packed
    rule: PerPlace


@dataclass(frozen=True)
class AskNormal(Message, kind=271):
    """Server to a client that takes part by a summary: the normal distribution, with its packed covariance, over which the
    log-likelihood and its derivatives are averaged; the answer is a `Curvature` at its mean."""

    round: int
    nodes: int
    mean: Centre
    covariance: Triangle


@dataclass(frozen=True)
class AskValues(Message, kind=214):
    """Server to client: draws of xi at which the log-likelihood is wanted, and by how many quadrature nodes a dimension. A draw
    is the centre and a step of 32-bit numbers, so that everybody has the same draws to the last bit."""

    round: int
    nodes: int
    centre: Centre
    steps: Steps

    @classmethod
    def of(cls, round: int, nodes: int, centre: NDArray[np.float64], steps: NDArray[np.float64]) -> AskValues:
        """Returns the message of `steps` (s, P) as `shortened` makes them."""
        return cls(round, nodes, centre, steps.astype("<f4").tobytes())

    @property
    def points(self) -> NDArray[np.float64]:
        """(s, P) The draws; raises ValueError if the steps are none."""
        steps = np.frombuffer(self.steps, "<f4").reshape(-1, len(self.centre))
        return drawn(self.centre, steps.astype(np.float64))


@dataclass(frozen=True)
class Values(Message, kind=215, tells=tells.Points()):
    """Client to server: L_j at each draw, in units of `OF_WORDS` or coarser: the highest, and how far below it each is; the most
    by which it is another with more nodes, at the first draws."""

    round: int
    highest: float
    drops: Drops
    rule: float

    @classmethod
    def of(cls, round: int, values: NDArray[np.float64], rule: float) -> Values:
        """Returns the message of values (s,), rounded; `LOST` and values that are no number are left without one.

        A value more than four million nats below the highest is taken to be exactly that far below.
        """
        good = np.isfinite(values) & (values > LOST)
        units = np.rint(np.where(good, values, 0.0) / OF_WORDS)
        highest = float(units[good].max(initial=-np.inf)) if good.any() else 0.0
        drops = np.where(good, np.minimum(highest - units, NO_VALUE - 1), NO_VALUE)
        return cls(round, highest, drops.astype("<u4").tobytes(), rule)

    @property
    def values(self) -> NDArray[np.float64]:
        """(s,) The values; `LOST` for a missing one. Raises ValueError if the drops are none."""
        drops = np.frombuffer(self.drops, "<u4")
        return np.where(drops == NO_VALUE, LOST, (self.highest - drops.astype(np.float64)) * OF_WORDS)


def shortened(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns a centre (P,) and steps (s, P), which 32-bit numbers hold, of draws next to `points`."""
    centre = points.mean(axis=0)
    return centre, (points - centre).astype(np.float32).astype(np.float64)


def drawn(centre: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the draws (s, P)."""
    return np.asarray(centre + steps)


@dataclass(frozen=True)
class Posterior(Message, kind=204):
    """Server to client, at the end: draws of the posterior, with which the client knows its own effects, and whether the server's
    checks found nothing (1 or 0)."""

    round: int
    nodes: int
    converged: int
    draws: Told


# Where the server gets sums alone --------------------


@dataclass(frozen=True)
class SummedCurvature:
    """Holds, in the place of a `Curvature`, what the server adds, which is no message.

    Attributes
    ----------
    value, gradient, hessian, rule : as there, but that the rule has its sign
    cut : (c,) how many rows or groups are cut off at each point (`models.saturated`)
    """

    round: int
    value: PerPlace
    gradient: Places
    hessian: Packed
    rule: PerPlace
    cut: PerPlace

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["c"] * (3 + dims["xi"] + dims["tri"])

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers that are added."""
        return np.concatenate([self.value, self.rule, self.cut, self.gradient.ravel(), self.hessian.ravel()])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Message:
        """Returns the answer of all clients together: none at a point where a row or group is cut off."""
        c, P = dims["c"], dims["xi"]
        value, rule, cut, gradient, hessian = np.split(numbers, [c, 2 * c, 3 * c, 3 * c + c * P])
        gradient, hessian = gradient.reshape(c, P), hessian.reshape(c, -1)
        return Curvature(round, np.where(cut > 0, LOST, value), gradient, hessian, np.abs(rule))


@dataclass(frozen=True)
class SummedValues:
    """Holds, in the place of `Values`, what the server adds, which is no message.

    Attributes
    ----------
    values, cut : (s,) as L_j at each draw, and how many rows or groups are cut off
    rule : (k,) with its sign, at the first draws
    """

    round: int
    values: NDArray[np.float64]
    cut: NDArray[np.float64]
    rule: NDArray[np.float64]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 2 * (dims["drops"] // WIDTH) + CHECKED

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers that are added."""
        return np.concatenate([self.values, self.cut, self.rule])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Message:
        """Returns the answer of all clients together: none at a draw where a row or group is cut off."""
        values, cut, rule = np.split(numbers, [dims["drops"] // WIDTH, 2 * (dims["drops"] // WIDTH)])
        return Values.of(round, np.where(cut > 0, LOST, values), float(np.abs(rule).max()))


@dataclass(frozen=True)
class MaskedCurvature(Masked, Message, kind=244, tells=tells.WeightedSums().masked):
    """Client to server: a `SummedCurvature`, masked."""

    words: Annotated[bytes, "masked_curvature"]


@dataclass(frozen=True)
class MaskedValues(Masked, Message, kind=245, tells=tells.Points().masked):
    """Client to server: `SummedValues`, masked."""

    words: Annotated[bytes, "masked_values"]


SUMS = (Sum(SummedCurvature, MaskedCurvature, WIDE), Sum(SummedValues, MaskedValues, WIDE))
