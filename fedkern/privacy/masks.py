"""Masks numbers that a server only adds: each masked number is uniformly distributed, and the masks cancel in the sum.

A number becomes a whole number of units of 2^-f (a fixed-point word of w bits, in two's complement), and words are added modulo
2^w, so that a sum of words is exact. Every pair of clients shares a secret that the server does not have. For each message both
derive from it the same stream of words: the client with the smaller number adds it, the other takes it away. The sum over all
clients has no masks left; what is added up of fewer is uniformly distributed, as is each client's message.

A stream is used once. Its key is derived from the pair's secret (X25519, HKDF), and from the job, the participants with their
public keys, the count of masked messages, the kind of message and the question: clients that were asked different things, or
that took part in different groups, have masks that do not cancel. The secrets are new at every start of a run, also of one that
goes on, and are never stored. Nothing here asks for entropy: whoever makes `Pairs` gives it.

It hides whose number it was, not what the sum says.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError

Words = NDArray[np.uint64]  # (limbs, n), the lowest limb first
Array = NDArray[np.float64]

KEY = 32  # bytes of a secret and of a public key
FEWEST = 3  # clients: of two each learns the other's number from the sum
NONCE = 12  # bytes
BLOCK = 1 << 14  # words that are masked at a time, so that they stay in the cache
TOGETHER = 1 << 17  # bytes of the streams of all others that are added up at once: so many are little beside a call for each
SIGNIFICAND = 53  # bits of a float64
LABEL = b"fedkern secure sums 1 "
LEAST_DENSITY = -(2.0**40)  # nats: a lower log density counts as this one


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
ONCE = Form(8, 256, 2.0**255)  # of sums that are told once: no digit of a column is lost


def to_words(values: Array, form: Form, n_clients: int) -> tuple[Words, NDArray[np.bool_]]:
    """Returns the words (limbs, n) of values (n,), and which of these are out of range; these have the word 0.

    A value is rounded to the nearest multiple of 2^-fraction, ties to even. Out of range is what is not finite, or not smaller
    in size than `form.each(n_clients)`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.masks import ROUND, from_words, to_words
    >>> words, outside = to_words(np.array([1.5, -2.0, np.inf]), ROUND, n_clients=3)
    >>> from_words(words, ROUND), outside
    (array([ 1.5, -2. ,  0. ]), array([False, False,  True]))
    """
    values = np.ascontiguousarray(values, np.float64)
    outside = ~(np.abs(values) < form.each(n_clients))
    words = np.zeros((form.limbs, len(values)), np.uint64)
    for at in range(0, len(values), BLOCK):
        here = slice(at, at + BLOCK)
        _place(values[here], outside[here], form, words[:, here])
    return words, outside


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


def _place(values: Array, outside: NDArray[np.bool_], form: Form, words: Words) -> None:
    """Writes the words of values into `words` (limbs, n), which are 0 before."""
    bits = values.view(np.uint64)
    exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).view(np.int64)
    # A value is m 2^shift units. Subnormal numbers, of exponent 0, have no hidden bit, and the exponent of 1.
    m = (bits & np.uint64((1 << 52) - 1)) | ((exponent > 0).astype(np.uint64) << np.uint64(52))
    m[outside] = 0
    shift = np.maximum(exponent, 1) - (1023 + 52) + form.fraction
    if shift.min() < 0:
        m = _rounded(m, np.minimum(np.maximum(-shift, 0), 63).astype(np.uint64))
        shift = np.maximum(shift, 0)
    whole, part = shift >> 6, (shift & 63).view(np.uint64)
    low = m << part
    high = (m >> np.uint64(1)) >> (np.uint64(63) - part)  # two steps, since a shift by 64 is none
    for i in range(form.limbs):
        # A limb has the low part, the high part, or neither: both are never in the same one.
        words[i] = low * (whole == i)
        if i:
            words[i] |= high * (whole == i - 1)
    _negated(words, (bits >> np.uint64(63)).astype(np.bool_) & (m > 0))


def _rounded(m: Words, right: Words) -> Words:
    """Returns m 2^-right, to the nearest whole number, ties to even."""
    kept = m >> right
    rest = m - (kept << right)
    half = (np.uint64(1) << right) >> np.uint64(1)
    up = (rest > half) | ((rest == half) & (half > 0) & ((kept & np.uint64(1)) > 0))
    return np.asarray(kept + up.astype(np.uint64))


def _negated(words: Words, where: NDArray[np.bool_]) -> None:
    """Negates the words at these places, in two's complement."""
    if not where.any():
        return
    words ^= np.where(where, np.uint64(2**64 - 1), np.uint64(0))
    carry = where
    for limb in words:
        limb += carry.astype(np.uint64)
        carry = carry & (limb == 0)
        if not carry.any():
            return


