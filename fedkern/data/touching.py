"""Finds the areas of a map that touch, though borders are drawn twice, cut at other corners, rounded, or meet at the 180th
meridian.

Borders are of degrees, and lines between corners are straight in them (RFC 7946). Distances are metres, in the plane that has the
length of a degree of longitude at the latitude of the two areas. Geometry is shapely's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..arrays import Array, Indices
from ..errors import JobError
from .places import listed

Shapely = Any  # the module, its geometries and arrays of them: it has no types
Part = tuple[Array, ...]  # a closed line (k, 2) around the part, and one around each hole in it
Contiguity = Literal["vertex", "edge"]

DEGREE = 111_195.0  # metres of latitude, on a sphere of the Earth's mean radius
LEAST, UNITS = 1.0, 2.0  # metres, and units of the coordinates' last digit, within which borders are the same
SHARE = 0.01  # of the middle area's width: borders are never farther apart and the same
MISSED = 20.0  # times as far: pairs that are said not to touch
SIDE = 4.0  # times as long as borders may be apart: a common side
DIGITS = 9  # of degrees, beyond which all are taken to be there
TURN = 360.0  # degrees
WORDS = {"vertex": "touch", "edge": "have a side in common"}


@dataclass(frozen=True)
class Touching:
    """Holds the areas that touch."""

    pairs: Indices  # (m, 2) numbers of two areas, the lower first, ascending
    snap: float  # metres within which borders are the same
    notes: tuple[str, ...]  # on pairs that overlap, on those that nearly touch, and on borders that cross themselves, for people


def find_neighbours(
    shapes: Mapping[str, Sequence[Part]], contiguity: Contiguity = "vertex", snap: float | None = None
) -> Touching:
    """Finds the neighbours among these areas. Raises JobError: shapely is not installed.

    Parameters
    ----------
    shapes : name -> the area's parts
    contiguity : the meaning of touching: a common corner ("queen"), or a common side ("rook")
    snap : metres within which borders are the same; None: 1, or two units of the coordinates' last digit, but never more than a
        hundredth of the middle area's width
    """
    try:
        import shapely
    except ImportError as error:
        raise JobError(f"neighbours from polygons need shapely ({error}): pip install 'fedkern[spatial]'") from None
    names = list(shapes)
    drawn = np.array([_geometry(shapely, shapes[name]) for name in names])
    crossed = np.flatnonzero(~shapely.is_valid(drawn))
    drawn[crossed] = shapely.make_valid(drawn[crossed])
    near = _snap(shapely, drawn, shapes) if snap is None else snap
    plane = _Plane(shapely, *_round_the_world(shapely, drawn))
    i, j, distance = plane.pairs(MISSED * near)
    # Pairs are looked for farther than `near`, to warn of borders that just miss each other.
    touch = distance <= near
    pairs, apart = np.column_stack([i, j])[touch], distance[~touch]
    missed = np.column_stack([i, j])[~touch]
    if contiguity == "edge":
        pairs = pairs[plane.common(pairs, near) > SIDE * near]
    owners = np.unique(np.sort(plane.owner[pairs], axis=1), axis=0)
    notes = [f"borders of {listed([names[k] for k in crossed])} cross themselves; they were mended"] if len(crossed) else []
    notes += _overlapping(names, plane, pairs, near)
    notes += _missed(names, np.sort(plane.owner[missed], axis=1), apart, owners, near)
    return Touching(owners.astype(np.int64).reshape(-1, 2), near, tuple(notes))


def _geometry(shapely: Shapely, parts: Sequence[Part]) -> Shapely:
    return shapely.MultiPolygon([shapely.Polygon(part[0], part[1:]) for part in parts])


def _snap(shapely: Shapely, drawn: Shapely, shapes: Mapping[str, Sequence[Part]]) -> float:
    """Returns the distance within which borders are the same, by the digits that the file has, and the areas' widths."""
    corners = np.concatenate([ring for parts in shapes.values() for part in parts for ring in part]).ravel()
    digits = next((k for k in range(DIGITS) if np.abs(np.round(corners, k) - corners).max() < 1e-11), DIGITS)
    box = shapely.bounds(drawn)
    narrow = np.cos(np.radians((box[:, 1] + box[:, 3]) / 2))
    width = float(np.median(np.sqrt(shapely.area(drawn) * narrow))) * DEGREE
    return min(max(LEAST, UNITS * DEGREE * 10.0**-digits), SHARE * width)


