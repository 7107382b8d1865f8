"""Learns r of a negative binomial job at the server, while q is fitted (docs/spec/pvi.md, section 2.2).

With each change of its site a client sends the derivative and the curvature, in log r, of its expected log-likelihood under the q
and at the r of its question. After a round the server takes one Newton step of their sums, and sends the r with its next
questions: sites follow with their next updates. After the last round all are told r, in an exchange of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, polygamma, psi

from ...kernels.homes import on_host
from ...models.expfam import Gaussian, unpack
from ...models.glm import BLOCK, Rows
from ..core.messages import Protocol, RemoteFault
from ..core.persistent import PersistentMap
from ..exchanges.arrival import AskSlope
from . import scale
from .local import Local
from .messages import AskSlopeAt, CountsQUpdate, CountsSiteDelta, LearntDispersion, QUpdate, SiteDelta
from .settings import Settings

Array = NDArray[np.float64]

LEAST, MOST = 1e-3, 1e6  # of r
MOST_TOLD = 1e30  # of a sum; q may begin at a wide prior
STEP = 2.0  # in log r, of one round
NEAR = 0.5  # a step in log r, or what a step leaves of 1 / r, by which it ends near the top
SURE = 0.9  # in log r: near a Poisson every step is about 1; shorter ones end near the top
LEAP = 4.0  # where the sums say that there is no dispersion at all
TOLD_APART = 2.7  # of -curvature: 1 / r is then 1.6 of its standard errors from a Poisson's 0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
SMALL = 0.01  # mean / r, below which differences of nearly equal numbers are series
SERIES = np.array([(-1.0) ** (k - 1) * (k - 1) / k for k in range(9, 1, -1)])
TABLE = 1 << 17  # counts up to which sums over 0 .. y - 1 are looked up


class Told(NamedTuple):
    """Holds a client's last derivative and curvature, and the log r at which they are."""

    at: float
    slope: float
    curvature: float


@dataclass(frozen=True)
class Learnt:
    """Is the server's knowledge: r as it is now, client -> its last answer, and client -> the log r of its last question."""

    r: float = 1.0
    told: PersistentMap[int, Told] = field(default_factory=PersistentMap)
    at: PersistentMap[int, float] = field(default_factory=PersistentMap)

    @property
    def sums(self) -> tuple[float, float]:
        """Derivative and curvature of all clients at this r. An answer at another r is carried here by its own curvature."""
        here, those = math.log(self.r), [self.told[k] for k in sorted(self.told)]
        slope = math.fsum(one.slope + one.curvature * (here - one.at) for one in those)
        return slope, math.fsum(one.curvature for one in those)

    @property
    def poisson(self) -> bool:
        """Whether counts cannot be told from a Poisson's."""
        return self.r >= MOST or -self.sums[1] < TOLD_APART

    def stepped(self) -> Learnt:
        """Returns the state after one Newton step in log r if that ends near.

        If r should fall, else the step is in 1 / r: from a Poisson (1 / r = 0) it leads back without going too far. If r should
        grow, and in 1 / r no top of a parabola is near, steps are longer.
        """
        slope, curvature = self.sums
        inverse = 1 + slope / (slope + curvature) if slope + curvature < 0 else math.inf  # what a step in it makes of 1 / r
        newton = abs(slope) / -curvature if curvature < 0 else math.inf if slope else 0.0
        if slope <= 0:
            of_log = min(newton, 1.0) if newton < NEAR or self.r < 1 else 0.0
            by = -max(min(math.log(inverse), max(STEP, math.log(self.r))), of_log)
        elif newton > SURE and (inverse <= 0 or (inverse == math.inf and self.r > 1)):
            by = LEAP
        else:
            by = min(newton * (2.0 if inverse < NEAR else 1.0), STEP)
        return replace(self, r=float(np.clip(self.r * math.exp(by), LEAST, MOST)))


# At a client --------------------


def at(local: Local, event: QUpdate | AskSlope) -> Local:
    """Returns a client's context at the r of a question, or unchanged if no r is learnt."""
    if not isinstance(event, CountsQUpdate | AskSlopeAt):
        return local
    low, high = (LEAST, MOST) if local.settings.bounded else (0.0, math.inf)
    if not (0 < event.r < math.inf and low <= event.r <= high):
        raise RemoteFault(f"server: {type(event).__name__}.r is {event.r}, expected a positive number from {low:g} to {high:g}")
    return replace(local, settings=replace(local.settings, scale=event.r))


