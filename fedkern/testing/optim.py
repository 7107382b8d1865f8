"""Makes cases of the optimisers."""

from __future__ import annotations

import numpy as np

from . import Case, Floats, Source

EXTREMES: tuple[tuple[float, ...], ...] = ((), (0.0, 1e-200, 1e150, -1e200, np.inf, np.nan))


def gradient(source: Source) -> Floats:
    """Returns a gradient of some length."""
    k = source.size()
    return source.array(
        np.exp(source.random.uniform(-8, 8, k)) * source.random.choice([-1, 1], k), extremes=source.choose(EXTREMES)
    )


def adam(source: Source) -> Case:
    """Makes a case whose counts are all the same, as in most uses, or not, as of parameters that not every batch touches."""
    g = gradient(source)
    k = len(g)
    t = source.choose([np.zeros(k), np.full(k, 7.0), np.full(k, 1e5), source.random.integers(0, 50, k).astype(float)])
    m = np.where(t > 0, source.random.standard_normal(k), 0.0)
    v = np.where(t > 0, source.random.exponential(size=k), 0.0)
    options = source.choose([{}, {"beta1": 0.5, "beta2": 0.99, "epsilon": 1e-3}, {"beta1": 0.0, "beta2": 0.0}])
    arguments = {
        "state": source.array(np.stack([m, v, t])),
        "gradient": g,
        "learning_rate": source.choose([1e-3, 0.1]),
        **options,
    }
    return Case(arguments, magnitude=_adam_magnitude(**arguments))


def _adam_magnitude(
    state: Floats, gradient: Floats, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
) -> tuple[Floats, Floats]:
    """Returns the magnitudes; the first moment is a sum whose terms may cancel."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        m = beta1 * abs(state[0]) + (1 - beta1) * abs(gradient)
        v = beta2 * state[1] + (1 - beta2) * gradient * gradient
        t = state[2] + 1
        step = learning_rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return np.stack([m, v, t]), step


def adagrad(source: Source) -> Case:
    g = gradient(source)
    state = source.array(source.choose([0.0, 1.0]) * source.random.exponential(size=(1, len(g))))
    return Case({"state": state, "gradient": g, "learning_rate": source.choose([1e-3, 0.1])}, kind="variate")
