"""Data sets of which the truth is drawn from a job's own prior, and where it stands in the posterior that the job finds: if jobs
are right, at a uniform share of the draws (Talts, Betancourt, Simpson, Vehtari and Gelman 2018).

A truth is a draw of the posterior given the data, so its share is uniform given the data too. The verdict follows from data and
seed alone: of the jobs that say "converged", or of those that do not refuse their data, shares are uniform as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import fedkern
from fedkern.arrays import Array
from fedkern.errors import JobError
from fedkern.results.weighted import WeightedDraws

OF_EFFECTS = {"kind": "half-normal", "sd": 1.0}  # the prior of their sd, of which truths are drawn
CENTRE = 0.5  # of the intercept's prior: its default is the response's level, which no truth can be drawn from


@dataclass(frozen=True)
class Kind:
    """A model whose truth is drawn."""

    family: str  # of the response
    # clients, rows: how many, and of each of them
    clients: int
    rows: int
    wards: int = 0  # groups of a client, each with an intercept; 0: none
    by_client: bool = False  # whether each client has an intercept of its own
    # the model's `prior_sd` and `intercept_sd`, which no rows widen; of counts narrow, for exp(15) is nobody's
    prior: dict[str, float] = field(default_factory=lambda: {"prior_sd": 2.5, "intercept_sd": 5.0})

    @property
    def model(self) -> dict[str, Any]:
        """The job's section."""
        random: dict[str, Any] = {"group": "ward"} if self.wards else {}
        random |= {"client": True} if self.by_client else {}
        own = {f"{level}_sd[intercept]": dict(OF_EFFECTS) for level in random}
        more = {"random": random, "priors": own} if random else {}
        return {"family": self.family, "intercept_centre": CENTRE, **self.prior, **more}


COUNTS = {"prior_sd": 0.7, "intercept_sd": 1.0}
KINDS = {
    "wards": Kind("bernoulli", clients=3, rows=36, wards=6),
    "client effects": Kind("poisson", clients=4, rows=20, by_client=True, prior=COUNTS),
    "dispersion": Kind("negative-binomial", clients=3, rows=24, prior=COUNTS),
}


def drawn(kind: Kind, rng: np.random.Generator) -> tuple[dict[str, float], dict[str, pd.DataFrame]]:
    """A truth, and the clients' rows."""
    slope, intercept = (kind.prior[name] * rng.normal() for name in ("prior_sd", "intercept_sd"))
    scale = float(np.abs(rng.normal()))  # of effects, or 1 / sqrt(r)
    truth = {"intercept_std": CENTRE + intercept, "theta_std[x]": slope}
    if kind.family == "negative-binomial":
        truth["dispersion"] = scale**2
    else:
        truth["group_sd[intercept]" if kind.wards else "client_sd[intercept]"] = scale
    X = rng.normal(10.0, 3.0, size=(kind.clients, kind.rows))
    Z = (X - X.mean()) / X.std()
    data = {}
    for k in range(kind.clients):
        ward = np.arange(kind.rows) % max(kind.wards, 1)
        effect = scale * (rng.normal(size=kind.wards)[ward] if kind.wards else rng.normal() if kind.by_client else 0.0)
        y = _responses(kind, truth["intercept_std"] + slope * Z[k] + effect, scale, rng)
        data[f"site {k}"] = pd.DataFrame({"x": X[k], **({"ward": [f"ward {g}" for g in ward]} if kind.wards else {}), "y": y})
    return truth, data


def _responses(kind: Kind, eta: Array, scale: float, rng: np.random.Generator) -> Array:
    if kind.family == "bernoulli":
        return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    frailty = rng.gamma(scale**-2, scale**2, len(eta)) if kind.family == "negative-binomial" else 1.0
    return rng.poisson(np.exp(eta) * frailty).astype(float)


@dataclass(frozen=True)
class Stands:
    """Where the truths of data sets stand."""

    shares: dict[str, Array]  # of each parameter the shares of draws below its truth, of the data sets that are judged right
    said: Counter[str]  # how many data sets had which verdict: its first word, or the error's


def stands(kind: Kind, seeds: range) -> Stands:
    """Of a data set for each seed, each fitted by a job with nothing set but its model."""
    shares: dict[str, list[float]] = {}
    said: Counter[str] = Counter()
    for seed in seeds:
        rng = np.random.default_rng([seed, *kind.family.encode()])
        truth, data = drawn(kind, rng)
        job = {"job": {"method": "likelihood", "seed": seed}, "data": {"response": "y", "least_rows": 1}, "model": kind.model}
        try:
            result = fedkern.run(job, data=data)
        except JobError as error:
            said[str(error)] += 1
            continue
        if result.summary["converged"] is not True:
            said[result.summary["verdict"]] += 1
            continue
        said["converged"] += 1
        for name, true in truth.items():
            released = result.posterior
            assert isinstance(released, WeightedDraws)
            draws, weights = released.values[name], released.weights
            shares.setdefault(name, []).append(float(weights @ (draws < true)))
    return Stands({name: np.array(found) for name, found in shares.items()}, said)
