"""Cyclic structural equation model: time of a proposal, and what row Gibbs gives for its price.

    python -m benchmarks.bench_sem

Peers do a whole sweep as `sem.sweeps` does: scales by parameter expansion, all elements with rank-one updates of the inverse, b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import thread_time
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import sem

from . import common, peers

ROWS, SWEEPS = 227, 20
SIZES = (11, 16, 50)
# p, n, sweeps
MIXING = ((4, ROWS, 4000), (11, ROWS, 4000), (30, ROWS, 1200), (50, ROWS, 600), (4, 40, 4000), (11, 40, 4000), (11, 1000, 2000))


@dataclass(frozen=True)
class Case:
    """One site with p variables and a sparse graph, somewhere in its posterior."""

    p: int
    n: int = ROWS
    chains: int = 1

    @cached_property
    def arrays(self) -> dict[str, Any]:
        rng, c, p = np.random.default_rng(self.p), self.chains, self.p
        graph = np.zeros((p, p))
        graph[np.arange(p), np.arange(p) - 1] = rng.uniform(0.3, 0.6, p) * rng.choice([-1, 1], p)  # one cycle
        Y = np.linalg.solve(np.eye(p) - graph, rng.laplace(size=(p, self.n)))
        Y -= Y.mean(axis=1, keepdims=True)
        start = {
            "Y": Y,
            "theta": np.zeros((c, p, p)),
            "tau_sq": np.full((c, p, p), 0.05),
            "deviation": np.zeros((c, p, p)),
            "lambda_sq": np.ones((c, p, p)),
            "b": np.ones((c, p)),
            "log_step": np.full((c, p, p), 0.8),
            "temperature": np.ones(c),
        }
        state = sem.sweeps(**start, seed=1, n_sweeps=300, update="element", adapt=True)[:4]
        return start | dict(zip(("deviation", "lambda_sq", "b", "log_step"), state))


def fedkern(case: Case, update: str = "element", n_sweeps: int = SWEEPS, **options: Any) -> Callable[[], Any]:
    return lambda: sem.sweeps(**case.arrays, seed=2, n_sweeps=n_sweeps, update=update, **options)


def numpy(case: Case, n_sweeps: int = SWEEPS) -> Callable[[], Any]:
    """A vector operation for each proposal."""
    state = _copies(case)
    rng = np.random.default_rng(0)

    def sweep(Y, theta, tau_sq, d, lambda_sq, b, step):  # type: ignore[no-untyped-def]
        p, n = Y.shape
        nu = (1 + 1 / lambda_sq) / rng.standard_exponential((p, p))
        lambda_sq[:] = (1 / nu + d * d / (2 * tau_sq)) / rng.standard_exponential((p, p))
        B = np.eye(p) - theta - d
        W, e = np.linalg.inv(B), B @ Y
        total = np.abs(e).sum(axis=1)
        delta = step * rng.standard_normal((p, p))
        log_u = np.log(rng.random((p, p)))
        for j in range(p):
            for h in range(p):
                if h == j:
                    continue
                ratio = 1 - delta[j, h] * W[h, j]
                shifted = e[j] - delta[j, h] * Y[h]
                proposed = np.abs(shifted).sum()
                gain = n * np.log(abs(ratio)) - (proposed - total[j]) / b[j]
                gain -= delta[j, h] * (2 * d[j, h] + delta[j, h]) / (2 * lambda_sq[j, h] * tau_sq[j, h])
                if log_u[j, h] < gain:
                    d[j, h] += delta[j, h]
                    e[j], total[j] = shifted, proposed
                    W += np.outer(W[:, j], delta[j, h] / ratio * W[h])
        b[:] = (1 + total) / rng.standard_gamma(2.0 + n, p)

    def sweeps() -> None:
        for _ in range(n_sweeps):
            sweep(*state)

    return _from_start(state, sweeps)


def numba(case: Case, n_sweeps: int = SWEEPS) -> Callable[[], Any]:
    state = _copies(case)
    return _from_start(state, lambda: peers.sem_sweeps()(*state, n_sweeps))


def _copies(case: Case) -> list[np.ndarray]:
    """Of the first chain; the steps are those that were found for our proposals, at the scales of the start."""
    a = case.arrays
    variance = a["lambda_sq"][0] * a["tau_sq"][0]
    sd = 1 / np.sqrt(1 / variance + (a["Y"] ** 2).sum(axis=1)[None, :] / a["b"][0][:, None] ** 2)
    first = [a[name][0].copy() for name in ("theta", "tau_sq", "deviation", "lambda_sq", "b")]
    return [a["Y"].copy(), *first, np.exp(a["log_step"][0]) * sd]


def _from_start(state: list[np.ndarray], sweeps: Callable[[], None]) -> Callable[[], None]:
    """Each call begins where ours does: in thousands of calls a chain would wander to scales where its work is not like ours."""
    changed = state[3:6]  # deviation, lambda_sq, b
    start = [array.copy() for array in changed]

    def call() -> None:
        for array, first in zip(changed, start):
            array[:] = first
        sweeps()

    return call


PEERS: dict[str, Callable[[Case], Callable[[], Any]]] = {"fedkern": fedkern, "numba": numba, "numpy": numpy}


class Sweeps(common.Timed):
    """Seconds of 20 sweeps over p (p - 1) elements, n = 227."""

    params = (list(PEERS), SIZES)
    param_names = ("peer", "p")

    def make(self, peer: str, p: int) -> common.Call:
        return PEERS[peer](Case(p))

    def time_20_sweeps(self, peer: str, p: int) -> None:
        self.call()


class Ratios:
    params = (SIZES,)
    param_names = ("p",)
    timeout = 300

    def track_numba(self, p: int) -> float:
        with common.alone():  # products of this size are slower, by times, where two threads wait for each other
            return common.ratio(fedkern(Case(p), scales="expanded"), numba(Case(p)))

    track_numba.unit = "times as fast"


class RowGibbs:
    """Effective draws a second of the graph's elements, over those of element moves."""

    params = ((4, 11, 30),)
    param_names = ("p",)
    timeout = 600

    def track_gain(self, p: int) -> float:
        by_element, by_row = (effective_draws(Case(p, chains=4), update, 2000)[1] for update in ("element", "row-gibbs"))
        return by_row / by_element

    track_gain.unit = "times as many"


