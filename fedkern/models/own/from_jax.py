"""A log-likelihood that is written in JAX, as an own model: values, gradients and Hessians of many points at once, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError

Array = NDArray[np.float64]

BATCH = 256  # points at once: of each the function may hold some numbers for every row


def jax() -> Any:
    """The package, which is optional.

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
    """In which JAX computes in float64, as all of fedkern does; what stands around it is as it was."""
    package = jax()
    if hasattr(package, "enable_x64"):
        context: AbstractContextManager[Any] = package.enable_x64(True)
        return context
    from jax import experimental  # of an older JAX

    older: AbstractContextManager[Any] = getattr(experimental, "enable_x64")()  # noqa: B009
    return older


@dataclass(frozen=True)
class FromJax:
    """What `from_jax` gives back."""

    names: tuple[str, ...]
    loglik: Callable[..., Any]
    data: tuple[Any, ...]
    local_size: int
    batch: int
    _compiled: dict[str, Callable[..., Any]] = field(default_factory=dict, repr=False)

    def values(self, points: Array) -> Array:
        """(n,) At points (n, P)."""
        return self._of_all("values", points)

    def gradient(self, points: Array) -> Array:
        """(n, P)"""
        return self._of_all("gradient", points)

    def curvature(self, points: Array) -> Array:
        """(n, P, P) Minus the Hessians."""
        return -self._of_all("curvature", points)

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """log p(rows, u | xi), and its gradients in xi and u."""
        with double():
            if "joint" not in self._compiled:
                package = jax()
                self._compiled["joint"] = package.jit(package.value_and_grad(self.loglik, argnums=(0, 1)))
            value, (of_xi, of_u) = self._compiled["joint"](xi, u, *self.data)
            return float(value), np.asarray(of_xi), np.asarray(of_u)

    def _of_all(self, what: str, points: Array) -> Array:
        if self.local_size:
            raise JobError("from_jax: a model with local_size has no values without its local unknowns")
        with double():
            if what not in self._compiled:
                package = jax()
                one = {"values": lambda f: f, "gradient": package.grad, "curvature": package.hessian}[what](self.loglik)
                self._compiled[what] = package.jit(package.vmap(one, in_axes=(0, *(None for _ in self.data))))
            n = len(points)
            size = min(self.batch, n)
            found = []
            for k in range(0, n, size or 1):
                part = points[k : k + size]
                short = size - len(part)  # of the last one, which is filled up: another size would be compiled anew
                filled = np.concatenate([part, np.repeat(part[:1], short, axis=0)]) if short else part
                found.append(np.asarray(self._compiled[what](filled, *self.data))[: len(part)])
        P = points.shape[1]
        shapes = {"values": (0,), "gradient": (0, P), "curvature": (0, P, P)}
        return np.concatenate(found) if found else np.empty(shapes[what])


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
    return FromJax(_texts(names), loglik, held, local_size, batch)


def _texts(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(str, names))
