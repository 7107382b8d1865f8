"""What training makes of the two variants of sigma.md, section 1, at the settings of its section 8: a Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import mlp, spatial

# By day `test_printed_networks_leave_their_local_latents_dead` of algorithms/test_training.py sees it at small sizes.
pytestmark = pytest.mark.nightly

X = np.linspace(0, 1, 100)
GROUPS = (34, 33, 33)
GAMMA, STEPS, SEEDS = 0.5, 20_000, (1, 2)


def covariance(lengthscale):
    return np.exp(-((X[:, None] - X) ** 2) / (2 * lengthscale**2))


@pytest.fixture(scope="module")
def table():
    """256 lengthscales on (0.2, 1): factors of rank 14, which leave 1e-8 of the trace."""
    scales, factors = 0.2 + 0.8 * (np.arange(256) + 0.5) / 256, []
    for scale in scales:
        lengths, vectors = np.linalg.eigh(covariance(scale))
        factors.append(vectors[:, -14:] * np.sqrt(np.maximum(lengths[-14:], 0)))
    return spatial.DrawTable(np.reshape(factors, (256, -1)), scales[:, None], np.ones(100), "dense", 14)


@pytest.fixture(scope="module")
def trained(table):
    """(variant, seed) -> architecture, parameters, trace; the paper's 20,000 steps of 32 draws."""
    found = {}
    for variant in ("printed", "amended"):
        a = mlp.Architecture(variant, GROUPS)
        for seed in SEEDS:
            state = a.initial(seed).astype("f4"), np.zeros((2, a.n_parameters), "f4")
            schedule = {"rates": np.full(STEPS, 1e-3), "kl_weights": np.ones(STEPS)}
            options = {"architecture": a, "kind": "dense", "rank": 14, "batch": 32, "gamma": GAMMA, "clip": 1e3, "seed": seed}
            parameters, _, trace = mlp.vae_step(*state, table.values, table.phi, table.scale, **schedule, **options)
            found[variant, seed] = a, parameters.astype("f8"), trace
    return found


def net(layers, x):
    for i, (W, b) in enumerate(layers):
        x = x @ W.T + b
        if i == 0 and len(layers) > 1:
            x = np.maximum(x, 0)
    return x


def draws(a, parameters, lengthscale, n_global=400, n_local=50):
    """Decoder's values (n_global, n_local, d): for each z_G, several of the local latents."""
    random = np.random.default_rng(0)
    z_G = np.repeat(random.standard_normal((n_global, a.n_global)), n_local, axis=0)
    t = np.full((len(z_G), 1), lengthscale)
    h, found = net(a.layers(parameters, "global_decoder"), np.hstack([z_G, t])), []
    for j in range(len(a.groups)):
        m, log_v = np.hsplit(net(a.layers(parameters, f"prior[{j}]"), np.hstack([z_G, t])), 2)
        z = m + np.exp(np.clip(log_v, -12, 6) / 2) * random.standard_normal(m.shape)
        found.append(net(a.layers(parameters, f"decoder[{j}]"), np.hstack([h, z, t])))
    return np.hstack(found).reshape(n_global, n_local, -1)


def share_of_local_latents(mu):
    return mu.var(axis=1, ddof=1).mean() / mu.reshape(-1, mu.shape[2]).var(axis=0).mean()


def test_local_latents_of_the_printed_variant_die_and_those_of_the_amended_live(trained):
    for seed in SEEDS:
        printed, amended = (share_of_local_latents(draws(*trained[variant, seed][:2], 0.2)) for variant in ("printed", "amended"))
        assert printed < 1e-3
        assert amended > 0.1


def test_columns_of_the_printed_decoder_for_local_latents_are_driven_to_zero(trained):
    for seed in SEEDS:
        a, parameters, _ = trained["printed", seed]
        for j, q in enumerate(a.n_local):
            columns = slice(a.hidden, a.hidden + q)
            before, after = (abs(a.layers(p, f"decoder[{j}]")[0][0][:, columns]).mean() for p in (a.initial(seed), parameters))
            assert after < 0.1 * before


def test_the_amended_variant_has_the_higher_elbo_on_common_draws(trained, table):
    random = np.random.default_rng(1)
    theta, t = table.sample(99, 0, 20_000)
    noise, elbo = random.standard_normal((20_000, 20)), {}
    for (variant, seed), (a, parameters, _) in trained.items():
        elbo[variant, seed] = mlp.vae_gradient(parameters, theta, t, noise, architecture=a, gamma=GAMMA)[1][0]
    assert np.mean([elbo["amended", seed] - elbo["printed", seed] for seed in SEEDS]) > 0.1
    assert min(elbo.values()) > -32.5


def test_covariances_near_the_middle_of_the_range(trained):
    """Relative Frobenius error at lengthscale 0.5; independent points would have 0.98."""
    K = covariance(0.5)
    for variant, most in (("printed", 0.15), ("amended", 0.12)):
        errors = []
        for seed in SEEDS:
            mu = draws(*trained[variant, seed][:2], 0.5, 20_000, 1)
            errors.append(np.linalg.norm(np.cov(mu[:, 0].T) - K) / np.linalg.norm(K))
        assert np.mean(errors) < most
    a = trained["amended", 1][0]
    untrained = draws(a, a.initial(1), 0.5, 2000, 1)[:, 0]  # negative control
    assert np.linalg.norm(np.cov(untrained.T) - K) / np.linalg.norm(K) > 0.5


def test_the_objective_rises(trained):
    for _, _, trace in trained.values():
        assert np.isfinite(trace).all()
        assert trace[-500:, 0].mean() > trace[500:1000, 0].mean() > trace[:50, 0].mean()
