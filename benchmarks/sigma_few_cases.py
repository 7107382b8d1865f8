"""Areas with few cases given all else: what the table of areas draws, against importance sampling.

    python benchmarks/sigma_few_cases.py [given] [whole] [--draws 100000]

One client of a map, xi known; half of its areas have no case, half one, one area four. The largest errors over the client's areas
of P(rate > 1), of the ends of 90 and 95 % intervals of rates (relative), and of theta's mean in sds: of the normal approximation,
of draws that are moved to each area's own likelihood, and with sweeps that draw each area anew ("given"). "whole" has P(rate > 1)
of such maps whose xi is unknown: what a nested Laplace approximation of two clients and these draws say, against importance
sampling of all rows in one place on a lattice of phi and sigma_theta.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from fedkern.algorithms.nested import machine as nested
from fedkern.arrays import Array
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows
from fedkern.models.spatial.within_site import WithinSite

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from sigma_nested import dense

from support import nested_cases as cases
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
ENDS = (0.025, 0.05, 0.95, 0.975)
CASES = ((4, 1.0, 1.0, 0.9), (4, 2.0, 1.0, 0.9), (4, 3.0, 0.5, 0.5), (6, 2.0, 0.5, 0.97))  # side, sigma_theta, exposure, phi


def site(side: int, scale: float, exposure: float, phi: float) -> tuple[WithinSite, Array]:
    """All rows of a map but the last, and a xi."""
    sizes = side * side - side, side
    own = factors.tie(AreaPrior(*grid(side, side), PHI), sizes, ("a", "b"), n_latents=side, nodes=9).clients[0]
    rng, d = np.random.default_rng(0), own.size
    y = rng.integers(0, 2, d).astype(float)
    y[d // 2] = 4
    rows = Rows(y, np.arange(d), np.zeros((d, 0)), np.full(d, np.log(exposure)))
    made = WithinSite(own, PHI, Layout(True, own.n_latents), Likelihood("poisson"), rows, integrated=True)
    xi, parts = np.zeros(made.n_global), made.layout.parts
    xi[0], xi[parts["z"]] = np.log(phi / (PHI.hi - phi)), rng.normal(0, 0.7, own.n_latents)
    xi[parts["log_scale"]], xi[parts["intercept"]] = np.log(scale), -0.3
    return made, xi


def exact(s: WithinSite, xi: Array, blocks: int = 5, draws: int = 200_000) -> tuple[Array, Array, Array, Array, float]:
    """P(rate > 1), ends of the log rate, mean and sd of theta, and the effective number of draws."""
    ties = s._ties(xi[np.newaxis])
    place, z, rng = s._places(xi[np.newaxis])[0], xi[s.layout.parts["z"]], np.random.default_rng(0)
    Lambda, pull = s.prior.precision(ties), s.prior.pull(ties) @ z
    q = s._posterior(Lambda, pull, place)
    thetas, logs = list[Array](), list[Array]()
    for _ in range(blocks):
        e = rng.standard_normal((draws, s.n_areas))
        theta = q.mean + 1.15 * (q.drawn(e) - q.mean)
        like = s.likelihood.value(s.rows.y, place.fixed + place.scale * theta).sum(axis=1)
        thetas.append(theta)
        logs.append(like + theta @ pull - 0.5 * np.einsum("mi,mi->m", theta @ Lambda, theta) + 0.5 * (e * e).sum(axis=1))
    theta, log = np.concatenate(thetas), np.concatenate(logs)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    rate = xi[s.layout.parts["intercept"]] + place.scale * theta
    ends = []
    for column in rate.T:
        order = np.argsort(column)
        ends.append(np.interp(ENDS, np.cumsum(weight[order]), column[order]))
    mean = weight @ theta
    return weight @ (rate > 0), np.array(ends).T, mean, np.sqrt(weight @ (theta - mean) ** 2), float(1 / (weight**2).sum())


def whole(side: int, exposure: float, times: int = 20) -> None:
    """P(rate > 1) of each area of a map, xi unknown."""
    n = side * side
    y = np.random.default_rng(0).integers(0, 2, n).astype(float)
    y[n // 2] = 4
    tied, condition = cases.tied("car", side, (n // 2, n - n // 2))
    case = cases.Case(tied, condition, "poisson", y, np.full(n, np.log(exposure)))
    right = dense(case, -3.5, 3.0)
    server, clients = cases.fitted(case)
    many, level = [], case.layout.parts["intercept"].start
    for k, client in clients.items():
        found, rng = np.zeros((times, client.model.n_areas)), np.random.default_rng(k)
        for t in range(times):
            shape = len(client.told), client.model.n_areas
            normals, uniforms = rng.standard_normal(shape), rng.random((1, *shape))
            theta = client.model.theta_given(client.told, np.zeros((shape[0], 0)), normals, uniforms)
            scale = np.exp(client.told[:, case.layout.parts["log_scale"]])
            found[t] = (client.told[:, level : level + 1] + scale * theta > 0).mean(axis=0)
        many.append(found)
    found = np.concatenate(many, axis=1)
    said = nested.read_result(server)
    off, once = np.abs(found.mean(axis=0) - right.above), np.abs(found - right.above).max(axis=1).mean()
    print(f"{side} x {side}, {n} areas, xi unknown, expected {exposure:g} each; exact by draws of which ", end="")
    print(f"{right.least:.0%} count or more; nested converged {said.converged}, {said.posterior.effective:.0f} draws count")
    print(f"  P(rate > 1) off by at most {off.max():.4f}, by {off.mean():.4f} on average; ", end="")
    print(f"in a table of {len(client.told)} draws by at most {once:.4f}")
    for name, (mean, sd) in cases.moments(case, said).items():
        at, own = right.moments[name]
        print(f"  {name:<12} mean {(mean - at) / own:+.3f} sd, sd ratio {sd / own:.3f}", flush=True)


def main() -> None:
    """What is named, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", default=["given", "whole"])
    parser.add_argument("--draws", type=int, default=100_000)
    o = parser.parse_args()
    if "whole" in o.which:
        for side, exposure in ((4, 1.0), (6, 1.0)):
            whole(side, exposure)
    if "given" in o.which:
        given(o.draws)


