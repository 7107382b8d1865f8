"""Local sweeps of the sparse models: fedkern beside NumPy with LAPACK and Numba, and beside its own LAPACK calls.

`python -m benchmarks.bench_shrinkage`, from the folder above, prints the rows of a table; asv runs the same cases. BLAS has one
thread in all of them, but where it says so.

What a sweep must do at least, of r rows and p coefficients:

* p <= r: build A (p^2 products: 4 p^2 bytes of G are read and 4 p^2 of A written), p^3 / 3 flops of Cholesky, 2 p^2 flops of
  triangular solves, p^2 of the residual (4 p^2 bytes of R). At p = 11 this is 1,300 flops, and the random numbers are the larger
  part: about 1.5 attempts at 11 scales (3 logarithms and an exponential each), 11 normals, one gamma variate.
* r < 0.6 p: r^2 p flops of the product W W' (less where R is a triangle), r^3 / 3 of Cholesky;
  R is read three times (8 r p bytes each), and W is made a panel at a time, in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import blas, cholesky, lapack, solve_triangular

from fedkern import _core
from fedkern.kernels import rng, shrinkage

from . import common, peers

TAU_SQ = 0.01


@dataclass(frozen=True)
class Case:
    """n rows, p coefficients, and how many sweeps one call makes."""

    n: int
    p: int
    sweeps: int

    def data(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """R, q, rss and R'R."""
        return _data(self.n, self.p)


@lru_cache(maxsize=4)
def _data(n: int, p: int) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, p))
    y = 0.7 * X[:, 0] + generator.standard_normal(n)
    Q, R = np.linalg.qr(X)
    q = Q.T @ y
    return R, q, max(float(y @ y - q @ q), 0.0), R.T @ R


CASES = {
    "n=150 p=11": Case(150, 11, 2000),
    "n=500 p=100": Case(500, 100, 100),
    "n=1000 p=500": Case(1000, 500, 8),
    "n=200 p=2000": Case(200, 2000, 6),
}


def by_fedkern(case: Case, backend: str = "cpp", scales: str = "exact") -> Callable[[], Any]:
    R, q, rss, gram = case.data()
    one = np.ones((1, case.p))
    arguments = R, q, rss, float(case.n), 0 * one, TAU_SQ * one, 0.1 * one, one, np.ones(1)
    options = {"seed": 1, "n_sweeps": case.sweeps, "gram": gram, "scales": scales, "backend": backend}
    return lambda: shrinkage.local_sweeps(*arguments, **options)


def numpy_coefficients(R: Any, gram: Any, c: Any, t: Any, sigma: float, e: Any, z: Any, more: Any) -> Any:
    """The draw in whichever form is cheaper, with as few copies as NumPy can do."""
    r, p = R.shape
    s = t / sigma
    if r < 0.6 * p:
        W = R * s
        M = W @ W.T
        M.flat[:: r + 1] += 1
        L = cholesky(M, lower=True, overwrite_a=True, check_finite=False)
        w = solve_triangular(L, e / sigma - W @ z - more, lower=True, check_finite=False)
        return t * (z + W.T @ solve_triangular(L, w, lower=True, trans=1, check_finite=False))
    A = gram * s
    A *= s[:, None]
    A.flat[:: p + 1] += 1
    L = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
    y = solve_triangular(L, s * c / sigma, lower=True, check_finite=False)
    return t * solve_triangular(L, y + z, lower=True, trans=1, check_finite=False)