def answered(delta: SiteDelta, question: QUpdate, local: Local) -> SiteDelta:
    """Returns the answer, with sums if r is learnt."""
    if not isinstance(question, CountsQUpdate):
        return delta
    q = Gaussian(question.h, unpack(question.P, len(question.h)))
    return CountsSiteDelta(
        delta.round, delta.version, delta.delta_id, delta.dh, delta.dP,
        *derivatives(local.rows, q, question.r, local.settings.most_of_row),
    )  # fmt: skip


def derivatives(rows: Rows, q: Gaussian, r: float, most: float = math.inf) -> tuple[float, float]:
    """Returns the first and second derivative in log r of sum w E_q log p(y | r), the constants of y included.

    With a row's predictor a, its mean mu = exp(a) and p = mu / (r + mu) the first is r (p - log(1 + mu / r)) + y p - sum_j<y j /
    (r + j), a sum of small numbers where r is large. A row adds `most` at most, and nothing where that is no number.
    """

    def added(parts: Array) -> float:
        return float((parts if most == math.inf else np.clip(np.nan_to_num(parts), -most, most)).sum())

    slope = curvature = 0.0
    for begin in range(0, len(rows), BLOCK):
        part = slice(begin, begin + BLOCK)
        X, y = np.asarray(on_host(rows.X[part]), np.float64), on_host(rows.y[part])
        mean = X @ q.mean + (0.0 if rows.offset is None else on_host(rows.offset[part]))
        b = mean[:, None] + np.sqrt(q.variance_of(X))[:, None] * NODES - math.log(r)
        p, z = expit(b), np.exp(np.minimum(b, math.log(SMALL)))
        less = np.where(b < math.log(SMALL), np.polyval(SERIES, z) * z**2, p - np.logaddexp(0, b))
        one, two = _of_counts(y, r)
        w = 1.0 if rows.weights is None else on_host(rows.weights[part])
        slope += added(w * ((r * less + y[:, None] * p) @ WEIGHTS - one))
        curvature += added(w * ((r * (less + p * p) - y[:, None] * p * (1 - p)) @ WEIGHTS + two))
    return slope, curvature


def _of_counts(y: Array, r: float) -> tuple[Array, Array]:
    """Returns sums over j = 0 .. y - 1 of j / (r + j) and r j / (r + j)^2."""
    few = y <= TABLE
    j = np.arange(y[few].max(initial=0))
    tables = [np.concatenate([[0.0], np.cumsum(term)]) for term in (j / (r + j), r * j / (r + j) ** 2)]
    one, two = (table[np.where(few, y, 0).astype(np.int64)] for table in tables)
    if not few.all():
        many = y[~few]
        inverse = r * (psi(many + r) - psi(r))
        one[~few] = many - inverse
        two[~few] = inverse + r * r * (polygamma(1, many + r) - polygamma(1, r))
    return one, two


# At the server --------------------


def with_r(question: QUpdate, s: Settings, learnt: Learnt, clients: Iterable[int]) -> tuple[QUpdate, Learnt]:
    """Returns the question, with r if it is learnt, and the record that these clients are asked at it."""
    if not s.learns_r:
        return question, learnt
    at = learnt.at
    for k in clients:
        at = at.plus(k, math.log(learnt.r))
    return CountsQUpdate(question.round, question.version, question.h, question.P, learnt.r), replace(learnt, at=at)


def looking(question: AskSlope, s: Settings, learnt: Learnt) -> AskSlope:
    """Returns the question how far q is, with r if it is learnt."""
    return AskSlopeAt(question.round, question.h, question.P, learnt.r) if s.learns_r else question


def add_counts(learnt: Learnt, sender: int, event: SiteDelta, s: Settings) -> Learnt:
    """Adds the derivatives that a client has sent."""
    if isinstance(event, CountsSiteDelta) != s.learns_r:
        raise RemoteFault(f"{type(event).__name__} is no answer in this job", sender)
    if not isinstance(event, CountsSiteDelta):
        return learnt
    if not max(abs(event.slope), abs(event.curvature)) <= MOST_TOLD:
        raise RemoteFault(
            f"CountsSiteDelta: derivatives of {event.slope:g} and {event.curvature:g} are too large to be any", sender
        )
    return replace(learnt, told=learnt.told.plus(sender, Told(learnt.at[sender], event.slope, event.curvature)))


PROTOCOL: Protocol[scale.Told, scale.Told] = scale.telling_protocol("dispersion", LearntDispersion)
DIMS: dict[str, int] = {}
