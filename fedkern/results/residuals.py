"""Tests whether residuals of all clients vary alike, as a linear model with one error variance says.

A client tells the weighted sum of squares about the released mean m (`PearsonSums`). Its site N(h, P) gives the estimate that its
rows alone would have, theta = P^- h, and so the part of that sum which comes from the distance: (m - theta)' P (m - theta). The
rest, over its degrees of freedom, is the client's error variance, whatever its level and its slopes are.

With variances v_k (in units of the model's) the covariance of the estimate is S^-1 (sum_k v_k P_k) S^-1 and not S^-1, S = sum_k
P_k: intervals have the right width only where each client tells about the same part of every coefficient.

Source: docs/concepts/convergence.md, "A client that is noisier".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms.exchanges import spreads
from ..algorithms.exchanges.sums import PearsonSums
from ..finding import Finding
from .heterogeneity import generalised_inverse
from .verdict import Verdict

Array = NDArray[np.float64]

APART = 1.5  # times one of two variances
ALPHA = 0.001  # of all comparisons together
NOTED = 2.0  # times the others' standard deviation: noted although intervals are right, since they are wider than they need be
OFF = 1.1  # times the right standard deviation: beyond it, or below its inverse, an interval is wrong


@dataclass(frozen=True)
class Residuals:
    """Holds the error variances of clients that are not alike.

    Attributes
    ----------
    clients, coefficients : names
    variance : (M,) of each client, over the model's
    spread : which of them differ from the others
    width : (d,) right standard deviations over those of q
    rows : (M,) of each client
    """

    clients: tuple[str, ...]
    coefficients: tuple[str, ...]
    variance: Array
    spread: spreads.Spreads
    width: Array
    rows: Array

    @property
    def off(self) -> bool:
        """Whether intervals are wrong by it."""
        return bool(np.abs(np.log(self.width)).max() > np.log(OFF))

    @property
    def words(self) -> str:
        """The clients whose residuals are larger or smaller, in words."""
        who = ", ".join(f"{self.spread.ratio[k]:.3g} times at {self.clients[k]}" for k in np.flatnonzero(self.spread.odd))
        return f"errors do not vary alike at all clients: their standard deviation is {who} that at {self._others}"

    @property
    def _others(self) -> str:
        names = [self.clients[k] for k in np.flatnonzero(self.spread.agree)]
        return names[0] if len(names) == 1 else "the others"

    @property
    def remedy(self) -> str:
        """The weights by which one error variance is right, with mean 1 over all rows."""
        odd, agree = self.spread.odd, self.spread.agree
        v = np.where(odd, self.variance, (self.variance * self.rows)[agree].sum() / self.rows[agree].sum())
        w = 1 / v
        w *= self.rows.sum() / (w * self.rows).sum()
        own = ", ".join(f"{w[k]:.3g} at {self.clients[k]}" for k in np.flatnonzero(odd))
        return (
            "where cells and units are right, give each row the weight of its client's errors, in a column that data.weight "
            f"names: {own}, {w[agree][0]:.3g} at {self._others} (times the weight that it has, if any)"
        )

    def judged(self, own: Verdict) -> Verdict:
        """Returns the verdict of a fit after this test: `false` where intervals are wrong by it."""
        if own.converged is False or not self.off:
            return own
        j = int(np.abs(np.log(self.width)).argmax())
        by = float(self.width[j])
        how = f"{by:.2g} times too narrow" if by > 1 else f"{1 / by:.2g} times too wide"
        name = self.coefficients[j]
        return Verdict(False, f"{self.words}: the interval of {name} is about {how}; {self.remedy}", name)

    def notes(self, own: Verdict) -> Iterator[str]:
        """Yields a note for a reader beside the verdict."""
        wasteful = bool((np.abs(np.log(self.spread.ratio[self.spread.odd])) > np.log(NOTED)).any())
        if own.converged is False if self.off else wasteful:
            yield Finding.of("errors-vary-otherwise", words=self.words, remedy=self.remedy)


def compare_clients(
    clients: Sequence[str], names: Sequence[str], told: Sequence[PearsonSums], h: Array, P: Array, mean: Array, prior: Array
) -> Residuals | None:
    """Compares the error variances of a linear fit's clients.

    Parameters
    ----------
    clients, told : names and sums of M clients
    names : of the d coefficients
    h, P : (M, d) and (M, d, d) of their sites
    mean, prior : (d,) at which the sums are, and (d, d) precision of the prior

    Returns
    -------
    the variances; None where clients are alike, or cannot be compared: a site is no likelihood, or has no more rows than
    coefficients
    """
    left, degrees, weight = np.zeros(len(told)), np.zeros(len(told)), np.array([one.weight for one in told])
    try:
        for k, one in enumerate(told):
            inverse, rank, _ = generalised_inverse(P[k])
            away = mean - inverse @ h[k]
            left[k], degrees[k] = one.weight * one.misfit - away @ P[k] @ away, one.rows - rank
    except np.linalg.LinAlgError:
        return None
    left = np.maximum(left, 0.0)
    if (degrees < 1).any() or not (left > 0).all():
        return None
    rule = {"apart": APART, "sure": 1 - ALPHA / (2 * len(told))}
    # A weight may be a precision, or a number of equal rows: clients differ where they do by either.
    by_weights, of_rows = (spreads.compare_spreads(sums, degrees, **rule) for sums in (left, left / np.maximum(weight, 1e-300)))
    if not (by_weights.odd.any() and of_rows.odd.any()):
        return None
    variance = left / degrees
    total = np.linalg.inv(P.sum(axis=0) + prior)
    right = total @ (np.einsum("k,kij->ij", variance, P) + prior) @ total
    width = np.sqrt(np.diag(right) / np.diag(total))
    return Residuals(tuple(clients), tuple(names), variance, by_weights, width, np.array([float(one.rows) for one in told]))
