"""Runs of federated Hamiltonian Monte Carlo without any transport, and a model for joint tests of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from fedkern.algorithms.core.messages import SERVER
from fedkern.algorithms.hmc import machine as hmc
from support import chosen
from support import hierarchical as h
from support.federations import play

SHORT = chosen.hmc(draws=5, warmup=40, chains=2, leapfrog=3)


def machines(models, settings, prior=None, xi=None, u=None):
    """The server's start and the clients, from scattered start values where none are given."""
    prior = prior or h.prior_of(models[0])
    xi = settings.starts(SERVER, prior.size, sd=0.5) if xi is None else xi
    clients = {}
    for k, model in enumerate(models):
        at = settings.starts(k, model.size, sd=0.5) if u is None else u[k]
        clients[k] = hmc.client(f"c{k}", k, settings, model, at)
    return hmc.start(settings, prior, tuple(c.name for c in clients.values()), xi), clients


def run(models, settings, order=None, prior=None, **starts):
    started, clients = machines(models, settings, prior, **starts)
    return play(hmc, started, clients, order)


def together(server, clients):
    """(c, t, P + sum d) All draws, the server's first."""
    return np.concatenate([hmc.draws(server), *(hmc.local_draws(clients[k]) for k in sorted(clients))], axis=2)


def z_scores(values, mean, error=0.0):
    """How far the means of (c, t, k) values are from `mean`; errors: the spread between chains, whatever their memory.

    Student's t as normal deviates of the same probability. `error` is that of `mean` itself.
    """
    by_chain = values.mean(axis=1)
    own = by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain))
    t = (by_chain.mean(axis=0) - mean) / np.hypot(own, error)
    return np.sign(t) * stats.norm.isf(stats.t.sf(np.abs(t), len(by_chain) - 1))


class SideBySide(h.Linear):
    """The linear model for all chains in one call."""

    def log_joint_grads(self, xi, u):
        r, v = (self.y - xi @ self.X.T - u @ self.W.T) / self.sd, u - xi @ self.M.T
        value = -0.5 * ((r**2).sum(axis=1) + (v**2).sum(axis=1))
        return value, r @ self.X / self.sd + v @ self.M, r @ self.W / self.sd - v


def side_by_side(models):
    return [SideBySide(**vars(m)) for m in models]


# Joint tests: every chain has data of its own --------------------

SD, INTO = 0.7, 0.8


@dataclass(frozen=True)
class Rows:
    """y_i ~ N(a + exp(b) u_i, SD), u_i ~ N(INTO a, 1), xi = (a, b): (c, n) rows, those of each chain."""

    y: np.ndarray
    n_global: int = 2

    @property
    def size(self):
        return self.y.shape[1]

    def log_joint_grads(self, xi, u):
        a, tau = xi[:, :1], np.exp(xi[:, 1:])
        r, v = (self.y - a - tau * u) / SD, u - INTO * a
        value = -0.5 * ((r**2).sum(axis=1) + (v**2).sum(axis=1))
        g_a, g_b = r.sum(axis=1) / SD + INTO * v.sum(axis=1), (r * tau * u).sum(axis=1) / SD
        return value, np.column_stack([g_a, g_b]), tau * r / SD - v


@dataclass(frozen=True)
class Normals:
    """a ~ N(0, 1), tau = exp(b) ~ HalfNormal(1): b has the density of the logarithm, Jacobian included."""

    size: int = 2
    jacobian: float = 1.0

    def log_prior_grad(self, xi):
        a, b = xi
        return -0.5 * a**2 - 0.5 * np.exp(2 * b) + self.jacobian * b, np.array([-a, self.jacobian - np.exp(2 * b)])


class Joint:
    """For `geweke.joint_test`: two clients with three rows each; one round is two trajectories of the real machines."""

    def __init__(self, seed, leapfrog, step, prior=None):
        self.settings = chosen.hmc(draws=2, warmup=0, leapfrog=leapfrog, step=step, seed=seed)
        self.drawn, self.prior_used = 0, prior or Normals()

    def prior(self, rng, n):
        a, b = rng.standard_normal(n), np.log(np.abs(rng.standard_normal(n)))
        return {"xi": np.column_stack([a, b]), "u": [INTO * a[:, None] + rng.standard_normal((n, 3)) for _ in range(2)]}

    def simulate(self, rng, state):
        a, tau = state["xi"][:, :1], np.exp(state["xi"][:, 1:])
        return [a + tau * u + SD * rng.standard_normal(u.shape) for u in state["u"]]

    def round(self, state, data, number):
        s = replace(self.settings, chains=len(state["xi"]), seed=self.settings.seed * 10_000 + number)
        models = [Rows(y) for y in data]
        server, clients = run(models, s, prior=self.prior_used, xi=state["xi"], u=state["u"])
        return {"xi": hmc.draws(server)[:, 1], "u": [hmc.local_draws(clients[k])[:, 1] for k in sorted(clients)]}

    def functions(self, state, data):
        (a, b), (u, w), (y, x) = state["xi"].T, state["u"], data
        squares = {"u^2": u**2, "w^2": w**2, "y^2": y**2, "u y": u * y}
        return {
            "a": a, "a^2": a**2, "b": b, "b^2": b**2, "a b": a * b, "tau": np.exp(b), "u": u[:, 0], "u w": u[:, 0] * w[:, 0],
            "u v": u[:, 0] * u[:, 1], "y": y[:, 0], "a u": a * u[:, 0], "a y": a * y[:, 0], "y x": y[:, 0] * x[:, 0],
        } | {name: value.mean(axis=1) for name, value in squares.items()}  # fmt: skip
