"""A wire of threads for jobs over a relay: each site has a thread for its job, and one in which its requests are answered."""

import random
from concurrent.futures import ThreadPoolExecutor

from fedkern.transports.relay import Hub, Letter, Lost, Spoke, Wire
from support.outside import threads


class Threads(threads.Threads):
    """Carries requests to spokes of this process; with `faults` it loses, doubles and delays replies."""

    def __init__(self, spokes, faults=None):
        self.faults, self.sent = faults, []
        super().__init__(spokes)

    def send(self, site, data):
        self.sent.append((site, len(data)))
        super().send(site, data)

    def lose(self, site, why):
        self.replies.put(Lost(site, why))

    def reply(self, site, spoke, request):
        answer = spoke.answer(request)
        luck = self.faults.random() if self.faults else 1.0
        if luck > 0.1:  # else it is lost on the way
            self.replies.put((site, answer))
        if luck < 0.2:
            self.replies.put((site, answer))
        if luck < 0.3:  # an older request comes a second time
            spoke.answer(request)


class Clocked(Wire):
    """A wire with a clock of its own, on which a request and its reply take one unit, and parties compute in no time.

    It brings the reply whose time is up first, and waits for it however long the site computes: `now` is how many round trips
    of the job wait for one another.
    """

    def __init__(self, spokes, faults=None):
        self.spokes, self.now, self.sent, self.due = spokes, 0.0, [], {}
        self.around = dict.fromkeys(spokes, 0)  # bytes beside messages
        self.workers = ThreadPoolExecutor(len(spokes))

    def send(self, site, data):
        self.due[site] = self.now + 1.0, self.workers.submit(self.spokes[site].answer, data)
        self._count(site, data)
        self.sent.append((site, len(data)))

    def _count(self, site, data):
        self.around[site] += len(data) - sum(len(content) for _, content in Letter.unpack(data).items)

    def receive(self, seconds):
        if not self.due:
            return None
        site = min(self.due, key=lambda name: self.due[name][0])
        at, reply = self.due[site]
        try:
            data = reply.result(seconds)
        except TimeoutError:
            return None
        del self.due[site]
        self.now = max(self.now, at)
        self._count(site, data)
        self.sent.append((site, -len(data)))
        return site, data


def over_threads(main, sites, faults=None, timeouts=None, again=30.0, busy=10.0, wire=Threads):
    """Runs main(place, site) at a hub (site None) and at spokes; returns the exit codes, what was said, and the wire."""
    said = []
    spokes = {site: Spoke(k, len(sites), timeouts, busy) for k, site in enumerate(sites)}
    wire = wire(spokes, faults)

    def running(end, site):
        return lambda: end.run(lambda place: main(place, site), lambda text: said.append((site, text)))

    hub = running(Hub(wire, sites, timeouts, again), None)
    return threads.run_all(hub, {site: running(spoke, site) for site, spoke in spokes.items()}), said, wire


def careless(seed):
    """Faults of a wire."""
    return random.Random(seed)
