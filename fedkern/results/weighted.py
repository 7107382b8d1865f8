"""Defines a posterior as draws of named numbers: of a sampler, from a fitted Gaussian, or with importance weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..models.weighted import quantiles
from . import mixing
from .gaussian import grouped, label
from .released import Drawing, Drawn, Group

QUANTILES = {"q025": 0.025, "q05": 0.05, "q50": 0.5, "q95": 0.95, "q975": 0.975}
ENDS = {"q025": 0.025, "q05": 0.05, "q95": 0.95, "q975": 0.975}


@dataclass(frozen=True)
class Draws:
    """Holds a released posterior as draws."""

    values: Mapping[str, Array]  # name -> (c, t) draws of c chains
    sampled: bool = False  # whether they are the states of a sampler: then they have R-hat and ESS

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


@dataclass(frozen=True)
class WeightedDraws:
    """Holds a released posterior as weighted draws."""

    names: tuple[str, ...]  # of the p coefficients, such as "intercept", "age", "workclass=Private"
    # theta, standard: (N, p) coefficients on the data's scale, and on that of standardised columns; None where these are the same
    theta: Array
    standard: Array | None
    others: Mapping[str, Array]  # name -> (N,) of other unknowns, such as a standard deviation of groups
    weights: Array  # (N,) which add up to 1
    chosen: NDArray[np.int64]  # (c, t) which of the N draws are draws of equal weight
    lp: Array | None  # (N,) the log posterior density, up to a constant; None where it is not known
    sampled: bool = False  # whether the chains of `chosen` are Markov chains: then their numbers have R-hat and ESS
    # client -> (N,) the sum of its rows' log-likelihoods, where the server has it
    own_sums: Mapping[str, Array] = field(default_factory=dict)

    def without(self, named: Collection[str]) -> WeightedDraws:
        """Returns the posterior where these coefficients are no numbers, for rows say nothing of them."""
        untold = np.array([label(name) in named for name in self.names], dtype=bool)
        theta, standard = (None if of is None else np.where(untold, np.nan, of) for of in (self.theta, self.standard))
        assert theta is not None
        return replace(self, theta=theta, standard=standard)

    @cached_property
    def values(self) -> dict[str, Array]:
        """The draws by the names of `summary.json`; a coefficient that is the same on both scales once."""
        named_draws = {label(name): self.theta[:, j] for j, name in enumerate(self.names)}
        if self.standard is not None:
            second = {label(name, "_std"): self.standard[:, j] for j, name in enumerate(self.names)}
            named_draws |= {
                name: draws
                for (name, draws), on_data in zip(second.items(), self.theta.T)
                if not np.array_equal(draws, on_data, equal_nan=True)
            }
        return named_draws | dict(self.others)

    def parameters(self) -> dict[str, dict[str, float]]:
        """Returns name -> mean, sd, q025, q05, q50, q95, q975, by the weights; of chains also rhat and ess, if ArviZ is
        installed."""
        named_rows = {name: summarised(values, self.weights) for name, values in self.values.items()}
        if not self.sampled:
            return named_rows
        mixed = self._chains.parameters()
        more = {name: {key: row[key] for key in ("rhat", "ess") if key in row} for name, row in mixed.items()}
        return {name: row | more[name] for name, row in named_rows.items()}

    @property
    def by_client(self) -> dict[str, Array]:
        """Client -> (c, t) sums of its rows' log-likelihoods at the draws of equal weight."""
        return {name: values[self.chosen] for name, values in self.own_sums.items()}

    @property
    def _chains(self) -> Draws:
        return Draws({name: values[self.chosen] for name, values in self.values.items()}, self.sampled)

    def slowest(self) -> tuple[float, float, str] | None:
        """Returns of chains the largest R-hat, the smallest ESS, and the latter's name; None where neither is known."""
        return self._chains.slowest()

    def marginal(self, name: str, site: str = "") -> Drawn | None:
        """Returns a number by its draws of equal weight."""
        return Drawn(self.values[name][self.chosen]) if name in self.values and not site else None

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns the draws of equal weight, whatever is asked for: theta, intercept, both standardised, and all others."""
        axes, chosen, scales = ("chain", "draw"), self.chosen, {"": self.theta, "_std": self.standard}
        coefficients = grouped(self.names, {suffix: draws[chosen] for suffix, draws in scales.items() if draws is not None})
        variables = {**coefficients.variables, **{name: (axes, values[chosen]) for name, values in self.others.items()}}
        by_group = {"posterior": coefficients._replace(variables=variables)}
        if self.lp is None:
            return by_group
        sampled = {axis: coefficients.coordinates[axis] for axis in axes}
        return by_group | {"sample_stats": Group({"lp": (axes, self.lp[chosen])}, sampled)}


def summarised(values: Array, weights: Array) -> dict[str, float]:
    """Computes mean, standard deviation and quantiles of (N,) values by their weights, which add up to 1."""
    mean = float(weights @ values)
    sd = float(np.sqrt(weights @ (values - mean) ** 2))
    ends = quantiles(values[:, np.newaxis], weights, tuple(QUANTILES.values()))[:, 0]
    return {"mean": mean, "sd": sd, **dict(zip(QUANTILES, ends.tolist()))}
