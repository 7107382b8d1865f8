"""The intercept of US counties by a Gaussian approximation: what a trained prior says of it, and how soon steps of q find it.

    python benchmarks/sigma_shear_counties.py FOLDER

FOLDER keeps a trained prior of the counties' map, made there in two minutes if it is not; phi and sigma_theta are NUTS's.
Poisson responses are approximated by Gaussian ones at their mode. Then q of (z_G, b, beta), everything of the clients integrated
out, is fitted by the server's own steps (full covariance, Adam at 0.02 with the default cool-down): as it is, and sheared.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve

from fedkern.algorithms.core.optim import OPTIMISERS
from fedkern.algorithms.sfvi.families import Shear
from fedkern.arrays import Array
from fedkern.data.artifact import ClientFile, read_client, read_server
from fedkern.kernels import spatial
from fedkern.models.spatial.decoder import Decoder
from fedkern.models.variational import Block
from papers import sigma_homicide
from papers.common import Json
from papers.sigma import trained as trained_on
from papers.sigma import write_map

PHI, SCALE, COEFFICIENT_SD, RATE = 0.989, 0.687, 5.0, 0.02


def loadings(file: ClientFile, t: Array) -> tuple[Array, Array]:
    """A client's loadings on z_G, and its covariance given z_G."""
    decoder = Decoder(file.architecture, file.parts, file.scale)
    p, q = decoder.n_global, decoder.n_local
    A = decoder.hat(np.eye(p), np.zeros((p, q)), np.repeat(t, p, 0)).theta.T
    B = decoder.hat(np.zeros((q, p)), np.eye(q), np.repeat(t, q, 0)).theta.T
    tau2 = np.array([np.interp(PHI, file.tau_grid, own) for own in file.tau2.T])
    return A, B @ B.T + np.diag(tau2)


def approximated(S: Array, X: Array, y: Array, offset: Array) -> tuple[float, Array]:
    """The sd of b, and the weights of the rows at the mode, where sigma_theta theta ~ N(0, S)."""
    coefficients, f = np.zeros(X.shape[1]), np.zeros(len(y))
    coefficients[0] = np.log(y.sum() / np.exp(offset).sum())
    for _ in range(30):
        w = np.exp(offset + X @ coefficients + f)
        working = X @ coefficients + f + y / w - 1
        factor = cho_factor(S + np.diag(1 / w))
        precision = X.T @ cho_solve(factor, X) + np.eye(X.shape[1]) / COEFFICIENT_SD**2
        new = np.linalg.solve(precision, X.T @ cho_solve(factor, working))
        f = S @ cho_solve(factor, working - X @ new)
        moved, coefficients = np.abs(new - coefficients).max(), new
        if moved < 1e-6:
            break
    return float(np.sqrt(np.linalg.inv(precision)[0, 0])), w


@dataclass(frozen=True)
class Known:
    """The ridge where phi and sigma_theta are known."""

    row: int
    along: Array

    @property
    def told(self) -> Array:
        """Its numbers."""
        return self.along

    def beside(self, xi: Array) -> Array:
        """(m,) of the intercept."""
        return np.asarray(xi[:, : len(self.along)] @ self.along)

    def slopes(self, xi: Array) -> Array:
        """(P,) of that."""
        out = np.zeros(len(xi))
        out[: len(self.along)] = self.along
        return out


def fitted(precision: Array, ridge: Known, rounds: int) -> float:
    """The sd of b after so many steps on N(0, precision^-1)."""
    shear, row = Shear(ridge), ridge.row
    block, adam, rng = Block(len(precision), True), OPTIMISERS["adam"](1.0), np.random.default_rng(0)
    parameters = block.initial(0.0, 0.1)
    state = adam.init(block.n_parameters)
    for round in range(rounds):
        e = rng.standard_normal(block.size)
        inner = block.sample(parameters, e)
        slope = -precision @ shear.out(inner[np.newaxis])[0]
        state, move = adam.update(state, block.gradient(parameters, e, shear.pulled(inner, slope)))
        parameters = parameters + RATE * min(1.0, 2 * (rounds - round) / rounds) * move
    return float(shear.mean_sd(block, parameters)[1][row])


def prior_of(folder: Path) -> Path:
    """Networks with 40 global latents, and 20 of each state."""
    tables: dict[str, Json] = {
        "prior": {"kind": "car", "phi": [0.0, sigma_homicide.HIGHEST]},
        "data": write_map(folder / "map", sigma_homicide.counties()[0]),
        "network": {"global_latents": 40, "local_latents": 20, "gamma": 0.8},
        "training": {"steps": 500, "batch": 128},
        "auxiliary": {"draws": 2_000},
    }
    return trained_on(folder, tables).folder


def main(folder: Path) -> None:
    """Prints all of it."""
    trained = prior_of(folder)
    server = read_server(trained)
    assert server.mean_loadings is not None
    files = [read_client(trained, name) for name in server.clients]
    areas, data = sigma_homicide.counties()
    place = {name: k for k, name in enumerate(areas.graph.names)}
    order = np.array([place[name] for file in files for name in file.areas])
    X = np.column_stack([np.ones(data.n_rows), *sigma_homicide.covariates().values()])[order]
    assert data.offset is not None
    y, offset, condition = np.asarray(data.y)[order], np.asarray(data.offset)[order], server.common.condition
    parts = [loadings(file, condition.network(np.array([PHI]))[:, None]) for file in files]
    A, rest = np.concatenate([part for part, _ in parts]), block_diag(*(own for _, own in parts))
    W, D = spatial.adjacency(areas.graph.indptr, areas.graph.indices), spatial.diagonal(areas.graph.indptr)
    exact, _ = approximated(SCALE**2 * np.linalg.inv(np.diag(D) - PHI * W.toarray())[np.ix_(order, order)], X, y, offset)
    sd, w = approximated(SCALE**2 * (A @ A.T + rest), X, y, offset)
    print(f"sd of the intercept: exact CAR prior {exact:.4f}, trained prior {sd:.4f}")
    G, r = np.column_stack([SCALE * A, X]), A.shape[1]
    V = cho_factor(SCALE**2 * rest + np.diag(1 / w))
    precision = G.T @ cho_solve(V, G) + np.diag([*np.ones(r), *np.full(X.shape[1], COEFFICIENT_SD**-2)])
    print(f"given z_G and the slopes {precision[r, r] ** -0.5:.4f}")
    for rounds in (1500, 6000):
        for name, abar in (("as it is", np.zeros(r)), ("sheared", server.mean_loadings.at(np.array([PHI]), condition)[0][0])):
            found = fitted(precision, Known(r, -SCALE * abar), rounds)
            print(f"{rounds:,} steps, {name}: {found:.4f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
