"""The data holder's own account of what was spent on each of its data sets. It outlives every job.

Specification: dp-pvi.md, section 7. Two files in the holder's folder, `$FEDKERN_CLIENT_HOME/<client>/`:

* `policy.toml`, written by the holder: what may be spent, on which data, by what kind of noise. Without it the job's own
cap holds.
* `budget.jsonl`, written ahead: a line is on the disk before a row is read. It holds public numbers alone.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from fedkern.errors import JobError

from .accountant import UNLIMITED, Mechanism, Parts, epsilon, max_steps
from .certificate import Total, certificate
from .policy import read_policy

POLICY, LEDGER = "policy.toml", "budget.jsonl"


class Asked(Protocol):
    """What a machine asks for: so many accounted steps, for the update of that number."""

    @property
    def steps(self) -> int: ...
    @property
    def round(self) -> int: ...


@dataclass(frozen=True)
class Decision:
    """The answer to a charge. Either it is on the disk and `granted` steps may be run, or `granted` is 0 and no row may be read.

    `spent` (before this charge) and `allowed` count steps of this job.
    """

    granted: int
    spent: int
    allowed: int


@dataclass
class Ledger:
    """`budget.jsonl`, read once and then followed: a job's line names its data and mechanism, a charge's line its steps.

    Attributes
    ----------
    path : of the file
    read : bytes read so far
    jobs : job -> (data set, mechanism) of its latest line
    spent : (data set, job, mechanism) -> steps
    """

    path: Path
    read: int = 0
    jobs: dict[str, tuple[str, Mechanism]] = field(default_factory=dict)
    spent: dict[tuple[str, str, Mechanism], int] = field(default_factory=dict)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """The file, opened and locked, with everything that others have added read."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise JobError(f"{self.path}: can't be opened ({fault.strerror}); without it nothing may be charged") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if new:
                _sync_folder(self.path.parent)
            self._follow(file)
            yield file
        finally:
            os.close(file)

    def _follow(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size < self.read:
            raise JobError(f"{self.path}: became shorter while a job was using it; nothing more is charged")
        text = os.pread(file, size - self.read, self.read)
        for line in text.splitlines():
            if not line.strip():
                continue
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as fault:
                raise JobError(
                    f"{self.path}: can't read the line {line[:60]!r} ({type(fault).__name__}), which may be a charge, so nothing "
                    "is charged. Complete the line, or delete it if nothing was computed for it"
                ) from None
        if text and not text.endswith(b"\n"):
            os.write(file, b"\n")  # the line was whole, but for its end
        self.read = os.fstat(file).st_size

    def _take(self, entry: Mapping[str, Any]) -> None:
        job = entry["job"]
        if "mechanism" in entry:
            self.jobs[job] = (entry["data"], Mechanism.from_dict(entry["mechanism"]))
            return
        steps = entry["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps = {steps!r}")
        data, mechanism = self.jobs[job]
        key = (data, job, mechanism)
        self.spent[key] = self.spent.get(key, 0) + steps

    def append(self, file: int, entry: dict[str, Any]) -> None:
        """Writes a line; it is on the disk when this returns."""
        line = (json.dumps(entry | {"time": datetime.now(UTC).isoformat(timespec="seconds")}) + "\n").encode()
        try:
            written = os.write(file, line)
            if written < len(line):
                os.ftruncate(file, self.read)
                raise OSError(None, "the disk is full")
            os.fsync(file)
        except OSError as fault:
            raise JobError(f"{self.path}: can't be written ({fault.strerror}); nothing was charged and no row is read") from None
        self.read += len(line)
        self._take(entry)

    def parts(self, data: str, *, of_job: str | None = None, but: tuple[str, Mechanism] | None = None) -> Parts:
        """(mechanism, steps) of a data set: of one job or of all, but for one job's one mechanism."""
        return tuple(
            (mechanism, steps)
            for (of, job, mechanism), steps in self.spent.items()
            if of == data and of_job in (None, job) and (job, mechanism) != but
        )


class Holder:
    """One data holder in one job: it decides about every charge.

    Parameters
    ----------
    client : the holder's name
    home : its folder, with `policy.toml` if it has one, and `budget.jsonl`
    job : a name of this run that no other run has; a resumed run keeps it
    data : the holder's name for the data set
    mechanism, epsilon, delta : what the job asks for, and its own cap (which may be infinite)
    last_update : "shorten" grants the steps that are left where they are fewer than asked; "refuse" grants nothing then
    fingerprint : of the data, compared with the policy's; a difference only warns

    Attributes
    ----------
    warnings : for the holder's eyes alone

    Raises
    ------
    JobError
        The policy does not allow the mechanism, or one of the files can't be used.
    """

    def __init__(
        self,
        client: str,
        home: Path,
        *,
        job: str,
        data: str,
        mechanism: Mechanism,
        epsilon: float,
        delta: float,
        last_update: Literal["refuse", "shorten"] = "refuse",
        fingerprint: str | None = None,
    ) -> None:
        self.client, self.job, self.data, self.mechanism = client, job, data, mechanism
        self.epsilon, self.delta, self.last_update = epsilon, delta, last_update
        self.policy = read_policy(home / POLICY, data)
        self.ledger = Ledger(home / LEDGER)
        self.warnings: list[str] = []
        if self.policy is not None:
            if reason := self.policy.refusal(mechanism):
                raise JobError(f"client {client!r}: its policy {home / POLICY} does not allow {reason}")
            if self.policy.fingerprint and fingerprint and self.policy.fingerprint != fingerprint:
                self.warnings.append(f"the data are not those for which [data.{data}] of the policy was written")
        self._others: Parts | None = None
        with self.ledger.locked() as file:
            if self.ledger.jobs.get(job) != (data, mechanism):
                self.ledger.append(file, {"job": job, "data": data, "mechanism": mechanism.as_dict()})
            self._update()

    @property
    def spent(self) -> int:
        """Steps of this job that are charged."""
        return self.ledger.spent.get((self.data, self.job, self.mechanism), 0)

    def charge(self, asked: Asked) -> Decision:
        """Puts a charge on the disk, or refuses it. Refusing depends on public numbers alone, and changes nothing.

        A crash after this costs the charge: whoever asks again is charged again. (A stored message that is sent again
        needs no charge.)
        """
        if type(asked.steps) is not int or asked.steps < 1:
            raise ValueError(f"privacy: a charge must be for a positive whole number of steps, got {asked.steps!r}")
        with self.ledger.locked() as file:
            self._update()
            spent, left = self.spent, max(self.allowed - self.spent, 0)
            granted = asked.steps if asked.steps <= left else left if self.last_update == "shorten" else 0
            if granted:
                self.ledger.append(file, {"job": self.job, "round": asked.round, "steps": granted})
        return Decision(granted, spent, self.allowed)

    def _update(self) -> None:
        """Computes the largest number of steps anew if another job has spent something meanwhile."""
        others = self.ledger.parts(self.data, but=(self.job, self.mechanism))
        if others != self._others:
            self._others = others
            try:
                self.allowed = min(self._allowed_by_job(), self._allowed_by_policy(others))
            except ValueError as fault:
                raise JobError(f"client {self.client!r}: {self.ledger.path}: {fault}") from None

    def _allowed_by_job(self) -> int:
        before = self.ledger.parts(self.data, of_job=self.job, but=(self.job, self.mechanism))
        return max_steps(self.mechanism, self.epsilon, self.delta, before)

    def _allowed_by_policy(self, others: Parts) -> int:
        if self.policy is None:
            return UNLIMITED
        if epsilon(others, self.policy.delta) > self.policy.epsilon:
            return 0
        return max_steps(self.mechanism, self.policy.epsilon, self.policy.delta, others)

    def total(self) -> Total:
        """What all jobs together have spent on this data set."""
        parts = self.ledger.parts(self.data)
        delta = self.policy.delta if self.policy else self.delta
        jobs = {job for (data, job, _), steps in self.ledger.spent.items() if data == self.data and steps}
        return Total(epsilon(parts, delta), delta, len(jobs), self.policy.epsilon if self.policy else None)

    def certificate(self, *, rows_per_person: int = 1, total: bool = True) -> dict[str, Any]:
        """What this job has spent here, and what all jobs have (unless the holder keeps that to itself)."""
        return certificate(
            self.mechanism,
            steps=self.spent,
            epsilon_cap=self.epsilon,
            delta=self.delta,
            policy=self.policy is not None,
            total=self.total() if total else None,
            rows_per_person=rows_per_person,
        )


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
