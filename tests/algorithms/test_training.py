"""Training of priors: schedules, exact resumption, the end of a run that diverges, and what a trained prior is measured by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.training import fit as prior_fit
from fedkern.algorithms.training import training as sigma_training
from fedkern.algorithms.training.fit import Federation
from fedkern.algorithms.training.training import Diverged, Settings, State, start, train
from fedkern.data.graph import grid
from fedkern.kernels import mlp
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, GpPrior
from support import chosen

GRAPH = grid(4, 3)
CAR = AreaPrior(GRAPH.indptr, GRAPH.indices, Condition("phi", 0.0, 0.95, "unit", Hyperprior("logit-normal")))
SIZES = (6, 6)
SETTINGS = chosen.training(steps=60, batch=8, chunk=10, seed=3, learning_rate=3e-3)


def architecture(variant="multiplicative", sizes=SIZES, p=3, q=2):
    return mlp.Architecture(variant, sizes, 1, p, (q,) * len(sizes), 6, 5, 4, 2)


def table(prior=CAR, entries=8, seed=3, sd=None):
    made = prior.table(entries, seed)
    sd = prior.training_sd() if sd is None else sd
    return replace(made, phi=prior.condition.network(made.phi), scale=made.scale / sd)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.save().values(), other.save().values()))


def test_schedules():
    s = chosen.training(steps=100, learning_rate=1.0, decay=0.4, warmup=0.1)
    rates, weights = s.rates(0, 100), s.kl_weights(0, 100)
    assert (rates[:61] == 1).all()
    assert np.allclose(np.diff(rates[60:]), -0.99 / 40)
    assert 0.01 < rates[-1] < 0.04
    assert np.allclose(weights[:10], np.arange(1, 11) / 10)
    assert (weights[10:] == 1).all()
    assert np.array_equal(s.rates(30, 40), rates[30:70])
    flat = chosen.training(steps=100, learning_rate=1.0, decay=0.0, warmup=0.0)
    assert (flat.rates(0, 100) == 1).all()
    assert (flat.kl_weights(0, 100) == 1).all()


@pytest.mark.parametrize("more", [{}, {"learn_gamma": True}, {"refresh": 20}, {"precision": "float64"}])
@pytest.mark.parametrize("stop", [10, 30])
def test_a_resumed_training_gives_the_bits_of_the_uninterrupted_one(more, stop):
    settings = replace(SETTINGS, **more)
    whole = train(architecture(), lambda k: table(seed=3 + k), settings)
    half = train(architecture(), lambda k: table(seed=3 + k), settings, report=lambda at: at.step >= stop)
    assert half.step == stop
    kept = State.load(half.save(), settings.precision)
    assert same(kept, half)
    resumed = train(architecture(), lambda k: table(seed=3 + k), settings, state=kept)
    assert same(resumed, whole)
    assert whole.step == 60
    assert whole.curve[:, 0].tolist() == [10, 20, 30, 40, 50, 60]
    assert not same(train(architecture(), lambda k: table(seed=4 + k), settings), whole)  # other draws are noticed


def test_chunks_do_not_matter_where_gamma_is_given():
    few = train(architecture(), lambda k: table(), replace(SETTINGS, chunk=60))
    many = train(architecture(), lambda k: table(), replace(SETTINGS, chunk=7))
    assert np.array_equal(few.parameters, many.parameters)
    assert np.array_equal(few.moments, many.moments)


def test_training_helps():
    settings = replace(SETTINGS, steps=400, chunk=100)
    first = start(architecture(), settings)
    last = train(architecture(), lambda k: table(), settings)
    before, after = (sigma_training.objective(architecture(), at, table(), draws=500) for at in (first, last))
    assert after["elbo"] > before["elbo"] + 1
    assert set(after) == {"elbo", "squares", "kl_global", "kl_local"}


def test_learnt_gamma_is_the_residual_s_standard_deviation():
    settings = replace(SETTINGS, steps=600, chunk=20, learn_gamma=True, gamma=2.0)
    done = train(architecture(), lambda k: table(), settings)
    residual = np.sqrt(done.curve[-10:, 2].mean() / 12)
    assert abs(done.gamma / residual - 1) < 0.1
    assert done.gamma < 1.2


@pytest.mark.parametrize("chunk", [60, 7, 1])
def test_a_diverging_run_keeps_the_last_good_parameters_and_names_the_iteration(chunk):
    """Rates jump at some iteration: the parameters after it have no finite objective, those before it have."""

    class Jump(Settings):
        def rates(self, first, n):
            return np.where(np.arange(first, first + n) == 20, 1e30, 1e-3)

    settings = Jump(**(vars(SETTINGS) | {"chunk": chunk}))
    with np.errstate(all="ignore"), pytest.raises(Diverged, match=r"iteration 22 has an objective.*learning_rate") as caught:
        train(architecture(), lambda k: table(), settings)
    kept = caught.value.state
    assert kept.step == 20
    good = train(architecture(), lambda k: table(), replace(settings, chunk=20), report=lambda at: at.step == 20)
    assert np.array_equal(kept.parameters, good.parameters)
    assert np.isfinite(sigma_training.objective(architecture(), kept, table(), draws=50)["elbo"])


def test_a_run_that_begins_without_a_finite_objective_has_nothing_to_keep():
    state = start(architecture(), SETTINGS)
    state = replace(state, parameters=state.parameters * np.float32(np.inf))
    with np.errstate(all="ignore"), pytest.raises(Diverged, match="iteration 1 has") as caught:
        train(architecture(), lambda k: table(), SETTINGS, state=state)
    assert caught.value.state is None


def test_a_state_of_another_architecture_or_precision_is_refused():
    state = start(architecture(), SETTINGS)
    with pytest.raises(ValueError, match="another architecture or precision"):
        train(architecture("amended"), lambda k: table(), SETTINGS, state=state)
    with pytest.raises(ValueError, match="another architecture or precision"):
        train(architecture(), lambda k: table(), replace(SETTINGS, precision="float64"), state=state)


def test_stored_draws_are_used_again():
    made = sigma_training.stored(table(), 50, 3)
    assert made.kind == "stored"
    theta, phi = made.sample(1, 0, 4000)
    assert len(np.unique(theta, axis=0)) == 50
    assert np.array_equal(np.unique(phi), np.unique(made.phi))


def linear_federation(seed=1):
    """The variant whose decoder is linear given phi: its covariance is known exactly."""
    made, g = architecture(), np.random.default_rng(seed)
    parameters = g.normal(0, 0.6, made.n_parameters)
    return Federation(made, parameters, CAR.condition, CAR.training_sd())


def exact_covariance(federation, phi):
    """By the decoder's values at unit vectors."""
    a = federation.architecture
    e = np.eye(a.n_latents)
    A = federation.values(e[:, : a.n_global], e[:, a.n_global :], np.full(a.n_latents, phi)).T
    return A @ A.T, A[:, a.n_global :] @ A[:, a.n_global :].T


