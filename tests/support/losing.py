"""A place where a client is lost on the way."""

from fedkern.transports.driver import ClientSide, ServerSide
from fedkern.transports.inprocess import InProcess

LOST, WHY = 1, "rank 2 has died"


class Losing(InProcess):
    """One process in which a client is lost as soon as a protocol of this name has asked its first questions, or so many
    answered ones later."""

    def __init__(self, protocol, after=0, stop=None):
        super().__init__()
        self.protocol, self.came, self.after, self.stop = protocol, False, after, stop

    def run_protocol(self, protocol, start, clients, codec, hooks=None):
        if protocol.name != self.protocol or self.came:
            return super().run_protocol(protocol, start, clients, codec, hooks)
        self.came = True
        server, side = ServerSide(protocol, start, codec, hooks), ClientSide(protocol, clients, codec, hooks)
        flying, answered = server.outgoing(), 0
        while not server.done:
            if answered == self.after:
                server.lose({LOST: WHY})
            if answered == self.stop:
                server.stopping = "SIGTERM"
            for client, frame in flying:
                for answer in side.receive(frame)[1] if client != LOST or answered < self.after else ():
                    server.arrive(answer, side.clients)
            flying, answered = server.outgoing(), answered + 1
        return server.state, side.clients
