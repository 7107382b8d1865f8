"""Reads maps: areas with their clients, and which areas are neighbours.

Rules (sigma.md, section 3): no self-loops, both directions or one for all pairs, no unknown areas, every area at exactly one
client. An area without neighbours is an island, for which a CAR prior is not proper: it is linked, dropped or independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ..arrays import Array, Indices
from ..errors import JobError
from . import neighbours, polygons, touching
from .places import listed, numbers_of, whole
from .table import load

Islands = Literal["link", "drop", "independent"]

ALL = 5  # areas, of which no plane map has all touch all along their borders
# Of right maps of 20 to 3,000 areas hardly a pair in twenty is far; of those whose ids mean other areas two in five are.
LEAST_AREAS, DENSE = 20, 3.0  # areas, and for each neighbour of an area: of fewer some neighbours are the farthest
FAR, FEW = 0.1, 2  # pairs that may be: this share, and so many more
MOST_PAIRS = 4_000  # pairs that are looked at


@dataclass(frozen=True, eq=False)
class Graph:
    """Holds a symmetric adjacency in CSR form, without a diagonal."""

    names: tuple[str, ...]  # (n,) of the areas
    # indptr, indices: (n + 1,), (nnz,) neighbours of area i: indices[indptr[i]:indptr[i + 1]], ascending
    indptr: Indices
    indices: Indices

    @property
    def n(self) -> int:
        """The number of areas."""
        return len(self.names)

    @property
    def degrees(self) -> Indices:
        """(n,) The numbers of neighbours."""
        return np.diff(self.indptr)

    @property
    def islands(self) -> Indices:
        """The areas without neighbours."""
        return np.flatnonzero(self.degrees == 0)

    @property
    def rows(self) -> Indices:
        """(nnz,) The area whose neighbour stands in `indices`."""
        return np.repeat(np.arange(self.n), self.degrees)

    def components(self) -> Indices:
        """Returns the number (n,) of the connected component of each area, from 0 in order of first appearance."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(len(self.indices))
        labels = connected_components(csr_array((ones, self.indices, self.indptr), shape=(self.n, self.n)), directed=False)[1]
        return np.asarray(np.unique(labels, return_index=True)[1].argsort().argsort()[labels], dtype=np.int64)

    def subset(self, keep: Indices) -> Graph:
        """Returns the graph of these areas only, in this order."""
        place = np.full(self.n, -1)
        place[keep] = np.arange(len(keep))
        i, j = place[self.rows], place[self.indices]
        inside = (i >= 0) & (j >= 0)
        return from_pairs(tuple(self.names[k] for k in keep), np.column_stack([i[inside], j[inside]]))


@dataclass(frozen=True, eq=False)
class Map:
    """Holds areas in the order of their clients: client 0's first, each client's in the order of the file."""

    graph: Graph  # of all areas
    clients: tuple[str, ...]  # their names, sorted
    client: Indices  # (n,) number of each area's client, ascending
    centroids: Array | None = None  # (n, 2), where they are known
    notes: tuple[str, ...] = ()  # on the treatment of islands, and the number of components, for people
    dropped: tuple[tuple[str, str], ...] = ()  # areas without neighbours that were left out, and of each the client
    # (n,) of areas in their table, as the file of neighbours counts them, where it gives these and no names
    positions: tuple[int, ...] = ()
    doubts: tuple[str, ...] = ()  # why no result of this map can stand

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of areas of each client."""
        return tuple(np.bincount(self.client, minlength=len(self.clients)).tolist())

    def areas_of(self, client: int) -> tuple[str, ...]:
        """Returns the names of one client's areas."""
        return tuple(self.graph.names[k] for k in np.flatnonzero(self.client == client))


