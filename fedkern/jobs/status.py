"""Tells how far a run is, from its folder alone: while it goes, after it was interrupted, and after its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..algorithms.core.messages import SERVER
from ..errors import JobError
from ..printing import align_columns
from ..privacy.accountant import epsilon
from . import locks, so_far
from .ledger import parts
from .opened import Opened, sent
from .so_far import SoFar


class Client(NamedTuple):
    """Holds the state of a client, as far as its files can be read here."""

    name: str
    did: str  # its present work, or how it has ended
    messages: int  # the number of messages that have left it
    last: str  # the last of them, in words
    ago: float | None  # seconds since then
    # steps, epsilon, cap: the charges of its budget for this run; None where that is not here, or nothing is claimed
    steps: int | None = None
    epsilon: float | None = None
    cap: float | None = None


class Status(NamedTuple):
    """Holds the state of a run."""

    state: str  # "running", "interrupted" or "finished"
    # round, rounds: the last one that the server has finished, and of how many (or "budget")
    round: int
    rounds: int | str
    checkpoint: tuple[int, float] | None  # when the last one was made, in seconds before now, and its number; None without any
    verdict: str | None  # the verdict of a run that has ended
    clients: list[Client]
    since: int = 0  # the round after which all of them began anew, without a client that was lost; else 0
    so_far: SoFar | None = None  # the posterior without clients that are waited for, where the run has written it

    def describe(self) -> Iterator[str]:
        """Yields the state in words, line by line."""
        rounds = f"round {self.round}"
        if not isinstance(self.rounds, int):
            rounds += "; its budget ends it"
        elif self.round <= self.rounds:  # rounds on the way to a mode are not among those that the job counts
            rounds += f" of {self.rounds}"
        if self.since and isinstance(self.rounds, int):
            again = f"{self.rounds - self.since} since round {self.since}"
            rounds += f" ({again}, when they began anew without a client that was lost)"
        yield f"{self.state}, {rounds}"
        if self.verdict is not None:
            yield self.verdict
        elif self.checkpoint is not None:
            number, ago = self.checkpoint
            more = "; --resume goes on from it" if self.state == "interrupted" else ""
            yield f"checkpoint {number}, {duration(ago)} ago{more}"
        elif self.state == "interrupted":
            yield "no checkpoint: --resume begins again, and what was spent stays spent"
        yield ""
        spends = any(client.cap is not None for client in self.clients)
        head = ["client", "", "messages", "last", "", *(["steps", "epsilon", "of"] if spends else [])]
        rows = [head]
        for c in self.clients:
            row = [c.name, c.did, f"{c.messages:,}", c.last, "" if c.ago is None else f"{duration(c.ago)} ago"]
            of = "" if c.cap is None else f"{c.cap:g}"
            rows.append([*row, *(["" if c.steps is None else f"{c.steps:,}", number_of(c.epsilon), of] if spends else [])])
        yield from align_columns(rows)
        if self.so_far is not None:
            yield from self.so_far.describe()


def duration(seconds: float) -> str:
    """Returns seconds in words."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def number_of(value: float | None) -> str:
    """Returns a number with four digits, or "" for None."""
    return "" if value is None else f"{value:.4g}"


def status(run: Opened) -> Status:
    """Reads the state of a run."""
    summary, parties = run.summary, (SERVER, *range(len(run.names)))
    going = any(locks.running(run.files.home(party)) for party in parties)
    state = "finished" if summary is not None else "running" if going else "interrupted"
    done, since = _measured(run.path / "metrics.jsonl")
    if summary is not None:
        done = int(summary["rounds"])
    rounds = run.rounds + since if isinstance(run.rounds, int) else run.rounds
    verdict = None if summary is None else str(summary["verdict"])
    early = None if summary is not None else so_far.read(run.path)
    return Status(state, done, rounds, _checkpoint(run), verdict, list(_clients(run, state)), since, early)


def _measured(path: Path) -> tuple[int, int]:
    """Returns the last round in metrics.jsonl, and the round after which rounds began anew."""
    with suppress(OSError):
        for line in reversed(path.read_bytes().splitlines()):
            with suppress(ValueError, KeyError, TypeError):  # the last one may be half written
                record = json.loads(line)
                return int(record["round"]), int(record.get("since", 0))
    return 0, 0


def _checkpoint(run: Opened) -> tuple[int, float] | None:
    """Returns the number of the newest checkpoint, and seconds since it was made."""
    times = []
    for party in (SERVER, *run.records):
        with suppress(OSError):
            for path in (run.files.home(party) / "checkpoint").glob("*.ckpt"):
                times.append((path.stat().st_mtime, int(path.stem.rpartition("-")[2])))
    return None if not times else (max(times)[1], max(0.0, time.time() - max(times)[0]))


def _clients(run: Opened, state: str) -> Iterator[Client]:
    """Yields all clients. Who has answered less of the newest exchange than others is waited for."""
    lines = {}
    for k, name in enumerate(run.names):
        path = run.files.ledger(k)
        with suppress(JobError):  # one that was altered is the audit's affair
            lines[name] = list(sent(path))
    files = {name: parts(run.files.ledger(k)) for k, name in enumerate(run.names)}
    # The newest ledger tells which exchange is going on.
    newest = max((name for name in lines if lines[name]), key=lambda name: files[name][-1].stat().st_mtime, default=None)
    protocol = None if newest is None else lines[newest][-1].protocol
    answered = {name: sum(line.protocol == protocol for line in lines.get(name, [])) for name in run.names}
    most = max(answered.values(), default=0)
    ended = {} if run.summary is None else run.summary["clients"]
    for k, name in enumerate(run.names):
        entries = lines.get(name, [])
        if name in ended:
            did = str(ended[name].get("status", "finished"))
        elif state == "interrupted":
            did = "interrupted"
        else:
            did = "waits" if entries and answered[name] == most else "is waited for"
        last = "" if not entries else entries[-1].kind + ("" if entries[-1].round is None else f" of round {entries[-1].round}")
        ago = max(0.0, time.time() - files[name][-1].stat().st_mtime) if entries else None
        yield Client(name, did, len(entries), last, ago, *_spent(run, k))


def _spent(run: Opened, k: int) -> tuple[int | None, float | None, float | None]:
    """Returns steps, epsilon and cap of a client in this run."""
    privacy, by_client = run.privacy, run.by_client
    if privacy is None:
        return None, None, None
    budget = run.budget(SERVER if by_client else k)
    cap, delta = privacy.cap("the federation" if by_client else run.names[k])
    if budget is None:
        return None, None, cap
    parts = budget.of_job(run.job(SERVER if by_client else k))
    return sum(steps for _, steps in parts), epsilon(parts, delta), cap
