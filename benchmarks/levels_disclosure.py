"""What answers of a client of an ordinal or multinomial job determine of its rows, by derivatives at draws of real posteriors.

    python levels_disclosure.py            # results/levels_disclosure.txt
    python levels_disclosure.py --rare     # of the rows of a level that has few; results/levels_disclosure_rare.txt
    python levels_disclosure.py --cells    # of a level together with a value of a column; results/levels_disclosure_cells.txt
    python levels_disclosure.py --marginal # with sums of marginal effects; results/levels_disclosure_marginal.txt

Of each client: its log-likelihood at 4,096 draws, and value, gradient and Hessian at five points of the way to the mode, each in
the unit in which it is told (`algorithms.importance.settings`); sums and sums of squares of its columns; of ordered levels the
sums of columns over the rows of each level, with four digits. The derivatives of all of these in the cells of its columns, beside
a standard normal prior of each cell, say how exactly the cells are determined to whoever solves the equations; the levels of the
rows are given to him. A row counts as told where every one of its cells is known to .05 standard deviations. Whether a solver
finds them is another question: this is the most that it can. Rows are counted by the numbers that the likelihood depends on:
coefficients and thresholds, or all coefficients of all levels; the fewest are those that level "standard" takes.
`--prior_sd 2500` is a default prior that rows have widened.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from survival_disclosure import units

from fedkern.algorithms.exchanges.sums import DIGITS_OF_LEVELS
from fedkern.algorithms.importance.settings import OF_DRAWS, OF_VALUES, of_draws, power
from fedkern.disclosure.requirement import ALL, Requirement
from fedkern.disclosure.rules import LEVELS
from fedkern.kernels import mixed, multinomial, ordered
from fedkern.models import levels
from fedkern.models.mixed import Layout, Rows
from fedkern.models.mixed.marginal import Slope

POINTS, TO_MODE, CLIENTS, OF_ROUNDING, DIGITS, TOLD, FREEDOM = 4096, 5, 3, 12**-0.5, 1e-9, 0.05, 7.0
PRIOR_SD, STEP, OF_SUMS = 2.5, 1e-5, 1e-4
EFFECTS = 200  # draws of which marginal effects are told


class Ordinal:
    """Points: coefficients, the first threshold, logarithms of gaps."""

    def __init__(self, p: int, k: int):
        self.p, self.k, self.size = p, k, p + k - 1

    def draw(self, rng: np.random.Generator, n: int, slope: float) -> tuple[Any, Any]:
        X, cuts = rng.standard_normal((n, self.p)), np.linspace(-1.0, 1.2, self.k - 1)
        latent = slope * X[:, 0] + rng.logistic(size=n)
        return X, (latent[:, np.newaxis] > cuts).sum(axis=1).astype(float)

    def curvature(self, X: Any, y: Any, points: Any) -> tuple[Any, ...]:
        n = len(y)
        rows = (X, np.empty((n, 0)), y, None, None, np.array([0, n]))
        return mixed.curvature(points, *rows, family="ordinal", nodes=1)

    def slopes(self, X: Any, y: Any, points: Any) -> Any:
        """(S, n, p) of each row's log density in its cells."""
        beta, scale = points[:, : self.p], points[:, self.p :].T.copy()
        scale[1:] = np.exp(scale[1:])
        return ordered.slope(y, beta @ X.T, scale[..., np.newaxis])[..., np.newaxis] * beta[:, np.newaxis]

    def rows(self, X: Any) -> Rows:
        names = [f"x{j}" for j in range(self.p)]
        own = levels.prior_of_thresholds([str(k) for k in range(self.k)], np.full(self.k, 1 / self.k), "logit", 0.0, 5.0)
        return Rows(Layout(tuple(names), "ordinal", own=own), X, np.zeros(len(X)), np.array([0, len(X)]), None, None)

    def sums(self, X: Any, y: Any) -> Any:
        """Derivatives of the sums of columns over the rows of each level, over their errors."""
        of = (y[np.newaxis] == np.arange(self.k)[:, np.newaxis]).astype(float)
        size = OF_SUMS * np.maximum(np.abs(of @ X), 1.0)
        found = np.einsum("kn,ij,kj->kjni", of, np.eye(self.p), 1 / size)
        return found.reshape(self.k * self.p, -1)