def from_pairs(names: Sequence[str], pairs: Indices) -> Graph:
    """Returns a graph from pairs (m, 2) of numbers of areas, in any order and direction."""
    n = len(names)
    both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    code = np.unique(both[:, 0] * n + both[:, 1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(code // max(n, 1), minlength=n))])
    return Graph(tuple(names), indptr.astype(np.int64), code % max(n, 1))


def check_pairs(names: Sequence[str], pairs: Indices, source: str) -> Graph:
    """Returns a graph from pairs (m, 2) of numbers of areas, after checks of self-loops and directions; `source` begins the
    error."""
    loops = pairs[pairs[:, 0] == pairs[:, 1], 0]
    if len(loops):
        raise JobError(f"{source}: {listed([names[k] for k in loops])}: neighbour of itself; remove these lines")
    n = len(names)
    given = set((pairs[:, 0] * n + pairs[:, 1]).tolist())
    both = [code for code in given if code % n * n + code // n in given]
    if both and len(both) < len(given):
        once = min(given - set(both))
        twice = min(both)
        raise JobError(
            f"{source}: asymmetric: {names[once // n]} - {names[once % n]} stands in one direction only, but "
            f"{names[twice // n]} - {names[twice % n]} in both; list every pair once, or every pair in both directions"
        )
    return from_pairs(names, pairs)


def read_map(
    areas: str | Path,
    edges: str | Path | None = None,
    *,
    area: str,
    client: str,
    x: str | None = None,
    y: str | None = None,
    islands: Islands = "link",
    borders: str | Path | None = None,
    contiguity: touching.Contiguity = "vertex",
    snap: float | None = None,
    ids: neighbours.Ids | None = None,
) -> Map:
    """Reads areas, their clients and their neighbours. Raises JobError: names the areas at fault, and the remedy.

    Parameters
    ----------
    areas : a table with a line for each area
    edges : a list of neighbours (`neighbours.read`), each pair once, or each in both directions; None: areas whose borders touch
    area, client : the columns that name the area and its client
    x, y : the columns of its centroid; needed to link islands, unless there are borders
    islands : "link" to the nearest centroid, "drop", or "independent" of all others
    borders : GeoJSON (`polygons.read`) whose property `area` names them
    contiguity, snap : the meaning of touching (`touching.find_neighbours`)
    ids : how `edges` calls areas (`neighbours.read`)
    """
    # The header is checked first, for the second reading names its columns.
    header = load(areas).names
    for key, column in (("area", area), ("client", client), ("x", x), ("y", y)):
        if column is not None and column not in header:
            raise JobError(f"[data] {key} = {column!r}: {areas} has no such column; it has {', '.join(header)}")
    table = load(areas, text=(area, client))
    whole(table)
    names, owners = table.cells(area), table.cells(client)
    claims: dict[str, set[str]] = {}
    for name, owner in zip(names, owners):
        claims.setdefault(name, set()).add(owner)
    # An area of two clients also stands there twice; its own fault has another remedy, and is looked for first.
    two = [f"{name} ({' and '.join(sorted(claims[name]))})" for name in claims if len(claims[name]) > 1]
    none = [name or f"row {k + 1}" for k, (name, owner) in enumerate(zip(names, owners)) if not (owner and name)]
    if two:
        raise JobError(f"{areas}: {listed(two)}: claimed by two clients; an area belongs to exactly one")
    if none:
        raise JobError(
            f"{areas}: {listed(none)}: an area without a name or a client; fill in the columns {area!r} and {client!r}"
        )
    if len(claims) < len(names):
        raise JobError(f"{areas}: {listed([n for n in claims if names.count(n) > 1])}: stands there twice; keep one line")
    centroids, sphere = None, borders is not None
    if x is not None and y is not None:
        centroids = np.column_stack([numbers_of(table, x), numbers_of(table, y)])
        sphere = _degrees(x, y, centroids)
    if borders is None:
        if edges is None:
            raise ValueError("read_map: wanted edges, or borders")
        return _listed_map(edges, names, owners, centroids, islands=islands, sphere=sphere, ids=ids, column=area)
    drawn = polygons.read(borders, area)
    # Polygons give centroids, and neighbours too where no file names them.
    shapes = drawn.select(names, str(borders))
    centroids = shapes.centroids() if centroids is None else centroids
    if edges is None:
        touch = touching.find_neighbours(shapes.parts, contiguity, snap)
        made = make_map(from_pairs(names, touch.pairs), owners, centroids, islands=islands, sphere=sphere)
        found = f"{len(touch.pairs):,} pairs of neighbours, which {touching.WORDS[contiguity]} (to {touch.snap:.3g} m)"
        notes = [found, *touch.notes, *made.notes]
    else:
        made = _listed_map(edges, names, owners, centroids, islands=islands, sphere=sphere, ids=ids, column=area)
        notes = [*made.notes]
    if others := [name for name in drawn.parts if name not in claims]:
        notes.append(f"{len(others)} polygons of no area in the table are left out: {listed(others)}")
    return replace(made, notes=tuple(notes))


def _listed_map(
    edges: str | Path,
    names: Sequence[str],
    owners: Sequence[str],
    centroids: Array | None,
    *,
    islands: Islands,
    sphere: bool,
    ids: neighbours.Ids | None,
    column: str,
) -> Map:
    """Returns the map of a list of neighbours, with what is to be said of the list and doubted of it."""
    read = neighbours.read(edges, names, ids, column)
    graph = check_pairs(names, read.pairs, str(edges))
    made = make_map(graph, owners, centroids, islands=islands, sphere=sphere)
    doubts = _doubts(graph, None if centroids is None else _places(centroids, sphere=sphere))
    line = {name: k for k, name in enumerate(names)}
    positions = () if read.first is None else tuple(line[name] + read.first for name in made.graph.names)
    return replace(made, notes=(*read.notes, *made.notes), positions=positions, doubts=doubts)


def _doubts(graph: Graph, places: Array | None) -> tuple[str, ...]:
    """Returns why a list of neighbours is not one of this map, as far as its shape and its areas' places (n, 2 or 3) tell."""
    n, pairs = graph.n, np.column_stack([graph.rows, graph.indices])
    if n >= ALL and len(pairs) == n * (n - 1):
        return (
            f"all {n:,} areas are neighbours of all others: that is a list of all pairs (with a weight, or a distance, that is "
            "not read) and no map; list those that are neighbours",
        )
    if places is None or n < LEAST_AREAS or n < DENSE * graph.degrees.mean():
        return ()
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    pairs = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), MOST_PAIRS)).round().astype(np.int64)]
    far = sum(_is_far(places, a, b) for a, b in pairs.tolist())
    if far <= FAR * len(pairs) + FEW:
        return ()
    return (
        f"neighbours are as far apart as any two areas: in {far:,} of {len(pairs):,} pairs more than half of all areas are "
        "nearer to either; the list of neighbours calls areas otherwise than their table (its ids may be positions, or names: "
        "[data] adjacency_ids), or their centres are others'",
    )


