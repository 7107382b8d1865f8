"""Ties the clients of a prior together in closed form: computes the factors of `models.spatial.within`.

Whitened by client, the covariance of the borders is I + C, C zero within clients. Wanted are W, (borders, r), with W_j W_k' near
C_jk for every two clients and |W_j| < 1: a factor analysis whose unique variances are whole blocks. It is solved as principal
factors are: the r leading eigenvectors of C + H, H the blocks W_j W_j', which are computed together with them; H begins with the
part of each client's border that all others explain, I - Var(e_j | the others). The theory of two clients is that of canonical
correlations.

W is computed at a few values of phi and turned to agree with its neighbour, all clients' factors by one rotation, so that splines
can go through it. Nothing of the size of the whole map is dense: a client's interior is eliminated by the client's own matrices,
and only the borders are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.interpolate import make_interp_spline
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh, lapack, solve_triangular, svd
from scipy.sparse.linalg import splu

from ...arrays import Array, Indices
from ...errors import NumericalError
from ...kernels import spatial
from .condition import Condition
from .prior import AreaPrior, GpPrior, MixedPrior, Prior
from .within import DEGREE, LEAST_PHI, Within

NODES = 17  # values of phi
SWEEPS = 6  # between W and H at a node, which begins with the H of its neighbour
FIRST = 12  # at the first node
LARGE = 100  # borders from which factors at a node are found by subspace iteration from its neighbour's
FIRST_STEPS = 4  # of it in the first sweep
LARGEST = 0.99  # of |W_j|: what others tell of a border is less than the border itself
MOST = 1_500  # latents
TRIED = 300  # latents that the search for enough of them begins with
DRAWS = 4  # of theta and of a noise, in which errors are measured
NUGGET = 1e-6  # of a Gaussian process's variance, so that its blocks can be factored


@dataclass(frozen=True, eq=False)
class Part:
    """Describes the areas of one client."""

    name: str  # of the client
    where: slice  # its areas among all
    # border, inner: which of its own areas touch others', and which do not; rising
    border: Indices
    inner: Indices
    place: slice  # its border among the borders of all clients


@dataclass(frozen=True, eq=False)
class Borders:
    """Holds the borders of all clients at one phi."""

    C: Array  # (n, n) covariance whitened by client: I on the diagonal blocks
    # U, K: of each client, see `models.spatial.within`
    U: tuple[Array, ...]
    K: tuple[Array, ...]


class Division:
    """Divides the areas of a prior among clients, each client's together.

    Parameters
    ----------
    prior : CAR, Leroux or BYM2 (`MixedPrior`) on a map, or a Gaussian process
    sizes : of each client, how many areas
    names : of the clients, for errors
    """

    def __init__(self, prior: Prior, sizes: Sequence[int], names: Sequence[str]) -> None:
        if not isinstance(prior, (AreaPrior, GpPrior, MixedPrior)) or prior.condition.name == "none":
            raise ValueError(f"factors in closed form are those of car, leroux, bym2 with rho and gp; this prior is {prior.kind}")
        if sum(sizes) != prior.n or min(sizes) < 1 or len(sizes) != len(names):
            raise ValueError(f"clients of {', '.join(map(str, sizes))} areas are not those of {prior.n}")
        self.prior = prior
        self.client = np.repeat(np.arange(len(sizes)), sizes)
        self.diagonal, self.T = _pencil(prior)
        # An area is on a border if an edge goes to another client's area; points are all on it.
        if isinstance(prior, AreaPrior):
            row, column = sparse.coo_array(self.T).coords
            touching = np.zeros(prior.n, dtype=bool)
            touching[row[self.client[row] != self.client[column]]] = True
        else:
            touching = np.ones(prior.n, dtype=bool)
        ends, begin = np.cumsum([0, *sizes]), 0
        parts = list[Part]()
        for j, name in enumerate(names):
            where = slice(int(ends[j]), int(ends[j + 1]))
            border, inner = np.flatnonzero(touching[where]), np.flatnonzero(~touching[where])
            parts.append(Part(name, where, border, inner, slice(begin, begin + len(border))))
            begin += len(border)
        self.parts = tuple(parts)
        self.n_borders = begin
        self.touching = np.flatnonzero(touching)

    @property
    def rooted(self) -> bool:
        """Whether areas are independent at phi = 0."""
        return not isinstance(self.prior, GpPrior)

    def precision(self, phi: float) -> Any:
        """Returns the sparse precision (n, n) of all areas of a map."""
        return sparse.csc_array(sparse.diags_array(self.diagonal) + phi * self.T)

    def own(self, Q: Any, part: Part) -> tuple[Array, Array]:
        """Returns Q_ii and Q_ib of a client, dense."""
        block = Q[part.where, part.where].toarray()
        return block[np.ix_(part.inner, part.inner)], block[np.ix_(part.inner, part.border)]

    def borders(self, phi: float) -> Borders:
        """Returns the clients' borders at phi. Raises NumericalError: a block that cannot be factored, with its client and
        phi."""
        if not isinstance(self.prior, AreaPrior):
            S = self.dense(phi)
            K = tuple(np.zeros((len(part.border), len(part.border))) for part in self.parts)
        else:
            Q = self.precision(phi)
            eliminated = list[Array]()
            for part in self.parts:
                inner, across = self.own(Q, part)
                eliminated.append(across.T @ cho_solve((self._factor(inner, part, phi), True), across))
            K = tuple(eliminated)
            rest = Q[self.touching][:, self.touching].toarray()
            for part, taken in zip(self.parts, K):
                rest[part.place, part.place] -= taken
            S = cho_solve((self._factor(rest, None, phi), True), np.eye(len(rest)))
        # Each client's own block becomes the identity: its factors are in its own units.
        roots = [self._factor(S[part.place, part.place], part, phi) for part in self.parts]
        for part, root in zip(self.parts, roots):
            S[part.place] = solve_triangular(root, S[part.place], lower=True)
        for part, root in zip(self.parts, roots):
            S[:, part.place] = solve_triangular(root, S[:, part.place].T, lower=True).T
        U = tuple(solve_triangular(root, np.eye(len(root)), lower=True) for root in roots)
        return Borders((S + S.T) / 2, U, K)

    def dense(self, phi: float) -> Array:
        """Returns the covariance (n, n) if all areas are border: points, and BYM2, whose sum of 0 ties a component's areas
        together."""
        S = self.prior.covariance(phi)
        if isinstance(self.prior, GpPrior):
            S.flat[:: self.prior.n + 1] += NUGGET
        return S

    def variances(self, phi: float, borders: Borders) -> Array:
        """Returns the variances (n,) of theta, from its borders at this phi."""
        out, Q = np.empty(self.prior.n), self.precision(phi)
        for part, U in zip(self.parts, borders.U):
            inner, across = self.own(Q, part)
            S = np.linalg.inv(U.T @ U)
            inverse = np.linalg.inv(inner)
            Y, result = inverse @ across, np.empty(len(part.border) + len(part.inner))
            result[part.border] = S.diagonal()
            result[part.inner] = inverse.diagonal() + np.einsum("ib,bc,ic->i", Y, S, Y, optimize=True)
            out[part.where] = result
        return out

    def _factor(self, M: Array, part: Part | None, phi: float) -> Array:
        """Returns the Cholesky factor; raises NumericalError that names the client and phi."""
        try:
            return np.asarray(cholesky(M, lower=True)) if len(M) else M
        except np.linalg.LinAlgError:
            who = "the areas on borders" if part is None else f"client {part.name!r}"
            what = self.prior.condition.name
            raise NumericalError(
                f"{who}: the prior's covariance of {len(M)} areas cannot be factored at {what} = {phi:g}; "
                f"narrow the range of {what}"
            ) from None


def _pencil(prior: AreaPrior | GpPrior | MixedPrior) -> tuple[Array, Any]:
    """Returns Q_0 (n,), diagonal, and T, sparse: the precision is Q_0 + phi T. Both are zero if all areas are border."""
    if not isinstance(prior, AreaPrior):
        return np.zeros(prior.n), sparse.csr_array((prior.n, prior.n))
    W, degree = spatial.adjacency(prior.indptr, prior.indices), spatial.diagonal(prior.indptr)
    if prior.form == "car":
        return degree, sparse.csr_array(-W)
    return np.ones(prior.n), sparse.csr_array(sparse.diags_array(degree - 1) - W)


# Factors at one phi --------------------


def owed(C: Array, parts: Sequence[Part]) -> Array:
    """Returns blocks I - Var(e_j | all others) (n, n), zero between clients."""
    inverse, H = cho_solve(cho_factor(C), np.eye(len(C))), np.zeros_like(C)
    for part in parts:
        place = part.place
        H[place, place] = np.eye(place.stop - place.start) - np.linalg.inv(inverse[place, place])
    return H


def leading(C: Array, H: Array, parts: Sequence[Part], r: int, sweeps: int, near: Array | None = None) -> Array:
    """Returns W (n, r): the factors of C between clients, whose own blocks H begin the search; `near` (n, r) those of C nearby.

    For large C each sweep but the first without `near` makes one step of subspace iteration instead of solving an eigenvalue
    problem, which takes a fifth of the time: the blocks H move from sweep to sweep anyhow.
    """
    n, W = len(C), np.zeros((len(C), r))
    iterated = n >= LARGE and r <= 2 * n // 3
    V = np.linalg.qr(near)[0] if iterated and near is not None else None
    M = C.copy()
    # Each sweep replaces the clients' own blocks by those of the factors found so far, for only pairs between clients are to be
    # fitted.
    for sweep in range(sweeps):
        for part in parts:
            place = part.place
            M[place, place] = W[place] @ W[place].T if sweep else H[place, place]
        if V is None:
            lengths, directions = eigh(M, subset_by_index=(n - min(r, n), n - 1))
            V = directions if iterated else None
        else:
            steps = 1 if sweep else FIRST_STEPS
            for _ in range(steps):
                V = np.linalg.qr(M @ V)[0]
            lengths, turned = eigh(V.T @ (M @ V))
            directions = V @ turned
        W[:, : len(lengths)] = (directions * np.sqrt(np.maximum(lengths, 0)))[:, ::-1]
        W = inside(W, parts)
    return W


def inside(W: Array, parts: Sequence[Part]) -> Array:
    """Returns the same factors with no singular value of a client's block above LARGEST."""
    W = W.copy()
    for part in parts:
        rows = W[part.place]
        # Of most clients none is, which a Cholesky factor tells in a tenth of the time.
        if lapack.dpotrf(LARGEST**2 * np.eye(len(rows)) - rows @ rows.T)[1]:
            u, lengths, v = svd(rows, full_matrices=False)
            W[part.place] = (u * np.minimum(lengths, LARGEST)) @ v
    return W


