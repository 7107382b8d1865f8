"""Defines a posterior as draws of named numbers, of a sampler or from a fitted Gaussian, on the scale that people read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import mixing
from .marginals import Drawn
from .released import Drawing, Group

Array = NDArray[np.float64]

ENDS = {"q025": 0.025, "q05": 0.05, "q95": 0.95, "q975": 0.975}


@dataclass(frozen=True)
class Draws:
    """Holds a released posterior as draws.

    Attributes
    ----------
    values : name -> (c, t) draws of c chains
    sampled : whether they are the states of a sampler: then they have R-hat and ESS
    """

    values: Mapping[str, Array]
    sampled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)

    def parameters(self) -> dict[str, dict[str, float]]:
        """Returns name -> mean, sd, q025, q05, q95 and q975; of a sampler also rhat and ess."""
        if not self.values:
            return {}
        stacked = np.stack(list(self.values.values()), axis=-1)
        flat = stacked.reshape(-1, stacked.shape[-1])
        columns: dict[str, Array] = {"mean": flat.mean(axis=0), "sd": flat.std(axis=0)}
        columns |= dict(zip(ENDS, np.quantile(flat, [*ENDS.values()], axis=0)))
        if self.sampled:
            columns["rhat"], columns["ess"] = mixing.published_rhat_ess(stacked)
        return {name: {key: float(column[i]) for key, column in columns.items()} for i, name in enumerate(self.values)}

    def slowest(self) -> tuple[float, float, str] | None:
        """Returns the largest R-hat, the smallest ESS, and the name of the latter; None where neither is known."""
        rows = {name: row for name, row in self.parameters().items() if "ess" in row}
        return mixing.slowest({name: (np.array([row["rhat"]]), np.array([row["ess"]])) for name, row in rows.items()})

    def marginal(self, name: str, site: str = "") -> Drawn | None:
        """Returns a number by its draws; None if it does not exist."""
        return Drawn(self.values[name]) if name in self.values and not site else None

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns all draws in ArviZ's groups, whatever number of draws is asked for."""
        shape = next(iter(self.values.values())).shape if self.values else (0, 0)
        coordinates = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
        variables = {name: (("chain", "draw"), values) for name, values in self.values.items()}
        return {"posterior": Group(variables, coordinates)}