def _is_far(places: Array, a: int, b: int) -> bool:
    """Tells whether more than half of all areas are nearer than the other one, seen from each of two areas; ties count half."""
    apart = ((places[a] - places[b]) ** 2).sum()
    for k in (a, b):
        distance = ((places - places[k]) ** 2).sum(axis=1)
        nearer = (distance < apart * (1 - 1e-9)).sum() + (distance <= apart * (1 + 1e-9)).sum() - 1  # the other one itself
        if nearer <= len(places):
            return False
    return True


def _degrees(x: str, y: str, centroids: Array) -> bool:
    """Tells whether two columns are longitude and latitude, by their names."""
    named = x.casefold().startswith("lon") and y.casefold().startswith("lat")
    return named and bool((np.abs(centroids) <= polygons.MOST).all())


def make_map(
    graph: Graph, owners: Sequence[str], centroids: Array | None = None, *, islands: Islands = "link", sphere: bool = False
) -> Map:
    """Returns a map whose islands are taken care of, with its areas sorted by client.

    Parameters
    ----------
    graph : of all areas
    owners : (n,) the client of each area
    centroids : (n, 2); needed to link islands
    islands : the treatment of areas without neighbours
    sphere : whether centroids are degrees of longitude and latitude
    """
    notes: list[str] = []
    alone, names = graph.islands, graph.names
    shown = listed([names[k] for k in alone])
    keep = np.arange(graph.n, dtype=np.int64)
    if not len(graph.indices):
        raise JobError("no two areas are neighbours: a map needs at least one pair; check [data] adjacency or polygons")
    if len(alone) and islands == "link":
        if centroids is None or not np.isfinite(centroids[alone]).all():
            raise JobError(
                f"{shown}: without neighbours, for which a CAR prior is not proper; give centroids ([data] x and y) to link each "
                'to its nearest area, add neighbours, or set [data] islands = "drop" or "independent"'
            )
        nearest = _nearest(alone, centroids, sphere=sphere)
        pairs = [np.column_stack([graph.rows, graph.indices]), np.column_stack([alone, nearest])]
        graph = from_pairs(graph.names, np.concatenate(pairs))
        shown = listed([f"{graph.names[k]} to {graph.names[other]}" for k, other in zip(alone, nearest)])
        how = "on the sphere" if sphere else "in the plane of x and y"
        notes.append(f"{len(alone)} without neighbours, linked to the area whose centre is nearest {how}: {shown}")
    elif len(alone) and islands == "drop":
        keep = np.flatnonzero(graph.degrees > 0)
        notes.append(f"{len(alone)} without neighbours, dropped: {shown}")
    elif len(alone):
        notes.append(f"{len(alone)} without neighbours, independent of all others: {shown}")
    # A client whose areas are all dropped would take part without any.
    lost = sorted(set(owners) - {owners[k] for k in keep.tolist()})
    if lost:
        raise JobError(f"{listed(lost)}: all areas of this client are dropped; link the islands instead, or leave the client out")
    clients = tuple(sorted(set(owners)))
    number = np.array([clients.index(owners[k]) for k in keep.tolist()], dtype=np.int64)
    # Each client's areas are one block of the map, in the file's order.
    order = keep[np.argsort(number, kind="stable")]
    graph = graph.subset(order)
    parts = np.bincount(graph.components())
    if len(parts) > 1:
        notes.append(
            f"{len(parts)} connected components, of {listed([str(s) for s in sorted(parts.tolist(), reverse=True)])} areas"
        )
    kept = set(graph.names)
    dropped = tuple((name, owner) for name, owner in zip(names, owners) if name not in kept)
    return Map(graph, clients, np.sort(number), None if centroids is None else centroids[order], tuple(notes), dropped)


def _nearest(alone: Indices, centroids: Array, *, sphere: bool) -> Indices:
    """Returns, for each of these areas, the other one whose centre is nearest."""
    places = _places(centroids, sphere=sphere)
    nearest = np.zeros(len(alone), np.int64)
    for place, k in enumerate(alone):
        distance = np.sum((places - places[k]) ** 2, axis=1)
        distance[k] = np.inf
        nearest[place] = np.nanargmin(distance)
    return nearest


def _places(centroids: Array, *, sphere: bool) -> Array:
    """Returns centres in the plane of their columns, or degrees on the sphere: chords are in the order of arcs."""
    if not sphere:
        return centroids
    lon, lat = np.radians(centroids).T
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


def grid(rows: int, columns: int) -> Graph:
    """Returns a rectangular map whose cells share sides; cell (r, c) is number r columns + c, named "r-c" from 1."""
    number = np.arange(rows * columns).reshape(rows, columns)
    right = np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.column_stack([number[:-1].ravel(), number[1:].ravel()])
    names = [f"{r + 1}-{c + 1}" for r in range(rows) for c in range(columns)]
    return from_pairs(names, np.concatenate([right, down]))
