"""Masks numbers that a server only adds: each masked number is uniformly distributed, and the masks cancel in the sum.

A number becomes a whole number of units of 2^-f (a fixed-point word of w bits, in two's complement), and words are added modulo
2^w, so that a sum of words is exact. Clients that are neighbours share a secret that the server does not have. For each message
both derive from it the same stream of words: the client with the smaller number adds it, the other takes it away. The sum over
all clients has no masks left; what is added up of fewer is uniformly distributed, as is each client's message.

Up to eleven clients each are neighbours of all others. Of more, each has 2 ceil(log2 M) + 2, those next to it on a ring in which
all stand in an order by chance, which each derives for itself from the job and from all names and keys (Bell, Bonawitz, Gascon,
Lepoint and Raykova, CCS 2020). No fewer than that many other clients can cut the ring: with any smaller number of them on its
side a server learns the sum of all others and nothing else.

A stream is used once. Its cipher's key is derived from the pair's secret (X25519, HKDF), and from the job, the participants with
their public keys and who is whose neighbour; its nonce is the count of masked messages, with a code (BLAKE2b with a key) of this
count, of the kind of message and of the question. So clients that were asked different things, or that took part in different
groups, have masks that do not cancel. The secrets are new at every start of a run, also of one that goes on, and are never
stored. Nothing here asks for entropy: whoever makes `Pairs` gives it.

It hides whose number it was, not what the sum says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core import words as compiled
from ..arrays import Array
from ..errors import JobError

Words = NDArray[np.uint64]  # (limbs, n), the lowest limb first

KEY = 32  # bytes of a secret and of a public key
FEWEST = 3  # clients: of two each learns the other's number from the sum
FIRST_BLOCK = bytes(4)  # `cryptography` takes the count of blocks before the nonce
COUNT, CODE = 4, 8  # bytes of a nonce: of the count of messages, which never comes twice, and of the code
BLOCK = 1 << 12  # words that are masked at a time, so that all streams of them stay in the cache
LABEL = b"fedkern secure sums 3 "
MOST_OF_ROW = 2.0**40  # the largest size of a row's part in one number of a gradient or a curvature of `pvi`


class Form(NamedTuple):
    """Describes fixed-point words.

    Attributes
    ----------
    limbs : 64-bit limbs of a word
    fraction : bits after the point
    bound : the sum of all clients is below it in size

    Examples
    --------
    >>> from fedkern.privacy.masks import Form
    >>> Form(limbs=2, fraction=64, bound=2.0**62).each(4)
    1.152921504606847e+18
    """

    limbs: int
    fraction: int
    bound: float

    def each(self, n_clients: int) -> float:
        """Returns the size below which each client's number is, so that no sum of theirs overflows."""
        return self.bound / n_clients


ROUND = Form(2, 64, 2.0**62)  # of messages that come round for round
WIDE = Form(3, 64, 2.0**126)  # of those whose numbers are more than sums over rows
LARGEST_CELL = 2.0**106  # of a column whose sums are told once: squares about any mean of such cells have room
ONCE = Form(8, 256, 2.0**255)  # of sums that are told once: no digit of a column is lost


def to_words(values: Array, form: Form, n_clients: int) -> Words:
    """Returns the words (limbs, n) of values (n,), each rounded to the nearest multiple of 2^-fraction, ties to even.

    Raises
    ------
    ValueError
        A value is not finite, or not smaller in size than `form.each(n_clients)`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.masks import ROUND, from_words, to_words
    >>> from_words(to_words(np.array([1.5, -2.0]), ROUND, n_clients=3), ROUND)
    array([ 1.5, -2. ])
    """
    values = np.ascontiguousarray(values, np.float64)
    words, outside = np.empty((form.limbs, len(values)), np.uint64), np.empty(len(values), np.bool_)
    compiled.from_values(values, form.fraction, form.each(n_clients), words, outside)
    if outside.any():
        raise ValueError("a number is out of the range of masked words")
    return words


def holds(values: Array, form: Form, n_clients: int) -> NDArray[np.bool_]:
    """Tells which values (n,) have words that lose no digit of them: finite whole multiples of 2^-fraction that are in range.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.masks import ONCE, holds
    >>> holds(np.array([0.1, 1e-100, 1e80]), ONCE, n_clients=3)
    array([ True, False, False])
    """
    values = np.asarray(values, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.ldexp(values, form.fraction) % 1 == 0
    return np.asarray((np.abs(values) < form.each(n_clients)) & whole)


def nearest(values: Array, form: Form) -> Array:
    """Returns the multiples of 2^-fraction that are nearest to the values, whose words lose no digit of them.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.masks import ONCE, nearest
    >>> nearest(np.array([0.1, 1e-100]), ONCE)
    array([0.1, 0. ])
    """
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, form.fraction)), -form.fraction))


