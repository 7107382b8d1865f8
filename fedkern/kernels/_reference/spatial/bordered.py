"""Factors of precisions whose last block is dense, with dense matrices. docs/spec/sigma.md, section 13."""

import numpy as np
from scipy.linalg import cho_solve, solve_triangular


def columns(values, indptr, indices, n):
    """Returns (n, k) the sparse columns."""
    out = np.zeros((n, len(indptr) - 1))
    out[indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))] = values
    return out


def bordered_factor(values, indptr, indices, block, factor, rest, n_threads):
    k = len(indptr) - 1
    A = columns(values, indptr, indices, k + len(block))
    L = np.zeros_like(A)
    for j in range(k):
        column = A[j:, j] - L[j:, :j] @ L[j, :j]
        if not column[0] > 0:
            return j
        L[j:, j] = column / np.sqrt(column[0])
    factor[...] = L[indices, np.repeat(np.arange(k), np.diff(indptr))]
    rest[...] = np.tril(block) + np.tril(block, -1).T - L[k:] @ L[k:].T
    return -1


def bordered_inverse(factor, indptr, indices, block, inverse, n_threads):
    """Computes the inverse by blocks: with X = L_ii^-T L_bi', it has -X S_bb beside S_bb, and L_ii^-T L_ii^-1 + X S_bb X' above
    it."""
    k = len(indptr) - 1
    L = columns(factor, indptr, indices, k + len(block))
    Z = np.zeros((k + len(block), k))
    if k:
        X = solve_triangular(L[:k].T, L[k:].T, check_finite=False)
        Z[:k] = cho_solve((L[:k], True), np.eye(k), check_finite=False) + X @ block @ X.T
        Z[k:] = -(block @ X.T)
    inverse[...] = Z[indices, np.repeat(np.arange(k), np.diff(indptr))]


def bordered_solve(right, factor, indptr, indices, back, solved, n_threads):
    k, n = len(indptr) - 1, right.shape[1]
    L = columns(factor, indptr, indices, n)
    x = right.copy()
    if k and len(right):
        if back:
            x[:, :k] = solve_triangular(L[:k].T, (right[:, :k] - right[:, k:] @ L[k:]).T, check_finite=False).T
        else:
            x[:, :k] = solve_triangular(L[:k], right[:, :k].T, lower=True, check_finite=False).T
            x[:, k:] -= x[:, :k] @ L[k:].T
    solved[...] = x
