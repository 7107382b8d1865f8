"""The intercept's posterior sd with and without the shear (docs/methods/sigma.md, section 6.4), against exact algebra.

    python benchmarks/sigma_shear.py [--side N] [--rounds N ..] [--covariance full|diagonal] [--seeds N]

A CAR map of SIDE x SIDE cells, four clients of whole rows, one Gaussian row an area: y = theta + N(0, sd 0.5), theta drawn at phi
0.95; phi, b and sigma_theta are unknown. Exact: b given (phi, sigma_theta) is normal, and these two are summed over a grid of 41 x 41.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.kernels import spatial
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.factors import tie
from fedkern.models.spatial.loadings import LevelRidge, of_within
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior
from fedkern.models.spatial.within_site import WithinSite
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec

Array = NDArray[np.float64]

SD = 0.5
CONDITION = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))


def grid(side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows of a square map's neighbours."""
    number = np.arange(side * side).reshape(side, side)
    pairs = [np.stack([a.ravel(), b.ravel()], 1) for a, b in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1]))]
    both = np.concatenate([*pairs, *(pair[:, ::-1] for pair in pairs)])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return np.concatenate([[0], np.cumsum(np.bincount(both[:, 0]))]).astype(np.int64), np.ascontiguousarray(both[:, 1])


class Map:
    """A map, its prior and its responses."""

    def __init__(self, side: int, seed: int, clients: int, phi: float) -> None:
        self.prior = AreaPrior(*grid(side), CONDITION)
        rng, n = np.random.default_rng(seed), side * side
        theta = spatial.DrawTable.car(self.prior.indptr, self.prior.indices, np.array([phi]), group=1).sample(seed, 0, 1)[0][0]
        self.y = theta + SD * rng.standard_normal(n)
        self.sizes = [side * side // clients] * clients
        self.tied = tie(self.prior, self.sizes, [f"c{j}" for j in range(clients)])
        self.layout = Layout(True, self.tied.clients[0].n_latents)
        self.server_prior = SigmaPrior(self.layout, CONDITION)

    def sites(self) -> list[WithinSite]:
        """Of the clients."""
        like, sites = Likelihood("gaussian", SD), []
        for own, y in zip(self.tied.clients, np.split(self.y, np.cumsum(self.sizes)[:-1])):
            rows = Rows(y, np.arange(len(y)), np.zeros((len(y), 0)), np.zeros(len(y)))
            sites.append(WithinSite(own, CONDITION, self.layout, like, rows, integrated=True))
        return sites

    def fitted(self, settings: sfvi.Settings) -> tuple[Array, Array]:
        """Means and sds of q(xi)."""
        J = len(self.sizes)
        names = tuple(f"c{j}" for j in range(J))
        clients = {j: sfvi.client(names[j], j, settings, site, J) for j, site in enumerate(self.sites())}
        ridge = LevelRidge(self.layout, CONDITION, of_within(self.tied.clients)) if settings.sheared else None
        protocol = sfvi.protocol(settings)
        codec = Codec(settings.sizes(self.layout.size), J)
        server, _ = inprocess.run(protocol, sfvi.start(settings, self.server_prior, names, ridge=ridge), clients, codec)
        assert server is not None
        block, parameters = server.q
        return parameters[: block.size], block.sd(parameters)

    def exact(self) -> dict[str, tuple[float, float]]:
        """Means and sds of b, x_phi and log sigma_theta."""
        n, ones = len(self.y), np.ones(len(self.y))
        xs, logs, found = np.linspace(-3, 8, 41), np.linspace(-1.5, 1.5, 41), []
        for x in xs:
            S = self.prior.covariance(float(CONDITION.at(x)[0]))
            values, vectors = np.linalg.eigh(S)
            y, one = vectors.T @ self.y, vectors.T @ ones
            for log in logs:
                w = 1 / (np.exp(2 * log) * values + SD**2)
                precision = float(one @ (w * one)) + 1 / 25
                mean = float(one @ (w * y)) / precision
                density = 0.5 * (float(np.log(w).sum()) - np.log(precision) - float(y @ (w * y)) + precision * mean**2)
                xi = np.zeros(self.layout.size)
                xi[0], xi[-1] = x, log
                found.append((density + self.server_prior.log_prior_grad(xi)[0], mean, 1 / precision, x, log))
        table = np.array(found)
        weight = np.exp(table[:, 0] - table[:, 0].max())
        weight /= weight.sum()
        b = weight @ table[:, 1]
        out = {"b": (float(b), float(np.sqrt(weight @ (table[:, 2] + (table[:, 1] - b) ** 2))))}
        for name, column in (("x_phi", table[:, 3]), ("log sigma_theta", table[:, 4])):
            mean = weight @ column
            out[name] = float(mean), float(np.sqrt(weight @ (column - mean) ** 2))
        return out


def main() -> None:
    """A line for each fit."""
    options = argparse.ArgumentParser()
    options.add_argument("--side", type=int, default=20)
    options.add_argument("--rounds", type=int, nargs="+", default=[1500])
    options.add_argument("--covariance", choices=("full", "diagonal"), default="full")
    options.add_argument("--rate", type=float, default=0.01)
    options.add_argument("--clients", type=int, default=4)
    options.add_argument("--phi", type=float, default=0.95)
    options.add_argument("--seeds", type=int, default=1)
    o = options.parse_args()
    for seed in range(1, o.seeds + 1):
        made = Map(o.side, seed, o.clients, o.phi)
        told = ", ".join(f"{name} {mean:.3f} ({sd:.3f})" for name, (mean, sd) in made.exact().items())
        print(f"{o.side} x {o.side}, {o.clients} clients, map {seed}, {made.layout.n_global} latents; exact: {told}", flush=True)
        for rounds in o.rounds:
            for sheared in (False, True):
                began = time.process_time()
                settings = sfvi.Settings(rounds=rounds, covariance=o.covariance, learning_rate=o.rate, sheared=sheared, seed=seed)
                mean, sd = made.fitted(settings)
                b = made.layout.parts["intercept"].start
                told = ", ".join(
                    f"{n} {mean[k]:.3f} ({sd[k]:.3f})" for n, k in (("b", b), ("x_phi", 0), ("log sigma_theta", -1))
                )
                name = "sheared" if sheared else "as it is"
                print(f"  {rounds:,} rounds, {o.covariance}, {name}: {told}; {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
