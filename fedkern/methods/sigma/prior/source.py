"""Reads the prior of a prior file: the map or the points, and who holds which of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....arrays import Array, Indices
from ....data.graph import Graph, Map, read_map
from ....data.points import Points, line, read_points
from ....data.simulate.federations import client_names
from ....errors import JobError
from ....jobs import memory
from ....kernels.mlp import Architecture
from ....models.spatial.condition import Condition, Hyperprior
from ....models.spatial.prior import AreaPrior, GpPrior, Prior
from . import pairs
from .keys import PriorConfig

LARGE = 1e9  # bytes that are worth a note


@dataclass(frozen=True, eq=False)
class Source:
    """Holds the subject of a training."""

    prior: Prior  # of all areas or points, each client's together
    clients: tuple[str, ...]  # their names
    sizes: tuple[int, ...]  # of each client, its number of areas or points
    areas: tuple[tuple[str, ...], ...]  # of each client, their names; empty for points without names
    # of each client, the points of a Gaussian process, or the areas' centres where they are known
    locations: tuple[Array, ...] | None = None
    map: Map | None = None  # of areas
    notes: tuple[str, ...] = ()  # for a user

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why no result of the map can stand."""
        return () if self.map is None else self.map.doubts

    @property
    def by_position(self) -> bool:
        """Whether neighbours were given by the positions of areas in their table, and not by names."""
        return self.map is not None and bool(self.map.positions)

    @property
    def graph(self) -> Graph | None:
        """The graph of a map; None for points."""
        return None if self.map is None else self.map.graph

    def architecture(self, config: PriorConfig) -> Architecture:
        """Returns the networks; a client has no more local latents than areas."""
        n = config.network
        local = tuple(min(n.local_latents, d) for d in self.sizes)
        return Architecture(n.variant, self.sizes, 1, n.global_latents, local, n.hidden, n.local_hidden, n.width, n.rank)

    def pairs(self, client: int) -> Indices | None:
        """Returns (k, 2) a client's neighbours, by their numbers at it, each pair once."""
        if self.graph is None:
            return None
        first = sum(self.sizes[:client])
        graph = self.graph.subset(np.arange(first, first + self.sizes[client]))
        once = graph.rows < graph.indices
        return np.column_stack([graph.rows[once], graph.indices[once]])

    def islands(self, client: int) -> tuple[str, ...]:
        """Returns the names of a client's areas that are dropped, as they have no neighbours."""
        return () if self.map is None else tuple(name for name, owner in self.map.dropped if owner == self.clients[client])

    def sd(self, config: PriorConfig) -> Array:
        """Returns (n,) divisors of theta for the networks."""
        return self.prior.training_sd() if config.network.standardise else np.ones(self.prior.n)


def condition(config: PriorConfig) -> Condition:
    """Returns the condition of the networks."""
    h = config.prior.hyperprior
    name: Any = {"gp": "lengthscale", "bym2": "none"}.get(config.prior.kind, "phi")
    try:
        return Condition(name, *config.range, config.network.condition, Hyperprior(h.kind, h.mean, h.variance))
    except ValueError as error:
        raise JobError(f"prior: {error}") from None


def read(config: PriorConfig, folder: Path) -> Source:
    """Reads the prior of a prior file, whose paths are relative to `folder`. Raises JobError: a file that cannot be read, a map
    against the rules, or points that cannot be told apart."""
    data, kind = config.data, config.prior.kind
    # A process has points, given by the file or as a grid; all other kinds have a map.
    if kind == "gp":
        grid = config.prior.grid
        if grid is not None:
            points = line(grid.points, grid.lo, grid.hi, grid.cuts, client_names(len(grid.cuts) + 1))
        else:
            assert data.areas
            assert data.client
            assert data.x
            columns = [data.x] if data.y is None else [data.x, data.y]
            points = read_points(folder / data.areas, client=data.client, columns=columns, name=data.area)
        return _of_points(points, config)
    assert data.areas
    assert data.area
    assert data.client
    adjacency = None if data.adjacency is None else folder / data.adjacency
    borders = None if data.polygons is None else folder / data.polygons
    made = read_map(
        folder / data.areas,
        adjacency,
        area=data.area,
        client=data.client,
        x=data.x,
        y=data.y,
        islands=data.islands,
        borders=borders,
        contiguity=data.contiguity,
        snap=data.snap,
        ids=data.adjacency_ids,
    )
    return of_map(made, config)


def of_map(made: Map, config: PriorConfig) -> Source:
    """Makes the prior of a map."""
    graph, form = made.graph, config.prior.kind
    assert form != "gp"
    prior = AreaPrior(graph.indptr, graph.indices, condition(config), form)
    areas = tuple(made.areas_of(j) for j in range(len(made.clients)))
    centres = None if made.centroids is None else tuple(np.split(made.centroids, np.cumsum(made.sizes)[:-1]))
    tied = (pairs.across(made),) if len(made.clients) > 1 and not config.data.unlinked else ()
    doubts = [f"doubt: {doubt}" for doubt in made.doubts]
    return Source(prior, made.clients, made.sizes, areas, centres, made, (*doubts, *made.notes, *tied, *prior.warnings()))


def with_memory(source: Source) -> Source:
    """Adds a note on the memory of a large map's eigenvectors; JobError where this machine has less."""
    if source.graph is None or (taken := memory.eigenvectors(source.graph.n)) < LARGE:
        return source
    note = f"the eigenvectors of {source.graph.n:,} areas take about {memory.size(taken)} of memory"
    if taken > memory.available():
        has = memory.size(memory.available())
        raise JobError(f"data: {note}, and this machine has {has}; take a larger one, or `fedkern sigma build`, which needs none")
    return replace(source, notes=(*source.notes, note))


def _of_points(points: Points, config: PriorConfig) -> Source:
    """Makes the prior of points."""
    try:
        prior = GpPrior(points.x, condition(config), config.prior.kernel)
    except ValueError as error:
        raise JobError(f"data: {error}") from None
    split = tuple(np.split(points.x, np.cumsum(points.sizes)[:-1]))
    names = _split(points.names, points.sizes) if points.names else ((),) * len(points.sizes)
    return Source(prior, points.clients, points.sizes, names, split, notes=prior.warnings())


def _split(names: Sequence[str], sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Splits names by client."""
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(tuple(names[a:b]) for a, b in itertools.pairwise(ends))
