"""The numbers of a sparse hierarchical model and of its sampler, known to every party. Source: sparse.md, sections 1-6."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng

Move = Literal["translate", "interweave"]
NONE, ALWAYS = -2, -1  # in `Layout.indicators`: no coefficient here; one that is always included


@dataclass(frozen=True)
class Prior:
    """Hyperparameters. IG(a, b) has density proportional to x^(-a-1) exp(-b/x); slab = inf is the horseshoe without a slab.

    `spike_variance` > 0 fixes the spike instead of c0 eta. `eta_form`: one slab variance for all coefficients, or one each.
    """

    c0: float = 0.01
    spike_variance: float = 0.0
    eta_form: Literal["common", "coordinate"] = "common"
    shape_eta: float = 2.0
    rate_eta: float = 1.0
    rho_a: float = 1.0
    rho_b: float = 1.0
    shape_sigma: float = 2.0
    rate_sigma: float = 1.0
    scale_lambda: float = 1.0
    scale_tau: float = 1.0
    slab: float = math.inf
    shared_rho: bool = False


@dataclass(frozen=True)
class Layout:
    """Where the coefficients are: g regressions over p columns each.

    Attributes
    ----------
    indicators : (g, p) int64: number of each coefficient's inclusion indicator in its regression, `ALWAYS`, or `NONE`
    """

    indicators: NDArray[np.int64]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(g, p)."""
        g, p = self.indicators.shape
        return g, p

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """(g, p): where there is a coefficient."""
        there: NDArray[np.bool_] = self.indicators != NONE
        return there

    @cached_property
    def size(self) -> int:
        """How many coefficients there are."""
        return int(self.there.sum())

    @cached_property
    def whole(self) -> bool:
        """Whether every place has a coefficient: then both forms are the same numbers."""
        return bool(self.there.all())

    def flat(self, full: NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., g, p) -> (..., size): the coefficients alone, row by row. This is what travels and what is kept."""
        if self.whole:
            return full.reshape(*full.shape[:-2], self.size)
        return np.ascontiguousarray(full[..., self.there])

    def full(self, flat: NDArray[np.float64], inert: float) -> NDArray[np.float64]:
        """(..., size) -> (..., g, p), with `inert` where there is no coefficient."""
        if self.whole:
            return flat.reshape(*flat.shape[:-1], *self.shape)
        out = np.full((*flat.shape[:-1], *self.shape), inert)
        out[..., self.there] = flat
        return out


@dataclass(frozen=True)
class Settings:
    """The sampler.

    Attributes
    ----------
    layout, prior, seed, chains : the model, the seed of all streams, the number of chains
    rounds, burn_in, thin : rounds in all (at most, with a `judge`), those that are not kept, and every how many is kept
    local_sweeps, server_sweeps : of one round
    scales, draw, order : see `kernels.shrinkage`
    moves : None, "translate" or "interweave"; `block`: how many coordinates of an interweaving are drawn at once, None for all
    participation : probability that a client takes part in a round
    aggregate : what clients send, "locals" or "sums"
    share_local : whether the server keeps the clients' coefficients
    on_loss : of a client, "stop" or "drop"
    tempering : chains of a ladder of temperatures; 1: none
    n_threads : of the kernels at the server; no bit depends on it
    """

    layout: Layout
    prior: Prior = field(default_factory=Prior)
    seed: int = 0
    chains: int = 4
    rounds: int = 2500
    burn_in: int = 500
    thin: int = 1
    local_sweeps: int = 1
    server_sweeps: int = 5
    scales: Literal["exact", "expanded"] = "exact"
    draw: Literal["auto", "gram", "data"] = "auto"
    order: Literal["blocked", "printed"] = "blocked"
    moves: Move | None = None
    block: int | None = None
    participation: float = 1.0
    aggregate: Literal["locals", "sums"] = "locals"
    share_local: bool = False
    on_loss: Literal["stop", "drop"] = "stop"
    tempering: int = 1
    n_threads: int = 1

    @property
    def sums(self) -> int:
        """How many sums a client sends (section 11: with a slab, a fourth)."""
        return 3 if math.isinf(self.prior.slab) else 4

    def dims(self, p: int | None = None) -> dict[str, int]:
        """The codec's symbols: chains, coefficients, sums, coordinates of a move, columns of a triangular factor."""
        sizes = {"c": self.chains, "n": self.layout.size, "s": self.sums, "w": len(self.coordinates(0)) if self.moves else 0}
        return sizes | {"p": self.layout.shape[1] if p is None else p}

    def takes_part(self, round: int, n_clients: int) -> NDArray[np.bool_]:
        """(n_clients,) Who takes part in a round: chosen without a look at any state. In the first round everybody."""
        if round == 0 or self.participation >= 1:
            return np.ones(n_clients, dtype=bool)
        key = rng.key(self.seed, "participation")
        return rng.uniform(n_clients, key=key, step=round) < self.participation

    def coordinates(self, round: int) -> NDArray[np.int64]:
        """(w,) Coordinates of (theta, t) that a round's move draws: all, or a block from a stream that every party has."""
        p = self.layout.shape[1]
        if self.moves == "translate":
            return np.arange(p)
        if self.block is None or self.block >= 2 * p:
            return np.arange(2 * p)
        order = np.argsort(rng.uniform(2 * p, key=rng.key(self.seed, "participation", 1), step=round), kind="stable")
        return np.sort(order[: self.block])
