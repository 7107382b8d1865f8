"""Tests whether responses vary as the model says, from clients' Pearson sums, and names the remedy where they do not.

Where they vary more, intervals are too narrow however well a fit has settled. Source: docs/concepts/convergence.md, "Counts that
vary more".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..algorithms.exchanges.sums import PearsonSums
from ..finding import Finding
from ..kernels.families import FAMILIES
from . import guard
from .verdict import Verdict

ERRORS = 3.0  # standard errors that the ratio must be off before it counts
OFF = 0.15  # and by how much
FEW = 50  # events: with fewer the ratio tells nothing
MENDED = "look at it again once the file is mended"
LEAST = 1e-6  # of `excess`: a negative binomial with less is a Poisson's


@dataclass(frozen=True)
class Dispersion:
    """Holds the dispersion of all rows together.

    Attributes
    ----------
    family, scale : as the job has them
    ratio, error : of the variance of the responses to the model's, and its standard error where the model is right
    events : sum of the counts
    excess : of counts, the a of a variance mu + a mu^2 at which the ratio would be 1
    learns : whether the job can learn a scale (the r of a negative binomial): "can", "has" where it has learnt it, "" if it
        cannot
    """

    family: str
    scale: float
    ratio: float
    error: float
    events: float
    excess: float
    learns: Literal["", "can", "has"] = ""

    @property
    def counts(self) -> bool:
        """Whether the response is counted, so that it has events."""
        return FAMILIES[self.family].counted

    @property
    def counted(self) -> str:
        """The word for the responses: "successes" or "counts"."""
        return "successes" if self.family == "binomial" else "counts"

    @property
    def few(self) -> bool:
        """Whether the events are too few for a verdict."""
        return self.counts and self.events < FEW

    @property
    def off(self) -> bool:
        """Whether counts vary otherwise than the model says; in a linear model `model.scale` is responsible for that."""
        return self.counts and not self.few and abs(self.ratio - 1) > max(ERRORS * self.error, OFF)

    @property
    def content(self) -> dict[str, float]:
        """The entry of summary.json."""
        own = {"ratio": self.ratio, "error": self.error}
        return own | {"events": self.events} if self.counts else own

    @property
    def words(self) -> str:
        """The ratio and its error, in words."""
        number = f"{self.ratio:.3g} ± {self.error:.2g} times"
        if not self.counts:
            return f"the residuals' variance is {number} that of the model"
        if self.family == "binomial":
            return f"successes vary {number} as much as a binomial model says"
        return f"counts vary {number} as much as a {self.family} model says"

    @property
    def remedy(self) -> str:
        """The key to set, with its value; "" where no family fits."""
        if self.family == "negative-binomial" and self.learns == "can":
            return 'model.scale = "learn"'
        if self.excess > LEAST:
            right = f"model.scale = {1 / self.excess:.2g}"
            if self.family == "negative-binomial":
                return right
            return 'model.family = "negative-binomial"' + ("" if self.learns else f" with {right}")
        poisson = self.family == "negative-binomial" and not self.learns
        return 'model.family = "poisson" (without model.scale)' if poisson else ""

    @property
    def narrow(self) -> str:
        """The clause on how far intervals are off."""
        by = math.sqrt(max(self.ratio, 1e-12))
        return f"intervals are about {by:.2g} times too narrow" if by > 1 else f"intervals are about {1 / by:.2g} times too wide"

    def wrong(self, first: str = "") -> str:
        """Says what is wrong and which key mends it, where responses are `off`.

        Parameters
        ----------
        first : a key to set before another family is chosen; "" for none
        """
        said = self.narrow
        if first and self.ratio > 1 and self.remedy:
            return f"{self.words}: {said}; sites differ (a note says how): set {first}, and where it is still so {self.remedy}"
        if self.family == "binomial":
            return f"{self.words}: {said}; trials of a row are alike, and no family here has that: widen intervals by this factor"
        if self.remedy:
            return f"{self.words}: {said}; set {self.remedy}"
        return (
            f"{self.words}: {said}; no family here varies less than Poisson's, but for a response that has two values alone: for "
            '0 and 1 set model.family = "bernoulli", for others also data.positive to the one that counts as 1'
        )


def pool(
    family: str, scale: float, told: Sequence[PearsonSums], used: float, learns: Literal["", "can", "has"] = ""
) -> Dispersion | None:
    """Pools all clients' sums, in their order.

    Parameters
    ----------
    told : the sums, a client each
    used : degrees of freedom that the coefficients take
    learns : see `Dispersion`

    Returns
    -------
    the dispersion; None where rows are no more than `used`
    """
    told = [one for one in told if one.weight > 0]
    rows = sum(one.rows for one in told)
    # The fit takes a share of the degrees of freedom.
    left = math.fsum(one.weight * one.rows for one in told) * (1 - used / max(rows, 1))
    if not left > 0:
        return None
    misfit, slope = (math.fsum(one.weight * getattr(one, name) for one in told) for name in ("misfit", "slope"))
    noise = math.fsum(one.weight * (one.weight * one.noise) for one in told)
    now = 1 / scale if family == "negative-binomial" else 0.0
    excess = now + (misfit - left) / slope if slope > 0 else 0.0
    events = math.fsum(one.events for one in told)
    return Dispersion(family, scale, misfit / left, math.sqrt(noise) / left, events, excess, learns)


def judge(own: Verdict, ratio: Dispersion | None, first: str = "") -> Verdict:
    """Returns the verdict of a fit after this test: `false` where responses vary otherwise, else with the ratio added.

    Parameters
    ----------
    own : the verdict of the posterior itself
    ratio : the dispersion; None where nobody was asked
    first : a key to set before another family is chosen; "" for none
    """
    if ratio is None or own.converged is False:
        return own
    if ratio.off:
        return Verdict(False, ratio.wrong(first))
    return own if ratio.few else replace(own, why=f"{own.why}; {ratio.words}")


@guard.figure("notes on the dispersion", ())
def notes(own: Verdict, ratio: Dispersion | None, *, mend_first: bool = False) -> Iterator[str]:
    """Yields notes for a reader beside the verdict: too few events, or a ratio that is off.

    `mend_first`: whether a file is to be mended, before any family is taken.
    """
    if ratio is None:
        return
    if ratio.few:
        events, responses = ratio.events, ratio.counted
        yield Finding.of("few-events-to-judge", events=events, least=FEW, responses=responses, family=ratio.family)
    if ratio.off and own.converged is False:
        yield f"{ratio.words}: {MENDED}" if mend_first else ratio.wrong()
