"""Extends a Gaussian process' prior to data between its grid points, where thetahat is interpolated linearly.

A decoder's last map is affine, so that one whose output is interpolated is a decoder again, of the grid and of the data's
points. Source: docs/spec/sigma.md, section 4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...data.artifact import ClientFile, OwnFile, WithinFile
from ...errors import JobError
from .rows import Reading

Array = NDArray[np.float64]


def extend_file(file: OwnFile, read: Reading, who: str) -> OwnFile:
    """Returns the client's file with its rows' points behind the grid's; the same file unless `data.interpolation` is "linear".

    Raises
    ------
    JobError
        Points of more than one dimension, or a prior without a decoder.
    """
    table, location = read.table, read.location
    if not read.interpolates or file.locations is None or file.common.kind != "gp":
        return file
    if isinstance(file, WithinFile):
        raise JobError(
            f'{who}: data.interpolation = "linear" is for a prior that was trained; this one was built for its points alone: '
            'take "nearest", or build it for the points of the data'
        )
    if file.locations.shape[1] != 1 or len(location) != 1:
        raise JobError(f'{who}: data.interpolation = "linear" is for points on a line; take "nearest"')
    column = table.columns.get(location[0])
    if not isinstance(column, np.ndarray):
        return file  # what is wrong with it is said where rows are read
    grid = file.locations[:, 0]
    new = np.setdiff1d(column[np.isfinite(column)].astype(float), grid)
    step = float(np.diff(np.unique(grid)).max()) if file.d > 1 else np.inf
    new = new[(new >= grid.min() - 0.5 * step) & (new <= grid.max() + 0.5 * step)]
    return _between(file, new) if len(new) else file


def _between(file: ClientFile, points: Array) -> ClientFile:
    """Returns the file with thetahat, tau^2 and the prior's variance also at `points` (k,)."""
    assert file.locations is not None
    grid, d = file.locations[:, 0], file.d
    order = np.argsort(grid)
    A = np.zeros((d + len(points), d))
    A[:d] = np.eye(d)
    for j in range(d):  # np.interp of each grid point's indicator; at the ends it is constant
        A[d:, order[j]] = np.interp(points, grid[order], np.eye(d)[j])
    c = file.common
    last = {
        "multiplicative": c.rank * (c.n_global + file.n_local),
        "printed": c.hidden + file.n_local + 2,
        "amended": c.local_hidden + 1,
    }
    width = last[c.variant]
    own = file.parts["decoder"]
    # The last layer stands at the end: W row by row, and then, but for "multiplicative", the biases.
    head, tail = own[: len(own) - d * width], own[len(own) - d * width :]
    scaled = A * file.scale
    if c.variant == "multiplicative":
        moved = (scaled @ tail.reshape(d, width)).ravel()
    else:
        W, b = tail[: d * (width - 1)].reshape(d, width - 1), tail[d * (width - 1) :]
        moved = np.concatenate([(scaled @ W).ravel(), scaled @ b])
    return replace(
        file,
        scale=np.ones(len(A)),
        parts={**file.parts, "decoder": np.concatenate([head, moved])},
        tau2=file.tau2 @ A.T,
        true_variance=A @ file.true_variance,
        areas=(),
        locations=np.concatenate([file.locations, points[:, np.newaxis]]),
    )
