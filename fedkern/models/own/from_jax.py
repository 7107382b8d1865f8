"""Makes an own model of a log-likelihood that is written in JAX: values, gradients and Hessians of many points, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError

Array = NDArray[np.float64]

BATCH = 256  # points at once: for each the function may hold some numbers for every row


def jax() -> Any:
    """Returns the package, which is optional.

    Raises
    ------
    JobError
        It is not installed.
    """
    try:
        import jax as package
    except ImportError as error:
        raise JobError(f"fedkern.models.own: jax cannot be imported ({error}); pip install jax") from None
    return package


def double() -> AbstractContextManager[Any]:
    """Returns a context in which JAX computes in float64, as all of fedkern does; outside nothing changes."""
    package = jax()
    if hasattr(package, "enable_x64"):
        context: AbstractContextManager[Any] = package.enable_x64(True)
        return context
    from jax import experimental  # of an older JAX

    older: AbstractContextManager[Any] = getattr(experimental, "enable_x64")()  # noqa: B009
    return older


@lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any], what: str, shared: int) -> Callable[..., Any]:
    """The compiled function of many points, of values, gradients or Hessians, once for all clients of a process.

    It takes `shared` arrays beside the points.
    """
    package = jax()
    if what == "joint":
        both = package.vmap(package.value_and_grad(function, argnums=(0, 1)), in_axes=(0, 0, *(None for _ in range(shared))))
        compiled: Callable[..., Any] = package.jit(both)
        return compiled
    one = {"values": lambda f: f, "gradient": package.grad, "curvature": package.hessian}[what](function)
    several: Callable[..., Any] = package.jit(package.vmap(one, in_axes=(0, *(None for _ in range(shared)))))
    return several


def of_all(function: Callable[..., Any], what: str, points: Array, data: tuple[Any, ...] = (), batch: int = BATCH) -> Array:
    """Returns (n, ..) values, gradients or Hessians at points (n, P), a batch at a time.

    Each number of points at once is compiled anew, so that these numbers are powers of two.
    """
    parts = []
    with double():
        run = _compiled(function, what, len(data))
        for k in range(0, len(points), batch):
            part = points[k : k + batch]
            size = min(batch, 1 << (len(part) - 1).bit_length())
            filled = np.concatenate([part, np.repeat(part[:1], size - len(part), axis=0)])
            parts.append(np.asarray(run(filled, *data))[: len(part)])
    return np.concatenate(parts)


@dataclass(frozen=True)
class FromJax:
    """Holds the own model that `from_jax` makes."""

    names: tuple[str, ...]
    loglik: Callable[..., Any]
    data: tuple[Any, ...]
    local_size: int
    batch: int

    def values(self, points: Array) -> Array:
        """Returns (n,) log-likelihoods at points (n, P)."""
        return of_all(self.loglik, "values", points, self.data, self.batch)

    def gradient(self, points: Array) -> Array:
        """Returns (n, P) gradients at points (n, P)."""
        return of_all(self.loglik, "gradient", points, self.data, self.batch)

    def curvature(self, points: Array) -> Array:
        """Returns (n, P, P) minus the Hessians at points (n, P)."""
        return -of_all(self.loglik, "curvature", points, self.data, self.batch)

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(rows, u | xi), and its gradients in xi and u."""
        value, of_xi, of_u = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), of_xi[0], of_u[0]

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains, at (c, P) and (c, local_size)."""
        with double():
            value, (of_xi, of_u) = _compiled(self.loglik, "joint", len(self.data))(xi, u, *self.data)
            return np.asarray(value), np.asarray(of_xi), np.asarray(of_u)


def from_jax(loglik: Callable[..., Any], names: Sequence[str], *data: object, local_size: int = 0, batch: int = BATCH) -> FromJax:
    """Makes an own model of a log-likelihood that is written in JAX.

    Parameters
    ----------
    loglik : f(theta, *data) -> one number, the log-likelihood of the client's rows; with local unknowns f(theta, u, *data), the
        log joint density of rows and u
    names : (P,) of theta's numbers
    data : arrays of NumPy, which `loglik` gets in float64
    local_size : the number of the client's own unknowns
    batch : points that are computed at once

    Raises
    ------
    JobError
        JAX is not installed.
    """
    with double():
        held = tuple(jax().numpy.asarray(one) for one in data)
    return FromJax(tuple(map(str, names)), loglik, held, local_size, batch)
