"""Brings the keys of secure sums to a run, and says of them what `fedkern check` prints."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..algorithms.core.masked import HIDES
from ..algorithms.exchanges import sum_keys
from ..errors import JobError
from ..privacy.masks import FEWEST, KEY
from ..transports.place import Place, signers
from .keys import C, JobConfig
from .run import Run
from .stage import Stage

LIMIT = "protects against the server only if it is not the authority"
UNSIGNED = (
    "nobody signs them here: a server that was changed can put its own in their",
    f"place, and read each client's numbers; so it {LIMIT}",
)
SIGNED = (
    "each site signs its own, and knows the others' by their fingerprints:",
    f"so it {LIMIT} that has told them",
)


def check_number(names: Sequence[str]) -> None:
    """Raises JobError where there are too few clients for a sum that hides anything."""
    if len(names) < FEWEST:
        raise JobError(
            f'job.sums = "secure" needs {FEWEST} clients, and there are {len(names)} ({", ".join(names)}): whoever knows one of '
            "two numbers reads the other from their sum; leave it out, or wait for more clients"
        )


def describe(place: Place, names: Sequence[str]) -> Iterator[str]:
    """Yields lines on secure sums, for `fedkern check`; JobError where there are too few clients."""
    check_number(names)
    yield f"sums     secure, over all {len(names)} clients, of the messages that are called Masked: {HIDES}"
    of_keys, so = SIGNED if signers(place, len(names)) else UNSIGNED
    yield f"         keys come through the server, and {of_keys}"
    yield f"         {so}"
    yield f"         a server that is run by one of the clients wants {FEWEST} others; all other messages are each client's own"


def stages(config: JobConfig, n_clients: int) -> tuple[Stage, ...]:
    """Returns the stage in which clients get each other's keys, in a job with secure sums: the first of all."""
    return (Stage(sum_keys.PROTOCOL, sum_keys.dims(n_clients)),) if config.secure else ()


def exchange_keys(run: Run[C]) -> Run[C]:
    """Returns the run with secrets that its clients share pair by pair: new ones at every start, kept nowhere.

    Nothing of a row has left a client before, and nothing of it leaves one that misses another's signature.
    """
    check_number(run.names)
    place, job = run.place, job_digest(run.config, run.names)
    own = signers(place, len(run.names))
    clients = {k: sum_keys.Client(k, run.names, job, os.urandom(KEY), own.get(k)) for k in run.mine}
    (stage,) = stages(run.config, len(run.names))
    _, ended = run.exchange(stage, lambda: sum_keys.start(run.names), clients)
    return replace(run, pairs=sum_keys.pairs_of(ended))


def job_digest(config: JobConfig, names: Sequence[str]) -> bytes:
    """Returns the digest of what all places have compared: the job without the keys that each may have its own, and names."""
    agreed = f"{config.keys_alone} {' '.join(names)}"
    return hashlib.blake2b(agreed.encode(), digest_size=32, person=b"fedkern job").digest()
