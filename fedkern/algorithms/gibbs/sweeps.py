"""Makes the server's draws between two rounds: a move, then its sweeps. Source: docs/spec/sparse.md, sections 4 and 6.

They are a function of the last values, of the clients' messages, and of the server's own random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...kernels import rng, shrinkage
from ...kernels.bound import Bound
from ..core.messages import evolve
from .settings import ALWAYS, Settings


class Values(NamedTuple):
    """Holds the global quantities of all chains: theta, tau^2, gamma, eta, P(gamma = 1 | ...) (c, g, p) and rho (c, g)."""

    theta: Array
    tau_sq: Array
    gamma: Array
    eta: Array
    rho: Array
    inclusion: Array

    def kept(self) -> dict[str, Array]:
        """Returns the quantities of which draws are kept."""
        return {"theta": self.theta, "tau_sq": self.tau_sq, "inclusion": self.inclusion, "eta": self.eta, "rho": self.rho}


Terms = Callable[[int], tuple[Array, Array]]
"""Of a move: a regression's number -> the clients' part, added in client order: gradient (c, w), precision (c, w, w)."""


def first(settings: Settings) -> Values:
    """Returns the start of chains: theta = 0, unit scales, everything included; with `starts` = "both" nothing in every second
    chain.
    """
    shape = (settings.chains, *settings.layout.shape)
    gamma = np.broadcast_to(np.where(settings.layout.has_coefficient, 1.0, 0.0), shape).copy()
    if settings.starts == "both":
        gamma[1::2] = np.where(settings.layout.indicators == ALWAYS, 1.0, 0.0)
    eta = np.full(shape, settings.prior.rate_eta / (settings.prior.shape_eta + 1))
    rho = np.full(shape[:2], settings.prior.rho_a / (settings.prior.rho_a + settings.prior.rho_b))
    return Values(np.zeros(shape), np.ones(shape), gamma, eta, rho, gamma)


def moved(settings: Settings, values: Values, terms: Terms, round: int, step: int) -> tuple[Values, Array]:
    """Draws theta and a signed tau, each regression's from one joint draw; returns the values after it, and t (c, g, p).

    Every client then has d = t w. Regressions have streams of their own: chain i of regression j is 2^32 j + i there.
    """
    prior, coordinates = settings.prior, settings.coordinates(round)
    theta, t = np.empty_like(values.theta), np.empty_like(values.theta)
    for j in range(settings.layout.shape[0]):
        theta[:, j], t[:, j] = shrinkage.move(
            *terms(j), settings.layout.places(coordinates, j), values.theta[:, j], values.tau_sq[:, j], values.gamma[:, j],
            values.eta[:, j], seed=settings.seed, chain=j << 32, step=step, scale_tau=prior.scale_tau, c0=prior.c0,
            spike_variance=prior.spike_variance, n_threads=settings.n_threads,
        )  # fmt: skip
    return values._replace(theta=theta, tau_sq=t * t), t


class Options(TypedDict):
    """Holds the arguments of both kernels of the server beside the draws."""

    seed: int
    scales: Literal["exact", "expanded"]
    order: Literal["blocked", "printed"]
    n_threads: int
    c0: float
    spike_variance: float
    eta_form: Literal["common", "coordinate"]
    shape_eta: float
    rate_eta: float
    rho_a: float
    rho_b: float
    scale_tau: float
    slab: float
    shared_rho: bool


def _options(settings: Settings) -> Options:
    prior = settings.prior
    return {
        "seed": settings.seed, "scales": settings.scales, "order": settings.order,
        "n_threads": settings.n_threads, "c0": prior.c0, "spike_variance": prior.spike_variance, "eta_form": prior.eta_form,
        "shape_eta": prior.shape_eta, "rate_eta": prior.rate_eta, "rho_a": prior.rho_a, "rho_b": prior.rho_b,
        "scale_tau": prior.scale_tau, "slab": prior.slab, "shared_rho": prior.shared_rho,
    }  # fmt: skip


def swept(
    settings: Settings, values: Values, deviation: Array, lambda_sq: Array, step: int, bound: Bound[shrinkage.ServerSweeps]
) -> tuple[Values, Array, Array, NDArray[np.int64]]:
    """Runs the server's sweeps from all clients' d and lambda^2 (m, c, g, p); returns these as they are afterwards, and the
    events.
    """
    now = values[:5]
    sweeps = bound.of(settings, lambda: shrinkage.bind_global_sweep(
        deviation, lambda_sq, settings.layout.indicators, *now, n_passes=settings.server_sweeps,
        scale_lambda=settings.prior.scale_lambda, **_options(settings),
    ), deviation.shape)  # fmt: skip
    *drawn, deviation, lambda_sq, events = sweeps(deviation, lambda_sq, *now, step)
    return Values(*drawn), deviation, lambda_sq, events


def swept_sums(
    settings: Settings, values: Values, sums: Mapping[int, Array], n_clients: int, step: int
) -> tuple[Values, NDArray[np.int64]]:
    """Runs one sweep from the sums (s, c, g, p) of the clients, or of all together, added in client order."""
    total = np.zeros_like(next(iter(sums.values())))
    for client in sorted(sums):
        total += sums[client]
    *drawn, events = shrinkage.global_sweep_sums(
        total, n_clients, settings.layout.indicators, values.theta, values.tau_sq, values.gamma, values.eta, values.rho,
        step=step, **_options(settings),
    )  # fmt: skip
    return Values(*drawn), events


def add_events(before: NDArray[np.int64], events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns counts of clipped scales, QR fall-backs and data-space draws, with those of these sweeps."""
    if shrinkage.nothing_happened(events):
        return before
    total: NDArray[np.int64] = before + events[..., :3].reshape(-1, 3).sum(axis=0)
    return total


