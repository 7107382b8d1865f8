"""Counts what went over the wire, says what a job claims, and computes the digest of a whole result: as summary.json has them."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

WAYS = ("to_client", "to_server")


@dataclass
class Wire:
    """Holds messages and bytes for each direction and client, as the server counts them."""

    clients: tuple[str, ...]
    counts: dict[str, dict[int, list[int]]] = field(default_factory=lambda: {way: {} for way in WAYS})

    def add(self, direction: str, client: int, n_bytes: int) -> None:
        """Counts one message of `n_bytes`; direction is "to_client" or "to_server"."""
        counts = self.counts[direction]
        count = counts.get(client) or counts.setdefault(client, [0, 0])
        count[0] += 1
        count[1] += n_bytes

    def listed(self) -> list[tuple[str, str, list[int]]]:
        """Returns rows for a checkpoint: client, direction, messages and bytes."""
        return [(self.clients[client], way, count) for way, counts in self.counts.items() for client, count in counts.items()]

    def restore(self, listed: Iterable[tuple[str, str, list[int]]]) -> None:
        """Restores the result of `listed`."""
        places = {name: client for client, name in enumerate(self.clients)}
        for name, way, count in listed:
            self.counts[way][places[name]] = count

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Returns client -> direction -> messages, bytes."""

        def count(client: int, way: str) -> dict[str, int]:
            messages, n_bytes = self.counts[way].get(client, (0, 0))
            return {"messages": messages, "bytes": n_bytes}

        return {name: {way: count(client, way) for way in WAYS} for client, name in enumerate(self.clients)}


def claim_of(privacy: Mapping[str, Mapping[str, object]]) -> str:
    """Returns "private" or "federated" by a job's certificates: without secure noise everywhere it is never called private."""
    return "private" if privacy and all(_finite(certificate.get("epsilon")) for certificate in privacy.values()) else "federated"


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Returns BLAKE2b-256 (64 hexadecimal digits) over the arrays sorted by name: name, dtype, shape, little-endian C-order
    bytes.

    Each part is preceded by its length, so that no two sets of arrays give the same bytes. Raises TypeError: an array is of
    objects.
    """
    state = hashlib.blake2b(digest_size=32)
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype.hasobject:
            raise TypeError(f"{name}: arrays of objects have no digest")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        for part in (name.encode(), array.dtype.str.encode(), struct.pack(f"<{array.ndim}Q", *array.shape), array.tobytes("C")):
            state.update(struct.pack("<Q", len(part)) + part)
    return state.hexdigest()
