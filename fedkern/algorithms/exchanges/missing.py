"""Estimates, after training, each party's part of the predictor from the columns of all others.

Each client m sends its fitted part g_m of the training rows, once. The server asks the others in turn to regress its unexplained
rest on their own columns (a ridge regression with penalty 1 on centred columns), until the fits stand still: backfitting, whose
limit is the regression on the columns of all of them. With two parties one pass is all. So every client learns the others' fitted
part of every training row, which is why a job must ask for it. Coefficients stay where they are made; their part at rows that are
predicted leaves, once. Source: docs/spec/vertical.md, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ...arrays import Matrix, Vector
from ..core import once, tells
from ..core.kept import PersistentMap
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, evolve
from ..core.rounds import in_order, needed

PASSES = 10  # at most
STILL = 1e-3  # of the standard deviation of what is fitted: below, a pass was the last
PENALTY = 1.0


@dataclass(frozen=True)
class AskPart(Message, kind=65):
    """Server to client: asks in round 0 for its fitted part of the training rows, later for its columns' prediction of the
    others' parts.

    The prediction is at the rows that are predicted.
    """

    round: int


@dataclass(frozen=True)
class FittedPart(Message, kind=66, tells=tells.PerRow()):
    """Client to server: E g_j of the training rows, and the mean over them of its posterior variance."""

    round: int
    g: Annotated[Vector, "n"]
    variance: float


@dataclass(frozen=True)
class Unexplained(Message, kind=67):
    """Server to client: of each other party's part of the training rows, the rest that the other columns do not explain."""

    round: int
    parts: Annotated[Matrix, "others n"]


@dataclass(frozen=True)
class Explained(Message, kind=68, tells=tells.PerRow(computed=tells.COLUMNS)):
    """Client to server: the share of them that its columns explain."""

    round: int
    parts: Annotated[Matrix, "others n"]


@dataclass(frozen=True)
class Filled(Message, kind=69, tells=tells.PerRow(tells.PREDICTED, tells.COLUMNS)):
    """Client to server: the same at the rows that are predicted."""

    round: int
    parts: Annotated[Matrix, "others t"]


@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # X, new: (n, p), (t, p) its columns at the rows that train and at those that are predicted, about the former's means
    X: Matrix
    new: Matrix
    # g, variance: its fitted part of the training rows, and the mean of its posterior variance
    g: Vector
    variance: float
    coefficients: Matrix | None = None  # (others, p) of its last regressions; None before, and where there are no others


