"""Samplers and variational inference on the true CAR model, all rows in one place, against its exact posterior."""

import numpy as np
import pytest

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.data.graph import grid
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior
from papers.car import Areas, CarModel, exact_areas
from support import chosen
from support import hamiltonian as ham
from support import hierarchical as h

PHI, SD = Condition("phi", 0.0, 0.95, hyperprior=Hyperprior("logit-normal")), 0.4
LAYOUT = Layout(True, 0, intercept=False, scaled=False)


def case(form):
    """16 areas, of which 13 have rows."""
    graph, rng = grid(4, 4), np.random.default_rng(1)
    areas = Areas(graph.indptr, graph.indices, form)
    area = np.concatenate([np.arange(13), [0, 5, 5]])
    y = rng.normal(0, 0.8, areas.n)[area] + SD * rng.normal(size=len(area))
    rows = Rows(y, area, np.zeros((len(y), 0)), np.zeros(len(y)))
    return CarModel(areas, PHI, LAYOUT, Likelihood("gaussian", SD), rows), exact_areas(areas, PHI, y, area, SD)


@pytest.mark.parametrize("form", ["car", pytest.param("leroux", marks=pytest.mark.nightly)])
def test_draws_are_from_the_exact_posterior(seed, form):
    model, exact = case(form)
    s = chosen.hmc(draws=200, warmup=150, chains=20, leapfrog=6, seed=seed)
    server, clients = ham.run([model], s, prior=SigmaPrior(LAYOUT, PHI))
    draws = ham.together(server, clients)
    mean = np.concatenate([[exact.weight @ exact.x], exact.mean])
    variance = np.concatenate([[exact.weight @ (exact.x - mean[0]) ** 2], exact.variance])
    z = np.concatenate([ham.z_scores(draws, mean), ham.z_scores((draws - mean) ** 2, variance)])
    assert np.abs(z).max() < 4.5
    slip = PHI.at(draws[:, :, :1])[0]  # phi itself, whose mean would tell another hyperprior
    assert np.abs(ham.z_scores(slip, exact.weight @ exact.phi)).max() < 4.5
    other = exact_areas(model.areas, PHI, model.rows.y, model.rows.area, 1.5 * SD)  # negative control
    assert np.abs(ham.z_scores((draws[:, :, 1:] - other.mean) ** 2, other.variance)).max() > 5


def test_mean_field_means_are_nearly_exact_and_its_spread_too_small():
    """What docs/spec/sigma.md, section 8, says of mean-field inference on the true model."""
    model, exact = case("car")
    s = chosen.sfvi(rounds=2000, covariance="diagonal", local_covariance="diagonal", coupled=False, learning_rate=0.03)
    started = sfvi.start(s, SigmaPrior(LAYOUT, PHI), ("all",))
    _, clients = h.play(sfvi, started, {0: sfvi.client("all", 0, s, model, 1)})
    mean, covariance = sfvi.local_posterior(clients[0])
    assert np.sqrt(np.mean((mean - exact.mean) ** 2)) < 0.04
    ratio = np.sqrt(np.diag(covariance) / exact.variance)
    assert 0.75 < ratio.min() < ratio.max() < 1.02
