"""A client's sparse factors against dense algebra; what its table of areas is drawn from against the whole search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkern.errors import NumericalError
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial import factors, within_site
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows
from fedkern.models.spatial.within import Precision
from fedkern.models.spatial.within_site import WithinSite
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
SIZES = (60, 40, 44)


@pytest.fixture(scope="module", params=["car", "leroux"])
def site(request: pytest.FixtureRequest) -> WithinSite:
    """The middle client of a map of 12 x 12, 24 of its 40 areas on its borders; some without rows, some with two."""
    own = factors.tie(AreaPrior(*grid(12, 12), PHI, request.param), SIZES, ("a", "b", "c"), n_latents=10, nodes=7).clients[1]
    rng, n = np.random.default_rng(0), 44
    rows = Rows(
        rng.poisson(2.0, n).astype(float), rng.integers(0, own.size - 2, n), rng.normal(size=(n, 1)), rng.normal(0, 0.3, n)
    )
    return WithinSite(own, PHI, Layout(True, own.n_latents, n_beta=1), Likelihood("poisson"), rows, integrated=True)


def routes(site: WithinSite, monkeypatch: pytest.MonkeyPatch) -> tuple[WithinSite, WithinSite]:
    """The same site by dense and by sparse factors."""
    dense = replace(site)
    assert not dense.sparse
    monkeypatch.setattr(within_site, "SPARSE", 1)
    sparse = replace(site)
    assert sparse.sparse
    return dense, sparse


def draws(site: WithinSite, m: int, spread: float = 0.5) -> np.ndarray:
    return np.random.default_rng(1).normal(0, spread, (m, site.n_global))


def test_sparse_factors_give_what_dense_ones_give(site: WithinSite, monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = routes(site, monkeypatch)
    xi, none = draws(site, 3), np.zeros((3, 0))
    for want, got in zip(dense.log_joint_grads(xi, none), sparse.log_joint_grads(xi, none)):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max(initial=0.0))
    ties = site._ties(xi)
    Lambda, w = site.prior.precision(ties, 1), np.linspace(0.1, 3.0, site.n_areas)
    pull = site._pull(ties, xi[1, site.layout.parts["z"]], 1)
    np.testing.assert_allclose(pull, site.prior.pull(ties, 1) @ xi[1, site.layout.parts["z"]], atol=1e-12)
    found = site._solved(site.prior.sparse_precision(ties, 1), pull, w, pull)
    S = np.linalg.inv(Lambda + np.diag(w))
    np.testing.assert_allclose(found.mean, S @ (2 * pull), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.sd, np.sqrt(S.diagonal()), rtol=1e-9)
    assert found.log_det == pytest.approx(-np.linalg.slogdet(S)[1], rel=1e-9)
    np.testing.assert_allclose(found.within_border(site.prior), S[np.ix_(site.prior.border, site.prior.border)], rtol=1e-9)
    assert found.traced(site.prior) == pytest.approx(np.sum(site.prior.T.toarray() * S), rel=1e-9)
    root = found.drawn(np.eye(site.n_areas)) - found.mean
    np.testing.assert_allclose(root.T @ root, S, rtol=1e-9, atol=1e-12)


def test_each_area_given_the_others_is_that_of_the_dense_precision(site: WithinSite) -> None:
    xi, theta = draws(site, 2), np.random.default_rng(2).normal(size=(2, site.n_areas))
    mean, variance = site.without_rows(xi, np.zeros((2, 0)), theta)
    ties = site._ties(xi)
    for k, z in enumerate(xi[:, site.layout.parts["z"]]):
        precision = site.prior.precision(ties, k)
        want = theta[k] + (site.prior.pull(ties, k) @ z - precision @ theta[k]) / precision.diagonal()
        np.testing.assert_allclose(mean[k], want, atol=1e-12)
        np.testing.assert_allclose(variance[k], 1 / precision.diagonal(), rtol=1e-12)


def test_what_cannot_be_factored_is_refused(site: WithinSite) -> None:
    ties = site._ties(draws(site, 1))
    own = site.prior.sparse_precision(ties)
    with pytest.raises(NumericalError, match="lower learning_rate"):
        site._solved(own, np.zeros(site.n_areas), np.full(site.n_areas, -1e3), np.zeros(site.n_areas))
    with pytest.raises(NumericalError, match="not positive definite"):
        Precision(own.pattern, own.values, -own.block).factored()


@pytest.mark.parametrize("integrate", [True, False])
def test_one_step_from_the_middle_is_as_good_as_a_search(
    site: WithinSite, monkeypatch: pytest.MonkeyPatch, integrate: bool
) -> None:
    """Means of q(theta | xi) at draws about as wide as a posterior; without a step they are not (the negative control)."""
    _, sparse = routes(site, monkeypatch)
    xi, zero = draws(site, 30, 0.25), np.zeros((30, site.n_areas))
    ties = sparse._ties(xi)
    z = xi[:, site.layout.parts["z"]]
    searched = [
        sparse._posterior(sparse._precision(ties, k), sparse._pull(ties, z[k], k), place)
        for k, place in enumerate(sparse._places(xi))
    ]
    if not integrate:
        monkeypatch.setattr(within_site, "STEPS", 0)
    off = sparse.theta_given(xi, np.zeros((30, 0)), zero) - [q.mean for q in searched]
    off /= [q.sd for q in searched]
    assert (np.abs(off.mean(axis=0)).max() < 0.01) == integrate
    assert (np.sqrt(np.mean(off**2)) < 0.01) == integrate
