"""Measures how well trained networks stand in for a prior, and computes the variances tau^2 that they lack (sigma.md, sections 5,
8).

Everything here is computed from the decoders alone, one for each client, as inference uses them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from ...arrays import Array, Indices
from ...kernels import mlp, rng
from ...models.spatial.condition import Condition
from ...models.spatial.decoder import Decoder
from ...models.spatial.prior import Prior
from ...models.spatial.site import Auxiliary

BLOCK = 2000  # draws at a time
WIDTH = 0.05  # of the prior's variance: clipping that changes it by more is reported
WIDE = 50.0  # decoders' values beyond so many prior standard deviations are reported
COVERED = (0.5, 0.9, 0.95)
LEVELS = 200  # values of phi, stratified, at which marginals are compared
LEAST_CROSS = 0.05  # of |K|: below, the relative error of the blocks between clients says nothing


@dataclass(frozen=True, eq=False)
class Federation:
    """Holds all clients' decoders side by side, which nobody holds after training."""

    architecture: mlp.Architecture  # of the networks
    parameters: Array  # (k,) float64
    condition: Condition  # of the prior
    sd: Array  # (n,) the standard deviations that standardised theta

    @cached_property
    def ends(self) -> Indices:
        """The first area of each client, and the end."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.array(self.architecture.groups, dtype=np.int64))])

    @cached_property
    def client(self) -> Indices:
        """(n,) The number of the client of each area."""
        return np.repeat(np.arange(len(self.architecture.groups)), self.architecture.groups)

    def parts(self, j: int) -> dict[str, Array]:
        """Returns client j's part of the parameters, by the names of its file."""
        parts = {}
        for name, part in self.architecture.parts.items():
            bare_name = name.removesuffix(f"[{j}]")
            if bare_name != name or (name != "global_encoder" and not name.endswith("]")):
                parts[bare_name] = self.parameters[part.where].copy()
        return parts

    @cached_property
    def decoders(self) -> list[Decoder]:
        """The decoders, one for each client."""
        whole = self.architecture
        decoders = []
        for j, (size, n_local) in enumerate(zip(whole.groups, whole.n_local)):
            sd = self.sd[self.ends[j] : self.ends[j + 1]]
            decoders.append(Decoder(replace(whole, groups=(size,), n_local=(n_local,)), self.parts(j), sd))
        return decoders

    def values(self, z: Array, u: Array, phi: Array) -> Array:
        """Returns thetahat (m, n) at global latents z (m, p_G), local ones u (m, sum p_L) and phi (m,)."""
        t = self.condition.network(phi)[:, None]
        ends = np.concatenate([[0], np.cumsum(self.architecture.n_local)])
        return np.concatenate([d.hat(z, u[:, ends[j] : ends[j + 1]], t).theta for j, d in enumerate(self.decoders)], axis=1)

    def draws(self, phi: Array, seed: int, draw: int = 0) -> Iterator[Array]:
        """Yields blocks of thetahat at phi (m,), latents from stream "latents", chain 3."""
        key, p, L = rng.key(seed, "latents", 3), self.architecture.n_global, self.architecture.n_latents
        for begin in range(0, len(phi), BLOCK):
            m = min(BLOCK, len(phi) - begin)
            e = rng.normal(m * L, key=key, draw=draw, step=begin // BLOCK).reshape(m, L)
            yield self.values(e[:, :p], e[:, p:], phi[begin : begin + m])


@dataclass(frozen=True, eq=False)
class Tau:
    """Holds tau^2 by prior-variance matching."""

    tau2: Array  # (G, n) variances
    grid: Array  # (G,) values of phi; one if tau^2 does not depend on it
    # low, high: numbers of coordinates at the floor and at the ceiling, over all values of the grid
    low: int
    high: int
    prior: Array  # (n,) variances of the true prior, phi averaged
    sigma: Array  # (G, n) variances of thetahat, at the grid's values of phi or averaged
    # by how much clipping makes SIGMA's prior wider than the true one, on average over variances; negative: narrower
    excess: float

    @property
    def unclipped(self) -> float:
        """The share that is neither at the floor nor at the ceiling."""
        return 1 - (self.low + self.high) / self.tau2.size

    def at(self, phi: Array) -> Array:
        """Returns variances (m, n), linear between the values of the grid."""
        return Auxiliary(self.tau2, self.grid).at(phi)[0]


def match_variances(
    prior: Prior,
    federation: Federation,
    *,
    by: Literal["mean", "phi"] = "mean",
    floor: float = 0.01,
    ceiling: float = 100.0,
    draws: int = 20_000,
    values: int = 20,
    seed: int = 1,
) -> Tau:
    """Returns tau^2 = clip(Var_true - Var_sigma, floor, ceiling), phi from the prior of inference on both sides.

    Parameters
    ----------
    prior, federation : the true one, and the networks that stand in for it
    by : "mean": one for all phi. "phi": at `values` values of phi over the training range, in equal steps of their condition.
    floor, ceiling : variances
    draws : of thetahat, in each case; phi is stratified
    seed : of the latents
    """
    true, condition = prior.mean_variance(), federation.condition
    if by == "mean" or not condition.free:
        phi = condition.quantile((np.arange(draws) + 0.5) / draws)
        phi = phi[rng_order(draws, seed)]
        grid, sigma = np.array([float(np.mean(phi))]), moments(federation.draws(phi, seed))[1][None]
        gap = true - sigma
    else:
        grid = condition.along(np.linspace(0.0, 1.0, values))
        each = [moments(federation.draws(np.full(draws, phi), seed))[1] for phi in grid]
        sigma = np.stack(each)
        gap = prior.variances(grid) - sigma
    low, high = int(np.sum(gap < floor)), int(np.sum(gap > ceiling))
    tau2 = np.clip(gap, floor, ceiling)
    return Tau(tau2, grid, low, high, true, sigma, float(np.mean(tau2 - gap) / np.mean(gap + sigma)))


def rng_order(n: int, seed: int) -> Indices:
    """Returns a permutation, so that stratified values of phi do not stand in order in blocks."""
    return np.argsort(rng.uniform(n, key=rng.key(seed, "latents", 4)), kind="stable")


def moments(blocks: Iterator[Array]) -> tuple[Array, Array, int]:
    """Returns means, variances and number of the rows of all blocks."""
    total, squares, m = 0.0, 0.0, 0
    for block in blocks:
        total, squares, m = total + block.sum(axis=0), squares + (block * block).sum(axis=0), m + len(block)
    mean = np.asarray(total / m)
    return mean, np.asarray((squares / m - mean**2) * m / (m - 1)), m


@dataclass(frozen=True, eq=False)
class Comparison:
    """Compares SIGMA's covariance at one phi with the prior's; `mean_error` is that of posterior means, with tau^2."""

    phi: float
    true: Array
    sigma: Array
    error: float
    error_split: float
    cross: float | None
    cross_split: float | None
    largest_cross_correlation: float
    variance_ratio: float
    local_share: float
    widest: float
    mean_error: float

    def as_dict(self) -> dict[str, float | None]:
        """Returns the numbers without the matrices."""
        return {name: value for name, value in vars(self).items() if name not in ("true", "sigma")}


def compare(
    prior: Prior, federation: Federation, phi: float, tau2: Array | float = 0.0, *, draws: int = 20_000, seed: int = 1
) -> Comparison:
    """Compares the covariance of deterministic draws at one phi with the prior's. tau^2 (n,) counts in `mean_error` alone.

    `error` is |C - K|_F / |K|_F; `error_split` the same without the noise of the draws, from two independent halves of them: sqrt
    <C1 - K, C2 - K> / |K|. `cross` and `cross_split` are those of the blocks between clients, None where K is small there.
    """
    K = prior.covariance(phi)
    halves = []
    widest = 0.0
    # Two independent halves: the noise of their draws cancels in the product of their errors.
    for half in range(2):
        total, product, m = np.zeros(prior.n), np.zeros((prior.n, prior.n)), 0
        for block in federation.draws(np.full(max(draws // 2, 2), phi), seed, draw=1 + half):
            total += block.sum(axis=0)
            product += block.T @ block
            widest = max(widest, float((np.abs(block) / np.sqrt(np.diag(K))).max()))
            m += len(block)
        halves.append((product - np.outer(total, total) / m) / (m - 1))
    C = (halves[0] + halves[1]) / 2
    size = float(np.linalg.norm(K))
    # Pairs of areas at different clients: their covariance is what federated draws have hardest.
    apart = federation.client[:, None] != federation.client
    size_cross = float(np.linalg.norm(K[apart]))
    measurable = size_cross > LEAST_CROSS * size
    cross = float(np.linalg.norm((C - K)[apart])) / size_cross if measurable else None
    product = (halves[0] - K) * (halves[1] - K)
    split, split_cross = float(np.sum(product)), float(np.sum(product[apart]))
    cross_split = math.sqrt(max(split_cross, 0.0)) / size_cross if measurable else None
    return Comparison(
        phi=phi,
        true=K,
        sigma=C,
        error=float(np.linalg.norm(C - K)) / size,
        error_split=math.sqrt(max(split, 0.0)) / size,
        cross=cross,
        cross_split=cross_split,
        largest_cross_correlation=cross_correlation_error(K, C, federation.client),
        variance_ratio=float(np.mean(np.diag(C) / np.diag(K))),
        local_share=local_share(federation, phi, seed=seed),
        widest=widest,
        mean_error=mean_error(K, [half + np.diag(np.broadcast_to(tau2, prior.n)) for half in halves]),
    )


def mean_error(K: Array, halves: Sequence[Array]) -> float:
    """Returns the distance of posterior means to those of the prior K, over that of independent areas' means, one noisy row each.

    The noise has the mean variance v of K. With M = (K + v)^-1 means of a covariance S differ by v M_S (K - S) M y: here to first
    order (M for M_S), which needs no inverse of a sampled matrix, and from two independent halves of the draws.
    """
    variance, n = np.diag(K), len(K)
    v = float(variance.mean())
    total = K + v * np.eye(n)
    M = np.linalg.inv(total)
    first, other = (half - K for half in halves)
    off = v**2 * float(np.sum((M @ M @ first) * (M @ other).T))
    apart = np.diag(variance / (variance + v)) - (np.eye(n) - v * M)
    alone = float(np.sum((apart @ total) * apart))
    return math.sqrt(max(off, 0.0) / alone) if alone > 1e-12 * v * n else 0.0


def cross_correlation_error(K: Array, C: Array, client: Indices, tau2: Array | float = 0.0) -> float:
    """Returns the largest difference between correlations of two clients' places, of the prior K and of SIGMA's C with tau^2
    added."""
    sd, sd_true = np.sqrt(np.maximum(np.diag(C) + tau2, 1e-300)), np.sqrt(np.diag(K))
    gaps = np.abs(C / np.outer(sd, sd) - K / np.outer(sd_true, sd_true))
    return float(gaps[client[:, None] != client].max(initial=0.0))


def local_share(federation: Federation, phi: float, *, draws: int = 2000, seed: int = 1) -> float:
    """Returns the share of thetahat's variance that comes from the local latents, given the global one: 0 if they are dead."""
    a = federation.architecture
    p, L = a.n_global, a.n_latents
    e = rng.normal(draws * (2 * L - p), key=rng.key(seed, "latents", 5)).reshape(draws, -1)
    z, phis = e[:, :p], np.full(draws, phi)
    first, second = federation.values(z, e[:, p:L], phis), federation.values(z, e[:, L:], phis)
    within = float(np.sum((first - second) ** 2)) / (2 * draws)
    return within / float(np.sum(np.var(first, axis=0)))


def coverage(
    prior: Prior, federation: Federation, tau: Tau, *, draws: int = 20_000, seed: int = 1
) -> dict[str, dict[str, float]]:
    """Returns how much of SIGMA's prior lies inside the true prior's central intervals, phi from its prior: nominal is right.
    Returns "deterministic" and "auxiliary" (with tau^2): nominal coverage -> actual one, mean over areas."""
    from scipy.special import ndtri

    values = federation.condition.quantile((np.arange(LEVELS) + 0.5) / LEVELS)
    level = rng_order(draws, seed) % LEVELS
    sd, tau2 = np.sqrt(prior.variances(values)), tau.at(values)
    bounds = {share: float(ndtri(0.5 + share / 2)) for share in COVERED}
    covered = {kind: dict.fromkeys(map(str, COVERED), 0.0) for kind in ("deterministic", "auxiliary")}
    key = rng.key(seed, "latents", 6)
    for k, block in enumerate(federation.draws(values[level], seed, draw=3)):
        levels = level[k * BLOCK : k * BLOCK + len(block)]
        noisy = block + np.sqrt(tau2[levels]) * rng.normal(block.size, key=key, step=k).reshape(block.shape)
        for kind, theta in (("deterministic", block), ("auxiliary", noisy)):
            for share, bound in bounds.items():
                covered[kind][str(share)] += float(np.mean(np.abs(theta) < bound * sd[levels])) * len(block) / draws
    return covered


def variogram(comparison: Comparison, client: Indices, distances: Array, tau2: Array, edges: Array) -> dict[str, list[float]]:
    """Returns half the variance of differences theta_i - theta_k by distance, for pairs inside clients and across their
    borders.

    Parameters
    ----------
    one : covariances at one phi
    client : (n,) of each area
    distances : (n, n)
    tau2 : (n,) at this phi
    edges : of the classes of distance, ascending

    Returns
    -------
    lists by class: "distance" (mean), "pairs_within", "pairs_across", and for "true", "sigma" (deterministic) and "auxiliary"
    (with tau^2) "_within" and "_across"; NaN where there are no pairs
    """
    n = len(client)
    i, k = np.triu_indices(n, 1)
    d = distances[i, k]
    which = np.digitize(d, edges) - 1
    inside = (which >= 0) & (which < len(edges) - 1) & np.isfinite(d)
    i, k, d, which = i[inside], k[inside], d[inside], which[inside]
    same, classes = client[i] == client[k], len(edges) - 1
    out: dict[str, list[float]] = {"distance": _means(d, which, classes)}
    for name, C, extra in (
        ("true", comparison.true, 0.0),
        ("sigma", comparison.sigma, 0.0),
        ("auxiliary", comparison.sigma, tau2),
    ):
        v = np.diag(C) + extra
        half = (v[i] + v[k]) / 2 - C[i, k]
        out[f"{name}_within"] = _means(half[same], which[same], classes)
        out[f"{name}_across"] = _means(half[~same], which[~same], classes)
    out["pairs_within"] = np.bincount(which[same], minlength=classes).astype(float).tolist()
    out["pairs_across"] = np.bincount(which[~same], minlength=classes).astype(float).tolist()
    return out


def _means(values: Array, which: Indices, classes: int) -> list[float]:
    counts = np.bincount(which, minlength=classes)
    sums = np.bincount(which, weights=values, minlength=classes)
    return [float(s / c) if c else math.nan for s, c in zip(sums, counts)]


def warnings(comparisons: Sequence[Comparison], tau: Tau) -> list[str]:
    """Returns warnings for a user after the training."""
    texts = []
    wide = max((comparison.widest for comparison in comparisons), default=0.0)
    if wide > WIDE:
        texts.append(
            f"the decoder's values reach {wide:.0f} prior standard deviations: train longer, or with a smaller range of phi"
        )
    if abs(tau.excess) > WIDTH:
        direction = "wider" if tau.excess > 0 else "narrower"
        change = f"{abs(tau.excess):.0%} {direction}"
        texts.append(
            f"tau^2 is clipped ({tau.low} of {tau.tau2.size} at the floor, {tau.high} at the ceiling), which makes the prior of "
            f"theta {change} than the true one: change auxiliary.floor or auxiliary.ceiling"
        )
    return texts


def phi_shown(condition: Condition) -> tuple[float, ...]:
    """Returns the values of phi in a fit report by default.

    They are 0.2, 0.5, 0.8 of a lengthscale in [0.2, 1]; 0.5, 0.9 and the end of a CAR's phi.
    """
    if not condition.free:
        return (0.0,)
    lo, hi = condition.lo, condition.hi
    if condition.name == "lengthscale":
        return tuple(round(lo + share * (hi - lo), 12) for share in (0.0, 0.375, 0.75))
    return tuple(sorted({min(max(phi, lo), hi) for phi in (0.5, 0.9, hi)}))


def digest_of(parts: Mapping[str, np.ndarray | str | float]) -> str:
    """Returns a name for a trained prior: BLAKE2b-256 over arrays and texts by name."""
    from hashlib import blake2b

    state = blake2b(digest_size=32)
    for name in sorted(parts):
        value = parts[name]
        body = value.tobytes() if isinstance(value, np.ndarray) else str(value).encode()
        for piece in (name.encode(), body):
            state.update(len(piece).to_bytes(8, "little") + piece)
    return state.hexdigest()
