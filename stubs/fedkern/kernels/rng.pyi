# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Random numbers as a function of (key, counter): Philox4x32-10. Nothing here has a state.

The key says seed, stream and chain; the counter says which item, draw, client and step. The same words come from every backend,
for any number of threads and in any order; floating-point numbers made of them agree to a few units in the last place.
"""
from typing import Any, Literal
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
from . import homes
from ._checks import KEY, WORD, Domain, describe
from ._record import BACKENDS, F64, Array, Kernel, Out, Scalar, home
from ._bit_generator import Philox4x32
WORDS_TYPE: tuple[Any, ...]
LIMIT: int
STREAMS: dict[str, Any]
REGISTERED: int
WORDS: Kernel
UNIFORM: Kernel
NORMAL: Kernel
EXPONENTIAL: Kernel
GAMMA: Kernel
INVERSE_GAUSSIAN: Kernel
POLYA_GAMMA: Kernel
def key(seed: int | np.random.SeedSequence, stream: str='user', chain: int=0) -> int:
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
    6659995153197324686"""
    ...
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
    False"""
    ...
def streams() -> dict[str, int]:
    """Returns name -> id of every random stream: those of streams.def, the only list of fedkern's, then registered ones.

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> rng.streams()["user"], "noise" in rng.streams()
    (0, True)"""
    ...
def bit_generator(key: int, *, client: int=0, step: int=0) -> Philox4x32:
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
    array([0.457, 0.272, 0.432, 0.107])"""
    ...
def words(n: int, *, key: int, client: int=0, step: int=0, draw: int=0, first_item: int=0, out: NDArray[np.uint32] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.uint32]:
    """Returns the 32-bit words of `n` consecutive Philox4x32-10 blocks.

    Parameters
    ----------
    n : int
        How many blocks.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    draw : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Row i of the result is the block of item first_item + i < 2^32.
    out : (n, 4) uint32 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default cpp. All give the same bits.

    Returns
    -------
    result : (n, 4) uint32 array
        The words of a block in each row.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Salmon, Moraes, Dror and Shaw (2011), Philox4x32-10.

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> rng.words(2, key=rng.key(7))
    array([[4263607705, 1961988155, 3595974273, 1168623564],
           [ 123178867, 1853623042, 2465252756,  458130038]], dtype=uint32)"""
    ...
def bind_words(n: int, *, key: int, client: int=0, draw: int=0) -> Callable[[int], tuple[Any, ...]]:
    """Binds `words` of many steps: step -> (words,).

    Parameters
    ----------
    n : int
        How many blocks.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    client : int, in [0, 2^32)
        A word of the counter.
    draw : int, in [0, 2^32)
        A word of the counter.

    Raises
    ------
    TypeError, ValueError
        Here, what `words` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: Salmon, Moraes, Dror and Shaw (2011), Philox4x32-10.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> draw = rng.bind_words(2, key=rng.key(7))
    >>> (words,) = draw(5)
    >>> np.array_equal(words, rng.words(2, key=rng.key(7), step=5))
    True"""
    ...
