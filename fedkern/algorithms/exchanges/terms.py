"""Collects, after an open variational job, each client's log-likelihood at draws of the global unknowns from q.

The draws are made of the job's seed and of q, so only the answers travel: one number for each draw, in thousandths of a nat. In a
spatial fit every client has been told q(xi), and nobody is asked while something still moves; questions are of 1,000 draws each,
and end when their weights say enough, or won't. In a partitioned job the question has the released q. With the answers the server
weights its draws (`results.reweighed`).

Log-likelihoods at known points are equations for the rows. A partitioned job has fewer of them than a client of the least size
has unknown cells (`allowed`), by numbers that stand in the job file and in the agreed columns: how many a client answers says
nothing of its own number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import WIDE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from ..core.rounding import DIGITS, LARGEST, bounded, rounded

Array = NDArray[np.float64]

DRAWS = 400  # at most, of a partitioned job
FEWEST = 25  # of fewer no weights have a tail
PIECE = 1000  # draws of a question of a spatial fit
PIECES, OF_MANY, OF_SAMPLED = 10, 3, 2  # questions at most: of few global unknowns, of many, and where a client's own are drawn
MANY = 100
DIMS = {"draws": PIECE}


def pieces(unknowns: int, *, integrated: bool) -> int:
    """Returns how many questions the clients of a spatial fit are asked at most: a draw takes a client about as long as a
    round.

    Parameters
    ----------
    unknowns : P, global ones
    integrated : whether clients' own unknowns are integrated out
    """
    return (PIECES if unknowns <= MANY else OF_MANY) if integrated else OF_SAMPLED


def allowed(least_rows: int, columns: int) -> int:
    """Returns how many draws the clients of an open job are asked about: fewer than the cells of the smallest client, or none.

    Parameters
    ----------
    least_rows : that every client has
    columns : covariates; the response is one column more
    """
    most = min(DRAWS, least_rows * (columns + 1) - 1)
    return most if most >= FEWEST else 0


Terms = Annotated[Array, "draws"]


@dataclass(frozen=True)
class AskTerms(Message, kind=165):
    """Server to client: at the draws that all know; `round` is the number of the question."""

    round: int


@dataclass(frozen=True)
class AskTermsOf(Message, kind=149):
    """Server to client: at draws from this q, shift and packed precision."""

    round: int
    h: Annotated[NDArray[np.float64], "d"]
    P: Annotated[NDArray[np.float64], "p"]


@dataclass(frozen=True)
class Added:
    """Holds the fields of log-likelihoods at draws, and says how they are added where they are masked."""

    round: int
    values: Terms

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


@dataclass(frozen=True)
class LogTerms(Added, Message, kind=166, tells=tells.AreaSums(where="with few areas")):
    """Client to server: estimates of log p(y_j | xi), and nothing of its own unknowns."""


@dataclass(frozen=True)
class MaskedLogTerms(Masked, Message, kind=266, tells=tells.AreaSums(where="with few areas").masked):
    """Client to server: `LogTerms`, masked."""

    words: Annotated[bytes, "masked_log_terms"]


@dataclass(frozen=True)
class LogTermsOf(Added, Message, kind=150, tells=tells.Points()):
    """Client to server: log p(y_j | theta) at draws of q."""


@dataclass(frozen=True)
class MaskedLogTermsOf(Masked, Message, kind=255, tells=tells.Points().masked):
    """Client to server: a `LogTermsOf`, masked, with a count of each draw that cannot be."""

    words: Annotated[bytes, "masked_terms"]


SUMS = (Sum(LogTerms, MaskedLogTerms, WIDE),)
OF_Q_SUMS = (Sum(LogTermsOf, MaskedLogTermsOf, WIDE),)


def make_reply(asked: AskTerms, values: Array) -> LogTerms:
    """Returns the answer, in thousandths of a nat."""
    return LogTerms(asked.round, rounded(values))


def make_reply_of_q(asked: AskTermsOf, values: Array) -> LogTermsOf:
    """Returns the answer at draws of a partitioned job's q, in thousandths of a nat."""
    return LogTermsOf(asked.round, rounded(values))


def _wrong(reply: LogTerms | LogTermsOf) -> str:
    return "" if bounded(reply.values) else "its log-likelihoods are too large to be any"


NEEDS = "its log-likelihoods had not come; --resume goes on from the last checkpoint"
QUESTION = once.Question("terms", AskTerms, LogTerms, _wrong, drops=True, judges=True, needs=NEEDS)
QUESTION_OF = once.Question("terms-of-q", AskTermsOf, LogTermsOf, _wrong, drops=True, judges=True)  # the job has done its work
PROTOCOL, OF_Q = QUESTION.protocol, QUESTION_OF.protocol
