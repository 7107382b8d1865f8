"""What every posterior can do that a job releases: say its numbers by name, and give draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .marginals import Marginal


class Drawing(NamedTuple):
    """Independent draws from the keyed stream "posterior", one key for each chain. A sampler has draws of its own."""

    seed: int
    chains: int = 4
    draws: int = 1000


class Group(NamedTuple):
    """A group of ArviZ: name -> (dimensions, values), and the coordinates of the dimensions."""

    variables: Mapping[str, tuple[Any, Any]]
    coordinates: Mapping[str, Any]


class Released(Protocol):
    """A posterior."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of its coefficients."""

    def parameters(self) -> dict[str, dict[str, float]]:
        """Name -> mean, sd, q05, q95 and what else there is to say of it."""

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Groups posterior, and as far as they apply sample_stats and constant_data."""

    @property
    def sampled(self) -> bool:
        """Whether its draws are the states of Markov chains; else they are independent, and R-hat says nothing of them."""

    def marginal(self, name: str, site: str = "") -> Marginal | None:
        """One of its parameters on the data's scale, or a client's own; None where nothing is kept of it but the summary."""
