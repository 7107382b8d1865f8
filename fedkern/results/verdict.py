"""Whether a result may be called converged: one rule, and one sentence, for all methods (docs/concepts/convergence.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .diagnostics import MARKED

Array = NDArray[np.float64]
Word = bool | Literal["settled", "not judged"]

RHAT = 1.01  # of converged chains: the largest R-hat
ESS = 100  # and the least ESS, for each chain
MARK = "*"  # after the name of what must not be read as if its chains agreed
LEGEND = f"{MARK} R-hat above {MARKED:g}: chains do not agree about it yet"
HEADS = {True: "converged", False: "not converged", "settled": "settled", "not judged": "convergence not judged"}


@dataclass(frozen=True)
class Verdict:
    """What is said of a result before anything else.

    Attributes
    ----------
    converged : True, False, "settled" (an optimiser that moves no more) or "not judged"
    why : the numbers that decided, or the reason why there are none
    worst : name of the quantity that is farthest from convergence; "" where none is known
    """

    converged: Word
    why: str
    worst: str = ""

    @property
    def text(self) -> str:
        """One line."""
        return f"{HEADS[self.converged]}: {self.why}"

    @property
    def content(self) -> dict[str, bool | str]:
        """What summary.json has of it."""
        return {"converged": self.converged, "verdict": self.text, "worst": self.worst}


def not_judged(why: str) -> Verdict:
    """`why`: one word."""
    return Verdict("not judged", why)


def of_chains(slowest: tuple[float, float, str] | None, chains: int, rhat: float = RHAT, ess: float | None = None) -> Verdict:
    """Of a sampler: R-hat of every judged quantity at most 1.01, and ESS at least 100 for each chain.

    Parameters
    ----------
    slowest : the largest R-hat, the least ESS, and whose that is; None where they are not known
    chains : number of them
    rhat, ess : other limits, where the job has its own
    """
    if slowest is None:
        return not_judged("no R-hat: ArviZ is missing, or draws are too few")
    least = ESS * chains if ess is None else ess
    largest, smallest, worst = slowest
    why = f"R-hat at most {largest:.4f} (wanted {rhat:g}), ESS at least {smallest:.0f} (wanted {least:g}; {worst})"
    return Verdict(bool(largest <= rhat and smallest >= least), why, worst)


def doubtful(names: Iterable[str], rhat: Array | None) -> list[str]:
    """Those whose own R-hat is above 1.05."""
    return [] if rhat is None else [name for name, value in zip(names, rhat) if is_doubtful(float(value))]


def is_doubtful(rhat: float | None) -> bool:
    """Whether a number with this R-hat, where it has one, bears the mark."""
    return rhat is not None and rhat > MARKED


def marked(name: str, those: Collection[str]) -> str:
    """The name, with the mark if it is one of those."""
    return name + MARK if name in those else name