def given(draws: int) -> None:
    """All maps whose xi is known."""
    for side, scale, exposure, phi in CASES:
        s, xi = site(side, scale, exposure, phi)
        above, ends, mean, sd, effective = exact(s, xi)
        print(f"{side} x {side}, {s.n_areas} areas, sigma_theta {scale:g}, phi {phi:g}, expected {exposure:g} each; ", end="")
        print(f"exact by {effective:,.0f} effective draws")
        rng, none = np.random.default_rng(1), np.zeros((draws, 0))
        normals, uniforms = rng.standard_normal((draws, s.n_areas)), rng.random((2, draws, s.n_areas))
        many = np.broadcast_to(xi, (draws, len(xi)))
        parts = np.array_split(np.arange(draws), 20)
        for name, sweeps in (("normal", None), ("moved", 0), ("moved, 1 sweep", 1), ("moved, 2 sweeps", 2)):
            begin = time.process_time()
            made = [s.theta_given(many[k], none[k], normals[k], None if sweeps is None else uniforms[:sweeps, k]) for k in parts]
            took = 1e6 * (time.process_time() - begin) / draws / s.n_areas
            theta = np.concatenate(made)
            rate = xi[s.layout.parts["intercept"]] + scale * theta
            found = np.abs(np.expm1(np.quantile(rate, ENDS, axis=0) - ends)).max(axis=1)
            off = np.abs((rate > 0).mean(axis=0) - above).max(), np.abs((theta.mean(axis=0) - mean) / sd).max()
            said = " ".join(f"{one:.3f}" for one in found)
            print(f"  {name:15s} P {off[0]:.4f}  ends {said}  mean {off[1]:.4f}  {took:.0f} us a draw and area", flush=True)


if __name__ == "__main__":
    main()
