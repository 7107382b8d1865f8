"""What a rank of the tests' MPI jobs runs: the toy protocol with 5 clients, and a mishap if one is asked for.

mpirun -n K python job.py '{"mishap": "raise", "rank": 1}'
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace

import numpy as np
import toy

from fedkern.algorithms.messages import ClientLost
from fedkern.errors import JobError, LostPeer
from fedkern.results.digest import digest
from fedkern.transports.driver import Hooks, Timeouts
from fedkern.transports.launch import launch
from fedkern.transports.link import Tag

N_CLIENTS, ROUNDS = 5, 4
ASK = {"mishap": "", "rank": 1, "round": 2, "lost": 30.0, "rounds": ROUNDS, "nap": 0.0, "stubborn": False} | json.loads(
    sys.argv[1] if len(sys.argv) > 1 else "{}"
)


def result(server):
    return digest(dict(zip("hP", server.q)))


def mishap(ranks, frame_round):
    """Whatever is asked for, on the rank that is asked for, in the round that is asked for."""
    if ranks.rank != ASK["rank"] or frame_round != ASK["round"]:
        return
    match ASK["mishap"]:
        case "raise":
            raise ZeroDivisionError("one over nothing")
        case "data":
            raise JobError("client 0: column 'age' is missing")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
        case "garbage":
            ranks.link.send(0, Tag.FRAME, b"nonsense" * 10)
        case "long":
            ranks.link.send(0, Tag.FRAME, bytes(1 << 22))
        case "foreign":  # well formed, but from a rank where that client does not live
            client = next(k for k in range(N_CLIENTS) if k not in ranks.mine(N_CLIENTS))
            ranks.link.send(0, Tag.FRAME, toy.codec(N_CLIENTS).encode(client, toy.Answer(2, b"", np.ones(6), np.ones(6))))


def main(ranks):
    started = time.monotonic()
    ranks.agree(b"job" if ASK["mishap"] != "configuration" or ranks.rank != ASK["rank"] else b"another job")

    def client_receive(state, event):
        if isinstance(event, toy.Question):
            mishap(ranks, event.round)
        return toy.client_receive(state, event)

    def server_receive(state, sender, event):
        if ranks.rank == ASK["rank"]:
            mishap(ranks, state.round)
        if ASK["stubborn"] and isinstance(event, ClientLost):
            raise LostPeer(f"client {event.client} is gone, and this method cannot go on without it")
        return toy.server_receive(state, sender, event)

    protocol = replace(toy.PROTOCOL, client_receive=client_receive, server_receive=server_receive)
    start = toy.start(N_CLIENTS, ASK["rounds"]) if ranks.is_server else None
    clients = {k: toy.client(k, nap=ASK["nap"]) for k in ranks.mine(N_CLIENTS)}
    server, _ = ranks.run(protocol, start, clients, toy.codec(N_CLIENTS), Hooks())
    if not ranks.is_server:
        return 0
    print(
        json.dumps(
            {
                "digest": result(server),
                "lost": sorted(server.lost),
                "threads": ranks.n_threads,
                "late": server.late,
                "seconds": time.monotonic() - started,
            }
        ),
        flush=True,
    )
    return 4 if server.lost else 0


if __name__ == "__main__":
    sys.exit(launch(main, Timeouts(lost=ASK["lost"], late=ASK.get("late", float("inf")), grace=2.0)))
