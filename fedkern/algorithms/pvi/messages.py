"""Defines the messages of partitioned variational inference (see `machine`), of its client-level form, and of the baseline
without sites.

`Refused`, which other machines have too, is in `core.messages`. Source: docs/spec/pvi.md, sections 7, 11 and 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core.messages import FEW, FEW_OR_FULL, FEW_OR_SUMS, LABELLED, LIKELIHOOD, NOISED, Message, Tells
from ..exchanges.arrival import AskSlope

Shift = Annotated[NDArray[np.float64], "d"]
Precision = Annotated[NDArray[np.float64], "p"]

LARGEST = 1e12  # of any number in a SiteDelta; far beyond what a posterior of standardised columns can need


@dataclass(frozen=True)
class QUpdate(Message, kind=10):
    """Server to client: q. `version` counts the updates that are in it."""

    round: int
    version: int
    h: Shift
    P: Precision


@dataclass(frozen=True)
class SiteDelta(Message, kind=11, tells=Tells(LIKELIHOOD, LABELLED, FEW_OR_FULL, NOISED)):
    """Client to server: damped change of its site, computed from q of that version; `delta_id` counts the client's own
    updates.
    """

    round: int
    version: int
    delta_id: int
    dh: Shift
    dP: Precision


@dataclass(frozen=True)
class ScaledQUpdate(QUpdate, kind=17):
    """Server to client, of a job that learns its scale: q, and the residual variance at which it is."""

    variance: float


@dataclass(frozen=True)
class ScaledSiteDelta(SiteDelta, kind=18, tells=Tells(LIKELIHOOD, LABELLED, FEW_OR_SUMS)):
    """Client to server, of a job that learns its scale: the change in units of 1 / variance, and sums of its residuals.

    They are, under the q of the question, the sum of squares about the mean, the addition of q's own spread to it over the
    variance, and the sum of the weights.
    """

    misfit: float
    used: float
    weight: float


@dataclass(frozen=True)
class LearntVariance(Message, kind=19):
    """Server to client, after the rounds: the residual variance that was learnt."""

    variance: float


@dataclass(frozen=True)
class CountsQUpdate(QUpdate, kind=22):
    """Server to client, of a negative binomial job that learns r: q, and the r at which it is."""

    r: float


@dataclass(frozen=True)
class CountsSiteDelta(SiteDelta, kind=23, tells=Tells(LIKELIHOOD, LABELLED, FEW_OR_SUMS)):
    """Client to server, of a negative binomial job that learns r: the change, and the first and second derivative in log r of its
    expected log-likelihood under the q and at the r of the question.
    """

    slope: float
    curvature: float


@dataclass(frozen=True)
class LearntDispersion(Message, kind=24):
    """Server to client, after the rounds: the r that was learnt."""

    r: float


@dataclass(frozen=True)
class AskSlopeAt(AskSlope, kind=25):
    """Server to client, of a negative binomial job that learns r: at this q, shift and packed precision, and at this r."""

    r: float


@dataclass(frozen=True)
class SiteApplied(Message, kind=12):
    """Server to client: your site has changed by alpha times that delta (0: refused, it would have made q improper)."""

    delta_id: int
    alpha: float


@dataclass(frozen=True)
class SiteShare(Message, kind=14):
    """Server to every client (averaged-sites): the change of its site, the M-th part of q's gain."""

    round: int
    dh: Shift
    dP: Precision


@dataclass(frozen=True)
class Parameters(Message, kind=20):
    """Server to client: mean and log standard deviations of q."""

    round: int
    mu: Shift
    omega: Shift


@dataclass(frozen=True)
class Gradient(Message, kind=21, tells=Tells(LIKELIHOOD, LABELLED, FEW, NOISED)):
    """Client to server: gradient of its expected log-likelihood, clipped and noised if the job is private."""

    round: int
    mu: Shift
    omega: Shift
