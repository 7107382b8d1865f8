"""Sends the server's verdict, at the end of a job, to clients that keep results of their own; it heads their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core import tells
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


def read_verdict(told: TellVerdict) -> dict[str, bool | str]:
    """Returns the verdict's entries of summary.json."""
    return {
        "converged": WORDS[told.word],
        "verdict": told.text.decode(errors="ignore"),
        "worst": told.worst.decode(errors="ignore"),
    }


def make_reply(told: TellVerdict) -> VerdictHeard:
    """Returns a client's answer.

    Raises
    ------
    RemoteFault
        No verdict has this number.
    """
    if not 0 <= told.word < len(WORDS):
        raise RemoteFault(f"server: its TellVerdict has the word {told.word}, wanted 0 to {len(WORDS) - 1}")
    return VerdictHeard(told.round)
