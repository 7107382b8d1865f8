"""The machine of nested Laplace approximations: exact posteriors, any order of messages, saved states, and its verdicts."""

import random
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.nested import design
from fedkern.algorithms.nested import machine as nested
from fedkern.algorithms.nested.design import Search, Source
from fedkern.errors import LostPeer, NumericalError
from support import nested_cases as cases
from support.federations import play
from support.refusal import refusal

FEW = {"points": 128, "questions": 1, "most": 1}


@pytest.fixture(scope="module")
def gaussian():
    return cases.simulated("car", 4, (4, 4, 4, 4), "gaussian", 1, sd=0.5, truth=(0.3, 0.8, 1.0))[0]


@pytest.fixture(scope="module")
def ended(gaussian):
    return cases.fitted(gaussian)


@dataclass(frozen=True)
class Together:
    """All rows in one place."""

    sites: list

    @property
    def n_areas(self):
        return sum(site.n_areas for site in self.sites)

    def curvatures(self, xi):
        several = [site.curvatures(xi) for site in self.sites]
        return tuple(sum(one[i] for one in several) for i in range(3))

    def log_ratios(self, xi, normals):
        parts = np.split(normals, np.cumsum([site.n_areas for site in self.sites])[:-1], axis=1)
        return sum(site.log_ratios(xi, part) for site, part in zip(self.sites, parts, strict=True))


def off(found, exact):
    """Name -> distance of means in sds, and the ratio of sds."""
    return {name: ((found[name][0] - mean) / sd, found[name][1] / sd) for name, (mean, sd) in exact.items()}


def near(found, exact):
    return all(abs(mean) < 0.05 and 0.95 < ratio < 1.05 for mean, ratio in off(found, exact).values())


def test_a_gaussian_response_has_the_exact_posterior(gaussian, ended):
    found = nested.read_result(ended[0])
    assert found.converged, found.reason
    assert found.posterior.k_hat < 0.7
    assert near(cases.moments(gaussian, found), cases.exact(gaussian, 41))
    assert ended[0].round < 60
    assert ended[1][2].told.shape == (1000, gaussian.layout.size)


def test_clients_together_have_the_posterior_of_clients_apart(gaussian, ended):
    pooled = nested.read_result(cases.fitted(gaussian, sites=[Together(gaussian.sites())])[0])
    apart = nested.read_result(ended[0])
    assert pooled.places == apart.places
    np.testing.assert_allclose(pooled.posterior.log_ratios, apart.posterior.log_ratios, atol=1e-7)
    np.testing.assert_allclose(pooled.posterior.draws, apart.posterior.draws, atol=1e-7)


def test_neither_the_order_of_messages_nor_a_saved_state_changes_a_bit(gaussian):
    s, names = nested.Settings(rounds=100, seed=1, **FEW), ("a", "b", "c", "d")

    def begun():
        parties = {k: nested.client(names[k], k, s, site, gaussian.prior.n_linear) for k, site in enumerate(gaussian.sites())}
        return nested.start(s, gaussian.prior, names), parties

    start, parties = begun()
    whole, told = play(nested.PROTOCOL, start, parties)
    start, parties = begun()
    mixed, _ = play(nested.PROTOCOL, start, parties, random.Random(3))
    for round in (2, whole.round - 1):
        start, parties = begun()
        server, clients, inbox = play(nested.PROTOCOL, start, parties, pause=lambda server, at=round: server.round == at)
        (fresh, _), again = begun()
        restored = nested.load(fresh, nested.save(server))
        again = {k: nested.load(again[k], nested.save(clients[k])) for k in again}
        resumed, heard = play(nested.PROTOCOL, (restored, inbox), again)
        for other in (mixed, resumed):
            assert np.array_equal(nested.read_result(other).posterior.log_ratios, nested.read_result(whole).posterior.log_ratios)
        assert np.array_equal(heard[1].told, told[1].told)


