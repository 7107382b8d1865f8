# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Draws a client's coefficients and auxiliary variables, and computes gradients at the draws (see the family)."""
from typing import Any, Literal
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
import numpy as np
from numpy.typing import NDArray
from .. import mlp
from .._checks import POSITIVE, SWITCH, Domain, whole
from .._record import COMPILED, F64, Array, Kernel, Scalar, here
__all__ = ['amortised_draw', 'amortised_gradient', 'coefficients', 'mean_field_draw', 'mean_field_gradient']
Floats = NDArray[np.float64]
def rows(*names: str) -> tuple[Array, ...]:
    ...
H: Array
W: Array
EXTRA: Array
PSI: Array
OWN: Array
GRADIENTS: tuple[Any, ...]
RHO: Scalar
PATH: Scalar
FULL: Scalar
HIDDEN: Scalar
WORDS: dict[str, Any]
COEFFICIENTS: Kernel
MEAN_FIELD_DRAW: Kernel
MEAN_FIELD_GRADIENT: Kernel
AMORTISED_DRAW: Kernel
AMORTISED_GRADIENT: Kernel
def conditional(kernel: str, e: int, hidden: tuple[int, ...]) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Returns the hidden sizes as backends take them, and the number of parameters of the network."""
    ...
def is_matrix(array: object) -> bool:
    ...
def of_coefficients(p: int, *, full: bool) -> int:
    """Returns the number of parameters of q(theta)."""
    ...
def columns(extra: Any) -> int:
    ...
def coefficients(mu: Floats, scale: Floats, eps: Floats, *, full: bool=False, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> Floats:
    """Returns a draw of coefficients theta ~ N(mu, L L').

    Parameters
    ----------
    mu : (p,) float64 array
        Means.
    scale : (k,) float64 array
        k = p: logarithms of standard deviations, none of which is below 1e-8; with `full`, k = p (p + 1) / 2: the triangle of
        L, row by row.
    eps : (p,) float64 array
        Standard normal numbers.
    full : bool
        Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others over their row's diagonal
        element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    out : (p,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    theta : (p,) float64 array
        mu + L eps.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented
    >>> mu, log_sd, eps = np.array([1.0, 2.0]), np.log([0.5, 0.1]), np.array([1.0, -1.0])
    >>> augmented.coefficients(mu, log_sd, eps).round(6)
    array([1.5, 1.9])"""
    ...
def mean_field_draw(H: Floats, w: Floats, tau: Floats, mean: Floats, log_sd: Floats, *, out: tuple[Floats | None, Floats | None] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats]:
    """Returns the linear predictor and a draw of the auxiliary variables, mean-field.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    w : (p,) float64 array
        The client's coefficients.
    tau : (n,) float64 array
        Standard normal numbers, of the draw.
    mean : (n,) float64 array
        Means of q(z).
    log_sd : (n,) float64 array
        Logarithms of q(z)'s standard deviations.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    g : (n,) float64 array
        H w.
    z : (n,) float64 array
        mean + exp(log_sd) tau.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented
    >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
    >>> g, z = augmented.mean_field_draw(H, w, tau, mean=np.zeros(2), log_sd=np.log([0.5, 0.5]))
    >>> g.round(6), z.round(6)
    (array([ 0.7, -0.8]), array([ 0.5, -0.5]))"""
    ...
def mean_field_gradient(H: Floats, g: Floats, z: Floats, tau: Floats, log_sd: Floats, message: Floats, own: Floats | None=None, *, rho: float, path: bool=True, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns the gradient of the ELBO at one draw, mean-field.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    g : (n,) float64 array
        H w, of the draw.
    z : (n,) float64 array
        The auxiliary variables, of the draw.
    tau : (n,) float64 array
        Standard normal numbers, of the draw.
    log_sd : (n,) float64 array
        Logarithms of q(z)'s standard deviations s, of the draw.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    own : (n,) float64 array, optional
        Derivative of the client's own part of the likelihood in g (power likelihood); default 0.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    out : tuple of 4 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    grad_w : (p,) float64 array
        H'cotangent.
    cotangent : (n,) float64 array
        own + (z - g) / rho^2: the derivative in g, of which a design that depends on parameters needs more than H'cotangent.
    grad_mean : (n,) float64 array
        a = message - (z - g) / rho^2, plus tau / s if `path`.
    grad_log_sd : (n,) float64 array
        a tau s, plus 1 if not `path`.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented
    >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
    >>> log_sd = np.log([0.5, 0.5])
    >>> g, z = augmented.mean_field_draw(H, w, tau, np.zeros(2), log_sd)
    >>> grad_w, cotangent, grad_mean, grad_log_sd = augmented.mean_field_gradient(H, g, z, tau, log_sd, np.ones(2), rho=1.0)
    >>> grad_w.round(6), grad_mean.round(6)
    (array([ 0.1, -0.4]), array([ 3.2, -1.3]))"""
    ...
def amortised_draw(H: Floats, w: Floats, tau: Floats, extra: Floats, psi: Floats, *, rho: float, hidden: Sequence[int]=(16, 16), out: tuple[Floats | None, Floats | None] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats]:
    """Returns the linear predictor and a draw of the auxiliary variables, amortised.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    w : (p,) float64 array
        The client's coefficients.
    tau : (n,) float64 array
        Standard normal numbers, of the draw.
    extra : (n, e) float64 array
        Numbers that the network sees beside g; e may be 0.
    psi : (k,) float64 array
        Parameters of the network, k = mlp.n_parameters((1 + e, *hidden, 2)).
    rho : float, > 0 and finite
        Standard deviation of z about g.
    hidden : Sequence[int], sizes of hidden layers, >= 1
        Sizes of the network's hidden layers.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    g : (n,) float64 array
        H w.
    z : (n,) float64 array
        m + s tau.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp
    >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
    >>> extra, psi = np.zeros((2, 0)), np.zeros(mlp.n_parameters((1, 3, 2)))  # a network of values 0: z ~ N(g, rho^2)
    >>> g, z = augmented.amortised_draw(H, w, tau, extra, psi, rho=0.5, hidden=(3,))
    >>> g.round(6), z.round(6)
    (array([ 0.7, -0.8]), array([ 1.2, -1.3]))"""
    ...
def amortised_gradient(H: Floats, g: Floats, z: Floats, tau: Floats, extra: Floats, psi: Floats, message: Floats, own: Floats | None=None, *, rho: float, hidden: Sequence[int]=(16, 16), path: bool=True, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats]:
    """Returns the gradient of the ELBO at one draw, amortised. The network's values are computed again, a block of rows at a
    time.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    g : (n,) float64 array
        H w, of the draw.
    z : (n,) float64 array
        The auxiliary variables, of the draw.
    tau : (n,) float64 array
        Standard normal numbers, of the draw.
    extra : (n, e) float64 array
        Numbers that the network sees beside g; e may be 0.
    psi : (k,) float64 array
        Parameters of the network, k = mlp.n_parameters((1 + e, *hidden, 2)).
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    own : (n,) float64 array, optional
        Derivative of the client's own part of the likelihood in g (power likelihood); default 0.
    rho : float, > 0 and finite
        Standard deviation of z about g.
    hidden : Sequence[int], sizes of hidden layers, >= 1
        Sizes of the network's hidden layers.
    path : bool
        Whether the gradient is the path's, or that with the closed-form entropy: see the module.
    out : tuple of 3 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    grad_w : (p,) float64 array
        H'cotangent.
    cotangent : (n,) float64 array
        The whole derivative in g: own + (z - g) / rho^2, and the parts through z and through log q(z | w).
    grad_psi : (k,) float64 array
        Gradient in psi.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp
    >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
    >>> extra, psi = np.zeros((2, 0)), np.zeros(mlp.n_parameters((1, 3, 2)))  # a network of values 0: z ~ N(g, rho^2)
    >>> g, z = augmented.amortised_draw(H, w, tau, extra, psi, rho=0.5, hidden=(3,))
    >>> grad_w, cotangent, grad_psi = augmented.amortised_gradient(H, g, z, tau, extra, psi, np.ones(2), rho=0.5, hidden=(3,))
    >>> grad_w.round(6), grad_psi.shape
    (array([ 2. , -0.5]), (14,))"""
    ...
