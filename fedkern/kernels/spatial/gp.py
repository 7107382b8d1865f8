"""Gaussian processes at fixed locations: covariances, low-rank factors and draws (docs/methods/sigma.md, section 3)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fedkern.errors import NumericalError

from .._registry import F64, Array, Kernel
from ._checks import Floats, choice, counter, require

GP_KINDS = {"rbf": 0, "matern12": 1, "matern32": 2, "matern52": 3}

_X = Array("x", ("n", "p"), F64)
_LENGTHSCALE = Array("lengthscale", ("m",), F64)

GP_COVARIANCE = Kernel(
    "spatial.gp_covariance",
    purpose="Covariance matrices of Gaussian processes of variance 1, for many lengthscales.",
    source="docs/methods/sigma.md, section 3; Rasmussen and Williams (2006), chapter 4",
    inputs=(_X, _LENGTHSCALE),
    outputs=(Array("covariance", ("m", "n", "n"), F64),),
)
GP_FACTOR = Kernel(
    "spatial.gp_factor",
    purpose="Low-rank factors of the covariances of Gaussian processes by pivoted Cholesky.",
    source="docs/methods/sigma.md, section 3; Harbrecht, Peters and Schneider (2012)",
    inputs=(_X, _LENGTHSCALE),
    outputs=(Array("factors", ("m", "n", "rank"), F64), Array("residual", ("m",), F64)),
)
GP_SAMPLE = Kernel(
    "spatial.gp_sample",
    purpose="Draws of Gaussian processes through whole Cholesky factors, each with a lengthscale of its own.",
    source="docs/methods/sigma.md, section 3",
    inputs=(_X, _LENGTHSCALE),
    outputs=(Array("theta", ("m", "n"), F64),),
    streams=("prior_draws",),
    blas=True,
)


def gp_covariance(
    x: Floats,
    lengthscale: Floats,
    *,
    kind: str = "rbf",
    jitter: float = 0.0,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Covariance matrices k(|x_i - x_j| / lengthscale) + jitter I.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (m,) float64 array
        A number that is not positive gives NaN.
    kind : "rbf", "matern12", "matern32" or "matern52"
        exp(-s^2 / 2); exp(-s); (1 + a) exp(-a), a = sqrt(3) s; (1 + a + a^2 / 3) exp(-a), a = sqrt(5) s.
    jitter : float
        >= 0.
    out : (m, n, n) float64 array, optional

    Returns
    -------
    (m, n, n) float64 array

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, a wrong `out`.

    Source: Rasmussen and Williams (2006), chapter 4.
    """
    name = GP_COVARIANCE.name
    code = choice(name, "kind", kind, GP_KINDS)
    require(name, 0 <= jitter < np.inf, "jitter", "must be >= 0 and finite", jitter)
    return GP_COVARIANCE.run((x, lengthscale), (code, float(jitter)), out, n_threads, backend)[0]  # type: ignore[no-any-return]


def gp_factor(
    x: Floats,
    lengthscale: Floats,
    *,
    rank: int,
    kind: str = "rbf",
    tolerance: float = 1e-6,
    out: Any = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Factors F with F F' near the covariance: Cholesky with the largest remaining variance as the next pivot.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (m,) float64 array
    rank : int
        Columns of a factor, >= 0.
    kind : "rbf", "matern12", "matern32" or "matern52"
        As in `gp_covariance`.
    tolerance : float
        >= 1e-10: once the mean remaining variance is below it, the other columns are zero.
    out : tuple of float64 arrays (m, n, rank) and (m,), optional

    Returns
    -------
    factors : (m, n, rank) float64 array
    residual : (m,) float64 array
        Trace of what is missing, K - F F', which is positive semidefinite; at most n tolerance where the rank was enough.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, a wrong `out`.

    Source: Harbrecht, Peters and Schneider (2012). Among pivots within 1e-6 of the largest the first is taken, so that rounding
    does not decide between locations that are mirror images.
    """
    name = GP_FACTOR.name
    code, rank = choice(name, "kind", kind, GP_KINDS), operator.index(rank)
    require(name, rank >= 0, "rank", "must be >= 0", rank)
    require(name, 1e-10 <= tolerance < 1, "tolerance", "must be in [1e-10, 1)", tolerance)
    options = code, float(tolerance)
    return GP_FACTOR.run((x, lengthscale), options, out, n_threads, backend, {"rank": rank})


def gp_sample(
    x: Floats,
    lengthscale: Floats,
    *,
    kind: str = "rbf",
    jitter: float = 1e-6,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Draws L e with L L' = `gp_covariance`, one for each lengthscale.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (m,) float64 array
    kind : "rbf", "matern12", "matern32" or "matern52"
    jitter : float
        As in `gp_covariance`.
    seed, chain, client, step : int
        Names of the random numbers: e of row b is numbers b n .. b n + n - 1 of stream `prior_draws`.
    out : (m, n) float64 array, optional

    Returns
    -------
    (m, n) float64 array

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, a wrong `out`.
    NumericalError
        A covariance has no Cholesky factor: its lengthscale is named.

    Source: docs/methods/sigma.md, section 3.
    """
    name = GP_SAMPLE.name
    code = choice(name, "kind", kind, GP_KINDS)
    require(name, 0 <= jitter < np.inf, "jitter", "must be >= 0 and finite", jitter)
    arrays = GP_SAMPLE.prepare({"x": x, "lengthscale": lengthscale}, out)
    keys = counter(name, seed, chain, step, len(x) * len(lengthscale), client)
    failed = GP_SAMPLE.implementation(backend, arrays)(
        *arrays[:2], code, float(jitter), *keys, client, step, arrays[2], n_threads
    )
    if failed >= 0:
        raise NumericalError(
            f"{name}: the covariance of draw {failed} (lengthscale {lengthscale[failed]}) is not positive definite; "
            f"take a larger jitter than {jitter}"
        )
    return arrays[2]  # type: ignore[no-any-return]
