"""Does the whole work of a client between two messages in one call: a gradient, a step of Adam, the next draw (see the
family)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._deprecate import arguments
from ...arrays import Floats
from .. import mlp, optim, rng
from .._checks import FINITE, MADE, POSITIVE, WORD, Domain, Together, choice_of, whole
from .._docs import Given, binds, documented
from .._record import COMPILED, F64, Array, Kernel, Scalar, here, names
from .gradients import EXTRA, FULL, HIDDEN, PATH, RHO, WORDS, H, columns, conditional, is_matrix, of_coefficients, rows

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
        rng.MADE_KEY,
        Scalar("client", WORD, 0),
        Scalar("step", WORD, 0),
    )


_RANDOM = Together(("client", "step"), "0 <= client < 2^32, 0 <= step < 2^32")
_SENTENCES = (
    Together(("prior_mean", "prior_sd", "learning_rate"), "a finite prior_mean, prior_sd > 0 and learning_rate > 0, both finite"),
    _RANDOM,
)
_ADAM: dict[str, object] = {"beta1": optim.BETA1, "beta2": optim.BETA2, "epsilon": optim.EPSILON}


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


_WORDS = WORDS | {
    "moments": "Adam's state: see `optim.adam`.",
    "eps": "Standard normal numbers, of the draw that was made with `parameters`.",
    "tau": "Standard normal numbers, of the same draw.",
    "theta": "mu + L eps, of the same draw.",
    "g": "H theta, of the same draw.",
    "z": "The auxiliary variables, of the same draw.",
    "prior_mean": "theta ~ N(prior_mean, prior_sd^2 I).",
    "prior_sd": "theta ~ N(prior_mean, prior_sd^2 I).",
    "learning_rate": "Learning rate of the step of Adam, whose other numbers are the usual ones.",
    "full": f"For q(theta) = N(mu, L L'). {WORDS['full']}",
    "seed": "In [0, 2^64). Names the normals of the next draw, rng.normal(p + n, ..): the first p are eps, the others tau.",
    "chain": 'Names the normals of the next draw, whose key is that of the stream "draws".',
    "client": "Names the normals of the next draw.",
    "step": "Names the normals of the next draw.",
    "new_parameters": "After a step of Adam along the gradient of the ELBO, the terms of the priors and of q(theta) included.",
    "new_moments": "Adam's state after the step.",
    **{f"new_{name}": "Numbers of the next draw, made with `new_parameters`." for name in ("eps", "tau", "theta", "g", "z")},
}
_AMORTISED_WORDS = _WORDS | {
    "parameters": "[mu (p), scale, psi], with mlp.n_parameters((1 + e, *hidden, 2)) in psi. The scale of q(theta) is log sd (p), "
    "or with `full` a triangle (p (p + 1) / 2).",
    "extra": "Numbers that the network of z sees beside g, at the draw that was made.",
    "extra_next": "The same at the next draw.",
    "centre": "The column of `extra_next` that is not read: the network is told H mu there, with the H and mu after the step.",
    "new_extra": "The numbers that the network of z saw: `extra_next`, with the centre.",
}
MEAN_FIELD_ITERATION = Kernel(
    "augmented.mean_field_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, mean-field.",
    source="docs/spec/vertical.md, sections 4 to 6",
    inputs=(H, *_state(), *rows("message")),
    outputs=_state("new_"),
    scalars=(RHO, *_PRIOR, *_steps()),
    together=_SENTENCES,
    streams=("draws",),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=_WORDS
    | {
        "parameters": "[mu (p), scale, mean (n), log_sd (n)]. The scale of q(theta) is log sd (p), or with `full` a triangle "
        "(p (p + 1) / 2)."
    },
    example="""
        >>> H, eps, tau = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0])  # p = 1 coefficient, n = 2 rows
        >>> parameters = np.zeros(6)  # mu and log sd of the coefficient, means and log sds of z
        >>> theta, g, z = eps, H @ eps, tau  # the draw that was made with them
        >>> new_parameters, *others = augmented.mean_field_iteration(
        ...     H, parameters, np.zeros((3, 6)), eps, tau, theta, g, z, np.array([0.3, -0.2]),
        ...     rho=1.0, learning_rate=0.01, seed=7,
        ... )
        >>> new_parameters.round(3)
        array([-0.01, -0.01,  0.01,  0.01,  0.01, -0.01])
    """,
)
AMORTISED_ITERATION = Kernel(
    "augmented.amortised_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, amortised.",
    source="docs/spec/vertical.md, sections 4 to 6",
    inputs=(H, *_state(), *rows("message"), EXTRA, Array("extra_next", ("n", "e"), F64)),
    outputs=(*_state("new_"), Array("new_extra", ("n", "e"), F64)),
    scalars=(RHO, HIDDEN, *_PRIOR, *_steps(_CENTRE)),
    together=_SENTENCES,
    streams=("draws",),
    host="every iteration ends with a message, and a client has too few rows",
    backends=COMPILED,
    words=_AMORTISED_WORDS,
    example="""
        >>> H, eps, tau = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0])  # p = 1 coefficient, n = 2 rows
        >>> k = 2 + mlp.n_parameters((1, 3, 2))  # mu and log sd of the coefficient, and the network of z
        >>> theta, g, z, extra = eps, H @ eps, H @ eps + tau, np.zeros((2, 0))  # the draw that was made with zeros
        >>> new_parameters, *others = augmented.amortised_iteration(
        ...     H, np.zeros(k), np.zeros((3, k)), eps, tau, theta, g, z, np.array([0.3, -0.2]), extra, extra,
        ...     rho=1.0, hidden=(3,), learning_rate=0.01, seed=7,
        ... )
        >>> new_parameters[:2].round(3)
        array([-0.01, -0.01])
    """,
)

NETWORK_ITERATION = Kernel(
    "augmented.network_iteration",
    __name__,
    purpose="One client's gradient, step of Adam and next draw, amortised, with a network in the predictor.",
    source="docs/spec/vertical.md, sections 4 to 6 and 9.3",
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
    words=_AMORTISED_WORDS
    | {
        "X": "Rows.",
        "precision": "Prior precisions of phi about 0; 0 where it has none.",
        "H": "The design of the draw that was made: `mlp.forward` of X with its phi.",
        "parameters": "[mu (p), scale, phi (f), psi], the scale and psi as in `amortised_iteration`.",
        "sizes": "(d, .., p), of the predictor's network; f = mlp.n_parameters(sizes).",
        "activation": "Activation of all its layers but the last.",
        "new_H": "The design of the next draw.",
    },
    example="""
        >>> X, sizes, eps, tau = np.array([[1.0], [2.0]]), (1, 2, 1), np.array([0.5]), np.array([1.0, -1.0])
        >>> f = mlp.n_parameters(sizes)  # of the predictor's network, phi
        >>> phi, k = np.full(f, 0.1), 2 + f + mlp.n_parameters((1, 3, 2))  # and of the network of z, psi
        >>> parameters = np.concatenate([np.zeros(2), phi, np.zeros(k - 2 - f)])
        >>> H, theta, extra = mlp.forward(X, phi, sizes=sizes, activation="relu"), eps, np.zeros((2, 0))
        >>> g = H @ theta
        >>> new_H, new_parameters, *others = augmented.network_iteration(
        ...     X, np.zeros(f), H, parameters, np.zeros((3, k)), eps, tau, theta, g, g + tau, np.array([0.3, -0.2]), extra, extra,
        ...     rho=1.0, hidden=(3,), sizes=sizes, learning_rate=0.01, seed=7,
        ... )
        >>> new_H.round(3)
        array([[0.15 ],
               [0.168]])
    """,
)


_SEEDED = arguments(key=rng.old_key("draws"))
_NEXT = ("learning_rate", "step")  # which each bound call is given beside arrays
_VARYING = (*names(*NETWORK_ITERATION.inputs)[2:], *_NEXT)


@_SEEDED
@documented(MEAN_FIELD_ITERATION)
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
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Does a client's work between two messages, mean-field: a gradient, a step, the next draw."""
    inputs = (H, parameters, moments, eps, tau, theta, g, z, message)
    return MEAN_FIELD_ITERATION.compute(
        inputs, out, n_threads, backend, _of_mean_field(H, full=full), rho=rho, prior_mean=prior_mean, prior_sd=prior_sd,
        learning_rate=learning_rate, **_ADAM, path=path, full=full,
        key=rng.key_of(MEAN_FIELD_ITERATION, "draws", seed, chain), client=client, step=step,
    )  # fmt: skip


