"""Keeps noisy tables: counts to which a data holder has added noise once. They lie where its budget lies, for all later jobs.

Computing with such a table spends nothing. So it is never drawn again: not by a resumed run, and not by a later job on the same
data. This holds also where the counts have changed since: a new table would tell that they have. Which table a job means follows
from public names alone (`Key`), the client's among them: one policy may name the data of several clients, whose rows are
different ones. Another name is another table, and is paid for.

The charge is on the disk before the noise is drawn, and the table before anybody computes with it. A crash in between costs the
charge. Source: docs/spec/sigma.md, section 14.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..ground import OWN, OWN_FOLDER, on
from ..privacy.accountant import Mechanism, calibrate
from ..privacy.plan import Plan
from .files import writing
from .holding.binding import Account

Counts = NDArray[np.int64]


def plan(epsilon: float, delta: float, cases: int, n_counts: int) -> Plan:
    """Returns the plan of one client: all of epsilon is spent when the noise is drawn, whatever the number of counts.

    `cases`: by how many neighbours differ, in all counts.
    """
    mechanism = Mechanism(sampling="counts", clip=float(cases), dimension=n_counts, unit="case")
    mechanism = replace(mechanism, noise_multiplier=calibrate(mechanism, epsilon, delta, 1))
    return Plan(mechanism, epsilon, delta, mechanism.max_steps(epsilon, delta, enough=1), 1, 1)


@dataclass(frozen=True)
class Key:
    """Names a client's table: `name` as the job file has it, the column of the counts, and the places with one each, in order."""

    client: str
    name: str
    column: str
    places: Sequence[str]

    def file(self, data: str) -> str:
        """Returns the file's name, for the table of a data set."""
        text = json.dumps([data, self.client, self.name, self.column, list(self.places)])
        return f"noisy-{hashlib.blake2b(text.encode(), digest_size=8, person=b'fedkern table').hexdigest()}.json"


@dataclass(frozen=True)
class NoisyTable:
    """Holds counts with noise."""

    job: str  # the name of its draw in budgets
    mechanism: Mechanism  # the mechanism of the noise
    counts: tuple[int, ...]  # the counts of the places, with noise
    drawn: str  # date and time
    mark: str  # keyed digest of the counts without noise, which tells its holder whether they have changed since
    unread: tuple[int, ...] = ()  # places whose count could not be read: their numbers are noise alone, for good
    path: Path = Path()  # the table's file


def now() -> str:
    """Returns date and time, as in budgets."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def mark_of(counts: Counts, key: bytes) -> str:
    """Returns a keyed digest of counts."""
    state = hashlib.blake2b(key=key, digest_size=16, person=b"fedkern counts")
    state.update(counts.astype("<i8").tobytes())
    return state.hexdigest()


def find(account: Account, key: Key) -> NoisyTable | None:
    """Finds the table, wherever the account of these data lies or may have lain before; None where none was drawn. Raises
    JobError: it exists and cannot be read."""
    places = [(account.folder, account.data)]
    places += [(path.parent, data) for path, names in account.known.items() for data in sorted(names)]
    for folder, data in places:
        path = folder / key.file(data)
        if os.path.lexists(path):
            return _read(path, key)
    return None


def keep(account: Account, key: Key, table: NoisyTable) -> Path:
    """Puts a table on the disk, for its owner alone; returns its path."""
    path = account.folder / key.file(account.data)
    content = {
        "data": account.data, "client": key.client, "name": key.name, "column": key.column, "places": list(key.places),
        "counts": list(table.counts), "job": table.job, "mechanism": table.mechanism.as_dict(), "drawn": table.drawn,
        "mark": table.mark, "unread": list(table.unread),
    }  # fmt: skip
    with writing(path), on(account.ground, account.folder) as ground:
        ground.put(path, (json.dumps(content, indent=1) + "\n").encode(), secret=True)
    return path


@contextmanager
def alone(account: Account) -> Iterator[None]:
    """Lets one job look for a table and draw it while others wait: two jobs at once would pay twice."""
    path = account.folder / "noisy.lock"
    with writing(path), on(account.ground, account.folder) as ground:
        file = ground.open(path, os.O_RDWR | os.O_CREAT, OWN, make=OWN_FOLDER)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _read(path: Path, key: Key) -> NoisyTable:
    try:
        content = json.loads(path.read_bytes())
        mechanism = Mechanism.from_dict(content["mechanism"])
        counts = tuple(map(int, content["counts"]))
        unread = tuple(map(int, content.get("unread", ())))
        if len(counts) != len(key.places) or mechanism.sampling != "counts" or not {*unread} <= {*range(len(counts))}:
            raise ValueError("it is of other places")
        return NoisyTable(content["job"], mechanism, counts, content["drawn"], content["mark"], unread, path)
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise JobError(
            f"{path}: cannot be read as a noisy table ({fault}); put it back as it was (without it noise is drawn, and paid for)"
        ) from None
