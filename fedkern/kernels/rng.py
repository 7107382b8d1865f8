"""Random numbers as a function of (key, counter): Philox4x32-10. Nothing here has a state.

The key says seed, stream and chain; the counter says which item, draw, client and step. The same words come from every backend,
for any number of threads and in any order; floating-point numbers made of them agree to a few units in the last place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkern import _core

from .._deprecate import Renamed, arguments
from . import homes
from ._checks import AT_LEAST_1, KEY, MADE, SEED, WORD, Domain, describe
from ._docs import Given, binds, documented
from ._record import BACKENDS, COMPILED, F64, Array, Kernel, Out, Scalar, home

if TYPE_CHECKING:
    from ._bit_generator import Philox4x32

__all__ = [
    "bind_words",
    "bit_generator",
    "counts",
    "exponential",
    "gamma",
    "inverse_gaussian",
    "key",
    "normal",
    "polya_gamma",
    "register",
    "streams",
    "uniform",
    "words",
]

WORDS_TYPE = (np.dtype("uint32"),)
LIMIT = 2**32
STREAMS = _core.rng.streams()
MADE_KEY = Scalar("key", MADE)  # of a kernel whose public function takes seed and chain; `key_of` makes it
REGISTERED = 2**31  # registered streams have numbers from here on, ours are below
_registered: dict[str, tuple[int, str]] = {}  # name -> its number, and the package that registered it

# `_check_counter` says what is wrong.
_KEY = Scalar("key", Domain("must be in [0, 2^64)", passed="index(x)", whole=KEY.whole))
_RENAMED = arguments(n=Renamed("size", until="0.3"))
_IN_COUNTER = Domain("must be in [0, 2^32)", passed="index(x)")
_CLIENT, _STEP, _DRAW = (Scalar(name, replace(_IN_COUNTER, whole=WORD.whole), 0) for name in ("client", "step", "draw"))
_FIRST_ITEM = Scalar("first_item", _IN_COUNTER, 0)  # how large it may be depends on n
_COUNTER = (_KEY, _CLIENT, _STEP, _DRAW, _FIRST_ITEM)
_OWN_BLOCKS = (_KEY, _CLIENT, _STEP, _FIRST_ITEM)  # of items that own all draws
_WORDS = {
    "size": "How many numbers.",
    "key": "From `key()`, or any 64-bit number.",
    **dict.fromkeys(("client", "step", "draw"), "A word of the counter."),
}
_HALF = "Number e is half e % 2 of the block of item first_item + e // 2 < 2^32."
_WITHIN = "By default the one at home where the arrays live. They agree within a relative 1e-12."
_OWN_WORDS = _WORDS | {
    "size": "How many numbers, where no array says it. Beside an array it must be the array's length.",
    "backend": _WITHIN,
    "first_item": "Number e owns all blocks of item first_item + e < 2^32: draw 2 t and 2 t + 1 for attempt t. A rejection "
    "shifts no other.",
}

WORDS = Kernel(
    "rng.words",
    __name__,
    purpose="The 32-bit words of consecutive Philox blocks.",
    source="Salmon, Moraes, Dror and Shaw (2011), Philox4x32-10",
    inputs=(),
    outputs=(Array("out", ("size", "4"), WORDS_TYPE),),
    scalars=_COUNTER,
    streams=("user",),
    backends=BACKENDS,
    words=_WORDS
    | {
        "size": "How many blocks.",
        "first_item": "Row i of the result is the block of item first_item + i < 2^32.",
        "backend": "By default cpp. All give the same bits.",
        "result": "The words of a block in each row.",
    },
    example="""
        >>> rng.words(2, key=rng.key(7))
        array([[4263607705, 1961988155, 3595974273, 1168623564],
               [ 123178867, 1853623042, 2465252756,  458130038]], dtype=uint32)
    """,
)
UNIFORM, NORMAL, EXPONENTIAL = (
    Kernel(
        f"rng.{name}",
        __name__,
        purpose=purpose,
        source=source,
        inputs=(),
        outputs=(Array("out", ("size",), F64),),
        scalars=_COUNTER,
        streams=("user",),
        backends=BACKENDS,
        words=_WORDS | {"first_item": item, "backend": f"By default cpp. {agree}", "result": result},
        example=example,
    )
    for name, purpose, source, item, agree, result, example in (
        (
            "uniform",
            "Uniform numbers on the open interval (0, 1).",
            "(k + 1/2) 2^-52 of 52 random bits k",
            _HALF,
            "All give the same bits.",
            "(k + 1/2) 2^-52, k 52 random bits: never 0 and never 1.",
            """
            >>> key = rng.key(7)
            >>> rng.uniform(4, key=key).round(3)
            array([0.457, 0.272, 0.432, 0.107])
            >>> rng.uniform(2, key=key, first_item=1).round(3)
            array([0.432, 0.107])
            """,
        ),
        (
            "normal",
            "Standard normal numbers.",
            "Box and Muller (1958)",
            "Number e belongs to the block of item first_item + e // 2 < 2^32: its cosine for even e, its sine for odd e.",
            "They agree within 1e-14.",
            "sqrt(-2 log u) (cos 2 pi v, sin 2 pi v) of the two uniforms of a block; at most 8.58 in size.",
            """
            >>> key = rng.key(7)
            >>> rng.normal(4, key=key).round(3)
            array([-0.173,  1.24 ,  1.016,  0.805])
            >>> rng.normal(2, key=key, first_item=1).round(3)
            array([1.016, 0.805])
            """,
        ),
        (
            "exponential",
            "Exponential numbers of mean 1.",
            "-log(uniform)",
            _HALF,
            "They agree within a few units in the last place.",
            "-log(u): positive, at most 36.8.",
            """
            >>> key = rng.key(7)
            >>> rng.exponential(4, key=key).round(3)
            array([0.783, 1.302, 0.84 , 2.238])
            >>> rng.exponential(2, key=key, first_item=1).round(3)
            array([0.84 , 2.238])
            """,
        ),
    )
)
GAMMA = Kernel(
    "rng.gamma",
    __name__,
    purpose="Gamma numbers of scale 1.",
    source="Marsaglia and Tsang (2000); below shape 1 with G(a) = G(a + 1) U^(1/a)",
    inputs=(Array("shape", ("size",), F64),),
    outputs=(Array("out", ("size",), F64),),
    scalars=_OWN_BLOCKS,
    streams=("user",),
    backends=BACKENDS,
    words=_OWN_WORDS
    | {"shape": "Positive and at most 1e300; a number that is not gives NaN.", "result": "Numbers of mean `shape`."},
    example="""
        >>> rng.gamma(np.array([0.5, 2.0, 30.0]), key=rng.key(7)).round(3)
        array([ 0.616,  3.352, 30.787])
        >>> rng.gamma(2.0, size=3, key=rng.key(7)).round(3)
        array([1.453, 3.352, 1.943])
    """,
)
INVERSE_GAUSSIAN = Kernel(
    "rng.inverse_gaussian",
    __name__,
    purpose="Inverse Gaussian numbers.",
    source="Michael, Schucany and Haas (1976), with the roots written so that nothing cancels",
    inputs=(Array("mean", ("size",), F64), Array("shape", ("size",), F64)),
    outputs=(Array("out", ("size",), F64),),
    scalars=_OWN_BLOCKS,
    streams=("user",),
    backends=BACKENDS,
    words=_OWN_WORDS
    | {
        "mean": "Positive and finite; a number that is not gives NaN.",
        "shape": "Positive and finite; a number that is not gives NaN. Where mean / shape is beyond 1e300, the result is 0.",
        "first_item": "Number e owns the two blocks, draw 0 and 1, of item first_item + e < 2^32.",
        "result": "Numbers of mean `mean` and variance mean^3 / shape.",
    },
    example="""
        >>> rng.inverse_gaussian(np.array([1.0, 2.0]), 3.0, key=rng.key(7)).round(3)
        array([0.905, 0.892])
    """,
)
POLYA_GAMMA = Kernel(
    "rng.polya_gamma",
    __name__,
    purpose="Polya-Gamma numbers PG(1, z).",
    source="Polson, Scott and Windle (2013), with the cut 0.64; Devroye (2009)",
    inputs=(Array("z", ("size",), F64),),
    outputs=(Array("out", ("size",), F64),),
    scalars=_OWN_BLOCKS,
    streams=("user",),
    backends=BACKENDS,
    words=_OWN_WORDS
    | {
        "z": "The tilt; a number that is not finite gives NaN.",
        "first_item": "Number e owns all blocks of item first_item + e < 2^32: draws 3 t to 3 t + 2 for attempt t.",
        "result": "Numbers of mean tanh(z / 2) / (2 z).",
    },
    example="""
        >>> rng.polya_gamma(np.array([0.0, 1.0, 4.0]), key=rng.key(7)).round(3)
        array([0.071, 0.315, 0.108])
    """,
)

COUNTS = Kernel(
    "rng.counts",
    __name__,
    purpose="Counts whose probabilities follow from each other, by inversion.",
    source="Panjer (1981)",
    inputs=tuple(Array(name, ("size",), F64) for name in ("u", "most", "first", "a", "b")),
    outputs=(Array("count", ("size",), F64), Array("sum", ("size",), F64)),
    scalars=(Scalar("terms", AT_LEAST_1),),
    backends=COMPILED,
    host="how many terms are added differs from row to row",
    words={
        "u": "What the distribution function is to reach: a uniform number, of a draw; above 1 to know the function at `most`.",
        "most": "No count is larger; infinity for no such bound.",
        "first": "P(Y = 0).",
        "a": "With b says P(Y = k) = (a + b / k) P(Y = k - 1): 0 of Poisson counts, whose mean is b.",
        "b": "See a.",
        "terms": "How many probabilities are added at most.",
        "size": "How many counts, where no array says it. Beside an array it must be the array's length.",
        "count": "The smallest k with P(Y <= k) >= u, or `most`; terms - 1 where neither is reached, sum < u and count < most.",
        "sum": "P(Y <= count).",
    },
    example="""
        >>> mean = 2.0
        >>> count, sum = rng.counts(np.array([0.1, 0.5, 0.99]), np.inf, np.exp(-mean), 0.0, mean, terms=200)
        >>> count
        array([0., 2., 6.])
    """,
)


def key(seed: int | np.random.SeedSequence, stream: str = "user", chain: int = 0) -> int:
    """Returns the 64-bit key of a stream of random numbers.

    Parameters
    ----------
    seed : int or numpy.random.SeedSequence
        The seed of the job, 0 <= seed < 2^64. Of a `SeedSequence` the seed is `seed.generate_state(1, np.uint64)[0]`: 64 bits
        that depend on all of its entropy and of its spawn_key, and no more than 64.
    stream : str
        A name of `streams()`: different uses of one seed never share a number. `register` makes another.
    chain : int
        Number of the chain, 0 where there are none.

    Returns
    -------
    int
        f(f(seed + 0x9E3779B97F4A7C15 (id + 1)) + chain), f the finaliser of splitmix64.

    Raises
    ------
    TypeError
        A seed or chain that is no integer, a stream that is no name.
    ValueError
        An unknown stream, or a seed or chain outside [0, 2^64).

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> rng.key(7)
    8409816773569330625
    >>> rng.key(7, "noise") == rng.key(7, "draws")
    False
    >>> import numpy as np
    >>> rng.key(np.random.SeedSequence(7))
    6659995153197324686
    """
    if not isinstance(stream, str):
        raise TypeError(f"rng.key: stream must be a name, got {describe(stream)}")
    number = STREAMS.get(stream)
    if number is None and stream in _registered:
        number, _ = _registered[stream]
    if number is None:
        raise ValueError(
            f"rng.key: no stream {stream!r}; there are {', '.join(streams())}; rng.register({stream!r}) makes one of your own"
        )
    if type(seed) is not int and isinstance(seed, np.random.SeedSequence):  # an int does not load numpy.random
        seed = int(seed.generate_state(1, np.uint64)[0])
    for name, value in (("seed", seed), ("chain", chain)):
        if not hasattr(value, "__index__") or np.ndim(value):
            raise TypeError(f"rng.key: {name} must be an integer, got {describe(value)}")
        if not 0 <= value < 2**64:
            raise ValueError(f"rng.key: {name} must be in [0, 2^64), got {value}")
    return _core.rng.key(seed, number, chain)


def key_of(kernel: Kernel, stream: str, seed: int, chain: int) -> int:
    """Returns the key of a kernel's stream; raises as for any of its scalars."""
    if type(seed) is not int or type(chain) is not int or not (0 <= seed < 2**64 and 0 <= chain < 2**64):
        SEED.check(kernel.public, "seed", seed)
        SEED.check(kernel.public, "chain", chain)
    return _core.rng.key(index(seed), STREAMS[stream], index(chain))


