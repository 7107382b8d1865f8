"""A random field whose rows lack values (docs/spec/sparse.md, sections 8 and 11): a joint model for geweke.joint_test, and a
posterior by quadrature.

The model is a product of one model for each column: its regression on the others, with the law of the others, of data of its own.
A field's site has the same rows in all of them; here each has rows of its own, with the gaps of one matrix.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import exp1

from fedkern.algorithms.gibbs import sites
from fedkern.algorithms.gibbs.covariates import Covariates
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.models.sparse import graph
from oracles.sparse_joint import Hierarchy
from oracles.sparse_law import OwnLaw
from support import chosen

COLUMNS = 3


class FieldWithGaps(Hierarchy):
    """Three columns at three sites."""

    n = (5, 6, 4)

    def __init__(self, **options):
        super().__init__(q=COLUMNS**2, g=COLUMNS, indicators=graph(COLUMNS, one_group=False).ravel(), **options)
        gaps = [np.zeros((n, COLUMNS), bool) for n in self.n]
        gaps[0][:, 1] = True  # a column that the site did not measure
        gaps[1][0, 0] = gaps[1][1, 1] = gaps[1][3, [1, 2]] = True
        gaps[1][2] = True  # a row of which nothing is known
        self.others = [np.flatnonzero(np.arange(COLUMNS) != j) for j in range(COLUMNS)]
        self.seen = [[~gap[:, j] for gap in gaps] for j in range(COLUMNS)]
        self.copies = [OwnLaw(n=self.n, q=COLUMNS - 1) for _ in self.others]
        for copy, others in zip(self.copies, self.others):
            copy.X = [np.where(gap[:, others], np.nan, 0.0) for gap in gaps]

    def of(self, state, j):
        """The state of one regression."""
        at = j * COLUMNS + self.others[j]
        theta, tau_sq, local = state.theta[:, at], state.tau_sq[:, at], tuple(a[:, :, j] for a in state.local)
        here = {"deviation": state.deviation[..., at], "lambda_sq": state.lambda_sq[..., at]}
        return replace(state, theta=theta, tau_sq=tau_sq, local=local, **here)

    def prior_local(self, rng, n):
        return tuple(np.stack(part, axis=2) for part in zip(*(copy.prior_local(rng, n) for copy in self.copies)))

    def simulate(self, rng, state):
        return [copy.simulate(rng, self.of(state, j)) for j, copy in enumerate(self.copies)]

    def regression(self, k, j, y):
        """Of column j at site k, with the responses that are there."""
        copy = self.copies[j]
        y = np.where(self.seen[j][k], y, np.nan)
        return sites.Imputed(Covariates(copy.X[k], copy.Psi, copy.rows), y, chain=j * sites.OF_REGRESSION)

    def client(self, k, state, data, number):
        c, first = len(state.theta), self.copies[0]
        square = [a.reshape(c, COLUMNS, COLUMNS) for a in (state.theta, state.tau_sq, state.deviation[k], state.lambda_sq[k])]
        sigma_sq, alpha, mean, precision, filled = (a[k] for a in state.local)
        gaps = np.stack([np.isnan(copy.X[k]) for copy in self.copies])
        own = {
            "deviation": square[2], "lambda_sq": square[3], "sigma_sq": sigma_sq, "alpha": alpha, "mean": mean,
            "precision": precision,
            "completed": np.where(gaps, filled[:, :, : self.n[k]], np.stack([rows[k][1] for rows in data], axis=1)),
        }  # fmt: skip
        prior = chosen.prior(
            shape_sigma=first.shape, rate_sigma=first.rate, slab=self.prior_options["slab"],
            scale_lambda=self.prior_options["scale_lambda"],
        )  # fmt: skip
        layout = Layout(self.indicators.reshape(COLUMNS, COLUMNS))
        settings = chosen.gibbs(layout, prior, self.seed, c, local_sweeps=self.n_sweeps, scales=self.options["scales"])
        site = sites.ImputedField(tuple(self.regression(k, j, rows[k][0]) for j, rows in enumerate(data)))
        at = {"seed": self.seed, "client": k, "step": number * self.n_sweeps}
        new, _ = site.sweeps(settings, own, *square[:2], **at)
        completed = np.pad(new["completed"], ((0, 0), (0, 0), (0, max(self.n) - self.n[k]), (0, 0)))
        flat = (new[name].reshape(c, -1) for name in ("deviation", "lambda_sq"))
        return *flat, new["sigma_sq"], new["alpha"], new["mean"], new["precision"], completed

    def local_functions(self, state, data):
        out = {}
        for j, copy in enumerate(self.copies):
            out |= {f"{name}, {j}": values for name, values in copy.local_functions(self.of(state, j), data[j]).items()}
        log_sigma, slopes = np.log(state.local[0]), np.tanh(state.coefficients())
        return out | {
            "log sigma_0^2 log sigma_2^2": (log_sigma[..., 0] * log_sigma[..., 2]).mean(axis=0),
            "tanh theta_k of 0 by 2 and 2 by 0": (slopes[..., 2] * slopes[..., 6]).mean(axis=0),
        }


# ---- Planted faults.


class NoResponseIsZero(FieldWithGaps):
    """A row without a response counted as one whose response is 0."""

    def regression(self, k, j, y):
        there = super().regression(k, j, y)
        return replace(there, y=np.where(np.isnan(there.y), 0.0, there.y))


class SameNumbers(FieldWithGaps):
    """All regressions of a chain with the same random numbers."""

    def regression(self, k, j, y):
        return replace(super().regression(k, j, y), chain=0)


# ---- One regression of two columns by quadrature.


def horseshoe(d):
    """Density of N(0, lambda^2), lambda half-Cauchy."""
    return np.exp(d**2 / 2) * exp1(d**2 / 2) / np.sqrt(2 * np.pi**3)


def posterior(x, y, *, common, rows, shape, rate):
    """Means and sds of theta_k and log sigma^2, theta = 0 and tau = 1, of one site's y on x, each with gaps (NaN).

    alpha and the mean of x, which have flat priors, are integrated out: rows with y alone are
    N(alpha + theta mean, sigma^2 + theta^2 psi). The variance psi of x is IG((2 + rows) / 2, rows common / 2).
    """
    theta = np.sinh(np.linspace(-2.7, 2.7, 120))[:, None, None]  # an even number: the density is infinite at 0
    log_noise, log_psi = np.linspace(-4.5, 3.5, 90)[:, None], np.linspace(-4.5, 4.5, 80)
    noise, psi = np.exp(log_noise), np.exp(log_psi)
    log = np.log(horseshoe(theta)) + np.log(np.sqrt(1 + theta**2))  # of a step of the grid in theta
    log = log - shape * log_noise - rate / noise - (2 + rows) / 2 * log_psi - rows * common / (2 * psi)
    both, one, other = ~np.isnan(x) & ~np.isnan(y), np.isnan(x) & ~np.isnan(y), ~np.isnan(x) & np.isnan(y)
    # Each seen row is normal about a linear form of (alpha, mean): its square, cross term and so on, added.
    parts = [(y[both, None, None, None] - theta * x[both, None, None, None], (1.0, 0.0), noise, both.sum())]
    parts += [(x[both | other], (0.0, 1.0), psi, (both | other).sum()), (y[one], (1.0, theta), noise + theta**2 * psi, one.sum())]
    A = B = C = g = h = square = 0.0
    for value, (u, v), variance, count in parts:
        total, squares = value.sum(axis=0), (value**2).sum(axis=0)
        log = log - 0.5 * count * np.log(variance)
        A, B, C = A + count * u * u / variance, B + count * u * v / variance, C + count * v * v / variance
        g, h, square = g + u * total / variance, h + v * total / variance, square + squares / variance
    det = A * C - B**2
    log = log - 0.5 * np.log(det) - 0.5 * (square - (C * g**2 - 2 * B * g * h + A * h**2) / det)
    weight = np.exp(log - log.max())
    weight /= weight.sum()

    def moments(values):
        mean = (weight * values).sum()
        return mean, np.sqrt((weight * values**2).sum() - mean**2)

    edges = weight.sum(axis=(1, 2))[[0, -1]].max(), weight.sum(axis=(0, 2))[[0, -1]].max(), weight.sum(axis=(0, 1))[[0, -1]].max()
    assert max(edges) < 1e-4, edges  # nothing beyond the grid
    return moments(theta), moments(log_noise)
