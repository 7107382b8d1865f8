"""Time of one private local step (79 of 3,907 rows, 108 columns, analytic, noise and Adagrad included), and of its parts.

    python benchmarks/local_step.py

Medians over blocks of steps, in one process, of seconds of CPU; exact noise from the secure source, and keyed noise.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import common
from fedkern import _core
from fedkern.algorithms.pvi.local import Local, optimise
from fedkern.kernels import glm, rng
from fedkern.models.expfam import Gaussian
from fedkern.models.glm import Rows
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource, SecureSource, Source

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

N, D, RATE, STEPS = 3907, 108, 79 / 3907, 25


def median_us(call: Callable[[], object], inner: int, repeat: int = 41) -> float:
    """Median time of one of `inner` equal parts of a call, in microseconds."""
    call()
    times = []
    for _ in range(repeat):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return statistics.median(times) / inner * 1e6


def step(rows: Rows, source: Source) -> float:
    mechanism = Mechanism(
        sampling="poisson", sampling_rate=RATE, noise_multiplier=5.0, clip=2.5, dimension=2 * D, secure=source.secure
    )
    local = Local(rows, chosen.pvi(local_steps=STEPS), 0, mechanism, source)
    q, cavity = Gaussian(np.zeros(D), np.full(D, 25.0)), Gaussian(np.zeros(D), np.full(D, 20.0))
    _, state = optimise(local, q, cavity, None, 2000, 0)  # Adagrad's steps are as small as in the middle of a job

    def update() -> None:
        source.rekey()
        optimise(local, q, cavity, state, STEPS, 1)

    return median_us(update, STEPS)


def main() -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((N, D)) * 3.3 / np.sqrt(D)  # row norms like those of UCI Adult
    rows = Rows(X, (generator.random(N) < 0.24).astype(float))
    print(f"level {_core.isa()}; {common.machine()}")
    exact, keyed = step(rows, SecureSource()), step(rows, KeyedSource(rng.key(1, "noise"), 0))
    print(f"{'one step, exact noise':34s} {exact:7.1f} us")
    print(f"{'one step, keyed noise':34s} {keyed:7.1f} us; exact / keyed {exact / keyed:.2f}")

    mu, omega = np.zeros(D), np.full(D, -2.0)
    batch = np.sort(generator.choice(N, 79, replace=False)).astype(np.int64)
    secure, keyed = SecureSource(), KeyedSource(rng.key(1, "noise"), 0)
    mechanism = Mechanism(sampling="poisson", sampling_rate=RATE, noise_multiplier=5.0, clip=2.5, dimension=2 * D)
    total = np.zeros(2 * D, np.int64)
    parts: dict[str, Callable[[], object]] = {
        "clipped_grad_sum, 79 rows": lambda: glm.clipped_grad_sum(
            X, rows.y, mu, omega, clip=2.5, family="bernoulli", rows=batch, grid=mechanism.grid
        ),
        "coins, secure": lambda: mechanism.draw(secure, N, 0),
        "noise, exact": lambda: secure.add_noise(total, 5.0, 0),
        "coins, keyed": lambda: keyed.coins(N, mechanism.threshold, 0),
        "noise, keyed": lambda: keyed.add_noise(total, 5.0, 0),
    }
    for name, call in parts.items():
        print(f"{name:34s} {median_us(lambda call=call: [call() for _ in range(200)], 200):7.1f} us")  # type: ignore[misc]


if __name__ == "__main__":
    main()
