"""Names a job by 32 bytes that are the same at all organisations, wherever each keeps its files."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

from ..data.dialect import stem
from ..errors import JobError
from ..jobs.keys import JobConfig
from ..jobs.parties import name_clients

SIZE = 32  # bytes


def names_of(config: JobConfig) -> tuple[str, ...]:
    """Returns the names of a job's clients, as far as the job file alone tells them. Raises JobError: the files are given by a
    pattern, or are built in: another organisation would not find the same ones."""
    data = config.data
    patterns = [path for path in data.clients if any(mark in path for mark in "*?[")]
    if data.names and (patterns or not data.clients):
        return tuple(data.names)
    if patterns or not data.clients:
        what = f"data.clients: {patterns[0]!r} is a pattern" if patterns else "data.clients is empty"
        raise JobError(f"{what}, and a job between organisations names every client: give each a path, or data.names")
    return name_clients(config, tuple(stem(Path(path)) for path in data.clients))


def digest_of(config: JobConfig) -> bytes:
    """Returns the digest of a job: of all that makes its result, with the clients' names, but for the paths of files. Raises
    JobError: the job file does not name its clients."""
    text = json.dumps(["fedkern job", config.without_paths, names_of(config)], sort_keys=True, allow_nan=False)
    return blake2b(text.encode(), digest_size=SIZE).digest()


def as_asked(digest: bytes, *, resume: bool = False, replays: bytes = b"") -> bytes:
    """Returns the bytes by which a request names a job.

    They are other ones where the job goes on from a checkpoint, and where it `replays` the run of this id.
    """
    if replays:
        return blake2b(digest, digest_size=SIZE, key=replays, person=b"replay").digest()
    return blake2b(digest, digest_size=SIZE, person=b"resume").digest() if resume else digest
