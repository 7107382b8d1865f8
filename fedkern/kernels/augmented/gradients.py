"""Draws a client's coefficients and auxiliary variables, and computes gradients at the draws (see the family)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Floats
from .. import mlp
from .._checks import POSITIVE, SWITCH, Domain, whole
from .._docs import documented
from .._record import COMPILED, F64, Array, Kernel, Scalar, here

__all__ = ["amortised_draw", "amortised_gradient", "coefficients", "mean_field_draw", "mean_field_gradient"]


def rows(*names: str) -> tuple[Array, ...]:
    return tuple(Array(name, ("n",), F64) for name in names)


H, W = Array("H", ("n", "p"), F64), Array("w", ("p",), F64)
EXTRA, PSI = Array("extra", ("n", "e"), F64), Array("psi", ("k",), F64)
OWN = Array("own", ("n",), F64, optional=True)
GRADIENTS = (Array("grad_w", ("p",), F64), Array("cotangent", ("n",), F64))
RHO, PATH, FULL = Scalar("rho", POSITIVE), Scalar("path", SWITCH, True), Scalar("full", SWITCH, False)
HIDDEN = Scalar("hidden", Domain("sizes of hidden layers, >= 1"), (16, 16), binds=("k",))
WORDS = {
    "H": "The client's design.",
    "w": "The client's coefficients.",
    "tau": "Standard normal numbers, of the draw.",
    "g": "H w, of the draw.",
    "z": "The auxiliary variables, of the draw.",
    "extra": "Numbers that the network sees beside g; e may be 0.",
    "psi": "Parameters of the network, k = mlp.n_parameters((1 + e, *hidden, 2)).",
    "message": "Derivative of the log-likelihood in z.",
    "own": "Derivative of the client's own part of the likelihood in g (power likelihood); default 0.",
    "rho": "Standard deviation of z about g.",
    "hidden": "Sizes of the network's hidden layers.",
    "path": "Whether the gradient is the path's, or that with the closed-form entropy: see the module.",
    "full": "Whether L is a full triangle, row by row: diagonal elements by their logarithms, the others over their row's "
    "diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).",
    "grad_w": "H'cotangent.",
}
COEFFICIENTS = Kernel(
    "augmented.coefficients",
    __name__,
    purpose="A draw of one client's coefficients.",
    source="docs/spec/vertical.md, section 4",
    inputs=(Array("mu", ("p",), F64), Array("scale", ("k",), F64), Array("eps", ("p",), F64)),
    outputs=(Array("theta", ("p",), F64),),
    scalars=(FULL,),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=WORDS
    | {
        "mu": "Means.",
        "scale": "k = p: logarithms of standard deviations, none of which is below 1e-8; with `full`, k = p (p + 1) / 2: the "
        "triangle of L, row by row.",
        "eps": "Standard normal numbers.",
        "theta": "mu + L eps.",
    },
    example="""
        >>> mu, log_sd, eps = np.array([1.0, 2.0]), np.log([0.5, 0.1]), np.array([1.0, -1.0])
        >>> augmented.coefficients(mu, log_sd, eps).round(6)
        array([1.5, 1.9])
    """,
)
MEAN_FIELD_DRAW = Kernel(
    "augmented.mean_field_draw",
    __name__,
    purpose="Linear predictor and auxiliary variables of one client, mean-field.",
    source="docs/spec/vertical.md, section 4",
    inputs=(H, W, *rows("tau", "mean", "log_sd")),
    outputs=rows("g", "z"),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=WORDS
    | {
        "mean": "Means of q(z).",
        "log_sd": "Logarithms of q(z)'s standard deviations.",
        "g": "H w.",
        "z": "mean + exp(log_sd) tau.",
    },
    example="""
        >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
        >>> g, z = augmented.mean_field_draw(H, w, tau, mean=np.zeros(2), log_sd=np.log([0.5, 0.5]))
        >>> g.round(6), z.round(6)
        (array([ 0.7, -0.8]), array([ 0.5, -0.5]))
    """,
)
MEAN_FIELD_GRADIENT = Kernel(
    "augmented.mean_field_gradient",
    __name__,
    purpose="Gradient of the ELBO in one client's coefficients and mean-field parameters.",
    source="docs/spec/vertical.md, section 5",
    inputs=(H, *rows("g", "z", "tau", "log_sd", "message"), OWN),
    outputs=(*GRADIENTS, *rows("grad_mean", "grad_log_sd")),
    scalars=(RHO, PATH),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=WORDS
    | {
        "log_sd": "Logarithms of q(z)'s standard deviations s, of the draw.",
        "cotangent": "own + (z - g) / rho^2: the derivative in g, of which a design that depends on parameters needs more than "
        "H'cotangent.",
        "grad_mean": "a = message - (z - g) / rho^2, plus tau / s if `path`.",
        "grad_log_sd": "a tau s, plus 1 if not `path`.",
    },
    example="""
        >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
        >>> log_sd = np.log([0.5, 0.5])
        >>> g, z = augmented.mean_field_draw(H, w, tau, np.zeros(2), log_sd)
        >>> grad_w, cotangent, grad_mean, grad_log_sd = augmented.mean_field_gradient(H, g, z, tau, log_sd, np.ones(2), rho=1.0)
        >>> grad_w.round(6), grad_mean.round(6)
        (array([ 0.1, -0.4]), array([ 3.2, -1.3]))
    """,
)
AMORTISED_DRAW = Kernel(
    "augmented.amortised_draw",
    __name__,
    purpose="Linear predictor and auxiliary variables of one client, amortised.",
    source="docs/spec/vertical.md, section 4",
    inputs=(H, W, *rows("tau"), EXTRA, PSI),
    outputs=rows("g", "z"),
    scalars=(RHO, HIDDEN),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=WORDS | {"g": "H w.", "z": "m + s tau."},
    example="""
        >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
        >>> extra, psi = np.zeros((2, 0)), np.zeros(mlp.n_parameters((1, 3, 2)))  # a network of values 0: z ~ N(g, rho^2)
        >>> g, z = augmented.amortised_draw(H, w, tau, extra, psi, rho=0.5, hidden=(3,))
        >>> g.round(6), z.round(6)
        (array([ 0.7, -0.8]), array([ 1.2, -1.3]))
    """,
)
AMORTISED_GRADIENT = Kernel(
    "augmented.amortised_gradient",
    __name__,
    purpose="Gradient of the ELBO in one client's coefficients and in the network of its auxiliary variables.",
    source="docs/spec/vertical.md, section 5",
    inputs=(H, *rows("g", "z", "tau"), EXTRA, PSI, *rows("message"), OWN),
    outputs=(*GRADIENTS, Array("grad_psi", ("k",), F64)),
    scalars=(RHO, HIDDEN, PATH),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=WORDS
    | {
        "cotangent": "The whole derivative in g: own + (z - g) / rho^2, and the parts through z and through log q(z | w).",
        "grad_psi": "Gradient in psi.",
    },
    example="""
        >>> H, w, tau = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([1.0, -1.0])
        >>> extra, psi = np.zeros((2, 0)), np.zeros(mlp.n_parameters((1, 3, 2)))  # a network of values 0: z ~ N(g, rho^2)
        >>> g, z = augmented.amortised_draw(H, w, tau, extra, psi, rho=0.5, hidden=(3,))
        >>> grad_w, cotangent, grad_psi = augmented.amortised_gradient(H, g, z, tau, extra, psi, np.ones(2), rho=0.5, hidden=(3,))
        >>> grad_w.round(6), grad_psi.shape
        (array([ 2. , -0.5]), (14,))
    """,
)


@lru_cache(maxsize=256)
def conditional(kernel: str, e: int, hidden: tuple[int, ...]) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Returns the hidden sizes as backends take them, and the number of parameters of the network."""
    return mlp.network(kernel, (1 + e, *hidden, 2))[0][1:-1], {"k": mlp.n_parameters((1 + e, *hidden, 2))}


