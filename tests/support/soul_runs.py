"""Federations for the tests of SOUL: three clients with 2, 1 and 2 columns of 40 rows (docs/spec/vertical.md, section 3)."""

from __future__ import annotations

import numpy as np

from fedkern.algorithms import soul
from fedkern.models.likelihood import Likelihood
from fedkern.models.split.predictors import Linear
from support import chosen
from support.federations import play

FORMS = (("augmented", "server"), ("augmented", "shared"), ("power", "shared"))
NAMES = ("a", "b", "c")


def data(family="gaussian", n=40, sizes=(2, 1, 2), seed=0, sd=0.7):
    """Columns of each client, and y."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, p)) for p in sizes]
    eta = sum(x @ (0.8 * rng.standard_normal(x.shape[1])) for x in X)
    if family == "bernoulli":
        return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return X, rng.poisson(np.exp(0.5 * eta + 1)).astype(float)
    return X, eta + sd * rng.standard_normal(n)


def machines(X, y, form, rho, family="gaussian", scale=0.7, *, intercept=False, offset=None, **changes):
    """Settings, the server's start and the clients."""
    likelihood = Likelihood(family, scale)
    values = {"seed": 1, "rounds": 1500, "langevin_steps": 20, "dispersed": likelihood.dispersed} | changes
    s = chosen.soul(n_rows=len(y), n_clients=len(X), rho=rho, model=form[0], response=form[1], **values)
    told = (y, likelihood) if form[1] == "shared" else (None, None)
    clients = {j: soul.client(NAMES[j], j, s, Linear(x), *told) for j, x in enumerate(X)}
    at_server = None if form[0] == "power" else y
    return s, soul.start(s, likelihood, NAMES[: len(X)], at_server, offset, intercept), clients


def run(X, y, form, rho, *, order=None, **options):
    _, started, clients = machines(X, y, form, rho, **options)
    return play(soul, started, clients, order)
