"""Whether a job has converged, in both directions: each client of a variational one says in one bit whether its own unknowns have
settled, and the server tells clients that keep results of their own what it says of the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms.core import once
from ..algorithms.core.windows import Movement
from ..algorithms.exchanges import figures, settled, verdicts
from ..results.plain import Record
from ..results.verdict import Verdict, not_judged, of_movement
from .run import At
from .stage import Stage


def exchanged(at: At[Any], movements: Mapping[int, Movement | None], doubted: Collection[int] = ()) -> dict[str, bool | None]:
    """Client -> its bit, None of one that is gone; at the server, and empty elsewhere.

    Parameters
    ----------
    movements : of the unknowns of the clients that live here
    doubted : those of them whose posterior is not what they have, whatever moves
    """
    clients = {
        k: once.ready_client(settled.Settled(0, int(movement is not None and movement.settled and k not in doubted)))
        for k, movement in movements.items()
    }
    server, _ = at.ask(Stage.of(settled), settled.QUESTION, settled.AskSettled(0), clients)
    if server is None:
        return {}
    return {name: bool(server.replies[k].settled) if k in server.replies else None for k, name in enumerate(at.names)}


def own(movement: Movement | None, names: Sequence[str]) -> Record:
    """For a client's own file: whether the unknowns that only it knows have settled."""
    return of_movement(movement, names).content


def told(at: At[Any], judged: Verdict | None) -> dict[int, Record]:
    """Client that lives here -> the server's verdict, as summary.json has it; first in what the client keeps.

    Parameters
    ----------
    judged : at the server's place
    """
    asked = None if judged is None else verdicts.make_question(judged.converged, judged.text, judged.worst)
    answering: dict[int, once.Client[verdicts.TellVerdict, verdicts.VerdictHeard]] = {
        k: once.Client(verdicts.make_reply) for k in at.mine
    }
    heard = at.ask(Stage.of(verdicts), verdicts.QUESTION, asked, answering)[1]
    silent = not_judged("the server's verdict has not come").content
    return {k: silent if one.asked is None else verdicts.read_verdict(one.asked) for k, one in heard.items()}


class Told(NamedTuple):
    """What a client is told at the end: the verdict, as summary.json has it, and (f, q) figures of what all share."""

    said: Record
    figures: NDArray[np.float64] | None


def told_with(at: At[Any], stage: Stage, judged: Verdict | None, known: NDArray[np.float64] | None) -> dict[int, Told]:
    """As `told`, with the server's figures (`judged` and `known` at its place)."""
    asked = None
    if judged is not None and known is not None:
        asked = figures.make_question(verdicts.make_question(judged.converged, judged.text, judged.worst), known)
    answering: dict[int, once.Client[figures.TellFigures, verdicts.VerdictHeard]] = {
        k: once.Client(figures.make_reply) for k in at.mine
    }
    heard = at.ask(stage, figures.QUESTION, asked, answering)[1]
    none = Told(not_judged("the server's verdict has not come").content, None)
    return {
        k: none if one.asked is None else Told(verdicts.read_verdict(figures.verdict(one.asked)), figures.figures(one.asked))
        for k, one in heard.items()
    }
