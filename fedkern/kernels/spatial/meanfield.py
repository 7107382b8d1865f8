"""Mean-field inference of autoregressive priors with Gaussian observations: many steps in one call."""

from __future__ import annotations

import numpy as np

from .._checks import NUMBER, POSITIVE, SEED, WORD, require
from .._docs import documented
from .._record import COMPILED, F64, Array, Kernel, Out, Scalar
from ._checks import HIGH, INT64, LOW, WIDEST, WORDS, Floats, Indices
from .car import PROPER

__all__ = ["car_meanfield"]

CAR_MEANFIELD = Kernel(
    "spatial.car_meanfield",
    __name__,
    purpose="Steps of mean-field variational inference of an autoregressive prior with Gaussian observations.",
    source="docs/methods/sigma.md, sections 3, 6 and 8; Kingma and Ba (2015)",
    inputs=(
        Array("y", ("n",), F64),
        Array("weight", ("n",), F64),
        Array("indptr", ("n+1",), INT64),
        Array("indices", ("e",), INT64),
        Array("logdet", ("k",), F64),
        Array("parameters", ("2", "n+1"), F64),
        Array("moments", ("2", "2", "n+1"), F64),
        Array("rates", ("steps",), F64),
    ),
    outputs=(
        Array("new_parameters", ("2", "n+1"), F64),
        Array("new_moments", ("2", "2", "n+1"), F64),
        Array("trace", ("steps",), F64),
    ),
    scalars=(
        PROPER,
        LOW,
        HIGH,
        WIDEST,
        Scalar("prior_mean", NUMBER, 0.0),
        Scalar("prior_variance", POSITIVE, 2.0),
        Scalar("seed", SEED),
        Scalar("chain", SEED, 0),
        Scalar("first", WORD, 0),
    ),
    streams=("draws",),
    host="20 to 40 us on a CPU: less than its launches would take",
    backends=COMPILED,
    words=WORDS
    | {
        "y": "Observations.",
        "weight": "1 / the observations' variances: 0 where there is none.",
        "parameters": "Means of theta and x, and the logs of their standard deviations.",
        "moments": "Adam's means of gradients and of their squares: zeros before step 0.",
        "rates": "The learning rate of each step.",
        "form": 'Q = D - phi W ("car"), or (1 - phi) I + phi (D - W) ("leroux").',
        "lo": "Of the same table; less than hi.",
        "prior_mean": "Of logit phi, before it is truncated to [lo, hi].",
        "prior_variance": "Of logit phi, before it is truncated to [lo, hi].",
        "first": "Names the random numbers: step t of the call has number first + t; its e are the first n + 1 of stream "
        "`draws`.",
        "new_parameters": "Those after the last step: two calls of half the steps give the bits of one.",
        "new_moments": "Those after the last step.",
        "trace": "The bound at each draw, but for a constant. NaN from the step on whose bound or gradient is not finite: it is "
        "not applied, and ends the call.",
    },
)


@documented(CAR_MEANFIELD)
def car_meanfield(
    y: Floats,
    weight: Floats,
    indptr: Indices,
    indices: Indices,
    logdet: Floats,
    parameters: Floats,
    moments: Floats,
    rates: Floats,
    *,
    form: str = "car",
    lo: float = 0.0,
    hi: float = 0.99,
    widest: float = 2.0,
    prior_mean: float = 0.0,
    prior_variance: float = 2.0,
    seed: int,
    chain: int = 0,
    first: int = 0,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Steps of Adam on the evidence lower bound of y_i ~ N(theta_i, 1 / weight_i), theta ~ N(0, Q(phi)^-1), logit phi normal.

    The family is N(mean, diag(sd^2)) on (theta, x), phi = lo + (hi - lo) sigmoid(x). A step takes one draw
    mean + sd e, the gradient g of the log joint density there, g in the means and g sd e + 1 in log sd, and
    Adam (0.9, 0.999, 1e-8).

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an index outside the graph, a number outside its range, a wrong `out`.
    """
    name = CAR_MEANFIELD.name
    require(name, 0 <= lo < hi < 1, "lo < hi", "must be in [0, 1)", (lo, hi))
    steps = len(rates) if isinstance(rates, np.ndarray) else 0
    require(name, first + steps <= 2**32, "first + steps", "must be at most 2^32", first + steps)
    return CAR_MEANFIELD.run(
        (y, weight, indptr, indices, logdet, parameters, moments, rates), out, n_threads, backend, form=form, lo=lo, hi=hi,
        widest=widest, prior_mean=prior_mean, prior_variance=prior_variance, seed=seed, chain=chain, first=first,
    )  # fmt: skip
