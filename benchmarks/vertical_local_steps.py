"""What several local steps from one exchange gain: rounds and seconds to one ELBO, by K = `algorithm.local_steps`.

    python benchmarks/vertical_local_steps.py

Logistic, n = 500, ten clients of two columns, the machines alone in this process (no frames, no ledger). The goal is the level
that K = 1 has reached at the end, less one nat; a level is the mean of the bound over 50 rounds. `cooled` is the last one where
the rate falls over the second half: at a constant rate steps that share one draw end lower.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits
from vertical_iteration import CLIENTS, RHO, ROWS, data

from fedkern.algorithms.split import machine as vertical
from fedkern.models.likelihood import Likelihood
from fedkern.models.split.site import Auxiliary, Linear, Shared, Site

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

ROUNDS, TIMED, WINDOW, SLACK, STEPS, RATES = 1500, 200, 50, 1.0, (1, 2, 5), (0.01, 0.03)


def fitted(
    kind: str, n_steps: int, rate: float, rounds: int, *, bound: bool, cool_down: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """The bound of every round, and the seconds at its end."""
    likelihood, d, names = Likelihood("bernoulli"), data(), tuple(f"client-{k}" for k in range(CLIENTS))
    more = {"bound": bound, "learning_rate": rate, "cool_down": cool_down}
    settings = chosen.split(
        1, rounds, ROWS, CLIENTS, local_steps=n_steps, curvature=likelihood.curvature_bound, average="half", **more
    )
    auxiliary = Auxiliary(kind, RHO, inputs=("residual",) if kind == "amortised" else ())
    clients = [vertical.client(name, k, settings, Site(Linear(X), auxiliary)) for k, (name, X) in enumerate(zip(names, d.X))]
    server, effects = vertical.start(settings, Shared(likelihood, ROWS, CLIENTS), names, d.y)
    bounds, seconds, began = [], [], time.perf_counter()
    while effects:
        asked, effects, before = effects, [], server.round
        for k, question in asked:
            clients[k], answers = vertical.client_receive(clients[k], question)
            for answer in answers:
                server, more_effects = vertical.server_receive(server, k, answer)
                effects += more_effects
        if server.round > before:
            bounds.append(server.bound)
            seconds.append(time.perf_counter() - began)
    return np.array(bounds), np.array(seconds)


def main() -> None:
    print(f"logistic, n = {ROWS}, {CLIENTS} clients of {data().X[0].shape[1]} columns, machines alone, {ROUNDS} rounds at most")
    print(f"{'':14}{'rate':>6}{'K':>4}{'last level':>12}{'cooled':>9}{'rounds':>8}{'us a round':>12}{'seconds':>9}")
    with threadpool_limits(1, user_api="blas"):
        for kind in ("mean-field", "amortised"):
            goal = None
            for rate in RATES:
                for n_steps in STEPS:
                    bounds = fitted(kind, n_steps, rate, ROUNDS, bound=True)[0]
                    levels = np.convolve(bounds, np.ones(WINDOW) / WINDOW, mode="valid")
                    cooled = fitted(kind, n_steps, rate, ROUNDS, bound=True, cool_down=0.5)[0][-WINDOW:].mean()
                    goal = levels[-1] - SLACK if goal is None else goal
                    each = float(np.median(np.diff(fitted(kind, n_steps, rate, TIMED, bound=False)[1])))
                    there = np.flatnonzero(levels >= goal)
                    ends = f"{'-':>8}{1e6 * each:>12.0f}{'-':>9}"
                    if len(there):
                        rounds = int(there[0]) + WINDOW
                        ends = f"{rounds:>8}{1e6 * each:>12.0f}{rounds * each:>9.2f}"
                    print(f"  {kind:<12}{rate:>6g}{n_steps:>4}{levels[-1]:>12.2f}{cooled:>9.2f}{ends}", flush=True)


if __name__ == "__main__":
    main()