@_SEEDED
@binds(mean_field_iteration, MEAN_FIELD_ITERATION, varying=_VARYING, without=["backend"], learning_rate=1.0)
def bind_mean_field_iteration(given: Given) -> Iterations:
    """Binds `mean_field_iteration` for many calls with equal sizes: (H, .., message, learning_rate, step) -> its results.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented
    >>> H, eps, tau = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0])
    >>> state = np.zeros(6), np.zeros((3, 6)), eps, tau, eps, H @ eps, tau
    >>> iterate = augmented.bind_mean_field_iteration(H, *state, np.zeros(2), rho=1.0, seed=7)
    >>> for step in range(3):
    ...     state = iterate(H, *state, np.array([0.3, -0.2]), 0.01, step)
    ...
    >>> state[0].shape
    (6,)
    """
    symbols = _of_mean_field(given["H"], full=given["full"])
    return MEAN_FIELD_ITERATION.bind_given(
        _made(MEAN_FIELD_ITERATION, given), (*names(*MEAN_FIELD_ITERATION.inputs), *_NEXT), symbols
    )


def _made(kernel: Kernel, given: Given) -> Given:
    """Returns arguments of a public function with the numbers that are none of them: of Adam, and the key."""
    return given | _ADAM | {"key": rng.key_of(kernel, "draws", given["seed"], given["chain"])}


