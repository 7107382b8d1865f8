"""Sends the server's verdict, at the end of a job, to clients that keep results of their own; it heads their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ...arrays import Array
from ..core import once, tells
from ..core.exchange import Answer, Ask
from ..core.messages import RemoteFault

DIMS = {"verdict": 4096, "name": 512}  # bytes at most
WORDS = (False, True, "settled", "not judged", "approximate")  # `converged` of summary.json, by its number in the message


@dataclass(frozen=True)
class TellVerdict(Ask, kind=217):
    """Server to client: the number of the verdict's word, its sentence, and the unknown that is farthest from convergence."""

    word: int
    text: Annotated[bytes, "verdict"]
    worst: Annotated[bytes, "name"]


@dataclass(frozen=True)
class VerdictHeard(Answer, kind=218, tells=tells.Nothing(private=tells.NOTHING), name="verdict", ask=TellVerdict, dims=DIMS):
    """Client to server: the verdict has come."""


def make_question(converged: bool | str, text: str, worst: str) -> TellVerdict:
    """Returns the message; words that are too long for it are cut."""
    cut = (part.encode(errors="replace")[: DIMS[most]] for part, most in ((text, "verdict"), (worst, "name")))
    return TellVerdict(0, WORDS.index(converged), *cut)


def read_verdict(message: TellVerdict) -> dict[str, bool | str]:
    """Returns the verdict's entries of summary.json."""
    return {
        "converged": WORDS[message.word],
        "verdict": message.text.decode(errors="ignore"),
        "worst": message.worst.decode(errors="ignore"),
    }


def make_reply(message: TellVerdict) -> VerdictHeard:
    """Returns a client's answer. Raises RemoteFault: no verdict has this number."""
    if not 0 <= message.word < len(WORDS):
        raise RemoteFault(f"server: its TellVerdict has the word {message.word}, wanted 0 to {len(WORDS) - 1}")
    return VerdictHeard(message.round)


# Figures --------------------
# Sends the verdict with the server's figures of the unknowns that all share.
#
# So clients' pages have the same numbers as the server's: clients know the posterior of these unknowns, but not by the same
# draws.


FIGURES_OF = ("mean", "q025", "q975")  # of the figures of an unknown


@dataclass(frozen=True)
class TellFigures(Ask, kind=227):
    """Server to client: the fields of a verdict, and the figures; `known`: whether these are all numbers (0 or 1)."""

    word: int
    text: Annotated[bytes, "verdict"]
    worst: Annotated[bytes, "name"]
    known: int
    figures: Annotated[Array, "f q"]


def figures_dims(unknowns: int) -> dict[str, int]:
    """Returns the lengths of the messages' fields."""
    return {**DIMS, "f": max(unknowns, 1), "q": len(FIGURES_OF)}


def figures_question(verdict: TellVerdict, figures: Array) -> TellFigures:
    """Returns the message; `figures` (f, q) are of the unknowns in the order that all know."""
    known = len(figures) > 0 and bool(np.isfinite(figures).all())
    shown = figures if known else np.zeros((max(len(figures), 1), len(FIGURES_OF)))
    return TellFigures(verdict.round, verdict.word, verdict.text, verdict.worst, int(known), shown)


def verdict_of(message: TellFigures) -> TellVerdict:
    """Returns the message without the figures."""
    return TellVerdict(message.round, message.word, message.text, message.worst)


def figures_of(message: TellFigures) -> Array | None:
    """Returns the server's figures (f, q), or None if it has none."""
    return np.array(message.figures) if message.known else None


def figures_reply(message: TellFigures) -> VerdictHeard:
    """Returns a client's answer; raises RemoteFault if no verdict has this number."""
    return make_reply(verdict_of(message))


FIGURES = once.Question("verdict", TellFigures, VerdictHeard)