class Multinomial:
    """Points: blocks of an intercept and coefficients."""

    def __init__(self, p: int, k: int):
        self.p, self.k, self.size = p, k, (p + 1) * (k - 1)

    def draw(self, rng: np.random.Generator, n: int, slope: float) -> tuple[Any, Any]:
        X = rng.standard_normal((n, self.p))
        eta = slope * X[:, :1] * np.linspace(0, 1, self.k)
        return X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)

    def curvature(self, X: Any, y: Any, points: Any) -> tuple[Any, ...]:
        return multinomial.curvature(points, np.column_stack([np.ones(len(X)), X]), y, levels=self.k)

    def slopes(self, X: Any, y: Any, points: Any) -> Any:
        blocks = points.reshape(len(points), self.k - 1, self.p + 1)
        eta = np.einsum("skj,nj->skn", blocks, np.column_stack([np.ones(len(X)), X]))
        e = np.exp(np.concatenate([np.zeros_like(eta[:, :1]), eta], axis=1))
        residual = (y == np.arange(1, self.k)[:, np.newaxis]) - e[:, 1:] / e.sum(axis=1, keepdims=True)
        return np.einsum("skn,skj->snj", residual, blocks[:, :, 1:])

    def rows(self, X: Any) -> levels.Rows:
        names = ("intercept", *(f"x{j}" for j in range(self.p)))
        layout = Layout(levels.block_names([str(k) for k in range(self.k)], names), "multinomial")
        return levels.Rows(layout, np.column_stack([np.ones(len(X)), X]), np.zeros(len(X)), self.k)

    def sums(self, X: Any, y: Any) -> Any:
        return np.zeros((0, X.size))


