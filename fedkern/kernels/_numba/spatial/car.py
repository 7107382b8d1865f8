"""Conditional autoregressive priors for Numba. Public: `quadratic` and `log_determinant`, and `factor` of one phi."""

import numpy as np

from fedkern._core.rng import streams

from .._jit import loop, loop_ieee, scalar, scalar_ieee
from ..rng import stream_key
from .table import fill_normals

__all__ = ["car_factor", "car_logdensity", "car_sample", "factor", "log_determinant", "quadratic"]

CAR, LEROUX, ICAR = range(3)
DRAWS = streams()["prior_draws"]


@scalar_ieee
def log_determinant(phi, coefficients, lo, hi, widest):
    """The series in t = log(1 + widest phi / (1 - phi)) by Clenshaw's recurrence, and its derivative in phi."""
    low, high = np.log1p(widest * lo / (1.0 - lo)), np.log1p(widest * hi / (1.0 - hi))
    half = max(0.5 * (high - low), 1e-3)
    r = widest * phi / (1.0 - phi)
    x = (np.log1p(r) - 0.5 * (low + high)) / half
    b1, b2, d1, d2 = 0.0, 0.0, 0.0, 0.0
    for k in range(coefficients.size - 1, 0, -1):
        d1, d2 = 2.0 * b1 + 2.0 * x * d1 - d2, d1
        b1, b2 = coefficients[k] + 2.0 * x * b1 - b2, b1
    value, slope = coefficients[0] + x * b1 - b2, b1 + x * d1 - d2
    return value, slope / half * widest / ((1.0 - phi) * (1.0 - phi) * (1.0 + r))


@scalar
def quadratic(theta, phi, indptr, indices, form, gradient):
    """theta'Q theta and theta'(dQ / dphi) theta; `gradient` becomes -Q theta."""
    whole, slope = 0.0, 0.0
    for i in range(theta.size):
        around = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            around += theta[indices[k]]
        own = max(indptr[i + 1] - indptr[i], 1) * theta[i]
        if form == LEROUX:
            product = (1.0 - phi) * theta[i] + phi * (own - around)
            slope += theta[i] * (own - around - theta[i])
        else:
            product = own - (1.0 if form == ICAR else phi) * around
            slope -= theta[i] * around
        whole += theta[i] * product
        gradient[i] = -product
    return whole, slope


@loop
def logdensity_rows(theta, phi, indptr, indices, logdet, form, lo, hi, widest, rank, value, grad_theta, grad_phi):
    for b in range(theta.shape[0]):
        whole, slope = quadratic(theta[b], phi[b], indptr, indices, form, grad_theta[b])
        determinant, change = logdet[0], 0.0
        if form != ICAR:
            determinant, change = log_determinant(phi[b], logdet, lo, hi, widest)
        value[b] = 0.5 * (determinant - rank * np.log(2.0 * np.pi) - whole)
        grad_phi[b] = 0.0 if form == ICAR else 0.5 * (change - slope)
        if form != ICAR and not (lo <= phi[b] and phi[b] <= hi):
            value[b], grad_phi[b] = np.nan, np.nan
            grad_theta[b] = np.nan


def check_graph_numbers(indptr, indices, n):
    """Loops without bounds must not leave the arrays."""
    if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise ValueError("indptr: must rise from 0 to the length of indices")
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        raise ValueError("indices: outside the graph")


def car_logdensity(theta, phi, indptr, indices, logdet, form, lo, hi, widest, rank, value, grad_theta, grad_phi, n_threads):
    m, n = theta.shape
    check_graph_numbers(indptr, indices, n)
    if not logdet.size:
        raise ValueError("logdet: is empty")
    found = np.empty(m), np.empty((m, n)), np.empty(m)
    rank = n if rank < 0 else rank
    arrays = (np.array(a, order="C") for a in (theta, phi, indptr, indices, logdet))
    logdensity_rows(*arrays, form, lo, hi, widest, rank, *found)
    value[...], grad_theta[...], grad_phi[...] = found


@scalar_ieee
def factor(phi, indptr, indices, order, place, columns, rows, form, values):
    """One factor from the left, column by column; the area whose pivot is not greater than zero, or -1."""
    n = order.size
    work, following, first = np.zeros(n), np.full(n, -1), np.full(n, -1)  # columns whose next row is j: a list for each j
    at = columns[:-1].copy()
    for j in range(n):
        area = order[j]
        d = max(indptr[area + 1] - indptr[area], 1)
        work[j] = (1.0 - phi) + phi * d if form == LEROUX else d
        for k in range(indptr[area], indptr[area + 1]):
            if place[indices[k]] > j:
                work[place[indices[k]]] = -phi
        k = first[j]
        while k >= 0:
            after, scale = following[k], values[at[k]]
            for a in range(at[k], columns[k + 1]):
                work[rows[a]] -= values[a] * scale
            at[k] += 1
            if at[k] < columns[k + 1]:
                following[k], first[rows[at[k]]] = first[rows[at[k]]], k
            k = after
        if not work[j] > 0.0:
            return area
        root = np.sqrt(work[j])
        for a in range(columns[j], columns[j + 1]):
            values[a] = work[rows[a]] / root
            work[rows[a]] = 0.0
        values[columns[j]] = root
        at[j] += 1
        if at[j] < columns[j + 1]:
            following[j], first[rows[at[j]]] = first[rows[at[j]]], j
    return -1


@loop
def factor_rows(phi, indptr, indices, order, place, columns, rows, form, values, logdet):
    for t in range(phi.size):
        failed = factor(phi[t], indptr, indices, order, place, columns, rows, form, values[t])
        if failed >= 0:
            return t * order.size + failed
        total = 0.0
        for j in range(order.size):
            total += np.log(values[t, columns[j]])
        logdet[t] = 2.0 * total
    return -1


def car_factor(phi, order, factor_indptr, factor_indices, indptr, indices, form, values, logdet, n_threads):
    whole, found, place = np.empty(values.shape), np.empty(logdet.shape), np.argsort(order)
    arrays = [np.array(a, order="C") for a in (phi, indptr, indices, order, place, factor_indptr, factor_indices)]
    failed = factor_rows(*arrays, form, whole, found)
    values[...], logdet[...] = whole, found
    return failed


@loop_ieee
def coefficients(values, phi, form, key, client, step, out):
    """e / sqrt(precision) of every row; 0 in a null space."""
    m, n = out.shape
    for b in range(m):
        fill_normals(b * n, n, key, client, step, out[b])
        for k in range(n):
            p = 1.0 - phi[b] * values[k] if form == CAR else values[k]
            if form == LEROUX:
                p = (1.0 - phi[b]) + phi[b] * values[k]
            out[b, k] = 0.0 if p == 0.0 else out[b, k] / np.sqrt(p)


def car_sample(vectors, values, weights, phi, form, seed, chain, client, step, theta, n_threads):
    e = np.empty(theta.shape)
    coefficients(np.array(values), np.array(phi), form, np.uint64(stream_key(seed, DRAWS, chain)), client, step, e)
    theta[...] = e @ np.array(vectors).T * weights
