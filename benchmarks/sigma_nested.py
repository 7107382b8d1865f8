"""Nested Laplace approximations of maps in clients' hands, against long chains or quadrature, and beside pooled rows.

    python benchmarks/sigma_nested.py [scotland] [carolina] [process] [squares] [cost] [inner] [ROUNDS of chains]

For each case: sds over those of the reference, distances of means in sds, questions, seconds of CPU. The reference of the
Gaussian process (60 points, four clients) is quadrature over phi and sigma_theta; of the real maps a fine lattice of both, all
else integrated out by importance sampling of pooled rows ("reference") and by Laplace approximations ("modes", which are off: the
posterior of the level of Poisson counts is skew, and its mode is not its mean); of the squares Hamiltonian chains. `cost` has
800 areas in four clients beside a pooled nested Laplace approximation with sparse factors (theta and the intercept by Newton
steps at each point of a 7 x 7 lattice, variances of theta by solving), and a whole job of as many, from its prior to its files.
`inner` has more and more draws that integrate areas out, on maps with few cases. Maps are read from $FEDKERN_DATA. Threads of
BLAS wait in busy loops, which counts as CPU: set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import growth
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.nested import machine as nested
from fedkern.models.spatial import factors
from fedkern.models.spatial.prior import AreaPrior

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen, hamiltonian, maps
from support import nested_cases as cases

ROUNDS = 1500  # of chains that are kept, of each of four
DRAWS = 4000  # of a reference, at each place
DATA = Path(os.environ.get("FEDKERN_DATA", "."))


def mapped(pairs: np.ndarray, y: np.ndarray, expected: np.ndarray, order: np.ndarray, clients: int) -> cases.Case:
    """Areas in this order, cut into clients of equal sizes."""
    place = np.argsort(order)
    sizes = [len(part) for part in np.array_split(order, clients)]
    prior = AreaPrior(*maps.rows_of(len(y), place[pairs]), cases.PHI)
    tied = factors.tie(prior, sizes, [str(k) for k in range(clients)])
    return cases.Case(tied, cases.PHI, "poisson", y[order].astype(float), np.log(expected[order]))


def scotland() -> cases.Case:
    folder = DATA / "scotland-lip-cancer"
    with (folder / "lip.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = np.loadtxt(folder / "edges_clayton_kaldor132.csv", delimiter=",", skiprows=1, dtype=int) - 1
    y, expected, north = (np.array([float(row[name]) for row in rows]) for name in ("observed", "expected", "latitude"))
    return mapped(pairs, y, expected, np.argsort(north, kind="stable"), 4)


def carolina() -> cases.Case:
    folder = DATA / "nc-sids"
    with (folder / "nc_sids.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = np.loadtxt(folder / "edges_ncCR85.csv", delimiter=",", skiprows=1, dtype=int)
    y, births, east = (np.array([float(row[name]) for row in rows]) for name in ("SID74", "BIR74", "east"))
    return mapped(pairs, y, births * y.sum() / births.sum(), np.argsort(east, kind="stable"), 4)


def chains(case: cases.Case, rounds: int) -> dict[str, tuple[float, float]]:
    """By Hamiltonian chains of all clients."""
    s = chosen.hmc(draws=rounds, warmup=max(rounds // 3, 200), chains=4, leapfrog=10, step=0.1, seed=4)
    sites, prior = case.sites(integrated=False), case.prior.prior
    found = hmc.draws(hamiltonian.run(sites, s, prior=prior)[0]).reshape(-1, case.layout.size)
    return {name: (float(x.mean()), float(x.std())) for name, x in cases.named(case, found).items()}


class Reference(NamedTuple):
    """Moments by importance sampling, and by Laplace approximations; the part of the draws that count, the least of all places
    that matter; and P(eta without its offset > 0) of each area."""

    moments: dict[str, tuple[float, float]]
    modes: dict[str, tuple[float, float]]
    least: float
    above: np.ndarray


def dense(case: cases.Case, low: float = -1.5, high: float = 2.5) -> Reference:
    """All rows in one place, on a fine lattice, with dense algebra, for chains of a level mix slowly; `low` and `high`: of the
    normal coordinate of sigma_theta."""
    n, prior, kept, found = len(case.y), case.prior, {}, []
    v = np.stack(np.meshgrid(np.linspace(-3.0, 4.5, 38), np.linspace(low, high, 22), indexing="ij"), -1).reshape(-1, 2)
    xi = prior.xi(v, np.zeros((len(v), prior.n_linear)))
    values, log_prior, u = cases.named(case, xi), prior.values(xi)[0] + prior.log_jacobian(v), np.zeros(n + 1)
    e = np.random.default_rng(5).standard_normal((DRAWS // 2, n + 1))
    e = np.concatenate([e, -e])
    for phi, scale in zip(values["phi"].round(12), values["sigma_theta"], strict=True):
        if phi not in kept:
            S = cases.covariance(case.tied.clients, case.condition, phi)
            kept[phi] = np.linalg.inv(S), np.linalg.slogdet(S)[1]
        P, J = np.zeros((n + 1, n + 1)), np.column_stack([scale * np.eye(n), np.ones(n)])
        P[:n, :n], P[n, n] = kept[phi][0], case.level_sd**-2
        u, H = _fitted(case, P, J, u, np.zeros(n))
        eta = case.offset + J @ u
        laplace = case.y @ eta - np.exp(eta).sum() - 0.5 * (u @ P @ u + kept[phi][1] + np.linalg.slogdet(H)[1])
        mode = laplace, u[n], np.linalg.inv(H)[n, n]
        m, spread = u, np.zeros(n)
        for _ in range(8):  # the mean and covariance that q has where the bound is largest
            spread = np.einsum("ij,jk,ik->i", J, np.linalg.inv(H), J)
            m, H = _fitted(case, P, J, m, spread)
        L = np.linalg.cholesky(H)
        draws = m + np.linalg.solve(L.T, e.T).T
        eta = case.offset + draws @ J.T
        log_w = eta @ case.y - np.exp(eta).sum(axis=1) - 0.5 * np.einsum("mi,ij,mj->m", draws, P, draws, optimize=True)
        log_w += 0.5 * (e * e).sum(axis=1) - np.log(L.diagonal()).sum() - 0.5 * kept[phi][1]
        top = log_w.max()
        w = np.exp(log_w - top)
        mean = w @ draws[:, n] / w.sum()
        variance = w @ (draws[:, n] - mean) ** 2 / w.sum()
        above = w @ (draws @ J.T > 0) / w.sum()
        found.append(((top + np.log(w.mean()), mean, variance), mode, w.sum() ** 2 / (w @ w) / len(w), above))
    out, shares, above = [], np.array([one[2] for one in found]), np.array([one[3] for one in found])
    for which in (0, 1):
        value, level, variance = np.array([one[which] for one in found]).T
        w = np.exp(value + log_prior - (value + log_prior).max())
        w /= w.sum()
        moments = {"intercept": (float(w @ level), float(np.sqrt(w @ (variance + level**2) - (w @ level) ** 2)))}
        for name in ("phi", "sigma_theta"):
            moments[name] = float(w @ values[name]), float(np.sqrt(w @ (values[name] - w @ values[name]) ** 2))
        out.append(moments)
        if not which:
            least, above = float(shares[w > 0.01 * w.max()].min()), w @ above
    return Reference(out[0], out[1], least, above)


def _fitted(case: cases.Case, P: np.ndarray, J: np.ndarray, u: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the density of u is largest with rates as they are on average over linear predictors of these variances, and minus
    its Hessian."""
    for _ in range(30):
        mean = np.exp(np.minimum(case.offset + J @ u + spread / 2, 25))
        H, gradient = P + J.T @ (mean[:, np.newaxis] * J), J.T @ (case.y - mean) - P @ u
        step = np.linalg.solve(H, gradient)
        u = u + step * min(1.0, 2 / np.abs(step).max())
        if gradient @ step < 1e-8:
            break
    return u, H


