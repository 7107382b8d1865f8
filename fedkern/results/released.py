"""Defines the interface of every posterior that a job releases: it says its numbers by name, and gives draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .marginals import Marginal


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
