"""Counts the different questions that a client has answered in a job with secure sums, over all starts of this job.

Sums over all clients tell the rows of all, once there are enough of them. So a client answers as many different questions of a
kind as the job's own program asks, and no more. A question is known by the digest of all that was told before it in its exchange:
a start anew, or one that goes on, asks the same, gets the same answer, and is not counted again. Where a start computes other
bits (another machine, another version), its questions are others: `STARTS` times those of one run are answered in all.

The counts lie in the holder's account, in `questions/JOB/` (JOB: a digest of the job, and of the client's file): a file for each
kind, `EXCHANGE-KIND`, of 16 bytes a question, and `ends`, a line for each start that an answer of this client had to end, since
it was none. After two of them all sums of this job with the client are spoilt. Its holder allows more by removing the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from ...errors import JobError
from ...ground import OWN, OWN_FOLDER, Ground
from ..handles import Handle

FOLDER, ENDS = "questions", "ends"
LENGTH = 16  # bytes of a question's digest
STARTS = 3  # times the different questions of one run that are answered over all starts
MOST_ENDS = 2  # starts that end because a number of the client is none
UNCOUNTED = "without a count no question about sums is answered"
NONE = (
    "since what this client had to answer was no number, or one of its rows adds more than sums have room for (counts above a "
    "million, large covariates in a column that is not standardised: without job.sums the job takes them)"
)
AGAIN = "none of its sums can be read, until its holder has looked why and removes {}"


class Questions:
    """Counts the questions to one client in one job.

    Parameters
    ----------
    account : the folder of the holder's account
    job : what tells this job, and the rows, from others
    tell : is given a text for the holder alone
    ground : below which the folder lies
    """

    def __init__(
        self, account: Path, job: bytes, tell: Callable[[str], None] = lambda text: None, ground: Ground | None = None
    ) -> None:
        folder = account / FOLDER
        if folder.exists() and not os.access(folder, os.W_OK):  # of another user who shares the account
            folder = account / f"{FOLDER}-{os.getuid()}"
        self.folder = folder / blake2b(job, digest_size=LENGTH, person=b"fedkern asked").hexdigest()
        self.tell, self.ground = tell, ground or Ground(account)
        self._answered: dict[str, set[bytes]] = {}
        self._files: dict[str, Handle] = {}

    @property
    def is_shut(self) -> bool:
        """Whether so many starts have ended by this client that it spoils all sums, which its holder is told."""
        shut = self._content(ENDS).count(b"\n") >= MOST_ENDS
        if shut:
            self.tell(f"{MOST_ENDS} starts of this job had to end, {NONE}: {AGAIN.format(self.folder)}")
        return shut

    def ask(self, kind: str, question: bytes, most: int) -> None:
        """Counts a question before it is answered, unless it has been answered before. Raises JobError: it is one too many.

        Parameters
        ----------
        kind : names the exchange and the kind of its message
        question : the digest of all that was told
        most : questions of the kind that one run has
        """
        answered, mark = self._read(kind), blake2b(question, digest_size=LENGTH).digest()
        if mark in answered:
            return
        if len(answered) >= STARTS * most:
            raise JobError(
                f"secure sums: {kind} was asked {len(answered):,} times, each time with another content, over all starts of this "
                f"job, which asks {most:,} times; a client answers {STARTS} times as many and then no more, until its holder "
                "begins the count anew (docs/how-to/policy.md)"
            )
        self._append(kind, mark)
        answered.add(mark)

    def end(self) -> None:
        """Notes that this start will end because a number of the client is none."""
        self._append(ENDS, datetime.now(UTC).isoformat(timespec="seconds").encode() + b"\n")
        self.tell(f"this start will end, {NONE}; after {MOST_ENDS} of them {AGAIN.format(self.folder)}")

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()

    def _read(self, kind: str) -> set[bytes]:
        """Returns the digests of the questions of a kind that were answered."""
        if kind not in self._answered:
            data = self._content(kind)
            self._answered[kind] = {data[k : k + LENGTH] for k in range(0, len(data), LENGTH)}
        return self._answered[kind]

    def _content(self, name: str) -> bytes:
        path = self.folder / name
        try:
            return path.read_bytes() if path.exists() else b""
        except OSError as fault:
            raise JobError(f"{path}: can't be read ({fault.strerror}); {UNCOUNTED}") from None

    def _append(self, name: str, data: bytes) -> None:
        """Writes to a file; it is with the operating system when this returns, so that a crash of the process cannot lose it."""
        path = self.folder / name
        try:
            if name not in self._files:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._files[name] = Handle(path, flags, self.ground, OWN, OWN_FOLDER)
            self._files[name].append(data)
        except OSError as fault:
            raise JobError(f"{path}: can't be written ({fault.strerror}); {UNCOUNTED}") from None
