# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Mean-field inference of autoregressive priors with Gaussian observations: many steps in one call."""
from typing import Any
import numpy as np
from .._checks import NUMBER, POSITIVE, SEED, WORD, require
from .._record import COMPILED, F64, Array, Kernel, Out, Scalar
from ._checks import HIGH, INT64, LOW, WIDEST, WORDS, Floats, Indices
from .car import PROPER
__all__ = ['car_meanfield']
CAR_MEANFIELD: Kernel
def car_meanfield(y: Floats, weight: Floats, indptr: Indices, indices: Indices, logdet: Floats, parameters: Floats, moments: Floats, rates: Floats, *, form: str='car', lo: float=0.0, hi: float=0.99, widest: float=2.0, prior_mean: float=0.0, prior_variance: float=2.0, seed: int, chain: int=0, first: int=0, out: Out=None, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats, Floats]:
    """Steps of Adam on the evidence lower bound of y_i ~ N(theta_i, 1 / weight_i), theta ~ N(0, Q(phi)^-1), logit phi normal.

    The family is N(mean, diag(sd^2)) on (theta, x), phi = lo + (hi - lo) sigmoid(x). A step takes one draw
    mean + sd e, the gradient g of the log joint density there, g in the means and g sd e + 1 in log sd, and
    Adam (0.9, 0.999, 1e-8).

    Parameters
    ----------
    y : (n,) float64 array
        Observations.
    weight : (n,) float64 array
        1 / the observations' variances: 0 where there is none.
    indptr : (n+1,) int64 array
        The graph: see the module `spatial`.
    indices : (e,) int64 array
        The graph: see the module `spatial`.
    logdet : (k,) float64 array
        `logdet_table(..).coefficients`, k >= 1.
    parameters : (2, n+1) float64 array
        Means of theta and x, and the logs of their standard deviations.
    moments : (2, 2, n+1) float64 array
        Adam's means of gradients and of their squares: zeros before step 0.
    rates : (steps,) float64 array
        The learning rate of each step.
    form : str, "car" or "leroux"
        Q = D - phi W ("car"), or (1 - phi) I + phi (D - W) ("leroux").
    lo : float, in [0, 1), lo <= hi
        Of the same table; less than hi.
    hi : float, in [0, 1), lo <= hi
        Of the same table.
    widest : float, >= 1
        Of the same table.
    prior_mean : float, a number
        Of logit phi, before it is truncated to [lo, hi].
    prior_variance : float, > 0 and finite
        Of logit phi, before it is truncated to [lo, hi].
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers.
    first : int, in [0, 2^32)
        Names the random numbers: step t of the call has number first + t; its e are the first n + 1 of stream `draws`.
    out : tuple of 3 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_parameters : (2, n+1) float64 array
        Those after the last step: two calls of half the steps give the bits of one.
    new_moments : (2, 2, n+1) float64 array
        Those after the last step.
    trace : (steps,) float64 array
        The bound at each draw, but for a constant. NaN from the step on whose bound or gradient is not finite: it is not
        applied, and ends the call.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an index outside the graph, a number outside its range, a wrong `out`.

    Source: docs/methods/sigma.md, sections 3, 6 and 8; Kingma and Ba (2015)."""
    ...
