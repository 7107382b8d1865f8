# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Clipping and noise for differentially private sums."""
from typing import Any, Literal
import numpy as np
from numpy.typing import NDArray
from ._checks import NOT_NEGATIVE, SEED, WORD, Domain
from ._record import BACKENDS, F64, Array, Kernel, Scalar
CLIP_SUM: Kernel
ADD_NOISE: Kernel
LARGEST_SIGMA: int
DISCRETE_GAUSSIAN: Kernel
def clip_sum(rows: NDArray[np.float64] | NDArray[np.float32], bound: float, *, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns the sum of rows, each scaled to a Euclidean norm of at most `bound`.

    Parameters
    ----------
    rows : (n, p) array, float32 or float64
        One vector for each example. A row whose squared norm is not finite counts as nothing.
    bound : float, >= 1e-150
        The clipping norm, in the units of `rows`. Squares of smaller numbers would be 0.
    out : (p,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    result : (p,) float64 array
        sum_i w_i rows_i, w_i = min(1, bound (1 - 1e-9) / ||rows_i||), or 1 - 2e-5 for float32 rows. No w_i rows_i is longer
        than `bound`, whatever the rounding: adding a row moves their exact sum by at most bound, replacing one by at most 2
        bound. The sum itself is rounded; with a grid `glm.clipped_grad_sum` rounds none. Float32 rows are computed in float32,
        64 rows at a time: an element is off by at most 5e-6 of the sum of its absolute terms.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 4, steps 2-3; Abadi et al. (2016), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import privacy
    >>> rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> privacy.clip_sum(rows, bound=1.0).round(6)
    array([0.9, 1.2])"""
    ...
def add_noise(total: NDArray[np.float64], *, sigma: float, key: int, client: int=0, step: int=0, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns a sum plus normal noise that a key repeats. It is for experiments: whoever knows the key can take the noise off
    again.

    Parameters
    ----------
    total : (d,) float64 array
        The sum.
    sigma : float, >= 0 and finite
        Standard deviation of the noise, in the units of `total`.
    key : int, in [0, 2^64)
        From `rng.key(seed, "noise")`.
    client : int, in [0, 2^32)
        A word of the counter: no pair of client and step may come twice under one key.
    step : int, in [0, 2^32)
        A word of the counter.
    out : (d,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    result : (d,) float64 array
        total + sigma z, z = rng.normal(d, key=key, client=client, step=step).

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 4, step 4; Abadi et al. (2016), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import privacy, rng
    >>> total, key = np.array([10.0, 20.0]), rng.key(7, "noise")
    >>> privacy.add_noise(total, sigma=0.5, key=key).round(3)
    array([10.013, 20.341])
    >>> privacy.add_noise(total, sigma=0.5, key=key, step=1).round(3)
    array([ 9.118, 19.433])"""
    ...
def discrete_gaussian(words: NDArray[np.uint32], sigma: int, n: int, *, out: NDArray[np.int64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> tuple[NDArray[np.int64], int]:
    """Returns exact draws of the discrete Gaussian, P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers, by comparing integers
    only.

    Parameters
    ----------
    words : (w,) uint32 array
        Uniform words, about 11 a draw (12.3 for sigma = 1, 11.5 for 2). The draws are as secret as the words are.
    sigma : int, an integer in [1, 2^31)
        The parameter. The standard deviation is sigma (1 - 4 pi^2 sigma^2 exp(-2 pi^2 sigma^2)), but for squares of that
        exponential: less by a part of 1e-7 for sigma = 1.
    n : int
        How many draws are wanted.
    out : (n,) int64 array, optional
        Filled and returned; never converted.
    n_threads : int
        Changes nothing: a draw begins at the word after the last one's.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    draws : (m,) int64 array
        The first m elements of `out`; m < n if the words ran out.
    used : int
        How many words these draws took. Where more are wanted, words[used:] must come *first* in the next call: whoever throws
        them away favours draws that need few words.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 4; Canonne, Kamath and Steinke (2020), Algorithms 1 to 3.

    Examples
    --------
    >>> from fedkern.kernels import privacy, rng
    >>> words = rng.words(30, key=rng.key(7)).ravel()  # a private job takes secret words
    >>> draws, used = privacy.discrete_gaussian(words, sigma=3, n=6)
    >>> draws
    array([-3,  0,  0,  0,  2, -4])
    >>> words.size, used
    (120, 54)"""
    ...
