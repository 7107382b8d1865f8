"""Checks, after the rounds of an open job, whether the model makes responses like those that were seen.

Each client has drawn responses anew at draws of the posterior that it was sent, and sends sums over its rows: of its responses,
of those that were drawn, and of predictions by tenths. The server adds them; a client with fewer than five rows answers with
zeros. Responses are drawn by the client's own random numbers: whoever knew these could compute its rows. Source:
docs/spec/likelihood.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .added import Added
from .loo_sums import LEAST

Array = NDArray[np.float64]

DIGITS = 9  # significant, of each sum
OF_MISFITS = 3  # significant, of a chi-square
OF_PROBABILITIES = 3  # after the point, of the mean of a tenth's probabilities: with nine they would tell how often each occurs


@dataclass(frozen=True)
class AskReplicated(Message, kind=206):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class Replicated(Added, Message, kind=207, tells=tells.ResponseSums()):
    """Client to server: number of rows, sums of the response and its square, zeros; of each draw the same three of responses that
    were drawn anew; of each tenth of the predictions rows, predictions and responses; of some draws Pearson's chi-square of the
    responses, and of those drawn anew about the same means."""

    round: int
    observed: Annotated[Array, "four"]
    replicated: Annotated[Array, "draws three"]
    tenths: Annotated[Array, "ten three"]
    misfits: Annotated[Array, "fits two"]


@dataclass(frozen=True)
class MaskedReplicated(Masked, Message, kind=285, tells=tells.ResponseSums().masked):
    """Client to server: `Replicated`, masked."""

    words: Annotated[bytes, "masked_replicated"]


SUMS = (Sum(Replicated, MaskedReplicated, ONCE),)


def dims(draws: int) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"four": 4, "draws": draws, "three": 3, "ten": 10, "fits": 50, "two": 2}


def make_reply(observed: Array, replicated: Array, tenths: Array, misfits: Array, *, of_rows: bool) -> Replicated:
    """Returns the sums, or zeros if they are of too few rows.

    Parameters
    ----------
    of_rows : whether a tenth is of predicted probabilities, and has enough rows; else a tenth counts where responses stand, and
        these counts are sent in multiples of five
    """
    if observed[0] < LEAST:
        return Replicated(0, np.zeros(4), np.zeros_like(replicated), np.zeros_like(tenths), np.zeros_like(misfits))
    if of_rows:
        number, probabilities, responses = tenths.T
        mean = np.round(probabilities / np.maximum(number, 1.0), OF_PROBABILITIES)
        tenths = np.stack([number, mean * number, responses], axis=1)
    else:
        tenths = LEAST * np.round(tenths / LEAST)
    return Replicated(0, _rounded(observed), _rounded(replicated), _rounded(tenths), _rounded(misfits, OF_MISFITS))


def _rounded(values: Array, digits: int = DIGITS) -> Array:
    """Returns numbers with so many significant digits."""
    short = [float(f"{value:.{digits}g}") for value in values.ravel()]
    return np.array(short).reshape(values.shape)


def _wrong(sums: Replicated) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not all(np.isfinite(values).all() for values in (sums.observed, sums.replicated, sums.tenths, sums.misfits)):
        return "its Replicated are no numbers"
    if sums.observed[0] < 0 or sums.observed[0] % 1 or not 0 <= sums.observed[3] <= sums.observed[0]:
        return "its Replicated count rows that are not there"
    return ""


QUESTION = once.Question("replicated", AskReplicated, Replicated, _wrong, drops=True, judges=True)
PROTOCOL = QUESTION.protocol