def from_words(words: Words, form: Form) -> Array:
    """Returns the numbers (n,) that words are, each rounded once: to the nearest, ties to even."""
    words = words.copy()
    negative = words[-1] >> np.uint64(63) > 0
    _negated(words, negative)
    # The 64 bits below and with the highest one decide, with a mark whether any lower bit is set.
    top, sticky, exponent = np.zeros_like(words[0]), np.zeros(words.shape[1], np.bool_), np.zeros(words.shape[1], np.int64)
    open_ = np.ones(words.shape[1], np.bool_)
    for i in reversed(range(form.limbs)):
        here = open_ & (words[i] > 0)
        if not here.any():
            continue
        x = words[i][here]
        zeros = _leading_zeros(x).astype(np.uint64)
        below = words[i - 1][here] if i else np.zeros_like(x)
        shifted = (x << zeros) | ((below >> np.uint64(1)) >> (np.uint64(63) - zeros))
        rest = (below << zeros) > 0
        for lower in words[: max(i - 1, 0)]:
            rest |= lower[here] > 0
        top[here], sticky[here], exponent[here] = shifted, rest, 64 * i - zeros.astype(np.int64)
        open_ &= ~here
    # 11 bits more than a significand has: the last of them holds the mark, and a conversion of float64 rounds as it should.
    top |= sticky.astype(np.uint64)
    out = np.ldexp(top.astype(np.float64), (exponent - form.fraction).astype(np.int32))
    return np.asarray(np.where(negative, -out, out))


