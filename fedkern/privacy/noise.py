"""Makes secret coins and noise. Specification: docs/spec/pvi.md, section 4.

A secure source is a ChaCha20 key stream whose key comes from the operating system and is never stored; no argument of it can
make it repeat. A keyed source repeats by design: it is for experiments, and no result made with it is private.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkern.errors import JobError
from fedkern.kernels import privacy, rng
from fedkern.kernels.bound import Bound

GRID_BITS = 20
GRID = 2.0**-GRID_BITS  # the integer sums of a private step are multiples of GRID x clip
CHUNK = 2**15  # words made at a time: five private steps of four thousand rows
Call: TypeAlias = Callable[..., tuple[Any, ...]]


class Source(Protocol):
    """Lists the draws that a mechanism needs. `step` is the party's count of local steps; a secure source ignores it.

    Examples
    --------
    >>> from fedkern.privacy.noise import KeyedSource, Source
    >>> source: Source = KeyedSource(key=7, client=0)
    >>> source.secure, source.describe()
    (False, 'keyed (Philox4x32-10): repeatable, for experiments, not private')
    """

    secure: bool

    def rekey(self) -> None:
        """Prepares the source for an update; it is called before each."""

    def coins(self, n_rows: int, threshold: int, step: int = 0) -> NDArray[np.int64]:
        """Returns the rows whose 32-bit word is below `threshold`, in increasing order."""

    def subset(self, n_rows: int, size: int, step: int = 0) -> NDArray[np.int64]:
        """Returns a uniform subset of `size` rows, in increasing order."""

    def add_noise(self, total: NDArray[np.int64], sigma: float, step: int = 0) -> NDArray[np.float64]:
        """Returns total + noise of standard deviation sigma / GRID, both in units of the grid (2^-20 of the clip)."""

    def describe(self) -> str:
        """Returns the source's words for the certificate."""


