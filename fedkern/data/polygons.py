"""Borders of areas from GeoJSON (RFC 7946): which areas touch, where their centres are, and the same borders with results.

Coordinates are degrees of longitude and latitude (CRS84, which is EPSG:4326 in this order): a file that names another coordinate
system, or whose numbers are no degrees, is refused, since borders of two systems do not lie on each other. Two areas touch where
they share a corner of their borders, digit by digit (to 1e-9 degrees), as in files of one survey; a corner that lies inside of
another area's side is none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Part = tuple[Array, ...]  # a closed line (k, 2) around the part, and one around each hole in it
Contiguity = Literal["vertex", "edge"]

DIGITS = 9  # of degrees, in which corners that are the same agree
MOST = (360.0, 90.0)  # degrees; maps across the 180th meridian go on beyond it
SHOWN = 5  # names in a message


@dataclass(frozen=True, eq=False)
class Polygons:
    """Borders of areas.

    Attributes
    ----------
    parts : name -> the area's parts
    """

    parts: Mapping[str, tuple[Part, ...]]

    def of(self, names: Sequence[str], source: str) -> Polygons:
        """Those of these areas, in this order; JobError names the first five that have none."""
        lacking = [name for name in names if name not in self.parts]
        if lacking:
            raise JobError(f"{source}: {absent(lacking, names)}")
        return Polygons({name: self.parts[name] for name in names})

    def centroids(self) -> Array:
        """(n, 2) centres of gravity, of the plane of degrees."""
        return np.array([_centroid(parts) for parts in self.parts.values()]).reshape(-1, 2)

    def neighbours(self, contiguity: Contiguity = "vertex") -> Index:
        """(m, 2) numbers of areas that touch, each pair once: in one corner at least, or along a side."""
        from scipy.sparse import csr_array, triu

        owner, corners = [], []
        for k, parts in enumerate(self.parts.values()):
            for ring in (ring for part in parts for ring in part):
                owner.append(np.full(len(ring) - 1, k))
                corners.append(np.concatenate([ring[:-1], ring[1:]], axis=1))
        areas, sides = np.concatenate(owner), np.round(np.concatenate(corners), DIGITS) + 0.0  # no -0
        _, ends = np.unique(sides.reshape(-1, 2), axis=0, return_inverse=True)
        ends = ends.reshape(-1, 2)
        if contiguity == "vertex":
            which = ends[:, 0]
        else:
            _, which = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)
        which = which.ravel()
        touches = csr_array((np.ones(len(areas)), (areas, which)), shape=(len(self.parts), int(which.max()) + 1))
        shared = triu(touches @ touches.T, k=1).tocoo()
        return np.column_stack([shared.row, shared.col]).astype(np.int64)

    def collection(self, properties: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
        """GeoJSON of the areas with these properties."""
        features = []
        for name, parts in self.parts.items():
            lines = [[ring.tolist() for ring in part] for part in parts]
            geometry = {"type": "MultiPolygon", "coordinates": lines}
            features.append({"type": "Feature", "properties": dict(properties[name]), "geometry": geometry})
        return {"type": "FeatureCollection", "features": features}


def absent(lacking: Sequence[str], names: Sequence[str]) -> str:
    """A sentence on areas without a polygon, the first five by name."""
    shown = ", ".join(map(repr, lacking[:SHOWN])) + (f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else "")
    return (
        f"no polygon for {len(lacking)} of {len(names)} areas: {shown}; give each feature the area's name, as the tables have it"
    )


def read(path: str | Path, name: str) -> Polygons:
    """The polygons of a GeoJSON file.

    Parameters
    ----------
    path : of a FeatureCollection of Polygons and MultiPolygons; features of one name are parts of one area
    name : the property with the area's name; a feature without it is known by its `id`

    Raises
    ------
    JobError
        No such file, another coordinate system, or a feature that is no polygon or has no name.
    """
    try:
        content = json.loads(Path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise JobError(f"{path}: is no GeoJSON; wanted a FeatureCollection of polygons") from None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(content, dict) or content.get("type") != "FeatureCollection" or not isinstance(features, list):
        raise JobError(f"{path}: is no GeoJSON FeatureCollection; wanted one with a polygon for each area")
    _check_system(path, content.get("crs"))
    found: dict[str, tuple[Part, ...]] = {}
    for number, feature in enumerate(features, 1):
        where = f"{path}, feature {number}"
        if not isinstance(feature, dict):
            raise JobError(f"{where}: is no feature; mend the file")
        known = _name(feature, name)
        if known is None:
            raise JobError(f"{where}: has neither a property {name!r} nor an id; give it the area's name")
        parts = tuple(_parts(feature.get("geometry"), f"{where} ({known})"))
        found[known] = (*found.get(known, ()), *parts)
    return Polygons({known: parts for known, parts in found.items() if parts})


def _check_system(path: str | Path, crs: object) -> None:
    """JobError if the file says that its coordinates are of another system."""
    if crs is None:
        return
    named = crs.get("properties") if isinstance(crs, dict) else None
    text = str(named.get("name")) if isinstance(named, dict) and "name" in named else json.dumps(crs)
    words = [word for word in re.split(r"[:/#]", text.upper()) if word]
    if words and (words[-1] == "CRS84" or (words[-1] == "4326" and "EPSG" in words)):
        return
    raise JobError(
        f"{path}: its coordinate system is {text[:80]!r}; wanted degrees of longitude and latitude (CRS84, EPSG:4326); convert "
        "it, for example by ogr2ogr -t_srs EPSG:4326"
    )


def _name(feature: Mapping[str, object], name: str) -> str | None:
    """As the tables have it: a whole number without a point."""
    properties = feature.get("properties")
    value = (properties or {}).get(name) if isinstance(properties, dict | None) else None
    value = feature.get("id") if value is None else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or isinstance(value, bool | dict | list) or str(value) == "" else str(value)


def _parts(geometry: Any, where: str) -> Iterator[Part]:
    """Of one feature; a feature without geometry has none."""
    if geometry is None:
        return
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        raise JobError(f"{where}: is a {kind}; wanted a Polygon or a MultiPolygon")
    coordinates = geometry.get("coordinates")
    several = [coordinates] if kind == "Polygon" else coordinates
    if not isinstance(several, list):
        raise JobError(f"{where}: has no coordinates; mend the file")
    for part in several:
        if not isinstance(part, list) or not part:
            raise JobError(f"{where}: has a part without a border; mend the file")
        yield tuple(_ring(ring, where) for ring in part)


def _ring(given: Any, where: str) -> Array:
    """(k, 2) corners of a closed line, the first once more at the end."""
    try:
        ring = np.array([[float(x), float(y)] for x, y, *_ in given])
    except (TypeError, ValueError):
        raise JobError(f"{where}: has a corner that is no pair of numbers; mend the file") from None
    if len(ring) and not np.array_equal(ring[0], ring[-1]):
        ring = np.concatenate([ring, ring[:1]])
    if not np.isfinite(ring).all():
        raise JobError(f"{where}: has a corner that is not finite; mend the file")
    if len(ring) < 4:
        raise JobError(f"{where}: has a border of {max(len(ring) - 1, 0)} corners; wanted at least 3")
    if (np.abs(ring) > MOST).any():
        x, y = ring[np.argmax((np.abs(ring) > MOST).any(axis=1))]
        raise JobError(
            f"{where}: has a corner at ({x:g}, {y:g}), which are no degrees of longitude and latitude; convert the file to CRS84 "
            "(EPSG:4326), for example by ogr2ogr -t_srs EPSG:4326"
        )
    return ring


def _centroid(parts: Sequence[Part]) -> Array:
    """By the corners' triangles with one of them; the first line of a part is its border, the others are holes."""
    origin, total, moment = parts[0][0][0], 0.0, np.zeros(2)
    for part in parts:
        for k, ring in enumerate(part):
            a, b = ring[:-1] - origin, ring[1:] - origin
            cross = a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]
            area = cross.sum() / 2
            sign = np.sign(area) * (1 if k == 0 else -1)
            total += sign * area
            moment += sign * ((a + b) * cross[:, np.newaxis]).sum(axis=0) / 6
    corners = np.concatenate([ring[:-1] for part in parts for ring in part])
    return np.asarray(origin + moment / total if total else corners.mean(axis=0))
