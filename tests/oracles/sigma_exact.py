"""Federations with a trained-looking prior whose decoders are linear, and their exact posteriors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.decoder import Decoder
from fedkern.models.spatial.site import Auxiliary, Layout, Rows, SigmaPrior, Site
from support import sigma_cases as cases

FREE = Condition("phi", cases.LO, cases.HI, "unit", Hyperprior("logit-normal", 0.0, 2.0))
FIXED = replace(FREE, fixed=0.6)


def sites(*, condition=FIXED, sd=0.5, tau2=None, sampled=False, d=(4, 3, 5), n=(9, 6, 8), seed=0):
    """Clients with Gaussian rows; tau2 (a number) makes the auxiliary model, with theta integrated out or `sampled`."""
    rng, out = np.random.default_rng(seed), []
    layout = Layout(condition.free, cases.P_G, intercept=True, n_beta=1, scaled=False)
    weights = rng.normal(0, 0.7, cases.sizes("multiplicative")["decoder_weights"])
    truth = rng.normal(size=cases.P_G)
    for size, rows in zip(d, n):
        parts = {"decoder_weights": weights, "decoder": rng.normal(0, 0.4, cases.sizes("multiplicative", size)["decoder"])}
        scale = rng.uniform(0.5, 1.5, size)
        decoder = Decoder(cases.architecture("multiplicative", size), parts, scale)
        area = rng.integers(0, size, rows)
        X, offset = rng.normal(size=(rows, 1)), rng.normal(0, 0.3, rows)
        theta = decoder.hat(truth[None], rng.normal(size=(1, cases.P_L)), condition.network(np.array([[0.6]]))).theta[0]
        theta = theta + np.sqrt(tau2 or 0.0) * rng.normal(size=size)
        y = offset + theta[area] + sd * rng.normal(size=rows)
        auxiliary = None if tau2 is None else Auxiliary(np.full((1, size), tau2))
        integrated = auxiliary is not None and not sampled
        out.append(Site(decoder, condition, layout, Likelihood("gaussian", sd), Rows(y, area, X, offset), auxiliary, integrated))
    return out, SigmaPrior(layout, condition)


def linear_parts(site, phi):
    """(n, P) and (n, p_L): E[y | z, u, b, beta, phi] = offset + X xi + W u; and the covariance (n, n) of y given these."""
    t, zero = site.condition.network(np.array([[phi]])), np.zeros((1, cases.P_L))
    by_z = np.array([site.decoder.hat(e[None], zero, t).theta[0] for e in np.eye(cases.P_G)]).T
    by_u = np.array([site.decoder.hat(np.zeros((1, cases.P_G)), e[None], t).theta[0] for e in np.eye(cases.P_L)]).T
    rows, layout = site.rows, site.layout
    X = np.zeros((len(rows.y), layout.size))
    X[:, layout.parts["z"]] = by_z[rows.area]
    X[:, layout.parts["intercept"]] = 1
    X[:, layout.parts["beta"]] = rows.X
    A = np.eye(site.decoder.size)[rows.area]
    cov = site.likelihood.sd() ** 2 * np.eye(len(A))
    if site.auxiliary is not None:
        cov = cov + A @ np.diag(site.auxiliary.at(np.array([phi]))[0][0]) @ A.T
    return X, by_u[rows.area], cov


def given_phi(models, prior, phi):
    """log p(y | phi), and the mean and covariance of (xi without x_phi, u_1, u_2, ..) given y and phi."""
    at = int(prior.layout.free)
    P, d = prior.size - at, sum(m.decoder.n_local for m in models)
    sd0 = np.ones(P + d)
    sd0[cases.P_G : P] = prior.coefficient_sd
    precision, shift, value, here = np.diag(sd0**-2.0), np.zeros(P + d), -np.log(sd0).sum(), P
    for m in models:
        X, W, cov = linear_parts(m, phi)
        G = np.zeros((len(X), P + d))
        G[:, :P], G[:, here : here + m.decoder.n_local] = X[:, at:], W
        r, inverse = m.rows.y - m.rows.offset, np.linalg.inv(cov)
        precision += G.T @ inverse @ G
        shift += G.T @ inverse @ r
        value -= 0.5 * (r @ inverse @ r + np.linalg.slogdet(2 * np.pi * cov)[1])
        here += m.decoder.n_local
    covariance = np.linalg.inv(precision)
    mean = covariance @ shift
    value += 0.5 * shift @ mean - 0.5 * np.linalg.slogdet(precision)[1]
    return value, mean, covariance


def over_phi(models, prior, n=400):
    """Mean and covariance of (xi, u_1, u_2, ..) given y, x_phi by quadrature over logit phi (its normal prior truncated)."""
    lo, hi = prior.condition.lo, prior.condition.hi
    nodes, weight = np.polynomial.legendre.leggauss(n)
    a, b = np.log(lo / (1 - lo)), np.log(hi / (1 - hi))
    logit = a + (b - a) * (nodes + 1) / 2
    phi = 1 / (1 + np.exp(-logit))
    x = np.log((phi - lo) / (hi - phi))
    variance = prior.condition.hyperprior.variance
    found = [given_phi(models, prior, p) for p in phi]
    logs = np.array([value for value, _, _ in found]) - 0.5 * logit**2 / variance + np.log(weight)
    w = np.exp(logs - logs.max())
    w = w / w.sum()
    means = np.column_stack([x, [mean for _, mean, _ in found]])
    mean = w @ means
    off = means - mean
    covariance = (w[:, None] * off).T @ off
    covariance[1:, 1:] += np.einsum("g,gij->ij", w, np.array([c for _, _, c in found]))
    return mean, covariance


def counts(expected=20.0, d=(12, 9, 14), tau2=0.2, seed=0):
    """Clients with one count an area, a covariate and an unknown scale of theta; theta is sampled."""
    rng, out = np.random.default_rng(seed), []
    layout = Layout(True, cases.P_G, intercept=True, n_beta=1, scaled=True)
    weights = rng.normal(0, 0.7, cases.sizes("multiplicative")["decoder_weights"])
    z, t = rng.normal(size=(1, cases.P_G)), FREE.network(np.array([[0.7]]))
    for size in d:
        parts = {"decoder_weights": weights, "decoder": rng.normal(0, 0.25, cases.sizes("multiplicative", size)["decoder"])}
        scale = rng.uniform(0.7, 1.3, size)
        decoder = Decoder(cases.architecture("multiplicative", size), parts, scale)
        theta = decoder.hat(z, rng.normal(size=(1, cases.P_L)), t).theta[0] + np.sqrt(tau2) * rng.normal(size=size)
        X, offset = rng.normal(size=(size, 1)), np.log(expected) + rng.normal(0, 0.3, size)
        y = rng.poisson(np.exp(offset - 0.3 + 0.3 * X[:, 0] + 0.6 * theta)).astype(float)
        rows, auxiliary = Rows(y, np.arange(size), X, offset), Auxiliary(np.full((1, size), tau2))
        out.append(Site(decoder, FREE, layout, Likelihood("poisson"), rows, auxiliary))
    return out, SigmaPrior(layout, FREE)
