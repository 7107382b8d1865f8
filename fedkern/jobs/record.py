"""Writes and reads `job.json`, which binds each party's own folder to a run.

It holds the whole job and the names of all clients. For more than `MOST` clients that would be n^2 bytes, written and read n
times: then the job and the names stand once in each place, `job-DIGEST.json` beside the clients' own folders, and a client's
record names that file, which has to have that digest. The server's record is always whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..ground import Ground
from ..results.plain import Record
from .files import RECORD, write_atomically

NAME = RECORD
MOST = 64  # clients of a job of which each keeps all of it
SHARED = "job"  # in the table `run` of a record: the name of that file


class Shared:
    """Holds the job and the clients that all records of a run share.

    Parameters
    ----------
    job : its tables
    clients : the names of all
    """

    def __init__(self, job: Record, clients: Sequence[str]) -> None:
        self.job, self.clients = job, list(clients)
        self._data = _bytes({**job, "run": {"clients": self.clients}}) if len(clients) > MOST else b""
        self._there: set[Path] = set()

    def write(self, path: Path, about: Record, ground: Ground, *, client: bool, sync: bool) -> None:
        """Writes a party's record, unless it stands there already; `about` is its table `run`, `ground` that of its folder."""
        if client and self._data:
            record: Record = {"run": {**about, SHARED: self._beside(path.parent.parent, ground)}}
        else:
            record = {**self.job, "run": {**about, "clients": self.clients}}
        content = _bytes(record)
        if path.is_symlink() or not path.exists() or path.read_bytes() != content:
            write_atomically(path, content, secret=client, sync=sync, ground=ground)

    def _beside(self, folder: Path, ground: Ground) -> str:
        """Returns the shared file's name, once it is in this folder."""
        path = folder / _name(self._data)
        if path not in self._there:
            if path.is_symlink() or not path.exists():
                write_atomically(path, self._data, ground=ground)
            self._there.add(path)
        return path.name


class Reader:
    """Reads records; the shared file is read once, and gives the same objects in all of them."""

    def __init__(self) -> None:
        self._shared: dict[Path, dict[str, Any]] = {}

    def read(self, path: Path) -> Any:
        """Returns a record with all that it names. Raises OSError or ValueError: a file cannot be read, or was altered."""
        record = json.loads(path.read_text(encoding="utf-8"))
        about = record.get("run") if isinstance(record, dict) else None
        name = about.get(SHARED) if isinstance(about, dict) else None
        if not isinstance(name, str) or Path(name).name != name:
            return record
        common = self._common(path.resolve().parent.parent / name)
        return {**common, "run": {**common["run"], **record["run"]}}

    def _common(self, path: Path) -> dict[str, Any]:
        if path not in self._shared:
            data = path.read_bytes()
            if path.name != _name(data):
                raise ValueError(f"{path} was altered")
            self._shared[path] = json.loads(data)
        return self._shared[path]


def _bytes(record: Record) -> bytes:
    return json.dumps(record, indent=1, allow_nan=False).encode() + b"\n"


def _name(data: bytes) -> str:
    return f"job-{hashlib.blake2b(data, digest_size=16).hexdigest()}.json"
