"""What the answers of a client of a Cox job determine of its rows, by derivatives at the draws of real posteriors.

    python survival_disclosure.py [--summaries | --sums | --causes] [--prior_sd 2500]    # a default prior that rows have widened

Of each client: its partial log-likelihood at 4,096 draws, and value, gradient and Hessian at five points of the way to the mode,
each in the unit in which it is told (`algorithms.importance.settings`); sums and sums of squares of its columns. The derivatives
of all of these in the cells of its columns, beside a standard normal prior of each cell, say how exactly the cells are determined
to whoever solves the equations; the order of the times and which rows have events are given to him. A row counts as told where
every one of its cells (with strata: less the mean of its stratum, which no likelihood tells) is known to .05 standard deviations.
Whether a solver finds them is another question: this is the most that it can. The fewest events are those that level "standard"
takes, which counts an event at whose time five rows of its stratum are at risk: of matched pairs it counts none.

With `--summaries` the client takes part by a summary (`algorithms.importance.summaries`), in the units in which it tells it:
value, gradient and curvature at the mode that the other clients have, and averaged over their normal.

With `--causes` events have two or three causes, each with as many events, and answers are of all of these.

With `--sums` sums are masked: whoever works with one client reads them of all others' rows, each client's with risk sets of its
own. Events count at whose time five rows of their client are at risk.
"""

from __future__ import annotations

import argparse
from itertools import count
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fedkern.algorithms.importance.settings import (
    ASKED_OF_ALL,
    OF_DRAWS,
    OF_QUADRATICS,
    OF_VALUES,
    of_derivatives,
    of_draws,
    power,
)
from fedkern.algorithms.importance.summaries import AVERAGED, CELLS_OF_ALL, CELLS_OF_ONE, allowed
from fedkern.algorithms.importance.summaries import told as told_by
from fedkern.disclosure.few import OF_A_SUMMARY
from fedkern.disclosure.rules import LEVELS, told_by_values
from fedkern.kernels import survival

RULES = LEVELS["standard"]
POINTS, TO_MODE, CLIENTS, OF_ROUNDING, DIGITS, TOLD, FREEDOM = 4096, 5, 3, 12**-0.5, 1e-9, 0.05, 7.0
PRIOR_SD, STEP = 2.5, 1e-5


def client(rng: np.random.Generator, n: int, events: int, p: int, slope: float, together: int) -> tuple[Any, ...]:
    """X in the order of the kernel, and its sets; `together`: rows of a stratum, 0: all."""
    X = rng.standard_normal((n, p))
    time = rng.exponential(size=n) * np.exp(-slope * X[:, 0])
    event = np.zeros(n, bool)
    event[rng.permutation(n)[:events]] = True
    time[~event] *= rng.random(n - events)
    strata = rng.permutation(n) // together if together else None
    order, first, ends, deaths, _ = survival.arranged(time, event, None, strata)
    return np.ascontiguousarray(X[order]), first, ends, deaths


def curvature(X: Any, sets: tuple[Any, ...], points: Any) -> tuple[Any, ...]:
    return survival.cox_curvature(points, X, None, None, *sets, None)


def mode(clients: list[tuple[Any, ...]], p: int) -> tuple[Any, Any, list[Any]]:
    """The posterior's mode, its precision there, and the points on the way."""
    beta, at, path = np.zeros(p), np.tril_indices(p), []
    for _ in range(30):
        path.append(beta)
        gradient, H = -beta / PRIOR_SD**2, np.eye(p) / PRIOR_SD**2
        for X, *sets in clients:
            _, g, lower = curvature(X, tuple(sets), beta[np.newaxis])
            full = np.zeros((p, p))
            full[at] = lower[0]
            gradient, H = gradient + g[0], H + full + np.tril(full, -1).T
        step = np.linalg.solve(H, gradient)
        if np.abs(step).max() < 1e-6:
            break
        beta = beta + step / max(1.0, np.abs(step).max())
    return beta, H, path[:TO_MODE]


def weights(X: Any, first: Any, ends: Any, points: Any) -> Any:
    """(S, n) of each row the sum of its chances over the times of events."""
    eta = points @ X.T
    found = np.zeros_like(eta)
    for begin, end in zip(first, ends):
        own = eta[:, begin:end]
        e = np.exp(own - own.max(axis=1, keepdims=True))
        found[:, begin:end] += e / e.sum(axis=1, keepdims=True)
    return found


