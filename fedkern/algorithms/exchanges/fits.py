"""Collects each client's least-squares estimates and standard errors, for a meta-analysis beside the hierarchical model.

A job has to ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.exchange import Answer, Conditions, small

Columns = Annotated[NDArray[np.float64], "w"]


@dataclass(frozen=True)
class SiteFit(
    Answer,
    kind=46,
    tells=tells.Figure(),
    name="site-fits",
    ask=("AskFit", 45),
    needs="its own fit had not come; --resume goes on from the last checkpoint",
):
    """Client to server: slopes and standard errors on the data's scale; an error of 0 says that there is no estimate."""

    estimate: Columns
    error: Columns

    def leaving(self) -> SiteFit:
        """Returns it as it leaves: a missing estimate is NaN before."""
        there = np.isfinite(self.estimate) & np.isfinite(self.error)
        return SiteFit(0, np.where(there, self.estimate, 0.0), np.where(there, self.error, 0.0))

    def honest(self) -> Conditions:
        yield (self.error >= 0).all(), "has an error below 0"
        yield small(self.estimate, self.error), "is too large to be any"
