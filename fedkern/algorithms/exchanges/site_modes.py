"""Collects, after a job that asks for it, the estimates that each client's rows give alone.

Each client has computed the mode of its posterior, with the job's prior and without any other client's rows, and sends it with
standard deviations, to three digits of these. It names single clients, so a holder's policy must allow it. Source:
docs/spec/likelihood.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.exchange import Answer, Conditions

Array = NDArray[np.float64]

DIGITS = 3  # of a standard deviation: readers of the result see them, and all digits are equations for the rows


@dataclass(frozen=True)
class SiteMode(Answer, kind=211, tells=tells.Figure(), name="site-modes", ask=("AskSiteMode", 210), dims={"two": 2}, drops=True):
    """Client to server: coefficients on both scales where its own posterior is largest, and standard deviations there, 0 without
    a mode.
    """

    mode: Annotated[Array, "two d"]
    sd: Annotated[Array, "two d"]

    def leaving(self) -> SiteMode:
        """Returns it with standard deviations to three digits, and modes to the place of the last; zeros if a number is NaN."""
        mode, sd = self.mode, self.sd
        if not (np.isfinite(mode).all() and np.isfinite(sd).all() and (sd > 0).all()):
            return SiteMode(0, np.zeros_like(mode), np.zeros_like(sd))
        last = np.floor(np.log10(sd)).astype(int) - DIGITS + 1
        both = [[round(value, -place) for value, place in zip(of.ravel().tolist(), last.ravel().tolist())] for of in (mode, sd)]
        return SiteMode(0, *(np.array(one).reshape(mode.shape) for one in both))

    def honest(self) -> Conditions:
        possible = np.isfinite(self.mode).all() and np.isfinite(self.sd).all() and (self.sd >= 0).all()
        yield possible, "holds what is no number, or a standard deviation below 0"
