"""An outsider's place from the ground up, of threads and queues; it knows public names of fedkern alone."""

import queue
import threading
from contextlib import suppress

from fedkern.errors import JobError
from fedkern.places import (
    ClientSide,
    Ended,
    Hooks,
    LostPeer,
    ServerSide,
    Signals,
    agree_on_level,
    at_server,
    exit_code,
    usable_levels,
    use_level,
)

PATIENCE = 30.0  # seconds


class Queued:
    """One place of several: `boxes` are the queues of all, by rank."""

    def __init__(self, rank, boxes):
        self.rank, self.size, self.is_server, self.boxes = rank, len(boxes), rank == 0, boxes
        self.n_threads, self.names, self.hooks, self.signals = 1, (), None, Signals()
        self.homes = tuple(range(1, self.size))  # of the clients
        self.idle = set()

    def mine(self, n_clients):
        return [k for k, home in enumerate(self.homes[:n_clients]) if home == self.rank]

    def leave_out(self, numbers, names):
        self.homes, self.names = tuple(self.homes[k] for k in numbers), names
        self.idle = set(range(1, self.size)) - set(self.homes)

    def stand_by(self):
        while True:
            self.take("never")

    def agree(self, configuration):
        def rule(told):
            other = [rank for rank, one in enumerate(told) if one[1:] != told[0][1:]]
            if other:
                raise JobError(f"place {other[0]} has another configuration than place 0: give all the same job")
            return bytes([agree_on_level([one[0] for one in told])])

        use_level(self.settle(bytes([usable_levels()]) + configuration, rule)[0])

    def settle(self, told, rule):
        return self._exchange(told, rule)

    def choose(self, offers, rule):
        def chosen(told):
            every = {}
            for one in told:
                for party, numbers in one.items():
                    every.setdefault(party, set()).update(numbers)
            return rule(every)

        return self._exchange(dict(offers), chosen)

    def _exchange(self, told, rule):
        if not self.is_server:
            self.post(0, "told", told)
            return self.take("reply")[1]
        by_rank = {0: told}
        while len(by_rank) < self.size - len(self.idle):
            rank, told = self.take("told")
            by_rank[rank] = told
        reply = rule([by_rank[rank] for rank in sorted(by_rank)])
        for rank in by_rank.keys() - {0}:
            self.post(rank, "reply", reply)
        return reply

    def run_protocol(self, protocol, start, clients, codec, hooks=None):
        self.hooks = hooks = hooks or Hooks()
        with self.signals.held():
            if self.is_server:
                return self._serve(ServerSide(protocol, at_server(start), codec, hooks)), {}
            side = ClientSide(protocol, clients, codec, hooks)
            while (frame := self.take("frame")[1]) is not None:
                for answer in side.receive(frame)[1]:
                    self.post(0, "frame", answer)
            return None, side.clients

    def _serve(self, server):
        while not server.done:
            if server.unsent or not server.n_open:
                server.stopping = server.stopping or self.signals.pending
                for client, frame in server.outgoing():
                    self.post(self.homes[client], "frame", frame)
            if server.n_open:
                rank, frame = self.take("frame")
                server.arrive(frame, {k for k, home in enumerate(self.homes) if home == rank})
        for rank in set(self.homes):
            self.post(rank, "frame", None)
        return server.state

    def post(self, rank, what, content):
        self.boxes[rank].put((self.rank, what, content))

    def take(self, wanted, patience=None):
        """Returns the next item (rank, content); raises what ends the job."""
        try:
            rank, what, content = self.boxes[self.rank].get(timeout=patience or PATIENCE)
        except queue.Empty:
            raise LostPeer(f"place {self.rank} has heard of nobody for {PATIENCE:.0f} s") from None
        if what == "end":
            raise Ended(content)
        assert what == wanted, f"{what} came, {wanted} expected"
        return rank, content


def over(main, names, kind=Queued):
    """Runs main(place) at a server's place and at one for each name; returns the exit codes, the server's first."""
    boxes = [queue.Queue() for _ in range(1 + len(names))]
    codes = [None] * len(boxes)

    def run(rank):
        try:
            place = kind(rank, boxes)
            codes[rank] = main(place)
            # Nobody has ended before all have: one may still fail.
            if rank and not codes[rank]:
                place.post(0, "bye", None)
                place.take("never", 120.0)  # until the slowest has ended
            for _ in range(0 if rank or codes[rank] else place.size - 1 - len(place.idle)):
                place.take("bye")
        except BaseException as error:
            codes[rank] = exit_code(error)
            if isinstance(error, Ended):
                return
        if codes[rank] or not rank:  # a fault ends all, and so does the server when all have finished
            for other in {*range(len(boxes))} - {rank}:
                boxes[other].put((rank, "end", codes[rank]))

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(1, len(boxes))]
    for thread in threads:
        thread.start()
    with suppress(KeyboardInterrupt):
        run(0)
    for thread in threads:
        thread.join(PATIENCE)
    return codes
