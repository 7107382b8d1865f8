"""Draws each area's theta given all else: a normal prior times the likelihood of its rows, which is not normal.

A draw inverts the distribution function on nodes over all of its mass, whose ends are sought by the density; between two nodes
the density is taken for linear. Source: docs/spec/sigma.md, section 13.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .site import Observed

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

NODES = 41
NEWTON = 8  # steps to the mode
ENDS = 5  # steps to each end
NEGLIGIBLE = 16.0  # log density below the mode's, where nodes end
STEP = 1e-4  # of eta, for curvatures
MOST_MOVED = 3.0  # of theta in a step, in sds
LEAST, MOST = 1e-12, 1 - 1e-12  # uniforms


class Tilted:
    """Draws from the conditionals of some areas at m draws of all else.

    Parameters
    ----------
    site : whose rows
    areas : (a,) of them, rising
    fixed, scale, log_sd : (m, n), (m, 1), (m, 1) of the site at these draws
    """

    def __init__(self, site: Observed, areas: Index, fixed: Matrix, scale: Matrix, log_sd: Matrix) -> None:
        rows = np.flatnonzero(np.isin(site.rows.area, areas))
        rows = rows[np.argsort(site.rows.area[rows], kind="stable")]
        there, starts = np.unique(site.rows.area[rows], return_index=True)
        seen = site.rows
        self.site, self.scale, self.log_sd, self.starts = site, scale, log_sd, starts
        self.at = np.searchsorted(areas, there)  # areas with rows among the given
        self.of = np.searchsorted(there, seen.area[rows])
        self.y, self.fixed = seen.y[rows], fixed[:, rows]
        self.trials = None if seen.trials is None else seen.trials[rows]
        self.last = None if seen.last is None else seen.last[rows]

    def drawn(self, mean: Matrix, v: Matrix, w: Matrix, h: Matrix, uniforms: Matrix) -> Matrix:
        """Returns draws (m, a) if theta has N(mean, v) without its rows, (m, a) each.

        w and h are the place of a normal approximation of the likelihood, exp(h theta - w theta^2 / 2): the search begins there.
        """
        u = np.clip(uniforms, LEAST, MOST)
        out = mean + np.sqrt(v) * ndtri(u)
        if len(self.at):
            mean, v, w, h, u = (one[:, self.at] for one in (mean, v, w, h, u))
            out[:, self.at] = self._inverted(mean, v, (mean / v + h) / (1 / v + w), u)
        return np.asarray(out)

    def _inverted(self, mean: Matrix, v: Matrix, near: Matrix, u: Matrix) -> Matrix:
        like, scale = self.site.likelihood, self.scale

        def eta(theta: Matrix) -> Matrix:
            return np.asarray(self.fixed + scale * theta[..., self.of])

        def summed(values: Matrix) -> Matrix:
            return np.asarray(values if len(self.starts) == len(self.y) else np.add.reduceat(values, self.starts, axis=-1))

        def slope(theta: Matrix, shift: float) -> Matrix:
            return scale * summed(like.slope(self.y, eta(theta) + shift, self.log_sd, self.trials, self.last))

        def density(theta: Matrix) -> Matrix:
            value = summed(like.value(self.y, eta(theta), self.log_sd, self.trials, self.last))
            return np.asarray(value - 0.5 * (theta - mean) ** 2 / v)

        mode = near
        for _ in range(NEWTON):
            here = slope(mode, 0.0)
            information = 1 / v + np.maximum(scale * (here - slope(mode, STEP)) / STEP, 0.0)
            step, sd = (here - (mode - mean) / v) / information, 1 / np.sqrt(information)
            mode = mode + np.clip(step, -MOST_MOVED * np.sqrt(v), MOST_MOVED * np.sqrt(v))
        highest, ends = density(mode), []
        for side in (-1, 1):
            near, far, at = np.zeros_like(mode), np.full_like(mode, np.inf), 1.02 * np.sqrt(2 * NEGLIGIBLE) * sd
            for _ in range(ENDS):  # where all is negligible that is beyond; a normal density has its end at the first
                beyond = highest - density(mode + side * at) >= NEGLIGIBLE
                near, far = np.where(beyond, near, at), np.where(beyond, at, far)
                at = np.where(np.isfinite(far), (near + far) / 2, 2 * near)
            ends.append(mode + side * np.where(np.isfinite(far), far, at))
        first, width = ends[0], (ends[1] - ends[0]) / (NODES - 1)
        nodes = first + width * np.arange(NODES)[:, np.newaxis, np.newaxis]
        logs = density(nodes)
        f = np.exp(logs - logs.max(axis=0))
        beyond = np.concatenate([np.zeros_like(f[:1]), f, np.zeros_like(f[:1])])
        # of fourth order: a trapezium would make the draws' variance too large by a sixth of the squared distance of nodes
        mass = np.maximum(13 * (f[:-1] + f[1:]) - beyond[:-3] - beyond[3:], 0.0) / 24
        total = np.cumsum(mass, axis=0)
        left = u * total[-1]
        cell = np.minimum((total < left).sum(axis=0), NODES - 2)[np.newaxis]
        low, high, own, above = (np.take_along_axis(a, cell + k, 0)[0] for a, k in ((f, 0), (f, 1), (mass, 0), (total, 0)))
        share = np.clip((left - above + own) / np.maximum(own, np.finfo(float).tiny), 0.0, 1.0)
        # share = (low t + (high - low) t^2 / 2) / ((low + high) / 2), in the form that does not cancel
        within = share * (low + high) / (low + np.sqrt(low**2 + share * (high**2 - low**2)) + np.finfo(float).tiny)
        return np.asarray(first + width * (cell[0] + within))
