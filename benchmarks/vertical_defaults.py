"""How near open vertical jobs end to the posterior at the default number of rounds: the defaults, and those before them.

    python benchmarks/vertical_defaults.py            # two clients of four columns, 200 rows

What it printed is benchmarks/results/vertical-defaults.md.

Gaussian cells (known scale): against the exact posterior of the same augmented model and the exact structured optimum. Logistic
and Poisson cells: against the posterior of the same augmented model by importance sampling, z integrated out by quadrature.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from fedkern.jobs.load import config_of
from fedkern.methods.vertical import keys
from fedkern.methods.vertical.model import VerticalModel
from fedkern.methods.vertical.rows import Columns
from fedkern.models.encoding import Encoding
from fedkern.models.likelihood import Likelihood
from papers.vertical import fit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles.vertical_oracle import Model

N, SIZES, SIGMA, DRAWS, PROPOSALS = 200, (4, 4), 0.7, 4000, 20_000
BEFORE = {"inputs": "recommended", "covariance": "diagonal", "cool_down": 0.0, "memory": 0.9}
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
Array = np.ndarray


@dataclass(frozen=True)
class Cell:
    family: str
    augmentation: str
    rho: float

    def data(self) -> tuple[list[Array], Array]:
        """Columns of the clients, and a response that depends on them."""
        random = np.random.default_rng(0)
        X = [random.standard_normal((N, p)) for p in SIZES]
        eta = 0.4 + 0.4 * np.hstack(X) @ random.standard_normal(sum(SIZES))
        if self.family == "gaussian":
            return X, eta + SIGMA * random.standard_normal(N)
        if self.family == "poisson":
            return X, random.poisson(np.exp(eta)).astype(float)
        return X, (random.random(N) < 1 / (1 + np.exp(-eta))).astype(float)


def model_of(cell: Cell, algorithm: dict[str, Any]) -> VerticalModel:
    """A job with the default number of rounds."""
    data = {"clients": ["a.csv", "b.csv"], "id": "id", "response": "y", "server": "y.csv"}
    model = {"family": cell.family, "augmentation": cell.augmentation, "rho": cell.rho}
    model |= {"scale": SIGMA} if cell.family == "gaussian" else {}
    tables = {"job": {"method": "vertical", "seed": 1}, "data": data, "model": model, "algorithm": algorithm}
    return VerticalModel(config_of(keys, tables), ("a", "b"), N)


def fitted(cell: Cell, algorithm: dict[str, Any]) -> tuple[Array, Array, float, float]:
    """Means and sds of the intercept and of all slopes; the ELBO, with its standard error."""
    X, y = cell.data()
    model = model_of(cell, algorithm)
    held = [Columns(Encoding((), None), x, y) for x in X]
    *_, (server, clients) = fit(model, [model.site(k, own, np.arange(N)) for k, own in enumerate(held)], y)
    mean, sd = (list(part) for part in server.shared.block.moments(server.released))
    for client in clients.values():
        part = client.released[client.site.parts["theta"]]
        mean, sd = [*mean, *part[: client.site.block.size]], [*sd, *client.site.block.sd(part)]
    random, values, likelihood = np.random.default_rng(1), [], model.likelihood
    for _ in range(DRAWS):
        drawn, value = [], 0.0
        for client in clients.values():
            d = client.site.draw(client.released, random.standard_normal(4), random.standard_normal(N), client.extra)
            drawn.append(d)
            value += client.site.bound(client.released, d)
        eps = random.standard_normal(1)
        b = server.shared.block.sample(server.released, eps)
        value += server.shared.bound(server.released, eps, b)
        z = sum(d.z for d in drawn)
        etas = [b + z] if cell.augmentation == "augmented" else [b + d.g + z - d.z for d in drawn]
        values.append(value + float(np.mean([likelihood.value(y, eta).sum() for eta in etas])))
    return np.array(mean), np.array(sd), float(np.mean(values)), float(np.std(values) / DRAWS**0.5)


def gaussian(cell: Cell) -> tuple[Array, Array, Array, float]:
    """Exact means and sds, sds of the structured optimum, and its bound."""
    X, y = cell.data()
    kind = "av" if cell.augmentation == "augmented" else "pl"
    joint = Model(kind, X, y, SIGMA, cell.rho, X0=np.ones((N, 1))).joint()
    best, p = joint.optimum("structured"), 1 + sum(SIZES)
    exact = np.sqrt(np.diag(joint.covariance)[:p])
    return joint.mean[:p], exact, np.sqrt((best[:p] ** 2).sum(axis=1)), joint.elbo(joint.mean, best)


def sampled(cell: Cell) -> tuple[Array, Array]:
    """Means and sds of the augmented model by importance sampling from a t distribution about the mode."""
    X, y = cell.data()
    design, likelihood = np.column_stack([np.ones(N), *X]), Likelihood(cell.family)
    power = cell.augmentation == "power"
    spread = cell.rho if power else cell.rho * len(X) ** 0.5  # PL of two: each term of a row has one z

    def log_density(theta: Array) -> Array:
        eta = (theta @ design.T)[..., None] + spread * NODES
        each = likelihood.value(np.broadcast_to(y[:, None], eta.shape), eta)
        rows = logsumexp(each / len(X) if power else each, axis=-1, b=WEIGHTS / WEIGHTS.sum())
        return rows.sum(axis=-1) * (len(X) if power else 1) - 0.5 * (theta**2).sum(axis=-1)

    d = design.shape[1]
    mode = minimize(lambda t: -log_density(t), np.zeros(d), method="BFGS")
    random = np.random.default_rng(2)
    L, chi = np.linalg.cholesky(mode.hess_inv * 1.2), random.chisquare(10, PROPOSALS) / 10
    e = random.standard_normal((PROPOSALS, d)) / np.sqrt(chi)[:, None]
    theta = mode.x + e @ L.T
    log_q = -(10 + d) / 2 * np.log1p((e**2).sum(axis=1) / 10)
    log_w = np.concatenate([log_density(block) for block in np.array_split(theta, 100)]) - log_q
    w = np.exp(log_w - logsumexp(log_w))
    mean = w @ theta
    return mean, np.sqrt(w @ (theta - mean) ** 2)


def line(cell: Cell, name: str, algorithm: dict[str, Any]) -> str:
    mean, sd, bound, error = fitted(cell, algorithm)
    if cell.family == "gaussian":
        exact, exact_sd, best_sd, best = gaussian(cell)
        away = sd / best_sd
        more = f"{np.mean(best_sd / exact_sd):.3f} | {away.min():.3f} to {away.max():.3f} | {best - bound:.2f} ± {error:.2f}"
    else:
        exact, exact_sd = sampled(cell)
        more = f" |  | {bound:.2f} ± {error:.2f} (ELBO)"
    off = np.abs(mean - exact) / exact_sd
    label = f"| {cell.family} | {'AV' if cell.augmentation == 'augmented' else 'PL'} | {cell.rho:g} | {name} "
    return f"{label}| {off.max():.3f} | {np.mean(sd / exact_sd):.3f} | {more} |"


def main() -> None:
    head = ("response", "model", "rho", "defaults", "worst mean, exact sds", "sd / exact")
    head = (*head, "the same, optimum", "sd / optimum", "nats below the optimum")
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)
    for family in ("gaussian", "bernoulli", "poisson"):
        for augmentation in ("augmented", "power"):
            for rho in (0.1, 0.5):
                cell = Cell(family, augmentation, rho)
                for name, algorithm in (("before", BEFORE), ("now", {})):
                    print(line(cell, name, algorithm), flush=True)


if __name__ == "__main__":
    main()
