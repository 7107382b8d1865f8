"""A regression whose collinear pair changes places in every round: a joint model for geweke.joint_test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkern.algorithms.gibbs import pooled as exchange
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sweeps import Values
from oracles.sparse_joint import Regression
from support import chosen
from support.sparse_protocol import PRIOR


class Exchanging(Regression):
    """Two columns of correlation about .95; the exchange stands where the server's other moves do."""

    n, q = (6, 8, 5), 3

    def __init__(self, **options):
        random = np.random.default_rng(4)
        X = [random.standard_normal((n, self.q)) for n in self.n]
        for X_k in X:
            X_k[:, 1] = 0.95 * X_k[:, 0] + 0.3 * X_k[:, 1]
        super().__init__(X=X, **options)

    def move(self, state, data, number, present):
        prior = {name: self.options[name] for name in PRIOR} | self.prior_options
        settings = chosen.gibbs(Layout(self.indicators[None]), chosen.prior(**prior), seed=self.seed)
        gram = np.stack([R.T @ R for R in self.R])
        score = np.stack([d.q @ R for d, R in zip(data, self.R)])[:, :, None]
        own = (a[:, None] for a in (state.theta, state.tau_sq, state.gamma, state.eta))
        values = Values(*own, state.rho, state.gamma[:, None])
        sigma_sq = state.local[0][..., None]
        before = exchange.State(values, state.deviation[:, :, None], state.lambda_sq[:, :, None], sigma_sq)
        after = self.exchanged(settings, exchange.Held(gram, score), before, number)
        values = after.values
        drawn = {name: getattr(values, name)[:, 0] for name in ("theta", "tau_sq", "gamma", "eta")}
        return replace(state, **drawn, deviation=after.deviation[:, :, 0], lambda_sq=after.lambda_sq[:, :, 0])

    def exchanged(self, settings, held, before, number):
        return exchange.exchange_pairs(settings, held, [(0, 1)], before, number)


class WithoutRatio(Exchanging):
    """Every swap is taken: the other half of its chains' draws are of the swapped scales whatever the data say."""

    def exchanged(self, settings, held, before, number):
        flat = exchange.integrated

        def equal(*args):
            return replace(flat(*args), log_m=0.0)

        exchange.integrated = equal
        try:
            return super().exchanged(settings, held, before, number)
        finally:
            exchange.integrated = flat


class WithoutRefit(Exchanging):
    """The right ratio, but the coefficients stay."""

    def exchanged(self, settings, held, before, number):
        after = super().exchanged(settings, held, before, number)
        return replace(after, values=after.values._replace(theta=before.values.theta), deviation=before.deviation)
