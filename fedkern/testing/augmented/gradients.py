"""Makes cases of draws and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels import augmented
from fedkern.kernels._reference.augmented import gradients as _reference

from .. import Arguments, Case, Floats, Source
from ..mlp.networks import gradient_magnitudes, parameters_of, values

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
    own = 0 if arguments["own"] is None else abs(arguments["own"])
    pull = (abs(arguments["z"]) + abs(arguments["g"])) / arguments["rho"] ** 2
    return abs(arguments["message"]) + pull + abs(arguments["tau"]) / s * (1 + rounding), own + pull


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
