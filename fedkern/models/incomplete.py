"""Computes mean and covariance of rows that lack values, by expectation and maximisation (EM), and pools them over sites.

Rows are normal with any mean and covariance; which values are missing may depend on those that are present (missing at random).
EM alternates between the expected sums of missing values given the others, and the moments that follow from them. Rows are sorted
by pattern, which is the set of columns that they lack, and with the precision Q = covariance^-1 a pattern U costs |U|^3:

    x_U | x_O ~ N(mu_U - Q_UU^-1 Q_UO (x_O - mu_O), Q_UU^-1)

Some rows of uncorrelated columns are added to the covariance that completes rows (`ridge`), so that a site with fewer rows than
columns, or with columns that follow from each other, has an answer; the covariance that comes out does not contain them.
Source: Little and Rubin, Statistical Analysis with Missing Data, chapters 8 and 11; docs/spec/sparse.md, section 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Mask

SETTLED = 1e-7  # change of a mean or covariance in an iteration, in standard deviations of the columns
ITERATIONS = 2000
NUMBERS = 4_000_000  # of patterns' matrices that are held at once
SHARES = (0.5, 0.25, 0.1, 0.0)  # of rows with a pair of columns, beside the best site: at least so many, to be heard about it


@dataclass(frozen=True)
class Completed:
    """Holds the moments of one site's columns."""

    mean: Array  # (w,) NaN where the site has no value
    # (w, w) that of complete rows has their number less one as its divisor; 0 where a column has one value, or none
    covariance: Array
    together: Array  # (w, w) number of rows that have both columns
    # rows, incomplete: number of rows; number of those that lack a value
    rows: int
    incomplete: int
    settled: bool  # whether EM has converged

    @property
    def values(self) -> Array:
        """The (w,) number of values of each column."""
        return np.diag(self.together)

    def without_last(self) -> Completed:
        """Returns the same for all columns but the last."""
        covariance, together = self.covariance[:-1, :-1], self.together[:-1, :-1]
        return Completed(self.mean[:-1], covariance, together, self.rows, self.incomplete, self.settled)


def completed(values: Array) -> Completed:
    """Computes mean and covariance of rows that lack values. `values`: (n, w), NaN where a value is missing."""
    known = ~np.isnan(values)
    n, count = len(values), known.sum(axis=0)
    # Work with standardised columns; a column with one value has no covariance, and is left out.
    origin = np.where(known, values, 0.0).sum(axis=0) / np.maximum(count, 1)
    about = np.where(known, values - origin, 0.0)
    largest = np.where(known, np.abs(values), 0.0).max(axis=0, initial=0.0)
    spread = np.sqrt((about**2).sum(axis=0) / np.maximum(count - 1, 1))
    moving = np.flatnonzero((count > 1) & (spread > 1e-14 * largest))  # less is what rounding leaves of a constant column
    shift, part, settled = _em(about[:, moving] / spread[moving], known[:, moving])
    unbiased = spread[moving] * np.sqrt(count[moving] / (count[moving] - 1))
    mean, covariance = np.where(count > 0, origin, np.nan), np.zeros((len(count), len(count)))
    mean[moving] += spread[moving] * shift
    covariance[np.ix_(moving, moving)] = unbiased[:, None] * part * unbiased
    together = known.astype(np.float64)
    return Completed(mean, covariance, together.T @ together, n, int((~known.all(axis=1)).sum()), settled)