# Tempering --------------------
# Tempers chains in parallel: likelihood^beta, and chains that exchange temperatures. Source: sparse.md, section 10.
#
# The chains are ladders of K: chain i belongs to ladder i // K. In each round neighbours on a ladder (even pairs and odd pairs in
# turn) may exchange; the sum of the clients' log-likelihoods decides. The ladder adapts in burn-in only. Only draws at
# temperature 1 count.


ACCEPTANCE = 0.3  # wanted of an exchange


@dataclass(frozen=True)
class Ladder:
    """Holds temperatures 1 = beta_0 > beta_1 > ..., and the place of each chain.

    Attributes
    ----------
    log_gap : (K - 1,) log of log beta_i - log beta_{i + 1}
    place : (c,) which temperature each chain has
    tried, exchanged : (K - 1,) counts since the burn-in
    """

    log_gap: Array
    place: NDArray[np.int64]
    tried: NDArray[np.int64]
    exchanged: NDArray[np.int64]

    @property
    def beta(self) -> Array:
        """(K,) The inverse temperatures."""
        below = np.cumsum(np.exp(self.log_gap))
        return np.asarray(np.exp(-np.concatenate([[0.0], below])))

    @property
    def temperature(self) -> Array:
        """(c,) The power of each chain's likelihood."""
        return np.asarray(self.beta[self.place])

    @property
    def cold(self) -> NDArray[np.int64]:
        """(c / K,) The chain of each ladder whose draws count."""
        return np.flatnonzero(self.place == 0)


def ladder(chains: int, size: int) -> Ladder:
    """Returns ladders of `size` chains; neighbours' log-temperatures start 0.3 apart."""
    counts = np.zeros(size - 1, np.int64)
    return Ladder(np.full(size - 1, np.log(0.3)), np.tile(np.arange(size), chains // size), counts, counts)


def exchange_temperatures(state: Ladder, loglik: Array, *, seed: int, round: int, adapt: bool) -> Ladder:
    """Runs one round of exchanges.

    Parameters
    ----------
    loglik : (c,) untempered log-likelihood of each chain, over all clients
    round : counts; also says whether even or odd pairs are tried
    adapt : whether the ladder moves towards its wanted acceptance
    """
    beta, size = state.beta, len(state.log_gap) + 1
    place, gap = state.place.copy(), state.log_gap.copy()
    tried, done = state.tried.copy(), state.exchanged.copy()
    # Even pairs and odd pairs take turns, so that no chain is in two pairs of one round.
    u = rng.uniform(len(place), key=rng.key(seed, "tempering"), step=round)
    for pair in range(round % 2, size - 1, 2):
        chance = []
        for first in range(0, len(place), size):
            here = first + np.flatnonzero(place[first : first + size] == pair)[0]
            above = first + np.flatnonzero(place[first : first + size] == pair + 1)[0]
            log_ratio = (beta[pair] - beta[pair + 1]) * (loglik[above] - loglik[here])
            # The chance, not the outcome, moves the ladder: it has less noise.
            chance.append(float(np.exp(min(0.0, log_ratio))))
            if np.log(u[first + pair]) < log_ratio:
                place[here], place[above] = pair + 1, pair
                done[pair] += not adapt
            tried[pair] += not adapt
        if adapt:
            gap[pair] += (np.mean(chance) - ACCEPTANCE) * (round + 2) ** -0.6
    return evolve(state, log_gap=gap, place=place, tried=tried, exchanged=done)
