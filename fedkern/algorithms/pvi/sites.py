"""Keeps the sites of all clients, and their product with the prior, at a cost of one update that does not grow with the clients.

Sites lie in blocks of `BLOCK` clients, and the sum of each block is kept: an update copies one block and adds up that block and
the sums. The order of the additions is fixed by the clients' numbers alone, so q is a function of the sites, whatever came first:
the prior and the first block client by client, then the sums of the other blocks. Up to `BLOCK` clients that is client order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...models.expfam import Gaussian, pack, unpack
from ..core.kept import GIVEN
from ..core.messages import Saved

Vector = NDArray[np.float64]
BLOCK = 128


@dataclass(frozen=True)
class Sites:
    """Holds the sites; it is immutable.

    Attributes
    ----------
    prior : (d + p,) h and packed P
    d : coefficients
    blocks : (clients of the block, d + p) their sites; a precision may be negative
    counts : (clients of the block,) applied updates of each
    sums : (blocks, d + p) of each block, the first with the prior
    variance : the residual variance of a job that learns it, else 1. Blocks and sums are in units of 1 / variance: a linear
        likelihood's site is then the same whatever the variance, and only the prior moves against it
    """

    prior: Vector = field(metadata=GIVEN)
    d: int = field(metadata=GIVEN)
    blocks: tuple[Vector, ...]
    counts: tuple[NDArray[np.int64], ...]
    sums: Vector = field(metadata=GIVEN)
    variance: float = 1.0

    @classmethod
    def of(cls, prior: Gaussian, site_h: Vector, site_P: Vector, updates: NDArray[np.int64], variance: float = 1.0) -> Sites:
        """Returns the sites of (M, d) and (M, p) numbers, in units of 1 / variance, and of the (M,) updates that made them."""
        own = np.concatenate([prior.h, pack(prior.P)])
        all_of_them, edges = np.concatenate([site_h, site_P], axis=1), range(BLOCK, len(site_h), BLOCK)
        blocks, counts = np.split(all_of_them, edges), np.split(updates, edges)
        new = cls(own, prior.d, tuple(blocks), tuple(counts), np.empty((len(blocks), len(own))), variance)
        for i, block in enumerate(blocks):
            new.sums[i] = new._sum(i, block)
        return new

    def restored(self, saved: Saved) -> Sites:
        """Returns the sites with the sums of the blocks."""
        return replace(self, sums=np.array([self._sum(i, block) for i, block in enumerate(self.blocks)]))

    @property
    def h(self) -> Vector:
        """(M, d) The shifts."""
        return np.concatenate(self.blocks)[:, : self.d] / self.variance

    @property
    def P(self) -> Vector:
        """(M, p) The packed precisions."""
        return np.concatenate(self.blocks)[:, self.d :] / self.variance

    @property
    def updates(self) -> NDArray[np.int64]:
        """(M,) The number of applied updates of each client."""
        return np.concatenate(self.counts)

    def updates_of(self, client: int) -> int:
        """Returns the number of applied updates of one client."""
        return int(self.counts[client // BLOCK][client % BLOCK])

    def product(self) -> Gaussian:
        """Returns the prior times all sites."""
        total = (self.sums[0] if len(self.sums) == 1 else _added(self.sums)) / self.variance
        return Gaussian(total[: self.d], unpack(total[self.d :], self.d))

    def at(self, variance: float) -> Sites:
        """Returns the sites with another residual variance."""
        moved = replace(self, variance=variance, sums=self.sums.copy())
        moved.sums[0] = moved._sum(0, moved.blocks[0])
        return moved

    def moved(self, deltas: Mapping[int, tuple[Vector, Vector]], alpha: float) -> Sites:
        """Returns the sites with alpha times these changes added, as one update of each of these clients."""
        blocks, counts, sums = list(self.blocks), list(self.counts), self.sums.copy()
        touched = sorted({k // BLOCK for k in deltas})
        for i in touched:
            blocks[i], counts[i] = blocks[i].copy(), counts[i].copy()
        for k, (dh, dP) in deltas.items():
            site = blocks[k // BLOCK][k % BLOCK]
            site[: self.d] += alpha * dh
            site[self.d :] += alpha * dP
            counts[k // BLOCK][k % BLOCK] += 1
        for i in touched:
            sums[i] = self._sum(i, blocks[i])
        return replace(self, blocks=tuple(blocks), counts=tuple(counts), sums=sums)

    def without(self, clients: Iterable[int]) -> Sites:
        """Returns the sites where those of these clients are 1 again, as before their first update."""
        blocks, counts = [block.copy() for block in self.blocks], [own.copy() for own in self.counts]
        for k in clients:
            blocks[k // BLOCK][k % BLOCK], counts[k // BLOCK][k % BLOCK] = 0.0, 0
        return replace(self, blocks=tuple(blocks), counts=tuple(counts)).restored({})

    def _sum(self, i: int, block: Vector) -> Vector:
        return _added(np.concatenate([self.prior[None] * self.variance, block])) if i == 0 else _added(block)


def _added(rows: Vector) -> Vector:
    """Adds one row after the other; `sum` may add a single column pairwise."""
    total: Vector = np.add.accumulate(rows, axis=0)[-1]
    return total
