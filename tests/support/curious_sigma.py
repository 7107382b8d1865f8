"""What clients tell of rows whose sigma depends on all columns: how many are determined (`curious_rounded`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedkern.methods.likelihood import scales
from fedkern.models.mixed import Layout
from fedkern.models.mixed.scaled import Scaled

from . import curious, curious_rounded
from .rounded_jobs import drawn, played

SLOPE = 0.5  # of log sigma in the first column


def client(layout: Layout, random: np.random.Generator, n: int, p: int) -> Scaled:
    """A client's rows of p normal columns."""
    X = np.column_stack([np.ones(n), random.standard_normal((n, p))])
    eta = 0.3 + X[:, 1]
    y = eta + np.exp(SLOPE * X[:, 1]) * (drawn(random, layout.family, eta) - eta)
    return Scaled(layout, X, y, np.array([0, n]), scales=tuple(range(1, p + 1)))


def known(family: str, n: int, p: int, seed: int) -> NDArray[np.bool_]:
    """Returns (n,) whether each row of one of three such clients is determined."""
    plain = Layout(("intercept", *(f"x{k}" for k in range(p))), family)
    named = [scales.Scale(scales.name_of(f"x{k}"), 1 + k, 0.0, 1.0) for k in range(p)]
    layout, random = replace(plain, own=scales.shapes_of(family, named)), np.random.default_rng([31, p, seed])
    rows = [client(layout, random, n, p) for _ in range(3)]
    return curious_rounded.known(played(layout, [*rows]), rows[0]) < curious.WITHIN
