"""Small vertical models of every kind, and the gradient of the whole ELBO as the parties make it out of messages.

`federated` is what the protocols do between two optimiser steps (vertical.md, sections 5 and 7), with the package's functions and
no transport; each of its `faults` is one of the slips of section 12.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedkern.models.split.site import Auxiliary, Likelihood, Linear, Multilevel, Network, Shared, Site

N, RHO = 24, 0.6
KINDS = ("av", "pl")
AUXILIARIES = ("mean-field", "amortised")
PREDICTORS = ("linear", "multilevel", "centred", "network")
LIKELIHOODS = {
    "bernoulli": Likelihood("bernoulli"),
    "poisson": Likelihood("poisson"),
    "negative-binomial": Likelihood("negative-binomial", 1.7),
    "gaussian": Likelihood("gaussian", 0.7),
    "dispersed": Likelihood("gaussian", None),
}


@dataclass(frozen=True)
class Case:
    """A model, where its parameters stand, and the normal numbers of one draw. `extra`: the networks' inputs beside g."""

    kind: str
    sites: list[Site]
    shared: Shared
    y: np.ndarray
    offset: np.ndarray
    extra: list[np.ndarray]
    parameters: list[np.ndarray]
    server: np.ndarray
    eps: list[np.ndarray]
    tau: list[np.ndarray]
    eps_server: np.ndarray

    @property
    def J(self):
        return len(self.sites)

    @property
    def n(self):
        return len(self.y)

    def with_noise(self, random):
        """The same with another draw."""
        noise = [[random.standard_normal(len(a)) for a in arrays] for arrays in (self.eps, self.tau)]
        return replace(self, eps=noise[0], tau=noise[1], eps_server=random.standard_normal(len(self.eps_server)))

    def with_path(self, path):
        """The same with the other estimator."""
        return replace(self, sites=[replace(s, path=path) for s in self.sites], shared=replace(self.shared, path=path))

    @cached_property
    def likelihood(self):
        return self.shared.likelihood


def predictor(kind, random, n, p):
    X = random.standard_normal((n, p))
    if kind == "linear":
        return Linear(X, prior_mean=0.2, prior_sd=1.3)
    if kind == "network":
        return Network(X, hidden=(5, 4), features=2)
    return Multilevel(X, random.integers(0, 3, n), 3, centred=kind == "centred")


def response(family, random, n):
    if family == "bernoulli":
        return random.integers(0, 2, n).astype(float)
    return random.poisson(3.0, n).astype(float) if family in ("poisson", "negative-binomial") else random.standard_normal(n)


def case(kind="av", auxiliary="mean-field", full=False, predictors="linear", likelihood="bernoulli", *, seed=0, n=N, rho=RHO,
         path=True, sizes=(2, 3, 2), hidden=(6, 5), intercept=True):  # fmt: skip
    """A model with random parameters, nowhere near an optimum."""
    random = np.random.default_rng(seed)
    kinds = [predictors] * len(sizes) if isinstance(predictors, str) else predictors
    chosen = LIKELIHOODS[likelihood] if isinstance(likelihood, str) else likelihood
    inputs = ("residual",) if kind == "av" else ("response", "residual")
    family = Auxiliary(auxiliary, rho, hidden, inputs if auxiliary == "amortised" else ())
    sites = [Site(predictor(k, random, n, p), family, full, path) for k, p in zip(kinds, sizes)]
    y = response(chosen.family, random, n)
    power_rho = rho if kind == "pl" and chosen.dispersed else None
    shared = Shared(chosen, n, len(sites), intercept, 1.4, path, power_rho)
    extra = [np.empty((n, len(family.inputs))) for _ in sites]
    for columns in extra:
        for e, name in enumerate(family.inputs):
            columns[:, e] = y if name == "response" else random.standard_normal(n)
    parameters = [0.3 * random.standard_normal(s.n_parameters) for s in sites]
    offset = 0.2 * random.standard_normal(n)
    server = 0.3 * random.standard_normal(shared.block.n_parameters)
    noise = [np.empty(s.predictor.n_theta) for s in sites], [np.empty(n) for _ in sites], np.empty(shared.block.size)
    empty = Case(kind, sites, shared, y, offset, extra, parameters, server, *noise)
    return empty.with_noise(random)


def draws(c, index=None):
    """Of all clients, and (b, log sigma) of the server."""
    rows = slice(None) if index is None else index
    drawn = [
        site.draw(p, eps, tau[rows], extra[rows], index)
        for site, p, eps, tau, extra in zip(c.sites, c.parameters, c.eps, c.tau, c.extra)
    ]
    return drawn, c.shared.block.sample(c.server, c.eps_server)


def federated(c, index=None, fault=None):
    """(gradient of each client's parameters, gradient of the server's), from one draw."""
    rows = slice(None) if index is None else index
    factor = 1.0 if index is None else c.n / len(index)
    drawn, values = draws(c, index)
    b, log_scale = c.shared.split(values)
    base, y = b + c.offset[rows], c.y[rows]
    Z = sum(d.z for d in drawn)
    if c.kind == "av":
        r, scales = c.shared.slope(y, base + Z, log_scale)
        messages, own, total = [r] * c.J, [None] * c.J, r
    else:
        share = 1 if fault == "no 1/J" else c.J
        each = [c.shared.slope(y, base + d.g + (Z if fault == "own z stays" else Z - d.z), log_scale) for d in drawn]
        own, scales = [r / share for r, _ in each], sum(s for _, s in each) / share
        total = sum(own)
        messages = [total - r for r in own]
    if fault == "fresh theta":
        random = np.random.default_rng(99)
        drawn = [redrawn(site, p, d, random) for site, p, d in zip(c.sites, c.parameters, drawn)]
    gradients = [
        site.gradient(p, d, message, r, factor) for site, p, d, message, r in zip(c.sites, c.parameters, drawn, messages, own)
    ]
    return gradients, c.shared.gradient(c.server, c.eps_server, values, factor * total.sum(), factor * scales)


def redrawn(site, parameters, drawn, random):
    """Section 12, item 3: z and tau of one theta with g and eps of another."""
    eps = random.standard_normal(len(drawn.eps))
    other = site.draw(parameters, eps, drawn.tau, drawn.extra, drawn.index)
    return replace(other, z=drawn.z)


def value(c):
    """log p(y, z, theta, b, gamma) - log q at the draw, of the package."""
    drawn, values = draws(c)
    b, log_scale = c.shared.split(values)
    base, Z = b + c.offset, sum(d.z for d in drawn)
    if c.kind == "av":
        fit = c.likelihood.value(c.y, base + Z, log_scale).sum()
    else:
        fit = sum(c.likelihood.value(c.y, base + d.g + Z - d.z, log_scale).sum() for d in drawn) / c.J
    own = sum(site.bound(p, d) for site, p, d in zip(c.sites, c.parameters, drawn))
    return fit + own + c.shared.bound(c.server, c.eps_server, values)
