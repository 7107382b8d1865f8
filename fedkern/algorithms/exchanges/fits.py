"""Collects each client's least-squares estimates and standard errors, for a meta-analysis beside the hierarchical model.

A job has to ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once, tells
from ..core.messages import Message

Columns = Annotated[NDArray[np.float64], "w"]


@dataclass(frozen=True)
class AskFit(Message, kind=45):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class SiteFit(Message, kind=46, tells=tells.Figure()):
    """Client to server: slopes and standard errors on the data's scale; an error of 0 says that there is no estimate."""

    round: int
    estimate: Columns
    error: Columns


def make_reply(estimate: NDArray[np.float64], error: NDArray[np.float64]) -> SiteFit:
    """Returns the answer for these estimates, of which a missing one is NaN."""
    there = np.isfinite(estimate) & np.isfinite(error)
    return SiteFit(0, np.where(there, estimate, 0.0), np.where(there, error, 0.0))


def _wrong(reply: SiteFit) -> str:
    return "its SiteFit has an error below 0" if reply.error.min(initial=0) < 0 else ""


NEEDS = "its own fit had not come; --resume goes on from the last checkpoint"
QUESTION = once.Question("site-fits", AskFit, SiteFit, _wrong, needs=NEEDS)
PROTOCOL = QUESTION.protocol
