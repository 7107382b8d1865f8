"""How far rounding moves the mode that the rounds of `likelihood` find, and how it is asked for in more rounds than without.

    PYTHONPATH=tests python benchmarks/rounded_mode.py [--jobs 200] [--out benchmarks/results/rounded_mode.txt]

Each job has its own number of clients (2 to 20), of rows (20 to 400 each, unlike), of columns (1 to 12, correlated or with long
tails), family, and perhaps an intercept of groups. The machines of server and clients find its mode twice: of what clients tell
rounded, and with all digits. The distance is that of the coordinate that moved most, in posterior standard deviations, in the
coordinates of the server's steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedkern.algorithms.importance import machine as importance
from fedkern.models.mixed import Layout, Rows
from support.rounded_jobs import drawn, played

KINDS = ("bernoulli", "poisson", "gaussian", "negative-binomial", "student", "gamma", "beta", "zero-inflated-poisson")


def made(job: int) -> tuple[Layout, list[Rows], str]:
    """The clients of a job, and what it is in words."""
    random = np.random.default_rng([53, job])
    family = KINDS[job % len(KINDS)]
    p, clients = int(random.integers(1, 13)), int(random.integers(2, 21))
    grouped, tails = (
        bool(random.random() < 0.3) and family not in ("student", "beta", "zero-inflated-poisson"),
        random.random() < 0.3,
    )
    layout = Layout(("intercept", *(f"x{k}" for k in range(p))), family, ("intercept",) if grouped else ())
    mix = np.eye(p) + 0.5 * random.standard_normal((p, p)) / np.sqrt(p)
    beta = np.append(0.3, random.standard_normal(p) / np.sqrt(p))
    sizes = [int(n) for n in np.exp(random.uniform(np.log(20), np.log(400), clients))]
    columns = [(random.standard_t(3, (n, p)) if tails else random.standard_normal((n, p))) @ mix for n in sizes]
    centre, scale = np.concatenate(columns).mean(axis=0), np.concatenate(columns).std(axis=0)
    rows = []
    for k, (n, X) in enumerate(zip(sizes, columns, strict=True)):
        X = np.column_stack([np.ones(n), (X + 0.7 * random.standard_normal(p) * (k % 3 == 0) - centre) / scale])
        starts = np.append(np.arange(0, n - 3, 4), n) if grouped else np.array([0, n])
        effect = np.repeat(0.6 * random.standard_normal(len(starts) - 1), np.diff(starts)) if grouped else 0.0
        eta = np.clip(X @ beta + effect, -4, 4)
        rows.append(Rows(layout, X, drawn(random, family, eta), starts))
    words = (
        f"{family}, p {p:2}, {clients:2} clients, {sum(sizes):5} rows{', groups' if grouped else ''}{', tails' if tails else ''}"
    )
    return layout, rows, words


def moved(job: int) -> tuple[float, int, int, str]:
    """The distance, and the rounds with and without rounding."""
    layout, rows, words = made(job)
    told, exact = (played(layout, rows, rounds=0, rounds_messages=which).server for which in (True, False))
    sd = np.sqrt(np.diag(np.linalg.inv(importance.read_result(exact).precision)))
    one, other = (
        layout.folded(exact.coordinates.of(importance.read_result(state).mode[np.newaxis]))[0] for state in (told, exact)
    )
    return float(np.abs((one - other) / sd).max()), told.newton, exact.newton, words


def main() -> None:
    """A line of each job that moved most, and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    every = [moved(job) for job in range(asked.first, asked.first + asked.jobs)]
    far = np.array([one[0] for one in every])
    lines = [
        f"{len(every)} jobs: modes within .01 sd: {(far <= 0.01).sum()}; median {np.median(far):.4f}, most {max(far):.4f}",
        f"rounds to the mode: {np.mean([one[1] for one in every]):.2f}, with all digits {np.mean([one[2] for one in every]):.2f}",
        "the five that moved most (sds, rounds, with all digits):",
    ]
    lines += [f"  {far[i]:.4f}  {every[i][1]:2}  {every[i][2]:2}  {every[i][3]}" for i in np.argsort(-far)[:5]]
    print("\n".join(lines))
    if asked.out:
        asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
