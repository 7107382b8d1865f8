"""Whether a job has converged, in both directions: each client of a variational one says in one bit whether its own unknowns have
settled, and the server tells clients that keep results of their own what it says of the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..algorithms.core import once
from ..algorithms.core.windows import Movement
from ..algorithms.exchanges import settled, verdicts
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
        k: once.telling(settled.Settled(0, int(movement is not None and movement.settled and k not in doubted)))
        for k, movement in movements.items()
    }
    server, _ = at.ask(Stage.of(settled), settled.QUESTION, settled.AskSettled(0), clients)
    if server is None:
        return {}
    return {name: bool(server.replies[k].settled) if k in server.replies else None for k, name in enumerate(at.names)}


def own(movement: Movement | None, names: Sequence[str]) -> Record:
    """For a client's own file: whether the unknowns that only it knows have settled."""
    return of_movement(movement, names).content


class Told(NamedTuple):
    """What a client is told at the end: the verdict, as summary.json has it, and figures of the unknowns that all share."""

    said: Record
    figures: Mapping[str, Mapping[str, float]]


def told(at: At[Any], judged: Verdict | None) -> dict[int, Record]:
    """Client that lives here -> the server's verdict, as summary.json has it; first in what the client keeps.

    Parameters
    ----------
    judged : at the server's place
    """
    return {k: one.said for k, one in told_with(at, judged, None).items()}


def told_with(at: At[Any], judged: Verdict | None, figures: Mapping[str, Mapping[str, float]] | None) -> dict[int, Told]:
    """The same with the server's figures of what it publishes (`judged` and `figures` at its place)."""
    asked = None if judged is None else verdicts.telling(judged.converged, judged.text, judged.worst, figures)
    answering: dict[int, once.Client[verdicts.TellVerdict, verdicts.VerdictHeard]] = {
        k: once.Client(verdicts.heard) for k in at.mine
    }
    heard = at.ask(Stage.of(verdicts), verdicts.QUESTION, asked, answering)[1]
    silent = not_judged("the server's verdict has not come").content
    none = Told(silent, {})
    return {k: none if q.asked is None else Told(verdicts.said(q.asked), verdicts.figures(q.asked)) for k, q in heard.items()}
