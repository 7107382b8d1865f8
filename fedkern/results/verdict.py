"""Judges whether a result has converged: one rule, and one sentence, for all methods (docs/concepts/convergence.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms.core.windows import ERRORS, LEAST, MEAN, SD, Movement
from ..models import psis
from ..models.weighted import Weighted
from .diagnostics import MARKED
from .reweighed import Reweighed

Array = NDArray[np.float64]
Word = bool | Literal["settled", "not judged", "approximate"]

RHAT = 1.01  # of converged chains: the largest R-hat
ESS = 100  # and the least ESS, for each chain
MARK = "*"  # after the name of a number whose chains do not agree
LEGEND = f"{MARK} R-hat above {MARKED:g}: chains do not agree about it yet"
# Where a normal q is too narrow:
REMEDY = 'for these take algorithm.inference = "nested" (of a built prior of at most 400 latents), or "hmc"'
HEADS = {
    True: "converged",
    False: "not converged",
    "settled": "settled",
    "not judged": "convergence not judged",
    "approximate": "approximate",
}


class Ending(NamedTuple):
    """Holds why rounds ended: a clause for the terminal, a label for the report's page, and whether that is "good" or "bad"."""

    clause: str
    label: str
    mood: Literal["good", "bad"]


# `stop` of summary.json. Whether the result is right is another question, and the verdict's.
STOPS = {
    "rounds": Ending("all rounds are done", "finished", "good"),
    "updates": Ending("all clients have made their updates", "finished", "good"),
    "converged": Ending("R-hat and ESS are as wanted", "converged", "good"),
    "enough": Ending("draws are as many, by their weights, as wanted", "finished", "good"),
    "settled": Ending("all unknowns have settled", "settled", "good"),
    "budget": Ending("the privacy budgets are spent", "privacy budget spent", "good"),
    "lost": Ending("no client is left", "clients lost", "bad"),
}
INTERRUPTED = Ending("the run did not finish", "interrupted", "bad")


@dataclass(frozen=True)
class Verdict:
    """Holds the first statement about a result.

    Attributes
    ----------
    converged : True, False, "settled" (an optimiser that moves no more, where nothing says that it is right), "not judged", or
        "approximate" (all has converged, to a posterior in which small clients' summaries weigh much)
    why : the numbers that decided, or the reason why there are none
    worst : name of the quantity that is farthest from convergence; "" where none is known
    doubts : those for which no result can stand, each of which `why` says
    failed : checks that failed, which `why` says
    """

    converged: Word
    why: str
    worst: str = ""
    doubts: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The verdict in one line."""
        return f"{HEADS[self.converged]}: {self.why}"

    @property
    def content(self) -> dict[str, bool | str]:
        """The entries of summary.json."""
        return {"converged": self.converged, "verdict": self.text, "worst": self.worst}


class Said(NamedTuple):
    """Holds what a look at the clients' data says: notes for the reader of a result, and doubts, for which it cannot stand."""

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def ending(stop: str | None) -> Ending:
    """Returns the words for `stop`, in the report and in the terminal; None stands for a run without a summary."""
    return INTERRUPTED if stop is None else STOPS.get(stop) or Ending(stop, stop, "bad")


def not_judged(why: str) -> Verdict:
    """Returns the verdict "not judged", with a reason of a few words."""
    return Verdict("not judged", why)


def against(doubts: Sequence[str], judged: Verdict) -> Verdict:
    """Returns the verdict on a result that cannot stand; what was `judged` comes last where that is against it, too."""
    if not doubts:
        return judged
    why = "; ".join([*doubts, *([judged.why] if judged.converged is False else [])])
    return Verdict(False, why, judged.worst, tuple(doubts))


def approximate(why: str) -> Verdict:
    """Returns the verdict on a result that has converged to what is near the posterior, by as much as `why` says."""
    return Verdict("approximate", why)


def of_chains(slowest: tuple[float, float, str] | None, chains: int, rhat: float = RHAT, ess: float | None = None) -> Verdict:
    """Judges a sampler: R-hat of every judged quantity at most 1.01, and ESS at least 100 for each chain.

    Parameters
    ----------
    slowest : the largest R-hat, the least ESS, and whose that is; None where they are not known
    chains : number of them
    rhat, ess : other limits, where the job has its own
    """
    if slowest is None:
        return not_judged("no R-hat: draws are too few")
    least = ESS * chains if ess is None else ess
    largest, smallest, worst = slowest
    why = f"R-hat at most {largest:.4f} (wanted {rhat:g}), ESS at least {smallest:.0f} (wanted {least:g}; {worst})"
    return Verdict(bool(largest <= rhat and smallest >= least), why, worst)