def test_a_client_gets_its_own_parts_only():
    for variant in ("printed", "amended", "multiplicative"):
        made = architecture(variant, (4, 5))
        federation = Federation(made, np.arange(float(made.n_parameters)), CAR.condition, np.ones(9))
        own = [federation.parts(j) for j in range(2)]
        for j in range(2):
            others = {n for n in made.parts if n.endswith(f"[{1 - j}]") or n == "global_encoder"}
            numbers = np.concatenate(list(own[j].values()))
            for name in others:
                assert not np.isin(federation.parameters[made.parts[name].where], numbers).any()
            wanted = set(made.parts) - others
            assert set(own[j]) == {name.removesuffix(f"[{j}]") for name in wanted}


def test_the_comparison_is_that_of_the_exact_covariance():
    federation, phi = linear_federation(), 0.7
    C, local = exact_covariance(federation, phi)
    K = CAR.covariance(phi)
    found = prior_fit.compare(CAR, federation, phi, draws=40_000)
    apart = np.repeat([0, 1], 6)[:, None] != np.repeat([0, 1], 6)
    assert found.error == pytest.approx(np.linalg.norm(C - K) / np.linalg.norm(K), rel=0.03)
    assert found.error_split == pytest.approx(np.linalg.norm(C - K) / np.linalg.norm(K), rel=0.03)
    assert found.cross == pytest.approx(np.linalg.norm((C - K)[apart]) / np.linalg.norm(K[apart]), rel=0.05)
    assert found.cross_split == pytest.approx(found.cross, rel=0.05)
    R, T = (M / np.sqrt(np.outer(np.diag(M), np.diag(M))) for M in (C, K))
    assert found.largest_cross_correlation == pytest.approx(np.abs(R - T)[apart].max(), abs=0.03)
    noisy = R * np.sqrt(np.outer(np.diag(C), np.diag(C)) / np.outer(np.diag(C) + 0.3, np.diag(C) + 0.3))
    with_tau = prior_fit.cross_correlation_error(K, C, federation.client, 0.3)
    assert with_tau == pytest.approx(np.abs(noisy - T)[apart].max(), rel=1e-9)
    assert found.variance_ratio == pytest.approx(np.mean(np.diag(C) / np.diag(K)), rel=0.03)
    assert found.local_share == pytest.approx(np.trace(local) / np.trace(C), rel=0.08)
    assert found.as_dict().keys() >= {"phi", "error", "cross"}