def is_matrix(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 2


def of_coefficients(p: int, *, full: bool) -> int:
    """Returns the number of parameters of q(theta)."""
    n_of_scale = p * (p + 1) // 2 if full else p
    return p + n_of_scale


def columns(extra: Any) -> int:
    extra = here(extra)
    return extra.shape[1] if is_matrix(extra) else 0


@documented(COEFFICIENTS)
def coefficients(
    mu: Floats,
    scale: Floats,
    eps: Floats,
    *,
    full: bool = False,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns a draw of coefficients theta ~ N(mu, L L')."""
    theta: Floats
    FULL.domain.check(COEFFICIENTS.name, "full", full)
    mu = here(mu)
    symbols = {"k": of_coefficients(len(mu), full=full) - len(mu)} if isinstance(mu, np.ndarray) and mu.ndim == 1 else None
    (theta,) = COEFFICIENTS.compute((mu, scale, eps), out, n_threads, backend, symbols, full=full)
    return theta


@documented(MEAN_FIELD_DRAW)
def mean_field_draw(
    H: Floats,
    w: Floats,
    tau: Floats,
    mean: Floats,
    log_sd: Floats,
    *,
    out: tuple[Floats | None, Floats | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Returns the linear predictor and a draw of the auxiliary variables, mean-field."""
    g, z = MEAN_FIELD_DRAW.compute((H, w, tau, mean, log_sd), out, n_threads, backend)
    return g, z


@documented(MEAN_FIELD_GRADIENT)
def mean_field_gradient(
    H: Floats,
    g: Floats,
    z: Floats,
    tau: Floats,
    log_sd: Floats,
    message: Floats,
    own: Floats | None = None,
    *,
    rho: float,
    path: bool = True,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns the gradient of the ELBO at one draw, mean-field."""
    inputs = (H, g, z, tau, log_sd, message, own)
    return MEAN_FIELD_GRADIENT.compute(inputs, out, n_threads, backend, rho=rho, path=path)


@documented(AMORTISED_DRAW)
def amortised_draw(
    H: Floats,
    w: Floats,
    tau: Floats,
    extra: Floats,
    psi: Floats,
    *,
    rho: float,
    hidden: Sequence[int] = (16, 16),
    out: tuple[Floats | None, Floats | None] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Returns the linear predictor and a draw of the auxiliary variables, amortised."""
    sizes, symbols = conditional(AMORTISED_DRAW.name, columns(extra), whole(AMORTISED_DRAW.name, "hidden", hidden))
    g, z = AMORTISED_DRAW.compute((H, w, tau, extra, psi), out, n_threads, backend, symbols, rho=rho, hidden=sizes)
    return g, z


@documented(AMORTISED_GRADIENT)
def amortised_gradient(
    H: Floats,
    g: Floats,
    z: Floats,
    tau: Floats,
    extra: Floats,
    psi: Floats,
    message: Floats,
    own: Floats | None = None,
    *,
    rho: float,
    hidden: Sequence[int] = (16, 16),
    path: bool = True,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Returns the gradient of the ELBO at one draw, amortised. The network's values are computed again, a block of rows at a
    time."""
    sizes, symbols = conditional(AMORTISED_GRADIENT.name, columns(extra), whole(AMORTISED_GRADIENT.name, "hidden", hidden))
    inputs = (H, g, z, tau, extra, psi, message, own)
    return AMORTISED_GRADIENT.compute(inputs, out, n_threads, backend, symbols, rho=rho, hidden=sizes, path=path)