def shown(
    name: str,
    case: cases.Case,
    reference: dict[str, tuple[float, float]] | None,
    modes: dict[str, tuple[float, float]] | None = None,
) -> None:
    """Prints the lines of one case."""
    begin = time.process_time()
    server, _ = cases.fitted(case)
    took = time.process_time() - begin
    found = nested.read_result(server)
    weights = found.posterior
    print(
        f"{name}: {len(case.y)} areas, {len(case.tied.clients)} clients, {case.tied.clients[0].n_latents} latents: "
        f"{server.round} questions, {found.places} places, {took:.1f} s of CPU, k-hat {weights.k_hat:.2f}, "
        f"{weights.effective:.0f} of {len(weights.draws)} draws count, converged {found.converged} {found.reason}", flush=True,
    )  # fmt: skip
    for unknown, (mean, sd) in cases.moments(case, found).items():
        line = f"  {unknown:<12} {mean:9.4f} ({sd:.4f})"
        if reference:
            right, own = reference[unknown]
            line += f"   reference {right:9.4f} ({own:.4f}): mean {(mean - right) / own:+.3f} sd, sd ratio {sd / own:.3f}"
        if modes:
            line += f"; modes {modes[unknown][0]:9.4f} ({modes[unknown][1]:.4f})"
        print(line, flush=True)


def compared(name: str, case: cases.Case) -> None:
    """A map beside its reference."""
    right = dense(case)
    print(f"{name}: reference by {DRAWS} draws at each place, of which at least {right.least:.0%} count", flush=True)
    shown(name, case, right.moments, right.modes)


