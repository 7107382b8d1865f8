"""Collects, after an open variational job, each client's log-likelihood at draws of the global unknowns from q.

The draws are made of the job's seed and of q, so only the answers travel: one number for each draw, in thousandths of a nat. In a
spatial fit every client has been told q(xi), and nobody is asked while something still moves; questions are of 1,000 draws each,
and end when their weights say enough, or won't. With the answers the server weights its draws (`results.reweighed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import WIDE
from ..core import tells
from ..core.exchange import Answer
from ..core.rounding import DIGITS, LARGEST, bounded, rounded

Array = NDArray[np.float64]

PIECE = 1000  # draws of a question of a spatial fit
PIECES, OF_MANY, OF_SAMPLED = 10, 3, 2  # questions at most: of few global unknowns, of many, and where a client's own are drawn
MANY = 100


def pieces(unknowns: int, *, integrated: bool) -> int:
    """Returns how many questions the clients of a spatial fit are asked at most: a draw takes a client about as long as a
    round.

    Parameters
    ----------
    unknowns : P, global ones
    integrated : whether clients' own unknowns are integrated out
    """
    return (PIECES if unknowns <= MANY else OF_MANY) if integrated else OF_SAMPLED


@dataclass(frozen=True)
class LogTerms(
    Answer,
    kind=166,
    tells=tells.AreaSums(where="with few areas"),
    name="terms",
    ask=("AskTerms", 165),
    masked=("masked_log_terms", 266),
    form=WIDE,
    dims={"draws": PIECE},
    rounding={"values": rounded},
    drops=True,
    judges=True,
    needs="its log-likelihoods had not come; --resume goes on from the last checkpoint",
):
    """Client to server: estimates of log p(y_j | xi), and nothing of its own unknowns, at the draws that all know; `round` is the
    number of the question."""

    values: Annotated[Array, "draws"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["draws"]

    def numbers(self) -> Array:
        """Returns thousandths of a nat, whole numbers that are added exactly; NaN at a draw that cannot be."""
        return np.asarray(np.rint(np.where(self.values > -LARGEST / 2, self.values, np.nan) * 10**DIGITS))

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> Self:
        """Returns the answer of all clients together."""
        return cls(round, rounded(numbers / 10**DIGITS))

    def wrong(self) -> str:
        """Returns the reason why it is no client's answer, or "" if it can be."""
        return "" if bounded(self.values) else "its log-likelihoods are too large to be any"