def test_the_error_of_posterior_means_is_that_of_the_means():
    """Of rows that are drawn: a prior whose areas depend on each other somewhat less, and none of which does."""
    K = CAR.covariance(0.95)
    n, v = len(K), float(np.diag(K).mean())
    y = np.linalg.cholesky(K + v * np.eye(n)) @ np.random.default_rng(5).normal(size=(n, 40_000))

    def means(S):
        return S @ np.linalg.solve(S + v * np.eye(n), y)

    alone = np.sqrt(np.mean((means(np.diag(np.diag(K))) - means(K)) ** 2))
    for share in (0.05, 0.2):
        S = (1 - share) * K + share * np.diag(np.diag(K))
        true = np.sqrt(np.mean((means(S) - means(K)) ** 2)) / alone
        assert prior_fit.mean_error(K, [S, S]) == pytest.approx(true, rel=0.15)
    assert prior_fit.mean_error(K, [K, K]) == 0
    rng = np.random.default_rng(6)
    halves = [np.cov(np.linalg.cholesky(K) @ rng.normal(size=(n, 4000))) for _ in range(2)]
    assert prior_fit.mean_error(K, halves) < 0.3 * prior_fit.mean_error(K, [halves[0], halves[0]])  # its noise is no error
    assert prior_fit.mean_error(np.eye(3), [np.eye(3)] * 2) == 0  # independent areas leave nothing to be off by


def test_the_error_without_noise_of_draws_vanishes_where_the_prior_is_met():
    """A prior compared with a decoder that has its very covariance."""
    federation = linear_federation()
    C = exact_covariance(federation, 0.7)[0]

    class Met:
        condition, n, kind = CAR.condition, 12, "car"

        def covariance(self, phi):
            return C

    noisy = [prior_fit.compare(Met(), federation, 0.7, draws=1000, seed=s) for s in range(6)]
    assert np.mean([one.error for one in noisy]) > 3 * np.mean([one.error_split for one in noisy]) or all(
        one.error_split < one.error for one in noisy
    )


def test_tau2_fills_up_the_prior_s_variance():
    federation = linear_federation()
    federation = replace(federation, parameters=0.35 * federation.parameters)
    tau = prior_fit.match_variances(CAR, federation, draws=20_000, floor=1e-3)
    phi, weight = CAR.condition.quadrature()
    sigma = sum(w * np.diag(exact_covariance(federation, p)[0]) for p, w in zip(phi, weight))
    assert np.allclose(tau.sigma[0], sigma, rtol=0.06)
    assert np.allclose(tau.prior, CAR.mean_variance())
    assert np.allclose(tau.tau2[0], np.clip(CAR.mean_variance() - sigma, 1e-3, 100), rtol=0.05, atol=2e-3)
    other = Condition("phi", 0.0, 0.95, "unit", Hyperprior("logit-normal", 0.0, 4.0))  # 2 as a standard deviation
    wrong = prior_fit.match_variances(CAR, replace(federation, condition=other), draws=20_000, floor=1e-3)
    assert np.abs(wrong.sigma / tau.sigma - 1).max() > 0.02 or np.abs(wrong.tau2 - tau.tau2).max() > 0.004


def test_negative_control_tau2_from_another_prior_of_phi():
    """Var_true = Var_sigma + tau^2 holds under the prior of phi that tau^2 was made for, and under no other."""
    made = linear_federation()
    federation = replace(made, parameters=0.35 * made.parameters)
    phi, weight = CAR.condition.quadrature()
    sigma = sum(w * np.diag(exact_covariance(federation, p)[0]) for p, w in zip(phi, weight))
    other = Condition("phi", 0.0, 0.95, "unit", Hyperprior("logit-normal", 2.0, 0.5))
    right = prior_fit.match_variances(CAR, federation, draws=20_000, floor=1e-3)
    wrong = prior_fit.match_variances(
        replace(CAR, condition=other), replace(federation, condition=other), draws=20_000, floor=1e-3
    )
    error = [np.abs((sigma + tau.tau2[0]) / CAR.mean_variance() - 1).max() for tau in (right, wrong)]
    assert error[0] < 0.03 < 0.1 < error[1]


def test_tau2_counts_what_it_clips():
    federation = linear_federation()
    low = prior_fit.match_variances(CAR, replace(federation, parameters=5 * federation.parameters), draws=2000)
    assert (low.tau2 == 0.01).all()
    assert (low.low, low.high, low.unclipped) == (12, 0, 0.0)
    none = replace(federation, parameters=0 * federation.parameters)
    high = prior_fit.match_variances(CAR, none, draws=2000, ceiling=0.4, floor=0.3)
    assert high.high == np.sum(CAR.mean_variance() > 0.4)
    assert np.array_equal(high.tau2[0], np.clip(CAR.mean_variance(), 0.3, 0.4))


