"""What dp-accounting computes of one step, kept for the next account of the same mechanism.

A search for the most steps asks for the epsilon of many counts of them. Each answer begins with the privacy losses of a single
step, which are the same and take most of the time. They depend on nothing but the arguments, and are not changed by what is
composed of them: their arrays are closed to writing here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fedkern.privacy import accountant

KEPT = 8  # mechanisms: a table of losses may have millions
FUNCTIONS = ("from_gaussian_mechanism", "from_truncated_subsampled_gaussian_mechanism")


def closed(of_one_step: Callable[..., Any]) -> Callable[..., Any]:
    """Losses as this function has them, whose arrays refuse to be changed."""

    def call(*arguments: Any, **named: Any) -> Any:
        losses = of_one_step(*arguments, **named)
        for pmf in (losses._pmf_remove, losses._pmf_add):
            if hasattr(pmf, "_probs"):
                pmf._probs.flags.writeable = False
        return losses

    return call


def keep() -> None:
    """From the first account on, as it is then that dp-accounting is imported."""
    make = accountant._accountant

    def made(kind: accountant.Accountant, relation: accountant.Relation) -> object:
        one = make(kind, relation)
        from dp_accounting.pld import privacy_loss_distribution as losses

        for name in FUNCTIONS:
            if not hasattr(getattr(losses, name), "cache_info"):
                setattr(losses, name, lru_cache(KEPT)(closed(getattr(losses, name))))
        return one

    accountant._accountant = made
