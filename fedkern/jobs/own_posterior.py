"""Writes and reads the file of a client's own folder from which `fedkern predict` foresees rows there.

It holds the client's posterior, with a digest, and only its owner may read it (0600).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..results.plain import Record, plain
from ..transports.codec import pack, unpack
from .files import RunFolder

DIGEST = 32


def write(folder: RunFolder, client: int, name: str, magic: bytes, about: Record, arrays: dict[str, Any]) -> None:
    """Writes `about`, which JSON holds, and arrays into the client's own folder. `magic` begins the file: its kind and layout."""
    body = pack({"about": json.dumps(plain(about), allow_nan=False).encode(), **arrays})
    folder.write(folder.home(client) / name, magic + hashlib.blake2b(body, digest_size=DIGEST).digest() + body, secret=True)


def read(folder: Path, name: str, magic: bytes, run: str, client: str, wanted: str) -> tuple[Record, dict[str, Any]]:
    """Reads the posterior of this run and client; `wanted`: what to give where it is not there. Raises JobError: the run left no
    such file there, or it cannot be read."""
    path = folder / name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise JobError(f"{folder}: holds no {name}, which a client's part of a finished run leaves there: {wanted}") from None
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror})") from None
    head = len(magic) + DIGEST
    body = data[head:]
    if data[:head] != magic + hashlib.blake2b(body, digest_size=DIGEST).digest():
        raise JobError(f"{path}: was altered, or written by another version of fedkern; put it back as the run left it")
    content: dict[str, Any] = unpack(body)
    about: Record = json.loads(content.pop("about"))
    if (about["run"], about["client"]) != (run, client):
        raise JobError(f"{path}: is of another run, or of another client; put back what the run left there")
    return about, content
