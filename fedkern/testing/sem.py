"""Makes cases of the kernels of the structural equation model."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels import sem
from fedkern.kernels._reference import sem as _reference

from . import Arguments, Case, Floats, Results, Source

reference: Any = _reference

VARIABLES = (1, 2, 3, 5, 8, 9)
ROWS = (1, 2, 7, 8, 9, 33, 65)


def small(source: Source) -> tuple[int, int, int]:
    """Returns the numbers of chains, variables and rows."""
    return source.choose([1, 2, 3]), source.choose(VARIABLES), source.choose(ROWS)


def model(source: Source, c: int, p: int, n: int, stable: bool) -> Arguments:
    """Returns rows, global coefficients, deviations and error scales; the diagonals hold numbers that must not be read."""
    random, off = source.random, ~np.eye(p, dtype=bool)
    theta, deviation = 0.3 * random.standard_normal((c, p, p)), 0.2 * random.standard_normal((c, p, p))
    if stable:
        radius = np.abs(np.linalg.eigvals((theta + deviation) * off)).max(axis=1)
        theta, deviation = (a / np.maximum(1, radius / 0.9)[:, None, None] for a in (theta, deviation))
    return {
        "Y": source.normal(c, p, n),
        "theta": source.array(np.where(off, theta, 77.0)),
        "deviation": source.array(np.where(off, deviation, -78.0)),
        "b": source.array(np.exp(0.3 * random.standard_normal((c, p)))),
    }


def sweeps(source: Source) -> Case:
    c, p, n = small(source)
    random = source.random
    stable = source.choose([False, False, True])
    arrays = model(source, c, p, n, stable) | {
        "tau_sq": source.array(0.1 * np.exp(random.standard_normal((c, p, p)))),
        "lambda_sq": source.array(np.exp(source.choose([1.0, 6.0]) * random.standard_normal((c, p, p)))),
        "log_step": source.array(0.3 * random.standard_normal((c, p, p))),
        "temperature": source.array(source.choose([np.ones(c), random.uniform(0.2, 1, c)])),
    }
    options = {
        "update": source.choose(sem.UPDATES),
        "swap": source.choose([True, False]),
        "stable": stable,
        "adapt": source.choose([True, False]),
        "scales": source.choose(sem.SCALES),
        "scale_lambda": source.choose([1.0, 0.3]),
        "shape": source.choose([2.0, 4.0]),
        "rate": source.choose([1.0, 3.0]),
    }
    counter = {
        "seed": source.choose([0, 5, 2**64 - 1]),
        "chain": source.choose([0, 3]),
        "client": source.choose([0, 2**32 - 1]),
        "step": source.choose([0, 70]),
        "n_sweeps": source.choose([1, 3]),
    }
    return of_sweeps(arrays | options | counter)


def of_sweeps(arguments: Arguments) -> Case:
    """Returns the case of these arguments."""
    want: Results = sem.sweeps(**arguments, backend="reference")
    return Case(arguments, magnitude=[_magnitude(name, value) for name, value in zip(reference.RESULTS, want)], wanted=want)


def _magnitude(name: str, value: Floats) -> Floats:
    """Returns the magnitudes. Coefficients are sums of moves as large as the largest of them; a scale answers to the relative
    error of its deviation."""
    if name == "lambda_sq":
        return 1e3 * np.abs(value)
    most: Floats = 10 * np.max(np.abs(value), axis=tuple(range(1, value.ndim)), keepdims=True, initial=1)
    return most


def log_density(source: Source) -> Case:
    c, p, n = small(source)
    arrays = model(source, c, p, n, False)
    coefficients = np.where(np.eye(p, dtype=bool), 77.0, arrays["theta"] + arrays["deviation"])
    if source.choose([False, False, True]) and p > 1:
        coefficients[:, :2, :] = coefficients[:, :, :2] = 0
        coefficients[:, [0, 1], [1, 0]] = 1  # no inverse
    return Case({"Y": arrays["Y"], "coefficients": source.array(coefficients), "b": arrays["b"]})
