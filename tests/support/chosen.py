"""Settings of machines for tests that care for a few of them. What is given stands in the place of what is chosen here.

The classes have no defaults: in a job all of these numbers come from its keys, and those here are of no job.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from fedkern.algorithms import soul as of_soul
from fedkern.algorithms.gibbs import settings as of_gibbs
from fedkern.algorithms.hmc import moves as of_hmc
from fedkern.algorithms.importance import settings as of_importance
from fedkern.algorithms.pvi import messages as of_pvi
from fedkern.algorithms.sfvi import machine as of_sfvi
from fedkern.algorithms.split import messages as of_split
from fedkern.algorithms.training import training as of_training

S = TypeVar("S")


def _made(kind: Callable[..., S], **numbers: Any) -> Callable[..., S]:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def made(*given: Any, **changes: Any) -> S:
        return kind(**(numbers | dict(zip(names, given)) | changes))

    return made


pvi = _made(
    of_pvi.Settings, family="bernoulli", scale=1.0, covariance="diagonal", variant="pvi", schedule="sequential", rounds=100,
    client_weights=(), local_steps=25, optimiser="adagrad", learning_rate=0.5, estimator="analytic",
    draws=1, batch_rate=1.0, damping=1.0, damping_form="natural", average="none", shards=1, updates_per_client=None, lead=None,
    seed=0, by_client=False, until=False, learn_scale=False,
)  # fmt: skip
prior = _made(
    of_gibbs.Prior, c0=0.01, spike_variance=0.0, eta_form="common", shape_eta=2.0, rate_eta=1.0, rho_a=1.0, rho_b=1.0,
    shape_sigma=2.0, rate_sigma=1.0, scale_lambda=1.0, scale_tau=1.0, slab=math.inf, shared_rho=False,
)  # fmt: skip
gibbs = _made(
    of_gibbs.Settings, prior=prior(), seed=0, chains=4, rounds=2500, burn_in=500, thin=1, local_sweeps=1, server_sweeps=5,
    scales="exact", draw="auto", order="blocked", moves=(), block=(), second_every=2, exchange=False, starts="included",
    participation=1.0, aggregate="locals", share_local=False, on_loss="stop", tempering=1,
)  # fmt: skip
hmc = _made(of_hmc.Settings, draws=1000, warmup=1000, chains=4, leapfrog=10, step=0.1, seed=0)
importance = _made(
    of_importance.Settings, points=1024, effective=500, rounds=8, starts=1, nodes=1, most_nodes=1, told=20, seed=0,
    rounds_messages=False,
)  # fmt: skip
sfvi = _made(
    of_sfvi.Settings, rounds=10_000, most=0, covariance="full", local_covariance="auto", coupled=True, draws=1, path=True,
    optimiser="adam", learning_rate=0.01, decay=0.5, initial_sd=0.1, bound=False, sheared=False, local_steps=0, seed=0, lead=0,
)  # fmt: skip
split = _made(
    of_split.Settings, most=0, model="augmented", response="server", draws=1, batch=None, local_steps=1, curvature=None,
    optimiser="adam", learning_rate=0.01, cool_down=0.0, memory=0.9, average="none", bound=False,
    bound_every=1, dispersed=False, private=False, lead=0,
)  # fmt: skip
soul = _made(of_soul.Settings, model="augmented", response="server", langevin_steps=20, keep=1000, dispersed=False)
training = _made(
    of_training.Settings, steps=20_000, batch=32, learning_rate=1e-3, decay=0.4, warmup=0.1, clip=1e3, gamma=0.5,
    learn_gamma=False, seed=1, precision="float32", refresh=0, chunk=100, threads=1,
)  # fmt: skip
