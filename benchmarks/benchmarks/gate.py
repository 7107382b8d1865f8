"""The gate of a change: kernels beside the best peer. `python -m benchmarks.gate` prints the table of a level, or of the kernels
whose names begin with a word that you give.

asv tracks a share: seconds of CPU of our call over the peer's, both on one thread of one process, in turns; medians. Smaller is
better, as asv wants it; 0.5 is twice as fast, and the table prints 2. Peers are written by hand in Numba (`peers`), or NumPy's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import mixed, multinomial, survival

from . import (
    bench_glm,
    bench_multinomial,
    bench_privacy,
    bench_rng,
    bench_sem,
    bench_shrinkage,
    bench_survival,
    common,
    floors,
    peers,
)

Case = bench_glm.Case
Pair = tuple[Callable[[], Any], Callable[[], Any]]

ELBO = {
    "logistic 50000 x 100, f64": Case(50_000, 100),
    "logistic 50000 x 100, f32": Case(50_000, 100, dtype="f4"),
    "poisson 50000 x 100, f64": Case(50_000, 100, family="poisson"),
}
CLIPPED = {
    "256 x 108 f32": Case(256, 108, dtype="f4"),
    "32768 x 108 f32": Case(32768, 108, dtype="f4"),
    "4096 x 2000 f32": Case(4096, 2000, dtype="f4"),
    "32768 x 108 f64": Case(32768, 108),
}


def whole_rows() -> dict[str, tuple[str, Callable[[], Pair]]]:
    """What jobs of `likelihood` call most: rows without random effects. (rows, columns), and how many points."""
    found: dict[str, tuple[str, Callable[[], Pair]]] = {}

    def logistic(n: int, p: int, points: int) -> tuple[Any, ...]:
        random = np.random.default_rng(5)
        X, beta = random.standard_normal((n, p)), random.standard_normal(p) / np.sqrt(p)
        y = (random.random(n) < 1 / (1 + np.exp(-X @ beta))).astype(float)
        at = beta + 0.05 * random.standard_normal((points, p))
        return at, X, y, (np.empty((n, 0)), y, None, None, np.array([0, n]))

    for n, p, points in ((5_000, 10, 512), (5_000, 20, 512), (5_000, 80, 256)):

        def values(n: int = n, p: int = p, points: int = points) -> Pair:
            at, X, y, rest = logistic(n, p, points)
            return lambda: mixed.values(at, X, *rest, family="bernoulli", nodes=1), lambda: peers.logistic_values(at, X, y)

        found[f"mixed.values, {n} x {p}, {points} points"] = "blas", values
    for n, p in ((20_000, 10), (20_000, 20), (10_000, 80)):
        by_hand = p < 50

        def curvature(n: int = n, p: int = p, by_hand: bool = by_hand) -> Pair:
            at, X, y, rest = logistic(n, p, 1)
            peer = peers.logistic_curvature_by_hand if by_hand else peers.logistic_curvature_by_blas
            return lambda: mixed.curvature(at, X, *rest, family="bernoulli", nodes=1), lambda: peer(at[0], X, y)

        found[f"mixed.curvature, {n} x {p}"] = "numba" if by_hand else "blas", curvature

    def levels() -> Pair:
        case = bench_multinomial.Case(5_000)
        at, (X, y) = 0.1 * np.random.default_rng(1).standard_normal((256, case.size)), case.rows
        whole = y.astype(np.int64)
        return (
            lambda: multinomial.values(at, X, y, levels=case.levels),
            lambda: peers.multinomial_values(at, X, whole, case.levels),
        )

    def cox() -> Pair:
        case = bench_survival.Case(5_000)
        at, rows = 0.1 * np.random.default_rng(1).standard_normal((256, case.p)), case.rows
        _, time, event, entry = case.table
        died = event[survival.arranged(time, event, entry)[0]]
        return lambda: survival.cox_values(at, *rows), lambda: peers.cox_values(at, rows[0], died)

    found["multinomial.values, 5000 x 10, 4 levels"] = "blas", levels
    found["survival.cox_values, 5000 x 10"] = "blas", cox
    return found


def pairs() -> dict[str, tuple[str, Callable[[], Pair]]]:
    """Returns the peer's name and what makes both calls, by the case's name."""
    found = whole_rows()
    for name, case in ELBO.items():
        found[f"elbo_grad, {name}"] = "numba", lambda case=case: (bench_glm.elbo_by_fedkern(case), bench_glm.elbo_by_numba(case))  # type: ignore[misc]
    for name, case in CLIPPED.items():
        found[f"clipped_grad_sum, {name}"] = (
            "numba",
            lambda case=case: (bench_glm.clipped_by_fedkern(case), bench_glm.clipped_by_numba(case)),  # type: ignore[misc]
        )
    for shape in bench_privacy.SHAPES:
        for dtype in ("f4", "f8"):

            def clip(shape: tuple[int, int] = shape, dtype: str = dtype) -> Pair:
                x = bench_privacy.rows(shape, dtype)
                return bench_privacy.CLIPPERS["fedkern"](x), bench_privacy.CLIPPERS["numba"](x)

            found[f"clip_sum, {shape[0]} x {shape[1]} {dtype}"] = "numba", clip
    for p in bench_sem.SIZES:
        found[f"sem.sweeps, p = {p}"] = (
            "numba",
            lambda p=p: (bench_sem.fedkern(bench_sem.Case(p), scales="expanded"), bench_sem.numba(bench_sem.Case(p))),  # type: ignore[misc]
        )
    for name, sparse in bench_shrinkage.CASES.items():
        peer = "numba" if sparse.p < 50 else "numpy"
        found[f"local_sweeps, {name}"] = (
            peer,
            lambda case=sparse, peer=peer: (  # type: ignore[misc]
                bench_shrinkage.by_fedkern(case, scales="expanded"),
                bench_shrinkage.PEERS[peer](case),
            ),
        )
    for name in bench_rng.DISTRIBUTIONS:
        found[f"rng.{name}, 100000"] = (
            "numpy",
            lambda name=name: (bench_rng.by_fedkern(name, 100_000), bench_rng.by_numpy(name, 100_000)),  # type: ignore[misc]
        )
    found["rng.counts, 65536 poisson"] = "numba", bench_rng.poisson
    return found


class Gate:
    """Our seconds of CPU over the best peer's."""

    params = (list(pairs()),)
    param_names = ("kernel",)
    timeout = 120

    def track_share(self, kernel: str) -> float:
        with common.alone():
            return common.share(*pairs()[kernel][1](), seconds=2.0)[1]

    track_share.unit = "of the peer's time"  # type: ignore[attr-defined]


def main() -> None:
    print(f"python -m benchmarks.gate; FEDKERN_ISA={_core.isa()}; {common.machine()}")
    print(f"{'':44}{'us of CPU':>12}{'peer / ours':>14}")
    peers.agree()
    with common.alone():
        words = tuple(sys.argv[1:])
        for name, (peer, make) in pairs().items():
            if words and not name.startswith(words):
                continue
            mine, share = common.share(*make(), seconds=1.5)
            print(f"{name:44}{1e6 * mine:12.1f}{1 / share:14.2f}  {peer}", flush=True)
        if words:
            print(common.machine())
            return
        secure = common.medians(bench_privacy.gaussian(5_000), clock=time.thread_time)[0]
        print(f"{'discrete_gaussian, 5000, sigma 5 * 2^20':44}{1e6 * secure:12.1f}")
        exp = common.medians(floors.exponentials(1 << 14), clock=time.thread_time)[0]
        print(f"{'floor: 16384 exponentials of our math.hpp':44}{1e6 * exp:12.1f}")
    print(common.machine())


if __name__ == "__main__":
    main()
