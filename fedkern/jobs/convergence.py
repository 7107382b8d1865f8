"""Tells whether a job has converged, in both directions.

Each client of a variational job says in one bit whether the unknowns that only it knows have settled. The server tells its
verdict on the whole to clients that keep results of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..algorithms.core import once
from ..algorithms.core.masked import ALL
from ..algorithms.core.windows import Movement, Windows
from ..algorithms.exchanges import verdicts
from ..algorithms.exchanges.answers import Settled
from ..algorithms.exchanges.verdicts import FIGURES, TellFigures, figures_of, figures_question, figures_reply, verdict_of
from ..errors import owned
from ..results import guard
from ..results.plain import Record
from ..results.verdict import Check, Verdict, not_judged, of_movement
from .hooks import RunHooks
from .run import At, Run
from .stage import Stage


def exchange_settled(
    run: At[Any], movements: Mapping[int, Movement | None], doubted: Collection[int] = ()
) -> dict[str, bool | None]:
    """Returns the bit of each client, None for one that is gone, or that of all together; at the server, and empty elsewhere.
    `movements`: client that lives here -> the movement of its unknowns; `doubted`: those of them that count as unsettled,
    whatever moves, for their posterior does not fit their data."""
    settled = {k: movement is not None and movement.settled and k not in doubted for k, movement in movements.items()}
    secure = run.config.secure
    server = run.collect(Stage.asking(Settled, secure=secure), Settled, settled, lambda bit: Settled(0, int(bit)))
    if server is None:
        return {}
    names = (ALL,) if secure else run.names
    return {name: bool(server.replies[k].settled) if k in server.replies else None for k, name in enumerate(names)}


def of_those_left(hooks: RunHooks, judged: Verdict | None) -> Verdict | None:
    """Returns a verdict that says of how many clients a result is, where some were left out for few rows.

    How many rows these have nobody learns. A result of one client is no federation.
    """
    if judged is None or not hooks.left_out:
        return judged
    n = len(hooks.names)
    rows = f", {sum(hooks.sizes):,} rows" if hooks.sizes else ""
    share = f"of {n} of {n + hooks.left_out} clients{rows} (disclosure.small)"
    if n == 1:
        found = f"{share}: one client is no federation, and its own rows make this result"
        return Verdict((Check(found, False), *judged.checks))
    # With the word of the result itself it stands first, whatever that is.
    return Verdict((Check(share, judged.converged), *judged.checks))


class Moving(Protocol):
    """Describes a machine's last state that knows how far its unknowns have moved."""

    @property
    def windows(self) -> Windows: ...


@guard.check("the movement of the unknowns", None)
def movement_of(state: Moving) -> Movement | None:
    """Returns how far the unknowns of a party moved between two stretches of the rounds."""
    return state.windows.movement


def movement_at(client: int, state: Moving) -> Movement | None:
    """Returns the same at a client."""
    with owned(client):
        return movement_of(state)


@guard.figure("whether a client's own unknowns have settled", not_judged("it could not be computed"))
def own(state: Moving, names: Sequence[str]) -> Verdict:
    """Returns, for a client's own file, whether the unknowns that only it knows have settled."""
    return of_movement(state.windows.movement, names)


def tell_verdict(run: Run[Any], judged: Verdict | None) -> dict[int, Record]:
    """Returns the server's verdict, as summary.json has it, for each client that lives here; first in the client's own record.
    `judged`: at the server's place."""
    judged = of_those_left(run.hooks, judged)
    judged = None if judged is None else guard.judged(judged)
    question = None if judged is None else verdicts.make_question(judged.converged, judged.text, judged.worst)
    answering: dict[int, once.Client[verdicts.TellVerdict, verdicts.VerdictHeard]] = {
        k: once.Client(verdicts.make_reply) for k in run.mine
    }
    heard = run.ask(Stage.asking(verdicts.VerdictHeard), verdicts.VerdictHeard.question, question, answering)[1]
    silent = not_judged("the server's verdict has not come").content
    return {k: silent if answer.asked is None else verdicts.read_verdict(answer.asked) for k, answer in heard.items()}


class Told(NamedTuple):
    """Holds the message for a client at the end: the verdict, as summary.json has it, and (f, q) figures that all share."""

    said: Record
    figures: NDArray[np.float64] | None


def tell_figures(run: Run[Any], stage: Stage, judged: Verdict | None, known: NDArray[np.float64] | None) -> dict[int, Told]:
    """Returns the same as `tell_verdict`, with the server's figures (`judged` and `known` at its place)."""
    question = None
    judged = of_those_left(run.hooks, judged)
    if judged is not None and known is not None:
        judged = guard.judged(judged)
        question = figures_question(verdicts.make_question(judged.converged, judged.text, judged.worst), known)
    answering: dict[int, once.Client[TellFigures, verdicts.VerdictHeard]] = {k: once.Client(figures_reply) for k in run.mine}
    heard = run.ask(stage, FIGURES, question, answering)[1]
    none = Told(not_judged("the server's verdict has not come").content, None)
    return {
        k: none if answer.asked is None else Told(verdicts.read_verdict(verdict_of(answer.asked)), figures_of(answer.asked))
        for k, answer in heard.items()
    }
