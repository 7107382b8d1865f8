"""Replaces the coefficients of a categorical column's levels by contrasts, beside an intercept that another party has.

A coefficient for each level and an intercept are one too many: (1, -1, .., -1) changes no predictor, and only the priors hold it.
Where all are one party's, a covariance says so; a product over parties cannot, and comes out many times too narrow along both. In
open jobs with linear predictors and an intercept a client therefore computes with one coefficient fewer: orthonormal contrasts of
its levels, of indicators less their shares of the training rows. Coefficients with the prior N(m, sd s) each have contrasts with
the prior N(0, sd s), so each level against another has the posterior that a coefficient for every level gives it. Each level is
published against the average of the training rows, as a numeric column's slope is. Source: docs/spec/vertical.md, section 9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import block_diag, helmert

from ...arrays import Array
from ...models.encoding import Encoding

TIED = (
    "coefficients of a text column's levels have standard deviations that are many times too small, and means that depend on "
    "where the fit started, as the server's intercept has, for only their priors tell these apart; right is each level "
    "against another (`contrasts`). With prior.mean = 0 all are right"
)


def has_levels(encoding: Encoding) -> bool:
    """Returns whether a column has levels."""
    return any(column.levels is not None for column in encoding.columns)


@dataclass(frozen=True)
class Levels:
    """Converts the k coefficients of a client's computation to the d published ones: a level's is its part of the predictor."""

    shares: Array  # (d,) of each level among the training rows; 0 of numeric columns
    contrasts: Array  # (d, k) with orthonormal columns
    rows: Array  # (d, k) of the design where a row has the level

    @classmethod
    def of(cls, encoding: Encoding, shares: Array) -> Self:
        """Makes it from the shares of an encoding's levels."""
        contrasts, rows, begin = list[Array](), list[Array](), 0
        for column in encoding.columns:
            n = len(column.levels or ("",))
            contrast = np.ones((1, 1)) if column.levels is None else np.asarray(helmert(n)).T
            contrasts.append(contrast)
            rows.append(contrasts[-1] - shares[begin : begin + n] @ contrasts[-1])
            begin += n
        return cls(shares, np.asarray(block_diag(*contrasts), np.float64), np.asarray(block_diag(*rows), np.float64))

    @classmethod
    def among(cls, encoding: Encoding, X: Array) -> Self:
        """Makes it from the shares that the levels have in the rows of a design (n, d)."""
        numeric = [c.levels is None for c in encoding.columns for _ in c.levels or ("",)]
        return cls.of(encoding, np.where(numeric, 0.0, X.mean(axis=0)))

    def design(self, X: Array) -> Array:
        """Returns the (n, k) design of contrasts from a design (n, d)."""
        return np.ascontiguousarray((X - self.shares) @ self.contrasts)

    def published(self, values: Array) -> Array:
        """Converts means (k,), or a root of their covariance (k, e), to the published coefficients (d, ..)."""
        return np.asarray(self.rows @ values)


def name_contrasts(encoding: Encoding) -> Iterator[str]:
    """Yields the names of the coefficients with which a client computes."""
    for column in encoding.columns:
        if column.levels is None:
            yield column.name
        else:
            yield from (f"{column.name}: contrast {k + 1}" for k in range(len(column.levels) - 1))
