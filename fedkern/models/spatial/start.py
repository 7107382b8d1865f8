"""Computes the start of training of the variant "multiplicative": the best linear factors, known in closed form at every phi.

Given phi the variant is a linear Gaussian model, theta_j = A_j z_G + B_j z_Lj + N(0, gamma^2 I). Its maximum likelihood for draws
with covariance S alternates between two eigenvalue problems: B_j from the block S_jj - A_j A_j' (probabilistic principal
components), A from S weighted by the covariances N_j = B_j B_j' + gamma^2 I of the rest. The encoders are then the exact
posterior. Over phi, the factors of a few nodes are turned to agree with their neighbours' (a rotation of the latents changes
nothing else), and the networks of weights get the best few functions of phi for them: a reduced-rank regression on their hidden
units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Array
from ...kernels import mlp
from .condition import Condition

DENSE = 600  # up to this size all eigenvectors cost less than an iteration for a few
KEPT = 1e-3  # singular values of the hidden units below this, relative to the largest, are noise: their weights would be huge
RIDGE = 1e-4  # of the weights of encoders' errors: directions that theta hardly takes


@dataclass(frozen=True, eq=False)
class Factors:
    """Holds the factors of theta_j = A_j z_G + B_j z_Lj + noise at one phi."""

    A: Array  # (d, p_G) loadings of z_G
    B: tuple[Array, ...]  # J matrices (d_j, p_Lj) of the local latents

    def covariance(self) -> Array:
        """Returns the covariance (d, d) of A z_G + B_j z_Lj."""
        total = self.A @ self.A.T
        for where, B in zip(_blocks([len(B) for B in self.B]), self.B):
            total[where, where] += B @ B.T
        return np.asarray(total)


def best_factors(
    S: Array, groups: Sequence[int], n_global: int, n_local: Sequence[int], variance: float, sweeps: int = 3
) -> Factors:
    """Returns factors of the covariance S (d, d) with this variance of the noise; more factors than the noise leaves are zero.
    `sweeps`: alternations between local and global factors; a few do, and keep the factors smooth in phi."""
    blocks, A = _blocks(groups), np.zeros((len(S), n_global))
    B = [np.zeros((n, p)) for n, p in zip(groups, n_local)]
    for _ in range(sweeps):
        roots = [_roots(B_j, variance) for B_j in B]
        lengths, directions = _leading(S, [inverse for _, inverse in roots], n_global)
        scaled = directions * np.sqrt(np.maximum(lengths - 1, 0))
        for where, (root, _) in zip(blocks, roots):
            A[where] = root @ scaled[where]
        for j, where in enumerate(blocks):
            lengths, directions = _eigen(S[where, where] - A[where] @ A[where].T, n_local[j])
            B[j] = directions * np.sqrt(np.maximum(lengths - variance, 0))
    return Factors(A, tuple(B))


def multiplicative_start(
    architecture: mlp.Architecture,
    covariance: Callable[[float], Array],
    nodes: Array,
    conditions: Array,
    *,
    gamma: float,
    seed: int,
    sweeps: int = 3,
) -> Array:
    """Returns parameters (k,) of the variant "multiplicative" whose decoders and encoders are the best linear ones at every
    phi.

    Parameters
    ----------
    architecture : of the networks
    covariance : phi -> (d, d) covariance of the networks' data, theta over its scale
    nodes, conditions : (N,) values of phi along its range, and (N, c) the networks' input for them
    gamma : standard deviation of theta about the decoder
    seed : of the networks' first layers
    """
    if architecture.variant != "multiplicative":
        raise ValueError(f"multiplicative_start: the variant is {architecture.variant!r}")
    conditions = np.asarray(conditions, dtype=np.float64).reshape(len(nodes), architecture.n_conditions)
    parameters, variance, mean = architecture.initial(seed), gamma * gamma, np.zeros((architecture.n_values,) * 2)
    factors = list[Factors]()
    for phi in nodes:
        S = covariance(float(phi))
        mean += S / len(nodes)
        factors.append(best_factors(S, architecture.groups, architecture.n_global, architecture.n_local, variance, sweeps))
    factors = _aligned(factors)
    s = _weights(architecture, parameters, "decoder_weights", conditions, np.array([_flat(f) for f in factors]))
    for j in range(len(architecture.groups)):
        where = _block(architecture, j)
        _put(architecture, parameters, f"decoder[{j}]", s, [np.hstack([f.A[where], f.B[j]]) for f in factors])
    _encoders(architecture, parameters, conditions, factors, mean, variance)
    return parameters


def condition_nodes(condition: Condition, n: int) -> tuple[Array, Array]:
    """Returns n Chebyshev nodes of the networks' input: phi (n,), and the networks' conditions (n, 1); one if phi is not free."""
    if not condition.free:
        phi = np.full(1, condition.fixed or 0.0)
        return phi, condition.network(phi)[:, None]
    phi = condition.along((1 - np.cos(np.pi * (np.arange(n) + 0.5) / n)) / 2)
    return phi, condition.network(phi)[:, None]


def _encoders(
    architecture: mlp.Architecture, parameters: Array, conditions: Array, of_nodes: list[Factors], mean: Array, variance: float
) -> None:
    """Sets the exact posterior of the factors: q(z_G | theta) and q(z_Lj | theta_j, z_G), with the best independent variances.

    Errors of an encoder count as much as theta varies in their direction: by a Cholesky factor of its input's mean covariance.
    """
    J = len(architecture.groups)
    parts = ["global_encoder", *(f"posterior[{j}]" for j in range(J))]
    means, log_variances = zip(*(_posterior(f, architecture, variance) for f in of_nodes))
    inputs, A = [mean], np.mean([f.A for f in of_nodes], axis=0)
    for j in range(J):
        where = _block(architecture, j)
        inputs.append(np.block([[mean[where, where], A[where]], [A[where].T, np.eye(architecture.n_global)]]))
    factors = [np.linalg.cholesky(M + RIDGE * np.trace(M) / len(M) * np.eye(len(M))) for M in inputs]
    weighted = [[m @ L for m, L in zip(row, factors)] for row in means]
    s = _weights(architecture, parameters, "encoder_weights", conditions, np.array([_joined(row) for row in weighted]))
    for k, part in enumerate(parts):
        _put(architecture, parameters, part, s, [row[k] for row in weighted], factors[k])
        (W, b) = architecture.layers(parameters, part)[1]
        assert b is not None
        levels, ones = np.array([row[k] for row in log_variances]), np.ones(len(s))
        fitted = np.linalg.lstsq(np.column_stack([s, ones]), levels, rcond=None)[0]
        W[:], b[:] = fitted[:-1].T, fitted[-1]


def _posterior(f: Factors, architecture: mlp.Architecture, variance: float) -> tuple[list[Array], list[Array]]:
    """Returns matrices of the posterior means, and logarithms of the variances, of z_G and of every z_Lj."""
    precision, weighted = np.eye(architecture.n_global), np.zeros_like(f.A)
    means, log_variances = list[Array](), list[Array]()
    for j, B in enumerate(f.B):
        where = _block(architecture, j)
        A = f.A[where]
        inside = variance * np.eye(B.shape[1]) + B.T @ B
        weighted[where] = (A - B @ np.linalg.solve(inside, B.T @ A)) / variance
        precision += A.T @ weighted[where]
        to_local = np.linalg.solve(inside, B.T)
        means.append(np.hstack([to_local, -to_local @ A]))
        log_variances.append(-np.log(np.diag(inside) / variance))
    to_global = np.asarray(np.linalg.solve(precision, weighted.T), dtype=np.float64)
    return [to_global, *means], [-np.log(np.diag(precision)), *log_variances]


def _weights(architecture: mlp.Architecture, parameters: Array, part: str, conditions: Array, curves: Array) -> Array:
    """Sets a network of weights to the best `rank` functions of the condition for these curves (N, D); returns its values (N,
    rank)."""
    (W, b), (out, shift) = architecture.layers(parameters, part)
    assert b is not None
    assert shift is not None
    W[:] = np.sign(W) * (1 + 2 * np.abs(W) * np.sqrt(W.shape[1]))  # bends of several widths, spread over the range
    centres = conditions.min(axis=0) + np.linspace(0, 1, len(W))[:, None] * np.ptp(conditions, axis=0)
    b[:] = -np.sum(W * centres, axis=1)
    hidden = np.column_stack([np.tanh(conditions @ W.T + b), np.ones(len(conditions))])
    U, size, Vt = np.linalg.svd(hidden, full_matrices=False)
    kept = size > KEPT * size[0]
    V = Vt[kept].T / size[kept]
    inner = U[:, kept].T @ curves
    functions = np.linalg.eigh(inner @ inner.T)[1][:, ::-1][:, : architecture.rank] * np.sqrt(len(conditions))
    coefficients = np.zeros((len(W) + 1, architecture.rank))
    coefficients[:, : functions.shape[1]] = V @ functions
    out[:], shift[:] = coefficients[:-1].T, coefficients[-1]
    return np.asarray(hidden @ coefficients)


def _put(
    architecture: mlp.Architecture, parameters: Array, part: str, s: Array, curves: list[Array], factor: Array | None = None
) -> None:
    """Sets M of x -> M kron(s, x) to the least squares fit of the curves, N matrices (p, n); `factor`: times its inverse."""
    (p, n), M = curves[0].shape, architecture.layers(parameters, part)[0][0]
    fitted = np.linalg.lstsq(s, np.array(curves).reshape(len(s), -1), rcond=None)[0].reshape(-1, p, n)
    if factor is not None:
        fitted = np.linalg.solve(factor.T, fitted.transpose(2, 0, 1).reshape(n, -1)).reshape(n, -1, p).transpose(1, 2, 0)
    M[:] = fitted.transpose(1, 0, 2).reshape(p, -1)


def _aligned(factors: list[Factors]) -> list[Factors]:
    """Returns the same factors, turned to agree with their neighbours; from the end that has more, so that none begins on the
    way."""
    active = [sum(int(np.any(M != 0, axis=0).sum()) for M in (f.A, *f.B)) for f in factors]
    ahead = active[0] >= active[-1]
    result = list[Factors]()
    for f in factors if ahead else factors[::-1]:
        if result:
            last = result[-1]
            f = Factors(_turned(f.A, last.A), tuple(_turned(B, C) for B, C in zip(f.B, last.B)))
        result.append(f)
    return result if ahead else result[::-1]


def _turned(A: Array, towards: Array) -> Array:
    """Returns A times the rotation that brings it nearest (Procrustes)."""
    u, _, vt = np.linalg.svd(A.T @ towards)
    return np.asarray(A @ (u @ vt))


def _roots(B: Array, variance: float) -> tuple[Array, Array]:
    """Returns the symmetric root of B B' + variance I, and its inverse; the columns of B are orthogonal."""
    lengths = np.sum(B * B, axis=0)
    kept = lengths > 0
    v, sd = B[:, kept] / np.sqrt(lengths[kept]), np.sqrt(variance)
    large = np.sqrt(lengths[kept] + variance)
    identity = np.eye(len(B))
    return sd * identity + (v * (large - sd)) @ v.T, identity / sd + (v * (1 / large - 1 / sd)) @ v.T


