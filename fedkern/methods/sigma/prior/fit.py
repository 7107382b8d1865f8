"""Measures the fit of a trained prior, and writes it as text and as a page."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....algorithms.training import fit as prior_fit
from ....algorithms.training.fit import Federation, Tau
from ....algorithms.training.training import State, objective
from ....arrays import Array
from ....kernels.spatial import DrawTable
from ....models.spatial.prior import AreaPrior, Prior
from . import report as report_sigma_prior
from .keys import PriorConfig
from .report import Fit
from .source import Source

LARGE = 500  # areas
CLASSES = 12  # of distance, on a line or in a plane
HOPS = 8  # largest distance in steps from neighbour to neighbour


@dataclass(frozen=True)
class Trained:
    """Holds trained networks, tau^2, the last state of the training, and a table of its draws, as the networks see them."""

    federation: Federation
    tau: Tau
    state: State
    table: DrawTable


def measure(config: PriorConfig, source: Source, trained: Trained) -> Fit:
    """Measures how well the networks stand in for the prior."""
    federation, tau, state = trained.federation, trained.tau, trained.state
    prior, seed = source.prior, config.training.seed
    default = 20_000 if prior.n <= LARGE else 4_000
    draws = config.fit.draws or default
    shown = tuple(config.fit.phi) if config.fit.phi else prior_fit.phi_shown(prior.condition)
    variances = [tau.at(np.array([phi]))[0] for phi in shown]
    comparisons = [prior_fit.compare(prior, federation, phi, tau2, draws=draws, seed=seed) for phi, tau2 in zip(shown, variances)]
    distances, edges = distances_of(prior)
    variograms, correlations = [], []
    for comparison, tau2 in zip(comparisons, variances):
        variograms.append(prior_fit.variogram(comparison, federation.client, distances, tau2, edges))
        correlations.append(prior_fit.cross_correlation_error(comparison.true, comparison.sigma, federation.client, tau2))
    warnings = prior_fit.warnings(comparisons, tau)
    neighbours = None if source.graph is None else np.column_stack([source.graph.rows, source.graph.indices])
    return Fit(
        kind=prior.kind,
        condition=prior.condition.name,
        clients=source.clients,
        sizes=source.sizes,
        comparisons=comparisons,
        variograms=variograms,
        correlations=correlations,
        coverage=prior_fit.coverage(prior, federation, tau, draws=draws, seed=seed),
        tau=tau,
        state=state,
        objective=objective(federation.architecture, state, trained.table, seed=seed),
        neighbours=neighbours,
        notes=(*source.notes, *warnings),
    )


def distances_of(prior: Prior) -> tuple[Array, Array]:
    """Returns (n, n) distances, and the edges of their classes: steps on a map, lengths between points."""
    if isinstance(prior, AreaPrior):
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import shortest_path

        graph: Any = csr_array((np.ones(len(prior.indices)), prior.indices, prior.indptr), shape=(prior.n, prior.n))
        return shortest_path(graph, directed=False, unweighted=True), np.arange(HOPS + 1, dtype=np.float64) + 0.5
    x: Array = prior.x  # type: ignore[attr-defined]
    apart: Array = np.sqrt(np.sum((x[:, None] - x[None]) ** 2, axis=2))
    return apart, np.asarray(np.linspace(0.0, float(apart.max()) * (1 + 1e-9), CLASSES + 1))


def text(fit: Fit) -> str:
    """Returns a few lines for the terminal."""
    lines = []
    for comparison, correlation in zip(fit.comparisons, fit.correlations):
        value = "" if fit.condition == "none" else f" at {fit.condition} {comparison.phi:g}"
        cross = "" if comparison.cross_split is None else f", between clients {comparison.cross_split:.3f}"
        lines.append(
            f"covariance error{value}: {comparison.error_split:.3f}{cross}; largest error of a correlation between clients "
            f"{comparison.largest_cross_correlation:.3f}, with tau^2 {correlation:.3f}; posterior means are off by "
            f"{comparison.mean_error:.3g} of what independent areas have"
        )
    lines.append(
        f"tau^2: {fit.tau.unclipped:.1%} of the coordinates unclipped ({fit.tau.low} at the floor, {fit.tau.high} at the ceiling)"
    )
    covered = fit.coverage["auxiliary"]
    lines.append("coverage of the prior's marginals: " + ", ".join(f"{float(k):.0%} {v:.1%}" for k, v in covered.items()))
    return "\n".join([*lines, *(f"note: {note}" for note in fit.notes)])


def page(fit: Fit, config: PriorConfig) -> str | None:
    """Returns the report; None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    return report_sigma_prior.page(fit, config.model_dump())
