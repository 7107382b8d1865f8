"""Vertical jobs in one process, and what the Gaussian oracle says of their results."""

from __future__ import annotations

import numpy as np

from fedkern.algorithms.split import machine as vertical
from fedkern.models.split.site import Auxiliary, Likelihood, Linear, Shared, Site
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol as in_process
from oracles.vertical_oracle import Model
from support import chosen
from support.vertical_cases import Case

MODELS = {"av": "augmented", "pl": "power"}


def gaussian(kind, *, n=19, sizes=(2, 1, 2), sigma=0.7, rho=0.5, seed=0):
    """Columns, and a response that depends on them; the server's intercept is in the model."""
    random = np.random.default_rng(seed)
    X = [random.standard_normal((n, p)) for p in sizes]
    y = 0.4 + np.hstack(X) @ random.standard_normal(sum(sizes)) + sigma * random.standard_normal(n)
    return Model(kind, X, y, sigma, rho, X0=np.ones((n, 1)))


def parties(m, auxiliary="mean-field", full=True, inputs=(), hidden=(16, 16), path=True):
    """Sites and the server's part of an oracle's model."""
    family = Auxiliary(auxiliary, m.rho, hidden, inputs)
    sites = [Site(Linear(x), family, full, path) for x in m.X]
    return sites, Shared(Likelihood("gaussian", m.sigma), m.n, m.J, path=path)


def settings(m, rounds, **changes):
    return chosen.split(seed=3, rounds=rounds, n_rows=m.n, n_clients=m.J, model=MODELS[m.kind], **changes)


def run(m, s, sites, shared, order=None, likelihood=None):
    """Last states of the server and of the clients."""
    everywhere = s.model == "power" or s.response == "shared"
    held = (m.y, likelihood or shared.likelihood) if everywhere else (None, None)
    names = tuple(f"c{k}" for k in range(m.J))
    here = {k: vertical.client(names[k], k, s, site, *held) for k, site in enumerate(sites)}
    start = vertical.start(s, shared, names, None if s.model == "power" else m.y)
    return in_process(vertical.protocol(s), start, here, Codec(s.dims(), m.J), order=order)


def fitted(m, server, clients):
    """Mean and a square root of the covariance of everything, in the oracle's order.

    Of families that are Gaussian: mean-field, and amortised ones whose network has no hidden layer (what it is told beside g is
    taken as it is).
    """
    joint = m.joint()
    mean, root = np.zeros(len(joint.mean)), np.zeros(joint.K.shape)
    mean[joint.server], sd = server.shared.block.moments(server.released)
    root[joint.server, joint.server] = np.diag(sd)
    for k, client in clients.items():
        site, parameters, theta, z = client.site, client.released, joint.theta[k], joint.z[k]
        part = parameters[site.parts["theta"]]
        L = site.block.scale(part)
        mean[theta], root[theta, theta] = part[: site.block.size], L if site.full else np.diag(L)
        if site.auxiliary.kind == "mean-field":
            mean[z], root[z, z] = parameters[site.parts["mean"]], np.diag(np.exp(parameters[site.parts["log_sd"]]))
            continue
        psi = parameters[site.parts["psi"]]
        W, bias = psi[:-2].reshape(2, -1), psi[-2:]
        np.testing.assert_allclose(W[1], 0, atol=0.1)  # else q is not Gaussian
        g = site.predictor.H @ mean[theta]
        inputs = np.column_stack([g, client.extra])
        mean[z] = g + inputs @ W[0] + bias[0]
        root[z, theta] = (1 + W[0, 0]) * site.predictor.H @ root[theta, theta]
        root[z, z] = np.diag(site.auxiliary.rho * np.exp(inputs @ W[1] + bias[1]))
    return joint, mean, root


def as_case(m, sites, shared, extra=None, parameters=None, server=None):
    """The same model for `vertical_cases.federated`; by default where jobs start."""
    return Case(
        m.kind,
        sites,
        shared,
        m.y,
        np.zeros(m.n),
        extra or [np.empty((m.n, 0)) for _ in sites],
        parameters or [site.initial(np.full(site.n_uniforms, 0.5), 0.3) for site in sites],
        shared.block.initial(0.0, 0.3) if server is None else server,
        [np.empty(site.predictor.n_theta) for site in sites],
        [np.empty(m.n) for _ in sites],
        np.empty(shared.block.size),
    )


def ended(m, server, clients):
    """A finished job as a case."""
    here = [clients[k] for k in range(m.J)]
    sites, extra = [c.site for c in here], [c.extra for c in here]
    return as_case(m, sites, server.shared, extra, [c.released for c in here], server.released)
