"""Effects of periods: the walk's scale and structure, and slopes of a client that has them."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.sfvi.families import Family, NestedFamily
from fedkern.models.likelihood import Likelihood
from fedkern.models.overdispersed import Overdispersed
from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior, Site, step_sd, walk
from fedkern.models.spatial.within_site import WithinSite
from fedkern.models.variational import Block
from oracles.differences import four_point
from support import sigma_cases as cases
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
T = 5


@pytest.mark.parametrize("n", [2, 3, 8, 40])
def test_the_walk_is_scaled_and_sums_to_nothing(n: int) -> None:
    """Against the generalised inverse of its structure."""
    D = np.diff(np.eye(n), axis=0)
    S = np.linalg.pinv(D.T @ D, rcond=1e-10, hermitian=True)
    found = walk(n) @ walk(n).T
    np.testing.assert_allclose(found, S / np.exp(np.log(S.diagonal()).mean()), atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-12)
    assert walk(n).shape == (n, n - 1)
    np.testing.assert_allclose(D @ found @ D.T, step_sd(n) ** 2 * np.eye(n - 1), atol=1e-12)  # steps are independent


def rows(family: str, areas: int) -> Rows:
    rng, n = np.random.default_rng(2), 18
    y = rng.normal(size=n) if family == "gaussian" else rng.poisson(4.0, n).astype(float)
    return Rows(y, rng.integers(0, areas, n), rng.normal(size=(n, 1)), rng.normal(0.5, 0.3, n), period=rng.integers(0, T - 1, n))


CASES = {"poisson": Likelihood("poisson"), "gaussian": Likelihood("gaussian", None), "interaction": Overdispersed("poisson")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("integrated", [True, False])
def test_slopes_of_a_client_are_differences(case: str, integrated: bool) -> None:
    """Of the last period there is no row."""
    prior = factors.tie(AreaPrior(*grid(4, 4), PHI), (9, 7), ("a", "b"), n_latents=4, nodes=9).clients[0]
    layout = Layout(True, prior.n_latents, n_beta=1, dispersed=case != "poisson", n_periods=T)
    family = "poisson" if case == "interaction" else case
    site, rng = WithinSite(prior, PHI, layout, CASES[case], rows(family, 8), integrated=integrated), np.random.default_rng(1)
    xi, u = rng.normal(0, 0.6, site.n_global), rng.normal(size=site.size)
    assert layout.size == 1 + 4 + 1 + 1 + (T - 1) + 2 + int(layout.dispersed)
    _, g_xi, _ = site.log_joint_grad(xi, u)
    tight = 5e-5 if integrated and case != "gaussian" else 5e-6
    np.testing.assert_allclose(g_xi, four_point(lambda x: site.log_joint_grad(x, u)[0], xi), rtol=tight, atol=tight)
    assert np.abs(g_xi[layout.parts["period"]]).min() > 0.01
    assert abs(g_xi[layout.parts["log_period"]][0]) > 0.01
    server = SigmaPrior(layout, PHI, likelihood=CASES[case] if layout.dispersed else Likelihood("gaussian", None))
    want = four_point(lambda x: server.log_prior_grad(x)[0], xi)
    np.testing.assert_allclose(server.log_prior_grad(xi)[1], want, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("integrated", [True, False])
def test_a_trained_prior_has_them_too(integrated: bool) -> None:
    rng, family = np.random.default_rng(3), "gaussian" if integrated else "poisson"
    made = cases.site(rng, "amended", family, "constant", scale=0.5, integrated=integrated)
    layout = Layout(True, cases.P_G, n_beta=1, n_periods=T)
    site = Site(made.decoder, made.condition, layout, made.likelihood, rows(family, cases.D - 1), made.auxiliary, integrated)
    xi, u = rng.normal(0, 0.6, site.n_global), rng.normal(0, 0.6, site.size)
    g_xi = site.log_joint_grad(xi, u)[1]
    np.testing.assert_allclose(g_xi, four_point(lambda x: site.log_joint_grad(x, u)[0], xi), rtol=5e-6, atol=5e-6)
    if integrated:
        return
    nested = NestedFamily(Family(Block(site.decoder.n_local, True), site.n_global), site)
    parameters, centre, eps = nested.initial(0.5), rng.normal(size=site.n_global), rng.normal(size=nested.n_normals)

    def bound(x: np.ndarray) -> float:
        own = parameters[: nested.outer.n_parameters]
        value = nested.gradient(site, parameters, x, centre, eps, path=False)[0]
        return value + nested.outer.block.log_density(own, eps[: nested.outer.block.size])

    G = nested.gradient(site, parameters, xi, centre, eps, path=False)[1]
    np.testing.assert_allclose(G, four_point(bound, xi), rtol=5e-6, atol=5e-6)
