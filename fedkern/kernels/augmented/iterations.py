"""All that a client does between two messages, in one call: a gradient, a step of Adam, the next draw (see the family)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import mlp, optim
from .._checks import FINITE, KEY, MADE, POSITIVE, WORD, Domain, Together, choice_of
from .._record import COMPILED, F64, Array, Kernel, Scalar, names
from .gradients import EXTRA, FULL, HIDDEN, PATH, RHO, Floats, H, columns, conditional, is_matrix, of_coefficients, rows

__all__ = [
    "Iterations",
    "amortised_iteration",
    "bind_amortised_iteration",
    "bind_mean_field_iteration",
    "bind_network_iteration",
    "mean_field_iteration",
    "network_iteration",
]

Iterations = Callable[..., tuple[Any, ...]]  # (arrays, learning_rate, step)
_CENTRE = Scalar("centre", Domain("must be None or >= 0", "x is None or x >= 0", "-1 if x is None else index(x)"), None)


_PRIOR = Scalar("prior_mean", FINITE, 0.0), Scalar("prior_sd", POSITIVE, 1.0)


def _steps(*more: Scalar) -> tuple[Scalar, ...]:
    return (
        Scalar("learning_rate", POSITIVE),
        *(Scalar(name, MADE) for name in ("beta1", "beta2", "epsilon")),
        PATH,
        FULL,
        *more,
        Scalar("key", KEY),
        Scalar("client", WORD, 0),
        Scalar("step", WORD, 0),
    )


_RANDOM = Together(("key", "client", "step"), "0 <= key < 2^64, 0 <= client < 2^32, 0 <= step < 2^32")
_SENTENCES = (
    Together(("prior_mean", "prior_sd", "learning_rate"), "a finite prior_mean, prior_sd > 0 and learning_rate > 0, both finite"),
    _RANDOM,
)
_ADAM: dict[str, Any] = {"beta1": optim.BETA1, "beta2": optim.BETA2, "epsilon": optim.EPSILON}


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
    inputs=(H, *_state(), *rows("message")),
    outputs=_state("new_"),
    scalars=(RHO, *_PRIOR, *_steps()),
    together=_SENTENCES,
    streams=("draws",),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
)
AMORTISED_ITERATION = Kernel(
    "augmented.amortised_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, amortised.",
    source="docs/methods/vertical.md, sections 4 to 6",
    inputs=(H, *_state(), *rows("message"), EXTRA, Array("extra_next", ("n", "e"), F64)),
    outputs=(*_state("new_"), Array("new_extra", ("n", "e"), F64)),
    scalars=(RHO, HIDDEN, *_PRIOR, *_steps(_CENTRE)),
    together=_SENTENCES,
    streams=("draws",),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
)

NETWORK_ITERATION = Kernel(
    "augmented.network_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, amortised, with a network in the predictor.",
    source="docs/methods/vertical.md, sections 4 to 6 and 9.3",
    inputs=(
        Array("X", ("n", "d"), F64),
        Array("precision", ("f",), F64),
        H,
        *_state(),
        *rows("message"),
        EXTRA,
        Array("extra_next", ("n", "e"), F64),
    ),
    outputs=(Array("new_H", ("n", "p"), F64), *_state("new_"), Array("new_extra", ("n", "e"), F64)),
    scalars=(
        RHO,
        HIDDEN,
        Scalar("sizes", Domain("at least two, >= 1"), binds=("d", "p", "f", "k")),
        Scalar("activation", choice_of(mlp.ACTIVATIONS, f"must be one of {', '.join(mlp.ACTIVATIONS)}"), "relu"),
        *_steps(_CENTRE),
    ),
    together=(_RANDOM,),
    streams=("draws",),
    blas=True,
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
)


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
    return {"k": of_coefficients(H.shape[1], full=full) + 2 * len(H)} if is_matrix(H) else None


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
    sizes, network = conditional("augmented.amortised_iteration", columns(extra), tuple(map(operator.index, hidden)))
    _check_centre("augmented.amortised_iteration", extra, centre)
    symbols = {"k": of_coefficients(H.shape[1], full=full) + network["k"]} if is_matrix(H) and is_matrix(extra) else None
    return sizes, symbols


def network_iteration(
    X: Floats,
    precision: Floats,
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
    sizes: Sequence[int],
    activation: str = "relu",
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
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """`amortised_iteration` with a network in the predictor: g = f_phi(X) theta, theta ~ N(0, I), phi a mode or a maximum.

    Parameters
    ----------
    X : (n, d) float64 array
        Rows.
    precision : (f,) float64 array
        Prior precisions of phi about 0; 0 where it has none.
    H : (n, p) float64 array
        The design of the draw that was made: `mlp.forward` of X with its phi.
    parameters : (k,) float64 array
        [mu (p), scale, phi (f), psi], the scale and psi as in `amortised_iteration`.
    moments : (3, k) float64 array
        Adam's state: see `optim.adam`.
    eps, tau, theta, g, z : float64 arrays, (p,), (n,), (p,), (n,), (n,)
        The draw that was made with `parameters`: normals, theta = mu + L eps, and what `amortised_draw` gave.
    message : (n,) float64 array
        Derivative of the log-likelihood in z.
    extra, extra_next : (n, e) float64 arrays
        What the network of z sees beside g: at the draw that was made, and at the next.
    rho : float
    hidden : sequence of int
        As in `amortised_draw`.
    sizes : sequence of int
        (d, .., p), of the predictor's network; f = mlp.n_parameters(sizes).
    activation : "tanh", "relu" or "identity"
        Of all its layers but the last.
    learning_rate : float
        > 0 and finite.
    path, full, centre
        As in `amortised_iteration`; the centre is that of the next design.
    key, client, step : int
        Name the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.
    out : tuple of nine float64 arrays, optional

    Returns
    -------
    new_H : (n, p) float64 array
        The design of the next draw.
    new_parameters : (k,) float64 array
        After a step of Adam with its usual numbers along the gradient of the ELBO, the terms of the priors and of q(theta)
        included.
    new_moments : (3, k) float64 array
    new_eps, new_tau, new_theta, new_g, new_z : float64 arrays, (p,), (n,), (p,), (n,), (n,)
        The next draw, made with `new_parameters`.
    new_extra : (n, e) float64 array
        What the network of z saw: `extra_next`, with the centre.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, impossible sizes, a number outside its range, a wrong `out`.
    """
    units, layers, symbols = _of_network(extra, hidden, sizes, activation, centre, full=full)
    inputs = (X, precision, H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next)
    return NETWORK_ITERATION.run(
        inputs, out, n_threads, backend, symbols, rho=rho, hidden=units, sizes=layers, activation=activation,
        learning_rate=learning_rate, **_ADAM, path=path, full=full, centre=centre, key=key, client=client, step=step,
    )  # fmt: skip


def bind_network_iteration(
    X: Floats,
    precision: Floats,
    *of_state: Floats,
    rho: float,
    hidden: Sequence[int] = (16, 16),
    sizes: Sequence[int],
    activation: str = "relu",
    path: bool = True,
    full: bool = False,
    centre: int | None = None,
    key: int,
    client: int = 0,
    n_threads: int = 1,
) -> Iterations:
    """`network_iteration` for many calls with equal sizes: (H, .., extra_next, learning_rate, step) -> what it returns.

    Parameters
    ----------
    X, precision
        As those of `network_iteration`. They are read in every call, and must stay as they are.
    of_state
        The other arrays of any call, in their order.
    rho, hidden, sizes, activation, path, full, centre, key, client, n_threads
        As those of `network_iteration`.

    Raises
    ------
    TypeError, ValueError
        What `network_iteration` refuses; in a call, an array of another type or shape, or rows that have moved.
    """
    kernel, arrays = NETWORK_ITERATION, (X, precision, *of_state)
    units, layers, symbols = _of_network(of_state[-1], hidden, sizes, activation, centre, full=full)
    varying = (*names(*kernel.inputs)[2:], "learning_rate", "step")
    return kernel.bind(
        arrays, varying, n_threads, None, symbols, rho=rho, hidden=units, sizes=layers, activation=activation, learning_rate=1.0,
        **_ADAM, path=path, full=full, centre=centre, key=key, client=client, step=0,
    )  # fmt: skip


def _of_network(
    extra: Any, hidden: Sequence[int], sizes: Sequence[int], activation: str, centre: int | None, *, full: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, int]]:
    """Hidden sizes of z's network and sizes of the predictor's, as backends take them, and what follows from them."""
    kernel = NETWORK_ITERATION.name
    units, network = conditional(kernel, columns(extra), tuple(map(operator.index, hidden)))
    layers, of_phi, _ = mlp.network(kernel, sizes, activation)
    _check_centre(kernel, extra, centre)
    p, f = of_phi["q"], of_phi["k"]
    symbols = {"d": of_phi["d"], "p": p, "f": f}
    if is_matrix(extra):
        symbols["k"] = of_coefficients(p, full=full) + f + network["k"]
    return units, layers, symbols


def _check_centre(kernel: str, extra: Any, centre: int | None) -> None:
    if centre is not None and is_matrix(extra) and centre >= extra.shape[1]:
        raise ValueError(f"{kernel}: centre must be a column of extra, of {extra.shape[1]}, got {centre}")
