"""From which size on a card pays: calls as jobs make them, with what goes there and comes back, beside cores of the host.

    python benchmarks/gpu_worth.py         # writes results/gpu-worth.txt

Microseconds of a step of `pvi` and of a sweep of `sparse`, milliseconds of a step of `sigma train` at the size of the paper, and
rounds of whole sparse jobs in one process, where the server's part, which is the host's, is in the time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fedkern
from fedkern import kernels
from fedkern.kernels import homes

THREADS = (1, 16)
BATCHES, CHAINS = (256, 1024, 4096, 16384, 65536, 262144), (4, 64, 256, 1024, 4096)
ROWS = 2**19
PAPER = {"n_global": 100, "n_local": (50, 50, 50, 50, 50, 50, 7, 5), "hidden": 2024, "local_hidden": 1048}
AREAS = (629, 520, 540, 170, 250, 100, 7, 5)
random = np.random.default_rng(1)


def microseconds(call: Callable[[], object], times: int) -> float:
    """Median, after two calls."""
    took = []
    for _ in range(times + 2):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return 1e6 * statistics.median(took[2:])


def clipped_sums(home: homes.Home) -> Iterator[str]:
    """A step of `pvi`: the batch's rows, mu and omega go to the card, the sum comes back."""
    bind = kernels.glm.bind_clipped_grad_sum
    for d in (20, 108):
        X, y = random.standard_normal((ROWS, d)), (random.random(ROWS) > 0.5).astype("f8")
        mu, omega, (X_, y_) = np.zeros(d), np.full(d, -2.0), home.all(X, y)
        for estimator in ("analytic", "weight-mc"):
            words = []
            for B in BATCHES:
                rows = np.sort(random.choice(ROWS, B, replace=False))
                options: dict[str, Any] = {
                    "clip": 1.0,
                    "family": "bernoulli",
                    "seed": 1,
                    "estimator": estimator,
                    "grid": 2.0**-20,
                }
                here = [bind(X, y, mu, omega, rows=rows, n_threads=n, **options) for n in THREADS]
                there = bind(X_, y_, *home.all(mu, omega), rows=home.put(rows), **options)

                def on_card(there: Any = there, rows: Any = rows, mu: Any = mu, omega: Any = omega) -> object:
                    m, s, index = home.all(mu, omega, rows)
                    total, skipped = there(m, s, index, 3)
                    return bool(skipped), homes.on_host(total)

                took = [
                    microseconds(lambda call=call, rows=rows, mu=mu, omega=omega: call(mu, omega, rows, 3), 15) for call in here
                ]
                words.append(f"B={B}: {took[0]:.0f} {took[1]:.0f} {microseconds(on_card, 15):.0f}")
            yield f"  d={d} {estimator}: " + "; ".join(words)


def sweeps(home: homes.Home, call: Any, case: Callable[[int], Any], counts: tuple[int, ...], times: int = 9) -> str:
    """A sweep: the server's two arrays go to the card, the deviations come back."""
    words = []
    for chains in counts:
        data, state = case(chains)
        took = [microseconds(lambda n=n, a=(*data, *state): call(*a, seed=1, n_threads=n), times) for n in THREADS]
        there = [home.put(a) if isinstance(a, np.ndarray) else a for a in data]
        own = home.all(*state[2:])

        def on_card(there: Any = there, own: Any = own, state: Any = state) -> object:
            return homes.on_host(call(*there, *home.all(*state[:2]), *own, seed=1)[0])

        words.append(f"{chains}: {took[0]:.0f} {took[1]:.0f} {microseconds(on_card, times):.0f}")
    return "; ".join(words)


def regression(p: int) -> Callable[[int], Any]:
    def case(c: int) -> Any:
        R, state = np.linalg.qr(random.standard_normal((300, p)), mode="r"), [np.zeros((c, p)), np.ones((c, p))] * 2
        return (R, random.standard_normal(p), np.full(c, 200.0), 299.0), (*state, np.ones(c))

    return case


def field(p: int) -> Callable[[int], Any]:
    def case(c: int) -> Any:
        R, state = np.linalg.qr(random.standard_normal((600, p)), mode="r"), [np.zeros((c, p, p)), np.ones((c, p, p))] * 2
        return (R, 599.0), (*state, np.ones((c, p)))

    return case


