"""Areas with 0 or 1 cases, whose theta is not normal given the rest: the table's draws against importance sampling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import gamma, norm, qmc

from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial import factors
from fedkern.models.spatial.checks import Tilted
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows
from fedkern.models.spatial.within_site import WithinSite
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
ENDS = (0.025, 0.05, 0.95, 0.975)
SWEEPS = 1


def site(side: int, scale: float, exposure: float) -> tuple[WithinSite, np.ndarray]:
    """All rows but the last of a map, counts 0 and 1 but for one area, and a xi."""
    own = factors.tie(AreaPrior(*grid(side, side), PHI), (side * side - side, side), ("a", "b"), n_latents=side, nodes=7).clients[
        0
    ]
    rng, d = np.random.default_rng(3), own.size
    y = rng.integers(0, 2, d).astype(float)
    y[d // 2] = 4
    rows = Rows(y, np.arange(d), np.zeros((d, 0)), np.full(d, np.log(exposure)))
    s = WithinSite(own, PHI, Layout(True, own.n_latents), Likelihood("poisson"), rows, integrated=True)
    xi = np.zeros(s.n_global)
    xi[0], xi[s.layout.parts["z"]], xi[s.layout.parts["log_scale"]] = 2.0, rng.normal(0, 0.7, own.n_latents), np.log(scale)
    return s, xi


def exact(s: WithinSite, xi: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """P(rate > 1) (d,), and ends of intervals of the log rate (4, d), by importance sampling from a wider normal distribution."""
    ties = s._ties(xi[np.newaxis])
    place, z = s._places(xi[np.newaxis])[0], xi[s.layout.parts["z"]]
    Lambda, pull = s.prior.precision(ties), s.prior.pull(ties) @ z
    q = s._posterior(Lambda, pull, place)
    e = np.random.default_rng(0).standard_normal((draws, s.n_areas))
    theta = q.mean + 1.15 * (q.drawn(e) - q.mean)
    log = s.likelihood.value(s.rows.y, place.fixed + place.scale * theta).sum(axis=1) + 0.5 * (e * e).sum(axis=1)
    log += theta @ pull - 0.5 * np.einsum("mi,mi->m", theta @ Lambda, theta)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 0.4 * draws
    quantiles = []
    for column in theta.T:
        order = np.argsort(column)
        quantiles.append(place.scale * np.interp(ENDS, np.cumsum(weight[order]), column[order]))
    return weight @ (theta > 0), np.array(quantiles).T


@pytest.mark.parametrize(
    ("scale", "exposure"),
    [(2.0, 1.0), pytest.param(1.0, 1.0, marks=pytest.mark.nightly), pytest.param(3.0, 0.5, marks=pytest.mark.nightly)],
)
def test_areas_with_few_cases_have_their_probabilities_and_ends(scale: float, exposure: float) -> None:
    """The normal approximation alone does not (the negative control)."""
    s, xi = site(4, scale, exposure)
    want, ends = exact(s, xi, 60_000)
    m, d = 2**12, s.n_areas
    even = qmc.Sobol((1 + SWEEPS) * d, seed=1).random(m).reshape(m, 1 + SWEEPS, d)
    many, none, normals = np.repeat(xi[np.newaxis], m, axis=0), np.zeros((m, 0)), ndtri(even[:, 0])

    def off(theta: np.ndarray) -> tuple[float, float]:
        """Of P(rate > 1), and of the probabilities below the ends of intervals."""
        below = [(scale * theta < end).mean(axis=0) - level for end, level in zip(ends, ENDS)]
        return float(np.abs((theta > 0).mean(axis=0) - want).max()), float(np.abs(below).max())

    plain = off(s.theta_given(many, none, normals))
    made = off(s.theta_given(many, none, normals, even[:, 1:].transpose(1, 0, 2)))
    assert max(made) < 0.0085, made  # 60,000 draws of what is wanted have an error of .002 themselves
    assert plain[0] > 0.012, plain
    assert plain[1] > 0.009, plain


def one_area(y: np.ndarray, exposure: np.ndarray, area: np.ndarray) -> WithinSite:
    prior = factors.tie(AreaPrior(*grid(2, 2), PHI), (3, 1), ("a", "b"), n_latents=1, nodes=7).clients[0]
    rows = Rows(y, area, np.zeros((len(y), 0)), np.log(exposure))
    return WithinSite(prior, PHI, Layout(True, 1), Likelihood("poisson"), rows, integrated=True)


@pytest.mark.parametrize("v", [0.04, 1.0, 25.0])
@pytest.mark.parametrize(("y", "exposure"), [(0.0, 1e-3), (0.0, 50.0), (1.0, 2.0), (500.0, 400.0)])
def test_a_conditional_is_that_of_quadrature(v: float, y: float, exposure: float) -> None:
    """Against a fine grid, wherever prior and likelihood lie; two rows of an area; an area without rows has its prior."""
    s = one_area(np.array([y, y]), np.array([exposure, exposure]), np.array([0, 0]))
    levels = np.array([1e-4, 0.025, 0.3, 0.5, 0.8, 0.975, 0.9999])
    u = np.repeat(levels[:, np.newaxis], 2, axis=1)
    m, fixed = len(levels), np.tile(s.rows.offset, (len(levels), 1))
    made = Tilted(s, np.array([0, 2]), fixed, np.ones((m, 1)), np.zeros((m, 1)))
    mean, near = np.full((m, 2), 0.7), np.zeros((m, 2))  # the search begins far off
    got = made.drawn(mean, np.full((m, 2), v), near, near, u)
    np.testing.assert_allclose(got[:, 1], norm.ppf(levels, 0.7, np.sqrt(v)), rtol=1e-9)
    x = np.linspace(0.7 - 12 * np.sqrt(v), 0.7 + 12 * np.sqrt(v), 400_001)
    log = 2 * (y * x - exposure * np.exp(x)) - 0.5 * (x - 0.7) ** 2 / v
    cumulated = np.cumsum(np.exp(log - log.max()))
    want = np.interp(levels, cumulated / cumulated[-1], x)
    sd = np.sqrt(np.cov(x, aweights=np.exp(log - log.max())))
    np.testing.assert_allclose(got[1:-1, 0], want[1:-1], atol=0.02 * sd)
    np.testing.assert_allclose(got[:, 0], want, atol=0.1 * sd)
    wide = one_area(np.array([y]), np.array([exposure]), np.array([0]))
    flat = Tilted(wide, np.array([0]), fixed[:, :1], np.ones((m, 1)), np.zeros((m, 1))).drawn(
        np.zeros((m, 1)), np.full((m, 1), 1e6), near[:, :1], near[:, :1], u[:, :1]
    )
    if y > 1:  # with a flat prior: a gamma distribution
        np.testing.assert_allclose(np.exp(flat[1:-1, 0]), gamma.ppf(levels[1:-1], y) / exposure, rtol=1e-3)