def _em(Z: Array, known: Mask) -> tuple[Array, Array, bool]:
    """Returns mean (w,) and covariance (w, w) of standardised columns Z, 0 where a value is missing; whether they have
    converged."""
    n, w = Z.shape
    groups = _Groups.of(Z, known)
    mean, covariance = np.zeros(w), Z.T @ Z / max(n, 1)
    if known.all():
        return mean, covariance, True
    ridge, ridged = 1 + w / 10, np.eye(w)
    for _ in range(ITERATIONS):
        D, left = groups.fill_missing(groups.rows - groups.ones[:, None] * mean, np.asarray(np.linalg.inv(ridged), np.float64))
        shift = groups.ones @ D / n
        products = D.T @ D + left
        covariance = products / n - np.outer(shift, shift)
        before, ridged = ridged, (n * covariance + ridge * np.eye(w)) / (n + ridge)
        mean = mean + shift
        if max(np.abs(shift).max(), np.abs(ridged - before).max()) < SETTLED:
            return mean, covariance, True
    return mean, covariance, False


@dataclass(frozen=True)
class _Groups:
    """Holds rows by pattern, as fewer rows with the same sums and products: of n rows w + 1 are enough."""

    rows: Array  # (r, w) 0 where a value is missing
    ones: Array  # (r,) the values of a constant column in them
    pattern: NDArray[np.int64]  # (r,) number of each row's pattern, in increasing order
    missing: Mask  # (g, w) of each pattern
    size: NDArray[np.int64]  # (g,) number of rows that it had at first

    @classmethod
    def of(cls, Z: Array, known: Mask) -> _Groups:
        """Makes them from columns Z (n, w), 0 where a value is missing."""
        _, first, number = np.unique(np.packbits(known, axis=1), axis=0, return_index=True, return_inverse=True)
        order = np.argsort(number.ravel(), kind="stable")
        size, missing = np.bincount(number.ravel(), minlength=len(first)), ~known[first]
        with_ones, parts = np.column_stack([Z, np.ones(len(Z))])[order], list[Array]()
        end = np.cumsum(size)
        for g, (m, lacking) in enumerate(zip(size, missing)):
            rows = with_ones[end[g] - m : end[g]]
            if m > len(lacking) + 1:
                rows = np.asarray(np.linalg.qr(rows, mode="r"))  # columns of zeros stay zeros, but for rounding
                rows[:, :-1][:, lacking] = 0.0
            parts.append(rows)
        fewer = np.concatenate(parts) if parts else with_ones
        return cls(fewer[:, :-1], fewer[:, -1], np.repeat(np.arange(len(parts)), list(map(len, parts))), missing, size)

    def fill_missing(self, D: Array, Q: Array) -> tuple[Array, Array]:
        """Returns rows D about the mean, completed by their expectations, and the covariance that this leaves out.

        Parameters
        ----------
        D : rows less the mean
        Q : (w, w) precision

        Returns
        -------
        completed rows, and the sum (w, w) over all rows of the conditional covariance
        """
        D, left = np.where(self.missing[self.pattern], 0.0, D), np.zeros(Q.size)
        DQ = D @ Q
        for alike, lacking in self._alike():
            C = np.linalg.inv(Q[lacking[:, :, None], lacking[:, None, :]])
            where = lacking[:, :, None] * len(Q) + lacking[:, None, :]
            left += np.bincount(where.ravel(), (C * self.size[alike, None, None]).ravel(), minlength=Q.size)
            begin, end = (
                np.searchsorted(self.pattern, (alike[0], alike[-1] + 1)) if len(alike) == alike[-1] - alike[0] + 1 else (0, 0)
            )
            rows = np.arange(begin, end) if end else np.flatnonzero(np.isin(self.pattern, alike))
            of = np.searchsorted(alike, self.pattern[rows])
            columns = lacking[of]
            D[rows[:, None], columns] = -np.einsum("ruv,rv->ru", C[of], np.take_along_axis(DQ[rows], columns, axis=1))
        return D, left.reshape(Q.shape)

    def _alike(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yields patterns that lack the same number u > 0 of columns: their numbers, and the columns (g, u), a piece at a
        time."""
        lacks = self.missing.sum(axis=1)
        for u in np.unique(lacks[lacks > 0]):
            alike = np.flatnonzero(lacks == u)
            for rows in np.array_split(alike, -(-len(alike) * int(u) ** 2 // NUMBERS)):
                yield rows, np.nonzero(self.missing[rows])[1].reshape(len(rows), int(u))


class NeverTogether(ValueError):
    """Says that no site has two columns in the same rows; the columns' numbers are the arguments."""


def pooled(sites: Sequence[Completed]) -> Array:
    """Returns (w, w) the covariance within sites that all have in common; a site's missing part is taken from other sites.

    A site counts as its number of rows less one. It is heard about such of its columns as it has in enough rows together, beside
    the best site (`SHARES`); its other entries are completed by the regression on its columns that follows from the rest: EM
    again, with sites in the place of rows. So the covariance is that of a normal likelihood, and positive definite unless columns
    follow from each other. Raises NeverTogether: no site has two of the columns in the same rows.
    """
    determined, degrees = _told(sites), np.array([site.rows - 1.0 for site in sites])
    kinds, of = np.unique(determined, axis=0, return_inverse=True)
    products, weights = np.zeros((len(kinds), *sites[0].covariance.shape)), np.bincount(of.ravel(), degrees, len(kinds))
    for kind, site, heard in zip(of.ravel(), sites, determined):
        products[kind] += (site.rows - 1) * site.covariance * np.outer(heard, heard)
    heard = kinds.astype(np.float64)
    psi: Array = products.sum(axis=0) / np.einsum("k,ki,kj->ij", weights, heard, heard)
    if kinds.all():
        return psi
    unit = np.sqrt(np.diag(psi))
    unit[unit == 0] = 1.0  # a column that is constant wherever there are rows enough: refused as singular
    products /= np.outer(unit, unit)
    psi = np.diag(np.diag(psi) / unit**2)
    for _ in range(ITERATIONS):
        total = products.sum(axis=0)
        for k in np.flatnonzero(~kinds.all(axis=1)):
            o, u = kinds[k], ~kinds[k]
            gain = np.linalg.solve(psi[np.ix_(o, o)] + 1e-9 * np.eye(o.sum()), psi[np.ix_(o, u)])
            cross = products[k][np.ix_(o, o)] @ gain
            total[np.ix_(o, u)] += cross
            total[np.ix_(u, o)] += cross.T
            left = psi[np.ix_(u, u)] - psi[np.ix_(u, o)] @ gain
            total[np.ix_(u, u)] += gain.T @ cross + weights[k] * left
        before, psi = psi, (total + total.T) / (2 * weights.sum())
        if np.abs(psi - before).max() < SETTLED:
            break
    return unit[:, None] * psi * unit


def _told(sites: Sequence[Completed]) -> Mask:
    """Returns (sites, w) whether each site is heard about a column.

    Pairs of these columns are in at least two of its rows, and in a share of its rows that is not much below the best site's, as
    far as every pair is then told by some site.
    """
    together = np.stack([site.together for site in sites])
    share = together / np.array([site.rows for site in sites])[:, None, None]
    determined = np.zeros(together.shape[:2], bool)
    for least in SHARES:
        enough = (together > 1) & (share >= least * share.max(axis=0))
        determined = np.stack([_all_together(pairs) for pairs in enough])
        heard = np.einsum("ki,kj->ij", determined, determined)
        if heard.all():
            return determined
    raise NeverTogether(*np.argwhere(~np.einsum("ki,kj->ij", determined, determined))[0].tolist())


def _all_together(pairs: Mask) -> Mask:
    """Returns (w,) a large set of columns every two of which are a pair (w, w).

    The column with the fewest pairs leaves, until it is so.
    """
    chosen = np.diag(pairs).copy()
    while True:
        partners = (pairs[chosen][:, chosen]).sum(axis=1)
        if not len(partners) or partners.min() == len(partners):
            return chosen
        chosen[np.flatnonzero(chosen)[np.flatnonzero(partners == partners.min())[-1]]] = False