def _of_mean_field(H: Any, *, full: bool) -> dict[str, int] | None:
    """Returns the number of a client's parameters."""
    FULL.domain.check(MEAN_FIELD_ITERATION.name, "full", full)
    H = here(H)
    return {"k": of_coefficients(H.shape[1], full=full) + 2 * len(H)} if is_matrix(H) else None


@_SEEDED
@documented(AMORTISED_ITERATION)
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
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Does a client's work between two messages, amortised: a gradient, a step, the next draw."""
    sizes, symbols = _of_amortised(H, extra, hidden, centre, full=full)
    inputs = (H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next)
    return AMORTISED_ITERATION.compute(
        inputs, out, n_threads, backend, symbols, rho=rho, hidden=sizes, prior_mean=prior_mean, prior_sd=prior_sd,
        learning_rate=learning_rate, **_ADAM, path=path, full=full, centre=centre,
        key=rng.key_of(AMORTISED_ITERATION, "draws", seed, chain), client=client, step=step,
    )  # fmt: skip


@_SEEDED
@binds(amortised_iteration, AMORTISED_ITERATION, varying=_VARYING, without=["backend"], learning_rate=1.0)
def bind_amortised_iteration(given: Given) -> Iterations:
    """Binds `amortised_iteration` for many calls with equal sizes: (H, .., extra_next, learning_rate, step) -> its results.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp
    >>> H, eps, tau, extra = np.array([[1.0], [2.0]]), np.array([0.5]), np.array([1.0, -1.0]), np.zeros((2, 0))
    >>> k = 2 + mlp.n_parameters((1, 3, 2))
    >>> state = np.zeros(k), np.zeros((3, k)), eps, tau, eps, H @ eps, H @ eps + tau
    >>> iterate = augmented.bind_amortised_iteration(H, *state, np.zeros(2), extra, extra, rho=1.0, hidden=(3,), seed=7)
    >>> for step in range(3):
    ...     *state, extra = iterate(H, *state, np.array([0.3, -0.2]), extra, extra, 0.01, step)
    ...
    >>> state[0].shape == (k,)
    True
    """
    kernel = AMORTISED_ITERATION
    sizes, symbols = _of_amortised(*(given[name] for name in ("H", "extra", "hidden", "centre")), full=given["full"])
    return kernel.bind_given(_made(kernel, given) | {"hidden": sizes}, (*names(*kernel.inputs), *_NEXT), symbols)


