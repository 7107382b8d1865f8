"""Tests whether counts vary as the model says, from Pearson sums, and names the remedy where they do not.

Where they vary more, intervals are too narrow however well a fit has settled. Source: docs/concepts/convergence.md, "Counts that
vary more".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..algorithms.exchanges.sums import PearsonSums
from ..finding import Finding, Value
from . import guard
from .verdict import Check

ERRORS = 3.0  # standard errors that the ratio must be off before it counts
OFF = 0.15  # and by how much
MENDED = "look at it again once the file is mended"
FEW = 50  # events: with fewer the ratio tells nothing


@dataclass(frozen=True)
class Dispersion:
    """Holds the dispersion of the counts of all rows together."""

    # family, scale: as the job has them
    family: str
    scale: float
    # ratio, error: of the variance of the responses to the model's, and its standard error where the model is right
    ratio: float
    error: float
    events: float  # sum of the counts
    excess: float  # the a of a variance mu + a mu^2 at which the ratio would be 1

    @property
    def few(self) -> bool:
        """Whether the events are too few for a verdict."""
        return self.events < FEW

    @property
    def off(self) -> bool:
        """Whether counts vary otherwise than the model says."""
        return not self.few and abs(self.ratio - 1) > max(ERRORS * self.error, OFF)

    @property
    def content(self) -> dict[str, float]:
        """The entry of summary.json."""
        return {"ratio": self.ratio, "error": self.error, "events": self.events}

    @property
    def words(self) -> str:
        """The ratio and its error, in words."""
        return f"counts vary {self.ratio:.3g} ± {self.error:.2g} times as much as a {self.family} model says"

    @property
    def narrow(self) -> str:
        """The clause on how far intervals are off, where responses vary more."""
        return f"intervals are about {math.sqrt(self.ratio):.2g} times too narrow"

    @property
    def checks(self) -> list[Check]:
        """Whether counts vary as the model says; nothing where events are too few for a judgement."""
        if self.few:
            return []
        values: dict[str, Value] = {"ratio": self.ratio, "error": self.error, "family": self.family}
        if not self.off:
            return [Check(Finding.of("counts-vary-so-much", **values), True)]
        remedy = "scale-of-counts" if self.family == "negative-binomial" else "negative-binomial"
        narrow = math.sqrt(self.ratio)
        found = Finding.of("counts-vary-otherwise", **values, narrow=narrow, scale=1 / self.excess, remedies=[remedy])
        return [Check(found, False)]


def pool(family: str, scale: float, replies: Sequence[PearsonSums], used: float) -> Dispersion | None:
    """Pools all clients' sums, in their order.

    Parameters
    ----------
    replies : the sums, a client each
    used : degrees of freedom that the coefficients take

    Returns
    -------
    the dispersion; None where rows are no more than `used`
    """
    replies = [reply for reply in replies if reply.weight > 0]
    rows = sum(reply.rows for reply in replies)
    # The fit takes a share of the degrees of freedom.
    left = math.fsum(reply.weight * reply.rows for reply in replies) * (1 - used / max(rows, 1))
    if not left > 0:
        return None
    misfit, slope = (math.fsum(reply.weight * getattr(reply, name) for reply in replies) for name in ("misfit", "slope"))
    noise = math.fsum(reply.weight * (reply.weight * reply.noise) for reply in replies)
    now = 1 / scale if family == "negative-binomial" else 0.0
    excess = now + (misfit - left) / slope if slope > 0 else 0.0
    events = math.fsum(reply.events for reply in replies)
    return Dispersion(family, scale, misfit / left, math.sqrt(noise) / left, events, excess)


@guard.figure("notes on the dispersion", ())
def notes(ratio: Dispersion) -> Iterator[str]:
    """Yields the note that events are too few for a judgement."""
    if ratio.few:
        yield Finding.of("few-events-to-judge", events=ratio.events, least=FEW, family=ratio.family)
