"""The mean loadings of a map on the latents that its clients share, against the loadings of every area."""

import numpy as np
import pytest

from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.loadings import VALUES, LevelRidge, MeanLoadings, of_decoders, of_within
from fedkern.models.spatial.prior import AreaPrior, GpPrior
from fedkern.models.spatial.site import Layout
from oracles.differences import four_point
from support import sigma_cases as cases
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
LENGTH = Condition("lengthscale", 0.2, 1.0, "unit")


@pytest.mark.parametrize("form", ["car", "leroux", "gp"])
def test_of_a_built_prior_they_are_the_mean_over_areas(form):
    prior = GpPrior(np.linspace(0, 1, 64)[:, None], LENGTH, "matern32") if form == "gp" else AreaPrior(*grid(8, 8), PHI, form)
    clients = factors.tie(prior, (24, 24, 15, 1), ("a", "b", "c", "d"), n_latents=10).clients
    mean = of_within(clients)
    assert len(mean.phi) == VALUES
    for k in (0, 5, 16):
        areas = np.concatenate([c.loadings(c.ties(mean.phi[k : k + 1])) for c in clients])
        np.testing.assert_allclose(mean.values[k], areas.mean(axis=0), atol=1e-10)
        np.testing.assert_allclose(mean.at(mean.phi[k : k + 1], prior.condition)[0][0], mean.values[k], atol=1e-12)


@pytest.mark.parametrize("variant", ["multiplicative", "amended", "printed"])
def test_of_a_trained_prior_they_are_the_best_linear_slopes(variant):
    """Of the mean of thetahat on z, by many draws; the loadings' own draws are few, those of the networks not linear."""
    rng, condition = np.random.default_rng(4), cases.condition()
    decoders = [cases.decoder(rng, variant, d) for d in (7, 3)]
    mean = of_decoders(decoders, condition)
    k, n = 7, 40_000
    t = np.full((n, 1), condition.network(mean.phi)[k])
    z = rng.standard_normal((n, cases.P_G))
    level = np.zeros(n)
    for decoder in decoders:
        level += decoder.hat(z, rng.standard_normal((n, cases.P_L)), t).theta.sum(axis=1) / 10
    slopes = np.linalg.lstsq(np.column_stack([z, np.ones(n)]), level, rcond=None)[0][:-1]
    np.testing.assert_allclose(mean.values[k], slopes, atol=0.02 if variant == "multiplicative" else 0.15 * np.abs(slopes).max())


@pytest.mark.parametrize("mixing", [False, True])
def test_four_point_slopes_of_the_ridge(mixing):
    """In x_phi, z, logit rho and log sigma_theta; of several places at once as of each."""
    rng = np.random.default_rng(6)
    condition = Condition("none", 0.0, 0.0) if mixing else cases.condition()
    layout = Layout(not mixing, cases.P_G, mixing, True, 2, True)
    ridge = LevelRidge(layout, condition, of_decoders([cases.decoder(rng, "multiplicative")], condition))
    places = rng.normal(size=(5, layout.size))
    found = np.array([ridge.slopes(xi) for xi in places])
    want = np.array([four_point(lambda x: ridge.beside(x[None])[0], xi) for xi in places])
    np.testing.assert_allclose(found, want, atol=1e-7 * np.abs(want).max())
    assert np.abs(want[:, layout.parts["log_scale"]]).min() > 1e-3
    np.testing.assert_array_equal(ridge.beside(places), [ridge.beside(xi[None])[0] for xi in places])


@pytest.mark.parametrize("mixing", [False, True])
def test_the_ridge_is_where_the_mean_predictor_stays_the_same(mixing):
    """b + s'z with s from xi, where the mean of sigma_theta theta moves with z."""
    rng = np.random.default_rng(5)
    condition = Condition("none", 0.0, 0.0) if mixing else cases.condition()
    layout = Layout(not mixing, cases.P_G, mixing, True, 2, True)
    decoder = cases.decoder(rng, "multiplicative")
    ridge = LevelRidge(layout, condition, of_decoders([decoder], condition))
    xi = 0.3 * rng.normal(size=layout.size)
    if not mixing:  # a node of phi, between which loadings are linear
        share = (ridge.mean.phi[6] - condition.lo) / (condition.hi - condition.lo)
        xi[0] = np.log(share / (1 - share))
    phi = condition.at(xi[:1] if layout.free else np.zeros(1))[0]
    root = np.sqrt(1 / (1 + np.exp(-xi[layout.parts["rho"]]))) if mixing else 1.0

    def level(z):
        hat = decoder.hat(z[None], np.zeros((1, cases.P_L)), condition.network(phi)[:, None]).theta[0]
        return float(np.exp(xi[layout.parts["log_scale"]][0]) * (root * hat).mean())

    slopes, z = ridge.slopes(xi), rng.normal(size=cases.P_G)
    slopes = slopes[layout.parts["z"]]
    np.testing.assert_allclose(slopes @ z, -(level(z) - level(np.zeros(cases.P_G))), rtol=1e-9)
    assert layout.parts["intercept"] == slice(ridge.row, ridge.row + 1)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"mean loadings: values have shape \(2, 3\); wanted \(4, latents\), finite"):
        MeanLoadings(np.arange(4.0), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="finite"):
        MeanLoadings(np.arange(2.0), np.full((2, 3), np.nan))