def network(p: int, n: int) -> Callable[[int], Any]:
    def case(c: int) -> Any:
        s = (c, p, p)
        of_site = 0.1 * random.standard_normal(s), np.ones(s), np.ones((c, p)), np.full(s, -1.0), np.ones(c)
        return (random.standard_normal((p, n)),), (np.zeros(s), np.full(s, 0.1), *of_site)

    return case


def training(home: homes.Home) -> Iterator[str]:
    """A step of the paper's network of its map."""
    a = kernels.mlp.Architecture("printed", AREAS, **PAPER)
    k, values, phi = a.n_parameters, random.standard_normal((512, a.n_values)), random.uniform(0.2, 1, (512, 1))

    def step(steps: int, put: Callable[[object], Any], **more: Any) -> float:
        arrays = map(put, (a.initial(1).astype("f4"), np.zeros((2, k), "f4"), values, phi, np.ones(a.n_values)))
        rates: dict[str, Any] = {"rates": put(np.full(steps, 1e-4)), "kl_weights": put(np.ones(steps))}
        options: dict[str, Any] = {"architecture": a, "kind": "stored", "batch": 128, "gamma": 0.3, "seed": 1, **rates, **more}
        given = tuple(arrays)
        return microseconds(lambda: homes.on_host(kernels.mlp.vae_step(*given, **options)[2]), 2) / steps / 1e3

    for n in (2, 16):
        yield f"{k:,} parameters, host, {n} threads: {step(4, lambda array: array, n_threads=n):.1f} ms a step"
    for steps in (5, 100):
        yield f"card, {steps} steps a call: {step(steps, home.put):.3f} ms a step"


def of_jobs() -> Iterator[str]:
    """Rounds of jobs of all parties in this process."""
    shapes = [("mrf", c, p, 3, 400) for c, p in ((4, 64), (16, 64))]
    shapes += [("sem", c, 11, 3, 227) for c in (16, 64, 256)] + [("regression", c, 20, 4, 300) for c in (64, 256, 1000)]
    for kind, chains, p, sites, n in shapes:
        X = [random.standard_normal((n, p)) for _ in range(sites)]
        chain = np.eye(p) + 0.3 * np.eye(p, k=1)
        data = {f"s{i}": (x, x[:, 0] + random.standard_normal(n)) if kind == "regression" else x @ chain for i, x in enumerate(X)}
        job = {"model": {"kind": kind}, "algorithm": {"chains": chains, "burn_in": 2, "random_source": "keyed"}}
        took = {}
        for device in ("cuda", "cpu", "cuda"):  # the first compiles
            seconds = []
            for rounds in (4, 24):
                began = time.perf_counter()
                fedkern.run({"job": {"method": "sparse", "rounds": rounds, "device": device}} | job, data=data)
                seconds.append(time.perf_counter() - began)
            took[device] = 1e3 * (seconds[1] - seconds[0]) / 20
        words = f"{kind}, {chains} chains, p = {p}, {sites} sites of {n}"
        yield f"{words}: host {took['cpu']:.2f}, card {took['cuda']:.2f} ms a round"


def lines(home: homes.Home) -> Iterator[str]:
    yield "pvi: a step of clipped sums, us: host 1 thread, 16 threads, card"
    yield from clipped_sums(home)
    yield "sparse: a sweep, us: host 1 thread, 16 threads, card"
    shrinkage = kernels.shrinkage
    for p in (11, 50):
        yield f"  regression, p = {p}, chains: " + sweeps(home, shrinkage.local_sweeps, regression(p), CHAINS)
    for p, counts in ((11, (1, 4, 16, 64)), (64, (1, 4, 16)), (217, (1, 4))):
        yield f"  mrf, p = {p}, chains: " + sweeps(home, shrinkage.local_sweeps_batched, field(p), counts, 5)
    yield "  sem, p = 11, n = 227, chains: " + sweeps(home, kernels.sem.sweeps, network(11, 227), CHAINS, 5)
    yield from training(home)
    yield from of_jobs()


def main() -> None:
    found = []
    for line in lines(homes.device_home()):
        print(line, flush=True)
        found.append(line)
    (Path(__file__).parent / "results" / "gpu-worth.txt").write_text("\n".join(found) + "\n")


if __name__ == "__main__":
    main()
