"""What a rank that waits costs: processor time of every client rank while the server is silent.

    mpirun --oversubscribe -n 4 python benchmarks/waiting_ranks.py [--silent 2]

The clients answer a few questions, then the server's machine sleeps, as a stopped rank would; what the clients spend meanwhile is
taken from getrusage, between two of their answers.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import numpy as np
from mpi_scaling import PROTOCOL, Call, Echo, Server, call, server_receive

from fedkern.algorithms.core.messages import Message, Protocol
from fedkern.transports.codec import Codec
from fedkern.transports.launch import launch

ROUNDS = 20


def spent() -> float:
    """Seconds of processor time, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(ranks: Any) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silent", type=float, default=2.0, help="seconds")
    options = parser.parse_args()
    ranks.agree(b"waiting")
    last: list[tuple[float, float]] = []  # clock and processor time at the end of the last answer but one, and now

    def receive(state: Server, sender: int, event: Any) -> tuple[Server, list[tuple[int, Message]]]:
        state, asked = server_receive(state, sender, event)
        if asked and state.round == ROUNDS - 1:
            time.sleep(options.silent)
        return state, asked

    def answer(state: None, event: Call) -> tuple[None, list[Message]]:
        last[:] = [*last[-1:], (time.perf_counter(), spent())]
        return state, [Echo(event.round, event.x)]

    protocol = Protocol("wait", (Call,), (Echo,), receive, answer, PROTOCOL.finished, PROTOCOL.save, PROTOCOL.load)
    n_clients = ranks.size - 1
    start = call(Server(n_clients, ROUNDS, np.ones(123))) if ranks.is_server else None
    ranks.run_protocol(protocol, start, dict.fromkeys(ranks.mine(n_clients)), Codec({"n": 123}, n_clients))
    if not ranks.is_server:
        (before, idle), (after, busy) = last
        print(f"rank {ranks.rank}  silent_s {after - before:.2f}  cpu_ms {1e3 * (busy - idle):.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(launch(main))