def _round_the_world(shapely: Shapely, drawn: Shapely) -> tuple[Shapely, Indices]:
    """Returns the areas, those in the west once more a turn to the east if the map goes round; and which area each is."""
    box, areas = shapely.bounds(drawn), np.arange(len(drawn))
    west = np.flatnonzero(box[:, 0] < box[:, 2].max() - TURN / 2)
    if not len(west):
        return drawn, areas
    turned = shapely.transform(drawn[west], lambda corners: corners + np.array([TURN, 0.0]))
    return np.concatenate([drawn, turned]), np.concatenate([areas, west])


@dataclass(frozen=True)
class _Plane:
    """Measures areas in bands of latitude, in each of which a degree of longitude has one length. `owner`: which area each is."""

    shapely: Shapely
    drawn: Shapely
    owner: Indices

    def pairs(self, within: float) -> tuple[Indices, Indices, Array]:
        """Returns the numbers of all pairs of two areas at most `within` metres apart, and their distances."""
        box = self.shapely.bounds(self.drawn)
        steepest = np.abs(box[:, [1, 3]]).max(axis=1)
        wide = within / DEGREE
        more = np.column_stack([wide / np.cos(np.radians(np.minimum(steepest, 89.0))), np.full(len(box), wide)])
        looked = self.shapely.box(*(box[:, :2] - more).T, *(box[:, 2:] + more).T)
        i, j = self.shapely.STRtree(self.drawn).query(looked)
        # two turned ones are a pair that is there already
        keep = (i < j) & (self.owner[i] != self.owner[j]) & ~((self.owner[i] != i) & (self.owner[j] != j))
        i, j = i[keep], j[keep]
        distance = self.each(i, j, self.shapely.distance)
        keep = distance <= within
        return i[keep], j[keep], distance[keep]

    def common(self, pairs: Indices, near: float) -> Array:
        """Returns the metres of the one's border that lie within `near` of the other."""

        def length(a: Shapely, b: Shapely) -> Shapely:
            return self.shapely.length(self.shapely.intersection(self.shapely.boundary(a), self.shapely.buffer(b, near)))

        return self.each(pairs[:, 0], pairs[:, 1], length)

    def overlap(self, pairs: Indices) -> Array:
        """Returns the square metres that both have in common."""
        return self.each(pairs[:, 0], pairs[:, 1], lambda a, b: self.shapely.area(self.shapely.intersection(a, b)))

    def each(self, i: Indices, j: Indices, measure: Callable[[Shapely, Shapely], Shapely]) -> Array:
        """Returns a measure of every pair, in metres."""
        out = np.zeros(len(i))
        box = self.shapely.bounds(self.drawn)
        # where the two boxes meet
        low, high = np.maximum(box[i, 1], box[j, 1]), np.minimum(box[i, 3], box[j, 3])
        bands = np.floor((low + high) / 2).astype(np.int64)
        for band in np.unique(bands):
            those = np.flatnonzero(bands == band)
            length = DEGREE * np.array([np.cos(np.radians(min(abs(band + 0.5), 89.0))), 1.0])
            areas, place = np.unique(np.concatenate([i[those], j[those]]), return_inverse=True)
            flat = self.shapely.transform(self.drawn[areas], lambda corners, length=length: corners * length)
            out[those] = measure(flat[place[: len(those)]], flat[place[len(those) :]])
        return out


def _overlapping(names: Sequence[str], plane: _Plane, pairs: Indices, near: float) -> list[str]:
    """Returns a note on neighbours that lie on each other by more than their borders' digits explain."""
    area = plane.overlap(pairs)
    those = np.flatnonzero(area > near**2)
    if not len(those):
        return []
    shown = listed([f"{_pair(names, plane.owner[pairs[k]])} ({area[k]:,.0f} m2)" for k in those[np.argsort(-area[those])]])
    return [f"{len(those)} pairs of neighbours overlap: {shown}"]


def _missed(names: Sequence[str], pairs: Indices, apart: Array, touching: Indices, near: float) -> list[str]:
    """Returns a note on areas that nearly touch, and are no neighbours."""
    touching_pairs = set(map(tuple, touching.tolist()))
    those = [k for k in np.argsort(apart, kind="stable").tolist() if tuple(pairs[k].tolist()) not in touching_pairs]
    if not those:
        return []
    shown = listed([f"{_pair(names, pairs[k])} ({apart[k]:.3g} m)" for k in those])
    return [
        f"{len(those)} pairs come within {MISSED * near:.3g} m of each other without touching, and are no neighbours: {shown}; "
        f"data.snap (here {near:.3g} m) joins them if they are"
    ]


def _pair(names: Sequence[str], pair: Indices) -> str:
    return " and ".join(names[k] for k in pair)
