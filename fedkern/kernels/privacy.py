"""Clipping and noise for differentially private sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._deprecate import Renamed, arguments
from . import rng
from ._checks import AT_LEAST_0, NOT_NEGATIVE, WORD, Domain
from ._docs import documented
from ._record import BACKENDS, F64, Array, Kernel, Scalar

__all__ = ["add_noise", "clip_sum", "discrete_gaussian"]

CLIP_SUM = Kernel(
    "privacy.clip_sum",
    __name__,
    purpose="Sum of rows, each scaled to a Euclidean norm of at most `clip`.",
    source="docs/spec/pvi.md, section 4, steps 2-3; Abadi et al. (2016), Algorithm 1",
    inputs=(Array("rows", ("n", "p")),),
    scalars=(Scalar("bound", Domain("must be >= 1e-150", "x >= 1e-150", "float(x)"), of="clip"),),
    outputs=(Array("out", ("p",), F64),),
    backends=BACKENDS,
    words={
        "rows": "One vector for each example. A row whose squared norm is not finite counts as nothing.",
        "clip": "The clipping norm, in the units of `rows`. Squares of smaller numbers would be 0.",
        "result": "sum_i w_i rows_i, w_i = min(1, clip (1 - 1e-9) / ||rows_i||), or 1 - 2e-5 for float32 rows. No w_i rows_i is "
        "longer than `clip`, whatever the rounding: adding a row moves their exact sum by at most clip, replacing one by at "
        "most 2 clip. The sum itself is rounded; with a grid `glm.clipped_grad_sum` rounds none. Float32 rows are computed in "
        "float32, 64 rows at a time: an element is off by at most 5e-6 of the sum of its absolute terms.",
    },
    example="""
        >>> rows = np.array([[3.0, 4.0], [0.3, 0.4]])
        >>> privacy.clip_sum(rows, clip=1.0).round(6)
        array([0.9, 1.2])
    """,
)

ADD_NOISE = Kernel(
    "privacy.add_noise",
    __name__,
    purpose="A sum plus normal noise that a seed repeats: for experiments, not for privacy.",
    source="docs/spec/pvi.md, section 4, step 4; Abadi et al. (2016), Algorithm 1",
    inputs=(Array("total", ("d",), F64),),
    scalars=(Scalar("sigma", NOT_NEGATIVE), rng.MADE_KEY, Scalar("client", WORD, 0), Scalar("step", WORD, 0)),
    outputs=(Array("out", ("d",), F64),),
    streams=("noise",),
    backends=BACKENDS,
    words={
        "total": "The sum.",
        "sigma": "Standard deviation of the noise, in the units of `total`.",
        "seed": "Names the noise, in [0, 2^64).",
        "chain": "Names the noise.",
        "client": "Names the noise: no pair of client and step may come twice of one seed and chain.",
        "step": "Names the noise.",
        "result": 'total + sigma z, z = rng.normal(d, key=rng.key(seed, "noise", chain), client=client, step=step).',
    },
    example="""
        >>> total = np.array([10.0, 20.0])
        >>> privacy.add_noise(total, sigma=0.5, seed=7).round(3)
        array([10.013, 20.341])
        >>> privacy.add_noise(total, sigma=0.5, seed=7, step=1).round(3)
        array([ 9.118, 19.433])
    """,
)

# The parameter of the discrete Gaussian is at most this: then every comparison fits into 64 bits and a carry.
LARGEST_SIGMA = 2**31 - 1

DISCRETE_GAUSSIAN = Kernel(
    "privacy.discrete_gaussian",
    __name__,
    purpose="Exact draws of the discrete Gaussian distribution, from given uniform words.",
    source="docs/spec/pvi.md, section 4; Canonne, Kamath and Steinke (2020), Algorithms 1 to 3",
    inputs=(Array("words", ("w",), (np.dtype("uint32"),)),),
    scalars=(Scalar("sigma", Domain("must be an integer in [1, 2^31)", f"1 <= x <= {LARGEST_SIGMA} and x == int(x)", "int(x)")),),
    outputs=(Array("out", ("size",), (np.dtype("int64"),)),),
    order=("words", "sigma", "out"),
    host="secret words are used one after the other",
    words={
        "words": "Uniform words, about 11 a draw (12.3 for sigma = 1, 11.5 for 2). The draws are as secret as the words are.",
        "sigma": "The parameter. The standard deviation is sigma (1 - 4 pi^2 sigma^2 exp(-2 pi^2 sigma^2)), but for squares of "
        "that exponential: less by a part of 1e-7 for sigma = 1.",
        "size": "How many draws are wanted.",
        "n_threads": "Changes nothing: a draw begins at the word after the last one's.",
        "draws": "The first m elements of `out`; m < size if the words ran out.",
        "used": "How many words these draws took. Where more are wanted, words[used:] must come *first* in the next call: "
        "whoever throws them away favours draws that need few words.",
    },
    results=("draws : (m,) int64 array", "used : int"),
    example="""
        >>> words = rng.words(30, key=rng.key(7)).ravel()  # a private job takes secret words
        >>> draws, used = privacy.discrete_gaussian(words, sigma=3, size=6)
        >>> draws
        array([-3,  0,  0,  0,  2, -4])
        >>> words.size, used
        (120, 54)
    """,
)


@arguments(bound=Renamed("clip", until="0.3"))
@documented(CLIP_SUM)
def clip_sum(
    rows: NDArray[np.float64] | NDArray[np.float32],
    clip: float,
    *,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns the sum of rows, each scaled to a Euclidean norm of at most `clip`."""
    total: NDArray[np.float64] = CLIP_SUM.compute((rows,), out, n_threads, backend, clip=clip)[0]
    return total


@arguments(key=rng.old_key("noise"))
@documented(ADD_NOISE)
def add_noise(
    total: NDArray[np.float64],
    *,
    sigma: float,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns a sum plus normal noise that a seed repeats. It is for experiments: whoever knows the seed can take the noise off
    again."""
    key = rng.key_of(ADD_NOISE, "noise", seed, chain)
    noisy: NDArray[np.float64]
    (noisy,) = ADD_NOISE.compute((total,), out, n_threads, backend, sigma=sigma, key=key, client=client, step=step)
    return noisy


@arguments(n=Renamed("size", until="0.3"))
@documented(DISCRETE_GAUSSIAN)
def discrete_gaussian(
    words: NDArray[np.uint32],
    sigma: int,
    size: int,
    *,
    out: NDArray[np.int64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[np.int64], int]:
    """Returns exact draws of the discrete Gaussian, P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers, by comparing integers
    only."""
    numbers = DISCRETE_GAUSSIAN.numbers(sigma=sigma)
    AT_LEAST_0.check(DISCRETE_GAUSSIAN.public, "size", size)
    arrays = DISCRETE_GAUSSIAN.prepare({"words": words}, out, {"size": size})
    done, used = DISCRETE_GAUSSIAN.call(backend, arrays, numbers, n_threads)
    draws = arrays[-1]
    made = draws if done == size else draws[:done]
    return made, int(used)