def units_of(packed: Any, p: int, prior_sd: float) -> Any:
    """The units of values, gradients and Hessians, in their order, of a client with these Hessians (packed) at several points."""
    at, each = np.tril_indices(p), []
    for lower in packed:
        full = np.zeros((p, p))
        full[at] = lower
        each.append(of_derivatives(full + np.tril(full, -1).T, np.eye(p) / prior_sd**2, CLIENTS))
    of_value = np.full(len(packed), float(power(OF_VALUES / CLIENTS**0.5)))
    return np.concatenate([of_value, *(gradient for gradient, _ in each), *(hessian[at] for _, hessian in each)])


def told(rng: np.random.Generator, n: int, events: int, p: int, slope: float, together: int) -> float:
    """The share of a client's rows that are determined, in a job of three such clients."""
    clients = [client(rng, n, events, p, slope, together) for _ in range(CLIENTS)]
    beta, H, path = mode(clients, p)
    root = np.linalg.inv(np.linalg.cholesky(H)).T
    z = rng.standard_normal((POINTS, p)) / np.sqrt(rng.chisquare(FREEDOM, POINTS) / FREEDOM)[:, np.newaxis]
    points = beta + z @ root.T
    X, *sets = clients[0]
    died = np.zeros(n)
    died[sets[1] - 1] = 1.0
    slopes = died - weights(X, sets[0], sets[1], points)  # d value / d eta
    alike = CLIENTS * curvature(X, tuple(sets), points)[0] - (points**2).sum(axis=1) / (2 * PRIOR_SD**2)
    of_values = power(OF_DRAWS * OF_VALUES / CLIENTS**0.5 * of_draws(points, alike)) * OF_ROUNDING
    J = [(slopes[:, :, np.newaxis] * points[:, np.newaxis, :]).reshape(POINTS, n * p) / of_values[:, np.newaxis]]
    exact, at = np.array(path), np.empty((n * p, len(path) * (1 + p + p * (p + 1) // 2)))
    for cell in range(n * p):
        both = []
        for sign in (1, -1):
            moved = X.copy()
            moved.flat[cell] += sign * STEP
            both.append(np.concatenate([one.ravel() for one in curvature(moved, tuple(sets), exact)]))
        at[cell] = (both[0] - both[1]) / (2 * STEP)
    J.append((at / (units_of(curvature(X, tuple(sets), exact)[2], p, PRIOR_SD) * OF_ROUNDING)).T)
    # The exchange of columns: their sums and sums of squares. A likelihood of differences of rows does not know where these are.
    sums = np.repeat(np.eye(p), n, axis=0).reshape(p, n, p).transpose(1, 2, 0).reshape(n * p, p)
    J.append(np.concatenate([sums, 2 * X.reshape(-1, 1) * sums], axis=1).T / DIGITS)
    return within_strata(np.concatenate(J), n, p, together)


def told_of_causes(rng: np.random.Generator, n: int, events: int, p: int, slope: float, causes: int) -> float:
    """The share of a client's rows that are determined where each of several causes has so many events."""
    clients = []
    for _ in range(CLIENTS):
        X, time = rng.standard_normal((n, p)), rng.exponential(size=n)
        time *= np.exp(-slope * X[:, 0])
        cause = np.repeat(np.arange(causes + 1), [events] * causes + [n - causes * events])[rng.permutation(n)]
        clients.append((X, [survival.arranged(time, cause == k)[:4] for k in range(causes)]))
    found = [mode([(np.ascontiguousarray(X[sets[k][0]]), *sets[k][1:]) for X, sets in clients], p) for k in range(causes)]
    root = block_diag(*(np.linalg.inv(np.linalg.cholesky(H)).T for _, H, _ in found))
    z = rng.standard_normal((POINTS, causes * p)) / np.sqrt(rng.chisquare(FREEDOM, POINTS) / FREEDOM)[:, np.newaxis]
    points = np.concatenate([beta for beta, _, _ in found]) + z @ root.T
    X, sets = clients[0]
    at, steps = np.tril_indices(p), min(len(path) for _, _, path in found)
    J_values, values = np.zeros((POINTS, n, p)), -(points**2).sum(axis=1) / (2 * PRIOR_SD**2)
    for (order, first, ends, deaths), own in zip(sets, np.split(points, causes, axis=1)):
        own, Z = np.ascontiguousarray(own), np.ascontiguousarray(X[order])
        died = np.zeros(n)
        died[ends - 1] = 1.0
        J_values[:, order] += (died - weights(Z, first, ends, own))[:, :, np.newaxis] * own[:, np.newaxis]
        values += CLIENTS * curvature(Z, (first, ends, deaths), own)[0]
    J = [
        J_values.reshape(POINTS, n * p)
        / (power(OF_VALUES / CLIENTS**0.5 * of_draws(points, values)) * OF_ROUNDING)[:, np.newaxis]
    ]

    def exact(X: Any) -> tuple[Any, ...]:
        each = [
            curvature(np.ascontiguousarray(X[order]), tuple(own), np.array(path[:steps]))
            for (order, *own), (_, _, path) in zip(sets, found)
        ]
        value, g, lower = zip(*each)
        return np.sum(value, axis=0), np.concatenate(g, axis=1), np.concatenate(lower, axis=1)

    units = [np.full(steps, float(power(OF_VALUES / CLIENTS**0.5))), [], []]
    for packed in exact(X)[2]:
        blocks = np.zeros((causes, p, p))
        blocks[:, *at] = packed.reshape(causes, -1)
        whole = block_diag(*(blocks + np.tril(blocks, -1).transpose(0, 2, 1)))
        gradient, hessian = of_derivatives(whole, np.eye(causes * p) / PRIOR_SD**2, CLIENTS)
        units[1].append(gradient)
        units[2].append(np.concatenate([hessian[k * p : (k + 1) * p, k * p : (k + 1) * p][at] for k in range(causes)]))
    J.append(np.empty((sum(np.size(unit) for unit in units), n * p)))
    for cell in range(n * p):
        both = []
        for sign in (1, -1):
            moved = X.copy()
            moved.flat[cell] += sign * STEP
            both.append(np.concatenate([np.ravel(own / np.array(unit)) for own, unit in zip(exact(moved), units)]))
        J[1][:, cell] = (both[0] - both[1]) / (2 * STEP * OF_ROUNDING)
    sums = np.repeat(np.eye(p), n, axis=0).reshape(p, n, p).transpose(1, 2, 0).reshape(n * p, p)
    J.append(np.concatenate([sums, 2 * X.reshape(-1, 1) * sums], axis=1).T / DIGITS)
    return within_strata(np.concatenate(J), n, p, 0)


def of_causes(jobs: int) -> None:
    print("shares of a client's rows that are determined, mean and most of jobs")
    print("causes, columns, slope, rows, events of each, these a column; mean, most")
    for causes in (2, 3):
        for p in (1, 2, 3):
            fewest = told_by_values(p, RULES, intercept=False) + 1
            for slope in (0.5, 2.0):
                for events in (fewest // 6, fewest // 2, fewest):
                    for n in (causes * events, 2 * causes * events):
                        if n * p > 500:
                            continue
                        keys = [[23, causes, p, job, n, events] for job in range(jobs)]
                        shares = [told_of_causes(np.random.default_rng(key), n, events, p, slope, causes) for key in keys]
                        cells = f"{causes}  {p}  {slope:g}  {n:4d}  {events:3d}  {events / p:5.1f}"
                        print(f"{cells}   {np.mean(shares):.3f} {max(shares):.3f}", flush=True)


def summed(rng: np.random.Generator, n: int, events: int, p: int, slope: float, others: int) -> float:
    """The share of a client's rows that are determined by its summary, in a job with two clients `others` times as large."""
    clients = [client(rng, many * n, many * events, p, slope, 0) for many in (1, others, others)]
    beta, H, _ = mode(clients[1:], p)
    half = rng.standard_normal((AVERAGED // 2, p)) @ np.linalg.inv(np.linalg.cholesky(H))
    points = np.concatenate([beta[np.newaxis], beta + half, beta - half])

    def numbers(X: Any) -> Any:
        every = curvature(X, tuple(clients[0][1:]), points)
        return [(own[0], own[1:].mean(axis=0)) for own in every]

    X, full, at = clients[0][0], np.zeros((p, p)), np.tril_indices(p)
    full[at] = numbers(X)[2][0]
    of_gradient, of_hessian = of_derivatives(full + np.tril(full, -1).T, np.eye(p) / PRIOR_SD**2, 3)
    units = [OF_QUADRATICS * unit for unit in (power(OF_VALUES / 3**0.5), of_gradient, of_hessian[at])]

    def told_of(X: Any) -> Any:
        return np.concatenate([np.ravel(own / unit) for both, unit in zip(numbers(X), units) for own in both]) * 12**0.5

    J = np.empty((n * p, len(told_of(X)) + 2 * p))
    for cell in range(n * p):
        both = []
        for sign in (1, -1):
            moved = X.copy()
            moved.flat[cell] += sign * STEP
            both.append(np.concatenate([told_of(moved), moved.sum(axis=0) / DIGITS, (moved**2).sum(axis=0) / DIGITS]))
        J[cell] = (both[0] - both[1]) / (2 * STEP)
    _, s, V = np.linalg.svd(J.T, full_matrices=False)
    left = 1 - np.einsum("ki,k,ki->i", V, s**2 / (1 + s**2), V)
    sd = np.sqrt(np.maximum(left, 0.0)).reshape(n, p)
    return float((sd < TOLD).all(axis=1).mean())


def others(rng: np.random.Generator, covered: int, p: int, slope: float, together: int) -> tuple[int, int]:
    """Rows and events of clients of `together` rows of whose events so many are covered; a half of all rows have one."""
    n = covered + 2
    while True:
        n += 2
        _, first, ends, deaths = client(rng, n, n // 2, p, slope, together)
        if deaths[ends - first >= 5].sum() >= covered:
            return n, n // 2


def of_sums(jobs: int) -> None:
    print("shares of the rows of all clients but one that are determined by sums, mean and most of jobs")
    print("columns, slope, rows of a client, rows, events; by values; by summaries: events, mean, most")
    for p, a_column in ((1, RULES.values_of_one_column), (2, RULES.values_of_two_columns), (3, RULES.values)):
        for slope in (0.5, 2.0):
            for together in (7, 15, 40):
                line = []
                share = CELLS_OF_ONE if p == 1 else CELLS_OF_ALL
                wanted = int(a_column * p) + 1, int(np.ceil(told_by(p, ASKED_OF_ALL) / (share * p)))
                for covered, one in zip(wanted, (told, averaged)):
                    shares = []
                    for job in range(jobs):
                        rng = np.random.default_rng([17, p, job, together])
                        n, events = others(rng, covered, p, slope, together)
                        shares.append(one(rng, n, events, p, slope, together))
                    line.append(f"{n:4d}  {events:3d}  {np.mean(shares):.3f} {max(shares):.3f}")
                print(f"{p}  {slope:g}  {together:2d}  {'   '.join(line)}", flush=True)


def averaged(rng: np.random.Generator, n: int, events: int, p: int, slope: float, together: int) -> float:
    """The share of rows that are determined by questions about one point, and about normals, in their units."""
    X, *sets = client(rng, n, events, p, slope, together)
    at, packed = np.tril_indices(p), tuple(sets)
    half = rng.standard_normal((AVERAGED // 8, p))
    mode, V, asked = np.zeros(p), np.eye(p) * PRIOR_SD**2, []

    def full(lower: Any) -> Any:
        H = np.zeros((p, p))
        H[at] = lower
        return H + np.tril(H, -1).T

    for k in range(ASKED_OF_ALL):
        root = np.linalg.cholesky(V)
        points = mode + np.concatenate([half, -half]) @ root.T if k else mode[np.newaxis]
        units = of_derivatives(np.linalg.inv(V), np.zeros((p, p)), 1)
        asked.append((points, OF_QUADRATICS * np.concatenate([[power(OF_VALUES)], units[0], units[1][at]])))
        _, g, lower = (own.mean(axis=0) for own in curvature(X, packed, points))
        H = full(lower) + np.eye(p) / PRIOR_SD**2
        mode, V = mode + np.linalg.solve(H, g - mode / PRIOR_SD**2), np.linalg.inv(H)

    def told_of(X: Any) -> Any:
        every = [np.concatenate([np.ravel(own.mean(axis=0)) for own in curvature(X, packed, one)]) / unit for one, unit in asked]
        return np.concatenate(every) * 12**0.5

    J = np.empty((n * p, len(told_of(X)) + 2 * p))
    for cell in range(n * p):
        both = []
        for sign in (1, -1):
            moved = X.copy()
            moved.flat[cell] += sign * STEP
            both.append(np.concatenate([told_of(moved), moved.sum(axis=0) / DIGITS, (moved**2).sum(axis=0) / DIGITS]))
        J[cell] = (both[0] - both[1]) / (2 * STEP)
    return within_strata(J.T, n, p, together)


def within_strata(J: Any, n: int, p: int, together: int) -> float:
    """The share of rows that equations determine, of strata less their mean, which no likelihood tells."""
    _, s, V = np.linalg.svd(J, full_matrices=False)
    covariance = np.eye(n * p) - (V.T * (s**2 / (1 + s**2))) @ V
    if together:  # rows of a stratum follow each other, those without an event at its end too
        stratum = np.arange(n) // together
        within = (stratum[:, np.newaxis] == stratum) / (stratum[:, np.newaxis] == stratum).sum(axis=1)
        centred = np.kron(np.eye(n) - within, np.eye(p))
        covariance = centred @ covariance @ centred.T
    sd = np.sqrt(np.maximum(np.diagonal(covariance), 0.0)).reshape(n, p)
    return float((sd < TOLD).all(axis=1).mean())


def of_summaries(jobs: int) -> None:
    print("shares of a client's rows that are determined by its summary, mean and most of jobs")
    print("columns, slope, other clients' size, rows, events, events a column; mean, most")
    for p in (1, 2, 3, 5, 9):
        fewest = max(int(np.ceil(RULES.summary * p)), RULES.rows_of_one_column if p == 1 else OF_A_SUMMARY)
        fewest = next(events for events in count(fewest) if allowed(p, events, p))
        for slope in (0.5, 2.0):
            for others in (4, 30):
                sizes = [(many * events, events) for events in (fewest, 2 * fewest) for many in (1, 2)]
                for n, events in sizes:
                    keys = [[11, p, job, n, events] for job in range(jobs)]
                    shares = [summed(np.random.default_rng(key), n, events, p, slope, others) for key in keys]
                    cells = f"{p}  {slope:g}  {others:2d}  {n:4d}  {events:3d}  {events / p:5.1f}"
                    print(f"{cells}   {np.mean(shares):.3f} {max(shares):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3, help="of each kind")
    parser.add_argument("--summaries", action="store_true", help="of clients that take part by a summary")
    parser.add_argument("--causes", action="store_true", help="of events of several causes")
    parser.add_argument("--sums", action="store_true", help="of sums of all clients but one")
    parser.add_argument("--prior_sd", type=float, default=PRIOR_SD, help="of coefficients")
    options = parser.parse_args()
    jobs, globals()["PRIOR_SD"] = options.jobs, options.prior_sd
    if options.sums:
        of_sums(jobs)
        return
    if options.causes:
        of_causes(jobs)
        return
    if options.summaries:
        of_summaries(jobs)
        return
    print("shares of a client's rows that are determined, mean and most of jobs")
    print("columns, slope, rows of a stratum (0: all), rows, events, events that count a column; mean, most")
    for p in (1, 2, 3):
        for slope in (0.5, 2.0):
            for together, rows in ((0, 1.0), (0, 2.0), (0, 5.0), (5, 0.0), (7, 0.0), (15, 0.0)):
                fewest = told_by_values(p, RULES, intercept=False) + 1
                for covered in (fewest // 2, fewest, 3 * fewest // 2):
                    n, events = int(covered * rows), covered
                    if together:
                        n, events = others(np.random.default_rng([7, p, together]), covered, p, slope, together)
                    if n * p > 500 + 500 * bool(together):
                        continue
                    keys = [[7, p, job, n, events] for job in range(jobs)]
                    shares = [told(np.random.default_rng(key), n, events, p, slope, together) for key in keys]
                    cells = f"{p}  {slope:g}  {together:2d}  {n:4d}  {events:3d}  {covered / p:5.1f}"
                    print(f"{cells}   {np.mean(shares):.3f} {max(shares):.3f}", flush=True)


if __name__ == "__main__":
    main()