def old_key(stream: str) -> Renamed:
    """Returns what has taken the place of `key=` where a function takes a seed: the one of which that is the key."""

    def seed(key: int | None) -> int | None:
        if key is None or not 0 <= key < 2**64:
            return key
        number = index(key)
        for _ in range(2):  # back through both rounds of splitmix64; the chain is 0
            number = _unfinished(number)
        return (number - 0x9E3779B97F4A7C15 * (STREAMS[stream] + 1)) % 2**64

    return Renamed("seed", until="0.3", made=seed)


def _unfinished(number: int) -> int:
    """Returns the number of which the finaliser of splitmix64 has made this one."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        number ^= number >> shift ^ number >> 2 * shift
        number = number * pow(factor, -1, 2**64) % 2**64
    return number


def register(name: str) -> int:
    """Registers a stream of your package: under one seed, its numbers are independent of those of every other stream.

    A package calls this when it is imported. The number depends on the name alone, so all parties have the same one. A package
    may register a name again.

    Parameters
    ----------
    name : str
        Letters, digits, ".", "_" and "-" of ASCII, at least one on each side of a ".". Begin it with your package's name, such as
        "mine.proposals"; names that begin with "fedkern" are fedkern's.

    Returns
    -------
    int
        The stream's number, for C++: 2^31 + h mod 2^31, h the 4 bytes of BLAKE2b of the name, low byte first.

    Raises
    ------
    ValueError
        The name is not made so, is one of fedkern's streams or begins as these may, was registered by another package, or has the
        number of another registered name (a chance of 2^-31 for two names).

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> rng.register("mine.moves")
    3040463571
    >>> rng.key(7, "mine.moves") == rng.key(7, "moves")
    False
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name):
        wanted = "letters, digits, '_' and '-' of ASCII, in parts with '.' between them"
        raise ValueError(f"rng.register: name must be {wanted}, got {describe(name)}")
    if name.partition(".")[0] == "fedkern":
        raise ValueError(f"rng.register: names such as {name!r} are fedkern's own; begin the name with that of your package")
    if name in STREAMS:
        raise ValueError(f"rng.register: {name!r} is a stream of fedkern; begin the name with that of your package")
    package = str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0]
    number = REGISTERED + int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little") % REGISTERED
    # A copy: another thread may register meanwhile. Whoever comes second of two equal numbers sees the first.
    _, owner = _registered.setdefault(name, (number, package))
    if owner != package:
        raise ValueError(f"rng.register: {name!r} is a stream of {owner!r} already; begin the name with {package!r}")
    if others := [other for other, (its, _) in _registered.copy().items() if its == number and other != name]:
        del _registered[name]
        raise ValueError(f"rng.register: {name!r} has the number of {others[0]!r}, {number}; take another name")
    return number


