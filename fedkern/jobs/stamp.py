"""Stamps checkpoints and stored answers with the job, the run, the party, its rows, and the state of its logs just then.

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
    """Returns the id that this machine was given when it started; zeros where it does not tell."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


class Stamp(NamedTuple):
    """Says whose a file is, and how far its party's logs were; a field is all zeros where it does not apply."""

    job: bytes = bytes(32)  # digest of the job, without the keys that a resumed run may change
    run: bytes = bytes(16)  # id of the run
    party: bytes = bytes(16)  # digest of the party's name
    rows: bytes = bytes(32)  # keyed digest of all that the party was given: its rows, its file of a prior
    place: bytes = bytes(16)  # digest of the name of the file
    budget: Mark = Mark()  # how far the party's budget.jsonl has been read or written
    # ledger, synced: the mark of the ledger of the party's messages, and of its part that is surely on the disk
    ledger: Mark = Mark()
    synced: Mark = Mark()
    boot: bytes = bytes(16)  # the id of the machine's last start
    layout: bytes = bytes(16)  # digest of how the state is kept: its fields, their types and shapes when the rounds begin

    def pack(self) -> bytes:
        """Returns the stamp as bytes, `LENGTH` of them."""
        whose = (self.job, self.run, self.party, self.rows, self.place)
        body = FORM.pack(*whose, *self.budget, *self.ledger, *self.synced, self.boot, self.layout)
        return body + _check(body)

    def at(self, path: Path) -> Stamp:
        """Returns the same stamp, for this file."""
        return self._replace(place=hashlib.blake2b(path.stem.encode(), digest_size=16).digest())

    @classmethod
    def read(cls, data: bytes) -> Stamp:
        """Reads a stamp that `pack` made, from the beginning of `data`. ValueError for other bytes."""
        body = data[: FORM.size]
        if len(data) < LENGTH or data[FORM.size : LENGTH] != _check(body):
            raise ValueError("no stamp")
        job, run, party, rows, place, *logs, machine, layout = FORM.unpack(body)
        budget, ledger, synced = (Mark(*logs[i : i + 2]) for i in (0, 2, 4))
        return cls(job, run, party, rows, place, budget, ledger, synced, machine, layout)


def name_digest(name: str | None) -> bytes:
    """Returns the digest of a client's name, for `Stamp.party`; None is the server."""
    return hashlib.blake2b(b"server" if name is None else b"client " + name.encode(), digest_size=16).digest()


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECK).digest()