def pooled(case: cases.Case, areas: AreaPrior) -> None:
    """The same model with all rows in one place."""
    begin = time.process_time()
    n, y, offset = len(case.y), case.y, case.offset
    degree = np.diff(areas.indptr).astype(float)
    W = sparse.csr_array((np.ones(len(areas.indices)), areas.indices, areas.indptr), shape=(n, n))
    v = np.linspace(-2.7, 2.7, 7)
    several = np.stack(np.meshgrid(v, v, indexing="ij"), axis=-1).reshape(-1, 2)
    xi = case.prior.xi(several, np.zeros((len(several), case.prior.n_linear)))
    values, theta, b, steps = cases.named(case, xi), np.zeros(n), 0.0, 0
    for phi, scale in zip(values["phi"], values["sigma_theta"], strict=True):
        Q = sparse.diags_array(degree) - phi * W
        for _ in range(20):
            eta = offset + b + scale * theta
            mean = np.exp(np.minimum(eta, 30))
            H = sparse.block_array([
                [Q + sparse.diags_array(scale**2 * mean), sparse.csr_array(scale * mean[:, np.newaxis])],
                [sparse.csr_array(scale * mean[np.newaxis]), sparse.csr_array([[mean.sum() + 1 / 25]])],
            ], format="csc")  # fmt: skip
            gradient = np.concatenate([scale * (y - mean) - Q @ theta, [(y - mean).sum() - b / 25]])
            factor = splu(H)
            step = factor.solve(gradient)
            step *= min(1.0, 3.0 / max(np.abs(step).max(), 1e-300))
            theta, b, steps = theta + step[:-1], b + step[-1], steps + 1
            if gradient @ step < 1e-6:
                break
        factor.solve(np.eye(n + 1))  # variances
    print(f"  pooled rows: {steps} factors at {len(several)} points, {time.process_time() - begin:.1f} s of CPU", flush=True)


def inner() -> None:
    """Posteriors by more and more draws of areas, beside those by the most: about a case an area, sigma_theta 2."""
    for side, seed in ((6, 3), (12, 5)):
        case, _ = cases.simulated("car", side, (side * side // 4,) * 4, "poisson", seed, truth=(-1.5, 0.9, 2.0))
        fits = {}
        for draws in (16, 32, 64, 512):
            begin = time.process_time()
            found = nested.read_result(cases.fitted(case, inner=draws)[0])
            fits[draws] = cases.moments(case, found), found.spread, time.process_time() - begin
        most = fits[512][0]
        for draws, (moments, spread, took) in fits.items():
            off = " ".join(f"{name} {(mean - most[name][0]) / most[name][1]:+.3f}" for name, (mean, _) in moments.items())
            print(
                f"{side} x {side}, {draws:3d} draws: means off by {off} sd; spread {spread:.3f} nats, {took:.1f} s of CPU",
                flush=True,
            )


def cost() -> None:
    """800 areas in four clients."""
    side, other = 20, 40
    prior = AreaPrior(*maps.grid(side, other), cases.PHI)
    tied = factors.tie(prior, (200,) * 4, tuple("abcd"), n_latents=40)
    rng = np.random.default_rng(1)
    theta = np.linalg.cholesky(prior.covariance(0.9)) @ rng.standard_normal(prior.n)
    offset = rng.normal(1.5, 0.7, prior.n)
    case = cases.Case(tied, cases.PHI, "poisson", rng.poisson(np.exp(offset + 0.2 + 0.7 * theta)).astype(float), offset)
    shown("800 areas", case, None)
    pooled(case, prior)
    with TemporaryDirectory() as folder:
        begin = time.process_time()
        job = growth.map_of(side, other, Path(folder))
        built = time.process_time()
        found = job().summary
        print(
            f"  whole job: prior built in {built - begin:.1f} s of CPU, fitted in {time.process_time() - built:.1f}; phi "
            f"{found['parameters']['phi']['mean']:.4f} ({found['parameters']['phi']['sd']:.4f})", flush=True,
        )  # fmt: skip


def main() -> None:
    """The cases that are named."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    rounds = numbers[0] if numbers else ROUNDS
    wanted = [word for word in sys.argv[1:] if not word.isdigit()] or [
        "scotland",
        "carolina",
        "process",
        "squares",
        "inner",
        "cost",
    ]
    if "process" in wanted:
        case, _ = cases.simulated("gp", 0, (15,) * 4, "gaussian", 1, sd=0.5, truth=(0.3, 1.0, 1.0))
        shown("Gaussian process", case, cases.exact(case, 41))
    if "squares" in wanted:
        case, _ = cases.simulated("car", 4, (4,) * 4, "poisson", 2, truth=(0.3, 0.8, 1.0))
        shown("4 x 4 squares", case, chains(case, rounds))
    if "scotland" in wanted:
        case = scotland()
        compared("Scotland", case)
    if "carolina" in wanted:
        case = carolina()
        compared("North Carolina", case)
    if "inner" in wanted:
        inner()
    if "cost" in wanted:
        cost()


if __name__ == "__main__":
    main()