def streams() -> dict[str, int]:
    """Returns name -> id of every random stream: those of streams.def, the only list of fedkern's, then registered ones.

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> rng.streams()["user"], "noise" in rng.streams()
    (0, True)
    """
    return {**STREAMS, **{name: number for name, (number, _) in _registered.copy().items()}}


def bit_generator(key: int, *, client: int = 0, step: int = 0) -> Philox4x32:
    """Returns a NumPy `BitGenerator` on the words of a key, for `numpy.random.Generator`.

    Its 32-bit numbers are the words of `words(n, key=key, client=client, step=step)`, row by row; after item 2^32 - 1 follow the
    items of the next draw, and after 2^65 numbers of 64 bits they repeat. A 64-bit number (`random_raw`) is two of these words,
    the lower half first. `Generator.random` gives the numbers of `uniform`. It has a state: the numbers that `Generator` makes
    depend on the order of its calls, and NumPy may change how it makes them.

    Parameters
    ----------
    key : int
        From `key()`, or any 64-bit number.
    client, step : int
        Words of the counter, in [0, 2^32).

    Returns
    -------
    Philox4x32
        A `BitGenerator`, which `copy`, `pickle` and threads may use as NumPy's own. `jumped(k)` is at the same place of step + k.
        `spawn` is refused: make each child its own key.

    Raises
    ------
    ValueError
        A key, client or step outside.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> generator = np.random.Generator(rng.bit_generator(rng.key(7)))
    >>> generator.random(4).round(3)
    array([0.457, 0.272, 0.432, 0.107])
    >>> rng.uniform(4, key=rng.key(7)).round(3)
    array([0.457, 0.272, 0.432, 0.107])
    """
    from ._bit_generator import Philox4x32  # here: most callers never load numpy.random

    return Philox4x32(key, client=client, step=step)


