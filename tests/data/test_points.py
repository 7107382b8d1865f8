"""Points of a process: who holds them, and what is refused."""

import numpy as np
import pytest

from fedkern.data.points import line, read_points
from fedkern.errors import JobError


def test_a_line_is_cut_where_the_specification_cuts_it():
    points = line(100, 0.0, 1.0, [0.34, 0.67], ["a", "b", "c"])
    assert points.sizes == (34, 33, 33)
    assert points.x.shape == (100, 1)
    assert points.x[33, 0] < 0.34 <= points.x[34, 0]
    assert line(3, 0.0, 1.0, [0.5], ["a", "b"]).sizes == (1, 2)  # a point on a cut is the next client's


@pytest.mark.parametrize("cuts", [[-1.0], [0.51, 0.52], [2.0]])
def test_a_client_without_points(cuts):
    with pytest.raises(JobError, match=r"client \d gets no point; move the cuts"):
        line(11, 0.0, 1.0, cuts, ["a", "b", "c"][: len(cuts) + 1])


def test_points_are_sorted_by_client(csv):
    path = csv("points", "name,x,y,owner", "p,0.5,1,south", "q,0.25,2,north", "r,0.75,3,south")
    points = read_points(path, client="owner", columns=["x", "y"], name="name")
    assert points.clients == ("north", "south")
    assert points.sizes == (1, 2)
    assert points.names == ("q", "p", "r")
    assert np.array_equal(points.x, [[0.25, 2], [0.5, 1], [0.75, 3]])
    assert read_points(path, client="owner", columns=["x"]).names == ()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("x,owner", "0.5,a", "0.5,b"), r"line 3: the same point as line 2 \(a\); keep one of them"),
        (("x,owner", "0.5,"), r"line 2: a point without a client"),
        (("x,owner", "here,a"), r"line 2: x is no finite number"),
        (("x,owner", "inf,a"), r"line 2: x is no finite number"),
        (("x,who", "0.5,a"), r"has no column 'owner'; it has x, who"),
        (("x,owner", "0.5,a,3"), r"line 2: has 3 cells, the header 2"),
    ],
)
def test_faults(csv, lines, text):
    with pytest.raises(JobError, match=text):
        read_points(csv("points", *lines), client="owner", columns=["x"])


def test_a_name_twice(csv):
    path = csv("points", "x,owner,name", "0.5,a,p", "0.6,b,p")
    with pytest.raises(JobError, match="p: stands there twice; a point belongs to one client"):
        read_points(path, client="owner", columns=["x"], name="name")
