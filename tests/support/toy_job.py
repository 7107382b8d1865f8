"""The toy job: the toy protocol twice on one transport, and a mishap at one rank if one is asked for."""

import os
import signal
from dataclasses import replace

import numpy as np

from fedkern.algorithms.core.messages import ClientLost
from fedkern.errors import JobError, LostPeer
from fedkern.jobs.keeping import Exchange, Keeper
from fedkern.results.summary import digest
from fedkern.transports import tags
from fedkern.transports.inprocess import InProcess
from support import toy

N_CLIENTS, ROUNDS = 5, 4
NAMES = tuple(f"site-{k}" for k in range(N_CLIENTS))
DEFAULTS = {
    "mishap": "",
    "rank": 1,
    "round": 2,
    "lost": 30.0,
    "start": 60.0,
    "rounds": ROUNDS,
    "nap": 0.0,
    "nappers": list(range(N_CLIENTS)),
    "stubborn": False,
    "folder": None,
    "resume": False,
    "count": False,
}


def result(first, second):
    return digest({f"{name}{i}": value for i, server in enumerate((first, second)) for name, value in zip("hP", server.q)})


def mishap(ask, ranks, frame_round):
    """Whatever is asked for, on the rank that is asked for, in the round that is asked for."""
    if ranks.rank != ask["rank"] or frame_round != ask["round"]:
        return
    match ask["mishap"]:
        case "raise":
            raise ZeroDivisionError("one over nothing")
        case "data":
            raise JobError("client 0: column 'age' is missing")
        case "kill" | "stop" | "term" | "usr1":
            os.kill(os.getpid(), getattr(signal, "SIG" + ask["mishap"].upper()))
        case "garbage":
            ranks.link.send(0, tags.FRAME, b"nonsense" * 10)
        case "long":
            ranks.link.send(0, tags.FRAME, bytes(1 << 22))
        case "foreign":  # well formed, but from a rank where that client does not live
            client = next(k for k in range(N_CLIENTS) if k not in ranks.mine(N_CLIENTS))
            ranks.link.send(0, tags.FRAME, toy.codec(N_CLIENTS).encode(client, toy.Answer(2, b"", np.ones(6), np.ones(6))))


def protocols(place, ask, keeper):
    """Two protocols, one after the other; the server's last states."""

    def client_receive(state, event):
        if isinstance(event, toy.Question):
            mishap(ask, place, event.round)
        return toy.client_receive(state, event)

    def server_receive(state, sender, event):
        if place.rank == ask["rank"]:
            mishap(ask, place, state.round)
        if ask["stubborn"] and isinstance(event, ClientLost):
            raise LostPeer(f"client {event.client} is gone, and this method cannot go on without it")
        return toy.server_receive(state, sender, event)

    servers = []
    for name, rounds in (("first", 1), ("second", ask["rounds"])):
        protocol = replace(toy.PROTOCOL, name=name, client_receive=client_receive, server_receive=server_receive)
        start = toy.start(N_CLIENTS, rounds) if place.is_server else None
        clients = {k: toy.client(k, nap=ask["nap"] * (k in ask["nappers"])) for k in place.mine(N_CLIENTS)}
        server, _ = keeper.run_exchange(place, Exchange(protocol, start, clients, toy.codec(N_CLIENTS)), resume=ask["resume"])
        servers.append(server)
    return servers


def in_one_process(order=None):
    """The digest that every job must have."""
    return result(*protocols(InProcess(order), DEFAULTS | {"rank": None}, Keeper(NAMES)))
