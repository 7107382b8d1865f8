"""Reads borders of areas, finds their centres, and writes the same borders with results. `touching` finds those that touch.

Coordinates are degrees of longitude and latitude (CRS84, which is EPSG:4326 in this order). Files that say another system are
converted: GeoPackages and shapefiles, and GeoJSON that names one by its EPSG number, such as NAD83 (EPSG:4269). GeoJSON (RFC
7946) that names a system otherwise, or whose numbers are no degrees, is refused: borders of two systems do not lie on each other.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import JobError
from ..labels import label
from .places import counts, listed
from .touching import TURN, Part

OTHER = (".gpkg", ".shp", ".fgb", ".zip")  # read by geopandas
Convert = Callable[[Array], Array]  # corners (k, 2) to degrees
MOST = (360.0, 90.0)  # degrees; maps across the 180th meridian go on beyond it


@dataclass(frozen=True, eq=False)
class Polygons:
    """Holds the borders of areas."""

    parts: Mapping[str, tuple[Part, ...]]  # name -> the area's parts
    by_id: bool = False  # whether all names are features' ids, and none is a property

    def select(self, names: Sequence[str], source: str) -> Polygons:
        """Returns those of these areas, in this order; raises JobError that names the first five without one."""
        lacking = [name for name in names if name not in self.parts]
        if lacking:
            raise JobError(f"{source}: {absent(lacking, names)}")
        if self.by_id and counts([*self.parts], names) is not None:
            raise JobError(
                f"{source}: features are known by their ids, which count them, but areas have such names, too, in another order: "
                "give each feature the area's name as a property"
            )
        return Polygons({name: self.parts[name] for name in names})

    def centroids(self) -> Array:
        """Returns centres of gravity (n, 2), in the plane of degrees; parts beyond the 180th meridian are one area's."""
        return np.array([_centroid(parts) for parts in self.parts.values()]).reshape(-1, 2)

    def collection(self, properties: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
        """Returns GeoJSON of the areas with these properties."""
        features = []
        for name, parts in self.parts.items():
            lines = [[ring.tolist() for ring in part] for part in parts]
            geometry = {"type": "MultiPolygon", "coordinates": lines}
            features.append({"type": "Feature", "properties": dict(properties[name]), "geometry": geometry})
        return {"type": "FeatureCollection", "features": features}


def absent(lacking: Sequence[str], names: Sequence[str]) -> str:
    """Returns a sentence on areas without a polygon, the first five by name."""
    return (
        f"no polygon for {len(lacking)} of {len(names)} areas: {listed(list(map(repr, lacking)))}; give each feature the area's "
        "name, as the tables have it"
    )


def read(path: str | Path, name: str) -> Polygons:
    """Reads the polygons of a file. Raises JobError: no such file, another coordinate system or none, or a feature that is no
    polygon or has no name.

    Parameters
    ----------
    path : GeoJSON with a FeatureCollection of Polygons and MultiPolygons, or any file that geopandas reads (.gpkg, .shp, .fgb,
        a zipped shapefile); features of one name are parts of one area
    name : the property with the area's name; a feature without it is known by its `id`
    """
    try:
        content = _converted(path) if Path(path).suffix.lower() in OTHER else json.loads(Path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise JobError(f"{path}: is no GeoJSON; wanted a FeatureCollection of polygons") from None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(content, dict) or content.get("type") != "FeatureCollection" or not isinstance(features, list):
        raise JobError(f"{path}: is no GeoJSON FeatureCollection; wanted one with a polygon for each area")
    # Before any coordinate is read: metres would be taken for degrees.
    convert = _conversion(path, content.get("crs"))
    parts_of: dict[str, tuple[Part, ...]] = {}
    by_id = True
    for number, feature in enumerate(features, 1):
        where = f"{path}, feature {number}"
        if not isinstance(feature, dict):
            raise JobError(f"{where}: is no feature; mend the file")
        known = _name(feature, name)
        if known is None:
            raise JobError(f"{where}: has neither a property {name!r} nor an id; give it the area's name")
        by_id &= _name({"properties": feature.get("properties")}, name) is None
        parts = tuple(_parts(feature.get("geometry"), f"{where} ({known})", convert))
        parts_of[known] = (*parts_of.get(known, ()), *parts)
    return Polygons({known: parts for known, parts in parts_of.items() if parts}, by_id)


def geopandas(what: str) -> Any:
    """Imports geopandas; raises JobError if it is not installed, which says that `what` needs it."""
    try:
        import geopandas as library
    except ImportError as error:
        raise JobError(f"{what}: needs geopandas ({error}): pip install 'fedkern[spatial]'; or take GeoJSON") from None
    return library


def geopackage(collection: Mapping[str, Any]) -> bytes:
    """Returns a GeoPackage with one layer, "areas", of the result of `Polygons.collection`."""
    library, made = geopandas("areas.gpkg (output.polygons)"), io.BytesIO()
    library.GeoDataFrame.from_features(collection, crs=4326).to_file(made, driver="GPKG", layer="areas", engine="pyogrio")
    return made.getvalue()


def _converted(path: str | Path) -> object:
    """Returns a file of another form as GeoJSON of degrees."""
    library = geopandas(str(path))
    try:
        frame = library.read_file(path)
    except Exception as error:
        raise JobError(f"{path}: cannot be read ({(str(error) or type(error).__name__).splitlines()[0][:200]})") from None
    if frame.crs is None:
        raise JobError(f"{path}: does not say its coordinate system (a shapefile has it in a .prj beside it); give it one")
    return json.loads(frame.to_crs(4326).to_json(drop_id=True))


def _conversion(path: str | Path, crs: object) -> Convert | None:
    """Returns the function from GeoJSON's coordinates to degrees, None where they are degrees. Raises JobError: the file says
    that its coordinates are of a system that is not known by its number."""
    if crs is None:
        return None
    named = crs.get("properties") if isinstance(crs, dict) else None
    text = str(named.get("name")) if isinstance(named, dict) and "name" in named else json.dumps(crs)
    words = [word for word in re.split(r"[:/#]", text.upper()) if word]
    if words and (words[-1] == "CRS84" or (words[-1] == "4326" and "EPSG" in words)):
        return None
    if len(words) > 1 and "EPSG" in words and words[-1].isdecimal():
        geopandas(str(path))
        import pyproj

        try:
            # Longitude, or the way east, comes first in GeoJSON, whatever the system's own order.
            turn = pyproj.Transformer.from_crs(int(words[-1]), 4326, always_xy=True)
        except pyproj.exceptions.CRSError:
            pass
        else:
            return lambda corners: np.column_stack(turn.transform(*corners.T))
    raise JobError(
        f"{path}: its coordinate system is {text[:80]!r}; wanted degrees of longitude and latitude (CRS84, EPSG:4326); convert "
        "it, for example by ogr2ogr -t_srs EPSG:4326"
    )


def _name(feature: Mapping[str, object], name: str) -> str | None:
    """Returns a feature's name as the tables have it: a whole number without a point."""
    properties = feature.get("properties")
    value = (properties or {}).get(name) if isinstance(properties, dict | None) else None
    value = feature.get("id") if value is None else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or isinstance(value, bool | dict | list) or str(value) == "" else label(str(value))


def _parts(geometry: Any, where: str, convert: Convert | None) -> Iterator[Part]:
    """Yields the parts of one feature; a feature without geometry has none."""
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
        yield tuple(_ring(ring, where, convert) for ring in part)


def _ring(given: Any, where: str, convert: Convert | None) -> Array:
    """Returns the corners (k, 2) of a closed line in degrees, with the first once more at the end."""
    try:
        ring = np.array([[float(x), float(y)] for x, y, *_ in given])
    except (TypeError, ValueError):
        raise JobError(f"{where}: has a corner that is no pair of numbers; mend the file") from None
    ring = convert(ring) if convert is not None and len(ring) else ring
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
    """Returns the centre of gravity, by the triangles of the corners with one of them.

    The first line of a part is its border, the others are holes.
    """
    origin, total, moment = parts[0][0][0], 0.0, np.zeros(2)
    for part in parts:
        turns = np.array([TURN * np.round((origin[0] - part[0][:, 0].mean()) / TURN), 0.0])
        for k, ring in enumerate(part):
            a, b = ring[:-1] + turns - origin, ring[1:] + turns - origin
            cross = a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]
            area = cross.sum() / 2
            sign = np.sign(area) * (1 if k == 0 else -1)
            total += sign * area
            moment += sign * ((a + b) * cross[:, np.newaxis]).sum(axis=0) / 6
    corners = np.concatenate([ring[:-1] for part in parts for ring in part])
    return np.asarray(origin + moment / total if total else corners.mean(axis=0))
