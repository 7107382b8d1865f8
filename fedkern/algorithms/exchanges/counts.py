"""Collects, after the last round of a Gibbs sampler, the counts of every client's sweeps. Source: sparse.md, section 5."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import tells
from ..core.exchange import MOST_ROWS, Added, Conditions


@dataclass(frozen=True)
class Counts(
    Added, kind=48, tells=tells.Fact("counts of its sampler's steps"), name="gibbs-counts", ask=("AskCounts", 47), least=0
):
    """Client to server: over the whole run, scales clipped, Cholesky factors that failed, and draws in data space. The draws are
    made: who is lost lacks in the counts alone."""

    clipped: int
    fallbacks: int
    data_space: int

    @property
    def each(self) -> tuple[int, int, int]:
        """The three counts, in the order of the fields."""
        return self.clipped, self.fallbacks, self.data_space

    def honest(self) -> Conditions:
        yield min(self.each) >= 0, "have one below 0"
        yield max(self.each) <= MOST_ROWS, "are too large to be any"
