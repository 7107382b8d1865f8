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
            self.reply(site, spoke, self.asked[site].get())

    def reply(self, site, spoke, request):
        self.replies.put((site, spoke.answer(request)))


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


def run_all(hub, spokes):
    """Runs hub() here and each of spokes (name -> function) in a thread; returns name -> exit code, the hub's under None."""
    codes = {}

    def keep(name, run):
        codes[name] = run()

    threads = [threading.Thread(target=keep, args=item, daemon=True) for item in spokes.items()]
    for thread in threads:
        thread.start()
    codes[None] = hub()
    for thread in threads:
        thread.join(30.0)
    return codes


def over(main, names, said=None):
    """Runs main(place) at a hub and at a spoke for each name; returns the exit codes, the server's first.

    What the places say is added to `said`.
    """
    said, patient = [] if said is None else said, Timeouts(lost=120.0, grace=3.0)
    spokes = {name: Spoke(k, len(names), patient) for k, name in enumerate(names)}
    hub = Hub(Threads(spokes), names, patient)
    sites = {name: lambda spoke=spoke: spoke.run(main, said.append) for name, spoke in spokes.items()}
    codes = run_all(lambda: hub.run(main, said.append), sites)
    return [codes[name] for name in (None, *names)]
