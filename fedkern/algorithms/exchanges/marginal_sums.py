"""Sums, after a job that asks for it, the derivatives of the mean of the response, or of the probability of each of its levels,
in each numeric covariate, and its differences between levels.

Each client has computed the slope of every row's mean, or its difference, at draws of the posterior that it was sent, and sends
the sums over its rows, to four digits (of levels three), with their number; a client with fewer than five rows answers with
zeros. For a column whose values are 0 and 1 it is the difference between the two. Source: docs/spec/likelihood.md, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .loo_sums import LEAST, MOST_ROWS
from .rounding import LARGEST, bounded, summable

Array = NDArray[np.float64]

DIGITS = 4  # significant, of each sum: with six they determined rows that the values do not
DIGITS_OF_LEVELS = 3  # of sums of each level's probability, which are as many times more


@dataclass(frozen=True)
class AskMarginal(Message, kind=208):
    """Server to client."""

    round: int


TOLD = tells.WeightedSums(
    "sums over this client's rows, and which of its columns are 0 or 1",
    "its covariates",
    together="its covariates, not whose they are",
)


@dataclass(frozen=True)
class MarginalSums(Message, kind=209, tells=TOLD):
    """Client to server: number of rows; of each numeric column whether all its values are 0 or 1; of each draw and each effect
    the sum over the rows."""

    round: int
    rows: int
    binary: Annotated[Array, "numeric"]
    sums: Annotated[Array, "draws effects"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 1 + dims["numeric"] + dims["draws"] * dims["effects"]

    def numbers(self) -> Array:
        """Returns the numbers that are added: of each numeric column 1 where its values are others than 0 and 1."""
        others = (1 - self.binary) * (self.rows > 0)
        return np.concatenate([[self.rows], others, summable(self.sums.ravel())])

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> MarginalSums:
        """Returns the sums of all clients together; a column is 0 or 1 where it is so at each of them."""
        numeric = dims["numeric"]
        binary = (numbers[1 : 1 + numeric] == 0).astype(np.float64)
        return cls(round, int(numbers[0]), binary, numbers[1 + numeric :].reshape(dims["draws"], dims["effects"]))


@dataclass(frozen=True)
class MaskedMarginalSums(Masked, Message, kind=286, tells=TOLD.masked):
    """Client to server: `MarginalSums`, masked."""

    words: Annotated[bytes, "masked_marginal"]


SUMS = (Sum(MarginalSums, MaskedMarginalSums, ONCE),)


def dims(draws: int, numeric: int, effects: int) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"draws": draws, "numeric": numeric, "effects": effects}


def make_reply(rows: int, binary: Array, sums: Array, digits: int = DIGITS) -> MarginalSums:
    """Returns the sums, or zeros if they are of too few rows."""
    if rows < LEAST:
        return MarginalSums(0, 0, np.zeros_like(binary), np.zeros_like(sums))
    rounded = np.array([float(f"{value:.{digits}g}") for value in sums.ravel()])
    return MarginalSums(0, rows, binary, rounded.reshape(sums.shape))


def _wrong(answer: MarginalSums) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not (answer.rows == 0 or LEAST <= answer.rows <= MOST_ROWS):
        return f"its MarginalSums are of {answer.rows} rows"
    if not np.isin(answer.binary, (0.0, 1.0)).all():
        return "its MarginalSums do not say which columns are 0 or 1"
    if not bounded(answer.sums, LARGEST):
        return "its MarginalSums are too large to be any"
    return ""


QUESTION = once.Question("marginal-sums", AskMarginal, MarginalSums, _wrong, drops=True)
PROTOCOL = QUESTION.protocol
