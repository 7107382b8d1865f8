"""The posterior that contains the noise: against closed forms, and intervals against a truth that stays the same."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi import noise_aware
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.noise_aware import Design, Noise, Sums
from fedkern.models.encoding import Column, Encoding
from fedkern.models.glm import prior
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource
from support.federations import make_rows, play, settings
from support.refusal import refusal

TRUTH = np.array([0.8, -0.5, 0.3])
PRECISION = np.array([[300.0, 150.0, 0.0], [150.0, 300.0, 0.0], [0.0, 0.0, 200.0]])  # of one client's rows
D, STEPS = 3, 240


def measured(rng, centre, curvature, noise):
    """(steps, 4d) what a client's steps see: points that come to rest, and exact gradients of a Gaussian model with noise."""
    far = 1 / np.sqrt(1 + np.arange(STEPS) / 5)[:, None]
    mu = TRUTH * (1 - far) + 0.5 * far * rng.standard_normal((STEPS, D))
    omega = np.broadcast_to(np.log(far), mu.shape)
    in_mu, in_omega = (centre - mu) @ curvature, -(far**2) * np.diag(curvature)
    sd = np.sqrt(noise)
    return np.hstack([mu, omega, in_mu + sd * rng.standard_normal(mu.shape), in_omega + sd * rng.standard_normal(mu.shape)])


def added(design, seen):
    """In updates of 20 steps."""
    sums = Sums.zero(D)
    for first in range(0, STEPS, 20):
        sums = design.add(sums, list(seen[first : first + 20]), first)
    return sums


