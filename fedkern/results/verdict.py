"""Judges whether a result has converged: one rule, and one sentence, for all methods (docs/concepts/convergence.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..algorithms.core.windows import ERRORS, LEAST, MEAN, SD, Movement
from ..arrays import Array
from ..finding import Finding
from ..models import psis
from ..models.weighted import Weighted
from .diagnostics import MARKED
from .reweighed import Reweighed

Word = bool | Literal["settled", "not judged", "approximate"]

RHAT = 1.01  # of converged chains: the largest R-hat
ESS = 100  # and the least ESS, for each chain
MARK = "*"  # after the name of a number whose chains do not agree
LEGEND = f"{MARK} R-hat above {MARKED:g}: chains do not agree about it yet"
FROM_THE_BEST: tuple[Word, ...] = (True, "settled", "approximate", "not judged", False)
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


class Check(NamedTuple):
    """Holds one test of a result."""

    found: str  # what was found; of an entry of the catalogue with its id, and the numbers with those that are wanted
    word: Word  # what the result is, as far as this test goes
    worst: str = ""  # name of the quantity that is farthest from what is wanted; "" where none is known

    @property
    def content(self) -> dict[str, object]:
        """Its row of `checks` of summary.json."""
        found = self.found.content if isinstance(self.found, Finding) else {"text": self.found}
        return {"is": self.word, **found}


@dataclass(frozen=True)
class Verdict:
    """Holds the checks of a result, of which the worst decides."""

    checks: tuple[Check, ...]  # at least one

    @classmethod
    def of(cls, word: Word, found: str, worst: str = "") -> Verdict:
        """Returns the verdict of one check."""
        return cls((Check(found, word, worst),))

    @property
    def converged(self) -> Word:
        """True, False, "settled" (an optimiser that moves no more, where nothing says that it is right), "not judged", or
        "approximate" (all has converged, to a posterior in which small clients' summaries weigh much)."""
        return max((check.word for check in self.checks), key=FROM_THE_BEST.index)

    @property
    def _shown(self) -> list[Check]:
        """Of a result that cannot stand its reasons, else all checks; those that decide first."""
        from_the_worst = sorted(self.checks, key=lambda check: -FROM_THE_BEST.index(check.word))
        reasons = [check for check in from_the_worst if check.word in (False, "not judged")]
        return reasons or from_the_worst

    @property
    def why(self) -> str:
        """The numbers that decided, or the reason why there are none."""
        return "; ".join(dict.fromkeys(check.found for check in self._shown))

    @property
    def worst(self) -> str:
        """Name of the quantity that is farthest from convergence; "" where none is known."""
        word = self.converged
        return next((check.worst for check in self._shown if check.word == word and check.worst), "")

    @property
    def text(self) -> str:
        """The verdict in one line."""
        return f"{HEADS[self.converged]}: {self.why}"

    @property
    def doubts(self) -> list[str]:
        """Those for which no result can stand, whatever the numbers of its convergence."""
        found = (check.found for check in self.checks if check.word is False)
        return [finding for finding in found if isinstance(finding, Finding) and finding.severity != "check"]

    @property
    def content(self) -> dict[str, object]:
        """The entries of summary.json."""
        checks = [check.content for check in self.checks]
        return {"converged": self.converged, "verdict": self.text, "worst": self.worst, "checks": checks}

    def also(self, *checks: Check) -> Verdict:
        """Returns the verdict with more checks."""
        return Verdict((*self.checks, *checks))


class Said(NamedTuple):
    """Holds what a look at the clients' data says: notes for the reader of a result, and doubts, for which it cannot stand."""

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def ending(stop: str | None) -> Ending:
    """Returns the words for `stop`, in the report and in the terminal; None stands for a run without a summary."""
    return INTERRUPTED if stop is None else STOPS.get(stop) or Ending(stop, stop, "bad")


def not_judged(why: str) -> Verdict:
    """Returns the verdict "not judged", with a reason of a few words."""
    return Verdict.of("not judged", why)


def against(doubts: Iterable[str], judged: Verdict) -> Verdict:
    """Returns the verdict on a result that cannot stand where there are doubts of its files."""
    return Verdict((*(Check(doubt, False) for doubt in doubts), *judged.checks))


def of_chains(slowest: tuple[float, float, str] | None, chains: int, rhat: float = RHAT, ess: float | None = None) -> Verdict:
    """Judges a sampler: R-hat of every judged quantity at most 1.01, and ESS at least 100 for each chain.

    Parameters
    ----------
    slowest : the largest R-hat, the least ESS, and whose that is; None where they are not known
    chains : number of them
    rhat, ess : other limits, where the job has its own
    """
    if slowest is None:
        return not_judged(Finding.of("no-rhat"))
    least = ESS * chains if ess is None else ess
    largest, smallest, worst = slowest
    mixed = Check(Finding.of("rhat", rhat=largest, wanted=rhat), bool(largest <= rhat), worst)
    many = Check(Finding.of("ess", ess=smallest, wanted=least, name=worst), bool(smallest >= least), worst)
    return Verdict((mixed, many))


def of_weights(weights: Weighted, wanted: float) -> Verdict:
    """Judges weighted draws, of which so many of equal weight are wanted."""
    tail = Finding.of("k-hat", k_hat=weights.k_hat, wanted=psis.UNRELIABLE)
    many = Finding.of("draws-that-count", effective=weights.effective, draws=len(weights.draws), wanted=wanted)
    return Verdict((Check(tail, weights.reliable), Check(many, weights.effective >= wanted)))


def of_movement(movement: Movement | None, names: Sequence[str]) -> Verdict:
    """Judges an optimiser by how far its unknowns moved between two stretches of the rounds; never `True` (see `core.windows`).

    Parameters
    ----------
    movement : of all unknowns; None where a stretch has no rounds
    names : of the unknowns
    """
    if movement is None or movement.rounds < LEAST:
        return Verdict.of(False, Finding.of("few-rounds-to-settle", least=LEAST))
    if not len(movement.mean):
        return Verdict.of("settled", Finding.of("nothing-moves"))
    k = movement.worst
    name, most = names[k], movement.excess[k]
    if movement.blind[k] == most > 1:
        return Verdict.of(False, Finding.of("movement-unseen", name=name), name)
    mean, sd = float(movement.mean[k]), float(movement.sd[k])
    found = Finding.of(
        "movement",
        name=name,
        mean=abs(mean),
        mean_error=float(movement.mean_error[k]),
        wanted=MEAN,
        sd=100 * abs(sd),
        sd_error=100 * float(movement.sd_error[k]),
        wanted_sd=100 * SD,
    )
    word: Word = "settled" if movement.settled else False
    judged = Verdict.of(word, found, name)
    if movement.noise[k] == most > 1:
        judged = judged.also(Check(Finding.of("movement-too-noisy"), movement.settled))
    if movement.settled and (abs(mean) > MEAN or abs(sd) > SD):
        judged = judged.also(Check(Finding.of("movement-within-errors", errors=ERRORS), True))
    return judged


def with_clients(of_server: Verdict, settled: Mapping[str, bool | None], why_not: str = "have not settled") -> Verdict:
    """Adds each client's statement about its unknowns to the verdict of the server's.

    Parameters
    ----------
    settled : client -> whether its unknowns have settled; None where it was lost before it said so
    why_not : the words for a client's False
    """
    moving = [name for name, bit in settled.items() if bit is False]
    silent = [name for name, bit in settled.items() if bit is None]
    if moving:
        others = f" and of {len(moving) - 1} more" if len(moving) > 1 else ""
        found = Finding.of("clients-not-settled", client=moving[0], others=others, why=why_not)
        return of_server.also(Check(found, False, f"client {moving[0]}"))
    if silent:
        return of_server.also(Check(Finding.of("lost-before-settled", client=silent[0]), "not judged"))
    return of_server


def with_weights(of_server: Verdict, weights: Reweighed | None) -> Verdict:
    """Adds importance weights to the verdict of a fit that has settled.

    It is `True` where weights agree with q, and `False` where they show that an sd is too small.
    """
    if weights is None or of_server.converged != "settled":
        return of_server
    if weights.agrees:
        return Verdict.of(True, Finding.of("weights-agree", words=weights.words), weights.names[weights.worst])
    if narrow := weights.narrow:
        names = [weights.names[k] for k in narrow]
        moved = weights.moved(narrow[0])
        return of_server.also(
            Check(Finding.of("narrow-by-weights", names=names, moved=moved, remedies=["wider-than-q"]), False, names[0])
        )
    name = weights.names[weights.worst] if weights.reliable else of_server.worst
    return Verdict((Check(Finding.of("weights-do-not-tell", words=weights.words), "settled", name), *of_server.checks))


def doubtful(names: Iterable[str], rhat: Array | None) -> list[str]:
    """Returns the names whose R-hat is above 1.05."""
    return [] if rhat is None else [name for name, value in zip(names, rhat) if is_doubtful(float(value))]


def is_doubtful(rhat: float | None) -> bool:
    """Returns whether a number with this R-hat, where it has one, bears the mark."""
    return rhat is not None and rhat > MARKED


def marked(name: str, those: Collection[str]) -> str:
    """Returns the name, with the mark if it is among `those`."""
    return name + MARK if name in those else name
