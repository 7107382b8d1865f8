# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Optimisers as single passes over a flat vector: a new state, and the step that is added to the parameters (ascent)."""
from typing import Any, Literal
import numpy as np
from numpy.typing import NDArray
from ._checks import NOT_NEGATIVE, POSITIVE, Domain, Together
from ._record import F64, WITHOUT_NUMBA, Array, Kernel, Scalar
Vector = NDArray[np.float64]
BETA1: float
BETA2: float
EPSILON: float
ADAM: Kernel
ADAGRAD: Kernel
def adam(state: Vector, gradient: Vector, *, learning_rate: float, beta1: float=BETA1, beta2: float=BETA2, epsilon: float=EPSILON, out: tuple[Vector | None, Vector | None] | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[Vector, Vector]:
    """Makes one iteration of Adam with bias correction.

    Parameters
    ----------
    state : (3, k) float64 array
        Rows m, v and t, the number of iterations so far of each element; zeros at the start.
    gradient : (k,) float64 array
        Gradient of the function that is to grow.
    learning_rate : float, > 0 and finite
        Length of the step.
    beta1 : float, in [0, 1)
        How much of m is kept.
    beta2 : float, in [0, 1)
        How much of v is kept.
    epsilon : float, >= 0 and finite
        Added to the root of v.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_state : (3, k) float64 array
        beta1 m + (1 - beta1) g, beta2 v + (1 - beta2) g^2, t + 1.
    step : (k,) float64 array
        learning_rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon), of the new m, v and t.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 5; Kingma and Ba (2015), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import optim
    >>> state, gradient = np.zeros((3, 2)), np.array([1.0, -4.0])
    >>> state, step = optim.adam(state, gradient, learning_rate=0.1)
    >>> step.round(6)
    array([ 0.1, -0.1])"""
    ...
def adagrad(state: Vector, gradient: Vector, *, learning_rate: float, epsilon: float=1e-10, out: tuple[Vector | None, Vector | None] | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[Vector, Vector]:
    """Makes one iteration of Adagrad.

    Parameters
    ----------
    state : (1, k) float64 array
        Sums G of squared gradients so far; zeros at the start.
    gradient : (k,) float64 array
        Gradient of the function that is to grow.
    learning_rate : float, > 0 and finite
        Length of the step.
    epsilon : float, >= 0 and finite
        Added to the root of G.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_state : (1, k) float64 array
        G + g^2.
    step : (k,) float64 array
        learning_rate g / (sqrt(G) + epsilon), of the new G.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 5; Duchi, Hazan and Singer (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import optim
    >>> state, gradient = np.zeros((1, 2)), np.array([1.0, -4.0])
    >>> state, step = optim.adagrad(state, gradient, learning_rate=0.1)
    >>> state
    array([[ 1., 16.]])
    >>> step.round(6)
    array([ 0.1, -0.1])"""
    ...
