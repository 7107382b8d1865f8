"""Whether residuals of all clients vary alike, as a linear model with one error variance says.

A client tells the weighted sum of squares about the released mean m (`PearsonSums`); its site N(h, P) says what its rows would
have chosen, theta = P^- h, and how much of that sum comes of the way from there: (m - theta)' P (m - theta). What is left over,
by its degrees of freedom, is the client's own error variance, whatever its level and its slopes are.

With variances v_k (in units of the model's) the covariance of the estimate is S^-1 (sum_k v_k P_k) S^-1 and not S^-1, S = sum_k
P_k: intervals are as wide as they should be only where each client says of every coefficient about the same part.

Source: docs/concepts/convergence.md, "A client that is noisier".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms.exchanges import spreads
from ..algorithms.exchanges.pearson import PearsonSums
from .heterogeneity import generalised_inverse
from .verdict import Verdict

Array = NDArray[np.float64]

APART = 1.5  # times one of two variances
ALPHA = 0.001  # of all comparisons together
NOTED = 2.0  # times the others' standard deviation: what is noted where intervals are right, and wider than they need be
OFF = 1.1  # times the right standard deviation: beyond it, or below its inverse, an interval is wrong


@dataclass(frozen=True)
class Residuals:
    """Of clients that are not alike.

    Attributes
    ----------
    clients, coefficients : names
    variance : (M,) each client's own, over the model's
    found : which of them are not as the others
    width : (d,) right standard deviations over those of q
    rows : (M,) of each client
    """

    clients: tuple[str, ...]
    coefficients: tuple[str, ...]
    variance: Array
    found: spreads.Spreads
    width: Array
    rows: Array

    @property
    def off(self) -> bool:
        """Whether intervals are wrong by it."""
        return bool(np.abs(np.log(self.width)).max() > np.log(OFF))

    @property
    def said(self) -> str:
        """Whose residuals are larger or smaller."""
        who = ", ".join(f"{self.found.ratio[k]:.3g} times at {self.clients[k]}" for k in np.flatnonzero(self.found.odd))
        return f"errors do not vary alike at all clients: their standard deviation is {who} that at {self._others}"

    @property
    def _others(self) -> str:
        names = [self.clients[k] for k in np.flatnonzero(self.found.agree)]
        return names[0] if len(names) == 1 else "the others"

    @property
    def remedy(self) -> str:
        """Weights by which one error variance is right, with mean 1 over all rows."""
        odd, agree = self.found.odd, self.found.agree
        v = np.where(odd, self.variance, (self.variance * self.rows)[agree].sum() / self.rows[agree].sum())
        w = 1 / v
        w *= self.rows.sum() / (w * self.rows).sum()
        own = ", ".join(f"{w[k]:.3g} at {self.clients[k]}" for k in np.flatnonzero(odd))
        return (
            "where cells and units are right, give each row the weight of its client's errors, in a column that data.weight "
            f"names: {own}, {w[agree][0]:.3g} at {self._others} (times the weight that it has, if any)"
        )

    def judged(self, own: Verdict) -> Verdict:
        """The verdict of a fit with this: `false` where intervals are wrong by it."""
        if own.converged is False or not self.off:
            return own
        j = int(np.abs(np.log(self.width)).argmax())
        by = float(self.width[j])
        how = f"{by:.2g} times too narrow" if by > 1 else f"{1 / by:.2g} times too wide"
        name = self.coefficients[j]
        return Verdict(False, f"{self.said}: the interval of {name} is about {how}; {self.remedy}", name)

    def notes(self, own: Verdict) -> Iterator[str]:
        """What a reader should know of it beside the verdict."""
        wasteful = bool((np.abs(np.log(self.found.ratio[self.found.odd])) > np.log(NOTED)).any())
        if own.converged is False if self.off else wasteful:
            yield f"{self.said}: one error variance for all gives the noisier ones too much weight; {self.remedy}"


def compared(
    clients: Sequence[str], names: Sequence[str], told: Sequence[PearsonSums], h: Array, P: Array, mean: Array, prior: Array
) -> Residuals | None:
    """Of a linear fit.

    Parameters
    ----------
    clients, told : names and sums of M clients
    names : of the d coefficients
    h, P : (M, d) and (M, d, d) of their sites
    mean, prior : (d,) at which the sums are, and (d, d) precision of the prior

    Returns
    -------
    None where clients are alike, or nothing can be said: a site is no likelihood, or has no more rows than coefficients
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
    found, of_rows = (spreads.compare_spreads(sums, degrees, **rule) for sums in (left, left / np.maximum(weight, 1e-300)))
    if not (found.odd.any() and of_rows.odd.any()):
        return None
    variance = left / degrees
    total = np.linalg.inv(P.sum(axis=0) + prior)
    right = total @ (np.einsum("k,kij->ij", variance, P) + prior) @ total
    width = np.sqrt(np.diag(right) / np.diag(total))
    return Residuals(tuple(clients), tuple(names), variance, found, width, np.array([float(one.rows) for one in told]))
