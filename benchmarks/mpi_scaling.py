"""One federated round over MPI against a bare Bcast + Gather of as many bytes, in the same processes.

    mpirun -n 4 python benchmarks/mpi_scaling.py [--bytes 1024 1048576] [--seconds 2] [--json]

A round is: the server sends every client a message, every client answers with one of the same length; all of it encoded, checked
and decoded, one client per rank. The machines do nothing else. Rounds and bare rounds alternate in batches, and the medians of
the batches are compared, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedkern.algorithms.core.messages import Message, Protocol
from fedkern.algorithms.core.tells import Sums
from fedkern.transports.codec import HEADER, Codec
from fedkern.transports.launch import launch

BATCHES = 15
Vector = Annotated[NDArray[np.float64], "n"]


@dataclass(frozen=True)
class Call(Message, kind=951):
    """Server to client."""

    round: int
    x: Vector


@dataclass(frozen=True)
class Echo(Message, kind=952, tells=Sums()):
    """Client to server."""

    round: int
    x: Vector


class Server:
    """Counts the answers of a round, and asks again."""

    def __init__(self, n_clients: int, rounds: int, x: Vector) -> None:
        self.n_clients, self.rounds, self.x, self.round, self.answers = n_clients, rounds, x, 0, 0


def call(state: Server) -> tuple[Server, list[tuple[int, Message]]]:
    if state.round == state.rounds:
        return state, []
    message = Call(state.round, state.x)
    return state, [(k, message) for k in range(state.n_clients)]


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, list[tuple[int, Message]]]:
    state.answers += 1
    if state.answers < state.n_clients:
        return state, []
    state.round, state.answers = state.round + 1, 0
    return call(state)


def client_receive(state: None, event: Call) -> tuple[None, list[Message]]:
    return state, [Echo(event.round, event.x)]


PROTOCOL = Protocol(
    "echo", (Call,), (Echo,), server_receive, client_receive, lambda s: s.round == s.rounds, lambda s: {}, lambda s, saved: s
)


def measure(ranks: Any, n_bytes: int, seconds: float) -> dict[str, float]:
    """Microseconds of a round and of a bare one, medians over batches, for messages of `n_bytes` in all."""
    comm, n_clients = ranks.link.comm, ranks.size - 1
    x = np.random.default_rng(0).standard_normal((n_bytes - HEADER.size - 8) // 8)
    codec = Codec({"n": len(x)}, n_clients)
    sent, gathered = np.zeros(n_bytes, np.uint8), np.zeros((ranks.size, n_bytes), np.uint8)

    def rounds(n: int) -> float:
        start = call(Server(n_clients, n, x)) if ranks.is_server else None
        comm.Barrier()
        before = time.perf_counter()
        ranks.run_protocol(PROTOCOL, start, dict.fromkeys(ranks.mine(n_clients)), codec)
        return (time.perf_counter() - before) / n

    def bare(n: int) -> float:
        comm.Barrier()
        before = time.perf_counter()
        for _ in range(n):
            comm.Bcast(sent)
            comm.Gather(sent, gathered)
        return (time.perf_counter() - before) / n

    n = np.array([max(3, int(seconds / BATCHES / 2 / rounds(20)))])
    comm.Bcast(n)
    times = np.array([(rounds(int(n[0])), bare(int(n[0]))) for _ in range(BATCHES)]) * 1e6
    round_us, bare_us = np.median(times, axis=0)
    return {"bytes": n_bytes, "round_us": round(round_us, 1), "bare_us": round(bare_us, 1), "ratio": round(round_us / bare_us, 2)}


def main(ranks: Any) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1 << 10, 1 << 20])
    parser.add_argument("--seconds", type=float, default=2.0, help="per length")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ranks.agree(b"mpi_scaling")
    for n_bytes in options.bytes:
        row = {"ranks": ranks.size, **measure(ranks, n_bytes, options.seconds)}
        if ranks.is_server:
            print(json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(launch(main))