def numpy_sweeps(R: Any, q: Any, rss: float, n: float, gram: Any, sweeps: int, out: int = -1) -> Any:
    """Sweeps with the expanded scales, theta = 0; coefficient `out` is left out by a scale of 0."""
    generator, p = np.random.default_rng(1), R.shape[1]
    d, lambda_sq, sigma_sq, c = np.full(p, 0.1), np.ones(p), 1.0, R.T @ q
    for _ in range(sweeps):
        nu_inverse = generator.standard_exponential(p) / (1 + 1 / lambda_sq)
        lambda_sq = (nu_inverse + d * d / (2 * TAU_SQ)) / generator.standard_exponential(p)
        t = np.sqrt(lambda_sq * TAU_SQ)
        if out >= 0:
            t[out] = 0
        z, more = generator.standard_normal(p), generator.standard_normal(len(R))
        d = numpy_coefficients(R, gram, c, t, np.sqrt(sigma_sq), q, z, more)
        residual = q - R @ d
        sigma_sq = (1 + (rss + residual @ residual) / 2) / generator.standard_gamma(2 + n / 2)
    return d


def by_numpy(case: Case) -> Callable[[], Any]:
    R, q, rss, gram = case.data()
    return lambda: numpy_sweeps(R, q, rss, float(case.n), gram, case.sweeps)


def by_numba(case: Case) -> Callable[[], Any]:
    """The expanded scales and a Cholesky factorisation by loops: for few coefficients."""
    if case.p > 100:
        raise common.absent("Numba by hand of many coefficients, whose time is LAPACK's")
    R, q, rss, gram = case.data()
    c, yy, tau_sq, loop = R.T @ q, rss + float(q @ q), np.full(case.p, TAU_SQ), peers.horseshoe_sweeps()
    return lambda: loop(gram, c, yy, float(case.n), tau_sq, np.full(case.p, 0.1), np.ones(case.p), 1.0, case.sweeps)


PEERS: dict[str, Callable[[Case], Callable[[], Any]]] = {
    "fedkern": by_fedkern,
    "fedkern, expanded": lambda case: by_fedkern(case, scales="expanded"),
    "numpy": by_numpy,
    "numba": by_numba,
}


def agree() -> None:
    """With the same normals, NumPy draws the same coefficients in both forms."""
    for n, p in ((150, 11), (40, 100)):
        R, q, _, gram = _data(n, p)
        key, t = rng.key(1, "coefficients"), np.full(p, 0.3)
        z, more = (rng.normal(m, key=key, draw=draw) for draw, m in ((0, p), (1, len(R))))
        want = numpy_coefficients(R, gram, R.T @ q, t, 1.0, q, z, more)
        got = shrinkage.gaussian_posterior_draw(R, q, np.zeros((1, p)), t[None], np.ones(1), seed=1)
        np.testing.assert_allclose(got[0], want, rtol=1e-9, atol=1e-11)


class LocalSweeps(common.Timed):
    """Time of `sweeps` sweeps of one chain."""

    params = (list(CASES), list(PEERS))
    param_names = ("case", "peer")

    def make(self, case: str, peer: str) -> common.Call:
        return PEERS[peer](CASES[case])

    def time_local_sweeps(self, case: str, peer: str) -> None:
        self.call()


class Ratios:
    params = (list(CASES),)
    param_names = ("case",)
    timeout = 300

    def track_numpy(self, case: str) -> float:
        with common.alone():
            return common.ratio(PEERS["fedkern"](CASES[case]), by_numpy(CASES[case]))

    track_numpy.unit = "times as fast"


# The regressions of a Markov random field --------------------


def batch(n: int, p: int, n_threads: int = 2) -> Callable[[], Any]:
    """One sweep of all p regressions of a client."""
    R, *_, gram = _data(n, p)
    one = np.ones((1, p, p))
    arguments = R, float(n), 0 * one, TAU_SQ * one, 0.1 * one, one, np.ones((1, p))
    return lambda: shrinkage.local_sweeps_batched(*arguments, seed=1, gram=gram, n_threads=n_threads)


def numpy_batch(n: int, p: int) -> Callable[[], Any]:
    R, *_, gram = _data(n, p)
    return lambda: [numpy_sweeps(R, R[:, j], 0.0, float(n), gram, 1, out=j) for j in range(p)]