def _leading(S: Array, inverses: list[Array], k: int) -> tuple[Array, Array]:
    """Returns the k largest eigenvalues and eigenvectors of R S R, R block-diagonal."""
    blocks = _blocks([len(R) for R in inverses])
    if len(S) <= DENSE:
        X = np.empty_like(S)
        for a, R in zip(blocks, inverses):
            for b, Q in zip(blocks, inverses):
                X[a, b] = R @ S[a, b] @ Q
        return _eigen(X, k)
    from scipy.sparse.linalg import LinearOperator, eigsh

    def weighted(x: Array) -> Array:
        return np.concatenate([R @ x[where] for where, R in zip(blocks, inverses)])

    operator = LinearOperator(S.shape, matvec=lambda x: weighted(S @ weighted(x.ravel())), dtype=np.float64)
    begin = np.cos(np.arange(len(S), dtype=np.float64) ** 2)  # not orthogonal to what is sought, and always the same
    lengths, directions = eigsh(operator, k=k, which="LA", v0=begin, tol=1e-6)
    order = np.argsort(lengths)[::-1]
    return lengths[order], directions[:, order]


def _eigen(S: Array, k: int) -> tuple[Array, Array]:
    """Returns the k largest eigenvalues and eigenvectors, zeros if S has fewer."""
    from scipy.linalg import eigh

    n = len(S)
    lengths, directions = np.zeros(k), np.zeros((n, k))
    m = min(k, n)
    pairs = eigh((S + S.T) / 2, subset_by_index=(n - m, n - 1))
    lengths[:m], directions[:, :m] = pairs[0][::-1], pairs[1][:, ::-1]
    return lengths, directions


def _flat(f: Factors) -> Array:
    return _joined([f.A, *f.B])


def _joined(matrices: Sequence[Array]) -> Array:
    return np.concatenate([M.ravel() for M in matrices])


def _block(architecture: mlp.Architecture, j: int) -> slice:
    return _blocks(architecture.groups)[j]


def _blocks(groups: Sequence[int]) -> list[slice]:
    ends = np.cumsum(groups)
    return [slice(int(end) - n, int(end)) for end, n in zip(ends, groups)]