# What factors miss --------------------


class Judge:
    """Measures the distance of posterior means to the exact ones at one phi, relative to that of independent areas.

    Each area is observed once; the mean is over a few draws from the model.

    Parameters
    ----------
    division, phi
    noise : variance of the observations; None: the mean variance of theta
    seed : of the draws
    """

    def __init__(self, division: Division, phi: float, noise: float | None = None, seed: int = 0) -> None:
        self.division, self.at = division, division.borders(phi)
        prior, n = division.prior, division.prior.n
        rng = np.random.default_rng(seed)
        variance = division.variances(phi, self.at)
        self.noise = noise = float(variance.mean()) if noise is None else noise
        if not isinstance(prior, AreaPrior):
            S = division.dense(phi)
            theta = cholesky(S, lower=True) @ rng.standard_normal((n, DRAWS))
            y = theta + np.sqrt(noise) * rng.standard_normal(theta.shape)
            exact = S @ cho_solve(cho_factor(S + noise * np.eye(n)), y)
            Q = division.precision(phi)
        else:
            Q = division.precision(phi)
            theta = _draws(prior, phi, DRAWS, seed)
            y = theta + np.sqrt(noise) * rng.standard_normal(theta.shape)
            exact = splu(sparse.csc_array(Q + sparse.eye_array(n) / noise), permc_spec="MMD_AT_PLUS_A").solve(y / noise)
        self.alone = float(np.sqrt(np.mean((variance / (variance + noise) * y.T - exact.T) ** 2)))
        self._of = [self._reduced(part, Q, K, y, exact) for part, K in zip(division.parts, self.at.K)]

    def error(self, W: Array) -> float:
        """Returns the error of the factors W (n, r)."""
        r = W.shape[1]
        P, right, kept = np.eye(r), np.zeros((r, DRAWS)), list[tuple[Any, Array, Array]]()
        for part, U, (block, b, _, _) in zip(self.division.parts, self.at.U, self._of):
            w = W[part.place]
            G = np.linalg.inv(np.eye(len(w)) - w @ w.T)
            to_z = U.T @ G @ w
            factor = cho_factor(block + U.T @ G @ U)
            solved = cho_solve(factor, to_z)
            P += w.T @ G @ w - to_z.T @ solved
            right += solved.T @ b
            kept.append((factor, to_z, b))
        z, total = np.linalg.solve(P, right), 0.0
        for (factor, to_z, b), (_, _, exact, back) in zip(kept, self._of):
            off = cho_solve(factor, b + to_z @ z) - exact
            total += float((off**2).sum() + (off * (back @ off)).sum())
        return float(np.sqrt(total / (self.division.prior.n * DRAWS))) / self.alone

    def _reduced(self, part: Part, Q: object, K: Array, y: Array, exact: Array) -> tuple[Array, Array, Array, Array]:
        """Returns a client's posterior of its border: its precision without U'GU, the right side, the exact means, and a matrix.

        The matrix gives the sum of squares in the interior that an error on the border makes.
        """
        part_y, means = y[part.where], exact[part.where]
        inner, across = self.division.own(Q, part)
        X = np.linalg.solve(inner + np.eye(len(inner)) / self.noise, across)
        left = K - across.T @ X + np.eye(len(K)) / self.noise
        right = (part_y[part.border] - X.T @ part_y[part.inner]) / self.noise
        return left, right, means[part.border], X.T @ X