def from_words(words: Words, form: Form) -> Array:
    """Returns the numbers (n,) that words are, each rounded once: to the nearest, ties to even."""
    values = np.empty(words.shape[1])
    compiled.to_values(np.ascontiguousarray(words), form.fraction, values)
    return values


def total(parts: Sequence[Words]) -> Words:
    """Returns the sum (limbs, n) of words, modulo 2^(64 limbs).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.masks import total
    >>> ones = np.full((2, 1), 2**64 - 1, np.uint64)
    >>> total([ones, np.array([[2], [0]], np.uint64)])
    array([[1],
           [0]], dtype=uint64)
    """
    out = np.zeros(parts[0].shape, np.uint64)
    for words in parts:
        compiled.add(out, words, 0)
    return out


# Keys --------------------


@dataclass(frozen=True)
class Stream:
    """Names one stream of masks: the key of ChaCha20 and its nonce. No two messages have the same.

    Examples
    --------
    >>> from fedkern.privacy.masks import Stream
    >>> Stream(key=bytes(32), nonce=bytes(12)) == Stream(key=bytes(32), nonce=bytes(11) + b"1")
    False
    """

    key: bytes
    nonce: bytes


Watcher = Callable[[Stream, bytes], None]


def public_key(secret: bytes) -> bytes:
    """Returns the public X25519 key of 32 secret bytes."""
    x25519 = _package("primitives.asymmetric.x25519")
    public: bytes = x25519.X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return public


def n_neighbours(n_clients: int) -> int:
    """Returns with how many others each client shares a secret: all up to eleven clients, then 2 ceil(log2 M) + 2.

    Examples
    --------
    >>> from fedkern.privacy.masks import n_neighbours
    >>> [n_neighbours(n) for n in (3, 10, 11, 12, 49, 1000)]
    [2, 9, 10, 10, 14, 22]
    """
    return min(n_clients - 1, 2 * (n_clients - 1).bit_length() + 2)


