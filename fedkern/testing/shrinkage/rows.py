"""Makes cases of the kernels of the sparse models that touch rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkern.kernels import shrinkage

from .. import Arguments, Case, Floats, Results, Source
from .local import names, positive

CHAINS, COLUMNS, ROWS = (1, 2, 3), (1, 2, 3, 8), (1, 2, 7, 33)


def state(source: Source, c: int, p: int) -> Arguments:
    return {
        "theta": source.array(0.3 * source.random.standard_normal((c, p))),
        "tau_sq": positive(source, c, p, extremes=(1.0, 1e-12)),
        "deviation": source.normal(c, p, extremes=(1.0, 0.0, 1e-200)),
        "lambda_sq": positive(source, c, p),
        "alpha": source.normal(c),
    }


def options(source: Source) -> Arguments:
    return names(source) | {
        "n_sweeps": source.choose([1, 3]),
        "scales": source.choose(["exact", "expanded"]),
        "scale_lambda": source.choose([1.0, 0.3]),
        "slab": source.choose([np.inf, 0.5]),
    }


def of_chain(function: Callable[..., Results], arguments: Arguments) -> Case:
    """Returns a case whose errors are judged beside the largest number of a result."""
    results = function(**arguments, backend="reference")
    magnitude = [np.broadcast_to(np.max(abs(r), initial=0), r.shape) for r in results]
    magnitude[1] = abs(results[1])  # lambda^2 has a scale for each coefficient
    return Case(arguments, kind="chain", magnitude=magnitude, wanted=results)


def response(source: Source, c: int, n: int) -> Floats:
    """Returns 0 and 1 of each chain, or of all alike."""
    return source.array(source.random.integers(0, 2, (n,) if c > 1 and source.choose([True, False]) else (c, n)))


def logistic_sweeps(source: Source) -> Case:
    n, p, c = source.choose((0, *ROWS)), source.choose((0, *COLUMNS)), source.choose(CHAINS)
    arguments = {"X": source.normal(n, p), "y": response(source, c, n)} | state(source, c, p)
    how = {"intercept": source.choose([True, False]), "scale_intercept": source.choose([10.0, 1.0])}
    return of_chain(shrinkage.logistic_sweeps, arguments | options(source) | how)


def imputed_sweeps(source: Source) -> Case:
    n, p, c, random = source.choose(ROWS), source.choose(COLUMNS), source.choose(CHAINS), source.random
    A = random.standard_normal((p + 4, p))
    X = random.standard_normal((n, p)) @ np.linalg.cholesky(A.T @ A / 4).T
    gaps = random.random((n, p)) < source.choose([0.0, 0.1, 0.5])
    if source.choose([True, False]):
        gaps[:, 0] = True  # never measured here
    filled = np.where(gaps, random.standard_normal((c, n, p)), X)
    arguments = {
        "X": source.array(np.where(gaps, np.nan, X)),
        "y": response(source, c, n),
        "psi": source.array(A.T @ A / 4),
        "sigma_sq": positive(source, c),
        "completed": source.array(filled),
    }
    mean = random.standard_normal(p)
    how = {
        "shape": source.choose([2.0, 0.4]),
        "rate": source.choose([1.0, 0.1]),
        "intercept": source.choose([True, False]),
        "patterns": source.choose([None, shrinkage.missing_patterns(arguments["X"], arguments["psi"], mean)]),
    }
    return of_chain(shrinkage.imputed_sweeps, arguments | state(source, c, p) | options(source) | how)
