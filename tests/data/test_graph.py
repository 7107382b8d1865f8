"""Maps: what is read is the graph that was meant, islands follow the chosen rule, and every fault is named with a remedy."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.data import neighbours
from fedkern.data.graph import check_pairs, from_pairs, grid, make_map, read_map
from fedkern.errors import JobError
from support.refusal import refusal

AREAS = ("name,state,x,y", "a,N,0,0", "b,S,1,0", "c,N,0,1", "d,S,1,1", "e,N,3,1")
EDGES = ("from,to,more", "a,b,1", "b,d,1", "c,d,1", "a,c,1", "d,e,1")


def dense(graph):
    W = np.zeros((graph.n, graph.n))
    W[graph.rows, graph.indices] = 1
    return W


@pytest.fixture
def read(csv):
    """A map from lines of the two files."""

    def made(areas=AREAS, edges=EDGES, **options):
        wanted = {"area": "name", "client": "state", "x": "x", "y": "y"} | options
        return read_map(csv("areas", *areas), csv("edges", *edges), **wanted)

    return made


def test_a_map_is_sorted_by_client(read):
    made = read()
    assert made.clients == ("N", "S")
    assert made.graph.names == ("a", "c", "e", "b", "d")
    assert made.client.tolist() == [0, 0, 0, 1, 1]
    assert (made.sizes, made.areas_of(1)) == ((3, 2), ("b", "d"))
    W = dense(made.graph)
    assert np.array_equal(W, W.T)
    names = made.graph.names
    pairs = {frozenset((names[i], names[j])) for i, j in zip(*np.nonzero(W))}
    assert pairs == {frozenset(p) for p in ("ab", "bd", "cd", "ac", "de")}
    assert made.centroids[2].tolist() == [3, 1]
    assert made.notes == ()


def test_both_directions_give_the_same_graph(read):
    back = [",".join([*line.split(",")[1::-1], "1"]) for line in EDGES[1:]]
    twice = read(edges=(*EDGES, *back))
    for one, other in zip((twice.graph.indptr, twice.graph.indices), (read().graph.indptr, read().graph.indices)):
        assert np.array_equal(one, other)


def test_codes_stay_texts(csv):
    areas = csv("areas", "code,state", "007,1", "0070,2", "8,1")
    edges = csv("edges", "i,j", "007,0070", "8,0070")
    made = read_map(areas, edges, area="code", client="state")
    assert made.graph.names == ("007", "8", "0070")
    assert made.clients == ("1", "2")


@pytest.mark.parametrize(
    ("areas", "edges", "text"),
    [
        (AREAS, (*EDGES, "b,a,1"), r"asymmetric: .* stands in one direction only, but a - b in both; list every pair once"),
        (AREAS, (*EDGES, "c,c,1"), r"c: neighbour of itself; remove"),
        (AREAS, (*EDGES, "c,q,1", "zz,a,1"), r"q, zz: no such area in the table of areas"),
        ((*AREAS, "a,S,0,0"), EDGES, r"a \(N and S\): claimed by two clients"),
        ((*AREAS, "a,N,0,0"), EDGES, r"a: stands there twice"),
        ((*AREAS, "f,,0,0"), EDGES, r"f: an area without a name or a client"),
        ((*AREAS, ",S,0,0"), EDGES, r"row 6: an area without a name or a client"),
        ((*AREAS, "f,S,0"), EDGES, r"line 7: has 3 cells, the header 4"),
        ((*AREAS, "f,S,0,north"), (*EDGES, "f,a,1"), r"line 7: y is no finite number"),
        (AREAS, ("one", "a"), r"has one column; the first two must name"),
        (AREAS, ("from,to",), r"no two areas are neighbours"),
    ],
)
def test_faults_are_named(read, areas, edges, text):
    with pytest.raises(JobError, match=text):
        read(areas, edges, islands="independent")


def test_a_column_that_is_not_there(read):
    with pytest.raises(JobError, match=r"\[data\] client = 'region': .* no such column; it has name, state, x, y"):
        read(client="region")


ISLAND = (*AREAS, "f,S,3.5,1.2", "g,S,9,9")


def test_islands_are_linked_to_the_nearest_centroid(read):
    made = read(areas=ISLAND)
    W = dense(made.graph)
    at = {name: k for k, name in enumerate(made.graph.names)}
    assert np.flatnonzero(W[at["f"]]).tolist() == sorted([at["e"], at["g"]])  # g's nearest is f
    assert W[at["g"]].sum() == 1
    assert made.notes == (
        "2 without neighbours, linked to the area whose centre is nearest in the plane of x and y: f to e, g to f",
    )
    assert made.graph.islands.size == 0


def test_islands_are_dropped(read):
    made = read(areas=ISLAND, islands="drop")
    assert "f" not in made.graph.names
    assert made.graph.n == 5
    assert made.centroids.shape == (5, 2)
    assert "dropped: f, g" in made.notes[0]


def test_islands_are_independent(read):
    made = read(areas=ISLAND, islands="independent")
    assert [made.graph.names[k] for k in made.graph.islands] == ["f", "g"]
    assert "3 connected components, of 5, 1 areas" in made.notes[1]


def test_islands_without_centroids(read):
    with refusal(JobError, "drop", "independent"):
        read(areas=ISLAND, x=None, y=None)


def test_a_client_of_islands_only(read):
    with pytest.raises(JobError, match=r"T: all areas of this client are dropped"):
        read(areas=(*AREAS, "f,T,3,1"), islands="drop")


def test_several_components_are_told(read):
    made = read(areas=(*AREAS, "f,S,5,5", "g,N,6,6"), edges=(*EDGES, "f,g,1"))
    assert made.notes == ("2 connected components, of 5, 2 areas",)
    names = np.array(made.graph.names)
    labels = made.graph.components()
    assert labels[0] == 0
    assert set(names[labels != labels[0]]) == {"f", "g"}


def test_a_grid():
    W = dense(grid(3, 4))
    assert W.sum() == 2 * (3 * 3 + 2 * 4)
    assert grid(3, 4).names[5] == "2-2"
    assert np.flatnonzero(W[5]).tolist() == [1, 4, 6, 9]


def test_subsets_keep_their_pairs():
    graph = grid(3, 4)
    keep = np.array([7, 3, 2, 0])
    assert np.array_equal(dense(graph.subset(keep)), dense(graph)[np.ix_(keep, keep)])


def listed_graph(path, names):
    return check_pairs(names, neighbours.read(path, names).pairs, str(path))


def test_a_file_of_the_same_pair_twice(csv):
    graph = listed_graph(csv("edges", "a,b", "p,q", "p,q"), ("p", "q"))
    assert graph.indices.tolist() == [1, 0]


def test_checks_hold_for_pairs_in_memory():
    pairs = np.array([[0, 1], [1, 0], [1, 2]])
    with pytest.raises(JobError, match="map: asymmetric: y - z stands in one direction only, but x - y in both"):
        check_pairs(("x", "y", "z"), pairs, "map")
    assert make_map(from_pairs(("x", "y", "z"), pairs), ["1", "1", "2"]).sizes == (2, 1)


NAMES = ("a", "b", "c", "d", "e")
WANTED = {frozenset(pair) for pair in ("ab", "bd", "cd", "ac", "de")}
GAL = "0 5 areas name\na 2\nb c\nb 2\na d\nc 2\nd a\nd 3\nb c e\ne 1\nd\n"


def pairs(graph):
    return {frozenset((graph.names[i], graph.names[j])) for i, j in zip(graph.rows.tolist(), graph.indices.tolist())}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("edges.csv", "a,b\nb,d\nc,d\na,c\nd,e\n"),  # without a header, which is a pair
        ("edges.csv", "from,to\na,b\nb,d\nc,d\na,c\nd,e\n"),
        ("map.gal", GAL),
        ("map.GAL", GAL.replace("0 5 areas name", "5")),
        ("map.graph", "5\n1 2 2 3\n2 2 1 4\n3 2 1 4\n4 3 2 3 5\n5 1 4\n"),
        ("map.inla", "5 0 2 1 2 1 2 0 3 2 2 0 3 3 3 1 2 4 4 1 3"),  # from 0, and no line breaks
    ],
)
def test_lists_of_any_form_give_the_graph(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    assert pairs(listed_graph(tmp_path / file, NAMES)) == WANTED


def test_an_area_without_neighbours_has_an_empty_line_or_none(tmp_path):
    for text in ("3\na 1\nb\nb 1\na\nc 0\n\n", "3\nc 0\na 1\nb\nb 1\na\n"):
        (tmp_path / "map.gal").write_text(text)
        assert pairs(listed_graph(tmp_path / "map.gal", ("a", "b", "c"))) == {frozenset("ab")}


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("map.gal", "2\na 2\nb\n", r"line 2: a has 2 neighbours, and 1 are named"),
        ("map.gal", "2\na one\nb\n", r"line 2: 'one' is no count"),
        ("map.gal", "2\na b c\n", r"line 2: has 3 words"),
        ("map.gal", "2\na 1\nz\n", r"z: no such area in the table of areas; add"),
        ("map.graph", "4\n1 1 2\n2 1 1\n", r"is of 4 areas, the table of areas has 5; its numbers are their places there"),
        ("map.graph", "5\n1 1 9\n", r"9 is no area's number; wanted 1 to 5"),
        ("map.graph", "5\n1 2 2\n", r"line 2: ends before all neighbours of 1 are named"),
        ("map.graph", "", r"is of no areas"),
        ("edges.csv", "from,to\na,b\nb,a\nc,d\n", r"asymmetric"),
    ],
)
def test_faults_of_lists_are_named(tmp_path, file, text, words):
    (tmp_path / file).write_text(text)
    with pytest.raises(JobError, match=words):
        listed_graph(tmp_path / file, NAMES)


def test_lost_zeros_are_called_so(csv):
    edges = csv("edges", "i,j", "7,70", "8,70")
    with pytest.raises(JobError, match=r"7, 70, 8: no such area .* \(3 of them are there with other leading zeros, as 007 for 7"):
        listed_graph(edges, ("007", "070", "008"))
