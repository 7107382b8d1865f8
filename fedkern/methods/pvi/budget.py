"""Computes the plans of a private job: each client's, or the federation's where whole clients are protected."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ...errors import JobError
from ...privacy.accountant import Mechanism, calibrate
from ...privacy.plan import Plan
from .keys import Spending

LEAST_UPDATES = 10  # of a client, for a posterior that contains the noise: fewer have not been tried


class Sizes(NamedTuple):
    """Holds the sizes of a job that a plan depends on: its numbers of coefficients and of clients."""

    coefficients: int
    clients: int


def plan(spending: Spending, client: str, sizes: Sizes) -> Plan:
    """Returns the plan of one client: its mechanism, its budget, and the steps that this pays for. Raises JobError: terms are
    missing for this client, no mechanism has these terms, or the budget does not pay for one update.

    Parameters
    ----------
    spending : the terms of the job, and the steps of one update
    client : its name
    sizes : numbers of coefficients and of clients
    """
    privacy, update, updates, with_noise = spending
    terms = privacy.of(client)
    if terms.epsilon is None or terms.delta is None or terms.clip is None:
        missing = next(name for name in ("epsilon", "delta", "clip") if getattr(terms, name) is None)
        raise JobError(f"privacy.{missing} is missing for client {client!r}; give it in [privacy] or [privacy.clients.{client}]")
    by_client = privacy.unit == "client"
    if by_client and terms.delta >= 1 / sizes.clients:
        raise JobError(
            f'privacy.delta = {terms.delta:g}: with {sizes.clients} clients and unit = "client" it must be below '
            f"1 / {sizes.clients}"
        )
    try:
        mechanism = Mechanism(
            sampling=("poisson" if privacy.client_rate < 1 else "full") if by_client else privacy.sampling,
            clip=terms.clip,
            dimension=2 * sizes.coefficients,
            noise_multiplier=terms.noise_multiplier,
            sampling_rate=(privacy.client_rate if privacy.client_rate < 1 else None) if by_client else terms.sampling_rate,
            batch_size=terms.batch_size,
            max_batch=terms.max_batch,
            dataset_size=terms.dataset_size,
            unit=privacy.unit,
            accountant=privacy.accountant,
            secure=privacy.noise_source == "secure",
        )
        # More noise makes each step cheaper: find the least noise with which all planned updates fit the budget.
        if privacy.calibrate:
            if updates is None:
                raise JobError("privacy.calibrate = true needs algorithm.updates_per_client with this schedule")
            mechanism = replace(mechanism, noise_multiplier=calibrate(mechanism, terms.epsilon, terms.delta, update * updates))
    except ValueError as error:
        raise JobError(f"client {client!r}: {error}") from None
    # Count the steps that the budget pays for; an infinite epsilon pays for any number.
    planned = None if updates is None else update * updates
    allowed = mechanism.max_steps(terms.epsilon, terms.delta, enough=planned) if terms.epsilon < math.inf else 2**53
    if allowed < update:
        raise JobError(
            f"client {client!r}: epsilon = {terms.epsilon:g} does not pay for one update of {update} steps; "
            "raise epsilon or noise_multiplier, or lower sampling_rate or local_steps"
        )
    made = Plan(mechanism, terms.epsilon, terms.delta, allowed, update, updates, shorten=privacy.last_update == "shorten")
    if with_noise and made.steps < LEAST_UPDATES * update:
        raise JobError(
            f'client {client!r}: algorithm.posterior = "noise-aware" needs at least {LEAST_UPDATES} updates, and has '
            f"{made.paid}; raise job.rounds, epsilon or noise_multiplier, or lower local_steps"
        )
    return made
