"""Neighbours from borders: what surveys, agencies and programs do to them loses no pair, or says which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest

from fedkern.arrays import Array
from fedkern.data import touching
from fedkern.data.graph import make_map
from fedkern.data.touching import DEGREE, Part

Shapes = Mapping[str, Sequence[Part]]

pytest.importorskip("shapely")
SQUARE = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)], float)
SIZE = 0.1  # degrees
SIDES, CORNERS = 24, 42  # of a grid of 4 x 4


def moved(ring: Array, east: float, north: float) -> Array:
    return np.asarray(ring + np.array([east, north]))


def cells(change: Callable[[Array, int], Array] = lambda ring, k: ring, at: tuple[float, float] = (10.0, 50.0)) -> Shapes:
    """A grid of 4 x 4."""
    return {f"{k // 4}-{k % 4}": ((change(moved(SIZE * moved(SQUARE, k % 4, k // 4), *at), k),),) for k in range(16)}


def shaken(metres: float, seed: int = 1) -> Callable[[Array, int], Array]:
    """Every corner of every area is elsewhere by so much: borders that two agencies drew."""
    random = np.random.default_rng(seed)

    def change(ring: Array, k: int) -> Array:
        angle = random.uniform(0, 2 * np.pi, len(ring) - 1)
        moved = ring[:-1] + metres / DEGREE / 2 * np.column_stack([np.cos(angle), np.sin(angle)])
        return np.concatenate([moved, moved[:1]])

    return change


def denser(ring: Array, k: int) -> Array:
    """Corners inside of sides, others for every area."""
    t = np.linspace(0, 1, k + 2, endpoint=False)[:, np.newaxis]
    lines = [a + t * (b - a) for a, b in pairwise(ring)]
    return np.concatenate([*lines, ring[:1]])


def turned(ring: Array, k: int) -> Array:
    """As RFC 7946 wants it: no degree beyond 180."""
    return moved(ring, -360.0, 0.0) if ring[:-1, 0].mean() > 180 else ring


def bricks(rows: int = 4, columns: int = 5) -> Shapes:
    """Every second row is half a brick to the right: corners lie in the middle of sides."""
    rings = {(r, k): 0.1 * moved(SQUARE, k + r % 2 / 2, r) for r in range(rows) for k in range(columns)}
    return {f"{r}-{k}": ((ring,),) for (r, k), ring in rings.items()}


GRIDS: dict[str, Shapes] = {
    "one survey": cells(),
    "a centimetre apart": cells(shaken(0.01)),
    "ten centimetres apart": cells(shaken(0.1)),
    "six digits": cells(lambda ring, k: np.round(shaken(0.2, k)(ring, k), 6)),
    "four digits": cells(lambda ring, k: np.round(moved(ring, 0.00004 * (k % 2), 0.00003 * (k % 2)), 4), (10.00005, 50.00005)),
    "other corners": cells(denser),
    "other corners, rounded": cells(lambda ring, k: np.round(denser(ring, k), 6), (10.123456789, 50.987654321)),
    "other directions": cells(lambda ring, k: ring[:: 1 - 2 * (k % 2)]),
    "in the north": cells(shaken(0.1), (20.0, 69.95)),
    "on the equator": cells(shaken(0.1), (20.0, -0.2)),
    "across the meridian": cells(turned, (179.8, -17.0)),
    "across the meridian, apart": cells(lambda ring, k: turned(shaken(0.1, k)(ring, k), k), (179.8, -17.0)),
    "beyond the meridian": cells(at=(179.8, -17.0)),
}


@pytest.mark.parametrize("what", GRIDS)
def test_no_pair_of_a_grid_is_lost(what: str) -> None:
    shapes, names = GRIDS[what], list(GRIDS[what])
    places = [tuple(map(int, name.split("-"))) for name in names]
    apart = {(i, j): sorted(abs(a - b) for a, b in zip(places[i], places[j])) for i in range(16) for j in range(i + 1, 16)}
    sides, corners = touching.find_neighbours(shapes, "edge"), touching.find_neighbours(shapes)
    assert {tuple(pair) for pair in sides.pairs.tolist()} == {pair for pair, steps in apart.items() if steps == [0, 1]}
    assert {tuple(pair) for pair in corners.pairs.tolist()} == {pair for pair, steps in apart.items() if steps[1] == 1}
    assert (len(sides.pairs), len(corners.pairs)) == (SIDES, CORNERS)
    assert not any("nearly" in note or "without touching" in note for note in corners.notes)


def test_a_corner_in_the_middle_of_a_side_is_no_less() -> None:
    """The rule of equal corners lost these: of the bricks it finds the 16 pairs of a row alone."""
    found = touching.find_neighbours(bricks(), "edge")
    assert len(found.pairs) == 4 * 4 + 3 * 9
    assert np.array_equal(found.pairs, touching.find_neighbours(bricks()).pairs)


def test_what_nearly_touches_is_named_and_snap_joins_it() -> None:
    """Agencies five metres apart: the remedy of the note is followed."""
    shapes = cells(lambda ring, k: moved(ring, 5.0 / DEGREE * (k % 4 // 2), 0.0), (10.0, 0.0))
    found = touching.find_neighbours(shapes, "edge")
    assert len(found.pairs) == SIDES - 4
    (note,) = found.notes
    assert note.startswith("10 pairs come within 20 m of each other without touching, and are no neighbours: 0-1 and 0-2 (5 m), ")
    assert len(touching.find_neighbours(shapes, "edge", 10.0).pairs) == SIDES


def test_areas_that_overlap_are_neighbours_and_named() -> None:
    shapes = cells(lambda ring, k: np.where((k == 5) & (ring == ring.min(axis=0)) & [True, False], ring - 0.002, ring))
    found = touching.find_neighbours(shapes)
    assert len(found.pairs) == CORNERS
    (note,) = [note for note in found.notes if "overlap" in note]
    assert note.startswith("1 pairs of neighbours overlap: 1-0 and 1-1 (")


def test_a_border_that_crosses_itself_is_named() -> None:
    eight = np.array([(0, 0), (1, 1), (1, 0), (0, 1), (0, 0)], float)
    found = touching.find_neighbours({"eight": ((eight,),), "beside": ((moved(SQUARE, 1, 0),),)})
    assert found.pairs.tolist() == [[0, 1]]
    assert "borders of eight cross themselves" in found.notes[0]


def test_a_hole_has_a_neighbour_in_it() -> None:
    ring = (SQUARE * 3, SQUARE + 1)
    assert touching.find_neighbours({"around": (ring,), "within": ((SQUARE + 1,),)}, "edge").pairs.tolist() == [[0, 1]]


@pytest.mark.parametrize("sphere", [True, False])
def test_an_island_is_linked_to_the_area_that_is_nearest_on_the_sphere(sphere: bool) -> None:
    """At 58 degrees north two degrees of longitude are 118 km, and 1.2 of latitude 133."""
    centres = np.array([(-7.0, 58.0), (-5.0, 58.0), (-7.0, 56.8), (-4.0, 57.0)])
    graph = touching_pairs(4, [(1, 3), (2, 3)])
    made = make_map(graph, ["a", "a", "b", "b"], centres, sphere=sphere)
    (note,) = made.notes
    assert note.endswith("on the sphere: k0 to k1" if sphere else "in the plane of x and y: k0 to k2")


def touching_pairs(n: int, pairs: list[tuple[int, int]]) -> object:
    from fedkern.data.graph import from_pairs

    return from_pairs([f"k{i}" for i in range(n)], np.array(pairs))
