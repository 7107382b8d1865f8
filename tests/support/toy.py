"""Synchronous PVI for a Gaussian mean: the smallest algorithm that has all that a transport must carry.

Clients ask for their budget before they read rows, a message has bytes, and the server goes on without lost clients.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedkern.algorithms.core.messages import Charge, Charged, ChargeFailed, ClientLost, Message, Protocol, RemoteFault
from fedkern.algorithms.core.tells import Sums
from fedkern.transports.codec import Codec

Vector = Annotated[NDArray[np.float64], "d"]
D = 6


@dataclass(frozen=True)
class Question(Message, kind=901):
    round: int
    scale: float
    h: Vector
    P: Vector


@dataclass(frozen=True)
class Answer(Message, kind=902, tells=Sums()):
    round: int
    note: Annotated[bytes, "note"]
    dh: Vector
    dP: Vector


@dataclass(frozen=True)
class Server:
    sites: tuple[tuple[Vector, Vector], ...]
    rounds: int
    round: int = 0
    waiting: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    @property
    def q(self):
        h, P = np.zeros_like(self.sites[0][0]), np.ones_like(self.sites[0][1])
        for dh, dP in self.sites:
            h, P = h + dh, P + dP
        return h, P


def start(n_clients, rounds, d=D):
    zero = np.zeros(d), np.zeros(d)
    return _ask(Server((zero,) * n_clients, rounds))


def _ask(state):
    present = [k for k in range(len(state.sites)) if k not in state.lost]
    if state.round == state.rounds or not present:
        return replace(state, waiting=frozenset()), []
    h, P = state.q
    return replace(state, waiting=frozenset(present)), [(k, Question(state.round, 0.5, h, P)) for k in present]


def server_receive(state, sender, event):
    if isinstance(event, ClientLost):
        state = replace(state, lost=state.lost | {sender}, waiting=state.waiting - {sender})
    else:
        if sender not in state.waiting or event.round != state.round:
            raise RemoteFault(f"client {sender}: Answer.round is {event.round}, expected none or {state.round}")
        h, P = state.sites[sender]
        if (P + event.dP < 0).any():
            raise RemoteFault(f"client {sender}: Answer.dP makes the site's precision negative in round {event.round}")
        sites = (*state.sites[:sender], (h + event.dh, P + event.dP), *state.sites[sender + 1 :])
        state = replace(state, sites=sites, waiting=state.waiting - {sender})
    if state.waiting:
        return state, []
    return _ask(replace(state, round=state.round + 1))


@dataclass(frozen=True)
class Client:
    rows: NDArray[np.float64]  # (n, d)
    site: tuple[Vector, Vector]
    asked: Question | None = None
    steps: int = 0
    nap: float = 0.0  # seconds for each question
    noise: object = None  # a generator that no seed controls: a stand-in for secure noise


def client(k, d=D, nap=0.0, noise=None):
    rows = np.random.default_rng(k).standard_normal((10 + k, d))
    return Client(rows, (np.zeros(d), np.zeros(d)), nap=nap, noise=noise)


def client_receive(state, event):
    if isinstance(event, Question):
        return replace(state, asked=event), [Charge(3, event.round)]
    question = state.asked
    if isinstance(event, ChargeFailed):
        return state, [Answer(question.round, b"spent", *np.zeros((2, len(question.h))))]
    assert isinstance(event, Charged)
    time.sleep(state.nap)
    h, P = state.site
    dh = question.scale * (state.rows.sum(axis=0) / 2 - h)
    dP = question.scale * (len(state.rows) / 2 - P)
    if state.noise is not None:
        dh = dh + state.noise.standard_normal(dh.shape)
    after = replace(state, site=(h + dh, P + dP), asked=None, steps=state.steps + event.steps)
    return after, [Answer(question.round, f"{after.steps} steps".encode(), dh, dP)]


def save(state):
    if isinstance(state, Client):
        return {"h": state.site[0], "P": state.site[1], "steps": state.steps}
    sites = {"h": np.array([h for h, _ in state.sites]), "P": np.array([P for _, P in state.sites])}
    return sites | {
        "round": state.round,
        "waiting": np.array(sorted(state.waiting), np.int64),
        "lost": np.array(sorted(state.lost), np.int64),
    }


def load(fresh, saved):
    if isinstance(fresh, Client):
        return replace(fresh, site=(saved["h"], saved["P"]), steps=saved["steps"])
    return replace(
        fresh,
        sites=tuple(zip(saved["h"], saved["P"])),
        round=saved["round"],
        waiting=frozenset(saved["waiting"].tolist()),
        lost=frozenset(saved["lost"].tolist()),
    )


def finished(state):
    return state.round == state.rounds


PROTOCOL = Protocol("toy", (Question,), (Answer,), server_receive, client_receive, finished, save, load)


def codec(n_clients, d=D):
    return Codec({"d": d, "note": 20}, n_clients)
