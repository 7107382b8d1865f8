"""Graphs of areas for tests: grids, random planar maps, maps of several pieces."""

import numpy as np
from scipy.spatial import Delaunay


def rows_of(n, edges):
    """Compressed rows of a graph from its pairs."""
    pairs = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0) if len(edges) else np.zeros((0, 2), int)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))])
    return indptr.astype(np.int64), np.ascontiguousarray(pairs[:, 1], np.int64)


def grid(side, other=None):
    """A rectangle of cells, each next to those beside, above and below."""
    number = np.arange(side * (other or side)).reshape(side, -1)
    beside = [np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1]))]
    return rows_of(number.size, np.concatenate(beside))


def planar(n, seed=0):
    """The triangulation of random points: six neighbours on average, as maps have them."""
    triangles = Delaunay(np.random.default_rng(seed).random((n, 2))).simplices
    return rows_of(n, np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]))


def islands():
    """Two pieces and an area without neighbours, in a mixed order: 0-2-4-6 a path, 1-3-5 a triangle, 7 alone."""
    return rows_of(8, np.array([[0, 2], [2, 4], [4, 6], [1, 3], [3, 5], [5, 1]]))
