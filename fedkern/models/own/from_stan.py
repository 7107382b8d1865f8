"""A compiled Stan model, or whatever has BridgeStan's functions, as an own model.

The program's model block has the likelihood alone: priors are the job's, and what the program has of them would count at every
client. Nothing is downloaded or compiled here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError

Array = NDArray[np.float64]


class StanModel(Protocol):
    """What is asked of it, as `bridgestan.StanModel` has it."""

    def param_unc_num(self) -> int: ...
    def log_density_gradient(self, theta_unc: Array, propto: bool = True, jacobian: bool = True) -> tuple[float, Array]: ...
    def param_constrain(self, theta_unc: Array) -> Array: ...


@dataclass(frozen=True)
class FromStan:
    """What `from_stan` gives back; its points are unconstrained, as the program's own."""

    names: tuple[str, ...]
    model: StanModel
    unconstrained: bool = True

    def values(self, points: Array) -> Array:
        """(n,) At points (n, P), Jacobians of the program's constraints left out."""
        return np.array([self._at(point)[0] for point in points], np.float64)

    def gradient(self, points: Array) -> Array:
        """(n, P)"""
        return np.array([self._at(point)[1] for point in points], np.float64).reshape(points.shape)

    def constrain(self, point: Array) -> Array:
        """(P,) Parameters."""
        return np.asarray(self.model.param_constrain(point), np.float64)

    def _at(self, point: Array) -> tuple[float, Array]:
        try:
            return self.model.log_density_gradient(point, propto=False, jacobian=False)
        except RuntimeError:  # Stan's way to say that there is no density
            return -np.inf, np.full(len(point), np.nan)


def from_stan(model: StanModel, names: Sequence[str] | None = None) -> FromStan:
    """Makes an own model of a compiled Stan program.

    Parameters
    ----------
    model : with BridgeStan's `param_unc_num`, `log_density_gradient` and `param_constrain`
    names : (P,) of its parameters, in their order; by default what its `param_unc_names` says

    Raises
    ------
    JobError
        A function is missing, or the names are not as many as the parameters.
    """
    for function in ("param_unc_num", "log_density_gradient", "param_constrain"):
        if not callable(getattr(model, function, None)):
            raise JobError(f"from_stan: the model has no {function}; wanted what bridgestan.StanModel has")
    size, own = int(model.param_unc_num()), getattr(model, "param_unc_names", None)
    if names is None and not callable(own):
        raise JobError("from_stan: the model does not name its parameters (param_unc_names); give names")
    said = tuple(map(str, names if names is not None else own()))  # type: ignore[misc]  # callable, where names are None
    if len(said) != size:
        raise JobError(f"from_stan: {len(said)} names for {size} parameters; give one for each")
    return FromStan(said, model)