@dataclass(frozen=True)
class Group:
    """Holds what all participants of a sum have in common.

    Attributes
    ----------
    digest : of the job, the participants with their public keys, and who is whose neighbour
    neighbours : of each client, the numbers of the others that it shares a secret with, in ascending order

    Examples
    --------
    >>> from fedkern.privacy.masks import Group
    >>> group = Group.of(bytes(32), [str(k) for k in range(12)], [bytes([k]) * 32 for k in range(12)])
    >>> all(k in group.neighbours[j] for k in range(12) for j in group.neighbours[k])
    True
    """

    digest: bytes
    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, job: bytes, names: Sequence[str], keys: Sequence[bytes]) -> Group:
        """Returns the group of a job's participants, each with its public key, in the order of their numbers."""
        digest = _digest(
            b"fedkern sums", job, *(part for pair in zip(map(str.encode, names), keys, strict=True) for part in pair)
        )
        n = len(keys)
        ring = sorted(range(n), key=lambda k: _digest(b"fedkern ring", digest, keys[k]))
        reach = -(-n_neighbours(n) // 2)  # on either side; of few clients both sides may meet
        beside: list[set[int]] = [set() for _ in range(n)]
        for place, k in enumerate(ring):
            for step in range(1, reach + 1):
                other = ring[(place + step) % n]
                beside[k].add(other)
                beside[other].add(k)
        neighbours = tuple(tuple(sorted(others)) for others in beside)
        lines = (np.array(others, "<u4").tobytes() for others in neighbours)
        return cls(_digest(b"fedkern group", digest, *lines), neighbours)


def _digest(person: bytes, *parts: bytes) -> bytes:
    state = hashlib.blake2b(digest_size=32, person=person)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


@dataclass(frozen=True)
class Pairs:
    """Holds the secrets that one client shares with its neighbours, for one start of a run.

    Attributes
    ----------
    client : its number
    n_clients : whose sum it is
    shared : number of a neighbour -> what both derive streams from: the key of a cipher, and that of a code
    watch : called with each stream and the digest of the words that it hides, before they are hidden; for tests

    Examples
    --------
    >>> import os
    >>> from fedkern.privacy.masks import Pairs, public_key
    >>> secrets = [os.urandom(32) for _ in range(3)]
    >>> keys = [public_key(secret) for secret in secrets]
    >>> Pairs.agree(0, secrets[0], ["ada", "bo", "cy"], keys, job=bytes(32))
    Pairs(client=0, 2 neighbours)
    """

    client: int
    n_clients: int
    shared: Mapping[int, bytes]
    watch: Watcher | None = None

    def __repr__(self) -> str:
        """Returns the object without its secrets."""
        return f"Pairs(client={self.client}, {len(self.shared)} neighbours)"

    @classmethod
    def agree(cls, client: int, secret: bytes, names: Sequence[str], keys: Sequence[bytes], job: bytes) -> Pairs:
        """Returns the secrets of a client with its neighbours. Raises JobError: there are fewer than three participants, two have
        the same key, or a key is none.

        Parameters
        ----------
        client : its number
        secret : 32 bytes that nobody else has, new at each start of a run
        names, keys : of all participants, in the order of their numbers
        job : digest of the job, which all have compared
        """
        if len(keys) < FEWEST:
            raise JobError(f"secure sums need {FEWEST} clients, and there are {len(keys)}: of two each learns the other's number")
        if len(set(keys)) < len(keys):
            twice = [name for name, key in zip(names, keys, strict=True) if keys.count(key) > 1]
            raise JobError(f"secure sums: clients {', '.join(map(repr, twice))} have the same key; each makes its own")
        if keys[client] != public_key(secret):
            raise JobError(f"secure sums: the server tells another key of client {names[client]!r} than it has sent")
        group, shared = Group.of(job, names, keys), {}
        x25519, hkdf, hashes = (
            _package("primitives.asymmetric.x25519"),
            _package("primitives.kdf.hkdf"),
            _package("primitives.hashes"),
        )
        own_key = x25519.X25519PrivateKey.from_private_bytes(secret)
        for other in group.neighbours[client]:
            try:
                both = own_key.exchange(x25519.X25519PublicKey.from_public_bytes(keys[other]))
            except ValueError:
                raise JobError(f"secure sums: the key of client {names[other]!r} is none") from None
            low, high = sorted((client, other))
            info = LABEL + b"pair " + low.to_bytes(4, "little") + high.to_bytes(4, "little")
            shared[other] = hkdf.HKDF(algorithm=hashes.SHA256(), length=2 * KEY, salt=group.digest, info=info).derive(both)
        return cls(client, len(keys), shared)

    def hide(self, words: Words, counter: int, kind: int, question: bytes) -> None:
        """Masks words in place.

        Parameters
        ----------
        words : (limbs, n)
        counter : masked messages before this one, at this start of the run; never the same twice
        kind : number of the message
        question : digest of the question that it answers
        """
        count, about = counter.to_bytes(COUNT, "little"), _about(counter, kind, question)
        if self.watch is not None:
            plain = hashlib.blake2b(words.tobytes(), digest_size=16).digest()
            for other in self.shared:
                self.watch(self.stream(other, counter, kind, question), plain)
        for end in self._ends:
            end.cipher.reset_nonce(FIRST_BLOCK + end.nonce(count, about))
        for begin in range(0, words.shape[1], BLOCK):
            block = np.ascontiguousarray(words[:, begin : begin + BLOCK])
            size = block.nbytes
            zeros, streams = bytes(size), bytearray(len(self._ends) * size)
            room = memoryview(streams)
            for k, end in enumerate(self._ends):
                end.cipher.update_into(zeros, room[k * size : (k + 1) * size])
            compiled.add(block, streams, self._lower)
            words[:, begin : begin + BLOCK] = block

    def stream(self, other: int, counter: int, kind: int, question: bytes) -> Stream:
        """Returns the stream that this client and a neighbour share for one message."""
        end = _End(self.shared[other])
        return Stream(self.shared[other][:KEY], end.nonce(counter.to_bytes(COUNT, "little"), _about(counter, kind, question)))

    @cached_property
    def _ends(self) -> list[_End]:
        """Its ends of all streams, those with clients of lower numbers first."""
        return [_End(self.shared[other]) for other in sorted(self.shared)]

    @cached_property
    def _lower(self) -> int:
        """How many neighbours have a lower number: their streams are taken away."""
        return sum(other < self.client for other in self.shared)


def _about(counter: int, kind: int, question: bytes) -> bytes:
    """Returns what a code is of."""
    return LABEL + b"message " + counter.to_bytes(8, "little") + kind.to_bytes(4, "little") + question


class _End:
    """Is one client's end of the streams with a neighbour: a cipher and a code, whose keys are set up once for all messages."""

    def __init__(self, shared: bytes) -> None:
        self.code = hashlib.blake2b(key=shared[KEY:], digest_size=CODE)
        self.cipher = _encryptor(shared[:KEY])

    def nonce(self, count: bytes, about: bytes) -> bytes:
        """Returns the nonce of a message."""
        code = self.code.copy()
        code.update(about)
        return count + code.digest()


def _encryptor(key: bytes) -> Any:
    """Returns what encrypts by a key, once its nonce is set."""
    ciphers = _package("primitives.ciphers")
    algorithm = _package("primitives.ciphers.algorithms").ChaCha20(key, bytes(len(FIRST_BLOCK) + COUNT + CODE))
    return ciphers.Cipher(algorithm, mode=None).encryptor()


@cache
def _package(name: str) -> Any:
    """Returns a module of `cryptography`, which is no part of a plain installation."""
    from importlib import import_module

    try:
        return import_module(f"cryptography.hazmat.{name}")
    except ImportError as fault:
        raise JobError(f"secure sums need the package cryptography ({fault}): pip install 'fedkern[secure]'") from None
