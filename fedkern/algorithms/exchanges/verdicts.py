"""At the end of a job whose clients keep results of their own: the server tells them its verdict, which heads their files, and
of a spatial job the figures of the unknowns that all share, so that a client's page has the numbers that the server's has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ..core import once
from ..core.messages import NOTHING, Message, RemoteFault, Tells

DIMS = {"verdict": 4096, "name": 512, "figures": 1 << 16}  # bytes at most
FIGURES = ("mean", "q025", "q975")  # of each unknown
WORDS = (False, True, "settled", "not judged")  # `converged` of summary.json, by its number in the message


@dataclass(frozen=True)
class TellVerdict(Message, kind=217):
    """Server to client: the number of the verdict's word, its sentence, the unknown that is farthest from convergence, and
    figures of the unknowns: a JSON text of name -> three numbers, or nothing."""

    round: int
    word: int
    text: Annotated[bytes, "verdict"]
    worst: Annotated[bytes, "name"]
    figures: Annotated[bytes, "figures"] = b""


@dataclass(frozen=True)
class VerdictHeard(Message, kind=218, tells=Tells(NOTHING, private=NOTHING)):
    """Client to server: the verdict has come."""

    round: int


def telling(
    converged: bool | str, text: str, worst: str, figures: Mapping[str, Mapping[str, float]] | None = None
) -> TellVerdict:
    """The message; words that are longer than it is are cut, and figures that are not all numbers, or too many, are left out."""
    words, name = (part.encode(errors="replace")[: DIMS[most]] for part, most in ((text, "verdict"), (worst, "name")))
    told = {name: [row[which] for which in FIGURES] for name, row in (figures or {}).items()}
    finite = all(math.isfinite(value) for row in told.values() for value in row)
    content = json.dumps(told).encode() if told and finite else b""
    return TellVerdict(0, WORDS.index(converged), words, name, content if len(content) <= DIMS["figures"] else b"")


def figures(told: TellVerdict) -> dict[str, dict[str, float]]:
    """Name -> figures of the unknown, as the server has them; empty where it tells none.

    Raises
    ------
    RemoteFault
        They are none.
    """
    if not told.figures:
        return {}
    try:
        found = json.loads(told.figures)
        return {str(name): dict(zip(FIGURES, map(float, row), strict=True)) for name, row in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise RemoteFault("server: its TellVerdict has figures that are none") from None


def said(told: TellVerdict) -> dict[str, bool | str]:
    """What summary.json has of it."""
    return {
        "converged": WORDS[told.word],
        "verdict": told.text.decode(errors="ignore"),
        "worst": told.worst.decode(errors="ignore"),
    }


def heard(told: TellVerdict) -> VerdictHeard:
    """A client's answer.

    Raises
    ------
    RemoteFault
        No verdict has this number, or figures are none.
    """
    figures(told)
    if not 0 <= told.word < len(WORDS):
        raise RemoteFault(f"server: its TellVerdict has the word {told.word}, wanted 0 to {len(WORDS) - 1}")
    return VerdictHeard(told.round)


QUESTION = once.Question("verdict", TellVerdict, VerdictHeard)
PROTOCOL = QUESTION.protocol
