"""Holds the identity of a site: it signs the site's keys of secure sums by a private key, and knows others by fingerprints.

A fingerprint is the SHA-256 of a public key, as people read it to each other. Which fingerprint is whose stands in the holder's
own list of accepted jobs, and nothing else is asked: no authority, no certificate, and no word of the server. The private key
may be any that the holder has: of the site's certificate in an engine, or one that was made for this alone.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..jobs.site import Site

PREFIX = "SHA256:"
# Engines have their keys sign texts in which a server has a part. No text in UTF-8 has this byte, so none of them is ours.
DOMAIN = b"\xfffedkern identity 1 "
RSA_BITS = range(2048, 4097)
CURVES = ("secp256r1", "secp384r1", "secp521r1")
LENGTH = struct.Struct("<H")  # bytes of the public key, which stands before the signature
KINDS = f"RSA of {RSA_BITS[0]} to {RSA_BITS[-1]} bits, ECDSA (P-256, P-384, P-521) or Ed25519"


@dataclass(frozen=True)
class Identity:
    """Signs for a site, and checks what other sites have signed."""

    key: Any = field(repr=False)  # the site's private key
    peers: Mapping[str, str] = field(default_factory=dict)  # name of another site -> fingerprint of its public key

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the site's own public key."""
        return fingerprint_of(_public(self.key.public_key()))

    def sign(self, content: bytes) -> bytes:
        """Returns the public key and a signature of some bytes by it."""
        public = _public(self.key.public_key())
        signed: bytes = self.key.sign(DOMAIN + content, *_scheme(self.key.public_key()))
        return LENGTH.pack(len(public)) + public + signed

    def fault(self, name: str, content: bytes, signature: bytes) -> str:
        """Returns why these bytes are not signed by the site of this name, as the end of a sentence; empty where they are."""
        if name not in self.peers:
            return "its fingerprint is not known here"
        size = LENGTH.unpack_from(signature)[0] if len(signature) > LENGTH.size else 0
        public, signed = signature[LENGTH.size : LENGTH.size + size], signature[LENGTH.size + size :]
        # Nothing is read of a key but that of the right fingerprint.
        if (came := fingerprint_of(public)) != self.peers[name]:
            return f"its fingerprint is {came}, and {self.peers[name]} is known here; ask its people which is right"
        key = _package("primitives.serialization").load_der_public_key(public)
        try:
            key.verify(signed, DOMAIN + content, *_scheme(key))
        except _package("", "cryptography.exceptions").InvalidSignature:
            return "somebody has put another in its place"
        except JobError as fault:
            return str(fault)
        return ""


def read_key(path: Path) -> Any:
    """Reads a private key: PEM, or as `ssh-keygen` writes it. Raises JobError: it cannot be read, has a password, is of another
    kind, or others may read it. The text names no folder."""
    try:
        data, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise JobError(f"signing_key: {path.name} cannot be read ({error.strerror})") from None
    if mode & 0o077:
        raise JobError(f"signing_key: other users may read {path.name} (mode {mode & 0o777:o}); chmod go-rwx {path.name}")
    serialization = _package("primitives.serialization")
    read = serialization.load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else serialization.load_pem_private_key
    try:
        key = read(data, password=None)
    except Exception as error:  # ValueError, TypeError (a password), UnsupportedAlgorithm: each tells what is wrong with the file
        why = "it has a password" if isinstance(error, TypeError) else type(error).__name__
        raise JobError(f"signing_key: {path.name} is no private key that can be used here ({why}); wanted {KINDS}") from None
    try:
        _scheme(key.public_key())
    except (JobError, AttributeError):
        raise JobError(f"signing_key: {path.name} is a key of another kind; wanted {KINDS}") from None
    return key