def _draws(prior: AreaPrior, phi: float, n: int, seed: int) -> Array:
    """Returns draws (areas, n) of theta."""
    table = spatial.DrawTable.car(prior.indptr, prior.indices, np.array([phi]), form=prior.form, group=1)
    return np.ascontiguousarray(table.sample(seed, 0, n)[0].T)


def judged(condition: Condition) -> Array:
    """Returns three values of phi at which errors are told: they matter where areas depend on each other."""
    return condition.along(np.array([1 / 3, 2 / 3, 1.0])) if condition.free else np.array([condition.fixed or 0.0])


def enough(division: Division, error: float, most: int = MOST) -> int:
    """Returns the least number of latents (to a twentieth), up to `most`, whose error is no larger at three values of phi."""
    least, most = 1, max(min(most, division.n_borders), 1)
    for phi in judged(division.prior.condition):
        judge = Judge(division, float(phi))
        least = _least(judge, owed(judge.at.C, division.parts), error, least, most)
    return least


def _least(judge: Judge, H: Array, error: float, least: int, most: int) -> int:
    """Returns the same at one phi, from `least` on. Logarithms of errors are nearly straight lines in the number of latents."""
    C, factors = judge.at.C, np.zeros((len(judge.at.C), 0))

    def log_error(r: int) -> float:
        nonlocal factors
        more = np.random.default_rng(r).standard_normal((len(C), max(r - factors.shape[1], 0)))
        near = np.concatenate([factors[:, :r], more], axis=1) if factors.shape[1] else None
        factors = leading(C, H, judge.division.parts, r, SWEEPS, near)
        return float(np.log(max(judge.error(factors), 1e-300) / error))

    below, off = least, log_error(least)
    if off <= 0 or least == most:
        return least
    rank = min(max(TRIED, least + least // 20), most)
    while (here := log_error(rank)) > 0:
        if rank == most:
            return most
        slope, below, off = max((off - here) / (rank - below), 1e-9), rank, here
        rank = min(rank + max(int(1.05 * here / slope), rank // 20, 1), most)
    while rank - below > max(1, rank // 20):  # `below` are too few, `at` are enough
        middle = (below + rank) // 2
        below, rank = (below, middle) if log_error(middle) <= 0 else (middle, rank)
    return rank


# Factors over the range of phi --------------------


@dataclass(frozen=True)
class Cost:
    """Estimates the cost of building factors beforehand: bytes, and operations in float64."""

    memory: float
    operations: float

    @classmethod
    def of(cls, n_borders: int, n_latents: int, nodes: int) -> Cost:
        """Returns the cost of C and its copies at a value of phi, and of all W.

        Each sweep takes an eigenvalue problem, or a step of subspace iteration.
        """
        n, r = float(n_borders), float(n_latents)
        sweep = 4 * n**2 * r + 6 * n * r**2 + 9 * r**3 if n >= LARGE and r <= 2 * n / 3 else 4 * n**3
        return cls(8 * (6 * n**2 + (2.2 * nodes + 4) * n * r), nodes * (4 * n**3 + SWEEPS * sweep))


@dataclass(frozen=True, eq=False)
class Tied:
    """Holds the factors of all clients."""

    clients: tuple[Within, ...]  # the part of each of them
    # phi, errors: (k,) values of phi, and the posterior means' error there (`Judge`)
    phi: Array
    errors: Array
    variance: Array  # (n,) of theta under the prior of phi
    n_borders: int  # areas on borders


def tie(
    prior: Prior,
    sizes: Sequence[int],
    names: Sequence[str],
    *,
    n_latents: int | None = None,
    error: float = 0.05,
    nodes: int = NODES,
) -> Tied:
    """Returns the factors that tie the clients of a prior together. Raises NumericalError: a client's block cannot be factored at
    a phi, both named. Raises ValueError: another prior, or sizes that are not those of the prior.

    Parameters
    ----------
    prior : CAR, Leroux or BYM2 (`MixedPrior`) on a map, or a Gaussian process
    sizes, names : of each client how many areas, which stand together, and its name
    n_latents : numbers that all clients share; None: as many as `error` takes, no more than MOST
    error : of posterior means, see `Judge`
    nodes : values of phi that the factors are computed at
    """
    division = Division(prior, sizes, names)
    condition = prior.condition
    r = enough(division, error) if n_latents is None else min(n_latents, max(division.n_borders, 1))
    phi = condition.along(np.linspace(0, 1, nodes)) if condition.free else np.array([condition.fixed or 0.0])
    if division.rooted:
        phi = np.maximum(phi, LEAST_PHI)
    steps = list(_along(division, phi[::-1], r))[::-1]
    clients = []
    for j, part in enumerate(division.parts):
        U, K = np.array([borders.U[j] for borders, _ in steps]), np.array([borders.K[j] for borders, _ in steps])
        W = np.array([w[part.place] / (np.sqrt(value) if division.rooted else 1.0) for value, (_, w) in zip(phi, steps)])
        clients.append(_within(division, part, condition.network(phi), U, K, W))
    borders = judged(condition)
    judges = (Judge(division, float(value)) for value in borders)
    errors = np.array([judge.error(_joined(clients, float(value))) for judge, value in zip(judges, borders)])
    variance = _mean_variance(condition, phi, np.array([division.variances(float(v), made) for v, (made, _) in zip(phi, steps)]))
    return Tied(tuple(clients), borders, errors, variance, division.n_borders)


def _mean_variance(condition: Condition, phi: Array, variances: Array) -> Array:
    """Returns the mean (n,) over the prior of phi of variances (g, n) at phi (g,)."""
    if len(phi) == 1:
        return np.asarray(variances[0])
    nodes, weight = condition.quadrature()
    spline = make_interp_spline(condition.network(phi), np.log(variances), k=DEGREE)
    return np.asarray(weight @ np.exp(spline(condition.network(nodes))))


def _along(division: Division, phi: Array, r: int) -> Iterator[tuple[Borders, Array]]:
    """Yields borders and factors, each turned to agree with those before."""
    before: tuple[float, Array] | None = None
    for value in map(float, phi):
        borders = division.borders(value)
        if before is None:
            W = leading(borders.C, owed(borders.C, division.parts), division.parts, r, FIRST)
        else:
            share = value / before[0] if division.rooted else 1.0
            W = leading(borders.C, share * before[1] @ before[1].T, division.parts, r, SWEEPS, before[1])
            u, _, v = svd(W.T @ before[1])
            W = W @ (u @ v)
        before = value, W
        yield replace(borders, C=np.zeros((0, 0))), W  # the largest array, which nobody needs again


def _within(division: Division, part: Part, nodes: Array, U: Array, K: Array, W: Array) -> Within:
    """Returns one client's part."""
    diagonal = division.diagonal[part.where].copy()
    diagonal[part.border] = 0.0
    block = sparse.coo_array(division.T[part.where, part.where])
    row, column = block.coords
    kept = (diagonal[row] > 0) | (diagonal[column] > 0)
    T = sparse.csr_array((block.data[kept], (row[kept], column[kept])), shape=block.shape)
    if len(part.inner):
        root = np.sqrt(diagonal[part.inner])
        inner = T[part.inner][:, part.inner].toarray() / np.outer(root, root)
        spectrum = np.linalg.eigvalsh(inner)
    else:
        spectrum = np.zeros(0)
    return Within(division.prior.condition, nodes, part.border, diagonal, T, spectrum, U, K, W, division.rooted)


def _joined(clients: Sequence[Within], phi: float) -> Array:
    """Returns W (n, r) of all borders at phi."""
    return np.concatenate([client.ties(np.array([phi])).W[0] for client in clients])
