"""The exact prior inside each client: its factors and densities against dense algebra on small maps."""

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedkern.errors import NumericalError
from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, GpPrior, MixedPrior
from oracles.differences import four_point
from support.maps import grid, islands

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
NONE = Condition("none", 0.0, 0.0)
LENGTH = Condition("lengthscale", 0.2, 1.0, "unit")
SIZES, NAMES = (24, 18, 12, 10), ("north", "middle", "south", "rest")


def prior(form):
    """A rectangle of 8 x 8 cells; clients hold whole rows, or begin within one."""
    if form == "gp":
        return GpPrior(np.linspace(0, 1, 64)[:, None], LENGTH, "matern32")
    if form == "bym2":
        return MixedPrior(AreaPrior(*grid(8, 8), NONE, "bym2"))
    return AreaPrior(*grid(8, 8), PHI, form)


@pytest.fixture(scope="module", params=["car", "leroux", "gp", "bym2"])
def tied(request):
    return prior(request.param), factors.tie(prior(request.param), SIZES, NAMES, n_latents=16)


def places(clients):
    ends = np.cumsum([0, *(c.size for c in clients)])
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def joint(clients, phi):
    """(n, n) covariance of all areas, from what the clients hold."""
    ties = [c.ties(np.array([phi])) for c in clients]
    A = np.concatenate([c.loadings(t) for c, t in zip(clients, ties)])
    S = A @ A.T
    for where, c, t in zip(places(clients), clients, ties):
        S[where, where] = c.covariance(t)
    return S


def between(S, clients):
    out = S.copy()
    for where in places(clients):
        out[where, where] = 0
    return out


def test_blocks_are_exact_and_what_lies_between_is_near(tied):
    model, made = tied
    for share in (0.0, 0.31, 0.77, 1.0):
        phi = float(model.condition.along(np.array([share]))[0])
        want, got = model.covariance(phi), joint(made.clients, phi)
        for where in places(made.clients):
            np.testing.assert_allclose(got[where, where], want[where, where], atol=2e-4 * want.max())
        assert np.linalg.eigvalsh(got).min() > 0
        missing = between(got - want, made.clients)
        assert np.linalg.norm(missing) <= 0.15 * np.linalg.norm(between(want, made.clients)) + 1e-2


def test_what_clients_need_not_share_is_little(tied):
    model, made = tied
    few = factors.tie(model, SIZES, NAMES, n_latents=4, nodes=9)
    assert (made.errors <= few.errors).all()
    assert (made.errors < (0.12 if model.kind == "bym2" else 0.1)).all()
    assert (few.errors < 0.5).all()


def test_two_clients_share_their_canonical_correlations():
    model = prior("car")
    made = factors.tie(model, (40, 24), NAMES[:2], n_latents=8)
    S = model.covariance(0.9)
    np.testing.assert_allclose(joint(made.clients, 0.9), S, atol=3e-3 * S.max())


def test_density_is_the_dense_one_and_slopes_are_differences(tied):
    model, made = tied
    rng = np.random.default_rng(0)
    client = made.clients[1]
    for share in (0.13, 0.5, 0.97):
        phi = float(model.condition.along(np.array([share]))[0])
        ties = client.sloped(np.array([phi, phi]))
        theta, z = rng.normal(size=(2, client.size)), rng.normal(size=(2, client.n_latents))
        value, g_theta, g_z, g_phi = client.log_density(ties, theta, z)
        A = client.loadings(ties)
        want = multivariate_normal(A @ z[1], np.linalg.inv(client.precision(ties)), allow_singular=True).logpdf(theta[1])
        assert value[1] == pytest.approx(want, rel=1e-5, abs=1e-3 if model.kind == "gp" else 1e-6)

        def at(theta=theta[0], z=z[0], phi=phi):
            one = client.sloped(np.array([phi]))
            return client.log_density(one, theta[np.newaxis], z[np.newaxis])[0][0]

        scale = 5e-6 * (1 + np.abs(g_theta[0]).max())
        np.testing.assert_allclose(g_theta[0], four_point(lambda x: at(theta=x), theta[0]), rtol=5e-6, atol=scale)
        np.testing.assert_allclose(g_z[0], four_point(lambda x: at(z=x), z[0]), rtol=5e-6, atol=scale)
        slope = four_point(lambda x: at(phi=float(x[0])), np.array([phi]), step=1e-5)[0]
        assert g_phi[0] == pytest.approx(slope, rel=1e-5)


