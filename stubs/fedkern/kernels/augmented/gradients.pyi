# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Draws of a client's coefficients and auxiliary variables, and gradients at them (see the family)."""
from typing import Any
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
import numpy as np
from numpy.typing import NDArray
from .. import mlp
from .._checks import POSITIVE, SWITCH, Domain
from .._record import COMPILED, F64, Array, Kernel, Scalar
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
    """The hidden sizes as backends take them, and how many parameters the network has."""
    ...
def is_matrix(array: object) -> bool:
    ...
def of_coefficients(p: int, *, full: bool) -> int:
    """How many parameters q(theta) has."""
    ...
def columns(extra: Any) -> int:
    ...
def coefficients(mu: Floats, scale: Floats, eps: Floats, *, full: bool=False, out: Floats | None=None, n_threads: int=1, backend: str | None=None) -> Floats:
    """A draw of coefficients theta ~ N(mu, L L').

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

    Source: docs/spec/vertical.md, section 4."""
    ...
def mean_field_draw(H: Floats, w: Floats, tau: Floats, mean: Floats, log_sd: Floats, *, out: tuple[Floats | None, Floats | None] | None=None, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats]:
    """Linear predictor and auxiliary variables, mean-field.

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

    Source: docs/spec/vertical.md, section 4."""
    ...
def mean_field_gradient(H: Floats, g: Floats, z: Floats, tau: Floats, log_sd: Floats, message: Floats, own: Floats | None=None, *, rho: float, path: bool=True, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats, Floats, Floats]:
    """Gradient of the ELBO at one draw, mean-field.

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

    Source: docs/spec/vertical.md, section 5."""
    ...
def amortised_draw(H: Floats, w: Floats, tau: Floats, extra: Floats, psi: Floats, *, rho: float, hidden: Sequence[int]=(16, 16), out: tuple[Floats | None, Floats | None] | None=None, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats]:
    """Linear predictor and auxiliary variables, amortised.

    Parameters
    ----------
    H : (n, p) float64 array
        The client's design.
    w : (p,) float64 array
        The client's coefficients.
    tau : (n,) float64 array
        Standard normal numbers, of the draw.
    extra : (n, e) float64 array
        What the network sees beside g; e may be 0.
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

    Source: docs/spec/vertical.md, section 4."""
    ...
def amortised_gradient(H: Floats, g: Floats, z: Floats, tau: Floats, extra: Floats, psi: Floats, message: Floats, own: Floats | None=None, *, rho: float, hidden: Sequence[int]=(16, 16), path: bool=True, out: tuple[Floats | None, ...] | None=None, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats, Floats]:
    """Gradient of the ELBO at one draw, amortised. The network's values are computed again, a block of rows at a time.

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
        What the network sees beside g; e may be 0.
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
        The whole derivative in g: own + (z - g) / rho^2, and what comes through z and through log q(z | w).
    grad_psi : (k,) float64 array
        Gradient in psi.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/vertical.md, section 5."""
    ...