@dataclass(frozen=True)
class Server:
    """Is the server's state."""

    n_clients: int
    replies: PersistentMap[int, FittedPart] = field(default_factory=PersistentMap)  # each client's fitted part
    # (J, J, n) at [k, m]: the share of the part of m that the columns of k explain
    parts: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, 0)))
    turn: int = 0  # whose columns are asked next; passes : how many are over
    passes: int = 0
    change: float = 0.0  # the largest of this pass, in standard deviations
    # each client's answer for the rows that are predicted
    filled: PersistentMap[int, Filled] = field(default_factory=PersistentMap)

    @property
    def round(self) -> int:
        """The number of the question that waits for its answer."""
        return 1 + self.passes * self.n_clients + self.turn

    @property
    def means(self) -> Vector:
        """(J,) The means of the parts over the training rows."""
        return np.array([reply.g.mean() for reply in in_order(self.replies)])

    @property
    def centred(self) -> Matrix:
        """(J, n) The parts about their means."""
        return np.stack([reply.g - reply.g.mean() for reply in in_order(self.replies)])

    def others(self, k: int) -> list[int]:
        """Returns all clients but one, in order."""
        return [m for m in range(self.n_clients) if m != k]

    def missing(self, m: int) -> tuple[Vector, float]:
        """Returns the prediction (t,) of the part of m from the others' columns at the rows that are predicted, and its variance.

        The variance is that of the training rows about the regression, and of m's own posterior.
        """
        mean = self.means[m] + np.sum([self.filled[k].parts[self.others(k).index(m)] for k in self.others(m)], axis=0)
        left = self.centred[m] - self.parts[:, m].sum(axis=0)
        return np.asarray(mean), float(np.mean(left**2)) + self.replies[m].variance


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody for the fitted part."""
    return Server(n_clients), once.ask(n_clients, AskPart(0))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with regressions of the parts that come, with its fitted part, or with the last regressions' values at new rows."""
    if isinstance(event, Unexplained):
        precision = state.X.T @ state.X
        precision[np.diag_indices(len(precision))] += PENALTY
        coefficients = np.asarray(cho_solve(cho_factor(precision), state.X.T @ event.parts.T)).T
        return evolve(state, coefficients=coefficients), [Explained(event.round, coefficients @ state.X.T)]
    if isinstance(event, AskPart):
        if event.round == 0:
            return state, [FittedPart(0, state.g, state.variance)]
        nothing = np.empty((0, len(state.new)))
        filled = nothing if state.coefficients is None else np.ascontiguousarray(state.coefficients @ state.new.T)
        return state, [Filled(event.round, filled)]
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes the parts, then asks the clients in turn, pass by pass, and last for the rows that are predicted. Raises LostPeer: a
    client is gone. Raises RemoteFault: an answer that was not asked, or a variance below 0."""
    needed(event, "what its columns say had not come; --resume goes on from the last checkpoint")
    if isinstance(event, FittedPart) and sender not in state.replies and event.variance >= 0:
        state = once.with_reply(state, sender, event)
        if len(state.replies) < state.n_clients:
            return state, []
        state = evolve(state, parts=np.zeros((state.n_clients, state.n_clients, len(event.g))))
        return _asked(state) if state.n_clients > 1 else _ended(state)
    fitted = len(state.parts) > 0
    if isinstance(event, Explained) and fitted and (event.round, sender) == (state.round, state.turn):
        return _explained(state, event)
    if isinstance(event, Filled) and fitted and event.round == state.round and sender not in state.filled:
        return evolve(state, filled=state.filled.plus(sender, event)), []
    raise RemoteFault(f"{type(event).__name__} was not expected", sender)


def _asked(state: Server) -> tuple[Server, ServerEffects]:
    """Asks the client whose turn it is to explain the rest."""
    k, others = state.turn, state.others(state.turn)
    elsewhere = state.parts.sum(axis=0) - state.parts[k]
    return state, [(k, Unexplained(state.round, np.ascontiguousarray((state.centred - elsewhere)[others])))]


def _explained(state: Server, event: Explained) -> tuple[Server, ServerEffects]:
    """Ends one client's turn, and begins the next one, or the next pass."""
    k, others, parts = state.turn, state.others(state.turn), state.parts.copy()
    spread = np.maximum(state.centred[others].std(axis=1), np.finfo(float).tiny)
    moved = float((np.sqrt(np.mean((event.parts - parts[k, others]) ** 2, axis=1)) / spread).max())
    parts[k, others] = event.parts
    state = evolve(state, parts=parts, change=max(state.change, moved), turn=k + 1)
    if state.turn < state.n_clients:
        return _asked(state)
    last = state.change < STILL or state.passes + 1 == most_passes(state.n_clients)
    change = state.change if last else 0.0
    state = evolve(state, turn=0, passes=state.passes + 1, change=change)
    return _ended(state) if last else _asked(state)


def most_passes(n_clients: int) -> int:
    """Returns the largest number of passes, in each of which each client has a turn: two clients need no second pass."""
    return PASSES if n_clients > 2 else 1


def _ended(state: Server) -> tuple[Server, ServerEffects]:
    """Asks for the rows that are predicted."""
    return state, once.ask(state.n_clients, AskPart(state.round))


def finished(state: Server) -> bool:
    """Tells whether all clients have sent their last answer."""
    return len(state.filled) == state.n_clients


PROTOCOL: Protocol[Server, Client] = once.protocol(
    "missing-party", (AskPart, Unexplained), (FittedPart, Explained, Filled), server_receive, client_receive, finished
)
