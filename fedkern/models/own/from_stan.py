"""Makes an own model of a compiled Stan model, or of whatever has BridgeStan's functions.

The program's model block has the likelihood alone: priors are the job's, and those of the program would count at every client.
Nothing is downloaded or compiled here.
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
    """Describes the functions that are needed, as `bridgestan.StanModel` has them."""

    def param_unc_num(self) -> int: ...
    def log_density_gradient(self, theta_unc: Array, propto: bool = True, jacobian: bool = True) -> tuple[float, Array]: ...
    def param_constrain(self, theta_unc: Array) -> Array: ...


@dataclass(frozen=True)
class FromStan:
    """Holds the own model that `from_stan` makes; its points are unconstrained, as the program's own."""

    names: tuple[str, ...]
    model: StanModel
    unconstrained: bool = True

    def values(self, points: Array) -> Array:
        """Returns (n,) log-likelihoods at points (n, P), without Jacobians of the program's constraints."""
        return np.array([self._at(point)[0] for point in points], np.float64)

    def gradient(self, points: Array) -> Array:
        """Returns (n, P) gradients at points (n, P)."""
        return np.array([self._at(point)[1] for point in points], np.float64).reshape(points.shape)

    def constrain(self, point: Array) -> Array:
        """Returns (P,) the parameters at a point."""
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
    names : (P,) of its parameters, in their order; by default those of its `param_unc_names`

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
