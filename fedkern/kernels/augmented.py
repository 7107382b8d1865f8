"""The client's side of the augmented models: draws of its auxiliary variables, and gradients from the messages of the others.

One client has a design H (n, p), coefficients w, its part g = H w of the linear predictor, and auxiliary variables
z_i ~ N(g_i, sd rho). Variational families of z given w:

* mean-field: N(mean_i, sd exp(log_sd_i)), whatever w is;
* amortised: N(m, sd s) with m = g + o1, log s = log rho + o2 clamped to [-8, 4], where (o1, o2) are the values of one network
  (1 + e, *hidden, 2) with tanh at (g_i, extra_i). Its derivative is 0 where o2 is clamped. Parameters psi: see `mlp`.

A draw is z = m + s tau with standard normal tau that the caller gives, and keeps for the gradient: w, tau, z must be of one
draw. Gradients are of the evidence lower bound at that draw; the terms of the prior of w and of its own distribution are the
caller's. `message` is the derivative of the log-likelihood in z that comes from outside, `own` what enters through g.

* path=True, "sticking the landing": log q(z | w) with its own parameters held fixed; its variance goes to 0 where q is exact.
* path=False: the closed-form entropy sum log s.

`mean_field_iteration` and `amortised_iteration` are all that a client does between two messages, where its coefficients are theta
itself and q(theta) is diagonal: a gradient, a step of Adam, the next draw.

All arrays are float64. Sums over rows are taken in an order that depends on n alone: results do not depend on `n_threads`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import mlp, optim
from ._checks import FINITE, KEY, MADE, POSITIVE, SWITCH, WORD, Domain, Together
from ._record import F64, Array, Kernel, Scalar, names

Floats = NDArray[np.float64]
Iterations = Callable[..., tuple[Any, ...]]  # (arrays, learning_rate, step)


def _rows(*names: str) -> tuple[Array, ...]:
    return tuple(Array(name, ("n",), F64) for name in names)


_H, _W = Array("H", ("n", "p"), F64), Array("w", ("p",), F64)
_EXTRA, _PSI = Array("extra", ("n", "e"), F64), Array("psi", ("k",), F64)
_OWN = Array("own", ("n",), F64, optional=True)
_GRADIENTS = (Array("grad_w", ("p",), F64), Array("cotangent", ("n",), F64))

_RHO, _PATH, _FULL = Scalar("rho", POSITIVE), Scalar("path", SWITCH, True), Scalar("full", SWITCH, False)
_HIDDEN = Scalar("hidden", Domain("sizes of hidden layers, >= 1"), (16, 16), binds=("k",))
_CENTRE = Scalar("centre", Domain("must be None or >= 0", "x is None or x >= 0", "-1 if x is None else index(x)"), None)


def _steps(*more: Scalar) -> tuple[Scalar, ...]:
    return (
        Scalar("prior_mean", FINITE, 0.0),
        Scalar("prior_sd", POSITIVE, 1.0),
        Scalar("learning_rate", POSITIVE),
        *(Scalar(name, MADE) for name in ("beta1", "beta2", "epsilon")),
        _PATH,
        _FULL,
        *more,
        Scalar("key", KEY),
        Scalar("client", WORD, 0),
        Scalar("step", WORD, 0),
    )


_SENTENCES = (
    Together(("prior_mean", "prior_sd", "learning_rate"), "a finite prior_mean, prior_sd > 0 and learning_rate > 0, both finite"),
    Together(("key", "client", "step"), "0 <= key < 2^64, 0 <= client < 2^32, 0 <= step < 2^32"),
)
_ADAM: dict[str, Any] = {"beta1": optim.BETA1, "beta2": optim.BETA2, "epsilon": optim.EPSILON}

COEFFICIENTS = Kernel(
    "augmented.coefficients",
    __name__,
    purpose="A draw of one client's coefficients.",
    source="docs/methods/vertical.md, section 4",
    inputs=(Array("mu", ("p",), F64), Array("scale", ("k",), F64), Array("eps", ("p",), F64)),
    outputs=(Array("theta", ("p",), F64),),
    scalars=(_FULL,),
    host="every iteration ends with a message, and a client has too few rows",
)

MEAN_FIELD_DRAW = Kernel(
    "augmented.mean_field_draw",
    __name__,
    purpose="Linear predictor and auxiliary variables of one client, mean-field.",
    source="docs/methods/vertical.md, section 4",
    inputs=(_H, _W, *_rows("tau", "mean", "log_sd")),
    outputs=_rows("g", "z"),
    host="every iteration ends with a message, and a client has too few rows",
)

MEAN_FIELD_GRADIENT = Kernel(
    "augmented.mean_field_gradient",
    __name__,
    purpose="Gradient of the ELBO in one client's coefficients and mean-field parameters.",
    source="docs/methods/vertical.md, section 5",
    inputs=(_H, *_rows("g", "z", "tau", "log_sd", "message"), _OWN),
    outputs=(*_GRADIENTS, *_rows("grad_mean", "grad_log_sd")),
    scalars=(_RHO, _PATH),
    host="every iteration ends with a message, and a client has too few rows",
)

AMORTISED_DRAW = Kernel(
    "augmented.amortised_draw",
    __name__,
    purpose="Linear predictor and auxiliary variables of one client, amortised.",
    source="docs/methods/vertical.md, section 4",
    inputs=(_H, _W, *_rows("tau"), _EXTRA, _PSI),
    outputs=_rows("g", "z"),
    scalars=(_RHO, _HIDDEN),
    host="every iteration ends with a message, and a client has too few rows",
)

AMORTISED_GRADIENT = Kernel(
    "augmented.amortised_gradient",
    __name__,
    purpose="Gradient of the ELBO in one client's coefficients and in the network of its auxiliary variables.",
    source="docs/methods/vertical.md, section 5",
    inputs=(_H, *_rows("g", "z", "tau"), _EXTRA, _PSI, *_rows("message"), _OWN),
    outputs=(*_GRADIENTS, Array("grad_psi", ("k",), F64)),
    scalars=(_RHO, _HIDDEN, _PATH),
    host="every iteration ends with a message, and a client has too few rows",
)


def _state(prefix: str = "") -> tuple[Array, ...]:
    shapes = {
        "parameters": ("k",),
        "moments": ("3", "k"),
        "eps": ("p",),
        "tau": ("n",),
        "theta": ("p",),
        "g": ("n",),
        "z": ("n",),
    }
    return tuple(Array(prefix + name, shape, F64) for name, shape in shapes.items())


MEAN_FIELD_ITERATION = Kernel(
    "augmented.mean_field_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, mean-field.",
    source="docs/methods/vertical.md, sections 4 to 6",
    inputs=(_H, *_state(), *_rows("message")),
    outputs=_state("new_"),
    scalars=(_RHO, *_steps()),
    together=_SENTENCES,
    streams=("draws",),
    host="every iteration ends with a message, and a client has too few rows",
)

AMORTISED_ITERATION = Kernel(
    "augmented.amortised_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, amortised.",
    source="docs/methods/vertical.md, sections 4 to 6",
    inputs=(_H, *_state(), *_rows("message"), _EXTRA, Array("extra_next", ("n", "e"), F64)),
    outputs=(*_state("new_"), Array("new_extra", ("n", "e"), F64)),
    scalars=(_RHO, _HIDDEN, *_steps(_CENTRE)),
    together=_SENTENCES,
    streams=("draws",),
    host="every iteration ends with a message, and a client has too few rows",
)


@lru_cache(maxsize=256)
def _network(kernel: str, e: int, hidden: tuple[int, ...]) -> tuple[NDArray[np.int64], dict[str, int]]:
    """The hidden sizes as backends take them, and how many parameters the network has."""
    return mlp.network(kernel, (1 + e, *hidden, 2))[0][1:-1], {"k": mlp.n_parameters((1 + e, *hidden, 2))}


def _is_matrix(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 2


def _of_coefficients(p: int, *, full: bool) -> int:
    """How many parameters q(theta) has."""
    return p + (p * (p + 1) // 2 if full else p)


def _columns(extra: Any) -> int:
    return extra.shape[1] if _is_matrix(extra) else 0


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
    """A draw of coefficients theta ~ N(mu, L L').

    Parameters
    ----------
    mu : (p,) float64 array
        Means.
    scale : (p,) or (p (p + 1) / 2,) float64 array
        Logarithms of standard deviations, none of which is below 1e-8; with `full` the triangle of L, row by row.
    eps : (p,) float64 array
        Standard normal numbers.
    full : bool
        Whether L is a full triangle: diagonal elements by their logarithms, the others over their row's diagonal element, in
        units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    out : (p,) float64 array, optional

    Returns
    -------
    (p,) float64 array
        mu + L eps.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a wrong `out`.
    """
    theta: Floats
    symbols = {"k": _of_coefficients(len(mu), full=full) - len(mu)} if isinstance(mu, np.ndarray) and mu.ndim == 1 else None
    (theta,) = COEFFICIENTS.run((mu, scale, eps), out, n_threads, backend, symbols, full=full)
    return theta


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
    """Linear predictor and auxiliary variables, mean-field.

    Parameters
    ----------
    H : (n, p) float64 array
    w : (p,) float64 array
    tau : (n,) float64 array
        Standard normal numbers.
    mean, log_sd : (n,) float64 arrays
        Of q(z).
    out : tuple of two (n,) float64 arrays, optional

    Returns
    -------
    g : (n,) float64 array
        H w.
    z : (n,) float64 array
        mean + exp(log_sd) tau.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a wrong `out`.
    """
    g, z = MEAN_FIELD_DRAW.run((H, w, tau, mean, log_sd), out, n_threads, backend)
    return g, z


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
    """Gradient of the ELBO at one draw, mean-field.

    Parameters
    ----------
    H : (n, p) float64 array
    g, z : (n,) float64 arrays
        From `mean_field_draw`.
    tau, log_sd : (n,) float64 arrays
        Those of the draw.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    own : (n,) float64 array, optional
        Derivative of the client's own part of the likelihood in g (power likelihood); default 0.
    rho : float
        Standard deviation of z about g, > 0 and finite.
    path : bool
        See the module.
    out : tuple of four float64 arrays, (p,), (n,), (n,), (n,), optional

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
        Wrong type or shape, a `rho` outside its range, a wrong `out`.
    """
    inputs = (H, g, z, tau, log_sd, message, own)
    return MEAN_FIELD_GRADIENT.run(inputs, out, n_threads, backend, rho=rho, path=path)


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
    """Linear predictor and auxiliary variables, amortised.

    Parameters
    ----------
    H : (n, p) float64 array
    w : (p,) float64 array
    tau : (n,) float64 array
        Standard normal numbers.
    extra : (n, e) float64 array
        What the network sees beside g; e may be 0.
    psi : (k,) float64 array
        Its parameters, k = mlp.n_parameters((1 + e, *hidden, 2)).
    rho : float
        Standard deviation of z about g, > 0 and finite.
    hidden : sequence of int
        Sizes of the hidden layers.
    out : tuple of two (n,) float64 arrays, optional

    Returns
    -------
    g : (n,) float64 array
        H w.
    z : (n,) float64 array
        m + s tau.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, impossible sizes, a `rho` outside its range, a wrong `out`.
    """
    sizes, symbols = _network("augmented.amortised_draw", _columns(extra), tuple(map(operator.index, hidden)))
    g, z = AMORTISED_DRAW.run((H, w, tau, extra, psi), out, n_threads, backend, symbols, rho=rho, hidden=sizes)
    return g, z


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
    """Gradient of the ELBO at one draw, amortised. The network's values are computed again, a block of rows at a time.

    Parameters
    ----------
    H : (n, p) float64 array
    g, z : (n,) float64 arrays
        From `amortised_draw`.
    tau : (n,) float64 array
    extra : (n, e) float64 array
    psi : (k,) float64 array
        Those of the draw.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    own : (n,) float64 array, optional
        Derivative of the client's own part of the likelihood in g (power likelihood); default 0.
    rho : float
    hidden : sequence of int
        As in `amortised_draw`.
    path : bool
        See the module.
    out : tuple of three float64 arrays, (p,), (n,), (k,), optional

    Returns
    -------
    grad_w : (p,) float64 array
        H'cotangent.
    cotangent : (n,) float64 array
        The whole derivative in g: own + (z - g) / rho^2, and what comes through z and through log q(z | w).
    grad_psi : (k,) float64 array

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, impossible sizes, a `rho` outside its range, a wrong `out`.
    """
    sizes, symbols = _network("augmented.amortised_gradient", _columns(extra), tuple(map(operator.index, hidden)))
    inputs = (H, g, z, tau, extra, psi, message, own)
    return AMORTISED_GRADIENT.run(inputs, out, n_threads, backend, symbols, rho=rho, hidden=sizes, path=path)


def mean_field_iteration(
    H: Floats,
    parameters: Floats,
    moments: Floats,
    eps: Floats,
    tau: Floats,
    theta: Floats,
    g: Floats,
    z: Floats,
    message: Floats,
    *,
    rho: float,
    prior_mean: float = 0.0,
    prior_sd: float = 1.0,
    learning_rate: float,
    path: bool = True,
    full: bool = False,
    key: int,
    client: int = 0,
    step: int = 0,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """All that a client does between two messages, mean-field: a gradient, a step, the next draw.

    Parameters
    ----------
    H : (n, p) float64 array
    parameters : (k,) float64 array
        [mu (p), scale, mean (n), log_sd (n)]. The scale of q(theta) is log sd (p), or with `full` a triangle (p (p + 1) / 2).
    moments : (3, k) float64 array
        Adam's state: see `optim.adam`.
    eps, tau, theta, g, z : float64 arrays, (p,), (n,), (p,), (n,), (n,)
        The draw that was made with `parameters`: normals, theta = mu + L eps, and what `mean_field_draw` gave.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    rho : float
        Standard deviation of z about g, > 0 and finite.
    prior_mean, prior_sd : float
        theta ~ N(prior_mean, prior_sd^2 I); prior_sd > 0.
    learning_rate : float
        > 0 and finite.
    path : bool
        See the module.
    full : bool
        Whether q(theta) = N(mu, L L') has a full triangle L, in `parameters` row by row: diagonal elements by their logarithms,
        the others over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    key, client, step : int
        Name the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    out : tuple of seven float64 arrays, optional

    Returns
    -------
    new_parameters : (k,) float64 array
        After a step of Adam with its usual numbers along the gradient of the ELBO, the terms of theta's prior and of q(theta)
        included.
    new_moments : (3, k) float64 array
    new_eps, new_tau, new_theta, new_g, new_z : float64 arrays, (p,), (n,), (p,), (n,), (n,)
        The next draw, made with `new_parameters`.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, a wrong `out`.
    """
    inputs = (H, parameters, moments, eps, tau, theta, g, z, message)
    return MEAN_FIELD_ITERATION.run(
        inputs, out, n_threads, backend, _of_mean_field(H, full=full), rho=rho, prior_mean=prior_mean, prior_sd=prior_sd,
        learning_rate=learning_rate, **_ADAM, path=path, full=full, key=key, client=client, step=step,
    )  # fmt: skip


def bind_mean_field_iteration(
    H: Floats,
    *of_state: Floats,
    rho: float,
    prior_mean: float = 0.0,
    prior_sd: float = 1.0,
    path: bool = True,
    full: bool = False,
    key: int,
    client: int = 0,
    n_threads: int = 1,
) -> Iterations:
    """`mean_field_iteration` for many calls with equal sizes: (H, .., message, learning_rate, step) -> what it returns.

    Parameters
    ----------
    H, of_state
        The arrays of any call, in their order.
    rho, prior_mean, prior_sd, path, full, key, client, n_threads
        As those of `mean_field_iteration`.

    Raises
    ------
    TypeError, ValueError
        What `mean_field_iteration` refuses; in a call, an array of another type or shape.
    """
    kernel, arrays = MEAN_FIELD_ITERATION, (H, *of_state)
    return kernel.bind(
        arrays, (*names(*kernel.inputs), "learning_rate", "step"), n_threads, None, _of_mean_field(H, full=full), rho=rho,
        prior_mean=prior_mean, prior_sd=prior_sd, learning_rate=1.0, **_ADAM, path=path, full=full, key=key, client=client,
        step=0,
    )  # fmt: skip


def _of_mean_field(H: Any, *, full: bool) -> dict[str, int] | None:
    """How many parameters a client has."""
    return {"k": _of_coefficients(H.shape[1], full=full) + 2 * len(H)} if _is_matrix(H) else None


def amortised_iteration(
    H: Floats,
    parameters: Floats,
    moments: Floats,
    eps: Floats,
    tau: Floats,
    theta: Floats,
    g: Floats,
    z: Floats,
    message: Floats,
    extra: Floats,
    extra_next: Floats,
    *,
    rho: float,
    hidden: Sequence[int] = (16, 16),
    prior_mean: float = 0.0,
    prior_sd: float = 1.0,
    learning_rate: float,
    path: bool = True,
    full: bool = False,
    centre: int | None = None,
    key: int,
    client: int = 0,
    step: int = 0,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """All that a client does between two messages, amortised: a gradient, a step, the next draw.

    Parameters
    ----------
    H : (n, p) float64 array
    parameters : (k,) float64 array
        [mu (p), scale, psi], with mlp.n_parameters((1 + e, *hidden, 2)) in psi. The scale of q(theta) is log sd (p), or with
        `full` a triangle (p (p + 1) / 2).
    moments : (3, k) float64 array
        Adam's state: see `optim.adam`.
    eps, tau, theta, g, z : float64 arrays, (p,), (n,), (p,), (n,), (n,)
        The draw that was made with `parameters`: normals, theta = mu + L eps, and what `amortised_draw` gave.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    extra, extra_next : (n, e) float64 arrays
        What the network sees beside g: at the draw that was made, and at the next.
    rho : float
    hidden : sequence of int
        As in `amortised_draw`.
    prior_mean, prior_sd : float
        theta ~ N(prior_mean, prior_sd^2 I); prior_sd > 0.
    learning_rate : float
        > 0 and finite.
    path : bool
        See the module.
    full : bool
        Whether q(theta) = N(mu, L L') has a full triangle L, in `parameters` row by row: diagonal elements by their logarithms,
        the others over their row's diagonal element, in units of (64 / p)^2 where p > 64 (`models.variational.Block`).
    centre : int, optional
        The column of `extra_next` that is not read: the network is told H mu there, with the mu after the step.
    key, client, step : int
        Name the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    out : tuple of eight float64 arrays, optional

    Returns
    -------
    new_parameters : (k,) float64 array
        After a step of Adam with its usual numbers along the gradient of the ELBO, the terms of theta's prior and of q(theta)
        included.
    new_moments : (3, k) float64 array
    new_eps, new_tau, new_theta, new_g, new_z : float64 arrays, (p,), (n,), (p,), (n,), (n,)
        The next draw, made with `new_parameters`.
    new_extra : (n, e) float64 array
        What the network saw: `extra_next`, with the centre.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, impossible sizes, a number outside its range, a wrong `out`.
    """
    sizes, symbols = _of_amortised(H, extra, hidden, centre, full=full)
    inputs = (H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next)
    return AMORTISED_ITERATION.run(
        inputs, out, n_threads, backend, symbols, rho=rho, hidden=sizes, prior_mean=prior_mean, prior_sd=prior_sd,
        learning_rate=learning_rate, **_ADAM, path=path, full=full, centre=centre, key=key,
        client=client, step=step,
    )  # fmt: skip


def bind_amortised_iteration(
    H: Floats,
    *of_state: Floats,
    rho: float,
    hidden: Sequence[int] = (16, 16),
    prior_mean: float = 0.0,
    prior_sd: float = 1.0,
    path: bool = True,
    full: bool = False,
    centre: int | None = None,
    key: int,
    client: int = 0,
    n_threads: int = 1,
) -> Iterations:
    """`amortised_iteration` for many calls with equal sizes: (H, .., extra_next, learning_rate, step) -> what it returns.

    Parameters
    ----------
    H, of_state
        The arrays of any call, in their order.
    rho, hidden, prior_mean, prior_sd, path, full, centre, key, client, n_threads
        As those of `amortised_iteration`.

    Raises
    ------
    TypeError, ValueError
        What `amortised_iteration` refuses; in a call, an array of another type or shape.
    """
    kernel, arrays = AMORTISED_ITERATION, (H, *of_state)
    sizes, symbols = _of_amortised(H, of_state[-1], hidden, centre, full=full)
    return kernel.bind(
        arrays, (*names(*kernel.inputs), "learning_rate", "step"), n_threads, None, symbols, rho=rho, hidden=sizes,
        prior_mean=prior_mean, prior_sd=prior_sd, learning_rate=1.0, **_ADAM, path=path, full=full, centre=centre, key=key,
        client=client, step=0,
    )  # fmt: skip


def _of_amortised(
    H: Any, extra: Any, hidden: Sequence[int], centre: int | None, *, full: bool
) -> tuple[NDArray[np.int64], dict[str, int] | None]:
    """The network's hidden sizes as backends take them, and how many parameters a client has."""
    sizes, network = _network("augmented.amortised_iteration", _columns(extra), tuple(map(operator.index, hidden)))
    if centre is not None and _is_matrix(extra) and centre >= extra.shape[1]:
        raise ValueError(f"augmented.amortised_iteration: centre must be a column of extra, of {extra.shape[1]}, got {centre}")
    symbols = {"k": _of_coefficients(H.shape[1], full=full) + network["k"]} if _is_matrix(H) and _is_matrix(extra) else None
    return sizes, symbols
