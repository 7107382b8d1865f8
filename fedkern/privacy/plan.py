"""Plans how much of a budget a job will spend, before it begins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedkern.errors import JobError

from .accountant import Mechanism


@dataclass(frozen=True)
class Plan:
    """Says how much one client (or, for unit "client", the server) may spend in a job.

    Attributes
    ----------
    mechanism, epsilon, delta : its noise and its cap
    max_steps : the largest number of accounted steps within the cap
    update : accounted steps of one update
    updates : the planned number of updates, None if only the budget ends the job
    first : the steps of the first update that are accounted at the start; as many steps of every later update are accounted with
        the update before it
    shorten : whether the last update may have fewer steps than the others

    Examples
    --------
    >>> from fedkern.privacy.accountant import Mechanism
    >>> from fedkern.privacy.plan import Plan
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> most = mechanism.max_steps(epsilon=2.0, delta=1e-5)
    >>> plan = Plan(mechanism, epsilon=2.0, delta=1e-5, max_steps=most, update=10, updates=25)
    >>> plan.planned, plan.steps, plan.paid  # 250 steps are planned, and the budget pays for 7 updates
    (250, 70, 7)
    """

    mechanism: Mechanism
    epsilon: float
    delta: float
    max_steps: int
    update: int
    updates: int | None
    first: int = 0
    shorten: bool = False

    @property
    def steps(self) -> int:
        """Steps after all rounds, or until the budget is spent."""
        if self.planned is not None and self.planned <= self.max_steps:
            return self.planned
        if self.shorten:
            return self.max_steps
        return self.first + (self.max_steps - self.first) // self.update * self.update

    @property
    def paid(self) -> int:
        """Updates that these steps pay for, the shortened one among them."""
        steps = max(0, self.steps - self.first)
        return -(-steps // self.update)

    @property
    def planned(self) -> int | None:
        """Steps of all rounds; None if only the budget ends the job."""
        return None if self.updates is None else self.updates * self.update

    @property
    def spent(self) -> float:
        """Epsilon after all rounds (as if the noise were secure)."""
        return self.mechanism.nominal_epsilon(self.steps, self.delta) if self.steps else 0.0

    def check_size(self, client: str, n_rows: int) -> None:
        """Raises JobError, before anything is charged, where a number of rows is declared as public and the client has another,
        which is not told."""
        if self.mechanism.dataset_size not in (None, n_rows):
            raise JobError(
                f"client {client!r}: privacy.dataset_size = {self.mechanism.dataset_size} is not its number of rows; give the "
                f'number of each client in [privacy.clients], or take sampling = "poisson", which needs none'
            )


@dataclass(frozen=True)
class Outlook:
    """Holds the figures of a plan with another noise.

    Attributes
    ----------
    noise : noise multiplier
    sd : standard deviation of the noise on each released number, in the units of the clip
    norm : expected Euclidean norm of the noise on one sum over the clip, which is the most that one row adds to it
    spent : epsilon after all planned rounds (as if the noise were secure); None where only the budget ends the job
    updates : cap -> updates that it pays for; at most those that are planned

    Examples
    --------
    >>> from fedkern.privacy.accountant import Mechanism
    >>> from fedkern.privacy.plan import Outlook, Plan, outlooks
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> most = mechanism.max_steps(epsilon=2.0, delta=1e-5)
    >>> plan = Plan(mechanism, epsilon=2.0, delta=1e-5, max_steps=most, update=10, updates=25)
    >>> (outlook,) = outlooks(plan, noises=[4.0], caps=[1.0, 4.0])
    >>> isinstance(outlook, Outlook), outlook.sd, round(outlook.norm, 2)
    (True, 4.0, 7.52)
    """

    noise: float
    sd: float
    norm: float
    spent: float | None
    updates: dict[float, int]


def outlooks(plan: Plan, noises: Sequence[float], caps: Sequence[float]) -> Iterator[Outlook]:
    """Yields the figures of the same job with other noise multipliers, under other caps, by the accountant of its sampler.

    Raises
    ------
    ValueError
        A noise multiplier or a cap that cannot be.

    Examples
    --------
    >>> from fedkern.privacy.accountant import Mechanism
    >>> from fedkern.privacy.plan import Plan, outlooks
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> most = mechanism.max_steps(epsilon=2.0, delta=1e-5)
    >>> plan = Plan(mechanism, epsilon=2.0, delta=1e-5, max_steps=most, update=10, updates=25)
    >>> [outlook.updates[1.0] for outlook in outlooks(plan, noises=[2.0, 4.0], caps=[1.0])]
    [1, 10]
    """
    for noise in noises:
        mechanism = replace(plan.mechanism, noise_multiplier=noise)
        other = replace(plan, mechanism=mechanism)
        updates = {}
        for cap in caps:
            updates[cap] = replace(other, max_steps=mechanism.max_steps(cap, plan.delta, enough=plan.planned)).paid
        spent = None if plan.planned is None else mechanism.nominal_epsilon(plan.planned, plan.delta)
        yield Outlook(noise, noise * mechanism.clip, noise * _chi(mechanism.dimension), spent, updates)


def _chi(dimension: int) -> float:
    """Returns the expected norm of `dimension` standard normal numbers."""
    half = dimension / 2
    return math.sqrt(2) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half)) if dimension else 0.0
