"""Checks, after the rounds of an open job, whether responses vary as the model says: each client sends Pearson sums of its rows.

At a predictor mean mu the family says a variance V of y. Of 1 = E (y - mu)^2 / V a client sends the sum over its rows, how much
this sum varies where the model is right, and how fast it answers to a dispersion; with its events, and the sum of its weights. A
sum is of at least five rows, whatever the job's least number: a client with fewer answers with zeros. Sums are in thousandths and
of six digits. Source: docs/concepts/convergence.md, "Counts that vary more".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...models import glm
from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .loo_sums import LEAST, MOST_ROWS
from .rounding import LARGEST, bounded, rounded, summable

Array = NDArray[np.float64]
MOST_OF_A_ROW = 1e15  # masked sums have room for more rows than there are
OF_ROWS = ("events", "misfit", "noise", "slope")


@dataclass(frozen=True)
class AskPearson(Message, kind=194):
    """Server to client: at these coefficients."""

    round: int
    mean: Annotated[Array, "d"]


@dataclass(frozen=True)
class PearsonSums(Message, kind=195, tells=tells.Sums()):
    """Client to server: number of rows, their mean weight (of six digits), and sums over them: of y where it is a count; with
    weights of mean 1 of (y - mu)^2 / V, of the variance that this has where the model is right, with squared weights, and of
    mu^2 / V where y is a count. Where rows are successes of trials, the first counts the rarer kind, and the last is 0."""

    round: int
    rows: int
    weight: float
    events: float
    misfit: float
    noise: float
    slope: float

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 2 + len(OF_ROWS)

    def numbers(self) -> Array:
        """Returns the numbers that are added: in the place of the mean weight the sum of the weights."""
        return summable([self.rows, self.rows * self.weight, *(getattr(self, name) for name in OF_ROWS)])

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> PearsonSums:
        """Returns the sums of all clients together."""
        rows, weights, *sums = numbers.tolist()
        return cls(round, int(rows), weights / max(rows, 1.0), *sums)


@dataclass(frozen=True)
class MaskedPearsonSums(Masked, Message, kind=290, tells=tells.Sums().masked):
    """Client to server: `PearsonSums`, masked."""

    words: Annotated[bytes, "masked_pearson"]


SUMS = (Sum(PearsonSums, MaskedPearsonSums, ONCE),)
NOBODY = PearsonSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


def answer_at(mean: Array, rows: glm.Rows, family: str, scale: float = 1.0, *, masked: bool) -> PearsonSums:
    """Returns the answer of a client with these rows at coefficients; of masked sums a row adds no more than `MOST_OF_A_ROW`."""
    n, *sums = glm.pearson_sums(rows, mean, family, scale, MOST_OF_A_ROW if masked else np.inf)
    return make_reply(PearsonSums(0, n, *sums))


def make_reply(sums: PearsonSums) -> PearsonSums:
    """Returns the sums, or zeros if they are of too few rows."""
    if sums.rows < LEAST:
        return NOBODY
    numbers: dict[str, Any] = {name: _six_digits(rounded(getattr(sums, name)).item()) for name in OF_ROWS}
    return replace(sums, weight=_six_digits(min(sums.weight, LARGEST)), **numbers)


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _wrong(sums: PearsonSums) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not (sums.rows == 0 or LEAST <= sums.rows <= MOST_ROWS):
        return f"its PearsonSums are of {sums.rows} rows"
    numbers = [sums.weight, *(getattr(sums, name) for name in OF_ROWS)]
    if not bounded(numbers):
        return "its PearsonSums are too large to be any"
    if min(numbers) < 0:
        return "its PearsonSums are of squares, and one is below 0"
    return ""


QUESTION = once.Question("pearson-sums", AskPearson, PearsonSums, _wrong, drops=True, judges=True)
PROTOCOL = QUESTION.protocol
