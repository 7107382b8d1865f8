"""What a job will spend of a budget, before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from fedkern.errors import JobError

from .accountant import Mechanism


@dataclass(frozen=True)
class Plan:
    """What one client (or, for unit "client", the server) may spend in a job.

    Attributes
    ----------
    mechanism, epsilon, delta : its noise and its cap
    max_steps : the largest number of accounted steps within the cap
    update : accounted steps of one update
    updates : planned, None if only the budget ends the job
    first : those of the first update that are accounted at the start; of every later one as many with the update before it
    """

    mechanism: Mechanism
    epsilon: float
    delta: float
    max_steps: int
    update: int
    updates: int | None
    first: int = 0

    @property
    def steps(self) -> int:
        """Steps after all rounds, or until the budget is spent."""
        if self.planned is not None and self.planned <= self.max_steps:
            return self.planned
        return self.first + (self.max_steps - self.first) // self.update * self.update

    @property
    def planned(self) -> int | None:
        """Steps of all rounds; None if only the budget ends the job."""
        return None if self.updates is None else self.updates * self.update

    @property
    def spent(self) -> float:
        """Epsilon after all rounds (as if the noise were secure)."""
        return self.mechanism.nominal_epsilon(self.steps, self.delta) if self.steps else 0.0

    def check_size(self, client: str, n_rows: int) -> None:
        """JobError, before anything is charged, where a number of rows is declared as public and is another; it is not told."""
        if self.mechanism.dataset_size not in (None, n_rows):
            raise JobError(
                f"client {client!r}: privacy.dataset_size = {self.mechanism.dataset_size} is not its number of rows; give the "
                f'number of each client in [privacy.clients], or take sampling = "poisson", which needs none'
            )
