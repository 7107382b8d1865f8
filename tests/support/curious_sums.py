"""The curious server, where messages are sums of squares: what a linear client tells is cross-products of its rows, and no more.

Rows that are turned about their mean have the same cross-products: of two they leave one pair of rows, of more a rotation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from fedkern.algorithms.exchanges.columns import Agreed
from fedkern.algorithms.exchanges.scales import ColumnMoments, Scaling
from fedkern.algorithms.gibbs.settings import Globals, GlobalsMoved, Locals, MoveTerms, SecondMoveTerms
from fedkern.algorithms.pvi.messages import ScaledQUpdate, ScaledSiteDelta, SiteApplied
from fedkern.arrays import Array
from fedkern.models.expfam import Gaussian, unpack
from fedkern.results import loo

from . import curious

DRAWS, CHAINS = 1000, 4  # of posterior.nc by default


def linear(tape: curious.Tape, client: int) -> Array:
    """(d + 1, d + 1) Cross-products of [1, x, y], in the agreed units, from the sites of a job that learns its scale."""
    p = len([c for c in tape.texts(client, Agreed)[-1]["columns"] if c.get("kind", "numeric") == "numeric"])
    h, P, squares = np.zeros(p + 1), np.zeros((p + 1) * (p + 2) // 2), 0.0
    for message in tape.of(client, ScaledQUpdate, ScaledSiteDelta, SiteApplied):
        if isinstance(message, ScaledQUpdate):
            q = Gaussian(message.h, unpack(message.P, p + 1))
        elif isinstance(message, ScaledSiteDelta):
            delta = message
        elif isinstance(message, SiteApplied):
            h, P = h + message.alpha * delta.dh, P + message.alpha * delta.dP
            XX = unpack(P, p + 1)
            squares = delta.misfit + q.mean @ (2 * h - XX @ q.mean)
    return np.block([[XX, h[:, None]], [h[None], np.array([[squares]])]])


def two_rows(products: Array) -> Array:
    """(2, d) The rows [x, y] that have these cross-products of [1, x, y], in some order: nothing is left open."""
    mean = products[0, 1:] / 2
    value, vector = np.linalg.eigh(products[1:, 1:] - 2 * np.outer(mean, mean))
    half = np.sqrt(max(value[-1], 0.0) / 2) * vector[:, -1]
    return np.stack([mean + half, mean - half])


def turned(products: Array, rows: int, random: np.random.Generator) -> Array:
    """(rows, d) Some rows [x, y] with these cross-products of [1, x, y]: a root of them, turned at random."""
    mean = products[0, 1:] / rows
    value, vector = np.linalg.eigh(products[1:, 1:] - rows * np.outer(mean, mean))
    basis = random.standard_normal((rows, len(mean)))
    Q = np.linalg.qr(basis - basis.mean(axis=0))[0]
    return mean + (Q * np.sqrt(np.maximum(value, 0.0))) @ vector.T


def of_moves(tape: curious.Tape, client: int, kind: type[MoveTerms | SecondMoveTerms]) -> Array:
    """(p + 1, p) Cross-products of centred [x, y] with x, in the job's units, from the terms of a move.

    The precision of a translation, or the part of theta in an interweaving, is X'X / sigma^2, the gradient X'(y - X theta_k) /
    sigma^2; what the columns were scaled by tells sigma^2.
    """
    (squared,) = (m for m in tape.of(client, ColumnMoments) if isinstance(m, ColumnMoments))
    (scaling,) = (m for m in tape.of(client, Scaling) if isinstance(m, Scaling))
    asked = theta = None
    for message in tape.of(client, Globals, GlobalsMoved, Locals, kind):
        if isinstance(message, Globals | GlobalsMoved):
            asked = message
        elif isinstance(message, Locals):
            assert asked is not None
            theta = (asked.theta + message.deviation)[0].ravel()
        elif theta is not None:
            break
    assert isinstance(message, kind)
    assert theta is not None
    p = len(theta)
    precision, gradient = message.precision[0, 0, :p, :p], message.gradient[0, 0, :p]
    sigma_sq = float(squared.squares.ravel()[0] / scaling.scales[0] ** 2 / precision[0, 0])
    XX = precision * sigma_sq
    return np.vstack([XX, gradient * sigma_sq + XX @ theta])


@dataclass(frozen=True)
class LeaveOneOut:
    """What `LooSums` says of a logistic client: sums of leave-one-out densities, of their squares and of effective numbers, at
    `theta` (S, d). Slopes are differences."""

    theta: Array
    values: Array  # (3,)
    noise: float = curious.ROUNDED

    def of(self, z: Array) -> Array:
        """(3,) of signed rows (n, d)."""
        found = loo.sums(len(z), lambda at: -np.logaddexp(0, -self.theta @ z[at].T))
        return np.array([found.density, found.squares, found.effective])

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        base, step = np.stack([self.of(one) for one in z]), 1e-5
        slope = np.zeros((len(z), 3, *z.shape[1:]))
        for b, i, j in np.ndindex(*z.shape):
            near = z[b].copy()
            near[i, j] += step
            slope[b, :, i, j] = (self.of(near) - base[b]) / step
        return base - self.values, slope


def one_with_both(seen: curious.Seen, yes: int, number: int, values: Array, random: np.random.Generator) -> Array:
    """(p,) The one row in which a column of 0 and 1 is 1 and a number, of these `values`, is not 0: X'WX of the two, less what
    all others have, is w(q) times that number, at every q. `yes`, `number`: columns of X, 0-based."""
    parts = [term for term in seen.terms if isinstance(term, curious.Sites)]
    mean, cov, curvature = (np.concatenate([getattr(term, name) for term in parts]) for name in ("mean", "cov", "curvature"))
    p = seen.d - 1
    one, other = np.zeros(seen.d), np.zeros(seen.d)
    one[[0, yes + 1]] = seen.centre[yes], seen.scale[yes]
    other[[0, number + 1]] = seen.centre[number], seen.scale[number]
    told = np.einsum("i,tij,j->t", one, curvature, other)
    rest = [j for j in range(p) if j not in (yes, number)]

    def weight(x: Array) -> Array:
        z = np.append(1, (x - seen.centre) / seen.scale)
        at = (mean @ z)[:, None] + np.sqrt(np.einsum("i,tij,j->t", z, cov, z))[:, None] * curious.NODES
        chance = scipy.special.expit(at)
        return (chance * (1 - chance)) @ curious.WEIGHTS

    best, least = np.zeros(p), np.inf
    for value in values:
        for start in random.standard_normal((2, len(rest))):
            x = np.zeros(p)
            x[[yes, number]] = 1, value

            def off(cells: Array, x: Array = x) -> Array:
                x[rest] = cells
                return np.append(1e9 * (weight(x) * x[number] - told), 1e-6 * cells)

            fit = scipy.optimize.least_squares(off, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60)
            if fit.cost < least:
                off(fit.x)
                best, least = x.copy(), fit.cost
    return best
