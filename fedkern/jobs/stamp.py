"""Whose a checkpoint or a stored answer is: the job, the run, the party and its rows; and what the party's logs were just then.

A stamp stands at the head of every one. A resumed run reads nothing whose stamp is not its own.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import NamedTuple

from .holding.chain import SIZE, Mark

FORM = struct.Struct(f"<32s16s16s32s16s{f'Q{SIZE}s' * 3}16s16s")
CHECK = 16  # bytes of the stamp's own digest
LENGTH = FORM.size + CHECK


def boot() -> bytes:
    """What this machine was given when it started; zeros where it does not tell."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


class Stamp(NamedTuple):
    """All zeros where there is nothing to say, such as the rows of a party without any.

    Attributes
    ----------
    job : digest of the job, without what a resumed run may change
    run : id of the run
    party : digest of the party's name
    rows : keyed digest of what the party was given: its rows, its file of a prior
    place : digest of the name of the file
    budget : how far the party's budget.jsonl has been read or written
    ledger, synced : what the ledger of the party's messages holds, and what of it is surely on the disk
    boot : of the machine
    layout : digest of how the state is kept: its fields, their types and shapes when the rounds begin
    """

    job: bytes = bytes(32)
    run: bytes = bytes(16)
    party: bytes = bytes(16)
    rows: bytes = bytes(32)
    place: bytes = bytes(16)
    budget: Mark = Mark()
    ledger: Mark = Mark()
    synced: Mark = Mark()
    boot: bytes = bytes(16)
    layout: bytes = bytes(16)

    def pack(self) -> bytes:
        """As bytes, `LENGTH` of them."""
        whose = (self.job, self.run, self.party, self.rows, self.place)
        body = FORM.pack(*whose, *self.budget, *self.ledger, *self.synced, self.boot, self.layout)
        return body + _check(body)

    def at(self, path: Path) -> Stamp:
        """The same, for this file."""
        return self._replace(place=hashlib.blake2b(path.stem.encode(), digest_size=16).digest())

    @classmethod
    def read(cls, data: bytes) -> Stamp:
        """What `pack` made of a stamp, from the beginning of `data`. ValueError for other bytes."""
        body = data[: FORM.size]
        if len(data) < LENGTH or data[FORM.size : LENGTH] != _check(body):
            raise ValueError("no stamp")
        job, run, party, rows, place, *logs, machine, layout = FORM.unpack(body)
        budget, ledger, synced = (Mark(*logs[i : i + 2]) for i in (0, 2, 4))
        return cls(job, run, party, rows, place, budget, ledger, synced, machine, layout)


def name_digest(name: str | None) -> bytes:
    """For `Stamp.party`: of a client's name; None is the server."""
    return hashlib.blake2b(b"server" if name is None else b"client " + name.encode(), digest_size=16).digest()


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECK).digest()
