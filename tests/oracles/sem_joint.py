"""The cyclic structural equation model as a joint distribution (docs/spec/sparse.md, section 9), for geweke.joint_test."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from fedkern.kernels import sem
from oracles.sparse_joint import Hierarchy, State, inverse_gamma


def off_diagonal(p):
    """Numbers of the indicators: row j, column h is the effect of h on j."""
    ids = np.full((p, p), -2)
    ids[~np.eye(p, dtype=bool)] = np.arange(p * (p - 1))
    return ids.ravel()


def radius(coefficients):
    return np.abs(np.linalg.eigvals(coefficients)).max(axis=-1)


def take(states, keep):
    """The chains `keep` of each state, joined; client arrays have the chains in their second axis."""
    out = {}
    for f in fields(State):
        values = [getattr(s, f.name) for s in states]
        if values[0] is None:
            continue
        if f.name == "local":
            out[f.name] = tuple(np.concatenate([a[:, k] for a, k in zip(arrays, keep)], axis=1) for arrays in zip(*values))
        else:
            many = f.name in ("deviation", "lambda_sq")
            out[f.name] = np.concatenate([a[:, k] if many else a[k] for a, k in zip(values, keep)], axis=int(many))
    return State(**out)


class Equations(Hierarchy):
    m, p, n = 2, 3, 5
    shape, rate = 4.0, 3.0
    step_size = 0.5

    def __init__(self, *, update="element", swap=True, stable=False, scale_tau=0.5, scale_lambda=0.5, p=3, **options):
        self.p, self.q = p, p * p
        super().__init__(indicators=off_diagonal(p), scale_tau=scale_tau, scale_lambda=scale_lambda, **options)
        self.kernel = {"update": update, "swap": swap, "stable": stable}

    def prior_local(self, rng, n):
        return (inverse_gamma(rng, self.shape, self.rate, (self.m, n, self.p)),)

    def matrices(self, state):
        """(m, c, p, p)"""
        return state.coefficients().reshape(self.m, -1, self.p, self.p)

    def prior(self, rng, n):
        """With `stable` the joint prior is truncated: all sites at once, parents included."""
        if not self.kernel["stable"]:
            return super().prior(rng, n)
        states, keep, found = [], [], 0
        while found < n:
            states.append(super().prior(rng, n))
            keep.append(np.flatnonzero((radius(self.matrices(states[-1])) < 1).all(axis=0)))
            found += len(keep[-1])
        return take([take(states, keep)], [np.arange(n)])

    def simulate(self, rng, state):
        """(m, c, p, n): y = B^-1 e."""
        e = rng.laplace(size=(*state.local[0].shape, self.n)) * state.local[0][..., None]
        return np.linalg.solve(np.eye(self.p) - self.matrices(state), e)

    def client(self, k, state, data, number):
        c, p = state.theta.shape[0], self.p
        options = self.client_options(k, number) | self.kernel | {"shape": self.shape, "rate": self.rate}
        del options["slab"]
        square = [a.reshape(c, p, p) for a in (state.theta, state.tau_sq, state.deviation[k], state.lambda_sq[k])]
        steps = np.full((c, p, p), np.log(self.step_size))
        d, lam, b, *_ = sem.sweeps(data[k], *square, state.local[0][k], steps, np.ones(c), **options)
        return d.reshape(c, -1), lam.reshape(c, -1), b

    def local_functions(self, state, data):
        b, theta = state.local[0], self.matrices(state)
        B = np.eye(self.p) - theta
        sign, logdet = np.linalg.slogdet(B)
        log_b, z = np.log(b), B @ data / b[..., None]
        sums = np.tanh(theta.sum(axis=-1))
        loops = (theta * theta.swapaxes(-1, -2)).sum(axis=(-1, -2)) / 2
        return {
            "log b": log_b.mean(axis=(0, 2)),
            "(log b)^2": (log_b**2).mean(axis=(0, 2)),
            "log |det B|": logdet.mean(axis=0),
            "det B > 0": (sign > 0).mean(axis=0),
            "tanh loops": np.tanh(loops).mean(axis=0),
            "tanh y_1 y_2": np.tanh(data[:, :, 0] * data[:, :, 1]).mean(axis=(0, 2)),
            "log(1 + y^2)": np.log1p(data**2).mean(axis=(0, 2, 3)),
            "log b tanh row sums": (log_b * sums).mean(axis=(0, 2)),
            "tanh e/b tanh theta": (np.tanh(z).mean(axis=-1)[..., 0] * np.tanh(theta[..., 0, 1])).mean(axis=0),
            "tanh |e/b| tanh^2 theta": (np.tanh(np.abs(z)).mean(axis=(-1, -2)) * np.tanh(theta[..., 0, 1]) ** 2).mean(axis=0),
        }


class PlainEquations(Equations):
    """Element moves and swaps in NumPy, all chains at once, with a choice of faults inside the moves."""

    fault = ""

    def client(self, k, state, data, number):
        rng = np.random.default_rng([31, number, k])
        c, p, n = state.theta.shape[0], self.p, self.n
        given = (state.theta, state.tau_sq, state.deviation[k], state.lambda_sq[k])
        theta, tau_sq, d, lam = (a.reshape(c, p, p).copy() for a in given)
        b, y = state.local[0][k].copy(), data[k]
        nu = 1 / (rng.standard_exponential((c, p, p)) / (1 / self.prior_options["scale_lambda"] ** 2 + 1 / lam))
        lam = np.clip((1 / nu + d**2 / (2 * tau_sq)) / rng.standard_exponential((c, p, p)), 1e-60, 1e60)
        B = np.eye(p) - theta - d
        power = {"no determinant": 0, "determinant to the power 1": 1}.get(self.fault, n)
        for j in range(p):
            for h in range(p):
                if h == j:
                    continue
                W = np.linalg.inv(B)
                size = self.step_size
                if self.fault == "step without ratio":
                    size = size * np.exp(2 * np.tanh(2 * B[:, j, h]))
                delta = size * rng.standard_normal(c)
                e = (B[:, j, :, None] * y).sum(axis=1)
                ratio = 1 - delta * (W[:, j, h] if self.fault == "W transposed" else W[:, h, j])
                log_a = power * np.log(np.abs(ratio)) - (np.abs(e - delta[:, None] * y[:, h]) - np.abs(e)).sum(axis=1) / b[:, j]
                log_a -= ((d[:, j, h] + delta) ** 2 - d[:, j, h] ** 2) / (2 * lam[:, j, h] * tau_sq[:, j, h])
                taken = np.where(np.log(rng.random(c)) < log_a, delta, 0.0)
                d[:, j, h] += taken
                B[:, j, h] -= taken
        if self.kernel["swap"]:
            d, b = self.swap(rng, theta, d, b, lam * tau_sq)
        total = np.abs((np.eye(p) - theta - d) @ y).sum(axis=-1)
        b = (self.rate + total) / rng.standard_gamma(self.shape + n, total.shape)
        off = ~np.eye(p, dtype=bool)
        return np.where(off, d, 0.0).reshape(c, -1), np.where(off, lam, 1.0).reshape(c, -1), b

    def swap(self, rng, theta, d, b, variance):
        c, p = b.shape
        j, h = rng.choice(p, 2, replace=False)
        rows = [j, h]
        new = np.eye(p) - theta - d
        u, w = new[:, j].copy(), new[:, h].copy()
        first, second = w[:, j], u[:, h]
        new[:, j], new[:, h] = w / first[:, None], u / second[:, None]
        d_new = np.eye(p) - new - theta
        d_new[:, j, j] = d_new[:, h, h] = 0
        b_new = b.copy()
        b_new[:, j], b_new[:, h] = b[:, h] / np.abs(first), b[:, j] / np.abs(second)
        log_a = ((d**2 - d_new**2) / (2 * variance))[:, rows].sum(axis=(1, 2))
        log_a += ((self.shape + 1) * np.log(b / b_new) + self.rate * (1 / b - 1 / b_new)).sum(axis=1)
        if self.fault != "swap without Jacobian":
            log_a -= (p + 1) * np.log(np.abs(first * second))
        keep = np.log(rng.random(c)) < log_a
        return np.where(keep[:, None, None], d_new, d), np.where(keep[:, None], b_new, b)