def of_weights(weights: Weighted, wanted: float) -> Verdict:
    """Judges weighted draws, of which so many of equal weight are wanted."""
    why = f"k-hat {weights.k_hat:.2f} (wanted at most {psis.UNRELIABLE:g})"
    why = f"{why}, {weights.effective:.0f} of {len(weights.draws)} draws count (wanted {wanted:g})"
    return Verdict(weights.reliable and weights.effective >= wanted, why)


def of_movement(movement: Movement | None, names: Sequence[str]) -> Verdict:
    """Judges an optimiser by how far its unknowns moved between two stretches of the rounds; never `True` (see `core.windows`).

    Parameters
    ----------
    movement : of all unknowns; None where a stretch has no rounds
    names : of the unknowns
    """
    if movement is None or movement.rounds < LEAST:
        return Verdict(False, f"too few rounds at the full learning rate to see what still moves, at least {LEAST} are needed")
    if not len(movement.mean):
        return Verdict("settled", "there is nothing that could move")
    k = movement.worst
    most = movement.excess[k]
    if movement.blind[k] == most > 1:
        return Verdict(False, f"too few rounds, or too low a learning rate, to see whether {names[k]} moves", names[k])
    mean = f"its mean by {abs(movement.mean[k]):.2f} ± {movement.mean_error[k]:.2f} sd (wanted {MEAN:g})"
    sd = f"its sd by {100 * abs(movement.sd[k]):.1f} ± {100 * movement.sd_error[k]:.1f} % (wanted {100 * SD:g})"
    noisy = "; too noisy to be seen, with more rounds or a lower learning rate it can" if movement.noise[k] == most > 1 else ""
    beyond = movement.settled and (abs(movement.mean[k]) > MEAN or abs(movement.sd[k]) > SD)
    noisy += f"; what is more is no more than {ERRORS:g} of its standard errors" if beyond else ""
    why = f"{names[k]} moved most, {mean} and {sd}, between two stretches of the rounds at the full learning rate{noisy}"
    return Verdict("settled" if movement.settled else False, why, names[k])


def with_clients(own: Verdict, settled: Mapping[str, bool | None], why_not: str = "have not settled") -> Verdict:
    """Adds each client's statement about its unknowns to the verdict of the server's.

    Parameters
    ----------
    settled : client -> whether its unknowns have settled; None where it was lost before it said so
    why_not : the words for a client's False
    """
    moving = [name for name, bit in settled.items() if bit is False]
    silent = [name for name, bit in settled.items() if bit is None]
    if own.converged is False or not (moving or silent):
        return own
    if not moving:
        return not_judged(f"client {silent[0]!r} was lost before it said whether its own unknowns have settled")
    others = f" and of {len(moving) - 1} more" if len(moving) > 1 else ""
    why = f"unknowns of client {moving[0]!r}{others} {why_not}; a file in its own folder says which"
    return Verdict(False, why, f"client {moving[0]}")


def with_weights(own: Verdict, weights: Reweighed | None) -> Verdict:
    """Adds importance weights to the verdict of a fit that has settled.

    It is `True` where weights agree with q, and `False` where they show that an sd is too small.
    """
    if weights is None or own.converged != "settled":
        return own
    if weights.agrees:
        why = f"settled, and q of the global unknowns is the posterior as far as weights tell: {weights.words}"
        return Verdict(True, why, weights.names[weights.worst])
    if narrow := weights.narrow:
        k, others = narrow[0], f", and {len(narrow) - 1} more" if len(narrow) > 1 else ""
        why = f"settled, but not near the posterior: {weights.names[k]} has too small an sd, {weights.moved(k)}{others}; {REMEDY}"
        return Verdict(False, why, weights.names[k])
    name = weights.names[weights.worst] if weights.reliable else own.worst
    return Verdict("settled", f"whether it is right is not known: {weights.words}; {own.why}", name)


def doubtful(names: Iterable[str], rhat: Array | None) -> list[str]:
    """Returns the names whose R-hat is above 1.05."""
    return [] if rhat is None else [name for name, value in zip(names, rhat) if is_doubtful(float(value))]


def is_doubtful(rhat: float | None) -> bool:
    """Returns whether a number with this R-hat, where it has one, bears the mark."""
    return rhat is not None and rhat > MARKED


def marked(name: str, those: Collection[str]) -> str:
    """Returns the name, with the mark if it is among `those`."""
    return name + MARK if name in those else name