def test_tau2_by_phi():
    none = replace(linear_federation(), parameters=np.zeros(architecture().n_parameters))
    tau = prior_fit.match_variances(CAR, none, by="phi", draws=500, values=20)
    assert tau.grid[[0, -1]].tolist() == [0.0, 0.95]
    assert np.allclose(tau.tau2, CAR.variances(tau.grid))  # a decoder that says nothing leaves all to tau^2
    assert np.allclose(tau.at(np.array([tau.grid[3], 0.95])), CAR.variances(np.array([tau.grid[3], 0.95])))
    covered = prior_fit.coverage(CAR, none, tau, draws=20_000)
    for level, share in covered["auxiliary"].items():
        assert abs(share - float(level)) < 0.01
    assert covered["deterministic"]["0.5"] == pytest.approx(1.0)


def test_variograms_separate_borders():
    phi = 0.9
    federation = linear_federation()
    one = prior_fit.compare(CAR, federation, phi, draws=500)
    distances = np.abs(np.arange(12)[:, None] - np.arange(12)).astype(float)
    client = np.repeat([0, 1], 6)
    tau2 = np.full(12, 0.2)
    v = prior_fit.variogram(one, client, distances, tau2, np.array([0.5, 1.5, 7.5]))
    K = CAR.covariance(phi)
    half = (np.diag(K)[:, None] + np.diag(K)) / 2 - K
    inside = [half[i, i + 1] for i in range(11) if i != 5]
    assert v["true_within"][0] == pytest.approx(np.mean(inside))
    assert v["true_across"][0] == pytest.approx(half[5, 6])
    assert v["pairs_within"] == [10.0, 20.0]
    assert v["pairs_across"] == [1.0, 35.0 - sum(1 for i in range(6) for k in range(6, 12) if k - i > 7)]
    assert v["distance"][0] == 1.0
    assert np.allclose(np.subtract(v["auxiliary_within"], v["sigma_within"]), 0.2)


def test_printed_networks_leave_their_local_latents_dead():
    """docs/spec/sigma.md, section 1: where q(z_L) does not see theta, a decoder does best to ignore z_L."""
    x = np.linspace(0, 1, 24)[:, None]
    process = GpPrior(x, Condition("lengthscale", 0.1, 0.3))
    shares = {}
    for variant in ("printed", "amended"):
        made = architecture(variant, (12, 12), 1, 2)
        settings = chosen.training(steps=2500, batch=32, chunk=500, seed=1, learning_rate=5e-3, gamma=0.3)
        made_table = table(process, 64, 1)
        done = train(made, lambda k, t=made_table: t, settings)
        federation = Federation(made, done.parameters.astype(float), process.condition, np.ones(24))
        shares[variant] = prior_fit.local_share(federation, 0.2)
    assert shares["printed"] < 0.01
    assert shares["amended"] > 0.1


def test_linear_networks_reach_the_optimum_of_principal_components():
    """One phi, p_G = d: the ELBO of the best linear decoder is the marginal likelihood of probabilistic components."""
    graph = grid(2, 3)
    prior = AreaPrior(graph.indptr, graph.indices, Condition("none", 0.0, 0.0), "bym2")
    made = mlp.Architecture("multiplicative", (3, 3), 1, 6, (1, 1), rank=1, width=2)
    gamma = 0.5
    rates = {"learning_rate": 1e-2, "gamma": gamma, "decay": 0.6, "precision": "float64"}
    settings = chosen.training(steps=6000, batch=64, chunk=1000, seed=2, **rates)
    done = train(made, lambda k: table(prior, 1, 2, np.ones(6)), settings)
    S = prior.covariance(0.0)
    values = np.linalg.eigvalsh(S)
    best = np.maximum(values, gamma**2)  # of the marginal covariance A A' + gamma^2 I
    bound = -0.5 * np.sum(np.log(2 * np.pi * best) + values / best)
    reached = sigma_training.objective(made, done, table(prior, 1, 2, np.ones(6)), draws=100_000)["elbo"]
    noise = 0.02
    assert bound - 0.01 - noise < reached < bound + noise


def test_notes_on_a_poor_fit():
    federation = linear_federation()
    wild = replace(federation, parameters=60 * federation.parameters)
    one = prior_fit.compare(CAR, wild, 0.5, draws=200)
    tau = prior_fit.match_variances(CAR, wild, draws=500)
    texts = prior_fit.warnings([one], tau)
    assert "prior standard deviations" in texts[0]
    assert "tau^2 is clipped (12 of 12 at the floor, 0 at the ceiling), which makes the prior of" in texts[1]
    assert "wider than the true one" in texts[1]
    assert prior_fit.phi_shown(Condition("lengthscale", 0.2, 1.0)) == (0.2, 0.5, 0.8)
    assert prior_fit.phi_shown(CAR.condition) == (0.5, 0.9, 0.95)
    assert prior_fit.phi_shown(Condition("none", 0.0, 0.0)) == (0.0,)
