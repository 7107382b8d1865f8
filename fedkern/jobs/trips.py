"""Tells before a job how often it asks its sites over a relay, and how long it waits for the wire alone.

Each question to a client costs at most one request to its site. What closes an exchange travels with the next one's first
question, so most jobs ask less often. A client that computes for longer than ten seconds is asked again meanwhile: that is not
counted, as it adds nothing to the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..algorithms.exchanges import columns
from ..algorithms.exchanges.columns import TIMES
from ..models.encoding import Encoding, Spec
from ..transports.relay_letters import ENVELOPE, ITEM
from .formula import agreeing
from .keys import JobConfig
from .stage import Stage

HELLO, FOLDER = 1, 2  # requests: of the agreement; of the run's folder
LEGS = 3  # of one exchange: sums about a centre, of a column's names, levels and deviations
END, EXIT = 1, 1  # of the last exchange's end, which travels with its question where it has one alone; of the exit code


@dataclass(frozen=True)
class Trips:
    """Counts what a job needs of a relay, at most."""

    site: int  # requests to each site
    path: int  # requests that wait for one another: more than those to a site where clients work in turn
    by_chance: bool  # whether `site` is a mean over the clients, since chance decides whom a round asks
    wrapping: int  # bytes that a site's requests and replies have beside its messages
    # requests that wait for one another, where the job's plan fixes them or such jobs usually take so many; None: only the most
    # is known
    expected: int | None = None
    usually: bool = False  # whether `expected` is what is usual, and not exact
    in_turn: bool = False  # whether clients work one after another


def count_trips(
    config: JobConfig,
    n_clients: int,
    stages: Sequence[Stage],
    spec: Spec,
    rounds: int | None = None,
    encoding: Encoding | None = None,
) -> Trips:
    """Counts the requests of a job whose run has a folder and is not resumed.

    Parameters
    ----------
    config, n_clients, stages, spec : as in `wire.describe_messages`
    rounds : at most, where budgets end the job
    encoding : the agreed columns, where all clients have the same
    """
    leaves_out = getattr(config.data, "small", None) == "leave-out"
    start = HELLO + bool(config.read_alike) + leaves_out + 2 * (config.job.device != "cpu") + FOLDER
    site = path = start + EXIT + (0 if stages[-1].protocol.once else END)
    legs = None if encoding is None else agreeing.count_legs(spec, encoding)
    expected = [_expected(stage, n_clients, legs) for stage in stages]
    items = 2 * site
    for stage in stages:
        questions, answers = (
            sum(1 if spec.private and kind in TIMES else stage.often(kind, rounds) for kind in kinds)
            for kinds in (stage.protocol.to_client, stage.protocol.to_server)
        )
        site += questions
        # Of clients in turn each answer is waited for; what else they are told travels beside the next one's question.
        in_all = min(questions, answers) * n_clients + max(0, questions - answers) if stage.in_turn else questions
        path += max(in_all, stage.trips or 0)  # of a run without one client this client is asked nothing
        items += 2 * questions + answers + 1  # a question without an answer is received; the end of the exchange
    known = [number for number in expected if number is not None]
    exact = start + EXIT + (0 if stages[-1].protocol.once else END) + sum(known)
    return Trips(
        site,
        path,
        any(stage.by_chance for stage in stages),
        2 * site * ENVELOPE.size + items * ITEM.size,
        exact if len(known) == len(expected) else None,
        any(stage.usually for stage in stages),
        any(stage.in_turn for stage in stages),
    )


def _expected(stage: Stage, n_clients: int, legs: int | None) -> int | None:
    """Returns how many requests of a stage wait for one another, if that is known; `legs`: those of the agreement on columns."""
    if stage.trips is not None:
        return stage.trips * (n_clients if stage.in_turn else 1)
    if columns.SchemaReply in stage.protocol.to_server:
        return legs
    # Outside of rounds every answer is waited for; what clients are told besides travels with the next question. A question that
    # comes more often than there are legs is asked until all agree.
    often = [stage.often(kind, None) for kind in stage.protocol.to_server]
    return None if stage.resumable or stage.rounds or max(often, default=0) > LEGS * stage.runs else sum(often)


def describe_trips(trips: Trips, latency: float) -> Iterator[str]:
    """Yields the lines of `fedkern check --latency`."""
    most = "on average at most" if trips.by_chance else "at most"
    seconds = trips.path * latency
    yield f"over a relay, at {latency:g} s for a request and its reply"
    yield f"  requests to each site   {most} {trips.site:,}"
    in_turn = ", as clients work in turn" if trips.in_turn else ""
    yield f"  one after another       {most} {trips.path:,}{in_turn}"
    yield f"  waiting for the wire    {most} {_long(seconds)}, beside the time that parties compute"
    if trips.expected is not None:
        how = "usually about" if trips.usually else "exactly"
        yield f"  of these it takes       {how} {trips.expected:,}, and {_long(trips.expected * latency)}"
    yield f"  bytes of a site         those above, and {most} {trips.wrapping:,} around them"


def in_short(trips: Trips, latency: float | None) -> str:
    """Returns the same in one line; without a latency the number of requests."""
    usual = "" if trips.expected is None else f"{'usually about' if trips.usually else 'exactly'} {trips.expected:,}, "
    most = f"{'on average ' * trips.by_chance}at most {trips.path:,}"
    questions = f"{usual}{most} questions, each when the one before is answered"
    if latency is None:
        return f"{questions}; --latency SECONDS says how long a relay takes for them"
    long = "" if trips.expected is None else f"{_long(trips.expected * latency)}, "
    return f"{questions}: {long}at most {_long(trips.path * latency)} of waiting at {latency:g} s each, beside computing"


def _long(seconds: float) -> str:
    """Returns a time in a unit that tells at a glance."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
