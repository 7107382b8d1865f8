"""What a run does beside computing: charges, ledgers, the count of the wire, checkpoints, metrics and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ..algorithms.messages import SERVER, Charge, Charged, ChargeFailed, Message, Saved
from .terms import Plan
from ..results.summary import Wire
from ..transports.driver import Frame, Hooks


class Cap:
    def __init__(self, plan):
        self.plan, self.spent = plan, 0

    def charge(self, c):
        if self.spent + c.steps > self.plan.max_steps:
            return ChargeFailed(c.steps, self.spent, self.plan.max_steps)
        self.spent += c.steps
        return Charged(c.steps)

    def certificate(self):
        p = self.plan
        m = p.mechanism
        return dict(
            epsilon=m.epsilon(self.spent, p.delta),
            epsilon_cap=p.epsilon,
            delta=p.delta,
            neighbours=m.neighbours,
            sampling=m.sampling,
            steps=self.spent,
            clip=m.clip,
            noise_multiplier=m.noise_multiplier,
        )


class RunHooks(Hooks):
    """The surroundings of one party of a run.

    Parameters
    ----------
    names : of the clients
    budgets : client number (or SERVER) -> its budget, for those that live here
    watch : called at the server with its state after every event
    """

    def __init__(self, names: tuple[str, ...], *, private: bool) -> None:
        self.names, self.private = names, private
        self.wire = Wire(names)
        self.budgets: dict[int, Cap] = {}
        self.watch: Callable[[Any], None] = lambda state: None

    def open_budget(self, party: int, plan: Plan) -> None:
        self.budgets[party] = Cap(plan)

    def certificate(self, party: int) -> dict[str, Any]:
        return self.budgets[party].certificate()

    def charge(self, client: int, charge: Charge) -> Charged | ChargeFailed:
        return self.budgets[client].charge(charge)

    def delivered(self, direction: str, client: int, n_bytes: int) -> None:
        self.wire.add(direction, client, n_bytes)

    def observe(self, state: Any, event: Any) -> None:
        self.watch(state)
