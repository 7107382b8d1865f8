"""Computes the budget of each client of a private vertical job, and draws its noise.

`algorithms.split.private` explains why that suffices.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...algorithms.split import private as private_split
from ...errors import JobError
from ...kernels import rng
from ...privacy.accountant import calibrate
from ...privacy.noise import KeyedSource, SecureSource, Source
from ...privacy.plan import Plan
from .model import VerticalModel


def plan(model: VerticalModel, client: str, n_columns: int) -> Plan:
    """Returns the plan of one client, for its columns. Raises JobError: the cap does not pay for the rounds of the job, or no
    mechanism has these terms."""
    privacy, rounds = model.privacy, model.settings.rounds
    (epsilon, delta), steps = privacy.cap(client), private_split.releases(rounds)
    try:
        m = private_split.mechanism(model.n_rows, n_columns, privacy.noise_multiplier, secure=privacy.noise_source == "secure")
        m = replace(m, accountant=privacy.accountant)
        if privacy.calibrate:
            m = replace(m, noise_multiplier=calibrate(m, epsilon, delta, steps))
    except ValueError as error:
        raise JobError(f"client {client!r}: {error}") from None
    allowed = m.max_steps(epsilon, delta, enough=steps) if epsilon < math.inf else 2**53
    plan = Plan(m, epsilon, delta, allowed, 2, rounds, first=1)
    if plan.steps < 2:
        raise JobError(
            f"client {client!r}: epsilon = {epsilon:g} does not pay for one round of two releases; raise epsilon or "
            "noise_multiplier"
        )
    return plan


def source(model: VerticalModel, client: int) -> Source:
    """Returns the source of a client's noise."""
    if model.privacy.noise_source == "secure":
        return SecureSource()
    return KeyedSource(rng.key(model.seed, "noise"), client)


def release(model: VerticalModel, client: int, plan: Plan) -> private_split.Release:
    """Returns how a client's noise is drawn: mechanism, clips, and source."""
    privacy = model.privacy
    return private_split.Release(plan.mechanism, privacy.clip_z, privacy.clip_gradient, source(model, client))
