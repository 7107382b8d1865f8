"""Clipping and noise for differentially private sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._checks import ABOVE_0, NOT_NEGATIVE, SEED, WORD, Domain
from ._record import BACKENDS, F64, Array, Kernel, Scalar

CLIP_SUM = Kernel(
    "privacy.clip_sum",
    __name__,
    purpose="Sum of rows, each scaled to a Euclidean norm of at most `bound`.",
    source="docs/methods/pvi.md, section 4, steps 2-3",
    inputs=(Array("rows", ("n", "p")),),
    scalars=(Scalar("bound", ABOVE_0),),
    outputs=(Array("out", ("p",), F64),),
    backends=BACKENDS,
)

ADD_NOISE = Kernel(
    "privacy.add_noise",
    __name__,
    purpose="A sum plus normal noise that a key repeats: for experiments, not for privacy.",
    source="docs/methods/pvi.md, section 4, step 4",
    inputs=(Array("total", ("d",), F64),),
    scalars=(Scalar("sigma", NOT_NEGATIVE), Scalar("key", SEED), Scalar("client", WORD, 0), Scalar("step", WORD, 0)),
    outputs=(Array("out", ("d",), F64),),
    streams=("noise",),
    backends=BACKENDS,
)

# The parameter of the discrete Gaussian is at most this: then every comparison fits into 64 bits and a carry.
LARGEST_SIGMA = 2**31 - 1

DISCRETE_GAUSSIAN = Kernel(
    "privacy.discrete_gaussian",
    __name__,
    purpose="Exact draws of the discrete Gaussian distribution, from given uniform words.",
    source="docs/methods/pvi.md, section 4; Canonne, Kamath and Steinke (2020), Algorithms 1 to 3",
    inputs=(Array("words", ("w",), (np.dtype("uint32"),)),),
    scalars=(Scalar("sigma", Domain("must be an integer in [1, 2^31)", f"1 <= x <= {LARGEST_SIGMA}", "int(x)")),),
    outputs=(Array("out", ("n",), (np.dtype("int64"),)),),
    order=("words", "sigma", "out"),
    host="secret words are used one after the other",
)


def clip_sum(
    rows: NDArray[np.float64] | NDArray[np.float32],
    bound: float,
    *,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Sum of rows, each scaled to a Euclidean norm of at most `bound`.

    Parameters
    ----------
    rows : (n, p) array, float32 or float64
        One vector for each example. A row whose squared norm is not finite counts as nothing.
    bound : float
        The clipping norm, > 0, in the units of `rows`.
    out : (p,) float64 array, optional
        Filled and returned; never converted.

    Returns
    -------
    (p,) float64 array
        sum_i min(1, bound (1 - 1e-9) / ||rows_i||) rows_i: replacing one row moves it by at most 2 bound, adding one by at most
        bound, whatever the rounding.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, `bound` not positive, `out` read-only or overlapping `rows`.

    Source: Abadi et al. (2016), Algorithm 1.
    """
    total: NDArray[np.float64] = CLIP_SUM.run((rows,), out, n_threads, backend, bound=bound)[0]
    return total


def add_noise(
    total: NDArray[np.float64],
    *,
    sigma: float,
    key: int,
    client: int = 0,
    step: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """A sum plus normal noise that a key repeats. For experiments: whoever knows the key can take the noise off again.

    Parameters
    ----------
    total : (d,) float64 array
    sigma : float
        Standard deviation of the noise, >= 0 and finite, in the units of `total`.
    key : int
        From `rng.key(seed, "noise")`.
    client, step : int
        The counter's words, each in [0, 2^32): no pair may come twice under one key.
    out : (d,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.

    Returns
    -------
    (d,) float64 array
        total + sigma z, z = rng.normal(d, key=key, client=client, step=step).

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, `out` read-only or overlapping `total`.

    Source: Abadi et al. (2016), Algorithm 1.
    """
    noisy: NDArray[np.float64]
    (noisy,) = ADD_NOISE.run((total,), out, n_threads, backend, sigma=sigma, key=key, client=client, step=step)
    return noisy


def discrete_gaussian(
    words: NDArray[np.uint32],
    sigma: int,
    n: int,
    *,
    out: NDArray[np.int64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[np.int64], int]:
    """Exact draws of the discrete Gaussian, P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers, by comparing integers only.

    Parameters
    ----------
    words : (w,) uint32 array
        Uniform words, about 11 a draw (19 for sigma = 1). The draws are as secret as the words are.
    sigma : int
        The parameter, 1 <= sigma < 2^31; the standard deviation is less by a part in exp(2 pi^2 sigma^2).
    n : int
        How many draws are wanted.
    out : (n,) int64 array, optional
        Filled and returned; never converted.
    n_threads : int
        Changes nothing: a draw begins at the word after the last one's.

    Returns
    -------
    draws : (m,) int64 array
        The first m elements of `out`; m < n if the words ran out.
    used : int
        How many words these draws took. Where more are wanted, words[used:] must come *first* in the next call: whoever
        throws them away favours draws that need few words.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, `sigma` outside its domain, `out` read-only or overlapping `words`.

    Source: Canonne, Kamath and Steinke (2020), Algorithms 1 to 3.
    """
    numbers = DISCRETE_GAUSSIAN.numbers(sigma=sigma)
    arrays = DISCRETE_GAUSSIAN.prepare({"words": words}, out, {"n": n})
    done, used = DISCRETE_GAUSSIAN.call(backend, arrays, numbers, n_threads)
    draws = arrays[-1]
    return draws if done == n else draws[:done], int(used)
