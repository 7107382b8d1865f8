"""What a client of a student, gamma, beta or zero-inflated job tells of its rows, by derivatives at draws of real posteriors.

    python benchmarks/responses_disclosure.py [--jobs 3] [--out benchmarks/results/responses-disclosure.txt]

Of each client of a job of three alike: its log-likelihood at 4,096 draws of the first round, rounded to a thousandth of a nat;
value, gradient and Hessian with nine digits at the mode and four points near it; sums and sums of squares of its columns, and of
its response the sum (and of a student one its square). The derivatives of all of these in the cells of its columns and, where it
is no count, of its response (logits of a beta one, logarithms of a gamma one), beside a standard normal prior of each cell, say
how exactly cells are determined to whoever solves the equations; counts are given to him. A row is told where all of its
unknown cells are known to .05. Whether a solver finds them is another question: this is the most that it can.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fedkern.kernels import mixed
from fedkern.kernels.families import FAMILIES
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.mixed.rows import find_mode

POINTS, ROUNDING, DIGITS, TOLD, FREEDOM = 4096, 1e-3 / 12**0.5, 1e-9, 0.05, 7.0
STEP = 1e-5
KINDS = ("bernoulli", "student", "gamma", "beta", "zero-inflated-poisson", "zero-inflated-negative-binomial")
BACK = {
    "student": (lambda y: y, lambda t: t),
    "gamma": (np.log, np.exp),
    "beta": (lambda y: np.log(y / (1 - y)), lambda t: 1 / (1 + np.exp(-t))),
}


def client(rng: np.random.Generator, family: str, layout: Layout, n: int, slope: float) -> Rows:
    """Rows of the model at numbers of its own."""
    X = np.column_stack([np.ones(n), rng.standard_normal((n, layout.p - 1))])
    eta = slope * X[:, 1] + (1.0 if family.startswith("zero") else 0.0)
    scale = {
        "student": np.array([0.7, 3.0]),
        "zero-inflated-poisson": 0.3,
        "zero-inflated-negative-binomial": np.array([2.0, 0.3]),
    }
    record = FAMILIES[family]
    y = record.draw(_Source(rng), record.mean(eta), scale.get(family, 4.0), None)
    y = np.clip(y, 1e-6, 1 - 1e-6) if family == "beta" else y
    return Rows(layout, X, np.asarray(y, np.float64), np.array([0, n]))


class _Source:
    def __init__(self, rng: np.random.Generator) -> None:
        self.uniform, self.normal = rng.random, rng.standard_normal


class Pooled:
    """All clients as one."""

    def __init__(self, clients: list[Rows]) -> None:
        self.clients = clients

    def curvature(self, points: Any, nodes: int) -> Any:
        return tuple(sum(parts) for parts in zip(*(one.curvature(points, nodes) for one in self.clients)))


def told(rng: np.random.Generator, family: str, p: int, n: int, slope: float) -> float:
    """The share of a client's rows that are determined."""
    layout = Layout(("intercept", *(f"x{k}" for k in range(p))), family)
    clients = [client(rng, family, layout, n, slope) for _ in range(3)]
    start = layout.start
    found = find_mode(Pooled(clients), Prior.usual(layout), start, 1)
    if found is None:
        return float("nan")
    xi, covariance = found
    root = np.linalg.cholesky(covariance)
    z = rng.standard_normal((POINTS, len(xi))) / np.sqrt(rng.chisquare(FREEDOM, POINTS) / FREEDOM)[:, np.newaxis]
    points, exact = xi + z @ root.T, xi + np.concatenate([np.zeros((1, len(xi))), rng.standard_normal((4, len(xi)))]) @ root.T
    mine, record = clients[0], FAMILIES[family]
    eta, scale = points[:, : p + 1] @ mine.X.T, layout.scale(points)[..., np.newaxis]
    slopes = record.slope(mine.y, eta, scale, None)
    J = [(slopes[:, :, np.newaxis] * points[:, np.newaxis, 1 : p + 1])]
    continuous = family in BACK
    if continuous:
        there, back = BACK[family]
        t = there(mine.y)
        up, down = (record.value(back(t + s * STEP), eta, scale, None) for s in (1, -1))
        J.append(((up - down) / (2 * STEP))[:, :, np.newaxis])
    values = np.concatenate(J, axis=2)
    cells = values.shape[2]
    every = [
        values.reshape(POINTS, n * cells) / ROUNDING,
        _at_points(mine, family, exact, cells) / DIGITS,
        _sums(mine, family, cells) / DIGITS,
    ]
    _, s, V = np.linalg.svd(np.concatenate(every), full_matrices=False)
    left = 1 - np.einsum("ki,k,ki->i", V, s**2 / (1 + s**2), V)
    sd = np.sqrt(np.maximum(left, 0.0)).reshape(n, cells)
    return float((sd < TOLD).all(axis=1).mean())


