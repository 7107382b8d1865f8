"""Whether an open variational job has converged: each client says in one bit whether its own unknowns have settled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..algorithms.core import once
from ..algorithms.core.windows import Movement
from ..algorithms.exchanges import settled
from ..results.plain import Record
from ..results.verdict import of_movement
from .run import At
from .stage import Stage


def exchanged(
    at: At[Any], movements: Mapping[int, Movement | None], doubted: Collection[int] = ()
) -> dict[str, bool | None]:
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
