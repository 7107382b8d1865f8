# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Generalised linear models: log-likelihood, ELBO, expectations under a Gaussian posterior, clipped sums, predictions.

One row (x, y) has a = x'theta + offset and log p(y | a), normalised in y; the families are those of `kernels.families` that have
a code. Weights multiply a row's log-likelihood. The posterior is q = N(mu, diag(exp(2 log_sigma))) or, where `log_sigma` is a
(d, d) matrix, N(mu, L L') with L its lower triangle (the numbers above are not read).

X may have any strides and may be a memory map larger than the memory: it is read once, in blocks of rows, and never copied. Sums
are taken in a fixed order that depends on the number of rows alone: results do not depend on `n_threads`.

Draws come from counters: draw s of the weights is theta_s = mu + sigma e_s with e_s = rng.normal(d, key=key, client=client,
step=step, draw=s), in every backend.
"""
from typing import Any, Literal
from collections.abc import Callable
from typing import Any
import numpy as np
from numpy.typing import NDArray
from . import families
from ._checks import MADE, OPTIONAL_KEY, WORD, Domain, Together, choice_of
from ._record import BACKENDS, F64, FLOATS, Array, Kernel, Scalar, here, home, on_host
Real = NDArray[np.float64] | NDArray[np.float32]
Vector = NDArray[np.float64]
Response = np.ndarray
ClippedSums = Callable[..., tuple[Any, ...]]
METHODS: dict[str, Any]
CLIPPED_ESTIMATORS: dict[str, Any]
ELBO_ESTIMATORS: dict[str, Any]
LOGLIK_GRAD: Kernel
ELBO_GRAD: Kernel
ELBO_GRAD_FULL: Kernel
EXPECTATIONS: Kernel
EXPECTATIONS_FULL: Kernel
CLIPPED_GRAD_SUM: Kernel
CLIPPED_GRAD_SUM_FULL: Kernel
PREDICT: Kernel
PREDICT_FULL: Kernel
def loglik_grad(X: Real, y: Response, theta: Vector, *, family: Literal['bernoulli', 'poisson', 'gaussian', 'negative-binomial'], offset: Real | None=None, weights: Real | None=None, scale: float=1.0, out: Vector | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> tuple[float, Vector]:
    """Returns the log-likelihood of all rows and its gradient.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Covariates, a row for each observation.
    y : (n,) array, float64, float32, int64, int32, int8, uint8 or bool
        The response. A value that the family does not have makes the result NaN, as does NaN anywhere else.
    theta : (d,) float64 array
        Coefficients.
    family : str, "bernoulli" or "poisson" or "gaussian" or "negative-binomial"
        The likelihood.
    offset : (n,) array, float32 or float64, optional
        Added to x'theta.
    weights : (n,) array, float32 or float64, optional
        Multiply each row's log-likelihood.
    scale : float, positive and finite
        Dispersion of the families that have one: of the gaussian its standard deviation, in [1e-150, 1e150] (with X in float32
        [1e-15, 1e15]); of the negative-binomial r, with variance mu + mu^2 / r (`mixed` takes phi: mu + phi^2 mu^2).
    out : (d,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    loglik : float
        sum_i weights_i log p(y_i | x_i'theta + offset_i), constants included.
    grad : (d,) float64 array
        With X in float32, theta is rounded to float32 too, and each product and the sums of at most 64 rows are in float32.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an unknown family, a `scale` that is not in its range or that the family does not have.

    Source: docs/spec/pvi.md, section 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> loglik, grad = glm.loglik_grad(X, y, np.zeros(2), family="bernoulli")
    >>> round(loglik, 3), grad
    (-2.079, array([0.5 , 1.75]))"""
    ...
def elbo_grad(X: Real, y: Response, mu: Vector, log_sigma: Vector, *, family: Literal['bernoulli', 'poisson', 'gaussian', 'negative-binomial'], offset: Real | None=None, weights: Real | None=None, scale: float=1.0, prior_shift: float | Vector=0.0, prior_precision: float | Vector=1.0, estimator: Literal['stl', 'total', 'analytic']='stl', draws: int=1, key: int | None=None, client: int=0, step: int=0, out: tuple[Vector, Vector] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> tuple[float, Vector, Vector]:
    """Returns the evidence lower bound of the posterior, and its gradient.

    The bound is E_q[sum_i weights_i log p(y_i | x_i'theta + offset_i) + log prior(theta) - log q(theta)]. The prior (inside PVI:
    the cavity) is exp(prior_shift'theta - theta' P theta / 2) times its normalising constant; a P that is not positive has no
    such constant, and it is left out. With a prior that is a density the bound is a lower bound of the log evidence.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Covariates, a row for each observation.
    y : (n,) array, float64, float32, int64, int32, int8, uint8 or bool
        The response. A value that the family does not have makes the result NaN, as does NaN anywhere else.
    mu : (d,) float64 array
        Mean of the posterior.
    log_sigma : (d,) or (d, d) float64 array
        Logarithms of the posterior's standard deviations; or its (d, d) lower Cholesky factor L of the covariance, with a
        positive diagonal.
    family : str, "bernoulli" or "poisson" or "gaussian" or "negative-binomial"
        The likelihood.
    offset : (n,) array, float32 or float64, optional
        Added to x'theta.
    weights : (n,) array, float32 or float64, optional
        Multiply each row's log-likelihood.
    scale : float, positive and finite
        Dispersion of the families that have one: of the gaussian its standard deviation, in [1e-150, 1e150] (with X in float32
        [1e-15, 1e15]); of the negative-binomial r, with variance mu + mu^2 / r (`mixed` takes phi: mu + phi^2 mu^2).
    prior_shift : (d,) float64 array, or float
        Shift in the prior exp(prior_shift'theta - theta' P theta / 2).
    prior_precision : (d,) or (d, d) float64 array, or float
        P of the same prior: symmetric, or its diagonal.
    estimator : str, "stl" or "total" or "analytic"
        "stl": the path gradient, with (mu, sigma) in log q held fixed, whose variance goes to 0 where q is exact; "total": the
        gradient of the same average; "analytic": no draws, the quadrature of `expectations`, and KL(q || prior) in closed form.
    draws : int, in [1, 2^31)
        Number S of draws that are averaged.
    key : int, in [0, 2^64), optional
        Names the draws: `rng.key(seed, "draws")`. Needed unless the estimator is analytic.
    client : int, in [0, 2^32)
        Names the draws: see the module.
    step : int, in [0, 2^32)
        Names the draws: see the module.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    elbo : float
        The bound.
    grad_mu : (d,) float64 array
        Gradient in mu.
    grad_log_sigma : (d,) or (d, d) float64 array
        Gradient in log sigma; for a full-rank posterior in L, zero above the diagonal.

    Raises
    ------
    TypeError, ValueError
        As `loglik_grad`; draws without a key; a factor whose diagonal is not positive (on a device this is waited for).

    Source: docs/spec/pvi.md, sections 2, 3.1 and 3.4; Roeder, Wu, Duvenaud (2017) for "stl"; docs/spec/pvi.md, sections 2, 3.4 and 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> mu, log_sigma = np.zeros(2), np.zeros(2)
    >>> elbo, grad_mu, grad_log_sigma = glm.elbo_grad(X, y, mu, log_sigma, family="bernoulli", estimator="analytic")
    >>> round(elbo, 3), grad_mu.round(3), grad_log_sigma.round(3)
    (-2.875, array([0.5 , 1.75]), array([-0.522, -0.796]))

    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> L = np.array([[0.5, 0.0], [0.2, 0.5]])  # the posterior's covariance is L L'
    >>> elbo, grad_mu, grad_L = glm.elbo_grad(X, y, np.zeros(2), L, family="bernoulli", estimator="analytic")
    >>> round(elbo, 3), grad_L.round(3)
    (-3.019, array([[ 1.127,  0.   ],
           [-0.533,  0.985]]))"""
    ...
def expectations(X: Real, y: Response, mu: Vector, log_sigma: Vector, *, family: Literal['bernoulli', 'poisson', 'gaussian', 'negative-binomial'], offset: Real | None=None, weights: Real | None=None, scale: float=1.0, out: tuple[Vector, Vector, Vector] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> tuple[Vector, Vector, Vector]:
    """Returns expectations of each row's log-likelihood and of its first two derivatives in a, under the posterior.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Covariates, a row for each observation.
    y : (n,) array, float64, float32, int64, int32, int8, uint8 or bool
        The response. A value that the family does not have makes the result NaN, as does NaN anywhere else.
    mu : (d,) float64 array
        Mean of the posterior.
    log_sigma : (d,) or (d, d) float64 array
        Logarithms of the posterior's standard deviations; or its (d, d) lower Cholesky factor L of the covariance, with a
        positive diagonal.
    family : str, "bernoulli" or "poisson" or "gaussian" or "negative-binomial"
        The likelihood.
    offset : (n,) array, float32 or float64, optional
        Added to x'theta.
    weights : (n,) array, float32 or float64, optional
        Multiply each row's log-likelihood.
    scale : float, positive and finite
        Dispersion of the families that have one: of the gaussian its standard deviation, in [1e-150, 1e150] (with X in float32
        [1e-15, 1e15]); of the negative-binomial r, with variance mu + mu^2 / r (`mixed` takes phi: mu + phi^2 mu^2).
    out : tuple of 3 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (n,) float64 array
        weights_i E l_i with l_i(a) = log p(y_i | a), a ~ N(x_i'mu + offset_i, x_i' Cov x_i). Exact for poisson and gaussian;
        where a log(1 + e^a) is averaged (bernoulli), a trapezoid rule with 64 nodes up to a standard deviation of 5 (errors at
        most 2e-9; of the slope 6e-9, of the curvature 4e-8), beyond it a mixture over 96 steps (1e-9, 2e-10, 5e-11). NaN in a
        row, or a y that the family does not have, gives NaN in that row.
    slope : (n,) float64 array
        weights_i E l_i'.
    curvature : (n,) float64 array
        weights_i E l_i''.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 3.1; docs/spec/pvi.md, sections 3.1 and 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> value, slope, curvature = glm.expectations(X, y, np.zeros(2), np.log([0.5, 0.5]), family="poisson")
    >>> value.round(3), slope.round(3)
    (array([-1.169, -1.284, -1.868]), array([-0.169, -1.284, -0.868]))

    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> L = np.array([[0.5, 0.0], [0.2, 0.5]])
    >>> glm.expectations(X, y, np.zeros(2), L, family="poisson")[0].round(3)
    array([-1.235, -1.185, -2.472])"""
    ...
def clipped_grad_sum(X: Real, y: Response, mu: Vector, log_sigma: Vector, *, clip: float, family: Literal['bernoulli', 'poisson', 'gaussian', 'negative-binomial'], offset: Real | None=None, weights: Real | None=None, scale: float=1.0, rows: NDArray[np.int64] | None=None, estimator: Literal['analytic', 'weight-mc', 'activation-mc']='analytic', draws: int=1, key: int | None=None, client: int=0, step: int=0, grid: float | None=None, noise_multiplier: float=0.0, out: np.ndarray | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> tuple[np.ndarray, int]:
    """Returns the sum over rows of clipped gradients of the expected log-likelihood, to which DP-PVI adds noise.

    Row i has v_i, the gradient of weights_i E_q log p(y_i | x_i'theta + offset_i) in (mu, log sigma), or in (mu, L). It is
    multiplied by w_i = min(1, clip (1 - 1e-9) / ||v_i||), so that no w_i v_i is longer than `clip`, whatever the rounding. With a
    grid their sum is exact: adding or removing a row (named once in `rows`) moves it by at most `clip`. Without one, only their
    exact sum moves by at most `clip`; the computed one is rounded, and may move by the change of its rounding error, too. So
    noise that protects rows needs a grid. Where X is in float32 and there is no grid, 1 - 2e-5 stands in the place of 1 - 1e-9,
    and one draw of the weights ("weight-mc") is computed in float32: adding up the rows then costs an element at most 9e-7 of
    the sum of its absolute terms.

    ============================ ===================================================================================
    a row with                   counts as
    ============================ ===================================================================================
    ||v_i|| <= clip (1 - 1e-9)   v_i
    a longer v_i                 v_i, shortened to that length
    ||v_i|| = 0                  0
    clip = inf                   v_i: the likelihood's part of the gradient of the ELBO
    anything not finite          nothing (x, y, offset, weight, mean, norm ..); also where squares overflow, from about 1e77 on,
                                 and where a coefficient of x_i in v_i is beyond 1e100
    a y that the family has not  nothing
    ============================ ===================================================================================

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Covariates, a row for each observation. Everything is computed in float64, but for float32 rows with one draw of the
        weights and no grid.
    y : (n,) array, float64, float32, int64, int32, int8, uint8 or bool
        The response.
    mu : (d,) float64 array
        Mean of the posterior.
    log_sigma : (d,) or (d, d) float64 array
        Logarithms of the posterior's standard deviations; or its (d, d) lower Cholesky factor L of the covariance, with a
        positive diagonal (analytic only).
    clip : float, at least 1e-50 (inf: no clipping)
        The bound; inf for none. No w_i v_i is longer, whatever the rows, where no standard deviation of q is above 1e100.
        Below 1e-50, which is refused, squares that are lost as 0 would count.
    family : str, "bernoulli" or "poisson" or "gaussian" or "negative-binomial"
        The likelihood.
    offset : (n,) array, float32 or float64, optional
        Added to x'theta.
    weights : (n,) array, float32 or float64, optional
        Multiply each row's log-likelihood.
    scale : float, positive and finite
        Dispersion of the families that have one: of the gaussian its standard deviation, in [1e-150, 1e150] (with X in float32
        [1e-15, 1e15]); of the negative-binomial r, with variance mu + mu^2 / r (`mixed` takes phi: mu + phi^2 mu^2).
    rows : (b,) int64 array, optional
        The batch, by numbers of rows; default all. A row that is named twice counts twice.
    estimator : str, "analytic" or "weight-mc" or "activation-mc"
        The expectation by the quadrature of `expectations`; by draws of theta, the same for all rows; or by draws z_s of the
        standardised activation, the same for all rows: rng.normal(draws, key=key, client=client, step=step).
    draws : int, in [1, 2^31)
        Number S of draws that are averaged.
    key : int, in [0, 2^64), optional
        Names the draws and the keyed noise; needed where there are any.
    client : int, in [0, 2^32)
        Names the draws: see the module.
    step : int, in [0, 2^32)
        Names the draws: see the module.
    grid : float, > 0 and at least clip / 2^40, optional
        Every w_i v_i is rounded toward zero to whole multiples of it, and the sum is exact: it does not depend on the order of
        the rows. None: no rounding.
    noise_multiplier : float, >= 0, and needs a finite clip and no grid
        Adds noise_multiplier x clip x rng.normal(2 d, key=key, client=client, step=step, draw=2^32 - 1): predictable noise,
        for experiments.
    out : (2*d,) or (d*(d+3)/2,) array, float64 or int64, optional
        float64 or, with a grid, int64. Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    total : (2*d,) or (d*(d+3)/2,) array, float64 or int64
        float64, or int64 in units of the grid: [block of mu, block of log sigma]; for a full-rank posterior [block of mu, the
        lower triangle of the block of L, row by row (np.tril_indices)].
    skipped : int
        How many rows counted as nothing. It is not private: it must not leave the data's holder.

    Raises
    ------
    TypeError, ValueError
        As `loglik_grad`; a clip or grid that is not positive, a negative noise, or one that does not go with the others; draws or
        noise without a key.
    IndexError
        An index in `rows` that is no row of X; on a device this is waited for.

    Source: docs/spec/pvi.md, sections 3.1 to 3.3 and 4; docs/spec/pvi.md, sections 3.5 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> mu, log_sigma = np.zeros(2), np.log([0.5, 0.5])
    >>> total, skipped = glm.clipped_grad_sum(X, y, mu, log_sigma, family="bernoulli", clip=0.5)
    >>> total.round(3), skipped
    (array([ 0.313,  1.014, -0.113, -0.14 ]), 0)
    >>> glm.clipped_grad_sum(X, y, mu, log_sigma, family="bernoulli", clip=0.5, grid=2**-10)[0]
    array([ 321, 1036, -115, -142])

    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> L = np.array([[0.5, 0.0], [0.2, 0.5]])
    >>> total, skipped = glm.clipped_grad_sum(X, y, np.zeros(2), L, family="bernoulli", clip=0.5)
    >>> total.round(3)
    array([ 0.287,  0.966, -0.233, -0.146, -0.255])"""
    ...
def bind_clipped_grad_sum(X: Real, y: Response, mu: Vector, log_sigma: Vector, *, clip: float, family: Literal['bernoulli', 'poisson', 'gaussian', 'negative-binomial'], offset: Real | None=None, weights: Real | None=None, scale: float=1.0, rows: NDArray[np.int64] | None=None, estimator: Literal['analytic', 'weight-mc', 'activation-mc']='analytic', draws: int=1, key: int | None=None, client: int=0, grid: float | None=None, n_threads: int=1) -> ClippedSums:
    """Binds `clipped_grad_sum` of the same data at many points: (mu, log_sigma, rows, step) -> (skipped, total).

    Batches `rows` may differ in size. Where `rows` is None, all rows count in every call, and calls are not given them.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Covariates, a row for each observation. Everything is computed in float64, but for float32 rows with one draw of the
        weights and no grid. It is read in every call, and must stay where it is.
    y : (n,) array, float64, float32, int64, int32, int8, uint8 or bool
        The response. It is read in every call, and must stay where it is.
    mu : (d,) float64 array
        Of any call: all have its sizes.
    log_sigma : (d,) or (d, d) float64 array
        Of any call: all have its sizes.
    clip : float, at least 1e-50 (inf: no clipping)
        The bound; inf for none. No w_i v_i is longer, whatever the rows, where no standard deviation of q is above 1e100.
        Below 1e-50, which is refused, squares that are lost as 0 would count.
    family : str, "bernoulli" or "poisson" or "gaussian" or "negative-binomial"
        The likelihood.
    offset : (n,) array, float32 or float64, optional
        Added to x'theta. It is read in every call, and must stay where it is.
    weights : (n,) array, float32 or float64, optional
        Multiply each row's log-likelihood. It is read in every call, and must stay where it is.
    scale : float, positive and finite
        Dispersion of the families that have one: of the gaussian its standard deviation, in [1e-150, 1e150] (with X in float32
        [1e-15, 1e15]); of the negative-binomial r, with variance mu + mu^2 / r (`mixed` takes phi: mu + phi^2 mu^2).
    rows : (b,) int64 array, optional
        Of any call: all have its sizes.
    estimator : str, "analytic" or "weight-mc" or "activation-mc"
        The expectation by the quadrature of `expectations`; by draws of theta, the same for all rows; or by draws z_s of the
        standardised activation, the same for all rows: rng.normal(draws, key=key, client=client, step=step).
    draws : int, in [1, 2^31)
        Number S of draws that are averaged.
    key : int, in [0, 2^64), optional
        Names the draws and the keyed noise; needed where there are any.
    client : int, in [0, 2^32)
        Names the draws: see the module.
    grid : float, > 0 and at least clip / 2^40, optional
        Every w_i v_i is rounded toward zero to whole multiples of it, and the sum is exact: it does not depend on the order of
        the rows. None: no rounding.
    n_threads : int
        The result does not depend on it.

    Raises
    ------
    TypeError, ValueError
        Here, what `clipped_grad_sum` refuses; in a call, an array of another type or shape, or a bound array that has changed.
    IndexError
        In a call, as `clipped_grad_sum`.

    Source: docs/spec/pvi.md, sections 3.1 to 3.3 and 4; docs/spec/pvi.md, sections 3.5 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> mu, log_sigma, rows = np.zeros(2), np.log([0.5, 0.5]), np.array([0, 2])
    >>> step = glm.bind_clipped_grad_sum(X, y, mu, log_sigma, family="bernoulli", clip=0.5, rows=rows)
    >>> skipped, total = step(mu, log_sigma, np.array([1]), 0)  # the batch is row 1 alone
    >>> total.round(3)
    array([-0.351,  0.351, -0.039, -0.039])"""
    ...
def predict(X: Real, mu: Vector, log_sigma: Vector, *, family: Literal['bernoulli', 'poisson', 'gaussian', 'negative-binomial'], offset: Real | None=None, scale: float=1.0, method: Literal['probit', 'quadrature']='probit', out: Vector | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Vector:
    """Returns the predictive mean E[y | x] under the posterior.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
        Covariates, a row for each observation.
    mu : (d,) float64 array
        Mean of the posterior.
    log_sigma : (d,) or (d, d) float64 array
        Logarithms of the posterior's standard deviations; or its (d, d) lower Cholesky factor L of the covariance, with a
        positive diagonal.
    family : str, "bernoulli" or "poisson" or "gaussian" or "negative-binomial"
        The likelihood.
    offset : (n,) array, float32 or float64, optional
        Added to x'theta.
    scale : float, positive and finite
        As in `loglik_grad`; the mean does not depend on it.
    method : str, "probit" or "quadrature"
        For bernoulli: sigmoid(m / sqrt(1 + pi s^2 / 8)), or the quadrature of `expectations`. The others have closed forms.
    out : (n,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    mean : (n,) float64 array
        E[y | x] of every row.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/pvi.md, section 13.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, mu, log_sigma = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.log([0.5, 0.5])
    >>> glm.predict(X, mu, log_sigma, family="bernoulli").round(3)
    array([0.659, 0.325])
    >>> glm.predict(X, mu, log_sigma, family="poisson").round(3)
    array([2.354, 0.577])

    >>> X, mu, L = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([[0.5, 0.0], [0.2, 0.5]])
    >>> glm.predict(X, mu, L, family="bernoulli").round(3)
    array([0.657, 0.321])"""
    ...
