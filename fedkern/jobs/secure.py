"""Brings the keys of secure sums to a run, and says of them what `fedkern check` prints."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..algorithms.core.masked import Hider
from ..algorithms.core.tells import HIDES
from ..algorithms.exchanges import sum_keys
from ..algorithms.exchanges.sums import SumEnd
from ..errors import JobError
from ..privacy.masks import FEWEST, KEY, n_neighbours
from ..transports.place import Place, may_sign, signers
from .holding.questions import STARTS
from .keys import C, JobConfig
from .run import Run
from .stage import Stage, column_sums_stage, counts_stage

MAY_SEND = (*sum_keys.COMMITTED.to_server, *SumEnd.may_send)  # of every method, beside its own
UNSEEN = "not seen: at which client a column, the response or times are in another unit, and which two have one file"
ALONE = "each client compares its columns{} with all others' together, and tells it masked: the result says if one is odd"
LIMIT = "protects against the server only if it is not the authority"
UNSIGNED = (
    "nobody signs them here: a server that was changed can put its own in their",
    f"place, and read each client's numbers; so it {LIMIT}",
)
SIGNED = ("each site signs its own, and knows the others' by their fingerprints:", f"so it {LIMIT} that has told them")


TOGETHER = (
    '         where every site signs, and every policy says differencing = "refuse", rules on sums are judged on all clients\' '
    "rows",
    "         together, which each client adds up itself, and not on each client's own; where these are too few for values at",
    "         draws all may take part by one summary, and then answer at one point, and over a few normals (AskNormal)",
)


def check_number(names: Sequence[str]) -> None:
    """Raises JobError where there are too few clients for a sum that hides anything."""
    if len(names) < FEWEST:
        raise JobError(
            f'job.sums = "secure" needs {FEWEST} clients, and there are {len(names)} ({", ".join(names)}): whoever knows one of '
            f"two numbers reads the other from their sum; remove job.sums, or wait until {FEWEST} clients take part"
        )


def describe(
    place: Place, names: Sequence[str], *, units: bool = False, singly: str = "", response: str = "", additive: bool = False
) -> Iterator[str]:
    """Yields lines on secure sums, for `fedkern check`. Raises JobError: there are too few clients.

    Parameters
    ----------
    units : whether clients tell moments of their own columns all the same, by which units are compared
    singly : what each client sends of itself all the same, one by one, since the job names it
    response : what each client compares beside its columns with all others together: "response", "times", or nothing
    additive : whether rules on sums can be judged on all clients' rows together
    """
    check_number(names)
    yield f"sums     secure, over all {len(names)} clients, of the messages that are called Masked: {HIDES}"
    if singly:
        yield f"         but not of each client's own {singly}: these leave one by one, without a mask,"
        yield "         and of few rows tell the rows, as in a job without secure sums (job.sums_except)"
    fewest = n_neighbours(len(names))
    who = "all other clients" if fewest == len(names) - 1 else f"{fewest} other clients, all that a client shares masks with,"
    yield f"         a server that works with {who} reads a client's numbers"
    of_keys, so = SIGNED if signers(place, len(names)) else UNSIGNED
    yield f"         keys come through the server, and {of_keys}"
    yield f"         {so}"
    if additive:
        yield from TOGETHER
    yield f"         a server that is run by one of the clients wants {FEWEST} others; all other messages are each client's own"
    yield "         where lines say what a client tells by such a message, its sum tells it of all rows, not whose they are"
    if not units:
        yield f"         {UNSEEN}; let the holders compare means before"
        yield f"         {ALONE.format(f' and its {response}' if response else '')}"


def describe_questions(stages: Sequence[Stage]) -> Iterator[str]:
    """Yields lines on how many different questions each client answers whose answers are added; none without secure sums."""
    most: dict[str, dict[str, int]] = {}
    for stage in stages:
        if stage.sums is not None:
            most.setdefault(stage.protocol.name, {}).update({kind.__name__: n for kind, n in stage.sums.most.items()})
    if most:
        yield f"each client answers these questions about sums, at most, and of all starts of the job {STARTS} times as many"
    for name, kinds in most.items():
        yield f"  {name}: {', '.join(f'{kind} {n:,}' for kind, n in kinds.items())}"
    if most:
        yield "the same question again gets the same answer and is not counted; one too many ends the job"


def masks(config: JobConfig, n_clients: int) -> bool:
    """Tells whether clients share keys: for secure sums, or for sums that are told masked alone, where clients are enough."""
    return config.secure or (config.sums_masked and n_clients >= FEWEST)


def opening(config: JobConfig, place: Place, n_clients: int) -> list[Stage]:
    """Returns the stages that a job with masks has before its method's: of keys, counts and columns' sums; none without."""
    if not masks(config, n_clients):
        return []
    judged = config.requirement.additive and may_sign(place, n_clients)
    runs = 1 if getattr(config, "formula", None) is None else 2
    columns = [column_sums_stage(runs)] if getattr(config.data, "standardise", None) == "exchange" else []
    return [_stage_of_keys(n_clients), *[counts_stage()] * judged, *columns]


def closing(config: JobConfig, n_clients: int) -> list[Stage]:
    """Returns the last stage of a job with masks, after its method's; none without."""
    return [Stage.asking(SumEnd, secure=True)] if masks(config, n_clients) else []


def _stage_of_keys(n_clients: int) -> Stage:
    """Returns the stage in which clients get each other's keys."""
    return Stage(sum_keys.protocol(n_clients), sum_keys.dims(n_clients))


def begin(run: Run[C]) -> Run[C]:
    """Returns the run, in a job with masks with secrets that its clients share pair by pair.

    These are new at every start, and kept nowhere. Raises JobError: too few clients take part, or another's key is not signed by
    it. Nothing of a row has left a client before, and nothing of it leaves one that misses another's signature.
    """
    if run.config.secure:
        check_number(run.names)
    if not masks(run.config, len(run.names)):
        return run
    place, job = run.place, job_digest(run.config, run.names)
    signers_here = signers(place, len(run.names))
    clients = {k: sum_keys.Client(k, run.names, job, os.urandom(KEY), signers_here.get(k)) for k in run.mine}
    server, ended = run.exchange(_stage_of_keys(len(run.names)), lambda: sum_keys.start(run.names), clients)
    signed = len(signers_here) == len(clients) and (server is None or server.signed)
    waits, hiders = signed and run.config.requirement.additive, {}
    for k, pairs in sum_keys.pairs_of(ended).items():
        book = run.hooks.questions(k, job, run.parties)
        hiders[k] = Hider(pairs, run.names[k], book, secret=run.hooks.secret_of(k, job), spoils=book.is_shut)
        hiders[k].waits = waits
    return replace(run, hiders=hiders, verified=ended, judges=waits)


def end(run: Run[C]) -> None:
    """Ends a job with masks, of which nothing may be published, if a number of a client was none (RemoteFault)."""
    if masks(run.config, len(run.names)):
        run.collect(Stage.asking(SumEnd, secure=True), SumEnd, dict.fromkeys(run.mine), lambda _: SumEnd(0, 0.0))


def job_digest(config: JobConfig, names: Sequence[str]) -> bytes:
    """Returns the digest of what all places have compared: the job without the keys that each may have its own, and names."""
    agreed = f"{config.keys_alone} {' '.join(names)}"
    return hashlib.blake2b(agreed.encode(), digest_size=32, person=b"fedkern job").digest()