KNOWN = noise_aware.Known.of(Design("gaussian", np.ones(D), STEPS // 3), STEPS // 20, 0, 20, 1e12)


def exact(sizes):
    """The estimate without noise, and what follows from all clients' rows, for clients of these sizes."""
    rng, design = np.random.default_rng(3), Design("gaussian", np.ones(D), STEPS // 3)
    centres = [TRUTH + 0.1 * rng.standard_normal(D) for _ in sizes]
    told = [(added(design, measured(rng, c, s * PRECISION, 0.0)), Noise(1e-18, 0.0)) for c, s in zip(centres, sizes)]
    P = sum(sizes) * PRECISION + 2 * np.eye(D)
    mean = np.linalg.solve(P, sum(s * PRECISION @ c for c, s in zip(centres, sizes)))
    return noise_aware.solve_posterior(design, prior(D, 2.0, "diagonal"), told), mean, P


def test_without_noise_it_is_the_exact_posterior():
    got, mean, P = exact([1.0])
    np.testing.assert_allclose(got.q.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(got.q.P, P, rtol=1e-5, atol=1e-3)
    assert got.curvature_error.max() < 1e-6


def test_clients_of_different_sizes_count_by_their_sizes():
    """Their shares are known from sums over all coefficients, and so not exactly."""
    got, mean, P = exact([0.2, 1.0, 3.0])
    np.testing.assert_allclose(got.q.mean, mean, atol=0.03 * got.q.sd.min())
    np.testing.assert_allclose(got.q.P, P, rtol=0.02, atol=5.0)


def coverage(noise, told_noise, federations=150):
    """Share of 90 % intervals that hold the truth, which is not drawn from the prior; three clients."""
    design, inside, root = Design("gaussian", np.ones(D), STEPS // 3), [], np.linalg.cholesky(np.linalg.inv(PRECISION))
    for seed in range(federations):
        rng = np.random.default_rng(seed)
        centres = [TRUTH + root @ rng.standard_normal(D) for _ in range(3)]
        told = [(added(design, measured(rng, c, PRECISION, noise)), Noise(told_noise, 0.0)) for c in centres]
        q = noise_aware.solve_posterior(design, prior(D, 1e-6, "diagonal"), told).q
        inside.append(np.abs(q.mean - TRUTH) <= ndtri(0.95) * q.sd)
    return float(np.mean(inside))


def test_intervals_hold_the_truth_as_often_as_they_say():
    assert 0.86 <= coverage(300.0**2, 300.0**2) <= 0.94


def test_without_the_noise_in_it_they_do_not():
    """Negative control of the test above."""
    assert coverage(300.0**2, 1.0) < 0.8


def test_logistic_gradients_are_lines_in_its_points():
    """The score at a posterior with spread, which is flatter, against that of the same rows at its point, by quadrature."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, D))
    design = Design("bernoulli", np.ones(D), 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    slopes = []
    for mean, sd in ((0.9 * TRUTH, 0.01), (0.9 * TRUTH, 0.6), (TRUTH + 0.3, 0.01), (0 * TRUTH, 0.01), (0 * TRUTH, 1.0)):
        m, s = X @ mean, sd * np.linalg.norm(X, axis=1)
        level = (1 / (1 + np.exp(-(m[:, None] + s[:, None] * nodes)))) @ (weights / weights.sum())
        point, _ = design.points(mean[None], np.full((1, D), sd**2))
        slopes.append((X.T @ (level - 0.5) / len(X), point[0] / 4))
    for got, line in slopes:
        np.testing.assert_allclose(got, line, atol=0.012)
    theta, slope = design.at(design.points(TRUTH[None], np.zeros((1, D)))[0][0])
    np.testing.assert_allclose(theta, TRUTH, rtol=1e-12)
    level = 1 / (1 + np.exp(-X @ TRUTH))
    np.testing.assert_allclose(slope / 4, (X.T * (level * (1 - level))) @ X / len(X), atol=0.012)


def job(**changes):
    """A private client with what it keeps."""
    mechanism = Mechanism(
        sampling="poisson", clip=2.0, dimension=8, noise_multiplier=1.0, sampling_rate=0.5, accountant="rdp", secure=False
    )
    s = settings(rounds=6, optimiser="adagrad", learning_rate=0.5, damping=0.2, damping_form="moment", local_steps=5)
    design = Design("bernoulli", np.ones(4), 10)
    parts = [make_rows("bernoulli", seed=k) for k in range(2)]
    local = [Local(part, s, k, mechanism, KeyedSource(1, k), design=design) for k, part in enumerate(parts)]
    clients = {k: pvi.client(f"c{k}", replace(one, **changes), prior(4)) for k, one in enumerate(local)}
    return pvi.start(s, prior(4), 2), clients


def test_keeping_sums_changes_no_bit_of_what_is_sent():
    one, other = (play(pvi, *job(**changes)) for changes in ({}, {"design": None}))
    np.testing.assert_array_equal(one[0].q.h, other[0].q.h)
    np.testing.assert_array_equal(one[0].q.P, other[0].q.P)
    assert other[1][0].sums is None
    assert (one[1][0].sums.early, one[1][0].sums.late) == (10, 20)


def test_a_checkpoint_has_the_sums():
    _, clients = play(pvi, *job())
    for client in clients.values():
        again = pvi.load(job()[1][0], pvi.save(client)).sums
        for name, value in vars(client.sums).items():
            np.testing.assert_array_equal(getattr(again, name), value)


def test_the_question_and_its_answers():
    server, effects = noise_aware.start([KNOWN] * 2)
    assert [to for to, _ in effects] == [0, 1]
    sums = added(Design("gaussian", np.ones(D), 80), measured(np.random.default_rng(0), TRUTH, PRECISION, 1.0))
    _, (answer,) = noise_aware.client_receive(noise_aware.Client(sums), effects[0][1])
    server, _ = noise_aware.server_receive(server, 0, answer)
    with refusal(RemoteFault, "0", "NoisySums"):
        noise_aware.server_receive(server, 0, answer)
    without, _ = noise_aware.server_receive(server, 1, replace(answer, squares=-answer.squares))
    assert noise_aware.finished(without)
    assert dict(without.dropped) == {1: "its NoisySums have a negative sum of squares"}
    with refusal(RemoteFault, "1", "NoisySums"):
        noise_aware.server_receive(without, 1, answer)
    with refusal(RemoteFault, "NoisySums"):
        noise_aware.client_receive(noise_aware.Client(sums), answer)
    server, _ = noise_aware.server_receive(server, 1, ClientLost(1))
    assert noise_aware.finished(server)
    assert set(server.replies) == {0}


def test_what_mean_squares_are_expected_of_columns():
    encoding = Encoding((Column("age", "numeric", None, 40.0, 10.0), Column("site", "categorical", ("a", "b", "c", "d"))), "y")
    np.testing.assert_array_equal(encoding.spread, [1, 1, 0.25, 0.25, 0.25, 0.25])


GAUSSIAN, LOGISTIC = (Design(family, np.ones(D), 80) for family in ("gaussian", "bernoulli"))


@pytest.mark.parametrize("noise", [0.0, 1.0, 300.0**2])
@pytest.mark.parametrize("design", [GAUSSIAN, LOGISTIC], ids=["gaussian", "bernoulli"])
def test_honest_sums_are_taken(design, noise):
    """Also with points that lie on a line, or at one place, and whatever their scale."""
    known, random = noise_aware.Known.of(design, 12, 0, 20, 1e12), np.random.default_rng(1)
    seen = measured(random, TRUTH, PRECISION, noise)
    for factor in (0.0, 1e-200, 1e-8, 1.0, 1e8):
        for direction in (np.ones(D), np.array([1.0, 0.0, 0.0]), np.array([1.0, 1e-6, 1e6])):
            points = seen.copy()
            points[:, :D] = factor * seen[:, :1] * direction
            assert known.wrong(added(design, points)) == ""
    assert known.wrong(added(design, seen)) == ""


@pytest.mark.parametrize(
    ("updates", "rejected", "early", "late", "taken"),
    [
        (12, 0, 80, 160, True),
        (12, 0, 80, 141, True),  # the last one has a single step left of its budget
        (12, 0, 80, 140, False),
        (12, 0, 80, 161, False),
        (12, 1, 80, 180, True),  # the server has rejected one, which a client counts
        (12, 1, 80, 181, False),
        (12, 0, 79, 161, False),  # the first 80 are early
        (12, 0, 81, 159, False),
        (3, 0, 60, 0, True),
        (3, 0, 59, 1, False),
        (0, 0, 0, 0, True),
        (0, 0, 1, 0, False),
        (12, 0, -1, 241, False),
        (12, 0, 2**62, 2**62, False),
    ],
)
def test_counts_of_steps_are_those_of_the_updates(updates, rejected, early, late, taken):
    zero = Sums.zero(D)
    why = noise_aware.Known.of(GAUSSIAN, updates, rejected, 20, 1e12).wrong(replace(zero, early=early, late=late))
    assert (why == "") is taken
    if why:
        assert why.startswith("its NoisySums ")


def test_where_all_make_no_posterior_it_is_that_of_those_that_make_one_alone():
    random = np.random.default_rng(3)
    told = {k: (added(GAUSSIAN, measured(random, TRUTH, PRECISION, 1.0)), Noise(1.0, 0.0)) for k in range(2)}
    honest, without = noise_aware.posterior_of(GAUSSIAN, prior(D, 2.0, "diagonal"), told)
    assert without == {}
    broken = replace(told[0][0], cross=np.full((D, D), np.inf))
    got, without = noise_aware.posterior_of(GAUSSIAN, prior(D, 2.0, "diagonal"), {**told, 2: (broken, Noise(1.0, 0.0))})
    np.testing.assert_array_equal(got.q.P, honest.q.P)
    assert without == {2: "no posterior can be made of its NoisySums"}
    assert noise_aware.posterior_of(GAUSSIAN, prior(D, 2.0, "diagonal"), {2: (broken, Noise(1.0, 0.0))})[0] is None
    assert noise_aware.posterior_of(GAUSSIAN, prior(D, 2.0, "diagonal"), {}) == (None, {})


def test_points_that_can_be_nowhere():
    """Cauchy and Schwarz, to 1e-9: also where no entry alone shows it."""
    known = noise_aware.Known.of(GAUSSIAN, 12, 0, 20, 1e12)
    honest = added(GAUSSIAN, measured(np.random.default_rng(4), TRUTH, PRECISION, 1.0))
    own = np.sqrt(np.diag(honest.points))
    least = np.outer(honest.early_point, honest.early_point) / honest.early
    wrong = {
        "longer than its squares": {"early_point": 1.001 * np.sqrt(honest.early) * own},
        "negative along one direction": {"points": np.outer(own, own) * (np.full((D, D), -0.6) + 1.6 * np.eye(D))},
        "a spread below zero": {"points": least * (1 - 1e-6)},
        "not symmetric": {"points": honest.points * (1 + 1e-6 * np.tri(D, k=-1))},
        "negative squares": {"points": -honest.points},
    }
    for name, changes in wrong.items():
        assert known.wrong(replace(honest, **changes)) == "its NoisySums have points that can be nowhere", name
    assert known.wrong(replace(honest, points=least * (1 + 1e-12))) == ""  # points that did not move
    assert known.wrong(replace(honest, points=least * (1 - 1e-12))) == ""