class SecureSource:
    """Makes coins and exact discrete Gaussian noise that nobody can predict or repeat.

    Threads may draw from one source at the same time: no word of the stream is used twice. There is no seed. Without the
    operating system's entropy or without the package `cryptography` it is an error, never another source.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.noise import SecureSource
    >>> source = SecureSource()
    >>> source.coins(1000, threshold=2**31).size < 1000  # about half of the rows
    True
    >>> source.add_noise(np.zeros(3, np.int64), sigma=1.0).shape
    (3,)
    """

    secure = True

    def __init__(self) -> None:
        self._words = np.empty(CHUNK, np.uint32)
        self._at = CHUNK  # the first word that is not used up
        self._stream: Any = None
        self._lock = threading.RLock()  # of the words, from when they are taken until nobody reads them any more
        _SOURCES.add(self)
        self.rekey()

    def rekey(self) -> None:
        """Takes a new key from the operating system; the rest of the old stream is dropped."""
        with self._lock:
            self._stream = _chacha20()
            self._at = CHUNK

    def coins(self, n_rows: int, threshold: int, step: int = 0) -> NDArray[np.int64]:
        """Returns the rows whose 32-bit word is below `threshold`, in increasing order."""
        if n_rows <= CHUNK:
            with self._lock:
                return (self._take(n_rows) < threshold).nonzero()[0]
        return np.concatenate([begin + self.coins(min(CHUNK, n_rows - begin), threshold) for begin in range(0, n_rows, CHUNK)])

    def subset(self, n_rows: int, size: int, step: int = 0) -> NDArray[np.int64]:
        """Returns a uniform subset of `size` rows, in increasing order."""
        words = np.empty(2 * n_rows, np.uint32)
        while True:
            for begin in range(0, len(words), CHUNK):
                with self._lock:
                    words[begin : begin + CHUNK] = self._take(min(CHUNK, len(words) - begin))
            if (rows := smallest(words, size)) is not None:
                return rows

    def add_noise(self, total: NDArray[np.int64], sigma: float, step: int = 0) -> NDArray[np.float64]:
        """Returns total + exact discrete Gaussian noise of standard deviation sigma / GRID, in units of the grid."""
        parameter = math.ceil(sigma / GRID)
        if not 1 <= parameter <= privacy.LARGEST_SIGMA:
            raise ValueError(
                f"privacy: the exact sampler draws noise multipliers up to {privacy.LARGEST_SIGMA * GRID:.0f}, got {sigma}"
            )
        draw = privacy.DISCRETE_GAUSSIAN.implementation(None)
        noise = left = np.empty(total.size, np.int64)
        with self._lock:
            while True:
                drawn, used = draw(self._words[self._at :], parameter, left)
                self._at += used
                if drawn == left.size:
                    break
                left = left[drawn:]
                self._refill()
        noise += total
        return noise.astype(np.float64)

    def add_geometric(self, total: NDArray[np.int64], decay: int) -> NDArray[np.int64]:
        """Returns counts with exact two-sided geometric noise: P(noise = k) is proportional to exp(-|k| decay GRID)."""
        with self._lock:
            noise = [two_sided(self._bits, decay) for _ in range(total.size)]
        return total + np.array(noise, np.int64).reshape(total.shape)

    def _bits(self, n: int) -> int:
        """Returns a uniform whole number of n bits."""
        words = self._take(-(-n // 32))
        return int.from_bytes(words.tobytes(), "little") >> (32 * len(words) - n)

    def describe(self) -> str:
        """Returns the source's words for the certificate."""
        return "secure (ChaCha20, keyed from the operating system at every update; exact discrete Gaussian)"

    def _take(self, n: int) -> NDArray[np.uint32]:
        """Returns the next n words, n <= CHUNK, which are valid until the next call."""
        if CHUNK - self._at < n:
            self._refill()
        self._at += n
        return self._words[self._at - n : self._at]

    def _refill(self) -> None:
        """Moves the words that are left to the front, and fills up."""
        if self._stream is None:
            self.rekey()
        left = CHUNK - self._at
        # Words that are left come first: throwing them away would favour draws that need few.
        self._words[:left] = self._words[self._at :].copy()
        fresh = self._words[left:].view(np.uint8)
        self._stream.update_into(memoryview(_ZEROS)[: fresh.size], fresh.data)
        self._at = 0

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a thread that had it is not in the child
        self._stream = None
        self._at = CHUNK

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a secure noise source can't be copied or stored: its key would be, and its noise could come twice")


class KeyedSource:
    """Makes noise and coins that anybody with the key can repeat, for experiments. Epsilon of a result made with it is infinite.

    Parameters
    ----------
    key : of the stream "noise" (`kernels.rng.key`)
    client : the counter word of this party

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> from fedkern.privacy.noise import KeyedSource
    >>> source = KeyedSource(rng.key(7, "noise"), client=0)
    >>> source.coins(8, threshold=2**31, step=5)
    array([2, 5, 6, 7])
    >>> np.array_equal(source.coins(8, threshold=2**31, step=5), source.coins(8, threshold=2**31, step=5))
    True
    """

    secure = False

    def __init__(self, key: int, client: int) -> None:
        self.key, self.client = key, client
        self._coins: Bound[Call] = Bound()  # of as many rows as before
        self._noise: Bound[Call] = Bound()

    def rekey(self) -> None:
        """Does nothing: the step alone tells one draw from another."""

    def coins(self, n_rows: int, threshold: int, step: int = 0) -> NDArray[np.int64]:
        """Returns the rows whose 32-bit word is below `threshold`, in increasing order."""
        n_blocks = -(-n_rows // 4)
        key, client = self.key, self.client
        call = self._coins.of(None, lambda: rng.bind_words(n_blocks, key=key, client=client, draw=1), key, client, n_blocks)
        words: NDArray[np.uint32]
        (words,) = call(step)
        return (words.reshape(-1)[:n_rows] < threshold).nonzero()[0]

    def subset(self, n_rows: int, size: int, step: int = 0) -> NDArray[np.int64]:
        """Returns a uniform subset of `size` rows, in increasing order."""
        draw = 2
        while (rows := smallest(self._words(2 * n_rows, step, draw), size)) is None:
            draw += 1
        return rows

    def add_noise(self, total: NDArray[np.int64], sigma: float, step: int = 0) -> NDArray[np.float64]:
        """Returns total + keyed normal noise of standard deviation sigma / GRID, in units of the grid."""
        sum_ = total.astype(np.float64)
        call = self._noise.of(None, lambda: self._bound_noise(sum_, sigma), self.key, self.client, sum_.size, sigma)
        noisy: NDArray[np.float64]
        (noisy,) = call(sum_, step)
        return noisy

    def describe(self) -> str:
        """Returns the source's words for the certificate."""
        return "keyed (Philox4x32-10): repeatable, for experiments, not private"

    def _bound_noise(self, total: NDArray[np.float64], sigma: float) -> Call:
        counter: dict[str, Any] = {"key": self.key, "client": self.client, "step": 0}
        return privacy.ADD_NOISE.bind((total,), ("total", "step"), sigma=sigma / GRID, **counter)

    def _words(self, n: int, step: int, draw: int) -> NDArray[np.uint32]:
        return rng.words(-(-n // 4), key=self.key, client=self.client, step=step, draw=draw).reshape(-1)[:n]


def two_sided(bits: Callable[[int], int], decay: int) -> int:
    """Returns an exact draw of the two-sided geometric law, from uniform bits: P(k) is proportional to exp(-|k| decay GRID).

    Source: Canonne, Kamath and Steinke (2020), The Discrete Gaussian for Differential Privacy, algorithms 1 and 2. All numbers
    are whole, so that no rounding is in them.
    """

    def below(n: int) -> int:
        length = n.bit_length()
        # Rejection, so that every number is equally likely.
        while (drawn := bits(length)) >= n:
            pass
        return drawn

    def happens(part: int, whole: int) -> bool:
        """Returns True with probability exp(-part / whole), part <= whole."""
        k = 1
        while below(whole * k) < part:
            k += 1
        return k % 2 == 1

    whole = 1 << GRID_BITS
    # A geometric number at the finest scale, by exact coins, then coarsened by the decay.
    while True:
        part = bits(GRID_BITS)
        if not happens(part, whole):
            continue
        turns = 0
        while happens(1, 1):
            turns += 1
        size, negative = (part + whole * turns) // decay, bits(1)
        # Zero has no sign: taken with both it would come twice as often.
        if size or not negative:
            return -size if negative else size


def smallest(words: NDArray[np.uint32], size: int) -> NDArray[np.int64] | None:
    """Returns the `size` places whose pairs of words are smallest, in increasing order: a uniform subset. None if a tie leaves it
    open."""
    numbers = words.view(np.uint64)
    if size == 0 or size == numbers.size:
        return np.arange(size)
    order = np.argpartition(numbers, (size - 1, size))
    if numbers[order[size - 1]] == numbers[order[size]]:
        return None
    return np.sort(order[:size])


def _chacha20() -> object:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    except ImportError as fault:
        raise JobError(f"privacy: secure noise needs the package cryptography ({fault}): pip install 'fedkern[dp]'") from None
    try:
        key = os.urandom(32)
    except (OSError, NotImplementedError) as fault:
        raise JobError(f"privacy: the operating system gives no entropy ({fault}); private noise has no other source") from None
    # The nonce may be zero because no key is used twice: counter and nonce are 16 bytes together.
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()


_ZEROS = bytes(4 * CHUNK)
_SOURCES: weakref.WeakSet[SecureSource] = weakref.WeakSet()


def _forget_all() -> None:
    for source in _SOURCES:
        source._forget()


# A forked child must not go on with its parent's stream.
os.register_at_fork(after_in_child=_forget_all)
