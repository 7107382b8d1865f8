"""Names the keys that job files of earlier versions had, each with what to do instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .keys import METHODS, Raw

LIKELIHOOD = 'remove it: method = "likelihood" has the exact posterior, and asks that'

# Method -> key, or key = value -> what to do instead.
KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "pvi": {
        "model.prior_precision": "give model.prior_sd = 1 / sqrt(prior_precision)",
        "model.site_intercepts": 'take method = "likelihood" with [model.random] client = true',
        "algorithm.variant = bcm-same": 'take "bcm-split"',
        "algorithm.optimiser_state": "remove it: a client keeps the state of its optimiser",
        "algorithm.max_staleness": "remove it: an answer counts however old it is",
        "output.reweigh": LIKELIHOOD,
        "output.loo": LIKELIHOOD,
    },
    "likelihood": {
        "model.prior_precision": "give model.prior_sd = 1 / sqrt(prior_precision)",
        "model.site_intercepts": "take [model.random] client = true",
    },
    "vertical": {
        "data.split_seed": "remove it, or choose one of data.folds",
        "algorithm.theta_update": "remove it: coefficients take the optimiser's steps",
        "algorithm.gradient_clip": "lower algorithm.learning_rate, or raise model.rho",
    },
    "sigma": {
        "data.interpolation": "remove it: a row goes to the nearest grid point; train the prior for the points of the data",
        "algorithm.local_covariance": "remove it: it is full for up to 64 latents of a client",
        "algorithm.gradient_draws": "remove it: a round has one draw",
        "algorithm.thin": "remove it: every draw is kept",
        "algorithm.step_size": "remove it: steps adapt during algorithm.burn_in",
        "algorithm.target_acceptance": "remove it: steps adapt to 0.8, and 0.57 with one leapfrog step",
    },
    "sparse": {"algorithm.topology": "remove it: every job has a server"},
}


def faults(raw: Raw) -> Iterator[str]:
    """Yields a sentence for each key of the job file that its method no longer has."""
    job = raw.get("job")
    method = job.get("method", METHODS[0]) if isinstance(job, Mapping) else METHODS[0]
    for entry, instead in KEYS.get(str(method), {}).items():
        key, _, value = entry.partition(" = ")
        inside: object = raw
        for name in key.split("."):
            inside = inside.get(name) if isinstance(inside, Mapping) else None
        if inside is not None and (not value or inside == value):
            yield f"{entry} is of an earlier version; {instead}"
