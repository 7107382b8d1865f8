"""Runs the server's side of a job whose sites are reached over another engine's wire.

An engine offers a call that brings one request to one site, waits, and returns the reply: a wire is made of it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..api import find_ending, perform, to_replay
from ..errors import JobError
from ..jobs.limits import open_more_files, refusals
from ..jobs.run import Output
from ..methods import load
from ..transports.driver import Signals, Timeouts
from ..transports.ending import Say
from ..transports.place import Place
from ..transports.relay import Hub, Lost, Wire
from .digest import as_asked, digest_of, names_of
from .saying import say


def run_hub(
    job: str | Path,
    wire: Wire,
    out: str | Path,
    *,
    resume: bool = False,
    replays: str | Path | None = None,
    quiet: bool = False,
    sites: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    again: float = 30.0,
    grace: float = Timeouts.grace,
    timeouts: Timeouts | None = None,
    signals: Signals | None = None,
    say: Say = say,
) -> int:
    """Runs the server's part of a job, and returns its exit code, as `fedkern --help` lists them. Raises JobError: the job file
    is faulty, or does not name its clients; or the run is none that may be replayed.

    Parameters
    ----------
    job : the server's own copy of the job file
    wire : to the sites
    out : the folder of the results
    resume : go on from the last checkpoint in `out`
    replays : the folder of an asynchronous run, whose answers sites compute again from their rows: each is compared with its log
    quiet : no progress
    sites : the names by which the wire knows the sites, in the order of the job's clients; by default the clients' names
    sets : "section.key=value" overrides, which are in the job that sites are asked for
    again : seconds after which a request without a reply is sent again
    grace : seconds that sites get to hear how the job has ended
    timeouts : how long silence may last, in the place of `grace`, too; by default as the job says (job.deadline)
    signals : that end the job with a checkpoint
    say : is given each line for the coordinator
    """
    open_more_files()
    config, folder = load(job, sets)
    replayed = None if replays is None else to_replay(Path(replays), server=True)
    digest = as_asked(digest_of(config), resume=resume, replays=b"" if replayed is None else replayed.files.run)
    timeouts = timeouts or Timeouts(lost=config.job.deadline, grace=grace)

    def main(place: Place) -> int:
        with refusals():
            result = perform(place, config, folder, Output(Path(out), resume=resume, quiet=quiet, replays=replayed))
        assert result is not None  # this is the server's place
        if replayed is not None and result.digest != (replayed.summary or {})["digest"]:
            raise JobError(f"{replayed.path}: computed again from its clients' rows, the posterior is another")
        code, reason = find_ending(result, config.least_updates)
        if reason is not None:
            say(reason)
        return code

    return Hub(wire, sites or names_of(config), timeouts, again, digest).run(main, say, signals)


class AskingWire:
    """Carries requests from a thread for each site, one after another.

    Parameters
    ----------
    ask : brings a request to a site and returns its reply, or None where none has come: it is asked again
    sites : their names
    pause : seconds before a site is asked again; its process may still be starting

    Attributes
    ----------
    counts : site -> requests to which a reply has come
    """

    def __init__(self, ask: Callable[[str, bytes], bytes | None], sites: Sequence[str], pause: float = 0.5) -> None:
        self._ask, self._pause = ask, pause
        self.counts = dict.fromkeys(sites, 0)
        self._replies = queue.SimpleQueue[tuple[str, bytes] | Lost]()
        self._requests = {site: queue.SimpleQueue[bytes]() for site in sites}
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._carry, args=[site], name=f"fedkern-{site}", daemon=True) for site in sites]
        for thread in self._threads:
            thread.start()

    def send(self, site: str, data: bytes) -> None:
        """Starts a request to a site, and does not wait."""
        self._requests[site].put(data)

    def receive(self, seconds: float) -> tuple[str, bytes] | Lost | None:
        """Returns the next reply of any site, or the loss of one; None if nothing has come within these seconds."""
        try:
            return self._replies.get(timeout=seconds) if seconds > 0 else self._replies.get_nowait()
        except queue.Empty:
            return None

    def lose(self, site: str, why: str) -> None:
        """Tells the hub that a site is lost for good."""
        self._replies.put(Lost(site, why))

    def close(self, grace: float = 5.0) -> None:
        """Brings what was sent to the sites that answer at once, how the job has ended for example, and lets the threads end.
        `grace`: seconds that all of it may take."""
        self._closed.set()
        for requests in self._requests.values():
            requests.put(b"")
        until = time.monotonic() + grace
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _carry(self, site: str) -> None:
        """Brings requests to a site: each until its reply has come, or until the hub has sent another, or the same again."""
        requests = self._requests[site]
        while data := requests.get():
            while (reply := self._ask(site, data)) is None and requests.empty() and not self._closed.wait(self._pause):
                pass  # after a pause the site is asked again
            if reply is not None:
                self.counts[site] += 1
                self._replies.put((site, reply))
