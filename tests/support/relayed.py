"""A wire of threads for jobs over a relay: each site has a thread for its job, and one in which its requests are answered."""

import queue
import random
import threading

from fedkern.transports.relay import Hub, Lost, Spoke


class Threads:
    """Carries requests to spokes of this process; with `faults` it loses, doubles and delays replies."""

    def __init__(self, spokes, faults=None):
        self.spokes, self.faults, self.replies, self.sent = spokes, faults, queue.Queue(), []
        self.asked = {site: queue.Queue() for site in spokes}
        for site in spokes:
            threading.Thread(target=self._serve, args=(site,), daemon=True).start()

    def send(self, site, data):
        self.sent.append((site, len(data)))
        self.asked[site].put(data)

    def receive(self, seconds):
        try:
            return self.replies.get(timeout=seconds) if seconds else self.replies.get_nowait()
        except queue.Empty:
            return None

    def lose(self, site, why):
        self.replies.put(Lost(site, why))

    def _serve(self, site):
        while (data := self.asked[site].get()) is not None:
            reply = self.spokes[site].answer(data)
            luck = self.faults.random() if self.faults else 1.0
            if luck > 0.1:  # else it is lost on the way
                self.replies.put((site, reply))
            if luck < 0.2:
                self.replies.put((site, reply))
            if luck < 0.3:  # an older request comes a second time
                self.spokes[site].answer(data)


def over_threads(main, sites, faults=None, timeouts=None, again=30.0, busy=10.0, wire=Threads):
    """Runs main(place, site) at a hub (site None) and at spokes; returns the exit codes, what was said, and the wire."""
    said, codes = [], {}
    spokes = {site: Spoke(k, len(sites), timeouts, busy) for k, site in enumerate(sites)}
    wire = wire(spokes, faults)

    def run(site):
        codes[site] = spokes[site].run(lambda place: main(place, site), lambda text: said.append((site, text)))

    threads = [threading.Thread(target=run, args=(site,), daemon=True) for site in sites]
    for thread in threads:
        thread.start()
    codes[None] = Hub(wire, sites, timeouts, again).run(lambda place: main(place, None), lambda text: said.append((None, text)))
    for thread in threads:
        thread.join(30)
    return codes, said, wire


def careless(seed):
    """Faults of a wire."""
    return random.Random(seed)