def _moved(rows: Rows, family: str, cell: int, step: float) -> tuple[Any, Any]:
    X, y = rows.X.copy(), rows.y.copy()
    p = X.shape[1] - 1
    if cell < p:
        X[:, 1 + cell] += step
    else:
        there, back = BACK[family]
        y = back(there(y) + step)
    return X, y


def _at_points(rows: Rows, family: str, exact: Any, cells: int) -> Any:
    """(k, n cells) derivatives of values, gradients and Hessians, over the size of each: rows one by one, as they add up."""
    n, starts = len(rows), np.array([0, 1])
    size = np.maximum(
        np.abs(
            _flat(mixed.curvature(exact, rows.X, np.zeros((n, 0)), rows.y, None, None, np.array([0, n]), family=family, nodes=1))
        ),
        1.0,
    )
    out = np.empty((len(size), n, cells))
    for cell in range(cells):
        both = []
        for sign in (1, -1):
            X, y = _moved(rows, family, cell, sign * STEP)
            both.append(
                np.stack(
                    [
                        _flat(
                            mixed.curvature(
                                exact, X[i : i + 1], np.zeros((1, 0)), y[i : i + 1], None, None, starts, family=family, nodes=1
                            )
                        )
                        for i in range(n)
                    ],
                    axis=1,
                )
            )
        out[:, :, cell] = (both[0] - both[1]) / (2 * STEP)
    return out.reshape(len(size), n * cells) / size[:, np.newaxis]


def _flat(answer: Any) -> Any:
    return np.concatenate([np.asarray(one).ravel() for one in answer])


def _sums(rows: Rows, family: str, cells: int) -> Any:
    """Of columns, their squares, and the response."""
    n, p = len(rows), rows.X.shape[1] - 1
    out = []
    for k in range(p):
        for power in (np.ones(n), 2 * rows.X[:, 1 + k]):
            one = np.zeros((n, cells))
            one[:, k] = power
            out.append(one.ravel())
    if cells > p:
        there, back = BACK[family]
        slope = (back(there(rows.y) + STEP) - back(there(rows.y) - STEP)) / (2 * STEP)
        for power in (slope, 2 * rows.y * slope)[: 2 if family == "student" else 1]:
            one = np.zeros((n, cells))
            one[:, p] = power
            out.append(one.ravel())
    return np.array(out)


def main() -> None:
    """A line of each kind of client."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=KINDS, action="append")
    parser.add_argument("--jobs", type=int, default=3, help="of each kind")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "shares of a client's rows that are determined: mean and most of the jobs",
        "family, columns, slope, rows, rows a coefficient, the same with the family's numbers; mean, most",
    ]
    print("\n".join(lines))
    for family in asked.family or KINDS:
        for p in (1, 2):
            shapes = len(Layout(("intercept",), family).shapes)
            for slope in (0.5, 1.5):
                for n in sorted({*(many * (p + 1) + 1 for many in (8, 15)), 15 * (p + 1 + shapes) + 1}):
                    keys = [[7, KINDS.index(family), p, job, n] for job in range(asked.jobs)]
                    shares = [told(np.random.default_rng(key), family, p, n, slope) for key in keys]
                    own = f"{family}  {p}  {slope:g}  {n:4d}  {n / (p + 1):5.1f}  {n / (p + 1 + shapes):5.1f}"
                    lines.append(f"{own}   {np.nanmean(shares):.2f} {np.nanmax(shares):.2f}")
                    print(lines[-1], flush=True)
                    if asked.out:
                        asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
