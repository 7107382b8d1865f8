# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Computes Gaussian processes at fixed locations: covariances, low-rank factors and draws (docs/spec/sigma.md, section 3)."""
from typing import Any, Literal
import operator
from fedkern.errors import NumericalError
from .._checks import AT_LEAST_0, NOT_NEGATIVE, Domain, choice_of
from .._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar
from .graph import NAMES, WORDS, Floats, check_normals
__all__ = ['gp_covariance', 'gp_factor', 'gp_sample']
GP_KINDS: dict[str, Any]
GP_COVARIANCE: Kernel
GP_FACTOR: Kernel
GP_SAMPLE: Kernel
def gp_covariance(x: Floats, lengthscale: Floats, *, kind: Literal['rbf', 'matern12', 'matern32', 'matern52']='rbf', jitter: float=0.0, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> Floats:
    """Returns covariance matrices k(|x_i - x_j| / lengthscale) + jitter I.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (m,) float64 array
        A number that is not in (0, 1e150] gives NaN; below 1e-150 it counts as 1e-150.
    kind : str, "rbf" or "matern12" or "matern32" or "matern52"
        exp(-s^2 / 2); exp(-s); (1 + a) exp(-a), a = sqrt(3) s; (1 + a + a^2 / 3) exp(-a), a = sqrt(5) s.
    jitter : float, >= 0 and finite
        Added to the variances.
    out : (m, n, n) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    covariance : (m, n, n) float64 array
        One for each lengthscale.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/sigma.md, section 3; Rasmussen and Williams (2006), chapter 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> x, lengthscale = np.array([[0.0], [1.0]]), np.array([0.5, 2.0])
    >>> spatial.gp_covariance(x, lengthscale).round(3)
    array([[[1.   , 0.135],
            [0.135, 1.   ]],
    <BLANKLINE>
           [[1.   , 0.882],
            [0.882, 1.   ]]])"""
    ...
def gp_factor(x: Floats, lengthscale: Floats, *, rank: int, kind: Literal['rbf', 'matern12', 'matern32', 'matern52']='rbf', tolerance: float=1e-06, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[Floats, Floats]:
    """Returns factors F with F F' near the covariance: Cholesky with the largest remaining variance as the next pivot.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (m,) float64 array
        A number that is not in (0, 1e150] gives NaN; below 1e-150 it counts as 1e-150.
    rank : int
        Columns of a factor, >= 0.
    kind : str, "rbf" or "matern12" or "matern32" or "matern52"
        exp(-s^2 / 2); exp(-s); (1 + a) exp(-a), a = sqrt(3) s; (1 + a + a^2 / 3) exp(-a), a = sqrt(5) s.
    tolerance : float, in [1e-10, 1)
        Once the mean remaining variance is below it, the other columns are zero.
    out : tuple of 2 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    factors : (m, n, rank) float64 array
        One for each lengthscale.
    residual : (m,) float64 array
        Trace of the missing part, K - F F', which is positive semidefinite; at most n tolerance where the rank was enough.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/sigma.md, section 3; Harbrecht, Peters and Schneider (2012). Among pivots within 1e-6 of the largest the first is taken, so that rounding does not decide between locations that are mirror images.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> x, lengthscale = np.array([[0.0], [1.0], [2.0]]), np.array([3.0])
    >>> factors, residual = spatial.gp_factor(x, lengthscale, rank=2)
    >>> factors.shape, residual.round(3)
    ((1, 3, 2), array([0.006]))"""
    ...
def gp_sample(x: Floats, lengthscale: Floats, *, kind: Literal['rbf', 'matern12', 'matern32', 'matern52']='rbf', jitter: float=1e-06, seed: int, chain: int=0, client: int=0, step: int=0, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> Floats:
    """Returns draws L e with L L' = `gp_covariance`, one for each lengthscale.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (m,) float64 array
        A number that is not in (0, 1e150] gives NaN; below 1e-150 it counts as 1e-150.
    kind : str, "rbf" or "matern12" or "matern32" or "matern52"
        exp(-s^2 / 2); exp(-s); (1 + a) exp(-a), a = sqrt(3) s; (1 + a + a^2 / 3) exp(-a), a = sqrt(5) s.
    jitter : float, >= 0 and finite
        Added to the variances.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: e of row b is numbers b n .. b n + n - 1 of stream `prior_draws`.
    out : (m, n) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    theta : (m, n) float64 array
        The draws.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.
    NumericalError
        A covariance has no Cholesky factor: its lengthscale is named.

    Source: docs/spec/sigma.md, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> x, lengthscale = np.array([[0.0], [1.0]]), np.array([0.5, 2.0])
    >>> spatial.gp_sample(x, lengthscale, seed=7).round(3)
    array([[ 0.674,  1.094],
           [-1.372, -1.444]])"""
    ...
