"""What a rank of the tests' MPI jobs runs: the toy protocol twice on one transport, and a mishap if one is asked for.

mpirun -n K python mpi_job.py '{"mishap": "raise", "rank": 1}'
"""

import json
import os
import signal
import struct
import sys
import time
from dataclasses import replace

import numpy as np

import fedkern
from fedkern.algorithms.core.messages import SERVER, ClientLost
from fedkern.errors import JobError, LostPeer
from fedkern.jobs.files import RunFolder
from fedkern.jobs.keeping import Exchange, Keeper
from fedkern.results.digest import digest
from fedkern.transports import ranks as ranks_module
from fedkern.transports import tags
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from fedkern.transports.launch import launch
from fedkern.transports.levels import LEVELS
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


class Counting:
    """A communicator that counts the bytes that leave."""

    def __init__(self, comm):
        self.comm, self.left = comm, 0

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def Isend(self, buffer, *rest):
        self.left += len(buffer[0])
        return self.comm.Isend(buffer, *rest)


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


class HelloWithoutVersion:
    """What the first versions said."""

    fields = struct.Struct("<B16s16sI32s")

    def pack(self, version, *rest):
        return self.fields.pack(*rest)


def main(ask, ranks):
    if ask["count"]:
        ranks.link.comm = Counting(ranks.link.comm)
    if ranks.rank == ask["rank"] and ask["mishap"] == "version":
        fedkern.__version__ = "0.0.9"
    if ranks.rank == ask["rank"] and ask["mishap"] == "older":
        tags.HELLO = HelloWithoutVersion()
    if ask["mishap"] == "level":
        ranks_module.usable_levels = lambda: 1 << LEVELS.index("avx512" if ranks.rank == ask["rank"] else "baseline")
    ranks.agree(b"another job" if ask["mishap"] == "configuration" and ranks.rank == ask["rank"] else b"job")
    folder = RunFolder(ask["folder"], NAMES) if ask["folder"] else None
    if folder:
        folder.claim([*ranks.mine(N_CLIENTS), *([SERVER] if ranks.is_server else [])], resume=ask["resume"])
    started, before = time.monotonic(), time.process_time()
    keeper = Keeper(NAMES, folder, every=0.0)
    servers = protocols(ranks, ask, keeper)
    keeper.close()
    if folder:
        report = {"cpu": time.process_time() - before, "left": getattr(ranks.link.comm, "left", None)}
        folder.write_json(f"rank-{ranks.rank}.json", report)
    if not ranks.is_server:
        return 0
    lost = sorted(servers[-1].lost)
    about = {"threads": ranks.n_threads, "seconds": time.monotonic() - started}
    print(json.dumps({"digest": result(*servers), "lost": lost, **about}), flush=True)
    return 4 if lost else 0


if __name__ == "__main__":
    asked = DEFAULTS | (json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    sys.exit(launch(lambda ranks: main(asked, ranks), Timeouts(start=asked["start"], lost=asked["lost"], grace=2.0)))
