"""Makes cases of the augmented models' kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkern.kernels import augmented, mlp
from fedkern.kernels._reference import augmented as _reference

from . import Arguments, Case, Floats, Results, Source
from .mlp import gradient_magnitudes, near_a_kink, parameters_of, values

# Makes cases of draws and gradients --------------------

reference: Any = _reference
HIDDEN = ((), (1,), (5,), (8, 8), (16, 16), (17, 3, 9))
EXTREMES: tuple[tuple[float, ...], ...] = ((), (), (0.0, 1e-200, 1e9, np.nan))


def rows(source: Source) -> Arguments:
    """Returns the arguments that both families share."""
    n, p = source.size(), source.choose([0, 1, 2, 3, 9])
    extremes = source.choose(EXTREMES)
    return {"H": source.normal(n, p, extremes=extremes), "w": source.normal(p), "tau": source.normal(n)}


def mean_field_draw(source: Source) -> Case:
    arguments = rows(source)
    n = len(arguments["tau"])
    arguments |= {
        "mean": source.normal(n),
        "log_sd": source.normal(n, extremes=source.choose((*EXTREMES[:1], (-40.0, 5.0, np.nan)))),
    }
    with np.errstate(over="ignore", invalid="ignore"):
        g = abs(arguments["H"]) @ abs(arguments["w"])
        z = abs(arguments["mean"]) + np.exp(arguments["log_sd"]) * abs(arguments["tau"])
    return Case(arguments, magnitude=[g, z])


def gradient_inputs(source: Source, drawn: Arguments, g: Floats, z: Floats) -> Arguments:
    n = len(g)
    return {
        "H": drawn["H"],
        "g": source.array(g),
        "z": source.array(z),
        "tau": drawn["tau"],
        "message": source.normal(n, extremes=source.choose(EXTREMES)),
        "own": source.choose([None, source.normal(n)]),
        "path": source.choose([True, False]),
    }


def terms(arguments: Arguments, s: Floats, rounding: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """Returns sums of absolute terms of a, and of own + (z - g) / rho^2; `rounding` is that of log s."""
    own_terms = 0 if arguments["own"] is None else abs(arguments["own"])
    pull = (abs(arguments["z"]) + abs(arguments["g"])) / arguments["rho"] ** 2
    return abs(arguments["message"]) + pull + abs(arguments["tau"]) / s * (1 + rounding), own_terms + pull


def mean_field_gradient(source: Source) -> Case:
    drawn = rows(source)
    n, rho = len(drawn["tau"]), source.choose([0.02, 0.5, 1.0, 10.0])
    drawn |= {"mean": source.normal(n), "log_sd": source.array(0.5 * source.random.standard_normal(n) + np.log(rho))}
    g, z = augmented.mean_field_draw(**drawn, backend="reference")
    arguments = gradient_inputs(source, drawn, g, z) | {"log_sd": drawn["log_sd"], "rho": rho}
    s = np.exp(arguments["log_sd"])
    a, cotangent = terms(arguments, s)
    magnitude = (abs(arguments["H"]).T @ cotangent, cotangent, a, 1 + a * abs(arguments["tau"]) * s)
    return Case(arguments, magnitude=magnitude)


def amortised(source: Source) -> Arguments:
    arguments = rows(source)
    e, hidden = source.choose([0, 1, 2, 5]), source.choose(HIDDEN)
    extra = source.array(source.random.standard_normal((len(arguments["tau"]), e)), extremes=source.choose(EXTREMES))
    scale = source.choose([1.0, 1.0, 12.0])  # the last one clamps many of the log s
    psi = source.array(parameters_of(source, (1 + e, *hidden, 2), scale))
    return arguments | {"extra": extra, "psi": psi, "hidden": hidden, "rho": source.choose([0.02, 0.5, 1.0, 10.0])}


def network(g: Floats, most: Floats, arguments: Arguments) -> tuple[Any, Any, Any, tuple[Floats, Floats, Floats]]:
    """Returns s, magnitudes of the network's two values, and the arguments of `mlp.gradient_magnitudes` but two. `most` is that
    of g."""
    psi, extra = arguments["psi"], arguments["extra"]
    sizes = (1 + extra.shape[1], *arguments["hidden"], 2)
    u, most_u = np.column_stack([g, extra]), np.column_stack([most, abs(extra)])
    h, magnitudes = values(u, most_u, psi, sizes, "tanh")
    with np.errstate(over="ignore", invalid="ignore"):
        s = arguments["rho"] * np.exp(np.clip(h[-1][:, 1], reference.LOWEST, reference.HIGHEST))
    return s, magnitudes[-1][:, 0], magnitudes[-1][:, 1], (u, most_u, psi)


def amortised_draw(source: Source) -> Case:
    arguments = amortised(source)
    with np.errstate(over="ignore", invalid="ignore"):
        most = abs(arguments["H"]) @ abs(arguments["w"])
        s, o1, o2, _ = network(arguments["H"] @ arguments["w"], most, arguments)
    return Case(arguments, magnitude=[most, most + o1 + s * abs(arguments["tau"]) * (1 + o2)])


def amortised_gradient(source: Source) -> Case:
    drawn = amortised(source)
    g, z = augmented.amortised_draw(**drawn, backend="reference")
    arguments = gradient_inputs(source, drawn, g, z) | {name: drawn[name] for name in ("extra", "psi", "hidden", "rho")}
    tau = abs(arguments["tau"])
    s, _, o2, inputs = network(arguments["g"], abs(arguments["g"]), arguments)
    sizes = (inputs[0].shape[1], *arguments["hidden"], 2)
    a, cotangent = terms(arguments, s, o2)
    for_psi = np.column_stack([a, 1 + a * tau * s * (1 + o2)])
    for_g = for_psi + np.column_stack([tau / s * (1 + o2), 1 + tau**2])
    grad_psi, _ = gradient_magnitudes(*inputs, for_psi, sizes, "tanh")
    _, through = gradient_magnitudes(*inputs, for_g, sizes, "tanh")
    cotangent = cotangent + through[:, 0] + for_g[:, 0]
    return Case(arguments, magnitude=[abs(arguments["H"]).T @ cotangent, cotangent, grad_psi])


def scale_of(source: Source, p: int, low: float, *, full: bool) -> Floats:
    """Returns log sd, or the triangle of a full q(theta)."""
    log_sd = source.random.uniform(low, 1, p)
    if not full:
        return log_sd
    flat = 0.3 * source.random.standard_normal((p, p))
    np.fill_diagonal(flat, log_sd)
    return np.asarray(flat[np.tril_indices(p)])


def coefficients(source: Source) -> Case:
    p, full = source.size(), source.choose([False, True])
    scale = source.array(scale_of(source, p, -25, full=full), extremes=source.choose(((), (-np.inf, np.nan))))
    arguments = {"mu": source.normal(p), "scale": scale, "eps": source.normal(p), "full": full}
    L = abs(reference.triangle(scale, p)[0]) if full else np.diag(np.exp(np.maximum(scale, reference.LEAST)))
    with np.errstate(invalid="ignore"):
        return Case(arguments, magnitude=[abs(arguments["mu"]) + L @ abs(arguments["eps"])])


# Makes cases of whole iterations: a client in the middle of a run --------------------

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
        "seed": source.choose([0, 2**64 - 1]),
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

    family = {"extra": extra, "extra_next": extra_next, "centre": source.choose([None, e - 1]) if e else None}
    return given | family, psi, draw


def amortised_iteration(source: Source) -> Case:
    n = source.size()
    family, psi, draw = conditional(source, n)
    H = source.normal(n, source.choose(COLUMNS))
    arguments = state(source, H, psi, draw) | prior(source) | family
    results = augmented.amortised_iteration(**arguments, backend="reference")
    return Case(arguments, kind="chain", magnitude=magnitudes(results, abs(H), family["centre"]), wanted=results)


def network_iteration(source: Source) -> Case:
    """Makes a case without a step across a kink of a relu: where rounding might decide, the activation is another."""
    n, sizes = source.size(), (source.choose([1, 3, 9]), *source.choose(HIDDEN), source.choose([1, 2, 3]))
    X, phi = source.normal(n, sizes[0]), parameters_of(source, sizes)
    f, activation = len(phi), source.choose(sorted(mlp.ACTIVATIONS))
    family, psi, draw = conditional(source, n)
    precision = source.array(source.choose([np.zeros(f), source.random.exponential(size=f)]))

    def drawn(activation: str) -> tuple[Arguments, Results, Floats]:
        H = source.array(mlp.forward(np.array(X), phi, sizes=sizes, activation=activation, backend="reference"))
        of_network: Arguments = {"X": X, "precision": precision, "sizes": sizes, "activation": activation}
        arguments = of_network | state(source, H, np.concatenate([phi, psi]), draw) | family
        results = augmented.network_iteration(**arguments, backend="reference")
        end = len(results[1]) - len(psi)
        return arguments, results, results[1][end - f : end]

    arguments, results, moved = drawn(activation)
    if activation == "relu" and (near_a_kink(X, phi, sizes) or near_a_kink(X, moved, sizes)):
        activation = "tanh"
        arguments, results, moved = drawn(activation)
    h, rounding = values(X, abs(X), moved, sizes, activation)
    design = 1 + abs(h[-1]) + rounding[-1]
    magnitude = [design, *magnitudes(results[1:], design, family["centre"])]
    return Case(arguments, kind="chain", magnitude=magnitude, wanted=results)
