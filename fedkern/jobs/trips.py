"""Tells before a job how often it asks its sites over a relay, and how long it waits for the wire alone.

Each question to a client costs at most one request to its site. What closes an exchange travels with the next one's first
question, so most jobs ask less often. A client that computes for longer than ten seconds is asked again meanwhile: that is not
counted, as it adds nothing to the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..algorithms.exchanges.columns import TIMES
from ..errors import JobError
from ..models.encoding import Spec
from ..transports.relay_letters import ENVELOPE, ITEM
from .keys import JobConfig
from .stage import Stage

HELLO, FOLDER = 1, 2  # requests: of the agreement; of the run's folder
END, EXIT = 1, 1  # of the last exchange's end, which travels with its question where it has one alone; of the exit code


@dataclass(frozen=True)
class Trips:
    """Counts what a job needs of a relay, at most.

    Attributes
    ----------
    site : requests to each site
    path : requests that wait for one another: more than those to a site where clients work in turn
    by_chance : whether `site` is a mean over the clients, since chance decides whom a round asks
    wrapping : bytes that a site's requests and replies have beside its messages
    """

    site: int
    path: int
    by_chance: bool
    wrapping: int


def count_trips(config: JobConfig, n_clients: int, stages: Sequence[Stage], spec: Spec, rounds: int | None = None) -> Trips:
    """Counts the requests of a job whose run has a folder and is not resumed.

    Parameters
    ----------
    config, n_clients, stages, spec : as in `wire.describe_messages`
    rounds : at most, where budgets end the job

    Raises
    ------
    JobError
        The job has no server between its clients, and a relay carries no such job.
    """
    if any(stage.allgather for stage in stages):
        raise JobError("--latency is for jobs with a server; this one has none between its clients (allgather)")
    leaves_out = getattr(config.data, "small", None) == "leave-out"
    start = HELLO + bool(config.read_alike) + leaves_out + 2 * (config.job.device != "cpu") + FOLDER
    site = path = start + EXIT + (0 if stages[-1].protocol.once else END)
    items = 2 * site
    for stage in stages:
        asked, said = (
            sum(1 if spec.private and kind in TIMES else stage.often(kind, rounds) for kind in kinds)
            for kinds in (stage.protocol.to_client, stage.protocol.to_server)
        )
        site += asked
        # Of clients in turn each answer is waited for; what else they are told travels beside the next one's question.
        path += min(asked, said) * n_clients + max(0, asked - said) if stage.in_turn else asked
        items += 2 * asked + said + 1  # a question without an answer is received; the end of the exchange
    return Trips(site, path, any(stage.by_chance for stage in stages), 2 * site * ENVELOPE.size + items * ITEM.size)


def describe_trips(trips: Trips, latency: float) -> Iterator[str]:
    """Yields the lines of `fedkern check --latency`."""
    most = "on average at most" if trips.by_chance else "at most"
    seconds = trips.path * latency
    yield f"over a relay, at {latency:g} s for a request and its reply"
    yield f"  requests to each site   {most} {trips.site:,}"
    in_turn = ", as clients work in turn" if trips.path > trips.site else ""
    yield f"  one after another       {most} {trips.path:,}{in_turn}"
    yield f"  waiting for the wire    {most} {_long(seconds)}, beside the time that parties compute"
    yield f"  bytes of a site         those above, and {most} {trips.wrapping:,} around them"


def _long(seconds: float) -> str:
    """Returns a time in a unit that tells at a glance."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
