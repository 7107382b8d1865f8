"""The intercept's posterior sd with and without the shear (docs/spec/sigma.md, section 6.4), against exact algebra.

    python benchmarks/sigma_shear.py [--clients N] [--latents N] [--phi PHI] [--known] [--rounds N ..] [--seeds N]

A CAR map of 20 x 20 cells (--side), 20 clients of a row each, one Gaussian response an area: y = theta + N(0, sd 0.5), theta
drawn at PHI; the prior exact inside each client. b is unknown, and so are phi and sigma_theta (but with --known). Exact: of the
CAR model; b given (phi, sigma_theta) is normal, and these two are summed over a grid of 41 x 41.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.arrays import Array
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

SD = 0.5
CONDITION = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))


def grid(side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows of a square map's neighbours."""
    number = np.arange(side * side).reshape(side, side)
    pairs = [np.stack([a.ravel(), b.ravel()], 1) for a, b in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1]))]
    both = np.concatenate([*pairs, *(pair[:, ::-1] for pair in pairs)])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return np.concatenate([[0], np.cumsum(np.bincount(both[:, 0]))]).astype(np.int64), np.ascontiguousarray(both[:, 1])


@dataclass(frozen=True)
class Options:
    """Of a map."""

    side: int
    clients: int
    phi: float
    latents: int | None
    known: bool


class Map:
    """A map, its prior and its responses."""

    def __init__(self, o: Options, seed: int) -> None:
        self.prior, self.options = AreaPrior(*grid(o.side), CONDITION), o
        rng, n = np.random.default_rng(seed), o.side**2
        theta = spatial.DrawTable.car(self.prior.indptr, self.prior.indices, np.array([o.phi]), group=1).sample(seed, 0, 1)[0][0]
        self.y = theta + SD * rng.standard_normal(n)
        self.sizes, self.names = [n // o.clients] * o.clients, tuple(f"c{j}" for j in range(o.clients))
        self.tied = tie(self.prior, self.sizes, self.names, n_latents=o.latents)
        self.condition = replace(CONDITION, fixed=o.phi) if o.known else CONDITION
        self.layout = Layout(not o.known, self.tied.clients[0].n_latents, scaled=not o.known)
        self.server_prior = SigmaPrior(self.layout, self.condition)

    def sites(self) -> list[WithinSite]:
        """Of the clients."""
        like, sites = Likelihood("gaussian", SD), []
        for own, y in zip(self.tied.clients, np.split(self.y, np.cumsum(self.sizes)[:-1])):
            rows = Rows(y, np.arange(len(y)), np.zeros((len(y), 0)), np.zeros(len(y)))
            sites.append(WithinSite(own, self.condition, self.layout, like, rows, integrated=True))
        return sites

    def fitted(self, settings: sfvi.Settings) -> tuple[Array, Array]:
        """Means and sds of q(xi)."""
        names = self.names
        clients = {j: sfvi.client(names[j], j, settings, site, len(names)) for j, site in enumerate(self.sites())}
        ridge = LevelRidge(self.layout, self.condition, of_within(self.tied.clients)) if settings.sheared else None
        started, codec = (
            sfvi.start(settings, self.server_prior, names, ridge=ridge),
            Codec(settings.sizes(self.layout.size, 0 if ridge is None else len(ridge.numbers)), len(names)),
        )
        server, _ = inprocess.run_protocol(sfvi.protocol(settings), started, clients, codec)
        assert server is not None
        return server.shear.mean_sd(*server.q)

    def unknowns(self) -> dict[str, int]:
        """Name -> place in xi."""
        parts = self.layout.parts
        places = {"b": parts["intercept"]} | (
            {} if self.options.known else {"x_phi": parts["phi"], "log sigma": parts["log_scale"]}
        )
        return {name: place.start for name, place in places.items()}

    def exact(self) -> dict[str, tuple[float, float]]:
        """Means and sds."""
        known, found = self.options.known, []
        for x in np.zeros(1) if known else np.linspace(-3, 8, 41):
            values, vectors = np.linalg.eigh(self.prior.covariance(float(self.condition.at(x)[0])))
            y, one = vectors.T @ self.y, vectors.T @ np.ones(len(self.y))
            for log in np.zeros(1) if known else np.linspace(-1.5, 1.5, 41):
                w = 1 / (np.exp(2 * log) * values + SD**2)
                precision = float(one @ (w * one)) + self.server_prior.coefficient_sd**-2
                mean = float(one @ (w * y)) / precision
                density = 0.5 * (float(np.log(w).sum()) - np.log(precision) - float(y @ (w * y)) + precision * mean**2)
                xi = np.zeros(self.layout.size)
                if not known:
                    xi[0], xi[-1] = x, log
                found.append((density + self.server_prior.log_prior_grad(xi)[0], mean, 1 / precision, x, log))
        table = np.array(found)
        weight = np.exp(table[:, 0] - table[:, 0].max())
        weight /= weight.sum()
        out = {}
        for name, column, own in (("b", 1, table[:, 2]), ("x_phi", 3, 0.0), ("log sigma", 4, 0.0)):
            mean = float(weight @ table[:, column])
            out[name] = mean, float(np.sqrt(weight @ ((table[:, column] - mean) ** 2 + own)))
        return {name: out[name] for name in self.unknowns()}


def main() -> None:
    """A line for each fit."""
    options = argparse.ArgumentParser()
    options.add_argument("--side", type=int, default=20)
    options.add_argument("--clients", type=int, default=20)
    options.add_argument("--phi", type=float, default=0.98)
    options.add_argument("--latents", type=int)
    options.add_argument("--known", action="store_true", help="phi and sigma_theta")
    options.add_argument("--rounds", type=int, nargs="+", default=[1500])
    options.add_argument("--rate", type=float, default=0.01)
    options.add_argument("--covariance", nargs="+", choices=("full", "diagonal"), default=["full", "diagonal"])
    options.add_argument("--seeds", type=int, default=1)
    o = options.parse_args()
    for seed in range(1, o.seeds + 1):
        made = Map(Options(o.side, o.clients, o.phi, o.latents, o.known), seed)
        print(f"{o.side} x {o.side} at phi {o.phi:g}, {o.clients} clients, {made.layout.n_global} latents, seed {seed}")
        print(f"  exact: {_told(made.exact())}", flush=True)
        for rounds, covariance, sheared in itertools.product(o.rounds, o.covariance, (False, True)):
            began = time.process_time()
            settings = chosen.sfvi(rounds=rounds, covariance=covariance, learning_rate=o.rate, sheared=sheared, seed=seed)
            mean, sd = made.fitted(settings)
            told = _told({name: (mean[k], sd[k]) for name, k in made.unknowns().items()})
            name = "sheared" if sheared else "as it is"
            print(f"  {rounds:,} rounds, {covariance}, {name}: {told}; {time.process_time() - began:.0f} s", flush=True)


def _told(moments: dict[str, tuple[float, float]]) -> str:
    return ", ".join(f"{name} {mean:.3f} ({sd:.3f})" for name, (mean, sd) in moments.items())


if __name__ == "__main__":
    main()
