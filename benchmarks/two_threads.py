"""What a second thread gains, not pinned: `python benchmarks/two_threads.py` on a machine with nothing else to do.

Medians in turn in one process. Another busy process on the same processors takes all of it away.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from fedkern.kernels import glm, shrinkage

TURNS = 5


def milliseconds(call: Callable[[int], object], n_threads: int, calls: int) -> float:
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        call(n_threads)
        took.append(1e3 * (time.perf_counter() - began))
    return statistics.median(took)


def row(name: str, call: Callable[[int], object], calls: int) -> None:
    """Prints the median ratio of several turns."""
    call(1), call(2)
    turns = [(milliseconds(call, 1, calls), milliseconds(call, 2, calls)) for _ in range(TURNS)]
    one, two = sorted(turns, key=lambda turn: turn[0] / turn[1])[TURNS // 2]
    print(f"{name}: {one:.3f} -> {two:.3f} ms, {one / two:.2f} x", flush=True)


def main() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200_000, 100)), (random.random(200_000) < 0.5) * 1.0
    mu, log_sigma = np.zeros(100), np.full(100, -2.0)
    for draws, calls in ((8, 7), (1, 15)):
        row(
            f"elbo_grad 2e5 x 100 f64, {draws} draws",
            lambda n, s=draws: glm.elbo_grad(X, y, mu, log_sigma, family="bernoulli", draws=s, seed=1, n_threads=n),  # type: ignore[misc]
            calls,
        )
    few, labels, wide = random.normal(size=(32_768, 108)).astype("f4"), y[:32_768].astype("f4"), np.zeros(108)
    row(
        "clipped_grad_sum 32768 x 108 f32",
        lambda n: glm.clipped_grad_sum(
            few, labels, wide, wide - 2, family="bernoulli", clip=0.5, estimator="weight-mc", seed=1, n_threads=n
        ),
        100,
    )
    p, c = 217, 4
    R = np.linalg.qr(random.normal(size=(300, p)), mode="r")
    state = np.zeros((c, p, p)), np.ones((c, p, p)), np.full((c, p, p), 0.01), np.ones((c, p, p)), np.ones((c, p))
    row(
        f"local_sweeps_batched p = {p}, {c} chains",
        lambda n: shrinkage.local_sweeps_batched(R, 300.0, *state, seed=1, gram=R.T @ R, n_threads=n),
        3,
    )


if __name__ == "__main__":
    main()
