"""Collects, after the last round of a Gibbs sampler, the counts of every client's sweeps. Source: sparse.md, section 5."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core import once, tells
from ..core.messages import Message

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskCounts(Message, kind=47):
    """Server to client: how often did it happen?"""

    round: int


@dataclass(frozen=True)
class Counts(Message, kind=48, tells=tells.Fact("counts of its sampler's steps")):
    """Client to server: over the whole run, scales clipped, Cholesky factors that failed, and draws in data space."""

    round: int
    clipped: int
    fallbacks: int
    data_space: int

    @property
    def each(self) -> tuple[int, int, int]:
        """The three counts, in the order of the fields."""
        return self.clipped, self.fallbacks, self.data_space


def total(replies: Iterable[Counts]) -> tuple[int, int, int]:
    """Returns the sums over the clients."""
    clipped, fallbacks, data_space = (sum(numbers) for numbers in zip((0, 0, 0), *(reply.each for reply in replies)))
    return clipped, fallbacks, data_space


def _wrong(reply: Counts) -> str:
    return "its Counts have one below 0" if min(reply.each) < 0 else ""


QUESTION = once.Question("gibbs-counts", AskCounts, Counts, _wrong)  # the draws are made: who is lost lacks in the counts alone
PROTOCOL = QUESTION.protocol
