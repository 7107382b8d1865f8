"""Mixed models: a logistic random intercept of 537 children with four rows each at 4,000 points, by 15 nodes.

    python -m benchmarks.bench_mixed

The bound is of arithmetic: vector instructions of the cheapest arrangement that we know (`operations`) at the rate of a matrix
product of the same level of instructions, in the same process. It leaves out all loads and stores. At a lower level:
FEDKERN_ISA=avx2 (the peers but NumPy keep theirs). Peers find modes by Newton's steps, too; each takes an exponential a row and a
node, and a logarithm a node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import mixed

from . import common, floors

POINTS, CHILDREN, ROWS, NODES = 4000, 537, 4, 15
STEPS = 8  # of Newton's method, of the peer that takes as many everywhere


@dataclass(frozen=True)
class Case:
    """Points around a posterior. `alike`: all children have the same ages and are one of two kinds, as the six cities' are."""

    alike: bool
    points: int = POINTS

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        rng = np.random.default_rng(7)
        age = np.tile([-2.0, -1.0, 0.0, 1.0], CHILDREN) + (0.0 if self.alike else 0.3 * rng.standard_normal(CHILDREN * ROWS))
        smoke = np.repeat(rng.random(CHILDREN) < 0.35, ROWS).astype(float)
        X = np.column_stack([np.ones_like(age), age, smoke, age * smoke])
        centre, sd = np.array([-3.1, -0.2, 0.4, 0.1, 0.75]), np.array([0.22, 0.09, 0.28, 0.14, 0.08])
        eta = X @ centre[:4] + 2 * np.repeat(rng.standard_normal(CHILDREN), ROWS)
        y = (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
        points = centre + sd * rng.standard_normal((self.points, 5))
        return points, X, np.ones((len(y), 1)), y, None, None, np.arange(0, len(y) + 1, ROWS)

    def operations(self) -> float:
        """Vector instructions of one point and child, an element each, where a division is six and none is a load.

        An exponential is 14 (reduction 3, polynomial 9, exponent 2); a row its predictor and exponential; the polynomial of four
        rows 10; one step from a start and the mode itself 45 beside an exponential and two divisions each; for each pair of nodes
        three exponentials, their arguments, two polynomials and their ratio; a logarithm and a root.
        """
        row, step, pair, end = 4 + 14, 14 + 45 + 12, 3 * 14 + 4 + 8 + 10 + 6, 46
        return ROWS * row + 10 + (1 if self.alike else 2) * step + NODES // 2 * pair + end

    def of_curvature(self) -> float:
        """The same with gradient and Hessian, whose weights and probabilities are made at every node.

        A row and node: e^eta, 1 + it, its part of the product, the probability (a division), slope and curvature, the weighted
        curvature's three sums with the group's effect, and five sums of slopes. A row: its predictor, exponential, and products
        of four covariates. A node: an exponential for the rows and one of the term, a logarithm of the product, weights, five
        means, and fifteen covariances. Once: the mode as in `operations`.
        """
        cell, row, step = 3 + 6 + 2 + 6 + 5, 4 + 14 + 2 * 15, 14 + 45 + 12
        node, once = 14 + 14 + 16 + 8 + 2 * 5 + 2 * 5 + 15, 10 + (1 if self.alike else 2) * step + 46
        return ROWS * NODES * cell + ROWS * row + NODES * node + once

    def bound(self, rate: float, curvature: bool = False) -> float:
        """Seconds at so many operations a second, a multiplication and an addition being two."""
        return 2 * (self.of_curvature() if curvature else self.operations()) * self.points * CHILDREN / rate


PRODUCT = 768  # of a matrix, whose product has the highest rate of arithmetic


def least(calls: dict[str, common.Call], rounds: int) -> dict[str, float]:
    """The least processor time of each call, which take turns: what others do on this machine only adds to it."""
    least = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for peer, call in calls.items():
            began = time.process_time()
            call()
            least[peer] = min(least[peer], time.process_time() - began)
    return least


def curvature(case: Case, backend: str = "cpp") -> Callable[[], Any]:
    return lambda: mixed.curvature(*case.arrays, family="bernoulli", nodes=NODES, backend=backend)


def fedkern(case: Case, n_threads: int = 1) -> Callable[[], Any]:
    return lambda: mixed.values(*case.arrays, family="bernoulli", nodes=NODES, n_threads=n_threads)


def reference(case: Case) -> Callable[[], Any]:
    """NumPy: arrays of points and rows, a few hundred points at a time."""
    return lambda: mixed.values(*case.arrays, family="bernoulli", nodes=NODES, backend="reference")


@cache
def numba_values() -> Any:
    """A point and child at a time; what a child's rows share is computed once."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def values(points, X, y, starts, t, log_w, out):  # type: ignore[no-untyped-def]
        n, p = X.shape
        Q = len(t)
        E, terms, w, product = np.empty(n), np.empty(Q), np.empty(Q), np.empty(Q)
        for s in range(len(points)):
            T = np.exp(points[s, p])
            total = 0.0
            for i in range(n):
                eta = 0.0
                for j in range(p):
                    eta += X[i, j] * points[s, j]
                E[i] = np.exp(eta)
                total += y[i] * eta
            for g in range(len(starts) - 1):
                Y = 0.0
                for i in range(starts[g], starts[g + 1]):
                    Y += y[i]
                u, H = 0.0, 1.0
                for _ in range(50):
                    e, slope, H = np.exp(T * u), Y, 0.0
                    for i in range(starts[g], starts[g + 1]):
                        q = 1 / (1 + E[i] * e)
                        slope -= 1 - q
                        H += q * (1 - q)
                    H = 1 + T * T * H
                    step = max(-2 / T, min(2 / T, (T * slope - u) / H))  # all steps of Newton's would not arrive
                    u += step
                    if abs(step) < 1e-6:
                        break
                c = 1 / np.sqrt(H)
                for k in range(Q):
                    w[k] = np.exp(T * (u + c * t[k]))
                    product[k] = 1.0
                for i in range(starts[g], starts[g + 1]):
                    for k in range(Q):
                        product[k] *= 1 + E[i] * w[k]
                most = -np.inf
                for k in range(Q):
                    z = u + c * t[k]
                    terms[k] = log_w[k] + Y * T * z - 0.5 * z * z + 0.5 * t[k] * t[k] - np.log(product[k])
                    most = max(most, terms[k])
                integral = 0.0
                for k in range(Q):
                    integral += np.exp(terms[k] - most)
                total += most + np.log(integral * c)
            out[s] = total

    return values


def rule() -> tuple[Any, Any]:
    t, w = np.polynomial.hermite_e.hermegauss(NODES)
    return t, np.log(w / w.sum())


def numba(case: Case) -> Callable[[], Any]:
    common.need("numba")
    points, X, _, y, _, _, starts = case.arrays
    values, out, (t, log_w) = numba_values(), np.empty(len(points)), rule()

    def call() -> Any:
        values(points, X, y, starts, t, log_w, out)
        return out

    return call


def jax(case: Case) -> Callable[[], Any]:
    """vmap over points, children as an axis (all have as many rows), a fixed number of Newton's steps."""
    module = common.jax()
    np_, points, X, y = module.numpy, *(case.arrays[i] for i in (0, 1, 3))
    t, log_w = map(np_.asarray, rule())
    X, y = np_.asarray(X).reshape(CHILDREN, ROWS, -1), np_.asarray(y).reshape(CHILDREN, ROWS)

    def value(xi: Any) -> Any:
        T, eta = np_.exp(xi[4]), X @ xi[:4]
        E, Y = np_.exp(eta), y.sum(axis=1)
        u, H = np_.zeros(CHILDREN), np_.ones(CHILDREN)
        for _ in range(STEPS):
            q = 1 / (1 + E * np_.exp(T * u)[:, None])
            H = 1 + T * T * (q * (1 - q)).sum(axis=1)
            u = u + np_.clip((T * (Y - (1 - q).sum(axis=1)) - u) / H, -2 / T, 2 / T)
        z = u[:, None] + t / np_.sqrt(H)[:, None]
        logs = np_.log(np_.prod(1 + E[:, :, None] * np_.exp(T * z)[:, None, :], axis=1))
        terms = log_w + T * Y[:, None] * z - 0.5 * z * z + 0.5 * t * t - logs
        return (module.scipy.special.logsumexp(terms, axis=1) - 0.5 * np_.log(H)).sum() + (y * eta).sum()

    many, held = module.jit(lambda xs: module.lax.map(value, xs, batch_size=50)), np_.asarray(points)
    return lambda: many(held).block_until_ready()


PEERS = {"fedkern": fedkern, "numba": numba, "jax": jax, "numpy": reference}


class Values(common.Timed):
    params = (list(PEERS), [True, False])
    param_names = ("peer", "alike")

    def make(self, peer: str, alike: bool) -> common.Call:
        return PEERS[peer](Case(alike))

    def time_values(self, peer: str, alike: bool) -> None:
        self.call()


def same(case: Case) -> None:
    """All compute the same numbers."""
    small = Case(case.alike, 40)
    results = {peer: np.asarray(call()) for peer, call in common.available(PEERS, small).items()}
    for peer, result in results.items():
        np.testing.assert_allclose(result, results["fedkern"], rtol=1e-8, err_msg=peer)


def main() -> None:
    print(f"values of {POINTS} points, {CHILDREN * ROWS} rows of {CHILDREN} groups, {NODES} nodes; instructions: {_core.isa()}")
    print(common.machine())
    print("least processor times, on one thread; NumPy's of 200 points, times 20")
    with common.alone():
        for alike in (True, False):
            case = Case(alike)
            same(case)
            calls = common.available(PEERS, case) | {"numpy": reference(Case(alike, POINTS // 20))}
            of_peers = least({peer: call for peer, call in calls.items() if peer != "fedkern"}, rounds=2)
            ours = least({"fedkern": fedkern(case), "product": floors.multiply(PRODUCT)}, rounds=20)
            rate = 2 * PRODUCT**3 / ours.pop("product")
            seconds, bound = ours | of_peers | {"numpy": 20 * of_peers["numpy"]}, case.bound(rate)
            print(
                f"groups alike: {alike}, ms: bound {1e3 * bound:.1f} ({rate / 1e9:.1f} Gflop/s)  "
                f"{common.cells(seconds, '.1f', 1e3)}"
            )
            print(common.against(seconds, bound, "bound"), flush=True)
        for points in (1, 8, 64):
            case = Case(False, points)
            calls = {"fedkern": curvature(case), "product": floors.multiply(PRODUCT)}
            ours = least(calls, rounds=20)
            rate = 2 * PRODUCT**3 / ours.pop("product")
            slow = least({"numpy": curvature(case, "reference")}, rounds=2) if points < 64 else {}
            bound = case.bound(rate, curvature=True)
            print(f"curvature at {points} points, ms: bound {1e3 * bound:.2f}  {common.cells(ours | slow, '.2f', 1e3)}")
            print(f"    ours / bound {ours['fedkern'] / bound:.2f}", flush=True)


if __name__ == "__main__":
    main()
