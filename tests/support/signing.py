"""A place in one process whose clients sign, as sites of several organisations do: to them all others are apart."""

from __future__ import annotations

from collections.abc import Collection

from cryptography.hazmat.primitives.asymmetric import ed25519

from fedkern.bridges.identity import Identity
from fedkern.transports.inprocess import InProcess


class Signing(InProcess):
    """All clients in this process, each with a key of its own, and the fingerprints of the others' keys."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        keys = {name: ed25519.Ed25519PrivateKey.generate() for name in sorted(names)}
        told = {name: Identity(key).fingerprint for name, key in keys.items()}
        self.identities = [Identity(key, {other: told[other] for other in keys if other != name}) for name, key in keys.items()]

    def signer(self, client: int) -> Identity:
        """Returns the identity of a client."""
        return self.identities[client]