def of_marginal(family: Any, X: Any, draws: Any) -> Any:
    """Derivatives of the sums of marginal effects at the draws that a client is told, over the errors of their digits."""
    first = int(isinstance(family, Multinomial))
    effects = [Slope(first + j) for j in range(family.p)]

    def sums(some: Any) -> Any:
        return levels.effect_sums(family.rows(some), draws, effects, family.k).ravel()

    size = np.abs(sums(X))
    unit = 10 ** (np.floor(np.log10(np.maximum(size, 1e-12))) - DIGITS_OF_LEVELS + 1) / 12**0.5
    found = []
    for cell in range(X.size):
        i = slice(cell // family.p, cell // family.p + 1)  # all other rows add what they did
        both = []
        for sign in (1, -1):
            moved = X.copy()
            moved.flat[cell] += sign * STEP
            both.append(sums(moved[i]))
        found.append((both[0] - both[1]) / (2 * STEP) / unit)
    return np.array(found).T


def mode(family: Any, clients: list[tuple[Any, Any]]) -> tuple[Any, Any, list[Any]]:
    """The posterior's mode, its precision there, and the points on the way."""
    P, path = family.size, []
    xi, at = np.zeros(P), np.tril_indices(P)
    for _ in range(40):
        path.append(xi)
        gradient, H = -xi / PRIOR_SD**2, np.eye(P) / PRIOR_SD**2
        for X, y in clients:
            _, g, lower = family.curvature(X, y, xi[np.newaxis])
            full = np.zeros((P, P))
            full[at] = lower[0]
            gradient, H = gradient + g[0], H + full + np.tril(full, -1).T
        step = np.linalg.solve(H, gradient)
        if np.abs(step).max() < 1e-6:
            break
        xi = xi + step / max(1.0, np.abs(step).max())
    return xi, H, path[:TO_MODE]


def fewest(family: Any) -> int:
    """The fewest rows that level "standard" takes."""
    ordered = isinstance(family, Ordinal)
    numbers = {"more": family.k - 1} if ordered else {"blocks": family.k - 1}
    asked = Requirement(LEVELS["standard"], tells="values", whole=ALL, **numbers)
    return asked.told_up_to(family.p + (not ordered)) + 1


def told(
    family: Any, rng: np.random.Generator, n: int, slope: float, rare: int = 0, *, cells: bool = False, marginal: str = ""
) -> float:
    """The share of a client's rows that are determined, in a job of three such clients; `rare`: of those of the highest level,
    which only so many of them have; `cells`: and that have 1 in the last column, whose values are known; `marginal`: "with" sums
    of marginal effects, or by these "alone"."""
    clients = [family.draw(rng, n, slope) for _ in range(CLIENTS)]
    if cells:
        for X, y in clients:
            X[:, -1] = rng.random(n) < 0.3
            both = np.flatnonzero((y == family.k - 1) & (X[:, -1] == 1))
            X[both[rare:], -1] = 0.0
    elif rare:
        for _, y in clients:
            high = np.flatnonzero(y == family.k - 1)
            y[high[rare:]] = family.k - 2
    xi, H, path = mode(family, clients)
    root = np.linalg.inv(np.linalg.cholesky(H)).T
    z = rng.standard_normal((POINTS, family.size)) / np.sqrt(rng.chisquare(FREEDOM, POINTS) / FREEDOM)[:, np.newaxis]
    points, (X, y), p = xi + z @ root.T, clients[0], family.p
    exact, at = np.array(path), []
    alike = CLIENTS * family.curvature(X, y, points)[0] - (points**2).sum(axis=1) / (2 * PRIOR_SD**2)
    of_values = power(OF_DRAWS * OF_VALUES / CLIENTS**0.5 * of_draws(points, alike)) * OF_ROUNDING
    J = [family.slopes(X, y, points).reshape(POINTS, n * p) / of_values[:, np.newaxis]]
    for cell in range(n * p):
        both = []
        for sign in (1, -1):
            moved = X.copy()
            moved.flat[cell] += sign * STEP
            one = slice(cell // p, cell // p + 1)  # all other rows add what they did
            both.append(np.concatenate([part.ravel() for part in family.curvature(moved[one], y[one], exact)]))
        at.append((both[0] - both[1]) / (2 * STEP))
    J.append((np.array(at) / (units(family.curvature(X, y, exact)[2], family.size, PRIOR_SD) * OF_ROUNDING)).T)
    sums = np.repeat(np.eye(p), n, axis=0).reshape(p, n, p).transpose(1, 2, 0).reshape(n * p, p)
    J += [np.concatenate([sums, 2 * X.reshape(-1, 1) * sums], axis=1).T / DIGITS, family.sums(X, y)]
    if marginal:
        J = [*(J if marginal == "with" else []), of_marginal(family, X, points[:EFFECTS])]
    if cells:
        J = [one.reshape(len(one), n, p)[:, :, :-1].reshape(len(one), n * (p - 1)) for one in J]
        p -= 1
    _, s, V = np.linalg.svd(np.concatenate(J), full_matrices=False)
    left = 1 - ((s**2 / (1 + s**2))[:, np.newaxis] * V**2).sum(axis=0)
    sd = np.sqrt(np.maximum(left, 0.0)).reshape(n, p)
    looked = (y == family.k - 1) | (not rare)
    if cells:
        looked &= X[:, -1] == 1
    return float((sd < TOLD).all(axis=1)[looked].mean())


def rarely(jobs: int) -> None:
    """Of the rows of the highest of three levels."""
    print("shares of the rows of the highest of three levels that are determined, mean and most of jobs")
    print("family, columns, slope, rows, rows of that level; mean, most")
    for name, kind in (("ordinal", Ordinal), ("multinomial", Multinomial)):
        for p, n in ((1, 61), (1, 200), (2, 91), (2, 180)):
            for slope, few in ((s, f) for s in (0.5, 2.0) for f in (1, 2, 3, 5, 10)):
                keys = [[9, p, job, n, few] for job in range(jobs)]
                shares = [told(kind(p, 3), np.random.default_rng(key), n, slope, few) for key in keys]
                print(f"{name:<11} {p}  {slope:g}  {n:4d}  {few:3d}   {np.mean(shares):.2f} {max(shares):.2f}", flush=True)


def together(jobs: int) -> None:
    """Of the rows of the highest of three levels that have 1 in a column of 0 and 1, a third of which are 1."""
    print("shares of the rows of the highest of three levels and with 1 in a column that are determined, mean and most of jobs")
    print("family, other columns, slope, rows, rows of both; mean, most")
    for name, kind in (("ordinal", Ordinal), ("multinomial", Multinomial)):
        for p, n in ((2, 91), (2, 180), (3, 130)):
            for slope, few in ((s, f) for s in (0.5, 2.0) for f in (1, 2, 3, 5)):
                keys = [[10, p, job, n, few] for job in range(jobs)]
                shares = [told(kind(p, 3), np.random.default_rng(key), n, slope, few, cells=True) for key in keys]
                print(f"{name:<11} {p - 1}  {slope:g}  {n:4d}  {few:3d}   {np.mean(shares):.2f} {max(shares):.2f}", flush=True)


def with_effects(jobs: int) -> None:
    """Of fifteen and twenty rows a number, with sums of marginal effects on each level's probability."""
    print("shares of a client's rows that are determined, mean of jobs: without marginal effects, with them, by these alone")
    print("family, columns, levels, slope, rows, rows a number of the likelihood; without, with, alone")
    for name, kind in (("ordinal", Ordinal), ("multinomial", Multinomial)):
        for p, k in ((1, 3), (2, 3), (1, 5)):
            for slope, each in ((s, e) for s in (0.5, 2.0) for e in (15, 20)):
                family = kind(p, k)
                n = each * family.size + 1
                if n * p > 260:
                    continue
                line = f"{name:<11} {p}  {k}  {slope:g}  {n:4d}  {each:3d}  "
                for way in ("", "with", "alone"):
                    keys = [[11, p, k, job] for job in range(jobs)]
                    own = [told(family, np.random.default_rng(key), n, slope, marginal=way) for key in keys]
                    line += f" {np.mean(own):.2f}"
                print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="of each kind")
    parser.add_argument("--rare", action="store_true", help="a level with few rows")
    parser.add_argument("--cells", action="store_true", help="a level with few rows of a value of a column")
    parser.add_argument("--marginal", action="store_true", help="with sums of marginal effects")
    parser.add_argument("--prior_sd", type=float, default=PRIOR_SD, help="of coefficients")
    asked = parser.parse_args()
    jobs, globals()["PRIOR_SD"] = asked.jobs, asked.prior_sd
    if asked.marginal:
        with_effects(jobs)
        return
    if asked.cells:
        together(jobs)
        return
    if asked.rare:
        rarely(jobs)
        return
    print("shares of a client's rows that are determined, mean and most of jobs")
    print("family, columns, levels, slope, rows, rows a number of the likelihood; mean, most")
    for name, kind in (("ordinal", Ordinal), ("multinomial", Multinomial)):
        for p, k in ((1, 3), (2, 3), (3, 3), (1, 5), (2, 5)):
            for slope in (0.5, 2.0):
                family = kind(p, k)
                for n in (fewest(family) // 2, fewest(family), 3 * fewest(family) // 2):
                    if n * p > 400:
                        continue
                    keys = [[8, p, k, job, n] for job in range(jobs)]
                    shares = [told(family, np.random.default_rng(key), n, slope) for key in keys]
                    cells = f"{name:<11} {p}  {k}  {slope:g}  {n:4d}  {n / family.size:5.1f}"
                    print(f"{cells}   {np.mean(shares):.3f} {max(shares):.3f}", flush=True)


if __name__ == "__main__":
    main()
