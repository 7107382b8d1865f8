"""A place where a client is lost on the way, and perhaps comes back.

python losing.py ARGUMENTS: `fedkern ARGUMENTS` with a client that is silent for too long.
"""

import sys
import time

from fedkern.algorithms.pvi import machine as pvi
from fedkern.cli.__main__ import main
from fedkern.transports.driver import ClientSide, ServerSide
from fedkern.transports.inprocess import InProcess

LOST, WHY = 1, "rank 2 has died"
SILENT, BETWEEN = 8.0, 0.08  # seconds of a client that is silent, and of each update of others


class Losing(InProcess):
    """One process in which a client is lost as soon as a protocol of this name has asked its first questions, or so many
    answered ones later. `back`: it was only silent, and its answers come after so many."""

    def __init__(self, protocol, after=0, stop=None, back=None):
        super().__init__()
        self.protocol, self.came, self.after, self.stop, self.back = protocol, False, after, stop, back

    def run_protocol(self, protocol, start, clients, codec, hooks=None):
        if protocol.name != self.protocol or self.came:
            return super().run_protocol(protocol, start, clients, codec, hooks)
        self.came = True
        server, side = ServerSide(protocol, start, codec, hooks), ClientSide(protocol, clients, codec, hooks)
        flying, answered, late = server.outgoing(), 0, []
        while not server.done:
            if answered == self.after:
                server.lose({LOST: WHY})
            if answered == self.stop:
                server.stopping = "SIGTERM"
            if answered == self.back:
                for answer in late:
                    server.arrive(answer, {LOST})
            for client, frame in flying:
                silent = client == LOST and answered >= self.after and (self.back is None or answered < self.back)
                if silent and self.back is None:
                    continue
                for answer in side.receive(frame)[1]:
                    if silent:
                        late.append(answer)
                    else:
                        server.arrive(answer, side.clients)
            flying, answered = server.outgoing(), answered + 1
        return server.state, side.clients


def with_clocks(patch=setattr):
    """Client b is silent for some seconds in its third update, once, while others go on; `patch`: as `monkeypatch.setattr`."""
    update, silent = pvi._update, [SILENT]

    def slow(state, event, steps):
        if state.name != "b":
            time.sleep(BETWEEN)
        elif state.updates == 2 and silent:
            time.sleep(silent.pop())
        return update(state, event, steps)

    patch(pvi, "_update", slow)


if __name__ == "__main__":
    with_clocks()
    sys.exit(main(sys.argv[1:]))
