"""Sites with Student's t for errors: a joint model for geweke.joint_test, of the package's own sites.

The intercept's prior is flat: alpha wanders off, and what is compared depends on y - alpha only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkern.algorithms.gibbs import sites
from fedkern.algorithms.gibbs.settings import Layout
from oracles.sparse_joint import Sites, inverse_gamma
from support import chosen


class StudentErrors(Sites):
    """y = alpha + X theta_k + sigma t, t with `degrees` degrees of freedom."""

    n = (5, 6, 4)
    shape, rate = 3.0, 2.0
    degrees = 4.0
    kind = sites.Student

    def __init__(self, *, intercept=True, **options):
        super().__init__(**options)
        self.intercept = intercept

    def prior_local(self, rng, n):
        return inverse_gamma(rng, self.shape, self.rate, (self.m, n)), np.zeros((self.m, n))

    def simulate(self, rng, state):
        out = []
        for X, theta, variance, alpha in zip(self.X, state.coefficients(), *state.local):
            errors = np.sqrt(variance)[:, None] * rng.standard_t(self.degrees, (len(theta), len(X)))
            out.append(theta @ X.T + alpha[:, None] + errors)
        return out

    def client(self, k, state, data, number):
        own = {
            "deviation": state.deviation[k][:, None], "lambda_sq": state.lambda_sq[k][:, None],
            "sigma_sq": state.local[0][k][:, None], "alpha": state.local[1][k][:, None],
        }  # fmt: skip
        prior = chosen.prior(
            shape_sigma=self.shape, rate_sigma=self.rate, slab=self.prior_options["slab"],
            scale_lambda=self.prior_options["scale_lambda"],
        )  # fmt: skip
        settings = chosen.gibbs(
            Layout(self.indicators[None]), prior, self.seed, len(own["alpha"]), local_sweeps=self.n_sweeps,
            scales=self.options["scales"],
        )  # fmt: skip
        at = {"seed": self.seed, "client": k, "step": number * self.n_sweeps}
        site = self.kind(self.X[k], data[k], self.degrees, intercept=self.intercept)
        new, _ = site.sweeps(settings, own, state.theta[:, None], state.tau_sq[:, None], **at)
        return new["deviation"][:, 0], new["lambda_sq"][:, 0], new["sigma_sq"][:, 0], new["alpha"][:, 0]

    def local_functions(self, state, data):
        log_sigma = np.log(state.local[0])
        each = [y - alpha[:, None] for y, alpha in zip(data, state.local[1])]
        y = np.concatenate(each, axis=1)
        fitted = [(np.tanh(d) * np.tanh(t @ X.T)).mean(axis=1) for d, t, X in zip(each, state.coefficients(), self.X)]
        sigma = np.sqrt(state.local[0])[..., None]
        small = [np.abs(d - t @ X.T) < s for d, t, X, s in zip(each, state.coefficients(), self.X, sigma)]
        return {
            "log sigma^2": log_sigma.mean(axis=0),
            "(log sigma^2)^2": (log_sigma**2).mean(axis=0),
            "log(1 + y^2)": np.log1p(y**2).mean(axis=1),
            "tanh y tanh x'theta": np.stack(fitted).mean(axis=0),
            "|e| < sigma": np.concatenate(small, axis=1).mean(axis=1),
        }


# ---- Planted faults.


@dataclass(frozen=True)
class _HalfLess(sites.Student):
    def weights(self, state, theta, **counter):
        """Gamma(nu/2, ..): without the row's own residual in the shape."""
        nu = self.degrees
        drawn = super().weights(state, theta, **counter)
        return drawn * (nu / (nu + 1))


class WeightsTooSmall(StudentErrors):
    kind = _HalfLess
