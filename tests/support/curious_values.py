"""The curious server, where covariates take few combinations of values: how often each of them occurs, by lattice reduction.

A row is then one of N known vectors, and what a client sends are sums over rows of known functions of these: of N whole numbers
that are not known, the frequencies, and of X'y, whole numbers too. Written beside each frequency they span a lattice, and
the truth is a point of it that lies near what is expected beforehand: LLL and Babai's nearest plane find it where sums are told
to twelve digits. `python-flint` has an exact LLL; it is needed by nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedkern.algorithms.exchanges.columns import SchemaReply
from fedkern.arrays import Array

from . import curious

NEEDS = "this attack needs an exact LLL: pip install python-flint"
NOISE = 2e-13  # of a number that is sent, as far as 50 rows; it grows with their number
FINE = 2.0**12  # the lattice's coordinates are rounded to 1 / FINE
SURE = 0.3  # singular values of equations, in units of their noise, below which they say nothing


@dataclass(frozen=True)
class Told:
    """Equations of frequencies (N,) and of [sum y, X'y] (d,): functions (m, N + d) and values (m,), some `exact`;
    `rows` of the client and `possible` ones, N; what is expected (N + d,) beforehand, and how far off that may be."""

    functions: Array
    values: Array
    exact: NDArray[np.bool_]
    rows: int
    possible: int
    expected: Array
    spread: Array


@dataclass(frozen=True)
class Found:
    """Frequencies (N,) that explain what was told. `bits`: what is told of them. `shortest`: of the reduced lattice's orthogonal
    vectors, in standard deviations of what is expected: above some four the truth is found. `seconds` of CPU."""

    frequencies: NDArray[np.int64]
    bits: float
    shortest: float
    seconds: float


def told(tape: curious.Tape, client: int, possible: Array, family: str = "bernoulli") -> Told:
    """What a client of a default job tells of the frequencies of `possible` rows (N, p)."""
    seen = curious.logistic(tape, client, rounds=200)
    d, N = seen.d, len(possible)
    Z = np.column_stack([np.ones(N), (possible - seen.centre) / seen.scale])
    units = np.diag(np.append(1.0, 1 / seen.scale))  # X'y as the client has it, from [sum y, X'y] of whole numbers
    units[1:, 0] = -seen.centre / seen.scale
    functions, values = [], []
    for mean, cov, gradient, curvature in _at(tape, client, seen):
        s = np.sqrt(np.einsum("ni,ij,nj->n", Z, cov, Z))
        if family == "poisson":
            slope = bend = np.exp(Z @ mean + s * s / 2)
        else:
            p = scipy.special.expit((Z @ mean)[:, None] + s[:, None] * curious.NODES)
            slope, bend = p @ curious.WEIGHTS, (p * (1 - p)) @ curious.WEIGHTS
        functions += [*np.hstack([-(slope[:, None] * Z).T, units])]
        values += [*gradient]
        i, j = np.tril_indices(d) if curvature.ndim == 2 else (np.arange(d), np.arange(d))
        functions += [*np.hstack([(bend[:, None] * Z[:, i] * Z[:, j]).T, np.zeros((len(i), d))])]
        values += [*(curvature[i, j] if curvature.ndim == 2 else curvature)]
    n, sums, squares = _sums(tape, client, seen)
    of_sums = np.vstack([np.ones(N), possible.T, np.square(possible).T])
    first = len(values)
    functions += [*np.hstack([of_sums, np.zeros((len(of_sums), d))])]
    values += [n, *sums, *squares]
    frequencies = n * _likely(possible, sums / n, squares / n)
    expected = np.rint(np.concatenate([frequencies, [n / 2], sums / 2]))
    spread = np.sqrt([*(frequencies + 0.02), n, *(4 * n * np.square(possible).max(axis=0))])
    return Told(np.array(functions), np.array(values), np.arange(len(values)) >= first, n, N, expected, spread)


def _at(tape: curious.Tape, client: int, seen: curious.Seen) -> list[tuple[Array, Array, Array, Array]]:
    """Mean and covariance of q, gradient and curvature there: where updates have led q, and where q was at the end."""
    found = []
    for term in (term for term in seen.terms if isinstance(term, curious.Sites)):
        cov = term.cov if term.cov.ndim == 3 else np.array([np.diag(one) for one in term.cov])
        found += [*zip(term.mean, cov, term.gradient, term.curvature)]
    return found


def _sums(tape: curious.Tape, client: int, seen: curious.Seen) -> tuple[int, Array, Array]:
    """Rows, and sums of whole numbers and of their squares, from what standardises the columns."""
    _, first, centred = tape.texts(client, SchemaReply)
    n, sums = int(first["rows"]), np.rint(first["sums"])
    return n, sums, np.rint(np.array(centred["squares"]) + 2 * seen.centre * sums - n * seen.centre**2)


def _likely(possible: Array, mean: Array, squares: Array) -> Array:
    """(N,) How likely each possible row is, columns apart: of all distributions with this mean and variance the smoothest."""
    p = np.ones(len(possible))
    for column, m, square in zip(possible.T, mean, squares):
        values, inverse = np.unique(column, return_inverse=True)
        sd = np.sqrt(max(square - m * m, 1e-9))
        features = np.column_stack([(values - m) / sd, ((values - m) / sd) ** 2])[:, : len(values) - 1]
        tilt = np.array([0.0, -0.5])[: features.shape[1]]
        for _ in range(50):
            weight = scipy.special.softmax(features @ tilt)
            off = np.array([0.0, 1.0])[: len(tilt)] - weight @ features
            spread = (features * weight[:, None]).T @ features - np.outer(weight @ features, weight @ features)
            tilt = tilt + np.linalg.solve(spread + 1e-9 * np.eye(len(tilt)), off)
        p *= scipy.special.softmax(features @ tilt)[inverse]
    return p / p.sum()


def frequencies(told: Told, reduced: Any = None) -> Found:
    """How often each possible row occurs. `reduced`: matrix of whole numbers -> the same lattice, reduced; LLL of python-flint by
    default."""
    if reduced is None:
        import flint

        def reduced(basis: Any) -> Any:
            return flint.fmpz_mat(basis).lll(delta=0.9999, eta=0.501)

    began = time.process_time()
    unknown, weight = len(told.expected), np.where(told.exact, 1e3, 1 / (NOISE * max(1.0, told.rows / 50)))
    A, left = weight[:, None] * told.functions, weight * (told.values - told.functions @ told.expected)
    U, s, _ = np.linalg.svd(A * told.spread, full_matrices=False)
    U = U[:, s > SURE]
    whole = np.vectorize(lambda x: int(np.rint(x)), otypes=[object])
    basis = whole(FINE * np.hstack([np.diag(1 / told.spread), (U.T @ A).T]))
    target = whole(FINE * np.concatenate([np.zeros(unknown), U.T @ left]))
    short = np.array([[int(x) for x in row] for row in reduced(basis.tolist()).tolist()], dtype=object)
    Q, R = np.linalg.qr(short.astype(float).T / FINE)
    point = 0 * target
    for _ in range(8):  # floats find the plane to their digits, whole numbers say what is left
        y, steps = Q.T @ ((target - point).astype(float) / FINE), []
        for k in range(len(R) - 1, -1, -1):
            steps.append((k, np.rint(y[k] / R[k, k])))
            y = y - steps[-1][1] * R[:, k]
        if not any(step for _, step in steps):
            break
        point = point + sum(int(step) * short[k] for k, step in steps)
    off = point[:unknown].astype(float) / np.diag(basis[:, :unknown]).astype(float)
    counts = np.rint(told.expected + off)[: told.possible].astype(np.int64)
    return Found(counts, float(np.log2(s[s > 1]).sum()), float(np.abs(np.diag(R)).min()), time.process_time() - began)


def of_rows(X: Array, possible: Array) -> NDArray[np.int64]:
    """(N,) The truth: how often each possible row occurs."""
    return (X[:, None, :] == possible[None]).all(axis=2).sum(axis=0)