def some(n: int, p: int, count: int) -> Callable[[], Any]:
    """As many of the regressions: chains of one regression do the same work."""
    R, q, rss, gram = _data(n, p)
    one = np.ones((count, p))
    arguments = R, q, rss, float(n), 0 * one, TAU_SQ * one, 0.1 * one, one, np.ones(count)
    return lambda: shrinkage.local_sweeps(*arguments, seed=1, gram=gram)


def floor(n: int, p: int, count: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The calls dsyrk(n, p) and dpotrf(n), or dpotrf(p), as often; and the copies among them, which are no part of it."""
    R, *_, gram = _data(n, p)
    if len(R) < 0.6 * p:
        M = np.zeros((len(R), len(R)), order="F")

        def calls() -> None:
            for _ in range(count):
                blas.dsyrk(1.0, R.T, trans=1, lower=1, c=M, overwrite_c=1)
                M.flat[:: len(R) + 1] += 1
                lapack.dpotrf(M, lower=1, clean=0, overwrite_a=1)

        return calls, lambda: None
    A = np.asfortranarray(gram + np.eye(p))
    work = A.copy(order="F")

    def factorisations() -> None:
        for _ in range(count):
            work[...] = A
            lapack.dpotrf(work, lower=1, clean=0, overwrite_a=1)

    def copies() -> None:
        for _ in range(count):
            work[...] = A

    return factorisations, copies


FIELDS = {"p=217 n=300": (300, 217), "p=217 n=100": (100, 217)}
LARGE = {"p=1000 n=500": (500, 1000), "p=1000 n=1000": (1000, 1000)}


class Batched(common.Timed):
    """Time of one sweep of all regressions."""

    params = (list(FIELDS), [1, 2])
    param_names = ("field", "threads")

    def make(self, field: str, threads: int) -> common.Call:
        return batch(*FIELDS[field], threads)

    def time_local_sweeps_batched(self, field: str, threads: int) -> None:
        self.call()


class OverLapack:
    """Regressions of a large field over their LAPACK calls."""

    params = (list(LARGE),)
    param_names = ("field",)
    timeout = 300

    def track_over_lapack(self, field: str) -> float:
        with common.alone():
            return over_lapack(*LARGE[field])[0]

    track_over_lapack.unit = "x floor"


def over_lapack(n: int, p: int, count: int = 5) -> tuple[float, float]:
    """Ours over the floor, and seconds of one regression."""
    calls, copies = floor(n, p, count)
    ours, theirs, copied = common.medians(some(n, p, count), calls, copies, seconds=0, rounds=7)
    return ours / (theirs - copied), ours / count


if __name__ == "__main__":
    print(f"level {_core.isa()}; {common.machine()}")
    with common.alone():
        agree()
        for name, case in CASES.items():
            seconds = common.times(common.available(PEERS, case), seconds=2)
            print(f"{name}: {common.cells(seconds, '.2f', 1e6 / case.sweeps, ' us')}")
            ratios = {peer: seconds[peer] / seconds["fedkern"] for peer in ("numpy", "numba") if peer in seconds}
            print("    " + "; ".join(f"{peer} / ours {ratio:.2f}" for peer, ratio in ratios.items()), flush=True)
        for name, (n, p) in LARGE.items():
            ratio, seconds = over_lapack(n, p)
            print(f"{name}: {1e3 * seconds:.2f} ms a regression, {ratio:.2f} x its LAPACK calls", flush=True)
        for name, (n, p) in FIELDS.items():
            two, one, loop = common.medians(batch(n, p, 2), batch(n, p, 1), numpy_batch(n, p), seconds=0, rounds=5)
            print(f"{name}: two threads {1e3 * two:.1f} ms, one {1e3 * one:.1f} ms, numpy {1e3 * loop:.1f} ms")
            print(f"    numpy / ours {loop / two:.2f} with two threads, {loop / one:.2f} with one", flush=True)
    for name, (n, p) in FIELDS.items():
        (loop,) = common.medians(numpy_batch(n, p), seconds=0, rounds=5)
        print(f"{name}: numpy with a BLAS of two threads {1e3 * loop:.1f} ms")
