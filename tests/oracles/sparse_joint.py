"""The sparse models as joint distributions of parameters and data, for geweke.joint_test; rounds are made of the public kernels.

Arrays: c chains, m clients, q coefficients, those of g regressions in a row. A variant is a keyword, a fault a subclass
that overrides a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from fedkern.kernels import shrinkage

SERVER = 2**32 - 1


@dataclass(frozen=True)
class State:
    theta: NDArray[Any]  # (c, q), as tau_sq, gamma and eta
    tau_sq: NDArray[Any]
    gamma: NDArray[Any]
    eta: NDArray[Any]
    rho: NDArray[Any]  # (c, g)
    deviation: NDArray[Any]  # (m, c, q)
    lambda_sq: NDArray[Any]
    local: tuple[NDArray[Any], ...]  # what else a client has, each with leading axes (m, c)
    inclusion: NDArray[Any] | None = None  # (c, q)

    def coefficients(self):
        return self.theta + self.deviation


def inverse_gamma(rng, shape, scale, size):
    return scale / rng.standard_gamma(shape, size)


def half_cauchy_sq(rng, scale, size):
    return np.clip((scale * np.tan(np.pi / 2 * rng.random(size))) ** 2, 1e-60, 1e60)


class Hierarchy:
    """Global parameters, deviations and their scales; the server's side of a round. Section 1 and 4."""

    m, q, g = 3, 2, 1
    shape_eta, rate_eta, rho_a, rho_b = 3.0, 2.0, 2.0, 2.0
    seed = 5

    def __init__(
        self, *, scales="exact", order="blocked", eta_form="common", n_passes=1, sums=False, c0=0.1, spike_variance=0.0,
        scale_tau=1.0, scale_lambda=1.0, slab=np.inf, indicators=None, shared_rho=False, participation=1.0, n_sweeps=1, **changes,
    ):  # fmt: skip
        for name, value in changes.items():
            setattr(self, name, value)
        self.prior_options = {"scale_lambda": scale_lambda, "slab": slab}
        self.options = {
            "scales": scales, "order": order, "eta_form": eta_form, "c0": c0, "spike_variance": spike_variance,
            "scale_tau": scale_tau, "shape_eta": self.shape_eta, "rate_eta": self.rate_eta,
            "rho_a": self.rho_a, "rho_b": self.rho_b, "shared_rho": shared_rho,
        }  # fmt: skip
        self.n_passes, self.sums, self.participation, self.n_sweeps = n_passes, sums, participation, n_sweeps
        self.indicators = np.arange(self.q) if indicators is None else np.asarray(indicators)

    # ---- Prior.

    def spike(self, gamma, eta):
        """Variance of theta given gamma."""
        return np.where(gamma > 0, eta, self.options["spike_variance"] or self.options["c0"] * eta)

    def prior(self, rng, n):
        m, q, g, ids, real = self.m, self.q, self.g, self.indicators, self.indicators > -2
        common = self.options["eta_form"] == "common"
        eta = inverse_gamma(rng, self.shape_eta, self.rate_eta, (n, g, 1 if common else q // g))
        eta = np.broadcast_to(eta, (n, g, q // g)).reshape(n, q).copy()
        rho = np.broadcast_to(rng.beta(self.rho_a, self.rho_b, (n, 1 if self.options["shared_rho"] else g)), (n, g)).copy()
        drawn = (rng.random((n, g, q // g)) < rho[..., None]).reshape(n, q)
        first = np.arange(q) // (q // g) * (q // g)  # of the row: its indicators are numbered from 0
        gamma = np.where(ids >= 0, drawn[:, first + np.maximum(ids, 0)], ids == -1).astype(float)
        theta = np.where(real, np.sqrt(self.spike(gamma, eta)) * rng.standard_normal((n, q)), 0.0)
        tau_sq, lambda_sq = self.prior_scales(rng, n)
        tau_sq, lambda_sq = np.where(real, tau_sq, 1.0), np.where(real, lambda_sq, 1.0)
        variance = 1 / (1 / (lambda_sq * tau_sq) + 1 / self.prior_options["slab"] ** 2)
        deviation = np.where(real, np.sqrt(variance) * rng.standard_normal((m, n, q)), 0.0)
        return State(theta, tau_sq, gamma, eta, rho, deviation, lambda_sq, self.prior_local(rng, n))

    def prior_scales(self, rng, n):
        """By rejection: with a slab, N(d; 0, lambda^2 tau^2) N(d; 0, slab^2) leaves (1 + lambda^2 tau^2 / slab^2)^(-1/2)."""
        tau_sq, lambda_sq = np.empty((n, self.q)), np.empty((self.m, n, self.q))
        todo = np.ones((n, self.q), bool)
        while todo.any():
            size = int(todo.sum())
            tau = half_cauchy_sq(rng, self.options["scale_tau"], size)
            lam = half_cauchy_sq(rng, self.prior_options["scale_lambda"], (self.m, size))
            tau_sq[todo], lambda_sq[:, todo] = tau, lam
            keep = rng.random(size) ** 2 * np.prod(1 + lam * tau / self.prior_options["slab"] ** 2, axis=0) < 1
            todo[todo] = ~keep
        return tau_sq, lambda_sq

    # ---- A round: the clients' sweeps, the server's move, its sweeps.

    def round(self, state, data, number):
        present = self.present(number)
        state = self.move(self.clients(state, data, number, present), data, number, present)
        return self.server(state, number, present)

    def present(self, number):
        if self.participation == 1:
            return list(range(self.m))
        return np.flatnonzero(np.random.default_rng([9, number]).random(self.m) < self.participation).tolist()

    def clients(self, state, data, number, present):
        deviation, lambda_sq, local = state.deviation.copy(), state.lambda_sq.copy(), [a.copy() for a in state.local]
        for k in present:
            deviation[k], lambda_sq[k], *rest = self.client(k, state, data, number)
            for a, value in zip(local, rest, strict=True):
                a[k] = value
        return replace(state, deviation=deviation, lambda_sq=lambda_sq, local=tuple(local))

    def client_options(self, k, number):
        scales = self.options["scales"]
        return self.prior_options | {
            "scales": scales, "seed": self.seed, "client": k, "step": number * self.n_sweeps, "n_sweeps": self.n_sweeps
        }  # fmt: skip

    def move(self, state, data, number, present):
        return state

    def server_options(self):
        return self.options | {"slab": self.prior_options["slab"]}

    def server(self, state, number, present):
        """`present` is not used: an absent client's last terms stay in the sums."""
        shape = (self.g, self.q // self.g)

        def rows(a):
            return a.reshape(*a.shape[:-1], *shape)

        def flat(a):
            return a.reshape(*a.shape[:-2], self.q)

        old = [rows(a) for a in (state.theta, state.tau_sq, state.gamma, state.eta)] + [state.rho]
        options = self.server_options() | {"seed": self.seed, "step": number * self.n_passes}
        deviation, lambda_sq, ids = rows(state.deviation), rows(state.lambda_sq), self.indicators.reshape(shape)
        if self.sums:
            sums = sum(shrinkage.local_sums(d, lam, slab=options["slab"]) for d, lam in zip(deviation, lambda_sq))
            theta, tau_sq, gamma, eta, rho, q, _ = shrinkage.global_sweep_sums(sums, self.m, ids, *old, **options)
            deviation = deviation + (old[0] - theta)
        else:
            options |= {"n_passes": self.n_passes, "scale_lambda": self.prior_options["scale_lambda"]}
            drawn = shrinkage.global_sweep(deviation, lambda_sq, ids, *old, **options)
            theta, tau_sq, gamma, eta, rho, q, deviation, lambda_sq, _ = drawn
        drawn = (flat(a) for a in (theta, tau_sq, gamma, eta))
        return State(*drawn, rho, flat(deviation), flat(lambda_sq), state.local, flat(q))

    # ---- Test functions, of finite variance. Coefficients and clients are averaged.

    def functions(self, state, data):
        real = np.flatnonzero(self.indicators > -2)
        free = np.flatnonzero(self.indicators >= 0)
        theta, gamma, eta, d = state.theta[:, real], state.gamma[:, free], state.eta[:, real], state.deviation[..., real]
        log_tau, log_lambda = np.log(state.tau_sq[:, real]), np.log(state.lambda_sq[..., real])
        size, bounded = np.abs(d), np.tanh(d)

        def each(values):
            return values.mean(axis=(0, 2))

        def pair(values):
            n = values.shape[-1]
            return (values.sum(axis=-1) ** 2 - (values**2).sum(axis=-1)) / (n * (n - 1))

        values = {
            "log lambda^2": each(log_lambda),
            "(log lambda^2)^2": each(log_lambda**2),
            "log tau^2": log_tau.mean(axis=1),
            "(log tau^2)^2": (log_tau**2).mean(axis=1),
            "log lambda^2 log tau^2": each(log_lambda * log_tau),
            "log eta": np.log(eta).mean(axis=1),
            "(log eta)^2": (np.log(eta) ** 2).mean(axis=1),
            "logit rho": logit(state.rho).mean(axis=1),
            "(logit rho)^2": (logit(state.rho) ** 2).mean(axis=1),
            "gamma": gamma.mean(axis=1),
            "tanh theta": np.tanh(theta[:, 0]),
            "tanh^2 theta": (np.tanh(theta) ** 2).mean(axis=1),
            "log |theta|": np.log(np.abs(theta) + 1e-290).mean(axis=1),
            "log |d|": each(np.log(size + 1e-290)),
            "|d| < 0.1": each(size < 0.1),
            "|d| < tau": each(size < np.sqrt(state.tau_sq[:, real])),
            "|theta_k| < 0.5": each(np.abs(theta + d) < 0.5),
            "gamma, |theta| > 0.3": (state.gamma[:, real] * (np.abs(theta) > 0.3)).mean(axis=1),
        }
        if len(free) > 1:
            values |= {"gamma_1 gamma_2": pair(gamma), "tanh d_1 tanh d_2": pair(bounded).mean(axis=0)}
        if self.m > 1:
            values["tanh d_k tanh d_l"] = pair(bounded.transpose(1, 2, 0)).mean(axis=1)
        return values | self.local_functions(state, data)


class ServerOnly(Hierarchy):
    """Sites without data: theta_k and lambda_k are what is simulated, and a round is the server's alone."""

    def prior_local(self, rng, n):
        return ()

    def simulate(self, rng, state):
        lambda_sq = half_cauchy_sq(rng, self.prior_options["scale_lambda"], state.deviation.shape)
        deviation = np.sqrt(lambda_sq * state.tau_sq) * rng.standard_normal(lambda_sq.shape)
        real = self.indicators > -2
        return np.where(real, deviation, 0.0), np.where(real, lambda_sq, 1.0)

    def round(self, state, data, number):
        """The deviation from the present theta is all that the server keeps of theta_k; a second round goes on from the first."""
        again = number % 2 == 1 and self.rounds == 2
        return self.server(state if again else replace(state, deviation=data[0], lambda_sq=data[1]), number, None)

    def local_functions(self, state, data):
        return {}


class Sites(Hierarchy):
    """Clients with fixed covariates: (m) matrices of (n_k, q)."""

    n = (4, 5, 3)

    def __init__(self, *, X=None, **options):
        if X is not None:
            options |= {"n": tuple(map(len, X)), "q": X[0].shape[1]}
        super().__init__(**options)
        self.m = len(self.n)
        rng = np.random.default_rng(3)
        self.X = [rng.standard_normal((n, self.q)) * np.linspace(1.2, 0.8, self.q) for n in self.n] if X is None else X


@dataclass(frozen=True)
class Moments:
    """One client's data in all chains: y (c, n), and q, rss of docs/spec/sparse.md, section 3."""

    y: NDArray[Any]
    q: NDArray[Any]
    rss: NDArray[Any]


def moments(y, Q):
    y = y - y.mean(axis=-1, keepdims=True)
    q = y @ Q
    return Moments(y, q, np.maximum((y**2).sum(axis=-1) - (q**2).sum(axis=-1), 0))


class Regression(Sites):
    """Sections 2, 3 and 6. The response is centred at every client: n_k - 1 degrees of freedom."""

    shape, rate = 3.0, 2.0

    def __init__(self, *, draw="auto", moves=None, block=None, **options):
        super().__init__(**options)
        self.draw, self.moves, self.block = draw, moves, block
        self.X = [X - X.mean(axis=0) for X in self.X]
        self.Q, self.R = zip(*(np.linalg.qr(X) for X in self.X))

    def prior_local(self, rng, n):
        return (inverse_gamma(rng, self.shape, self.rate, (self.m, n)),)

    def simulate(self, rng, state):
        (sigma_sq,) = state.local
        data = []
        for X, Q, theta, variance in zip(self.X, self.Q, state.coefficients(), sigma_sq):
            y = theta @ X.T + np.sqrt(variance)[:, None] * rng.standard_normal((len(theta), len(X)))
            data.append(moments(y, Q))
        return data

    def given(self, y):
        """The data of one federation, y (n_k,) of every client, for any number of chains."""
        return [moments(y_k, Q) for y_k, Q in zip(y, self.Q)]

    def client(self, k, state, data, number):
        options = self.client_options(k, number) | {"draw": self.draw, "shape": self.shape, "rate": self.rate}
        return shrinkage.local_sweeps(
            self.R[k], data[k].q, data[k].rss, len(self.X[k]) - 1.0, state.theta, state.tau_sq, state.deviation[k],
            state.lambda_sq[k], state.local[0][k], **options,
        )[:3]  # fmt: skip

    def move(self, state, data, number, present):
        if self.moves is None:
            return state
        block = np.arange(self.q if self.moves == "translate" else 2 * self.q)
        if self.block is not None:
            block = np.sort(np.random.default_rng([7, number]).choice(block, self.block, replace=False))
        gradient, precision = self.terms(state, data, block, present)
        names = ("scale_tau", "c0", "spike_variance")
        theta, t = shrinkage.move(
            gradient, precision, block, state.theta, state.tau_sq, state.gamma, state.eta, seed=self.seed, step=number,
            **{name: self.options[name] for name in names},
        )  # fmt: skip
        return replace(state, theta=theta, tau_sq=t**2, deviation=t / np.sqrt(state.tau_sq) * state.deviation)

    def terms(self, state, data, block, present):
        return self.terms_of(range(self.m), state, data, block)

    def terms_of(self, clients, state, data, block):
        total = [np.zeros((len(state.theta), *shape)) for shape in ((len(block),), (len(block), len(block)))]
        for k in clients:
            given = (state.theta, state.deviation[k], state.tau_sq, state.local[0][k])
            terms = shrinkage.move_terms(self.R[k], data[k].q, block, *given, slab=self.prior_options["slab"])
            total = [a + b for a, b in zip(total, terms)]
        return total

    def local_functions(self, state, data):
        log_sigma = np.log(state.local[0])
        y = np.concatenate([d.y for d in data], axis=1)
        fitted = np.stack([(np.tanh(d.y) * np.tanh(t @ X.T)).mean(axis=1) for d, t, X in zip(data, state.coefficients(), self.X)])
        return {
            "log sigma^2": log_sigma.mean(axis=0),
            "(log sigma^2)^2": (log_sigma**2).mean(axis=0),
            "log(1 + y^2)": np.log1p(y**2).mean(axis=1),
            "tanh y tanh x'theta": fitted.mean(axis=0),
        }


class Logistic(Sites):
    """Section 11: Polya-Gamma draws, intercepts with standard deviation 10."""

    n = (6, 5, 7)
    scale_intercept = 10.0

    def __init__(self, *, centred=False, **options):
        super().__init__(**options)
        self.X = [X - centred * X.mean(axis=0) for X in self.X]

    def prior_local(self, rng, n):
        return (self.scale_intercept * rng.standard_normal((self.m, n)),)

    def linear(self, state):
        return [theta @ X.T + alpha[:, None] for X, theta, alpha in zip(self.X, state.coefficients(), state.local[0])]

    def simulate(self, rng, state):
        return [(rng.random(z.shape) < expit(z)).astype(float) for z in self.linear(state)]

    def client(self, k, state, data, number):
        options = self.client_options(k, number) | {"scale_intercept": self.scale_intercept}
        return shrinkage.logistic_sweeps(
            self.X[k], data[k], state.theta, state.tau_sq, state.deviation[k], state.lambda_sq[k], state.local[0][k], **options
        )[:3]

    def local_functions(self, state, data):
        alpha = state.local[0]
        y = np.concatenate(data, axis=1)
        z = np.concatenate(self.linear(state), axis=1)
        return {
            "alpha": alpha.mean(axis=0) / 10,
            "alpha^2": (alpha**2).mean(axis=0) / 100,
            "y": y.mean(axis=1),
            "y tanh z": (y * np.tanh(z)).mean(axis=1),
            "tanh alpha tanh theta_k": (np.tanh(alpha) * np.tanh(state.coefficients()[..., 0])).mean(axis=0),
        }


class Imputed(Sites):
    """Section 11: covariates missing in some rows, x ~ N(0, Psi) with Psi known.

    The intercept's prior is flat: alpha wanders off, and what is compared depends on y - alpha only, whose law is proper.
    """

    n, q = (4, 5, 3), 2
    shape, rate = 3.0, 2.0
    Psi = np.array([[1.0, 0.6], [0.6, 0.8]])
    mean = np.zeros(2)

    def __init__(self, *, intercept=True, **options):
        super().__init__(**options)
        self.intercept = intercept
        if not intercept:
            self.mean = np.array([1.5, -0.8])  # rows lie about it, and nothing takes it away
        self.X = [X + self.mean for X in self.X]
        self.X[0][:, 1] = np.nan  # a column that the site did not measure
        self.X[1][0, 0] = self.X[1][1, 1] = np.nan  # single values, in two patterns
        self.X[1][2] = np.nan  # a row of which nothing is known

    def prior_local(self, rng, n):
        filled = []
        for X in self.X:
            full = np.empty((n, *X.shape))
            for i, x in enumerate(X):
                missing, seen = np.flatnonzero(np.isnan(x)), np.flatnonzero(~np.isnan(x))
                full[:, i, seen] = x[seen]
                gain = self.Psi[np.ix_(missing, seen)] @ np.linalg.pinv(self.Psi[np.ix_(seen, seen)])
                rest = self.Psi[np.ix_(missing, missing)] - gain @ self.Psi[np.ix_(seen, missing)]
                mean = self.mean[missing] + gain @ (x[seen] - self.mean[seen])
                full[:, i, missing] = mean + rng.standard_normal((n, len(missing))) @ np.linalg.cholesky(rest).T
            filled.append(np.pad(full, ((0, 0), (0, max(self.n) - len(X)), (0, 0))))
        return inverse_gamma(rng, self.shape, self.rate, (self.m, n)), np.zeros((self.m, n)), np.stack(filled)

    def completed(self, k, state):
        return np.ascontiguousarray(state.local[2][k][:, : self.n[k]])

    def simulate(self, rng, state):
        out = []
        for k, (theta, variance, alpha) in enumerate(zip(state.coefficients(), *state.local[:2])):
            mean = np.einsum("cnp,cp->cn", self.completed(k, state), theta) + alpha[:, None]
            out.append(mean + np.sqrt(variance)[:, None] * rng.standard_normal(mean.shape))
        return out

    def client(self, k, state, data, number):
        options = self.client_options(k, number) | {"shape": self.shape, "rate": self.rate, "intercept": self.intercept}
        options["patterns"] = shrinkage.missing_patterns(self.X[k], self.Psi, self.mean)
        d, lam, sigma_sq, alpha, filled, _ = shrinkage.imputed_sweeps(
            self.X[k], data[k], self.Psi, state.theta, state.tau_sq, state.deviation[k], state.lambda_sq[k], state.local[0][k],
            state.local[1][k], self.completed(k, state), **options,
        )  # fmt: skip
        return d, lam, sigma_sq, alpha, np.pad(filled, ((0, 0), (0, max(self.n) - self.n[k]), (0, 0)))

    def local_functions(self, state, data):
        log_sigma = np.log(state.local[0])
        data = [y - alpha[:, None] for y, alpha in zip(data, state.local[1])]
        y = np.concatenate(data, axis=1)
        x = np.tanh(np.concatenate([self.completed(k, state)[:, np.isnan(X).any(axis=1)] for k, X in enumerate(self.X)], axis=1))
        r = np.tanh(np.concatenate([y_k[:, np.isnan(X).any(axis=1)] for y_k, X in zip(data, self.X)], axis=1))
        return {
            "log sigma^2": log_sigma.mean(axis=0),
            "(log sigma^2)^2": (log_sigma**2).mean(axis=0),
            "log(1 + (y - alpha)^2)": np.log1p(y**2).mean(axis=1),
            "tanh x": x.mean(axis=(1, 2)),
            "tanh^2 x": (x**2).mean(axis=(1, 2)),
            "tanh x_1 tanh x_2": (x[..., 0] * x[..., 1]).mean(axis=1),
            "tanh x tanh(y - alpha)": (x * r[..., None]).mean(axis=(1, 2)),
            "tanh x tanh(y - alpha) tanh theta_k": (x * r[..., None]).mean(axis=1)[:, 0] * np.tanh(state.coefficients()[0][:, 1]),
        }
