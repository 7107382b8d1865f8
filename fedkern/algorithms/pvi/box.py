"""Says which q a server may ask about, where it gets sums over all clients alone (`core.box`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.expfam import Gaussian, unpack
from ..core.box import Box
from ..core.messages import RemoteFault

Array = NDArray[np.float64]

WIDER, NARROWEST = 4.0, 2.0**-40  # prior sds that q's may have


@dataclass(frozen=True)
class BoxOfQ(Box):
    """Holds a box of q's means, and the range of its standard deviations.

    `sd`: (d,) of the prior; see `WIDER` and `NARROWEST`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.pvi.box import BoxOfQ
    >>> BoxOfQ.about(np.zeros(2), np.full(2, 20.0)).of(np.ones(2)).check_moments(np.ones(2), np.ones(2), "Parameters")
    """

    sd: tuple[float, ...] = ()

    def of(self, sd: Array) -> BoxOfQ:
        """Returns the same box, of a prior with these standard deviations."""
        return replace(self, sd=tuple(sd.tolist()))

    def check_q(self, h: Array, P: Array, what: str) -> None:
        """Refuses (RemoteFault) a question about a q, by shift and packed precision, that is none or outside of the box."""
        q = Gaussian(h, unpack(P, len(h)))
        try:
            with np.errstate(all="ignore"):
                mean, sd = q.mean, q.sd
        except (NumericalError, ArithmeticError, ValueError):  # of a precision that is none
            mean, sd = np.full(len(h), np.nan), np.full(len(h), np.nan)
        self.check_moments(mean, sd, what)

    def check_moments(self, mean: Array, sd: Array, what: str) -> None:
        """Refuses (RemoteFault) a question about a q of these means and standard deviations."""
        prior = np.array(self.sd)
        if not ((sd <= WIDER * prior) & (sd >= NARROWEST * prior)).all():
            raise RemoteFault(
                f"server: {what} asks at a q whose standard deviations are none that a client with secure sums answers about: up "
                f"to {WIDER:g} of the prior's"
            )
        self.check(mean, what)
