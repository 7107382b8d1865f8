"""The priors that networks stand in for: against dense algebra, their draws against their covariances, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gamma, kv

from fedkern.data.graph import from_pairs, grid
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, GpPrior, stratified

PHI = Condition("phi", 0.0, 0.99, "unit", Hyperprior("logit-normal"))
NONE = Condition("none", 0.0, 0.0)
LENGTH = Condition("lengthscale", 0.2, 1.0)


def two_maps_and_an_island():
    """A 4 x 3 grid, a path of three areas, and an area without neighbours."""
    one = grid(4, 3)
    pairs = np.concatenate([np.column_stack([one.rows, one.indices]), [[12, 13], [13, 14]]])
    return from_pairs([str(k) for k in range(16)], pairs)


GRAPH = two_maps_and_an_island()


def prior(form):
    return AreaPrior(GRAPH.indptr, GRAPH.indices, NONE if form == "bym2" else PHI, form)


def laplacian():
    W = np.zeros((16, 16))
    W[GRAPH.rows, GRAPH.indices] = 1
    return np.diag(W.sum(axis=1)), W


def precision(form, phi):
    D, W = laplacian()
    D[15, 15] = 1  # the island is independent, of variance 1
    if form == "leroux":
        return (1 - phi) * np.eye(16) + phi * (D - W)
    return D - phi * W


@pytest.mark.parametrize("form", ["car", "leroux"])
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.99])
def test_covariances_invert_precisions(form, phi):
    made = prior(form)
    Q, K = precision(form, phi), made.covariance(phi)
    assert np.abs(Q @ K - np.eye(16)).max() < 1e-12
    assert np.allclose(made.variances(np.array([phi, 0.3]))[0], np.diag(K), rtol=1e-12)
    assert np.abs(precision("leroux" if form == "car" else "car", 0.5) @ K - np.eye(16)).max() > 0.1  # another prior is noticed


def test_the_spatial_part_of_bym2():
    K = prior("bym2").covariance(0.0)
    for part in (slice(0, 12), slice(12, 15)):
        assert np.abs(K[part, part].sum(axis=0)).max() < 1e-12  # draws sum to zero in each component
        assert abs(np.log(np.diag(K)[part]).mean()) < 1e-12  # and the geometric mean of their variances is 1
        D, W = laplacian()
        Q = (D - W)[part, part]
        scale = np.trace(Q @ K[part, part]) / (Q.shape[0] - 1)
        assert np.allclose(Q @ K[part, part] @ Q, scale * Q)
    assert not K[:12, 12:].any()
    assert K[15, 15] == 1.0


def worst_score(theta, K):
    """The largest deviation of an empirical covariance, in standard errors."""
    error = np.sqrt((K**2 + np.outer(np.diag(K), np.diag(K))) / len(theta))
    return np.max(np.abs(theta.T @ theta / len(theta) - K)[error > 0] / error[error > 0])


@pytest.mark.parametrize("form", ["car", "leroux", "bym2"])
def test_draws_of_a_table_have_the_covariance_of_their_phi(form, seed):
    made = prior(form)
    table = made.table(3, seed)
    theta, phi = table.sample(seed, 0, 60_000)
    values = np.unique(phi)
    assert len(values) == (1 if form == "bym2" else 3)
    for value in values:
        own = theta[phi[:, 0] == value]
        assert worst_score(own, made.covariance(value)) < 5.5
        assert worst_score(1.1 * own, made.covariance(value)) > 7
    if form != "bym2":
        assert worst_score(theta[phi[:, 0] == values[0]], made.covariance(values[-1])) > 7


def test_draws_of_a_process(seed):
    x = np.linspace(0, 1, 30)[:, None]
    made = GpPrior(x, LENGTH)
    table = made.table(3, seed)
    assert table.rank < 15
    theta, phi = table.sample(seed, 0, 60_000)
    for value in np.unique(phi):
        K = np.exp(-((x - x.T) ** 2) / (2 * value**2))
        assert np.allclose(made.covariance(value), K)
        assert worst_score(theta[phi[:, 0] == value], K) < 5.5
        assert worst_score(theta[phi[:, 0] == value], np.exp(-((x - x.T) ** 2) / value**2)) > 7


def test_matern_covariances():
    x = np.array([[0.0], [0.3], [1.0]])
    r = np.abs(x - x.T)
    for kind, nu in (("matern12", 0.5), ("matern32", 1.5), ("matern52", 2.5)):
        K = GpPrior(x, LENGTH, kind).covariance(0.4)
        s = np.sqrt(2 * nu) * r[r > 0] / 0.4
        assert np.allclose(K[r > 0], s**nu * kv(nu, s) * 2 ** (1 - nu) / gamma(nu))
        assert np.allclose(np.diag(K), 1)


def test_phi_is_stratified():
    phi = stratified(PHI, 50, 3)
    assert np.array_equal(np.floor(phi / 0.99 * 50), np.arange(50))
    assert not np.array_equal(phi, stratified(PHI, 50, 4))


def test_averages_over_phi():
    made = prior("car")
    phi, weight = PHI.quadrature(200)
    assert np.allclose(made.mean_variance(), weight @ np.stack([np.diag(made.covariance(p)) for p in phi]), rtol=1e-9)
    fine = (np.arange(2000) + 0.5) / 2000 * 0.99
    assert np.allclose(made.training_sd() ** 2, made.variances(fine).mean(axis=0), rtol=1e-3)
    assert made.mean_variance()[0] < made.training_sd()[0] ** 2  # phi near 1 is rarer in the prior than in training
    assert np.allclose(prior("bym2").training_sd() ** 2, np.diag(prior("bym2").covariance(0.0)))


def test_kept_eigenvectors_give_the_same():
    made = prior("car")
    again = made.with_eigen(made.eigen)
    assert np.array_equal(again.covariance(0.7), made.covariance(0.7))
    with pytest.raises(ValueError, match="eigenvectors of 3 areas, wanted 16"):
        made.with_eigen((np.ones(3), np.eye(3)))


def test_a_lengthscale_far_below_the_spacing_is_told():
    x = np.linspace(0, 1, 21)[:, None]
    assert GpPrior(x, Condition("lengthscale", 0.03, 1.0)).warnings() == ()
    (text,) = GpPrior(x, Condition("lengthscale", 0.01, 1.0)).warnings()
    assert "from 0.01 are far below the spacing of the points (0.05)" in text


def test_truncation_is_told():
    (text,) = prior("car").warnings()
    assert text == "the prior of phi is truncated to [0, 0.99]: 0.00058 of its mass lies outside"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AreaPrior(GRAPH.indptr, GRAPH.indices, NONE, "car"), "car has a hyperparameter"),
        (lambda: AreaPrior(GRAPH.indptr, GRAPH.indices, PHI, "bym2"), "bym2 has no hyperparameter"),
        (lambda: GpPrior(np.zeros((2, 1)), LENGTH), "two are the same"),
        (lambda: GpPrior(np.zeros(3), LENGTH), "needs points"),
        (lambda: GpPrior(np.array([[0.0], [np.inf]]), LENGTH), "finite"),
        (lambda: GpPrior(np.eye(2), PHI), "has a lengthscale"),
    ],
)
def test_faults(make, text):
    with pytest.raises(ValueError, match=text):
        make()