def test_ties_go_through_the_values_that_a_client_holds_and_those_with_slopes_are_the_same(tied):
    """By B-splines of which few are not 0 at one phi, beside weights of all values."""
    client, model = tied[1].clients[1], tied[0]
    phi = model.condition.along(np.linspace(0, 1, len(client.nodes)))
    whole, sloped = client.ties(phi), client.sloped(phi)
    np.testing.assert_allclose(whole.U, client.U, rtol=0, atol=1e-9 * np.abs(client.U).max())
    np.testing.assert_allclose(whole.K, client.K, rtol=0, atol=1e-9 * max(np.abs(client.K).max(initial=0.0), 1e-300))
    root = np.sqrt(whole.phi)[:, None, None] if client.rooted else 1.0
    np.testing.assert_allclose(whole.W, root * client.W, rtol=0, atol=1e-9 * np.abs(client.W).max())
    for what in ("phi", "U", "W", "K", "G", "log_norm"):
        np.testing.assert_allclose(getattr(whole, what), getattr(sloped, what), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sloped.dWW, sloped.dW @ sloped.W.transpose(0, 2, 1), rtol=0, atol=0)
    for k in (0, len(phi) // 2, len(phi) - 1):
        one = client.ties(phi[k : k + 1])
        assert client._weights(phi[k : k + 1])[0].shape[1] <= 7
        for what in ("U", "W", "K", "log_norm"):
            np.testing.assert_allclose(getattr(one, what)[0], getattr(whole, what)[k], rtol=1e-10, atol=1e-10)


def test_areas_that_touch_nobody_are_exact_and_alone():
    indptr, indices = islands()
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    place = np.argsort(order)
    rows = [np.sort(place[indices[indptr[k] : indptr[k + 1]]]) for k in order]
    lengths = np.cumsum([0, *map(len, rows)])
    model = AreaPrior(lengths.astype(np.int64), np.concatenate(rows).astype(np.int64), PHI)
    made = factors.tie(model, (2, 2, 3, 1), NAMES, n_latents=2)
    np.testing.assert_allclose(joint(made.clients, 0.8), model.covariance(0.8), atol=2e-4)
    assert [len(c.border) for c in made.clients] == [1, 1, 0, 0]


def pieces():
    """BYM2 on a path, a triangle and an area that is alone, and its covariance by generalised inverses of each piece."""
    indptr, indices = islands()
    want = np.zeros((8, 8))
    for piece in ([0, 2, 4, 6], [1, 3, 5]):
        W = np.array([[float(k in indices[indptr[i] : indptr[i + 1]]) for k in piece] for i in piece])
        C = np.linalg.pinv(np.diag(W.sum(axis=0)) - W)
        want[np.ix_(piece, piece)] = C / np.exp(np.log(C.diagonal()).mean())
    want[7, 7] = 1.0
    return MixedPrior(AreaPrior(indptr, indices, NONE, "bym2")), want


def test_bym2_has_the_scale_of_each_component():
    """Freni-Sterrantino, Ventrucci and Rue (2018)."""
    model, structured = pieces()
    for rho in (0.0, 0.3, 0.99):
        want = (1 - rho) * np.eye(8) + rho * structured
        np.testing.assert_allclose(model.covariance(rho), want, atol=1e-12)
        np.testing.assert_allclose(model.variances(np.array([rho]))[0], want.diagonal(), atol=1e-12)
    assert structured[:7, :7].sum() == pytest.approx(0, abs=1e-12)
    theta = model.table(64, 1).sample(1, 0, 40_000)[0]
    np.testing.assert_allclose(theta.T @ theta / len(theta), 0.505 * np.eye(8) + 0.495 * structured, atol=0.04)


def test_bym2_of_several_components_is_exact_inside_clients():
    model, structured = pieces()
    made = factors.tie(model, (3, 2, 2, 1), NAMES, n_latents=6)
    got, want = joint(made.clients, 0.8), 0.2 * np.eye(8) + 0.8 * structured
    for where in places(made.clients):
        np.testing.assert_allclose(got[where, where], want[where, where], atol=1e-6)
    np.testing.assert_allclose(got, want, atol=0.02)
    assert not got[7, :7].any() or np.abs(got[7, :7]).max() < 1e-8


def test_as_many_latents_as_an_error_takes():
    model = prior("car")
    r = factors.enough(factors.Division(model, SIZES, NAMES), 0.05)
    assert 1 < r < 30
    made = factors.tie(model, SIZES, NAMES, nodes=9)
    assert made.clients[0].n_latents == r
    assert (made.errors <= 0.06).all()


def test_many_latents_are_found_by_extrapolation(monkeypatch):
    """The same number as by halving alone, to a twentieth; no more than are allowed."""
    division = factors.Division(prior("car"), SIZES, NAMES)
    want = factors.enough(division, 0.02)
    monkeypatch.setattr(factors, "TRIED", 3)
    assert abs(factors.enough(division, 0.02) - want) <= max(1, want // 10)
    assert factors.enough(division, 0.02, most=5) == 5
    assert factors.enough(division, 10.0) == 1


def test_factors_of_large_maps_are_those_of_small_ones(monkeypatch):
    """Subspace iteration from the neighbouring node, instead of eigenvalue problems."""
    model = prior("car")
    want = factors.tie(model, SIZES, NAMES, n_latents=12, nodes=9)
    monkeypatch.setattr(factors, "LARGE", 10)
    monkeypatch.setattr(factors, "leading", counted := Counted(factors.leading))
    made = factors.tie(model, SIZES, NAMES, n_latents=12, nodes=9)
    assert counted.near == 8
    assert (made.errors <= 1.02 * want.errors + 1e-4).all()
    assert not np.array_equal(made.clients[0].W, want.clients[0].W)
    for phi in (0.3, 0.9):
        np.testing.assert_allclose(joint(made.clients, phi), joint(want.clients, phi), atol=2e-2)


class Counted:
    """`leading`, and how often it began near the answer."""

    def __init__(self, made):
        self.made, self.near = made, 0

    def __call__(self, *arguments):
        self.near += len(arguments) > 5
        return self.made(*arguments)


def test_what_cannot_be_factored_is_named():
    division = factors.Division(prior("car"), SIZES, NAMES)
    with pytest.raises(NumericalError, match=r"client 'north'.*phi = 1.2"):
        division.borders(1.2)
    with pytest.raises(ValueError, match="bym2"):
        factors.tie(AreaPrior(*grid(4, 4), Condition("none", 0.0, 0.0), "bym2"), (8, 8), ("a", "b"))
    with pytest.raises(ValueError, match="areas are not those"):
        factors.tie(prior("car"), (3, 4), ("a", "b"))