class Faulty:
    """A site, with something wrong."""

    def __init__(self, site, *, curvatures=None, log_ratios=None):
        self.n_areas = site.n_areas
        self.curvatures = curvatures or site.curvatures
        self.log_ratios = log_ratios or site.log_ratios


def with_fault(case, **fault):
    first, *others = case.sites()
    return [Faulty(first, **fault), *others]


def test_what_is_not_finite_is_named(gaussian):
    def never(xi, *more):
        raise NumericalError("no")

    with pytest.raises(NumericalError, match=r"client '0' is not finite where the search begins"):
        cases.fitted(gaussian, sites=with_fault(gaussian, curvatures=never), **FEW)
    with refusal(NumericalError, "0", "100"):
        cases.fitted(gaussian, sites=with_fault(gaussian, log_ratios=never), **FEW)


def test_a_point_that_fails_does_not_take_its_neighbours_with_it(gaussian, ended):
    site = gaussian.sites()[0]

    def seldom(xi, normals):
        if (xi[:, 0] > np.quantile(ended[0].mixture.draws(1000, (1, 0)).v[:, 0], 0.999) * 2.0).any():
            raise NumericalError("far out")
        return site.log_ratios(xi, normals)

    found = nested.read_result(cases.fitted(gaussian, sites=with_fault(gaussian, log_ratios=seldom), **FEW)[0])
    assert np.isfinite(found.posterior.log_ratios).mean() > 0.95


def test_weights_find_clients_that_answer_of_other_rows(gaussian):
    other = replace(gaussian, y=gaussian.y + 4.0).sites()[0]
    found = nested.read_result(cases.fitted(gaussian, sites=with_fault(gaussian, curvatures=other.curvatures), **FEW)[0])
    assert not found.converged
    assert "of equal weight (wanted 400)" in found.reason


def test_more_draws_are_asked_while_they_can_mend_it(gaussian):
    """With 128 draws a question one is never enough, and as many as their error asks for are. A limit ends them, with the number
    that would do; where k-hat is large none does, and none is asked."""
    few = {"points": 128, "questions": 1, "effective": 40.0}
    server, _ = cases.fitted(gaussian, **few)
    found, first = nested.read_result(server), nested.read_result(cases.fitted(gaussian, **few, most=1)[0])
    assert not first.converged
    assert max(first.error) > 0.05
    (said,) = re.findall(
        r"about (\d+) draws would do, and at most 128 are asked; take algorithm.inference = \"hmc\"", first.reason
    )
    assert found.converged, found.reason
    assert 1 < found.questions <= 16
    assert 0.3 < 128 * found.questions / int(said) < 3
    other = replace(gaussian, y=gaussian.y + 4.0).sites()[0]
    wrong = nested.read_result(cases.fitted(gaussian, sites=with_fault(gaussian, curvatures=other.curvatures), **few)[0])
    assert wrong.posterior.k_hat > 0.7
    assert wrong.questions == 1
    assert "more draws do not mend it" in wrong.reason


def test_a_lattice_that_ends_too_early_is_said(gaussian, monkeypatch):
    monkeypatch.setattr(design, "MOST", 6)
    found = nested.read_result(cases.fitted(gaussian, **FEW)[0])
    assert not found.converged
    assert "nats below its mode where their lattice ends (wanted 5.5)" in found.reason


def test_rounds_that_are_too_few_are_said(gaussian):
    s = nested.Settings(rounds=3, seed=1)
    parties = {k: nested.client(str(k), k, s, site, gaussian.prior.n_linear) for k, site in enumerate(gaussian.sites())}
    with refusal(NumericalError, "3", "Laplace"):
        play(nested.PROTOCOL, nested.start(s, gaussian.prior, ("0", "1", "2", "3")), parties)