@_RENAMED
@documented(WORDS)
def words(
    size: int,
    *,
    key: int,
    client: int = 0,
    step: int = 0,
    draw: int = 0,
    first_item: int = 0,
    out: NDArray[np.uint32] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.uint32]:
    """Returns the 32-bit words of `size` consecutive Philox4x32-10 blocks."""
    _check_counter(WORDS, size, key, client, step, draw, first_item)
    counter = {"key": key, "client": client, "step": step, "draw": draw, "first_item": first_item}
    words: NDArray[np.uint32]
    (words,) = WORDS.compute((), out, n_threads, backend, {"size": size}, **counter)
    return words


@_RENAMED
@binds(words, WORDS, varying=("step",), without=("first_item", "n_threads", "backend"))
def bind_words(given: Given) -> Callable[[int], tuple[Any, ...]]:
    """Binds `words` of many steps: step -> (words,).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> draw = rng.bind_words(2, key=rng.key(7))
    >>> (words,) = draw(5)
    >>> np.array_equal(words, rng.words(2, key=rng.key(7), step=5))
    True
    """
    _check_counter(WORDS, *(given[name] for name in ("size", "key", "client", "step", "draw", "first_item")))
    return WORDS.bind_given(given, ("step",), {"size": given["size"]})


@_RENAMED
@documented(UNIFORM)
def uniform(
    size: int,
    *,
    key: int,
    client: int = 0,
    step: int = 0,
    draw: int = 0,
    first_item: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns uniform numbers on the open interval (0, 1)."""
    return _pairs(UNIFORM, size, key, client, step, draw, first_item, out, n_threads, backend)


@_RENAMED
@documented(NORMAL)
def normal(
    size: int,
    *,
    key: int,
    client: int = 0,
    step: int = 0,
    draw: int = 0,
    first_item: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns standard normal numbers."""
    return _pairs(NORMAL, size, key, client, step, draw, first_item, out, n_threads, backend)


@_RENAMED
@documented(EXPONENTIAL)
def exponential(
    size: int,
    *,
    key: int,
    client: int = 0,
    step: int = 0,
    draw: int = 0,
    first_item: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns exponential numbers of mean 1."""
    return _pairs(EXPONENTIAL, size, key, client, step, draw, first_item, out, n_threads, backend)


@_RENAMED
@documented(GAMMA)
def gamma(
    shape: NDArray[np.float64] | float,
    *,
    key: int,
    size: int | None = None,
    client: int = 0,
    step: int = 0,
    first_item: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns gamma numbers of scale 1."""
    (shapes,) = _parameters(GAMMA, size, backend, out, shape=shape)
    return _own_blocks(GAMMA, (shapes,), key, client, step, first_item, out, n_threads, backend)


@_RENAMED
@documented(INVERSE_GAUSSIAN)
def inverse_gaussian(
    mean: NDArray[np.float64] | float,
    shape: NDArray[np.float64] | float,
    *,
    key: int,
    size: int | None = None,
    client: int = 0,
    step: int = 0,
    first_item: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns inverse Gaussian numbers, density proportional to x^(-3/2) exp(-shape (x - mean)^2 / (2 mean^2 x))."""
    means, shapes = _parameters(INVERSE_GAUSSIAN, size, backend, out, mean=mean, shape=shape)
    return _own_blocks(INVERSE_GAUSSIAN, (means, shapes), key, client, step, first_item, out, n_threads, backend)


@_RENAMED
@documented(POLYA_GAMMA)
def polya_gamma(
    z: NDArray[np.float64] | float,
    *,
    key: int,
    size: int | None = None,
    client: int = 0,
    step: int = 0,
    first_item: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns Polya-Gamma numbers PG(1, z), exact."""
    (tilts,) = _parameters(POLYA_GAMMA, size, backend, out, z=z)
    return _own_blocks(POLYA_GAMMA, (tilts,), key, client, step, first_item, out, n_threads, backend)


@documented(COUNTS)
def counts(
    u: NDArray[np.float64] | float,
    most: NDArray[np.float64] | float,
    first: NDArray[np.float64] | float,
    a: NDArray[np.float64] | float,
    b: NDArray[np.float64] | float,
    *,
    terms: int,
    size: int | None = None,
    out: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns counts by their distribution function, which is added up, and the function there."""
    vectors = _parameters(COUNTS, size, backend, None, u=u, most=most, first=first, a=a, b=b)
    count: NDArray[np.float64]
    sum: NDArray[np.float64]
    count, sum = COUNTS.compute(tuple(vectors), out, n_threads, backend, terms=terms)
    return count, sum


def _pairs(
    kernel: Kernel, n: int, key: int, client: int, step: int, draw: int, item: int, out: Out, n_threads: int, backend: str | None
) -> NDArray[np.float64]:
    _check_counter(kernel, n, key, client, step, draw, item, per_block=2)
    numbers: NDArray[np.float64]
    counter = {"key": key, "client": client, "step": step, "draw": draw, "first_item": item}
    (numbers,) = kernel.compute((), out, n_threads, backend, {"size": n}, **counter)
    return numbers


def _own_blocks(
    kernel: Kernel,
    inputs: tuple[NDArray[np.float64], ...],
    key: int,
    client: int,
    step: int,
    item: int,
    out: Out,
    n_threads: int,
    backend: str | None,
) -> NDArray[np.float64]:
    n = inputs[0].size if home(inputs[0]) else 0  # what is no array is refused below
    _check_counter(kernel, n, key, client, step, 0, item)
    numbers: NDArray[np.float64]
    (numbers,) = kernel.compute(inputs, out, n_threads, backend, key=key, client=client, step=step, first_item=item)
    return numbers


def _check_counter(
    kernel: Kernel, n: int, key: int, client: int, step: int, draw: int, first_item: int, per_block: int = 1
) -> None:
    """Refuses numbers outside the counter: words are never reused by running over, or by two fractions of one integer."""
    try:
        for value in (n, key, client, step, draw, first_item):
            index(value)
    except TypeError:
        named = {"size": n, "key": key, "client": client, "step": step, "draw": draw, "first_item": first_item}
        wrong = next(name for name, value in named.items() if not hasattr(value, "__index__") or np.ndim(value))
        raise TypeError(f"{kernel.name}: {wrong} must be an integer, got {describe(named[wrong])}") from None
    if not n >= 0:
        raise ValueError(f"{kernel.name}: size must be >= 0, got {n}")
    if not 0 <= key < 2**64:
        raise ValueError(f"{kernel.name}: key must be in [0, 2^64), got {key}; rng.key() makes one")
    blocks = (n + per_block - 1) // per_block
    if not (0 <= client < LIMIT and 0 <= step < LIMIT and 0 <= draw < LIMIT and 0 <= first_item <= LIMIT - max(blocks, 1)):
        raise ValueError(
            f"{kernel.name}: the counter is exhausted: client = {client}, step = {step}, draw = {draw} and the {blocks} items "
            f"from first_item = {first_item} on must be in [0, 2^32); take another key (another seed, stream or chain)"
        )


def _parameters(kernel: Kernel, n: int | None, backend: str | None, out: Out, **values: Any) -> list[NDArray[np.float64]]:
    """Returns numbers as arrays of stride 0, where the other arrays live."""
    if n is not None:
        if not hasattr(n, "__index__") or np.ndim(n):
            raise TypeError(f"{kernel.name}: size must be an integer, got {describe(n)}")
        for name, value in values.items():
            if home(value) and value.ndim == 1 and len(value) != n:  # what is no vector is refused with its shape
                raise ValueError(f"{kernel.name}: size must be {len(value)}, the length of {name}, or be left out, got {n}")
    numbers = {name for name, value in values.items() if isinstance(value, (int, float, np.number))}
    if not numbers:
        return [*values.values()]
    if n is None:
        if len(numbers) == len(values):
            raise TypeError(f"{kernel.name}: size must be given where no array says it")
        n = next(len(value) for name, value in values.items() if name not in numbers)
    places = {home(value) for value in (*values.values(), out)} - {None}
    xp = homes.device_home().xp if places == {"cuda"} or (backend == "cuda" and not places) else np
    return [xp.broadcast_to(xp.full((), value, np.float64), (n,)) if name in numbers else value for name, value in values.items()]
