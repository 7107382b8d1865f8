"""Small maps and processes for nested Laplace approximations: clients, and exact posteriors of Gaussian responses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fedkern.algorithms.nested import machine as nested
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, GpPrior, MixedPrior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior
from fedkern.models.spatial.standard import Standard
from fedkern.models.spatial.within_site import WithinSite
from support.federations import play
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
LENGTH = Condition("lengthscale", 0.5, 3.0, "log-unit")


@dataclass(frozen=True)
class Case:
    """A tied prior, its condition, and rows of all areas in turn."""

    tied: factors.Tied
    condition: Condition
    family: str
    y: np.ndarray
    offset: np.ndarray
    sd: float | None = None
    level_sd: float = 5.0

    @property
    def layout(self):
        known = self.family != "gaussian" or self.sd is not None
        return Layout(self.condition.free, self.tied.clients[0].n_latents, dispersed=not known)

    @property
    def prior(self):
        return Standard(SigmaPrior(self.layout, self.condition, self.level_sd))

    @property
    def likelihood(self):
        return Likelihood(self.family, self.sd if self.family == "gaussian" else 1.0)

    def sites(self, *, integrated=True):
        out, at = [], 0
        for own in self.tied.clients:
            one = slice(at, at + own.size)
            rows = Rows(self.y[one], np.arange(own.size), np.zeros((own.size, 0)), self.offset[one])
            out.append(WithinSite(own, self.condition, self.layout, self.likelihood, rows, integrated))
            at += own.size
        return out


def tied(kind, side, sizes, latents=None, seed=0):
    """Of a square of areas, or of a Gaussian process at random places."""
    names = tuple(str(k) for k in range(len(sizes)))
    if kind == "gp":
        places = 5 * np.random.default_rng(seed).random((sum(sizes), 2))
        places = places[np.argsort(places[:, 0])]
        prior, condition = GpPrior(places, LENGTH), LENGTH
    elif kind == "bym2":
        none = Condition("none", 0.0, 0.0)
        prior = MixedPrior(AreaPrior(*grid(side), none, "bym2"))
        condition = prior.condition
    else:
        prior, condition = AreaPrior(*grid(side), PHI), PHI
    return factors.tie(prior, sizes, names, n_latents=latents), condition


def covariance(clients, condition, phi):
    """(n, n) of theta, as the ties have it."""
    ties = [own.ties(np.array([phi])) for own in clients]
    A = [own.loadings(tie) for own, tie in zip(clients, ties)]
    S = np.concatenate(A) @ np.concatenate(A).T
    at = 0
    for own, tie in zip(clients, ties):
        S[at : at + own.size, at : at + own.size] = own.covariance(tie)
        at += own.size
    return S


def simulated(kind, side, sizes, family, seed, *, sd=None, latents=None, made=None, truth=None, level_sd=5.0):
    """Rows drawn from the prior, or at truth (intercept, phi, sigma_theta); what they were drawn with."""
    rng = np.random.default_rng(seed)
    tie, condition = tied(kind, side, sizes, latents) if made is None else made
    drawn = (level_sd * rng.standard_normal(), float(condition.quantile(rng.random(1))[0]), abs(rng.standard_normal()))
    level, phi, scale = drawn if truth is None else truth
    S = covariance(tie.clients, condition, phi)
    theta = np.linalg.cholesky(S + 1e-10 * np.eye(len(S))) @ rng.standard_normal(len(S))
    eta = level + scale * theta
    offset = np.zeros(len(S)) if family == "gaussian" else rng.normal(1.0, 0.7, len(S))
    if family == "gaussian":
        y = eta + (0.5 if sd is None else sd) * rng.standard_normal(len(S))
    else:
        y = rng.poisson(np.exp(offset + eta)).astype(float)
    case = Case(tie, condition, family, y, offset, sd, level_sd)
    return case, {"intercept": level, "phi": phi, "sigma_theta": scale, "theta": theta}


def fitted(case, *, sites=None, **settings):
    """The server and the clients at the end."""
    sites = case.sites() if sites is None else sites
    s = nested.Settings(rounds=1000, seed=1, **settings)
    names = tuple(str(k) for k in range(len(sites)))
    clients = {k: nested.client(names[k], k, s, site, case.prior.n_linear) for k, site in enumerate(sites)}
    return play(nested.PROTOCOL, nested.start(s, case.prior, names), clients)


def named(case, xi):
    """(N,) of each: draws of what is looked at."""
    parts = case.layout.parts
    out = {"intercept": xi[:, parts["intercept"].start], "sigma_theta": np.exp(xi[:, parts["log_scale"].start])}
    if case.layout.dispersed:
        out["sigma"] = np.exp(xi[:, -1])
    return out | ({"phi": case.condition.at(xi[:, 0])[0]} if case.layout.free else {})


def moments(case, found):
    """Name -> mean and sd, by the weights."""
    w = found.posterior.weights
    values = named(case, found.posterior.draws)
    return {name: (w @ x, float(np.sqrt(w @ (x - w @ x) ** 2))) for name, x in values.items()}


def exact(case, nodes=61):
    """The same of a Gaussian response, by quadrature over all hyperparameters; z is integrated out with theta."""
    prior, n = case.prior, len(case.y)
    v = np.linspace(-4.5, 4.5, nodes)
    several = np.stack(np.meshgrid(*[v] * prior.n_hyper, indexing="ij"), axis=-1).reshape(-1, prior.n_hyper)
    xi = prior.xi(several, np.zeros((len(several), prior.n_linear)))
    values = named(case, xi)
    value, mean, variance = np.empty(len(xi)), np.empty(len(xi)), np.empty(len(xi))
    kept = {}
    for k in range(len(xi)):
        phi = float(values["phi"][k]) if "phi" in values else 0.0
        if phi not in kept:
            kept[phi] = covariance(case.tied.clients, case.condition, phi)
        sd = float(values["sigma"][k]) if "sigma" in values else case.sd
        C = values["sigma_theta"][k] ** 2 * kept[phi] + sd**2 * np.eye(n)
        factor = cho_factor(C, lower=True)
        one, r = np.ones(n), case.y - case.offset
        solved = cho_solve(factor, np.stack([one, r], axis=1))
        precision = one @ solved[:, 0] + case.level_sd**-2
        mean[k], variance[k] = (one @ solved[:, 1]) / precision, 1 / precision
        value[k] = -np.log(np.diag(factor[0])).sum() - 0.5 * np.log(precision)
        value[k] += 0.5 * (mean[k] ** 2 * precision - r @ solved[:, 1])
    log_weight = value + prior.values(xi)[0] + prior.log_jacobian(several)
    w = np.exp(log_weight - log_weight.max())
    w /= w.sum()
    out = {"intercept": (w @ mean, float(np.sqrt(w @ (variance + mean**2) - (w @ mean) ** 2)))}
    for name in ("phi", "sigma_theta", "sigma"):
        if name in values:
            x = values[name]
            out[name] = (w @ x, float(np.sqrt(w @ (x - w @ x) ** 2)))
    return out