def uniform(n: int, *, key: int, client: int=0, step: int=0, draw: int=0, first_item: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns uniform numbers on the open interval (0, 1).

    Parameters
    ----------
    n : int
        How many numbers.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    draw : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Number e is half e % 2 of the block of item first_item + e // 2 < 2^32.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default cpp. All give the same bits.

    Returns
    -------
    result : (n,) float64 array
        (k + 1/2) 2^-52, k 52 random bits: never 0 and never 1.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: (k + 1/2) 2^-52 of 52 random bits k.

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> key = rng.key(7)
    >>> rng.uniform(4, key=key).round(3)
    array([0.457, 0.272, 0.432, 0.107])
    >>> rng.uniform(2, key=key, first_item=1).round(3)
    array([0.432, 0.107])"""
    ...
def normal(n: int, *, key: int, client: int=0, step: int=0, draw: int=0, first_item: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns standard normal numbers.

    Parameters
    ----------
    n : int
        How many numbers.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    draw : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Number e belongs to the block of item first_item + e // 2 < 2^32: its cosine for even e, its sine for odd e.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default cpp. They agree within 1e-14.

    Returns
    -------
    result : (n,) float64 array
        sqrt(-2 log u) (cos 2 pi v, sin 2 pi v) of the two uniforms of a block; at most 8.58 in size.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Box and Muller (1958).

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> key = rng.key(7)
    >>> rng.normal(4, key=key).round(3)
    array([-0.173,  1.24 ,  1.016,  0.805])
    >>> rng.normal(2, key=key, first_item=1).round(3)
    array([1.016, 0.805])"""
    ...
def exponential(n: int, *, key: int, client: int=0, step: int=0, draw: int=0, first_item: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns exponential numbers of mean 1.

    Parameters
    ----------
    n : int
        How many numbers.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    draw : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Number e is half e % 2 of the block of item first_item + e // 2 < 2^32.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default cpp. They agree within a few units in the last place.

    Returns
    -------
    result : (n,) float64 array
        -log(u): positive, at most 36.8.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: -log(uniform).

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> key = rng.key(7)
    >>> rng.exponential(4, key=key).round(3)
    array([0.783, 1.302, 0.84 , 2.238])
    >>> rng.exponential(2, key=key, first_item=1).round(3)
    array([0.84 , 2.238])"""
    ...
def gamma(shape: NDArray[np.float64] | float, *, key: int, n: int | None=None, client: int=0, step: int=0, first_item: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns gamma numbers of scale 1.

    Parameters
    ----------
    shape : (n,) float64 array, or float
        Positive and at most 1e300; a number that is not gives NaN.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    n : int, optional
        How many numbers, where no array says it. Beside an array it must be the array's length.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Number e owns all blocks of item first_item + e < 2^32: draw 2 t and 2 t + 1 for attempt t. A rejection shifts no other.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live. They agree within a relative 1e-12.

    Returns
    -------
    result : (n,) float64 array
        Numbers of mean `shape`.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Marsaglia and Tsang (2000); below shape 1 with G(a) = G(a + 1) U^(1/a).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> rng.gamma(np.array([0.5, 2.0, 30.0]), key=rng.key(7)).round(3)
    array([ 0.616,  3.352, 30.787])
    >>> rng.gamma(2.0, n=3, key=rng.key(7)).round(3)
    array([1.453, 3.352, 1.943])"""
    ...
def inverse_gaussian(mean: NDArray[np.float64] | float, shape: NDArray[np.float64] | float, *, key: int, n: int | None=None, client: int=0, step: int=0, first_item: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns inverse Gaussian numbers, density proportional to x^(-3/2) exp(-shape (x - mean)^2 / (2 mean^2 x)).

    Parameters
    ----------
    mean : (n,) float64 array, or float
        Positive and finite; a number that is not gives NaN.
    shape : (n,) float64 array, or float
        Positive and finite; a number that is not gives NaN. Where mean / shape is beyond 1e300, the result is 0.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    n : int, optional
        How many numbers, where no array says it. Beside an array it must be the array's length.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Number e owns the two blocks, draw 0 and 1, of item first_item + e < 2^32.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live. They agree within a relative 1e-12.

    Returns
    -------
    result : (n,) float64 array
        Numbers of mean `mean` and variance mean^3 / shape.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Michael, Schucany and Haas (1976), with the roots written so that nothing cancels.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> rng.inverse_gaussian(np.array([1.0, 2.0]), 3.0, key=rng.key(7)).round(3)
    array([0.905, 0.892])"""
    ...
def polya_gamma(z: NDArray[np.float64] | float, *, key: int, n: int | None=None, client: int=0, step: int=0, first_item: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns Polya-Gamma numbers PG(1, z), exact.

    Parameters
    ----------
    z : (n,) float64 array, or float
        The tilt; a number that is not finite gives NaN.
    key : int, in [0, 2^64)
        From `key()`, or any 64-bit number.
    n : int, optional
        How many numbers, where no array says it. Beside an array it must be the array's length.
    client : int, in [0, 2^32)
        A word of the counter.
    step : int, in [0, 2^32)
        A word of the counter.
    first_item : int, in [0, 2^32)
        Number e owns all blocks of item first_item + e < 2^32: draws 3 t to 3 t + 2 for attempt t.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live. They agree within a relative 1e-12.

    Returns
    -------
    result : (n,) float64 array
        Numbers of mean tanh(z / 2) / (2 z).

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: Polson, Scott and Windle (2013), with the cut 0.64; Devroye (2009).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import rng
    >>> rng.polya_gamma(np.array([0.0, 1.0, 4.0]), key=rng.key(7)).round(3)
    array([0.071, 0.315, 0.108])"""
    ...
