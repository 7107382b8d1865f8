"""The closed-form start of the variant "multiplicative": against the covariance, the exact likelihood and its own optimum."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import mlp
from fedkern.models.spatial.condition import Condition
from fedkern.models.spatial.start import best_factors, condition_nodes, multiplicative_start

X = np.linspace(0, 1, 100)
GROUPS, GAMMA = (34, 33, 33), 0.5
CONDITION = Condition("lengthscale", 0.2, 1.0, "unit")


def covariance(lengthscale: float) -> np.ndarray:
    return np.exp(-((X[:, None] - X) ** 2) / (2 * lengthscale**2))


def expected_log_density(S, C) -> float:
    """Mean of log N(theta; 0, C) over theta ~ N(0, S)."""
    return float(-0.5 * (np.linalg.slogdet(2 * np.pi * C)[1] + np.trace(np.linalg.solve(C, S))))


def decoder_covariance(a, parameters, t) -> np.ndarray:
    """Covariance of A(t) z_G + B_j(t) z_Lj by the definition of the variant."""
    (W, b), (V, c) = a.layers(parameters, "decoder_weights")
    s = V @ np.tanh(W @ t + b) + c
    Ms = [a.layers(parameters, f"decoder[{j}]")[0][0].reshape(n, a.rank, -1) for j, n in enumerate(a.groups)]
    maps = [np.einsum("r,irk->ik", s, M) for M in Ms]
    A = np.concatenate([M[:, : a.n_global] for M in maps])
    C, begin = A @ A.T, 0
    for M in maps:
        B = M[:, a.n_global :]
        C[begin : begin + len(M), begin : begin + len(M)] += B @ B.T
        begin += len(M)
    return C


@pytest.fixture(scope="module")
def started():
    a = mlp.Architecture("multiplicative", GROUPS)
    return a, multiplicative_start(a, covariance, *condition_nodes(CONDITION, 24), gamma=GAMMA, seed=3)


@pytest.mark.parametrize("lengthscale", [0.2, 0.33, 0.5, 0.8, 1.0])
def test_covariance_of_the_decoders(started, lengthscale) -> None:
    a, parameters = started
    C, K = decoder_covariance(a, parameters, CONDITION.network(np.array([lengthscale]))), covariance(lengthscale)
    assert np.linalg.norm(C - K) < 0.02 * np.linalg.norm(K)
    other = covariance(1.5 * lengthscale)
    assert np.linalg.norm(C - other) > 0.05 * np.linalg.norm(other)  # the error sees another lengthscale


def test_encoders_are_the_posterior(started) -> None:
    """The bound is near the exact log-density of the same decoders, and it would not be with encoders of other weights."""
    a, parameters = started
    rng, phi = np.random.default_rng(1), np.linspace(0.21, 0.99, 40)
    roots = [np.linalg.cholesky(covariance(p) + 1e-9 * np.eye(100)) for p in phi]
    theta = np.concatenate([rng.standard_normal((50, 100)) @ L.T for L in roots])
    t = CONDITION.network(np.repeat(phi, 50))[:, None]
    noise = rng.standard_normal((len(theta), a.n_latents))

    def gap(parameters) -> float:
        exact = []
        for row, p in zip(theta[::10], np.repeat(phi, 50)[::10]):
            C = decoder_covariance(a, parameters, CONDITION.network(np.array([p]))) + GAMMA**2 * np.eye(100)
            exact.append(expected_log_density(np.outer(row, row), C))
        bound = mlp.vae_gradient(parameters, theta[::10], t[::10], noise[::10], architecture=a, gamma=GAMMA)[1][0]
        return float(np.mean(exact) - bound)

    assert -0.2 < gap(parameters) < 0.4
    spoilt = parameters.copy()
    spoilt[a.parts["global_encoder"].where] *= 0.9
    assert gap(spoilt) > 1


def test_factors_can_not_be_bettered() -> None:
    """At the optimum of the likelihood, a step in any direction lowers it."""
    rng, S = np.random.default_rng(2), covariance(0.3)
    f = best_factors(S, GROUPS, 3, (2, 2, 2), GAMMA**2, sweeps=100)
    best = expected_log_density(S, f.covariance() + GAMMA**2 * np.eye(100))
    for _ in range(20):
        A = f.A + 1e-2 * rng.standard_normal(f.A.shape)
        B = tuple(M + 1e-2 * rng.standard_normal(M.shape) for M in f.B)
        assert expected_log_density(S, type(f)(A, B).covariance() + GAMMA**2 * np.eye(100)) < best
    few = best_factors(S, GROUPS, 3, (2, 2, 2), GAMMA**2)
    assert best - expected_log_density(S, few.covariance() + GAMMA**2 * np.eye(100)) < 0.8


def test_large_covariances_take_few_eigenvectors(monkeypatch) -> None:
    S = covariance(0.4) + 0.1 * np.eye(100)
    dense = best_factors(S, GROUPS, 4, (2, 1, 2), 0.2)
    monkeypatch.setattr("fedkern.models.spatial.start.DENSE", 10)
    assert np.allclose(best_factors(S, GROUPS, 4, (2, 1, 2), 0.2).covariance(), dense.covariance(), atol=1e-6)


def test_no_condition_and_more_latents_than_areas() -> None:
    a = mlp.Architecture("multiplicative", (6, 1), n_global=2, n_local=(3, 4))
    S = 0.3 * np.eye(7) + 0.7
    parameters = multiplicative_start(a, lambda _: S, *condition_nodes(Condition("none", 0.0, 0.0), 24), gamma=0.3, seed=1)
    C = decoder_covariance(a, parameters, np.zeros(1))
    assert np.all(np.isfinite(parameters))
    assert np.allclose(C, best_factors(S, (6, 1), 2, (3, 4), 0.09).covariance(), atol=1e-8)


def test_other_variants_are_refused() -> None:
    with pytest.raises(ValueError, match="the variant is 'amended'"):
        multiplicative_start(mlp.Architecture("amended", GROUPS), covariance, *condition_nodes(CONDITION, 4), gamma=0.5, seed=1)