def _of_amortised(
    H: Any, extra: Any, hidden: Sequence[int], centre: int | None, *, full: bool
) -> tuple[NDArray[np.int64], dict[str, int] | None]:
    """Returns the network's hidden sizes as backends take them, and the number of a client's parameters."""
    kernel = AMORTISED_ITERATION.name
    H, extra = here(H), here(extra)
    FULL.domain.check(kernel, "full", full)
    sizes, network = conditional(kernel, columns(extra), whole(kernel, "hidden", hidden))
    _check_centre(kernel, extra, centre)
    symbols = {"k": of_coefficients(H.shape[1], full=full) + network["k"]} if is_matrix(H) and is_matrix(extra) else None
    return sizes, symbols


@_SEEDED
@documented(NETWORK_ITERATION)
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
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: tuple[Floats | None, ...] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Does the work of `amortised_iteration` with a network in the predictor: g = f_phi(X) theta, theta ~ N(0, I), phi a mode or
    a maximum."""
    # Sizes of both networks bind the symbols that no array of the call binds.
    units, layers, symbols = _of_network(extra, hidden, sizes, activation, centre, full=full)
    inputs = (X, precision, H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next)
    return NETWORK_ITERATION.compute(
        inputs, out, n_threads, backend, symbols, rho=rho, hidden=units, sizes=layers, activation=activation,
        learning_rate=learning_rate, **_ADAM, path=path, full=full, centre=centre,
        key=rng.key_of(NETWORK_ITERATION, "draws", seed, chain), client=client, step=step,
    )  # fmt: skip


@_SEEDED
@binds(network_iteration, NETWORK_ITERATION, varying=_VARYING, without=["backend"], learning_rate=1.0)
def bind_network_iteration(given: Given) -> Iterations:
    """Binds `network_iteration` for many calls with equal sizes: (H, .., extra_next, learning_rate, step) -> its results.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import augmented, mlp
    >>> X, sizes, eps, tau = np.array([[1.0], [2.0]]), (1, 2, 1), np.array([0.5]), np.array([1.0, -1.0])
    >>> f, extra = mlp.n_parameters(sizes), np.zeros((2, 0))
    >>> k = 2 + f + mlp.n_parameters((1, 3, 2))
    >>> H = mlp.forward(X, np.full(f, 0.1), sizes=sizes, activation="relu")
    >>> parameters = np.concatenate([np.zeros(2), np.full(f, 0.1), np.zeros(k - 2 - f)])
    >>> state = H, parameters, np.zeros((3, k)), eps, tau, eps, H @ eps, H @ eps + tau
    >>> iterate = augmented.bind_network_iteration(
    ...     X, np.zeros(f), *state, np.zeros(2), extra, extra, rho=1.0, hidden=(3,), sizes=sizes, seed=7
    ... )
    >>> for step in range(3):
    ...     *state, extra = iterate(*state, np.array([0.3, -0.2]), extra, extra, 0.01, step)
    ...
    >>> state[1].shape == (k,)
    True
    """
    kernel, of = NETWORK_ITERATION, ("extra", "hidden", "sizes", "activation", "centre")
    units, layers, symbols = _of_network(*(given[name] for name in of), full=given["full"])
    return kernel.bind_given(
        _made(kernel, given) | {"hidden": units, "sizes": layers}, (*names(*kernel.inputs)[2:], *_NEXT), symbols
    )


def _of_network(
    extra: object, hidden: Sequence[int], sizes: Sequence[int], activation: str, centre: int | None, *, full: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, int]]:
    """Returns the hidden sizes of z's network and the sizes of the predictor's, as backends take them, and the symbols that
    follow."""
    kernel = NETWORK_ITERATION.name
    extra = here(extra)
    FULL.domain.check(kernel, "full", full)
    units, network = conditional(kernel, columns(extra), whole(kernel, "hidden", hidden))
    layers, of_phi, _ = mlp.network(kernel, sizes, activation)
    _check_centre(kernel, extra, centre)
    p, f = of_phi["q"], of_phi["k"]
    symbols = {"d": of_phi["d"], "p": p, "f": f}
    if is_matrix(extra):
        symbols["k"] = of_coefficients(p, full=full) + f + network["k"]
    return units, layers, symbols


def _check_centre(kernel: str, extra: Any, centre: int | None) -> None:
    _CENTRE.domain.check_kind(kernel, "centre", centre)
    if centre is not None and is_matrix(extra) and centre >= extra.shape[1]:
        raise ValueError(f"{kernel}: centre must be a column of extra, of {extra.shape[1]}, got {centre}")