def identity_of(site: Site, names: Sequence[str], client: str, peers: Mapping[str, str]) -> Identity | None:
    """Returns the identity of a client of a job with secure sums; None where it neither signs nor knows the others. Raises
    JobError: the key cannot be used, or fingerprints and key do not go together: nobody begins to sign, or ceases to, unnoticed.

    Parameters
    ----------
    site : what the holder's own file says
    names, client : of all clients; of this one
    peers : the fingerprints that the holder has accepted with the job
    """
    if site.signing_key is None:
        if peers:
            raise JobError("the job was accepted with fingerprints of the other clients, and site.toml names no signing_key now")
        return None
    identity = Identity(read_key(site.signing_key), peers)
    check_peers(names, client, peers, identity.fingerprint)
    return identity


def fingerprint_of(public: bytes) -> str:
    """Returns the fingerprint of a public key, in the form of a SubjectPublicKeyInfo (DER): letters that one can read aloud."""
    return PREFIX + hashlib.sha256(public).digest().hex(":").upper()


def as_fingerprint(text: str) -> str:
    """Returns a fingerprint as this package writes it; JobError where it is none."""
    digits = re.sub(r"[\s:]", "", text.strip().removeprefix(PREFIX)).upper()
    if not re.fullmatch(r"[0-9A-F]{64}", digits):
        raise JobError(
            f"{text!r} is no fingerprint: wanted {PREFIX} and 64 digits, 0 to 9 and A to F, as fedkern site fingerprint prints it"
        )
    return PREFIX + ":".join(digits[i : i + 2] for i in range(0, 64, 2))


def check_peers(names: Sequence[str], client: str, peers: Mapping[str, str], fingerprint: str) -> None:
    """Raises JobError where a site's list of fingerprints is not one of all other clients of a job, each with its own.

    `own`: the fingerprint of this site's key, which no other has.
    """
    others = [name for name in names if name != client]
    if missing := [name for name in others if name not in peers]:
        raise JobError(
            f"no fingerprint of {', '.join(missing)} is known here: ask each for what its fedkern site fingerprint prints, and "
            "accept the job with --peer-key NAME=FINGERPRINT"
        )
    if strange := [name for name in peers if name not in others]:
        raise JobError(f"a fingerprint of {', '.join(strange)} was given, and the other clients are {', '.join(others)}")
    for name, known in peers.items():
        if known == fingerprint:
            raise JobError(
                f"{name} and {client}, this site, have one fingerprint: each site has a key of its own; ask {name} again for "
                "what its fedkern site fingerprint prints"
            )
        if twice := [other for other in peers if other != name and peers[other] == known]:
            raise JobError(f"{name} and {twice[0]} have one fingerprint: each site has a key of its own; ask both again")


def _scheme(public: Any) -> tuple[Any, ...]:
    """Returns the arguments of `sign` and `verify` beside the bytes; JobError where a key is of a kind that is not used."""
    rsa, ec, ed25519 = (_package(f"primitives.asymmetric.{name}") for name in ("rsa", "ec", "ed25519"))
    padding, hashes = _package("primitives.asymmetric.padding"), _package("primitives.hashes")
    if isinstance(public, rsa.RSAPublicKey) and public.key_size in RSA_BITS:
        sha256 = hashes.SHA256()
        return padding.PSS(mgf=padding.MGF1(sha256), salt_length=sha256.digest_size), sha256
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in CURVES:
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(public, ed25519.Ed25519PublicKey):
        return ()
    raise JobError(f"its key is of another kind; wanted {KINDS}")


def _public(key: Any) -> bytes:
    """Returns the bytes of a public key, of which the fingerprint is."""
    serialization = _package("primitives.serialization")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data: bytes = key.public_bytes(serialization.Encoding.DER, form)
    return data


def _package(name: str, root: str = "cryptography.hazmat") -> Any:
    """Returns a module of `cryptography`, which is no part of a plain installation."""
    try:
        module = f"{root}.{name}" if name else root
        return import_module(module)
    except ImportError as fault:
        raise JobError(f"a signing_key needs the package cryptography ({fault}): pip install 'fedkern[secure]'") from None