def effective_draws(case: Case, update: str, sweeps: int) -> tuple[float, float]:
    """Median effective draws of the graph's elements for 1000 sweeps of a chain, and in a second. Global parameters are fixed."""
    names = ("deviation", "lambda_sq", "b", "log_step")
    state = {name: case.arrays[name] for name in names}
    fixed = {name: case.arrays[name] for name in ("Y", "theta", "tau_sq", "temperature")}
    *after, _, _ = sem.sweeps(**fixed, **state, seed=3, n_sweeps=200, update=update, adapt=True)
    state = dict(zip(names, after))
    samples, seconds = np.empty((sweeps, *state["deviation"].shape)), 0.0
    for t in range(sweeps):
        start = thread_time()
        *after, _, _ = sem.sweeps(**fixed, **state, seed=4, step=t, n_sweeps=2, update=update)
        seconds += thread_time() - start
        state = dict(zip(names, after))
        samples[t] = state["deviation"]
    sizes = [np.mean([_ess(samples[:, c, j, j - 1]) for c in range(case.chains)]) for j in range(case.p)]
    size = float(np.median(sizes))
    return 1000 * size / (2 * sweeps), size * case.chains / seconds


def _ess(x: np.ndarray) -> float:
    """Geyer's initial positive sequence of one chain."""
    n = len(x)
    spectrum = np.fft.rfft(x - x.mean(), 2 * n)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[:n]
    correlation /= correlation[0]
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.argmax(pairs < 0) if (pairs < 0).any() else len(pairs)
    return n / max(2 * pairs[:stop].sum() - 1, 1e-9)


if __name__ == "__main__":
    common.alone()
    print(f"level {_core.isa()}; {common.machine()}")
    for p in SIZES:
        case = Case(p)
        calls = {
            "exact scales": fedkern(case),
            "expanded scales": fedkern(case, scales="expanded"),
            "row-gibbs": fedkern(case, "row-gibbs"),
            "numba": numba(case),
            "numpy": numpy(case),
        }
        each = {name: t / (SWEEPS * p * (p - 1)) for name, t in common.times(calls, seconds=3).items()}
        against = ", ".join(f"{peer} / expanded {each[peer] / each['expanded scales']:.2f}" for peer in ("numba", "numpy"))
        print(f"p = {p}, n = {ROWS}, ns a proposal: {common.cells(each, '.0f', 1e9)}; {against}", flush=True)
    for p, n, sweeps in MIXING:
        draws = {update: effective_draws(Case(p, n, chains=4), update, sweeps) for update in ("element", "row-gibbs")}
        cells = "  ".join(f"{update} {a:.0f} per 1000 sweeps, {b:.0f}/s" for update, (a, b) in draws.items())
        times = draws["row-gibbs"][1] / draws["element"][1]
        print(f"p = {p}, n = {n}: {cells}; row-gibbs / element {times:.2f} a second", flush=True)
