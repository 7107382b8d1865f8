"""Seeks modes of u at several values of v at once, by damped Newton steps: a question asks for all that have not ended.

The objective log p(u) + sum F_j(u, h) is concave in u but for rounding and for the error of integrating theta out, so a full step
is the rule, and a third of one the exception.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.messages import evolve

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CLOSE = 1e-4  # nats that a further step would gain, where the steps end
MOST_STEPS = 25
SHORTER = 0.3
ROUNDING = 1e-10  # of a value


@dataclass(frozen=True)
class Search:
    """Holds the searches at k places.

    Attributes
    ----------
    v : (k, n)
    trial : (k, U) the point of the next answer
    at, value : (k, U), (k,) the best u so far, and the log posterior there; minus infinity before the first answer
    step, hessian : (k, U), (k, U, U) Newton's step from there, and minus the Hessian
    gain : (k,) the gain of a full step, as the Hessian foresees it; of an ended search it is among the value
    share : (k,) of the step that is tried
    asked : (k,) answers
    """

    v: Array
    trial: Array
    at: Array
    value: Array
    step: Array
    hessian: Array
    gain: Array
    share: Array
    asked: Array

    @classmethod
    def begin(cls, v: Array, u: Array) -> Search:
        """Returns searches from u (k, U) at v (k, n)."""
        k, size = u.shape
        endless, zero = np.full(k, np.inf), np.zeros(k)
        return cls(v, u, u.copy(), -endless, np.zeros(u.shape), np.zeros((k, size, size)), endless, np.ones(k), zero)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(k,) Whether the steps have come to their end."""
        return np.asarray(self.gain <= CLOSE)

    @property
    def open(self) -> Index:
        """The places where more is to be asked."""
        return np.flatnonzero(~self.ended & (self.asked < MOST_STEPS))

    def answered(self, which: Index, value: Array, gradient: Array, hessian: Array) -> Search:
        """Returns the searches with answers at the trial points of `which`; minus infinity is no answer."""
        new = evolve(self, **{name: getattr(self, name).copy() for name in self.__dataclass_fields__})
        new.asked[which] += 1
        for i, k in enumerate(which):
            enough = value[i] >= self.value[k] - ROUNDING * abs(self.value[k]) and np.isfinite(value[i])
            step = _step(gradient[i], hessian[i]) if enough else None
            if step is None:  # too far: back, and less far. Before any answer: nearer to 0, the prior's mean
                new.share[k] *= SHORTER
                new.trial[k] = self.at[k] + new.share[k] * self.step[k] if np.isfinite(self.value[k]) else SHORTER * self.trial[k]
                continue
            new.at[k], new.value[k], new.hessian[k], new.step[k], new.share[k] = self.trial[k], value[i], hessian[i], step, 1.0
            new.gain[k] = 0.5 * float(gradient[i] @ step)
            new.trial[k] = new.at[k] + step
            if new.gain[k] <= CLOSE:
                new.at[k] = new.trial[k]
                new.value[k] += new.gain[k]
        return new


def _step(gradient: Array, hessian: Array) -> Array | None:
    """Returns Newton's step, or None if the Hessian is not positive definite."""
    try:
        np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(np.linalg.solve(hessian, gradient))
