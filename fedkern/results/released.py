"""Defines what every released posterior says: its numbers by name, exact or by draws, differences of two of them, and draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy

from ..arrays import Array


@dataclass(frozen=True)
class Normal:
    """Holds a linear function of a Gaussian vector: its mean, and its (d,) coefficients in independent standard normals."""

    mean: float
    half: Array

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.half @ self.half))

    def less(self, other: Normal | None) -> Normal:
        """Returns the difference of two functions of one vector; None is zero."""
        return self if other is None else Normal(self.mean - other.mean, self.half - other.half)

    @property
    def negated(self) -> Normal:
        return Normal(-self.mean, -self.half)

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        return [self.mean + float(scipy.special.ndtri(p)) * self.sd for p in levels]


@dataclass(frozen=True)
class Drawn:
    """Holds (c, t) draws of a number."""

    draws: Array

    @property
    def mean(self) -> float:
        return float(self.draws.mean())

    @property
    def sd(self) -> float:
        return float(self.draws.std(ddof=1)) if self.draws.size > 1 else float("nan")

    def less(self, other: Drawn | None) -> Drawn:
        """Returns the difference, draw by draw; None is zero."""
        return self if other is None else Drawn(self.draws - other.draws)

    @property
    def negated(self) -> Drawn:
        return Drawn(-self.draws)

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        ends: list[float] = np.quantile(self.draws, levels).tolist()
        return ends


Marginal = Normal | Drawn


def difference(first: Marginal | None, second: Marginal | None) -> Marginal | None:
    """Returns the first less the second, of one posterior; None is zero, as is a reference level, which has no coefficient."""
    if isinstance(first, Normal) and not isinstance(second, Drawn):
        return first.less(second)
    if isinstance(first, Drawn) and not isinstance(second, Normal):
        return first.less(second)
    return None if second is None else second.negated


class Drawing(NamedTuple):
    """Holds which independent draws to make from the keyed stream "posterior", one key for each chain. A sampler gives its
    draws."""

    seed: int
    chains: int = 4
    draws: int = 1000


class Group(NamedTuple):
    """Holds a group of ArviZ: name -> (dimensions, values), and the coordinates of the dimensions."""

    variables: Mapping[str, tuple[Any, Any]]
    coordinates: Mapping[str, Any]


class Released(Protocol):
    """Is implemented by every released posterior."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its coefficients."""

    def parameters(self) -> dict[str, dict[str, float]]:
        """Returns name -> mean, sd, q05, q95 and the other numbers of a parameter."""

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns the groups posterior, and as far as they apply sample_stats and constant_data."""

    @property
    def sampled(self) -> bool:
        """Whether its draws are the states of Markov chains; else they are independent, and R-hat says nothing about them."""

    def marginal(self, name: str, site: str = "") -> Marginal | None:
        """Returns a parameter on the data's scale, or a client's (`site`); None where only the summary of it is kept."""


class ByDraws:
    """Is the base of posteriors that keep draws: they say `groups`, and a parameter is found in these."""

    @property
    def sampled(self) -> bool:
        """Always true."""
        return True

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns all kept draws, as in `Released`."""
        raise NotImplementedError

    def marginal(self, name: str, site: str = "") -> Drawn | None:
        """Returns a parameter by its kept draws, on the data's scale; None for a function of the draws, such as `negligible`."""
        return of_draws(self._groups, name, site)

    @cached_property
    def _groups(self) -> dict[str, Group]:
        return self.groups(Drawing(0))


# Draws by the names of summary.json --------------------


def of_draws(groups: Mapping[str, Group], name: str, site: str = "") -> Drawn | None:
    """Returns the draws of a parameter that is named as in `summary.json` (`theta[age]`, `tau[age]`, `eta`).

    Parameters
    ----------
    groups : of a sampler; draws (c, t, ..) on the standardised scale are multiplied by the `scale` of the data
    name : of the parameter
    site : the client whose coefficient it is; "" for a parameter that all clients share

    Returns
    -------
    its draws; None where none are kept
    """
    if "posterior" not in groups:
        return None
    variables, coordinates = groups["posterior"]
    if not site and name in variables and len(variables[name][0]) == 2:
        return Drawn(np.ascontiguousarray(variables[name][1]))
    stem, _, label = name.partition("[")
    label = label.removesuffix("]")
    if site:
        return _of_site(groups, label, site) if stem == "theta" and "theta_std_at" in variables else None
    if stem in variables:
        factor, (dims, values) = 1.0, variables[stem]
    elif f"{stem}_std" in variables:
        factor, (dims, values) = _scale(groups, label), variables[f"{stem}_std"]
    else:
        return None
    if len(dims) != 3:
        return None
    labels = [str(entry) for entry in coordinates.get(dims[2], ())]
    if not label and values.shape[2] == 1:
        return Drawn(np.ascontiguousarray(values[:, :, 0]))
    return Drawn(np.ascontiguousarray(values[:, :, labels.index(label)] * factor)) if label in labels else None


def _of_site(groups: Mapping[str, Group], label: str, site: str) -> Drawn | None:
    """Returns the draws of a client's coefficient, on the data's scale."""
    variables, coordinates = groups["posterior"]
    clients = [str(client) for client in coordinates["client"]]
    labels = [str(entry) for entry in coordinates["coefficient"]]
    if site not in clients or label not in labels:
        return None
    draws = variables["theta_std_at"][1][:, :, clients.index(site), labels.index(label)]
    return Drawn(np.ascontiguousarray(draws * _scale(groups, label)))


def _scale(groups: Mapping[str, Group], label: str) -> float:
    """Returns the factor that turns a standardised coefficient into one on the data's scale."""
    constants = groups.get("constant_data")
    if constants is None or "scale" not in constants.variables:
        return 1.0
    labels = [str(entry) for entry in constants.coordinates["coefficient"]]
    return float(constants.variables["scale"][1][labels.index(label)]) if label in labels else 1.0
