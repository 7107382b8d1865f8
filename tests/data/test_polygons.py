"""Borders from GeoJSON: who touches whom, where the centres are, and what is no map of degrees."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.cli.report import write as write_report
from fedkern.data import polygons
from fedkern.data.graph import grid, read_map
from fedkern.errors import JobError, OwnFault
from fedkern.methods.sigma import maps
from methods.sigma.test_areas import areas, job
from support import sigma_artifacts as artifacts
from support.refusal import refusal

SQUARE = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)], float)


def feature(name: Any, *rings: Any, kind: str = "Polygon", **more: Any) -> dict[str, Any]:
    lines = [np.asarray(ring, float).tolist() for ring in rings]
    geometry = {"type": kind, "coordinates": lines if kind == "Polygon" else [[line] for line in lines]}
    return {"type": "Feature", "properties": {"area": name}, "geometry": geometry} | more


def write(path: Path, *features: Any, **more: Any) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features} | more))
    return path


def squares(rows: int, columns: int) -> list[dict[str, Any]]:
    """Cells of a grid, each border in a direction and from a corner of its own."""
    cells = []
    for k in range(rows * columns):
        corners = np.roll(SQUARE[:-1] + np.array([k % columns, k // columns]), k % 4, axis=0)[:: 1 - 2 * (k % 2)]
        cells.append(feature(f"{k // columns + 1}-{k % columns + 1}", 0.1 * np.concatenate([corners, corners[:1]])))
    return cells


def test_cells_of_a_grid_have_their_centres(tmp_path: Path) -> None:
    found = polygons.read(write(tmp_path / "map.json", *squares(3, 4)), "area")
    assert tuple(found.parts) == grid(3, 4).names
    np.testing.assert_allclose(found.centroids(), [(0.1 * (k % 4 + 0.5), 0.1 * (k // 4 + 0.5)) for k in range(12)], atol=1e-12)


def test_parts_beyond_the_meridian_have_one_centre(tmp_path: Path) -> None:
    """As RFC 7946 wants an area cut there."""
    east, west = SQUARE[:, :] * (1, 2) + (179, 0), SQUARE * (3, 2) + (-180, 0)
    found = polygons.read(write(tmp_path / "map.json", feature("fiji", east, west, kind="MultiPolygon")), "area")
    np.testing.assert_allclose(found.centroids(), [(181.0, 1.0)])


def test_a_geopackage_of_metres_is_the_same_map(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    path = write(tmp_path / "map.geojson", *squares(3, 4))
    frame = geopandas.read_file(path)
    frame.to_crs(3857).to_file(tmp_path / "map.gpkg")
    made, want = (polygons.read(tmp_path / name, "area") for name in ("map.gpkg", "map.geojson"))
    np.testing.assert_allclose(made.centroids(), want.centroids(), atol=1e-9)
    frame[["area", "geometry"]].to_file(tmp_path / "none.shp")
    (tmp_path / "none.prj").unlink()
    with refusal(JobError, "none.shp"):
        polygons.read(tmp_path / "none.shp", "area")
    (tmp_path / "broken.gpkg").write_text("nothing")
    with refusal(JobError, "broken.gpkg"):
        polygons.read(tmp_path / "broken.gpkg", "area")


def test_holes_parts_and_names(tmp_path: Path) -> None:
    lake = 0.5 * SQUARE + 0.25
    ring = feature(7, SQUARE * 2, (lake + 0.25)[::-1])  # a square of 2 with a hole about (.75, .75)
    island = feature("two", SQUARE[:-1] + 5, SQUARE + 7, kind="MultiPolygon")  # the first is not closed
    again = feature("two", SQUARE + 9)
    by_id = feature(None, SQUARE + 20, id="by id")
    nowhere = feature("nowhere") | {"geometry": None}
    found = polygons.read(write(tmp_path / "map.json", ring, island, again, by_id, nowhere), "area")
    assert list(found.parts) == ["7", "two", "by id"]
    rng = np.random.default_rng(1)  # the hole's centre of gravity, by points thrown at the square
    points = rng.uniform(0, 2, (400_000, 2))
    inside = points[~((points > 0.5) & (points < 1.0)).all(axis=1)]
    np.testing.assert_allclose(found.centroids()[0], inside.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(found.centroids()[1], (7.5, 7.5))
    assert len(found.parts["two"]) == 3


SYSTEMS = ["urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:OGC::CRS84", "EPSG:4326", "urn:ogc:def:crs:EPSG::4326"]


@pytest.mark.parametrize("name", [*SYSTEMS, "http://www.opengis.net/def/crs/EPSG/0/4326"])
def test_degrees_by_any_of_their_names(tmp_path: Path, name: str) -> None:
    crs = {"type": "name", "properties": {"name": name}}
    assert polygons.read(write(tmp_path / "map.json", feature("a", SQUARE), crs=crs), "area").parts.keys() == {"a"}


@pytest.mark.parametrize("code", [4269, 27700])
def test_systems_with_a_number_are_converted(tmp_path: Path, code: int) -> None:
    """As a GeoPackage of them is; features keep their names."""
    geopandas = pytest.importorskip("geopandas")
    there = SQUARE + np.array((-2, 53) if code == 27700 else (-81, 36))
    degrees = geopandas.read_file(write(tmp_path / "map.geojson", feature("a", there)))
    frame = degrees.to_crs(code)
    rings = [np.asarray(frame.geometry[0].exterior.coords)[:, :2]]
    frame.to_file(tmp_path / "map.gpkg")
    crs = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{code}"}}
    made = polygons.read(write(tmp_path / "named.geojson", feature(None, *rings, id="a"), crs=crs), "area")
    want = polygons.read(tmp_path / "map.gpkg", "area")
    np.testing.assert_allclose(made.parts["a"][0][0], want.parts["a"][0][0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(made.parts["a"][0][0], there, atol=1e-5)


def test_ids_that_count_are_not_taken_for_names(tmp_path: Path) -> None:
    """As geopandas writes them, from 0, where no column is the name."""
    cells = [feature(None, 0.1 * (SQUARE + np.array([k, 0])), id=str(k)) for k in range(4)]
    drawn = polygons.read(write(tmp_path / "map.json", *cells), "area")
    assert list(drawn.select(["0", "1", "2", "3"], "map").parts) == ["0", "1", "2", "3"]
    with pytest.raises(JobError, match=r"map: features are known by their ids, which count them, but areas have such names"):
        drawn.select(["2", "0", "3", "1"], "map")
    named = [feature(k, 0.1 * (SQUARE + np.array([k, 0])), id=str(k)) for k in range(4)]
    by_name = polygons.read(write(tmp_path / "named.json", *named), "area").select(["2", "0", "3", "1"], "map")
    assert list(by_name.parts) == ["2", "0", "3", "1"]


CROOKED = [(0, 0), (1, 0), (float("nan"), 1), (0, 0)]
BAD = {
    "named": ({"crs": {"type": "name", "properties": {"name": "ESRI:54009"}}}, feature("a", SQUARE), "ESRI:54009"),
    "a number like it": ({"crs": {"type": "name", "properties": {"name": "EPSG:14326"}}}, feature("a", SQUARE), "wanted degrees"),
    "linked": ({"crs": {"type": "link", "properties": {"href": "x"}}}, feature("a", SQUARE), "its coordinate system is"),
    "metres": ({}, feature("a", SQUARE * 4e5), "(400000, 0), which are no degrees"),
    "a point": ({}, feature("a", SQUARE) | {"geometry": {"type": "Point", "coordinates": [0, 0]}}, "feature 1 (a): is a Point"),
    "no name": ({}, feature(None, SQUARE), "neither a property 'area' nor an id"),
    "two corners": ({}, feature("a", SQUARE[:2]), "has a border of 2 corners"),
    "no number": ({}, feature("a", CROOKED), "has a corner that is not finite"),
    "a list": ({"features": {}}, feature("a", SQUARE), "is no GeoJSON FeatureCollection"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_map_of_degrees_is_refused(tmp_path: Path, what: str) -> None:
    more, one, text = BAD[what]
    with pytest.raises(JobError) as caught:
        polygons.read(write(tmp_path / "map.json", one, **more), "area")
    assert text in str(caught.value)


def table(path: Path, names: list[str]) -> Path:
    path.write_text("\n".join(["area,client", *(f"{name},{'east' if k % 4 < 2 else 'west'}" for k, name in enumerate(names))]))
    return path


def test_a_map_is_read_from_polygons_alone(tmp_path: Path) -> None:
    names, file = list(grid(3, 4).names), write(tmp_path / "map.json", *squares(3, 4), feature("sea", SQUARE + 50))
    made = read_map(table(tmp_path / "areas.csv", names), area="area", client="client", borders=file, contiguity="edge")
    assert len(made.graph.indices) == len(grid(3, 4).indices)
    assert made.centroids is not None
    assert made.notes == (
        "17 pairs of neighbours, which have a side in common (to 111 m)",
        "1 polygons of no area in the table are left out: sea",
    )
    # an area apart is an island, linked to the nearest centre, and it is said
    write(file, *squares(3, 4), feature("sea", SQUARE * 0.01 + 3))
    made = read_map(table(tmp_path / "areas.csv", [*names, "sea"]), area="area", client="client", borders=file)
    assert "1 without neighbours, linked to the area whose centre is nearest on the sphere: sea to 3-4" in made.notes
    # polygons that do not match: the first five by name
    write(file, *squares(3, 4)[:4])
    with pytest.raises(JobError) as caught:
        read_map(table(tmp_path / "areas.csv", names), area="area", client="client", borders=file)
    assert "no polygon for 8 of 12 areas: '2-1', '2-2', '2-3', '2-4', '3-1' and 3 more; give each feature" in str(caught.value)


def map_of(path: Path, drop: int = 0) -> Path:
    names = [f"{name}-{i}" for name, size in zip(artifacts.NAMES, artifacts.SIZES) for i in range(size)]
    cells = [feature(name, 0.1 * SQUARE + (0.1 * (k % 4), 0.1 * (k // 4))) for k, name in enumerate(names)]
    for cell in cells:
        cell["properties"] = {"district": cell["properties"]["area"]}
    return write(path, *cells[drop:])


def test_a_client_gets_its_map(tmp_path: Path) -> None:
    path = job(tmp_path, data={"polygons": "map.geojson"}, output={"chains": 2})
    map_of(tmp_path / "map.geojson")
    fedkern.run(path, out=tmp_path / "out")
    for name, size in zip(artifacts.NAMES, artifacts.SIZES):
        home = tmp_path / "out" / f"client-{name}"
        content = json.loads((home / "areas.geojson").read_text())
        assert [one["properties"]["area"] for one in content["features"]] == [f"{name}-{i}" for i in range(size)], "its own alone"
        for one, row in zip(content["features"], areas(tmp_path / "out", name)):
            assert {c: "" if v is None else v for c, v in one["properties"].items()} == {
                c: v if c == "area" or v == "" else v == "True" if c == "converged" else float(v) for c, v in row.items()
            }
        assert (home / "areas.geojson").stat().st_mode & 0o077 == 0
    assert "Areas of the clients whose folders are here" in write_report(tmp_path / "out").read_text()
    page = write_report(tmp_path / "out" / "client-north").read_text()
    for name in ("rate", "high-rate", "width", "spatial"):
        for kind, head in (("png", b"\x89PNG"), ("svg", b"<?xml")):
            picture = tmp_path / "out" / "client-north" / "maps" / f"{name}.{kind}"
            assert picture.read_bytes().startswith(head)
            assert picture.stat().st_mode & 0o077 == 0
    drawn = (tmp_path / "out" / "client-north" / "maps" / "rate.svg").read_text()
    assert all(words in drawn for words in ("Posterior mean of the rate", "7 areas; Poisson model", "not converged: not for use"))
    assert "not converged" in page
    assert "Areas, the highest first" in page
    assert "north-3" in page
    assert "west-1" not in page
    with (tmp_path / "out" / "client-north" / "areas.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + artifacts.SIZES[1]


def test_a_client_gets_a_geopackage_of_its_areas_with_every_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("geopandas")
    path = job(tmp_path, data={"polygons": "map.geojson"}, output={"chains": 2, "polygons": "gpkg"})
    head, first, *rows = (tmp_path / "rows" / "north.csv").read_text().splitlines()
    area, _, expected, *more = first.split(",")
    (tmp_path / "rows" / "north.csv").write_text("\n".join([head, ",".join([area, "<5", expected, *more]), *rows]) + "\n")
    path.write_text(path.read_text() + '[data.censored]\n"<5" = [0, 4]\n')
    map_of(tmp_path / "map.geojson")
    fedkern.run(path, out=tmp_path / "out")
    home = tmp_path / "out" / "client-north"
    found, table = library.read_file(home / "areas.gpkg", layer="areas"), areas(tmp_path / "out", "north")
    assert found.crs.to_epsg() == 4326
    assert [*found.columns] == [*table[0], "geometry"]
    assert found["area"].tolist() == [row["area"] for row in table]
    for name in ("rate_mean", "rate_q975", "p_rate_above_1", "crude"):
        want = [float(row[name] or "nan") for row in table]
        np.testing.assert_array_equal(found[name].to_numpy(float), want)
    assert found["observed"][0] == table[0]["observed"] == "0 to 4"
    assert json.loads((home / "areas.geojson").read_text())["features"][0]["properties"]["observed"] == "0 to 4"
    assert [shape.area for shape in found.geometry] == pytest.approx([0.01] * len(table))
    assert (home / "areas.gpkg").stat().st_mode & 0o077 == 0
    monkeypatch.setitem(sys.modules, "geopandas", None)
    with refusal(JobError, "areas.gpkg", "output.polygons", "fedkern[spatial]"):
        fedkern.run(path)
    with refusal(JobError, "output.polygons", "gpkg", "GeoPackage"):
        fedkern.run(job(tmp_path / "bare", output={"polygons": "gpkg"}))


@pytest.mark.parametrize("size", [(0.1, 3.0), (3.0, 0.1)], ids=["narrow", "wide"])
def test_nothing_on_a_map_is_cut_off_or_written_over(size: tuple[float, float]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    shapes = [((np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]) * size + (k * size[0], 0),),) for k in range(2)]
    title, words = "What the map adds to intercept and covariates", "rate ratio"
    drawn = maps._figure(maps.Map("spatial", title, words, np.array([0.5, 2.0]), "about 1"), [{}, {}], shapes, "a model; a day")
    drawn.text(0.01, maps.BELOW_TITLE, "not converged: not for use", fontsize=12, fontweight="bold", va="top")
    FigureCanvasAgg(drawn).draw()
    boxes = {text.get_text(): text.get_window_extent() for text in drawn.texts}
    boxes["map"] = drawn.axes[0].get_window_extent()
    assert title in boxes
    for name, box in boxes.items():
        assert drawn.bbox.x0 <= box.x0 < box.x1 <= drawn.bbox.x1, name
        assert not any(box.overlaps(other) for key, other in boxes.items() if key != name), name


def test_polygons_that_do_not_match_end_job_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedkern.cli.__main__ import main

    path = job(tmp_path, data={"polygons": "map.geojson"})
    map_of(tmp_path / "map.geojson", drop=11)
    with refusal(OwnFault, "east", "map.geojson", "5") as caught:
        fedkern.run(path, out=tmp_path / "out")
    assert "east-1" not in str(caught.value)
    own = (tmp_path / "out" / "client-east" / "holder.txt").read_text()
    assert "'east-0', 'east-1', 'east-2', 'east-3', 'east-4'" in own
    assert main(["check", str(path)]) == 2
    assert "no polygon for 5 of its 5 areas in the prior" in capsys.readouterr().err
    assert main(["check", str(path), "--local", str(tmp_path / "rows" / "north.csv")]) == 2
    assert (
        "no polygon for 6 of 7 areas: 'north-0', 'north-1', 'north-2', 'north-3', 'north-4' and 1 more" in capsys.readouterr().err
    )
