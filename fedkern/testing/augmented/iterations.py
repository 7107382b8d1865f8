"""Makes cases of whole iterations: a client in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkern.kernels import augmented, mlp

from .. import Arguments, Case, Floats, Results, Source
from ..mlp.networks import near_a_kink, parameters_of, values
from .gradients import HIDDEN, scale_of

COLUMNS = [0, 1, 2, 3, 9]


def state(source: Source, H: Floats, others: Floats, draw: Callable[..., Results]) -> Arguments:
    """Returns a client's state; its second moments keep a step a smooth function of its gradient. `draw` makes g and z."""
    (n, p), random = H.shape, source.random
    eps, tau = source.normal(p), source.normal(n)
    full = source.choose([False, True])
    scale = scale_of(source, p, -20, full=full)
    parameters = np.concatenate([random.standard_normal(p), scale, others])
    k = len(parameters)
    theta = augmented.coefficients(parameters[:p], scale, eps, full=full, backend="reference")
    g, z = draw(H, theta, tau)
    arrays = {
        "parameters": parameters,
        "moments": np.stack([random.standard_normal(k), 1 + random.exponential(size=k), np.full(k, 7.0)]),
        "theta": theta,
        "g": g,
        "z": z,
    }
    return {
        "H": H,
        "eps": eps,
        "tau": tau,
        "message": source.normal(n, extremes=source.choose(((), (np.nan,)))),
        **{name: source.array(value) for name, value in arrays.items()},
        "learning_rate": source.choose([1e-3, 0.1]),
        "path": source.choose([True, False]),
        "full": full,
        "key": source.choose([0, 2**64 - 1]),
        "step": source.choose([0, 2**32 - 1]),
    }


def prior(source: Source) -> Arguments:
    return {"prior_mean": source.choose([0.0, 1.5]), "prior_sd": source.choose([1.0, 0.3])}


def magnitudes(results: Results, H: Floats, centre: int | None) -> list[Floats]:
    """Returns the magnitudes of the parameters and of the numbers that follow from them, where `H` is that of the design."""
    most = [1 + abs(value) for value in results]
    most[1][0] += 4 * np.sqrt(results[1][1])  # the gradient is below the root of 1000 v
    most[5] = most[5] + H @ most[4]
    if centre is not None:
        most[7][:, centre] += H @ most[0][: H.shape[1]]
    return most


def mean_field_iteration(source: Source) -> Case:
    n, rho = source.size(), source.choose([0.1, 0.5, 1.0, 10.0])
    mean, log_sd = source.random.standard_normal(n), 0.5 * source.random.standard_normal(n) + np.log(rho)

    def draw(H: Floats, w: Floats, tau: Floats) -> tuple[Floats, Floats]:
        return augmented.mean_field_draw(H, w, tau, mean, log_sd, backend="reference")

    H = source.normal(n, source.choose(COLUMNS))
    arguments = state(source, H, np.concatenate([mean, log_sd]), draw) | prior(source) | {"rho": rho}
    results = augmented.mean_field_iteration(**arguments, backend="reference")
    return Case(arguments, kind="chain", magnitude=magnitudes(results, abs(H), None), wanted=results)


def conditional(source: Source, n: int) -> tuple[Arguments, Floats, Callable[..., Results]]:
    """Returns the arguments of an amortised family, its network's parameters, and its draw."""
    e, hidden = source.choose([0, 1, 2, 5]), source.choose(HIDDEN)
    given = {"rho": source.choose([0.1, 0.5, 1.0, 10.0]), "hidden": hidden}
    extra, extra_next = source.normal(n, e), source.normal(n, e)
    psi = parameters_of(source, (1 + e, *hidden, 2))

    def draw(H: Floats, w: Floats, tau: Floats) -> tuple[Floats, Floats]:
        return augmented.amortised_draw(H, w, tau, extra, psi, **given, backend="reference")

    told = {"extra": extra, "extra_next": extra_next, "centre": source.choose([None, e - 1]) if e else None}
    return given | told, psi, draw


def amortised_iteration(source: Source) -> Case:
    n = source.size()
    told, psi, draw = conditional(source, n)
    H = source.normal(n, source.choose(COLUMNS))
    arguments = state(source, H, psi, draw) | prior(source) | told
    results = augmented.amortised_iteration(**arguments, backend="reference")
    return Case(arguments, kind="chain", magnitude=magnitudes(results, abs(H), told["centre"]), wanted=results)


def network_iteration(source: Source) -> Case:
    """Makes a case without a step across a kink of a relu: where rounding might decide, the activation is another."""
    n, sizes = source.size(), (source.choose([1, 3, 9]), *source.choose(HIDDEN), source.choose([1, 2, 3]))
    X, phi = source.normal(n, sizes[0]), parameters_of(source, sizes)
    f, activation = len(phi), source.choose(sorted(mlp.ACTIVATIONS))
    told, psi, draw = conditional(source, n)
    precision = source.array(source.choose([np.zeros(f), source.random.exponential(size=f)]))

    def drawn(activation: str) -> tuple[Arguments, Results, Floats]:
        H = source.array(mlp.forward(np.array(X), phi, sizes=sizes, activation=activation, backend="reference"))
        of_network: Arguments = {"X": X, "precision": precision, "sizes": sizes, "activation": activation}
        arguments = of_network | state(source, H, np.concatenate([phi, psi]), draw) | told
        results = augmented.network_iteration(**arguments, backend="reference")
        end = len(results[1]) - len(psi)
        return arguments, results, results[1][end - f : end]

    arguments, results, moved = drawn(activation)
    if activation == "relu" and (near_a_kink(X, phi, sizes) or near_a_kink(X, moved, sizes)):
        activation = "tanh"
        arguments, results, moved = drawn(activation)
    h, rounding = values(X, abs(X), moved, sizes, activation)
    design = 1 + abs(h[-1]) + rounding[-1]
    magnitude = [design, *magnitudes(results[1:], design, told["centre"])]
    return Case(arguments, kind="chain", magnitude=magnitude, wanted=results)
