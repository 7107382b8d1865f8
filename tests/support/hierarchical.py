"""Hierarchical models for the tests of structured federated inference: a linear-Gaussian one whose posterior is known, and runs
of small federations without any transport."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.models.likelihood import Likelihood
from support.federations import play
from support.mixed_model import MixedModel, MixedPrior


@dataclass(frozen=True)
class Linear:
    """y = X xi + W u + N(0, sd), u ~ N(M xi, I)."""

    X: np.ndarray
    W: np.ndarray
    M: np.ndarray
    y: np.ndarray
    sd: float = 0.6

    @property
    def n_global(self):
        return self.X.shape[1]

    @property
    def size(self):
        return self.W.shape[1]

    def log_joint_grad(self, xi, u):
        r, v = (self.y - self.X @ xi - self.W @ u) / self.sd, u - self.M @ xi
        value = -0.5 * (r @ r + v @ v + (len(r) + len(v)) * np.log(2 * np.pi)) - len(r) * np.log(self.sd)
        return value, self.X.T @ r / self.sd + self.M.T @ v, self.W.T @ r / self.sd - v


@dataclass(frozen=True)
class Standard:
    """xi ~ N(0, I)."""

    size: int

    def log_prior_grad(self, xi):
        return -0.5 * (xi @ xi + len(xi) * np.log(2 * np.pi)), -xi


def linear(sizes, n_global=3, n=12, seed=0):
    """Clients with `sizes` local unknowns each."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(n_global)
    models = []
    for d in sizes:
        X, W, M = rng.standard_normal((n, n_global)), rng.standard_normal((n, d)), 0.5 * rng.standard_normal((d, n_global))
        models.append(Linear(X, W, M, X @ truth + W @ rng.standard_normal(d) + 0.6 * rng.standard_normal(n)))
    return models


def exact(models):
    """Mean and covariance of (xi, u_1, u_2, ...) given all y."""
    P, d = models[0].n_global, sum(m.size for m in models)
    precision, shift, at = np.eye(P + d), np.zeros(P + d), P
    for m in models:
        place = np.r_[0:P, at : at + m.size]
        A = np.hstack([m.X, m.W]) / m.sd
        prior = np.hstack([-m.M, np.eye(m.size)])
        own = A.T @ A + prior.T @ prior
        own[P:, P:] -= np.eye(m.size)  # counted above
        precision[np.ix_(place, place)] += own
        shift[place] += A.T @ m.y / m.sd
        at += m.size
    covariance = np.linalg.inv(precision)
    return covariance @ shift, covariance


def joint(server, clients):
    """Mean and covariance of (xi, u_1, u_2, ...) under q."""
    mu, S = sfvi.posterior_moments(server)
    S = S if S.ndim == 2 else np.diag(S**2)
    means, A, D = [mu], [np.eye(len(mu))], [np.zeros((len(mu), len(mu)))]
    for k in sorted(clients):
        c = clients[k]
        B = c.family.coupling(c.parameters)
        mean, own = c.family.block.moments(c.family.given(c.parameters, mu - c.centre))
        means.append(mean)
        A.append(B)
        D.append(own if own.ndim == 2 else np.diag(own**2))
    A = np.vstack(A)
    covariance = A @ S @ A.T
    at = 0
    for own in D:
        covariance[at : at + len(own), at : at + len(own)] += own
        at += len(own)
    return np.concatenate(means), covariance


def kl(a, b):
    """KL(N(a) || N(b)) of two pairs (mean, covariance)."""
    (m0, S0), (m1, S1) = a, b
    solved = np.linalg.solve(S1, S0)
    d = m1 - m0
    return 0.5 * (np.trace(solved) + d @ np.linalg.solve(S1, d) - len(d) - np.linalg.slogdet(solved)[1])


def mixed(family, clients=3, groups=4, per_group=5, seed=0, scale=1.0, centred=False):
    """Clients of a mixed model with `groups` groups each."""
    rng = np.random.default_rng(seed)
    beta, models = np.array([0.3, -0.8]), []
    for _ in range(clients):
        group = np.repeat(np.arange(groups), per_group)
        X = np.column_stack([np.ones(len(group)), rng.standard_normal(len(group))])
        eta = X @ beta + 0.7 * rng.standard_normal(groups)[group]
        y = {
            "bernoulli": lambda eta=eta: (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float),
            "poisson": lambda eta=eta: rng.poisson(np.exp(eta)).astype(float),
            "gaussian": lambda eta=eta: eta + 0.5 * rng.standard_normal(len(eta)),
        }[family]()
        models.append(MixedModel(X, y, group, groups, Likelihood(family, scale), 0.1 * rng.standard_normal(len(y)), centred))
    return models


def pooled(models):
    """The same rows and groups at one client."""
    shifts = np.cumsum([0, *(m.n_groups for m in models)])
    group = np.concatenate([m.group + s for m, s in zip(models, shifts)])
    X, y, offset = (np.concatenate([getattr(m, name) for m in models]) for name in ("X", "y", "offset"))
    return MixedModel(X, y, group, int(shifts[-1]), models[0].likelihood, offset, models[0].centred)


def prior_of(model):
    if isinstance(model, MixedModel):
        return MixedPrior(model.X.shape[1], dispersed=model.likelihood.dispersed)
    return Standard(model.n_global)


def machines(models, settings, prior=None):
    """The server's start and the clients."""
    prior, J = prior or prior_of(models[0]), len(models)
    clients = {k: sfvi.client(f"c{k}", k, settings, m, J, prior) for k, m in enumerate(models)}
    return sfvi.start(settings, prior, tuple(c.name for c in clients.values())), clients


def run(models, settings, order=None, prior=None):
    started, clients = machines(models, settings, prior)
    return play(sfvi, started, clients, order)
