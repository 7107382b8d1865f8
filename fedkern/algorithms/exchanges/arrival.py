"""Checks after an open partitioned job whether its q is where the posterior of all rows is, and as wide.

That q moves no more is no proof: damped rounds of many clients move by little however far they are from the end. Each client
sends the gradient, in the mean, of its expected log-likelihood at the released q, and X'WX, its curvature. With the prior's these
give a Newton step, whose length says how far away q is, and standard deviations. X'WX of few rows is these rows up to a rotation:
a client with few rows a coefficient (`Requirement`, two at least) does not send its X'WX, unless its sites have told it
already, or the job lowers the least number of rows. Source: docs/concepts/convergence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ...arrays import Array
from ...models.expfam import Gaussian, unpack
from ...privacy.masks import ROUND
from ..core import once, tells
from ..core.exchange import Answer, Ask
from ..core.masked import Masked
from ..core.messages import Message

LARGEST = 1e100  # of a number: products of two are finite
AWAY = 0.1  # sds that q's mean may be off, in its own and in exact ones
WIDTH = 0.91  # of exact standard deviations, that q's must have, and 1 / WIDTH the most


@dataclass(frozen=True)
class Step:
    """Says how far q is from the posterior of all rows."""

    step: Array  # (d,) the Newton step from q's mean
    exact: Array  # (d,) standard deviations by the curvature of all rows
    approximate: Array  # (d,) those of q

    @property
    def away(self) -> Array:
        """(d,) The length of the step, in the smaller standard deviation."""
        distances: Array = np.abs(self.step) / np.minimum(self.exact, self.approximate)
        return distances

    @property
    def width(self) -> Array:
        """(d,) The standard deviations of q over the exact ones."""
        ratios: Array = self.approximate / self.exact
        return ratios

    @property
    def most(self) -> float:
        """The largest distance: of a mean in standard deviations, or of one of these in parts of itself."""
        return float(max(self.away.max(), np.abs(self.width - 1).max()))

    @property
    def is_close(self) -> bool:
        """Whether the step is so short, and the widths are so near, that nothing is to be gained."""
        return bool(self.away.max() <= AWAY and self.width.min() >= WIDTH and self.width.max() <= 1 / WIDTH)


def summed(replies: Mapping[int, Slope], d: int) -> tuple[Array, Array]:
    """Returns the gradient (d,) and the curvature (d, d) of all clients, added in their order."""
    slopes = [replies[k] for k in sorted(replies)]
    gradient, packed = (np.sum([getattr(each, name) for each in slopes], axis=0) for name in ("gradient", "curvature"))
    return gradient, packed[:, np.newaxis] if d == 1 else unpack(packed, d)


def newton(prior: Gaussian, q: Gaussian, replies: Mapping[int, Slope]) -> Step | None:
    """Returns the step from the answers of all clients, added in their order; None if their sum is no curvature of a
    posterior."""
    gradient, curvature = summed(replies, q.d)
    P = prior.P if prior.diagonal else np.diag(prior.P)
    A = np.diag(P) + curvature
    try:
        covariance = np.linalg.inv(A)
        with np.errstate(invalid="ignore"):
            exact = np.sqrt(np.diag(covariance))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(exact).all():
        return None
    return Step(covariance @ (gradient + prior.h - P * q.mean), exact, q.sd)


@dataclass(frozen=True)
class AskSlope(Ask, kind=190):
    """Server to client: the q at which the slope is asked, as shift and packed precision."""

    h: Annotated[Array, "d"]
    P: Annotated[Array, "p"]


TOLD = tells.Products(tells.LIKELIHOOD)


@dataclass(frozen=True)
class MaskedArrival(Masked, Message, kind=254, tells=TOLD.masked):
    """Client to server: a `Slope`, masked."""

    words: Annotated[bytes, "masked_arrival"]


@dataclass(frozen=True)
class Slope(
    Answer,
    kind=191,
    tells=TOLD,
    name="arrival",
    ask=AskSlope,
    masked=MaskedArrival,
    form=ROUND,
    drops=True,  # the fit is done; without one nothing is judged
):
    """Client to server: gradient of its expected log-likelihood in q's mean, and X'WX, the lower triangle row by row.

    If it has too few rows for that, all numbers are 0, and so is `told`. It is 1 less each row whose part is cut off, where the
    server gets sums alone.
    """

    told: int
    gradient: Annotated[Array, "d"]
    curvature: Annotated[Array, "t"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 1 + dims["d"] + dims["t"]

    def numbers(self) -> Array:
        """Returns how many rows are cut off, and the numbers; NaN where they are none that rows can have."""
        numbers = np.concatenate([[1 - self.told], self.gradient, self.curvature])
        return numbers if possible(replace(self, told=1)) else np.full(len(numbers), np.nan)

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> Slope:
        """Returns the answer of all clients together."""
        return cls(round, 1 - int(numbers[0]), numbers[1 : 1 + dims["d"]], numbers[1 + dims["d"] :])

    def wrong(self) -> str:
        """Returns the reason why it is no client's answer, or "" if it can be."""
        return "" if self.told < 1 or possible(self) else "its gradient or its X'WX is none that rows can have"


def answer(question: AskSlope, slope: Callable[[AskSlope], tuple[Array, Array, int]] | None) -> Slope:
    """Returns a client's answer; without a `slope` it holds zeros only."""
    if slope is None:
        d = len(question.h)
        return Slope(question.round, 0, np.zeros(d), np.zeros(d * (d + 1) // 2))
    gradient, curvature, cut = slope(question)
    # Numbers that are no numbers become too large ones, which the server drops as a fault of this client.
    if not _bounded(gradient, curvature):
        gradient, curvature = np.full_like(gradient, 2 * LARGEST), np.zeros_like(curvature)
    return Slope(question.round, 1 - cut, gradient, curvature)


def possible(reply: Slope) -> bool:
    """Tells whether rows can have such numbers."""
    d = np.arange(len(reply.gradient))
    diagonal = reply.curvature[d * (d + 3) // 2]
    return reply.told == 1 and _bounded(reply.gradient, reply.curvature) and bool((diagonal >= 0).all())


def _bounded(*numbers: Array) -> bool:
    return all(np.abs(number).max(initial=0) <= LARGEST for number in numbers)  # NaN is not


def silent(query: once.Server[Slope]) -> list[int]:
    """Returns the clients that have answered without numbers."""
    return sorted(k for k, reply in query.replies.items() if reply.told < 1)
