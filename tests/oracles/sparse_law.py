"""Sites with gaps whose rows' mean and covariance are unknown: a joint model for geweke.joint_test, of the package's own sites.

Of site k, rows x ~ N(mean_k, Psi_k), Psi_k ~ IW(p + 1 + rows, rows Psi), and y as ever. Mean and intercept have flat priors: they
wander off, and what is compared depends on x - mean and y - alpha - mean'theta_k only. Covariates are data here, but where they
are missing: they are simulated given the values in the gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from fedkern.algorithms.gibbs import sites
from fedkern.algorithms.gibbs.covariates import Covariates
from fedkern.algorithms.gibbs.settings import Layout
from oracles.sparse_joint import Imputed, inverse_gamma
from support import chosen


class OwnLaw(Imputed):
    """The law of rows drawn at each site."""

    n = (5, 6, 4)
    rows = 3.0

    def __init__(self, **options):
        super().__init__(**options)
        self.X = [np.where(np.isnan(X), np.nan, 0.0) for X in self.X]  # where gaps are

    def prior_local(self, rng, n):
        p, most = self.q, max(self.n)
        root = np.linalg.cholesky(np.linalg.inv(self.rows * self.Psi))
        dof = p + 1 + self.rows
        Z = rng.standard_normal((self.m, n, int(dof), p)) @ root.T
        precision = Z.swapaxes(2, 3) @ Z
        noise = rng.standard_normal((self.m, n, most, p))
        X = noise @ np.linalg.inv(np.linalg.cholesky(precision))
        sigma_sq = inverse_gamma(rng, self.shape, self.rate, (self.m, n))
        return sigma_sq, np.zeros((self.m, n)), np.zeros((self.m, n, p)), precision, X

    def simulate(self, rng, state):
        out = []
        for k, theta in enumerate(state.coefficients()):
            sigma_sq, alpha, mean, Q, X = (a[k] for a in state.local)
            X = X[:, : self.n[k]] - mean[:, None]
            for i, gap in enumerate(np.isnan(self.X[k])):
                o = np.flatnonzero(~gap)
                if not o.size:
                    continue
                inner, cross = Q[:, o][:, :, o], (Q[:, o] * gap) @ X[:, i, :, None]
                noise = np.linalg.cholesky(np.linalg.inv(inner)) @ rng.standard_normal((len(X), len(o), 1))
                X[:, i, o] = (noise - np.linalg.solve(inner, cross))[..., 0]
            X = X + mean[:, None]
            y = np.einsum("cnp,cp->cn", X, theta) + alpha[:, None]
            out.append((y + np.sqrt(sigma_sq)[:, None] * rng.standard_normal(y.shape), X))
        return out

    def site(self, k, y):
        return sites.Imputed(Covariates(self.X[k], self.Psi, self.rows), y, intercept=self.intercept)

    def client(self, k, state, data, number):
        y, X = data[k]
        sigma_sq, alpha, mean, precision, filled = (a[k] for a in state.local)
        own = {
            "deviation": state.deviation[k][:, None], "lambda_sq": state.lambda_sq[k][:, None], "sigma_sq": sigma_sq[:, None],
            "alpha": alpha[:, None], "mean": mean, "precision": precision,
            "completed": np.where(np.isnan(self.X[k]), filled[:, : self.n[k]], X),
        }  # fmt: skip
        prior = chosen.prior(
            shape_sigma=self.shape, rate_sigma=self.rate, slab=self.prior_options["slab"],
            scale_lambda=self.prior_options["scale_lambda"],
        )  # fmt: skip
        settings = chosen.gibbs(
            Layout(self.indicators[None]), prior, self.seed, len(y), local_sweeps=self.n_sweeps, scales=self.options["scales"]
        )
        at = {"seed": self.seed, "client": k, "step": number * self.n_sweeps}
        new, _ = self.site(k, y).sweeps(settings, own, state.theta[:, None], state.tau_sq[:, None], **at)
        completed = np.pad(new["completed"], ((0, 0), (0, max(self.n) - self.n[k]), (0, 0)))
        law = new["mean"], new["precision"]
        sigma_sq = new["sigma_sq"][:, 0]
        return new["deviation"][:, 0], new["lambda_sq"][:, 0], sigma_sq, new["alpha"][:, 0], *law, completed

    def local_functions(self, state, data):
        log_sigma, precision = np.log(state.local[0]), state.local[3]
        x, r, gap = [], [], []
        for k, theta in enumerate(state.coefficients()):
            alpha, mean = state.local[1][k], state.local[2][k]
            missing = np.isnan(self.X[k])
            X = np.where(missing, state.local[4][k][:, : self.n[k]], data[k][1])
            x.append(np.tanh(X - mean[:, None]))
            r.append(data[k][0] - alpha[:, None] - (mean * theta).sum(axis=1)[:, None])
            gap.append(missing)
        x, r, gap = np.concatenate(x, axis=1), np.concatenate(r, axis=1), np.concatenate(gap)
        diagonal = np.log(precision[..., [0, 1], [0, 1]])
        lacking, tanh_r = gap.any(axis=1), np.tanh(r)
        return {
            "log sigma^2": log_sigma.mean(axis=0),
            "(log sigma^2)^2": (log_sigma**2).mean(axis=0),
            "log(1 + r^2)": np.log1p(r**2).mean(axis=1),
            "log precision": diagonal.mean(axis=(0, 2)),
            "(log precision)^2": (diagonal**2).mean(axis=(0, 2)),
            "tanh of a partial covariance": np.tanh(precision[..., 0, 1]).mean(axis=0),
            "tanh x, gaps": x[:, gap].mean(axis=1),
            "tanh^2 x, gaps": (x[:, gap] ** 2).mean(axis=1),
            "tanh^2 x, values": (x[:, ~gap] ** 2).mean(axis=1),
            "tanh x_1 tanh x_2, gaps": (x[:, lacking, 0] * x[:, lacking, 1]).mean(axis=1),
            "tanh x tanh r, gaps": (x[:, lacking] * tanh_r[:, lacking, None]).mean(axis=(1, 2)),
            "tanh x tanh r tanh theta_k": (x[:, : self.n[0]] * tanh_r[:, : self.n[0], None]).mean(axis=1)[:, 0]
            * np.tanh(state.coefficients()[0][:, 0]),
        }


class OwnLawLogistic(OwnLaw):
    """The same with 0 and 1 for responses, and intercepts from N(0, 10^2).

    The mean of rows wanders off, and with it the law of y, which is compared with its own expectation only.
    """

    kind = sites.LogisticImputed

    def prior_local(self, rng, n):
        _, *rest = super().prior_local(rng, n)
        rest[0] = 10.0 * rng.standard_normal((self.m, n)) * self.intercept
        return tuple(rest)

    def simulate(self, rng, state):
        flat = replace(state, local=(np.zeros_like(state.local[0]), *state.local))
        rows = [X for _, X in super().simulate(rng, flat)]
        return [((rng.random(z.shape) < expit(z)) * 1.0, X) for z, X in zip(self.linear(state, rows), rows)]

    def linear(self, state, rows):
        pairs = zip(rows, state.coefficients(), state.local[0])
        return [np.einsum("cnp,cp->cn", X, theta) + alpha[:, None] for X, theta, alpha in pairs]

    def site(self, k, y):
        return self.kind(Covariates(self.X[k], self.Psi, self.rows), y, intercept=self.intercept)

    def client(self, k, state, data, number):
        filled = (np.zeros_like(state.local[0]), *state.local)
        d, lambda_sq, _, *rest = super().client(k, replace(state, local=filled), data, number)
        return d, lambda_sq, *rest

    def local_functions(self, state, data):
        filled = replace(state, local=(np.ones_like(state.local[0]), *state.local))
        every = super().local_functions(filled, data).items()
        of_rows = {name: values for name, values in every if "sigma" not in name and "r^2" not in name and " r" not in name}
        alpha, out = state.local[0], {"tanh theta_k": np.tanh(state.coefficients()).mean(axis=(0, 2))}
        residual, rows = [], []
        for k, (y, seen) in enumerate(data):
            X = np.where(np.isnan(self.X[k]), state.local[3][k][:, : self.n[k]], seen)
            z = np.einsum("cnp,cp->cn", X, state.coefficients()[k]) + alpha[k][:, None]
            residual.append(y - expit(z))
            rows.append(np.tanh(X - state.local[1][k][:, None]))
        r, x = np.concatenate(residual, axis=1), np.concatenate(rows, axis=1)
        return (
            of_rows
            | out
            | {
                "alpha": alpha.mean(axis=0) / 10,
                "alpha^2": (alpha**2).mean(axis=0) / 100,
                "residual": r.mean(axis=1),
                "residual tanh x": (r[..., None] * x).mean(axis=(1, 2)),
                "residual tanh x tanh theta_k": (r[:, : self.n[0], None] * x[:, : self.n[0]]).mean(axis=1)[:, 0]
                * np.tanh(state.coefficients()[0][:, 0]),
            }
        )


# ---- Planted faults.


class FixedLaw(OwnLaw):
    """Values from the covariance that all sites have in common, as if it were known."""

    def client(self, k, state, data, number):
        *rest, mean, precision, completed = super().client(k, state, data, number)
        return *rest, mean, np.broadcast_to(np.linalg.inv(self.Psi), precision.shape), completed


class RowsTwice(OwnLaw):
    """A covariance drawn with the prior's rows counted twice."""

    def site(self, k, y):
        return sites.Imputed(Covariates(self.X[k], self.Psi, 2 * self.rows), y, intercept=self.intercept)


class MeanKnown(OwnLaw):
    """Rows about a mean that stays at what it was, while the data's own moves on."""

    def client(self, k, state, data, number):
        *rest, _, precision, completed = super().client(k, state, data, number)
        return *rest, 0.5 * state.local[2][k] + 0.5 * completed[:, : self.n[k]].mean(axis=1), precision, completed


@dataclass(frozen=True)
class _ResponseIgnored(sites.LogisticImputed):
    def sweeps(self, settings, state, theta, tau_sq, **counter):
        """Values from the others of their row, without the response."""
        new, events = super().sweeps(settings, state, theta, tau_sq, **counter)
        c, n = len(theta), len(self.covariates.X)
        none, huge = np.zeros((c, n)), np.full((c, n), 1e12)
        return new | self.covariates.drawn(new, none[:, : theta.shape[2]], none, huge, **counter), events


class LogisticResponseIgnored(OwnLawLogistic):
    kind = _ResponseIgnored
