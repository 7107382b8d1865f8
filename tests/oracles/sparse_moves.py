"""Logistic and imputed sites whose server moves their coefficients along: joint models for geweke.joint_test.

The terms of a move are those of the package's own sites; a site takes the data of all chains at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkern.algorithms.gibbs import sites
from fedkern.algorithms.gibbs.covariates import Covariates
from fedkern.kernels import shrinkage
from oracles.sparse_joint import Imputed, Logistic, Sites

PRIOR = ("scale_tau", "c0", "spike_variance")


class Moved(Sites):
    def __init__(self, *, moves, block=None, **options):
        super().__init__(**options)
        self.moves, self.block = moves, block

    def move(self, state, data, number, present):
        block = np.arange(self.q if self.moves == "translate" else 2 * self.q)
        if self.block is not None:
            block = np.sort(np.random.default_rng([7, number]).choice(block, self.block, replace=False))
        at = sites.Moving(state.theta, state.tau_sq, 0, block, self.prior_options["slab"])
        terms = [self.terms(k, at, state, data, number) for k in range(self.m)]
        gradient, precision = (sum(part) for part in zip(*terms))
        theta, t = shrinkage.move(
            gradient, precision, block, state.theta, state.tau_sq, state.gamma, state.eta, seed=self.seed, step=number,
            **{name: self.options[name] for name in PRIOR},
        )  # fmt: skip
        return replace(state, theta=theta, tau_sq=t**2, deviation=t / np.sqrt(state.tau_sq) * state.deviation)

    def terms(self, k, at, state, data, number):
        return self.site(k, data).move_terms(at, self.local_state(k, state), seed=self.seed, client=k, step=number)

    def local_state(self, k, state):
        return {"deviation": state.deviation[k][:, None]}


class MovedLogistic(Moved, Logistic):
    def site(self, k, data):
        return sites.Logistic(self.X[k], data[k])

    def local_state(self, k, state):
        return super().local_state(k, state) | {"alpha": state.local[0][k][:, None]}


class MovedImputed(Moved, Imputed):
    def site(self, k, data):
        return sites.Imputed(Covariates(self.X[k], self.Psi, 1.0), data[k])

    def local_state(self, k, state):
        sigma_sq, alpha = (state.local[i][k][:, None] for i in (0, 1))
        own = {"sigma_sq": sigma_sq, "alpha": alpha, "completed": self.completed(k, state)}
        return super().local_state(k, state) | own


# ---- Planted faults.


class LogisticWithoutData(MovedLogistic):
    """h = H = 0."""

    def terms(self, *args):
        return [0 * part for part in super().terms(*args)]


class FixedWeights(MovedLogistic):
    """omega = 1/4, its mean at z = 0, in the place of a draw given z."""

    def terms(self, k, at, state, data, number):
        z = state.coefficients()[k] @ self.X[k].T + state.local[0][k][:, None]
        X = self.X[k][:, at.columns]
        curvature = np.broadcast_to(0.25 * X.T @ X, (len(z), len(at.block), len(at.block)))
        return at.carried(curvature, (data[k] - 0.5 - 0.25 * z) @ X, state.deviation[k])


class ImputedWithoutData(MovedImputed):
    """h = H = 0."""

    def terms(self, *args):
        return [0 * part for part in super().terms(*args)]


class HolesAsZeros(MovedImputed):
    """A move that takes missing values for 0, whatever has been drawn for them."""

    def local_state(self, k, state):
        X = np.nan_to_num(self.X[k])
        return super().local_state(k, state) | {"completed": np.broadcast_to(X, (len(state.theta), *X.shape))}
