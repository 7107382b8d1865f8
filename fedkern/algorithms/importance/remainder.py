"""Ends a job after one net of draws where the quadratic about the mode is the posterior but for a little that the net knows.

Of many rows the log-likelihood is nearly quadratic where the posterior has its mass, and thousands of weights say only that they
are nearly equal. What the quadratic leaves of the log-likelihood, its remainder r, is known at the draws of a first net.
Under the normal approximation its regression on all quadratics has, by Hermite's polynomials, the coefficients E r, E r e and
E r (e e' - 1), in the coordinates e in which that is standard; what is left then changes means and variances by the square of its
size alone. So where the remainder is surely small, corrected quadratics take the clients' places at draws that nobody is asked
about. Rare events, whose log-likelihood bends, have a remainder that is not small. Source: docs/spec/likelihood.md, section 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Array
from ...models.expfam import unpacked
from ..core.nets import SURE
from .newton import Metric
from .proposals import Proposal
from .settings import OF_WORDS, Settings, power

SMALL = 0.1  # nats: the sd of a remainder that is small
ANSWER = 8192  # draws from corrected quadratics, which cost nothing


class Corrected(NamedTuple):
    """Holds quadratics of J clients about a place."""

    at: Array  # (P,)
    # value, gradient, hessian: (J,), (J, P), (J, P, P), minus the Hessians
    value: Array
    gradient: Array
    hessian: Array
    error: float  # the standard error of a coefficient of their sum, and so of a mean in posterior sds

    def values(self, points: Array) -> Array:
        """Returns the log-likelihoods (n, J) at points (n, P)."""
        off = points - self.at
        curved = np.einsum("ni,jik,nk->nj", off, self.hessian, off, optimize=True)
        return np.asarray(self.value + off @ self.gradient.T - curved / 2)


def corrected(
    mode: tuple[Array, Array, Array], derivatives: tuple[Array, Array], source: Proposal, draws: tuple[Array, Array], s: Settings
) -> Corrected | None:
    """Returns the clients' quadratics as the draws correct them; None where more than a little remains.

    Parameters
    ----------
    mode : (P,) where the climb ends, (P,) the gradient of the log-posterior at its last question, (P, P) and minus its Hessian
    derivatives : (J, P), (J, P(P+1)/2) each client's gradient and minus Hessian there
    draws : (n, P), (n, J) some draws of the source, and the clients' log-likelihoods there
    """
    (centre, slope, precision), (xi, values) = mode, draws
    B = Metric.of(precision).factor
    gradient, hessian = derivatives[0], unpacked(derivatives[1], len(centre))
    gradient = gradient - hessian @ (B @ (B.T @ slope))  # at the mode, a step from the last question
    plain = Corrected(centre, np.zeros(len(gradient)), gradient, hessian, 0.0)
    e = (xi - centre) @ (precision @ B)
    log_w = -0.5 * (e**2).sum(axis=1) - source.plain(xi)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    rest = values - plain.values(xi)
    level = w @ rest
    rest = rest - level
    noise = values.shape[1] * (float(power(s.needed_at_draws(0))) if s.rounded else OF_WORDS) ** 2 / 12
    square = rest.sum(axis=1) ** 2
    size = float(w @ square)
    surely = size - noise + SURE * float(np.sqrt(w**2 @ (square - size) ** 2))
    if not surely <= SMALL**2:
        return None
    linear, to_xi = (w[:, np.newaxis] * rest).T @ e, precision @ B
    bent = np.einsum("n,nj,ni,nk->jik", w, rest, e, e, optimize=True)
    curved = np.einsum("ai,jik,bk->jab", to_xi, bent, to_xi, optimize=True)
    value = level - np.trace(bent, axis1=1, axis2=2) / 2
    error = float(np.sqrt(size * (w**2).sum()))
    return Corrected(centre, value, gradient + linear @ to_xi.T, hessian - curved, error)
