"""An outsider's wire of threads, and what runs a job over it; it knows public names of fedkern alone."""

import queue
import threading

from fedkern.places import Hub, Spoke, Timeouts, Wire


class Threads(Wire):
    """Carries requests to spokes of this process."""

    def __init__(self, spokes):
        self.replies, self.asked = queue.Queue(), {site: queue.Queue() for site in spokes}
        for site, spoke in spokes.items():
            threading.Thread(target=self._serve, args=(site, spoke), daemon=True).start()

    def send(self, site, data):
        self.asked[site].put(data)

    def receive(self, seconds):
        try:
            return self.replies.get(timeout=seconds) if seconds else self.replies.get_nowait()
        except queue.Empty:
            return None

    def _serve(self, site, spoke):
        while True:
            self.replies.put((site, spoke.answer(self.asked[site].get())))


class Alone:
    """A place that is another package's, and does no more than the one it holds."""

    def __init__(self, place):
        self._place = place

    def __getattr__(self, name):
        return getattr(self._place, name)

    def __setattr__(self, name, value):
        if name == "_place":
            object.__setattr__(self, name, value)
        else:
            setattr(self._place, name, value)


def over(main, names, said=None):
    """Runs main(place) at a hub and at a spoke for each name; returns the exit codes, the server's first."""
    said = [] if said is None else said
    spokes = {name: Spoke(k, len(names), Timeouts(lost=30.0, grace=3.0)) for k, name in enumerate(names)}
    codes = {}

    def run(name):
        codes[name] = spokes[name].run(main, said.append)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    code = Hub(Threads(spokes), names, Timeouts(lost=30.0, grace=3.0)).run(main, said.append)
    for thread in threads:
        thread.join(30.0)
    return [code, *(codes[name] for name in names)]