def test_what_is_no_answer_is_refused(gaussian):
    s = nested.Settings(rounds=100, seed=1)
    server, effects = nested.start(s, gaussian.prior, ("a", "b"))
    with refusal(RemoteFault, "Marginals"):
        nested.server_receive(server, 0, nested.Marginals(0, np.zeros(s.points), 0.0))
    with pytest.raises(LostPeer, match="client 'b' is gone in round 0"):
        nested.server_receive(server, 1, ClientLost(1))
    party = nested.client("a", 0, s, gaussian.sites()[0], gaussian.prior.n_linear)
    with refusal(RemoteFault, "AskCurvatures"):
        nested.client_receive(party, replace(effects[0][1], round=1))
    with pytest.raises(RemoteFault, match="AskCurvatures of 17 places"):
        nested.client_receive(party, replace(effects[0][1], count=17))


def test_steps_that_go_too_far_are_shortened():
    search = Search.begin(np.zeros((2, 0)), np.array([[3.0], [-0.5]]))
    for _ in range(30):
        which = search.open
        u = search.trial[which, 0]  # of -log cosh, Newton's step from 3 is to -98
        value, gradient, hessian = -np.log(np.cosh(u)), -np.tanh(u)[:, np.newaxis], 1 / np.cosh(u)[:, np.newaxis, np.newaxis] ** 2
        search = search.answered(which, value, gradient, hessian)
        if not len(search.open):
            break
    assert search.ended.all()
    np.testing.assert_allclose(search.at[:, 0], 0, atol=0.02)


def test_differences_of_a_quadratic_are_its_derivatives():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((3, 3))
    H, g, middle, steps = A @ A.T + np.eye(3), rng.standard_normal(3), rng.standard_normal(3), np.array([0.1, 0.3, 0.2])
    off = design.stencil(middle, steps) - middle
    gradient, hessian = design.derivatives(off @ g - 0.5 * np.einsum("ki,ij,kj->k", off, H, off), steps)
    np.testing.assert_allclose(gradient, g)
    np.testing.assert_allclose(hessian, H)
    step, sds = design.toward(gradient, 100 * hessian)
    np.testing.assert_allclose(100 * hessian @ step, gradient)
    assert sds == pytest.approx(np.sqrt(gradient @ step))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_the_density_of_draws_is_theirs(n):
    """Of a normal distribution that is known at the lattice: the mean weight is 1, and all weights are near."""
    rng = np.random.default_rng(n)
    slope, lattice = rng.standard_normal((n, 2)), design.Lattice(np.full(n, 0.1), 0.4 * np.eye(n))
    cells = np.zeros((1, n), int)
    while True:
        v = lattice.v(cells)
        log_density = -0.5 * ((v - 0.1) ** 2).sum(axis=1) / 0.16
        more = lattice.wanted(cells, log_density, 0.0)
        if not len(more):
            break
        cells = np.concatenate([cells, more])
    H = np.broadcast_to(np.array([[2.0, 0.5], [0.5, 1.0]]), (len(v), 2, 2)) * np.exp(0.3 * v.sum(axis=1))[:, None, None]
    draws = Source(lattice, v, v @ slope, H, log_density).draws(2000, (1, 2))
    e = draws.u - draws.v @ slope
    scale = np.exp(0.3 * draws.v.sum(axis=1))
    Q = np.einsum("ki,ij,kj->k", e, H[0] / np.exp(0.3 * v[0].sum()), e) * scale
    normal = -0.5 * Q + np.log(scale) + 0.5 * np.log(1.75) - np.log(2 * np.pi)
    hyper = -0.5 * ((draws.v - 0.1) ** 2).sum(axis=1) / 0.16 - 0.5 * n * np.log(2 * np.pi * 0.16)
    ratio = np.exp(hyper + normal - draws.log_density)
    assert ratio.mean() == pytest.approx(1, abs=0.008)
    assert ratio.sum() ** 2 / (ratio**2).sum() > 0.9 * len(ratio)
