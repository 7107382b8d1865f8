"""The gate of a change: two dozen kernels beside the best peer. `python -m benchmarks.gate` prints the table of a level.

asv tracks a share: seconds of CPU of our call over the peer's, both on one thread of one process, in turns; medians. Smaller is
better, as asv wants it; 0.5 is twice as fast, and the table prints 2. Peers are written by hand in Numba (`peers`), or NumPy's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedkern import _core

from . import bench_glm, bench_privacy, bench_rng, bench_sem, bench_shrinkage, common, floors, peers

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


def pairs() -> dict[str, tuple[str, Callable[[], Pair]]]:
    """Returns the peer's name and what makes both calls, by the case's name."""
    found: dict[str, tuple[str, Callable[[], Pair]]] = {}
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
        for name, (peer, make) in pairs().items():
            mine, share = common.share(*make(), seconds=1.5)
            print(f"{name:44}{1e6 * mine:12.1f}{1 / share:14.2f}  {peer}", flush=True)
        words = bench_privacy.gaussian(5_000)
        secure = common.medians(words, clock=time.thread_time)[0]
        print(f"{'discrete_gaussian, 5000, sigma 5 * 2^20':44}{1e6 * secure:12.1f}")
        exp = common.medians(floors.exponentials(1 << 14), clock=time.thread_time)[0]
        print(f"{'floor: 16384 exponentials of our math.hpp':44}{1e6 * exp:12.1f}")
    print(common.machine())


if __name__ == "__main__":
    main()
