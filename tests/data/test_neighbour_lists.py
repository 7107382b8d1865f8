"""Lists of neighbours as other programs write them: read as they were meant, or refused with remedies that work.

`lists` holds files that were made of the counties of North Carolina (Cressie and Chan's neighbours, 1989) by spdep 1.2-7 and
libpysal 4.14.1: `nc_spdep.gal` by write.nb.gal(nb, file), `nc_spdep_names.gal` by the commands that the refusal of it names,
`nc_spdep.graph` by nb2INLA, `nc_spdep_sn.csv` by listw2sn (row-standardised), of the first 12 counties nb2mat (`matrix`),
as.data.frame of it (`melted`) and the commands that the refusal of it names (`pairs`); `nc_libpysal.gal` by W.to_file,
`nc_libpysal_adjlist.csv` by W.to_adjlist of the last 50 counties. In `nc_areas.csv` counties stand in the order of all of these;
`number` is a name, which counts them in alphabetical order.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.data.graph import Graph, Map, grid, read_map
from fedkern.data.neighbours import read
from fedkern.errors import JobError
from support.published import ROOT, needs
from support.refusal import refusal

LISTS = Path(__file__).parent / "lists"
with (LISTS / "nc_areas.csv").open() as file:
    ROWS = list(csv.DictReader(file))
FIPS, NUMBERS = [row["fips"] for row in ROWS], [row["number"] for row in ROWS]
N = len(ROWS)


def named(pairs: Any, names: list[str]) -> set[frozenset[str]]:
    return {frozenset((names[i], names[j])) for i, j in pairs.tolist()}


WANTED = named(read(LISTS / "nc_spdep.graph", FIPS).pairs, FIPS)


def pairs_of(graph: Graph) -> set[frozenset[str]]:
    return named(np.column_stack([graph.rows, graph.indices]), list(graph.names))


def mapped(file: Path | str, area: str = "fips", areas: Path = LISTS / "nc_areas.csv", **more: Any) -> Map:
    return read_map(areas, file, **{"area": area, "client": "group", "x": "lon", "y": "lat", "islands": "independent"} | more)


def shuffled(tmp_path: Path) -> Path:
    """The table of areas in another order, as one that is sorted by client."""
    path = tmp_path / "areas.csv"
    order = np.random.default_rng(1).permutation(N)
    lines = [",".join(ROWS[k].values()) for k in order]
    path.write_text("\n".join([",".join(ROWS[0]), *lines]) + "\n")
    return path


def test_positions_are_not_taken_for_names_that_are_numbers() -> None:
    """The file of the issue: both readings are of areas that are there, and differ in most pairs."""
    with refusal(JobError, "1", "100", "5") as caught:
        mapped(LISTS / "nc_spdep.gal", "number")
    text = str(caught.value)
    assert '[data] adjacency_ids = "positions" or "names"' in text
    assert 'attr(nb, "region.id") <- as.character(areas$number); write.nb.gal(nb, "nc_spdep.gal", oldstyle = FALSE, ' in text
    by_number = dict(zip(FIPS, NUMBERS))
    wanted = {frozenset(by_number[name] for name in pair) for pair in WANTED}
    made = mapped(LISTS / "nc_spdep.gal", "number", ids="positions")  # the one remedy
    assert pairs_of(made.graph) == wanted
    assert made.doubts == ()
    assert made.notes[0].startswith("neighbours are given by position: 1 is '5', the first of the 100 areas in their table, and ")
    assert pairs_of(mapped(LISTS / "nc_spdep_names.gal", "number").graph) == wanted  # the other
    wrong = mapped(LISTS / "nc_spdep.gal", "number", ids="names")
    assert len(pairs_of(wrong.graph) & wanted) < len(wanted) / 10
    assert wrong.doubts
    assert wrong.doubts[0].startswith("neighbours are as far apart as any two areas: ")


@pytest.mark.parametrize("first", [1, 0])
def test_pairs_of_positions_are_not_taken_for_names_that_are_numbers(first: int, tmp_path: Path) -> None:
    """As write.csv(listw2sn(w)) writes them: 49 areas of one ring, called 1 to 49 in another order than that of their table."""
    order = np.random.default_rng(4).permutation(49) + first
    (tmp_path / "areas.csv").write_text("county,group\n" + "".join(f"{name},g\n" for name in order))
    ring = [(k, near) for k in range(49) for near in sorted(((k - 1) % 49, (k + 1) % 49))]
    wanted = {frozenset((str(order[a]), str(order[b]))) for a, b in ring}
    columns = {"area": "county", "areas": tmp_path / "areas.csv", "x": None, "y": None}
    by_place = tmp_path / "sn.csv"
    by_place.write_text("from,to,weights\n" + "".join(f"{a + first},{b + first},1\n" for a, b in ring))
    with pytest.raises(JobError, match=r"ids are . to 4. in this order.*say which they are: \[data\] adjacency_ids") as caught:
        mapped(by_place, **columns)
    ids = "positions" if first else "positions from 0"
    assert f'adjacency_ids = "{ids}" or "names"' in str(caught.value)
    assert "from = areas$county[s$from], to = areas$county[s$to]" in str(caught.value)
    assert pairs_of(mapped(by_place, **columns, ids=ids).graph) == wanted  # the one remedy
    by_name = tmp_path / "named.csv"  # the other, and pairs that are listed once
    for pairs in (ring, [(a, b) for a, b in ring if a < b]):
        by_name.write_text("from,to\n" + "".join(f"{order[a]},{order[b]}\n" for a, b in pairs))
        assert pairs_of(mapped(by_name, **columns).graph) == wanted
    by_place.write_text("from,to\n" + "".join(f"{a + first},{b + first}\n" for a, b in ring if a < b))
    with pytest.raises(JobError, match="in this order"):
        mapped(by_place, **columns)
    assert len(pairs_of(mapped(by_place, **columns, ids="names").graph) & wanted) < len(wanted) / 4


def test_a_list_in_the_order_of_the_table_needs_no_word() -> None:
    in_order = [str(k + 1) for k in range(N)]
    assert named(read(LISTS / "nc_spdep.gal", in_order).pairs, FIPS) == WANTED


@pytest.mark.parametrize(
    ("file", "ids"), [("nc_spdep.gal", "positions"), ("nc_spdep_sn.csv", "positions"), ("nc_libpysal.gal", "positions from 0")]
)
def test_row_numbers_in_the_place_of_names_are_named_so(file: str, ids: Any) -> None:
    with pytest.raises(JobError, match=rf"no such area .*; if these are row numbers, .*: \[data\] adjacency_ids = '{ids}'$"):
        mapped(LISTS / file)
    assert pairs_of(mapped(LISTS / file, ids=ids).graph) == WANTED
    other = "positions" if "0" in ids else "positions from 0"
    with pytest.raises(JobError, match=r"is no area's number; wanted"):
        mapped(LISTS / file, ids=other)


def test_a_list_without_its_first_and_last_area_needs_the_word(csv: Any) -> None:
    """Positions from 0 without a 0: nothing is guessed."""
    path = csv("edges", "i,j", "1,2", "2,3")
    names = ["a", "b", "c", "d", "e"]
    assert named(read(path, names, "positions").pairs, names) == {frozenset("ab"), frozenset("bc")}
    assert named(read(path, names, "positions from 0").pairs, names) == {frozenset("bc"), frozenset("cd")}


def test_a_pair_without_a_header_is_one_by_position_too(csv: Any) -> None:
    assert read(csv("edges", "1,2", "2,3"), ["a", "b", "c"], "positions").pairs.tolist() == [[0, 1], [1, 2]]


def test_graphs_have_positions(tmp_path: Path) -> None:
    made = mapped(LISTS / "nc_spdep.graph")
    assert made.notes[0].startswith("neighbours are given by position: 1 is '37009', ")
    assert [FIPS[k - 1] for k in made.positions] == list(made.graph.names)
    assert made.doubts == ()
    assert mapped(LISTS / "nc_spdep.graph", areas=shuffled(tmp_path)).doubts
    with pytest.raises(JobError, match=r"has positions; remove \[data\] adjacency_ids"):
        mapped(LISTS / "nc_spdep.graph", ids="names")


def test_a_zero_decides_though_its_area_is_alone(tmp_path: Path) -> None:
    (tmp_path / "map.graph").write_text("4\n0 0\n1 1 2\n2 2 1 3\n3 1 2\n")
    assert read(tmp_path / "map.graph", ["a", "b", "c", "d"]).pairs.tolist() == [[1, 2], [2, 1], [2, 3], [3, 2]]


def test_pairs_of_weight_zero_are_no_neighbours() -> None:
    k = FIPS[:12]
    melted = read(LISTS / "nc_spdep_melted.csv", k)
    assert named(melted.pairs, k) == named(read(LISTS / "nc_spdep_pairs.csv", k).pairs, k)
    zero = 144 - len(melted.pairs)
    assert melted.notes == (
        f"{zero} pairs whose weight ('Freq') is 0 are no neighbours, and are left out; remove the column if it is no weight",
    )
    late = FIPS[50:]
    alone = read(LISTS / "nc_libpysal_adjlist.csv", late)  # an island is its own neighbour there, with weight 0
    assert len(alone.notes) == 1
    assert alone.notes[0].startswith("2 pairs whose weight ('weight') is 0")
    assert named(alone.pairs, late) == {pair for pair in WANTED if pair <= set(late)}


def test_other_weights_are_said_to_count_as_one(csv: Any) -> None:
    assert read(LISTS / "nc_spdep_sn.csv", FIPS, "positions").notes[0] == (
        "weights ('weights', 0.125 to 1) count as 1: areas are neighbours, or they are not"
    )
    names = ["a", "b", "c"]
    border = read(csv("edges", "one,other,km", "a,b,12.5", "b,c,0"), names)
    assert border.pairs.tolist() == [[0, 1]]
    assert [note.partition(" (")[0] for note in border.notes] == ["1 pairs whose weight", "weights"]
    assert read(csv("more", "a,b,0", "b,c,1"), names).pairs.tolist() == [[1, 2]]  # without a header
    assert read(csv("said", "one,other,touch", "a,b,TRUE", "b,c,FALSE"), names).pairs.tolist() == [[0, 1]]
    assert read(csv("text", "one,other,by", "a,b,ferry", "b,c,0"), names).notes == ()
    many = read(csv("many", "one,other,rook,cross", "a,b,0,1", "b,c,1,0"), names)  # none of several columns is a weight
    assert (many.pairs.tolist(), many.notes) == ([[0, 1], [1, 2]], ())
    with pytest.raises(JobError, match=r"line 3: km is no finite number; fill it in"):
        read(csv("lacks", "one,other,km", "a,b,1", "b,c,"), names)
    with refusal(JobError, "0", "km"):
        read(csv("none", "one,other,km", "a,b,0"), names)


def test_a_matrix_is_called_one(csv: Any) -> None:
    k = FIPS[:12]
    text = (LISTS / "nc_spdep_matrix.csv").read_text()
    without = ["".join(line.partition(",")[2]) for line in text.splitlines()]
    for path in (LISTS / "nc_spdep_matrix.csv", csv("names", *without), csv("bare", *without[1:])):
        with pytest.raises(JobError, match=r"is a matrix of 12 areas by 12, not a list of pairs; write its pairs, in R: w "):
            read(path, k)
    assert len(read(LISTS / "nc_spdep_pairs.csv", k).pairs)  # what the commands in it write


def test_all_that_touch_all_are_no_map(csv: Any) -> None:
    areas = csv("areas", "name,client", *(f"{name},{k % 2}" for k, name in enumerate("abcde")))
    every = [f"{a},{b}" for k, a in enumerate("abcde") for b in "abcde"[:k]]
    made = read_map(areas, csv("edges", "one,other", *every), area="name", client="client")
    assert made.doubts[0].startswith("all 5 areas are neighbours of all others: that is a list of all pairs")
    assert read_map(areas, csv("edges", "one,other", *every[1:]), area="name", client="client").doubts == ()


def rows_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


REAL: dict[str, tuple[str, str, str, tuple[str, str], list[str]]] = {
    "nc-sids": ("nc_sids.csv", "i", "L_id", ("lon", "lat"), ["edges_ncCC89.csv", "edges_ncCR85.csv"]),
    "scotland-lip-cancer": (
        "lip.csv", "area", "", ("longitude_west", "latitude"), ["edges_geobugs117.csv", "edges_clayton_kaldor132.csv"]
    ),
    "au-sa2-2011": ("areas.csv.gz", "i", "state_code_2011", ("cent_long", "cent_lat"), ["edges.csv.gz"]),
    "us-county-homicide": ("counties.csv.gz", "i", "STATE_NAME", ("", ""), ["edges.csv.gz"]),
    "us-county-adjacency": ("counties.csv", "i", "state", ("", ""), ["edges.csv.gz"]),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in REAL])
def test_no_real_map_is_in_doubt(tmp_path: Path, name: str) -> None:
    """Nor any client's part of one."""
    areas, area, group, (x, y), lists = REAL[name]
    rows, folder = rows_of(ROOT / name / areas), ROOT / name
    for file in lists:
        pairs = [(row["i"], row["j"]) for row in rows_of(folder / file)]
        for part in [None, *sorted({row[group] for row in rows} if group else ())]:
            own = {row[area] for row in rows if part is None or row[group] == part}
            inside = [pair for pair in pairs if own.issuperset(pair)]
            if not inside:
                continue
            lines = [f"{row[area]},c,{row.get(x, 0)},{row.get(y, 0)}" for row in rows if row[area] in own]
            (tmp_path / "areas.csv").write_text("\n".join(["area,client,lon,lat", *lines]))
            (tmp_path / "edges.csv").write_text("\n".join(["one,other", *map(",".join, inside)]))
            centre = {"x": "lon", "y": "lat"} if x else {}
            names = {"area": "area", "client": "client", "islands": "independent"}
            made = read_map(tmp_path / "areas.csv", tmp_path / "edges.csv", **names, **centre)
            assert made.doubts == (), part
            assert not [note for note in made.notes if "weight" in note or "position" in note]


@pytest.mark.parametrize("shape", [(2, 10), (1, 20), (6, 7), (20, 30)])
def test_no_grid_is_in_doubt(csv: Any, shape: tuple[int, int]) -> None:
    graph = grid(*shape)
    pairs = [f"{graph.names[i]},{graph.names[j]}" for i, j in zip(graph.rows, graph.indices) if i < j]
    places = [name.split("-") for name in graph.names]
    areas = csv("areas", "area,client,x,y", *(f"{r}-{c},k,{r},{c}" for r, c in places))
    made = read_map(areas, csv("edges", "one,other", *pairs), area="area", client="client", x="x", y="y")
    assert made.doubts == ()
    order = np.random.default_rng(0).permutation(graph.n)
    moved = csv("areas", "area,client,x,y", *(f"{r}-{c},k,{places[k][0]},{places[k][1]}" for (r, c), k in zip(places, order)))
    assert read_map(moved, csv("edges", "one,other", *pairs), area="area", client="client", x="x", y="y").doubts