def _leading_zeros(x: Words) -> NDArray[np.int64]:
    """Returns how many bits above the highest set one are 0; x > 0."""
    zeros = np.zeros(x.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        small = (x >> np.uint64(64 - step)) == 0
        x = np.where(small, x << np.uint64(step), x)
        zeros += step * small
    return zeros


def add(total: Words, words: Words) -> None:
    """Adds words to a total in place, modulo 2^(64 limbs)."""
    carry = None
    for own, other in zip(total, words, strict=True):
        if carry is None:
            own += other
            carry = own < other
        else:
            own += carry
            carry = own < carry  # it was all ones
            own += other
            carry |= own < other
        carry = carry.astype(np.uint64)


def subtract(total: Words, words: Words) -> None:
    """Takes words from a total in place, modulo 2^(64 limbs)."""
    borrow = None
    for own, other in zip(total, words, strict=True):
        if borrow is None:
            borrow = (own < other).astype(np.uint64)
            own -= other
        else:
            under = own < borrow
            own -= borrow
            under |= own < other
            own -= other
            borrow = under.astype(np.uint64)


# Keys --------------------


@dataclass(frozen=True)
class Stream:
    """Names one stream of masks: the key of ChaCha20 and its nonce. No two messages have the same.

    Examples
    --------
    >>> from fedkern.privacy.masks import Stream
    >>> Stream(key=bytes(32), nonce=bytes(16)) == Stream(key=bytes(32), nonce=bytes(15) + b"1")
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


def digest_of_group(job: bytes, names: Sequence[str], keys: Sequence[bytes]) -> bytes:
    """Returns the digest of the job and of the participants, each with its public key, in the order of their numbers."""
    state = hashlib.blake2b(digest_size=32, person=b"fedkern sums")
    for part in (job, *(piece for name, key in zip(names, keys, strict=True) for piece in (name.encode(), key))):
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


@dataclass(frozen=True)
class Pairs:
    """Holds the secrets that one client shares with each other client, for one start of a run.

    Attributes
    ----------
    client : its number
    shared : number of another client -> what both derive streams from
    watch : called with each stream and the digest of the words that it hides, before they are hidden; for tests

    Examples
    --------
    >>> import os
    >>> from fedkern.privacy.masks import Pairs, public_key
    >>> secrets = [os.urandom(32) for _ in range(3)]
    >>> keys = [public_key(secret) for secret in secrets]
    >>> Pairs.agree(0, secrets[0], ["ada", "bo", "cy"], keys, job=bytes(32))
    Pairs(client=0, 2 others)
    """

    client: int
    shared: Mapping[int, bytes]
    watch: Watcher | None = None

    def __repr__(self) -> str:
        """Returns the object without its secrets."""
        return f"Pairs(client={self.client}, {len(self.shared)} others)"

    @classmethod
    def agree(cls, client: int, secret: bytes, names: Sequence[str], keys: Sequence[bytes], job: bytes) -> Pairs:
        """Returns the secrets of a client with all others.

        Parameters
        ----------
        client : its number
        secret : 32 bytes that nobody else has, new at each start of a run
        names, keys : of all participants, in the order of their numbers
        job : digest of the job, which all have compared

        Raises
        ------
        JobError
            There are fewer than three participants, two have the same key, or a key is none.
        """
        if len(keys) < FEWEST:
            raise JobError(f"secure sums need {FEWEST} clients, and there are {len(keys)}: of two each learns the other's number")
        if len(set(keys)) < len(keys):
            twice = [name for name, key in zip(names, keys, strict=True) if keys.count(key) > 1]
            raise JobError(f"secure sums: clients {', '.join(map(repr, twice))} have the same key; each makes its own")
        if keys[client] != public_key(secret):
            raise JobError(f"secure sums: the server tells another key of client {names[client]!r} than it has sent")
        group, shared = digest_of_group(job, names, keys), {}
        x25519, hkdf, hashes = (
            _package("primitives.asymmetric.x25519"),
            _package("primitives.kdf.hkdf"),
            _package("primitives.hashes"),
        )
        own = x25519.X25519PrivateKey.from_private_bytes(secret)
        for other, key in enumerate(keys):
            if other == client:
                continue
            try:
                both = own.exchange(x25519.X25519PublicKey.from_public_bytes(key))
            except ValueError:
                raise JobError(f"secure sums: the key of client {names[other]!r} is none") from None
            low, high = sorted((client, other))
            info = LABEL + b"pair " + low.to_bytes(4, "little") + high.to_bytes(4, "little")
            shared[other] = hkdf.HKDF(algorithm=hashes.SHA256(), length=KEY, salt=group, info=info).derive(both)
        return cls(client, shared)

    def hide(self, words: Words, counter: int, kind: int, question: bytes) -> None:
        """Masks words in place.

        Parameters
        ----------
        words : (limbs, n)
        counter : masked messages before this one, at this start of the run; never the same twice
        kind : number of the message
        question : digest of the question that it answers
        """
        streams = [(other > self.client, self.stream(other, counter, kind, question)) for other in sorted(self.shared)]
        if self.watch is not None:
            plain = hashlib.blake2b(words.tobytes(), digest_size=16).digest()
            for _, stream in streams:
                self.watch(stream, plain)
        keys = [(adds, _encryptor(stream)) for adds, stream in streams]
        limbs, n = words.shape
        if len(keys) * words.nbytes <= TOGETHER:
            add(words, _total(keys, limbs, n))
            return
        # A block's words are little beside the cache: streams and sums of it stay there.
        for at in range(0, n, BLOCK):
            block = np.ascontiguousarray(words[:, at : at + BLOCK])
            size = block.nbytes
            zeros, buffer = bytes(size), bytearray(size)
            for adds, key in keys:
                key.update_into(zeros, buffer)
                mask = np.frombuffer(buffer, "<u8").reshape(limbs, -1)
                (add if adds else subtract)(block, mask)
            words[:, at : at + BLOCK] = block

    def stream(self, other: int, counter: int, kind: int, question: bytes) -> Stream:
        """Returns the stream that this client and another share for one message."""
        info = LABEL + b"message " + counter.to_bytes(8, "little") + kind.to_bytes(4, "little") + question
        # HKDF-Expand of RFC 5869 with SHA-256, of 44 bytes: this function is asked for each other client in each round.
        first = hmac.digest(self.shared[other], info + b"\x01", "sha256")
        second = hmac.digest(self.shared[other], first + info + b"\x02", "sha256")
        return Stream(first, second[:NONCE])


def _total(keys: Sequence[tuple[bool, Any]], limbs: int, n: int) -> Words:
    """Returns the sum (limbs, n) of streams, those that are taken away with the other sign, modulo 2^(64 limbs)."""
    size = 8 * limbs * n
    zeros, buffer = bytes(size), bytearray(len(keys) * size)
    for k, (_, key) in enumerate(keys):
        key.update_into(zeros, memoryview(buffer)[k * size : (k + 1) * size])
    # Halves of words, whose sums over so few clients 64 bits hold; carries go through them from the lowest up.
    halves = np.frombuffer(buffer, "<u4").reshape(len(keys), limbs, n, 2).astype(np.int64)
    signs = np.array([1 if adds else -1 for adds, _ in keys], np.int64)
    sums = np.tensordot(signs, halves, axes=1)
    out, carry = np.empty((limbs, n), np.uint64), np.zeros(n, np.int64)
    for limb in range(limbs):
        low = sums[limb, :, 0] + carry
        high = sums[limb, :, 1] + (low >> 32)
        carry = high >> 32
        out[limb] = (low & 0xFFFFFFFF).astype(np.uint64) | ((high & 0xFFFFFFFF).astype(np.uint64) << np.uint64(32))
    return out


def _encryptor(stream: Stream) -> Any:
    """Returns what encrypts by a stream; `cryptography` takes the count of blocks, which begins at 0, before the nonce."""
    ciphers = _package("primitives.ciphers")
    algorithm = _package("primitives.ciphers.algorithms").ChaCha20(stream.key, bytes(4) + stream.nonce)
    return ciphers.Cipher(algorithm, mode=None).encryptor()


@cache
def _package(name: str) -> Any:
    """Returns a module of `cryptography`, which is no part of a plain installation."""
    from importlib import import_module

    try:
        return import_module(f"cryptography.hazmat.{name}")
    except ImportError as fault:
        raise JobError(f"secure sums need the package cryptography ({fault}): pip install 'fedkern[secure]'") from None
