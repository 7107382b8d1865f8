"""The private release of z in vertical jobs: what one row may move, what is charged, what is refused, and planted faults.

The argument of `algorithms.split.private` is about a given transcript. So two versions of a client's columns are run side by
side with one script of released numbers and of the server's messages, whatever their own sums are, and these sums are compared.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.core.messages import Charge, Charged, ChargeFailed, Refused, RemoteFault
from fedkern.algorithms.split import machine as vertical
from fedkern.algorithms.split import private as private_split
from fedkern.algorithms.split.messages import Begin, PredictorSum, Residual, ZShare
from fedkern.algorithms.split.private import Release, client, client_receive, mechanism
from fedkern.errors import NumericalError
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Holder
from fedkern.kernels import rng
from fedkern.models.likelihood import Likelihood
from fedkern.models.split.site import Auxiliary, Linear, Multilevel, Network, Shared, Site
from fedkern.privacy import accountant
from fedkern.privacy.accountant import GRID, Mechanism
from fedkern.privacy.noise import KeyedSource, SecureSource
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec
from fedkern.transports.driver import Hooks
from support import chosen

N, P, T, RHO = 12, 3, 6, 0.5
CLIP_Z, CLIP_G, SIGMA = 1.5, 2.0, 4.0
SETTINGS = chosen.split(5, T, N, 1, private=True, learning_rate=0.3, average="half")


class Scripted(SecureSource):
    """Records the integer sums, and releases what the script says instead."""

    def __init__(self, seed=0):
        super().__init__()
        self.random, self.sums = np.random.default_rng(seed), []

    def add_noise(self, total, sigma, step=0):
        self.sums.append(total.copy())
        return self.random.standard_normal(len(total)) / GRID


def columns(seed=0, n=N):
    return np.random.default_rng(seed).standard_normal((n, P))


def site(X, **changes):
    return Site(Linear(X), Auxiliary("mean-field", RHO), **changes)


def release(source, n=N, sigma=SIGMA, **clips):
    clips = {"clip_z": CLIP_Z, "clip_gradient": CLIP_G} | clips
    return Release(mechanism(n, P, sigma, secure=source.secure), source=source, **clips)


def residuals(seed=1, scale=3.0):
    """What a server sends: anything."""
    return scale * np.random.default_rng(seed).standard_normal((T, N))


def play(state, r, receive=client_receive):
    """One client through all rounds with the given messages: its last state, and what it sent."""
    sent = []
    for event in [Begin(0), *(Residual(k, row[np.newaxis]) for k, row in enumerate(r))]:
        state, (charge,) = receive(state, event)
        state, effects = receive(state, Charged(charge.steps))
        sent += effects
    return state, sent


def sums(X, r, settings=SETTINGS, **options):
    source = Scripted()
    state, _ = play(client("c", 0, settings, site(X, **options), release(source)), r)
    return source.sums, state


def neighbours():
    """(columns, columns with another row 4): usual rows, and such as may show nothing."""
    numbers = (0.0, 1.0, 30.0, np.nan, np.inf, -np.inf, 1e200, -1e200, 1e308, 5e-324, 1e6, -1e5)
    for seed, number in itertools.product(range(2), numbers):
        X = columns(seed)
        Y = X.copy()
        Y[4] = number
        yield X, Y
        Y = X.copy()
        Y[4, 1] = number
        yield X, Y
    for seed in range(20):
        X = columns(seed)
        Y = X.copy()
        Y[4] = 10.0 ** (seed % 5 - 1) * columns(seed + 100)[0]
        yield X, Y


def moved(X, Y, r, **options):
    """How far, in units of the clip, the rows moved each release of z and each V; and the rows of z that moved."""
    (a, _), (b, _) = sums(X, r, **options), sums(Y, r, **options)
    differences = [(p - q) * GRID for p, q in zip(a, b)]
    z, V = differences[0::2][:T], differences[1::2]
    assert [len(d) for d in z + V] == [N] * T + [P] * T
    return max(np.linalg.norm(d) for d in z), max(np.linalg.norm(d) for d in V), {i for d in z for i in np.flatnonzero(d)}


# --- sensitivity


@pytest.mark.parametrize("options", [{}, {"full": True}, {"path": False}])
def test_one_row_moves_its_own_z_and_each_sum_by_at_most_two_clips(options):
    largest = [0.0, 0.0]
    for k, (X, Y) in enumerate(neighbours()):
        of_z, of_V, rows = moved(X, Y, residuals(k), **options)
        assert rows <= {4}
        assert of_z <= 2
        assert of_V <= 2
        largest = [max(largest[0], of_z), max(largest[1], of_V)]
    assert min(largest) > 0.5  # the pairs do test the bounds


@pytest.mark.parametrize("scale", [1e3, 1e300])
def test_whatever_the_server_sends(scale):
    for X, Y in itertools.islice(neighbours(), 8):
        of_z, of_V, rows = moved(X, Y, residuals(scale=scale))
        assert rows <= {4}
        assert max(of_z, of_V) <= 2


@pytest.mark.parametrize("optimiser", ["adagrad", "sgd"])
def test_all_optimisers_keep_rows_apart(optimiser):
    settings = replace(SETTINGS, optimiser=optimiser, learning_rate=0.01)
    for X, Y in itertools.islice(neighbours(), 8):
        of_z, of_V, rows = moved(X, Y, residuals(), settings=settings)
        assert rows <= {4}
        assert max(of_z, of_V) <= 2


def test_the_same_numbers_and_shapes_leave_for_all_pairs():
    """Nothing that a row holds changes what is charged, how often, of what shape, or whether it is finite."""

    def transcript(X):
        state, asked = client("c", 0, SETTINGS, site(X), release(SecureSource())), []

        def receive(state, event):
            state, effects = client_receive(state, event)
            asked.extend(effects)
            return state, effects

        _, sent = play(state, residuals(), receive)
        assert all(np.isfinite(message.z).all() for message in sent)
        return [effect if isinstance(effect, Charge) else (type(effect), effect.z.shape) for effect in asked]

    transcripts = [transcript(X) for pair in itertools.islice(neighbours(), 30) for X in pair]
    assert all(t == transcripts[0] for t in transcripts)


def planted_gradient_clip(patch):
    """The norm over all rows scales every row."""
    patch.setattr(private_split, "refusal", lambda settings, site: None)
    real = private_split.augmented.mean_field_gradient

    def scaled(*args, **options):
        *kept, mean, log_sd = real(*args, **options)
        factor = min(1.0, 1 / np.linalg.norm(mean))
        return *kept, factor * mean, factor * log_sd

    patch.setattr(private_split.augmented, "mean_field_gradient", scaled)


def planted_exact_theta(patch):
    """q(theta) learns the exact sum beside its noisy release."""

    def exact(self, rows, step):
        Release.released(self, rows, step)
        return rows.sum(axis=0)

    patch.setattr(Release, "released", Release.gradient, raising=False)
    patch.setattr(Release, "gradient", exact)


def planted_no_clip_of_rows(patch):
    real = private_split.clipped_sum
    patch.setattr(private_split, "clipped_sum", lambda rows, m: 50 * real(rows / 50, m))


def planted_no_clip_of_z(patch):
    real = private_split.on_grid
    patch.setattr(Release, "z", lambda self, z, step: self.of_z.release(self.source, real(np.nan_to_num(z), self.of_z), step))


def planted_scaled_by_the_mean(patch):
    """Columns centred at the mean of the rows."""
    patch.setattr(private_split, "cleaned", lambda H: H - H.mean(axis=0))


@pytest.mark.parametrize(
    "plant",
    [planted_gradient_clip, planted_exact_theta, planted_no_clip_of_rows, planted_no_clip_of_z, planted_scaled_by_the_mean],
)
def test_negative_control_planted_faults_are_caught(plant, monkeypatch):
    plant(monkeypatch)
    X, Y = columns(), columns()
    Y[4] = 30.0
    r = residuals(scale=20.0)
    of_z, of_V, rows = moved(X, Y, r, settings=replace(SETTINGS, learning_rate=1.0))
    assert of_z > 2 or of_V > 2 or not rows <= {4}


@pytest.mark.parametrize("seed", range(3))
def test_clipped_sums(seed):
    rows, m = 10 * np.random.default_rng(seed).standard_normal((40, 5)), Mechanism(
        sampling="aligned", clip=2.0, dimension=5, dataset_size=40, noise_multiplier=1.0
    )  # fmt: skip
    norm = np.linalg.norm(rows, axis=1)
    want = (rows * np.minimum(1, 2 / norm)[:, None]).sum(axis=0)
    np.testing.assert_allclose(private_split.clipped_sum(rows, m) * m.grid, want, atol=41 * m.grid)
    assert all(np.linalg.norm(private_split.clipped_sum(row[None], m) * m.grid) <= 2.0 for row in rows)


# --- noise and accounting


def test_the_noise_has_the_scale_that_is_accounted_for():
    n = 400
    exact = np.zeros((n, P))
    noisy = Release(mechanism(n, P, SIGMA), CLIP_Z, CLIP_G, SecureSource())
    z = np.concatenate([noisy.z(np.zeros(n), 0) for _ in range(10)]) / (SIGMA * CLIP_Z)
    V = np.concatenate([noisy.gradient(exact, 0) for _ in range(400)]) / (SIGMA * CLIP_G)
    for standard in (z, V):
        tail = stats.chi2.cdf(standard @ standard, len(standard))
        assert 1e-6 < tail < 1 - 1e-6


@pytest.mark.parametrize(
    ("rounds", "sigma", "kind"),
    [(500, 300.0, "pld"), *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 5.0, "pld"), (50, 40.0, "rdp")))],
)
def test_epsilon_is_that_of_all_gaussian_releases(rounds, sigma, kind):
    """2T Gaussian mechanisms of sensitivity 2 C and noise sigma C: mu = 2 sqrt(2 T) / sigma of Gaussian differential privacy."""
    m = replace(mechanism(N, P, sigma), accountant=kind)
    epsilon = m.epsilon(private_split.releases(rounds), 1e-5)
    mu = 2 * math.sqrt(2 * rounds) / sigma

    def delta(epsilon):
        return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)

    exact = np.exp(np.linspace(np.log(1e-3), np.log(60), 20_000))
    exact = exact[np.argmax(np.array([delta(e) for e in exact]) <= 1e-5)]
    assert epsilon >= exact * (1 - 1e-3)
    assert epsilon <= exact * (1.01 if kind == "pld" else 1.3)
    assert m.neighbours == "replace the values of one example in the client's own columns, under the same id"
    assert m.sensitivity_factor == 2.0


def test_what_it_costs():
    """The figures of the module's docstring."""
    found = [accountant.calibrate(mechanism(2000, 10, None), 3.0, 1e-5, private_split.releases(rounds)) for rounds in (10, 200)]
    assert [round(sigma) for sigma in found] == [12, 56]


def test_keyed_noise_claims_nothing():
    assert mechanism(N, P, SIGMA, secure=False).epsilon(2, 1e-5) == math.inf
    with pytest.raises(ValueError, match="a secure mechanism got a keyed source"):
        release(KeyedSource(0, 0)).__class__(mechanism(N, P, SIGMA), 1.0, 1.0, KeyedSource(0, 0)).z(np.zeros(N), 0)


def test_an_aligned_mechanism_needs_its_public_number_of_rows():
    with pytest.raises(ValueError, match="dataset_size must be given with sampling = 'aligned'"):
        Mechanism(sampling="aligned", clip=1.0, dimension=3)
    m = mechanism(N, P, 3.0)
    assert Mechanism.from_dict(m.as_dict()) == m
    assert (m.draw(SecureSource(), N, 0) == np.arange(N)).all()


# --- charges


def test_no_row_is_read_before_the_charge():
    """Until the charge is made, the columns could be anything."""
    source = Scripted()
    state = client("c", 0, SETTINGS, site(columns()), release(source))
    asked, effects = client_receive(state, Begin(0))
    assert effects == [Charge(1, 0)]
    assert not source.sums
    assert not asked.drawn
    state, _ = client_receive(asked, Charged(1))
    assert len(source.sums) == 1
    asked, effects = client_receive(state, Residual(0, np.zeros((1, N))))
    assert effects == [Charge(2, 0)]
    assert len(source.sums) == 1
    refused, effects = client_receive(asked, ChargeFailed(2, 1, 2))
    assert effects == [Refused(1, 1)]
    assert len(source.sums) == 1
    np.testing.assert_array_equal(refused.parameters, state.parameters)
    with pytest.raises(RemoteFault):
        client_receive(refused, Residual(0, np.zeros((1, N))))
    half, effects = client_receive(asked, Charged(1))  # a budget that grants what is left: one release is no round
    assert effects == [Refused(1, 1)]
    assert half.refused
    assert len(source.sums) == 1


def test_the_charges_of_a_job_are_its_releases():
    asked = []

    def receive(state, event):
        state, effects = client_receive(state, event)
        asked.extend(effect.steps for effect in effects if isinstance(effect, Charge))
        return state, effects

    source = Scripted()
    play(client("c", 0, SETTINGS, site(columns()), release(source)), residuals(), receive)
    assert asked == [1, *[2] * (T - 1), 1]
    assert sum(asked) == private_split.releases(T) == len(source.sums)


# --- whole jobs


class Budgets(Hooks):
    def __init__(self, holders):
        self.holders = holders

    def charge(self, client, charge):
        decision = self.holders[client].charge(charge)
        if decision.granted:
            return Charged(decision.granted)
        return ChargeFailed(charge.steps, decision.spent, decision.allowed)


def job(settings, sources, sigma=SIGMA, y=None, **clips):
    """Two clients, a logistic response."""
    X = [columns(j) for j in range(2)]
    y = (np.arange(N) % 2).astype(float) if y is None else y
    likelihood = Likelihood("bernoulli")
    shared = Shared(likelihood, N, 2)
    told = (y, likelihood) if settings.response == "shared" else (None, None)
    clients = {j: client(f"c{j}", j, settings, site(X[j]), release(sources[j], sigma=sigma, **clips), *told) for j in range(2)}
    return vertical.start(settings, shared, ("c0", "c1"), y), clients


TWO = replace(SETTINGS, n_clients=2)


def run(settings, sources, hooks=None, **options):
    started, clients = job(settings, sources, **options)
    codec = Codec(settings.dims(), 2)
    return inprocess.run_protocol(vertical.protocol(settings), started, clients, codec, hooks)


@pytest.mark.parametrize("response", ["server", "shared"])
def test_a_job_ends_when_a_budget_is_spent(tmp_path, response):
    settings = replace(TWO, response=response)
    m = mechanism(N, P, SIGMA)
    caps = (m.epsilon(2 * T, 1e-5), m.epsilon(6, 1e-5))  # the second holder's lasts for 6 of 12 releases
    holders = [
        Holder(f"c{j}", Account(tmp_path / f"c{j}", "d"), job="j", mechanism=m, epsilon=cap * (1 + 1e-9), delta=1e-5)
        for j, cap in enumerate(caps)
        if not (tmp_path / f"c{j}").mkdir()
    ]
    server, clients = run(settings, [SecureSource(), SecureSource()], Budgets(holders))
    assert server.stop == "budget"
    assert server.refused == {1}
    assert server.round == 3  # z of rounds 0, 1, 2 and V of rounds 0, 1 are 5 releases; the two of the next charge would be 7
    assert [h.spent for h in holders] == [7, 5]
    assert clients[1].refused
    assert holders[1].certificate()["epsilon"] <= caps[1]
    assert holders[1].certificate()["claim"].endswith("neighbours: " + m.neighbours)
    assert "row ids are public; the response is not protected" in holders[1].certificate()["trust"]


def test_the_server_takes_a_refusal_only_in_a_private_job():
    (server, _), _ = job(TWO, [Scripted(), Scripted()])
    with pytest.raises(RemoteFault, match="Refused was not expected"):
        vertical.server_receive(replace(server, settings=replace(TWO, private=False)), 0, Refused(0, 0))
    assert Refused not in vertical.protocol(replace(TWO, private=False)).to_server
    server, _ = vertical.server_receive(server, 0, Refused(0, 0))
    assert vertical.finished(server)
    with pytest.raises(RemoteFault, match="Refused was not expected"):
        vertical.server_receive(server, 0, Refused(0, 0))
    server, effects = vertical.server_receive(server, 1, ZShare(0, np.zeros((1, N))))
    assert effects == []
    assert vertical.load(server, vertical.save(server)).refused == {0}


def keyed(j):
    return KeyedSource(rng.key(3, "noise"), j)


def test_wide_clips_and_little_noise_give_the_plain_job():
    """The least noise that there is, 2^-10 of clips that nothing reaches: the parameters of the job without privacy, nearly."""
    settings = replace(TWO, learning_rate=0.01, optimiser="sgd")
    _, noisy = run(settings, [keyed(0), keyed(1)], sigma=2.0**-10, clip_z=8.0, clip_gradient=60.0)
    started, _ = job(settings, [keyed(0), keyed(1)])
    sites = {j: site(columns(j)) for j in range(2)}
    plain = {j: vertical.client(f"c{j}", j, settings, sites[j]) for j in range(2)}
    _, exact = inprocess.run_protocol(vertical.protocol(settings), started, plain, Codec(settings.dims(), 2))
    for j in range(2):
        difference = np.abs(noisy[j].parameters - exact[j].parameters).max()
        assert 0 < difference < 0.01
        assert np.abs(exact[j].parameters - sites[j].initial(np.zeros(sites[j].n_uniforms))).max() > 0.1


def test_keyed_jobs_repeat_and_resume_bit_for_bit():
    settings = replace(TWO, optimiser="adam")
    server, clients = run(settings, [keyed(0), keyed(1)])
    again, others = run(settings, [keyed(0), keyed(1)])
    np.testing.assert_array_equal(server.parameters, again.parameters)
    state = client("c0", 0, SETTINGS, site(columns()), release(keyed(0)))
    events = [Begin(0), *(Residual(k, row[np.newaxis]) for k, row in enumerate(residuals()))]
    kept = None
    for i, event in enumerate(events):
        if i == 3:
            fresh = client("c0", 0, SETTINGS, site(columns()), release(keyed(0)))
            kept = vertical.load(fresh, vertical.save(state))
        state, (charge,) = client_receive(state, event)
        state, sent = client_receive(state, Charged(charge.steps))
        if kept is not None:
            kept, (charge,) = client_receive(kept, event)
            kept, repeated = client_receive(kept, Charged(charge.steps))
            for a, b in zip(sent, repeated):
                np.testing.assert_array_equal(a.z, b.z)
    np.testing.assert_array_equal(state.parameters, kept.parameters)
    np.testing.assert_array_equal(clients[0].parameters, others[0].parameters)


def test_no_two_releases_have_the_same_noise():
    source = SecureSource()
    zero = client("c", 0, replace(SETTINGS, optimiser="sgd", learning_rate=1e-12), site(np.zeros((N, P))), release(source))
    _, sent = play(zero, np.zeros((T, N)))
    z = np.array([message.z[0] for message in sent])
    assert len(np.unique(z)) == z.size
    assert len(np.unique(np.diff(z, axis=0))) == z[1:].size


# --- refusals


@pytest.mark.parametrize(
    ("changes", "other", "reason"),
    [
        ({"model": "power"}, {}, "only the augmented model"),
        ({"model": "none"}, {}, "only the augmented model"),
        ({"batch": 4}, {}, "batch = 4: the charge is for releases of all rows"),
        ({"draws": 2}, {}, "draws = 2: each draw"),
        ({"local_steps": 2}, {}, "local_steps = 2: each step"),
        ({"bound": True}, {}, "neither clipped nor noisy"),
        ({}, {"auxiliary": Auxiliary("amortised", RHO)}, "a network's weights meet all rows"),
        ({}, {"auxiliary": Auxiliary("none", RHO)}, "family = 'none'"),
        ({}, {"predictor": Network(columns())}, "a network predictor"),
        ({}, {"predictor": Multilevel(columns(), np.zeros(N, np.int64), 1)}, "a multilevel predictor"),
    ],
)
def test_what_has_no_private_form_is_refused_with_the_reason(changes, other, reason):
    model = replace(site(columns()), **other)
    with pytest.raises(ValueError, match=reason):
        client("c", 0, replace(SETTINGS, **changes), model, release(Scripted()))


def test_a_mechanism_of_other_rows_is_refused():
    for wrong in (mechanism(N + 1, P, SIGMA), Mechanism(sampling="full", clip=1.0, dimension=N, noise_multiplier=SIGMA)):
        with pytest.raises(ValueError, match="the mechanism must be that of"):
            client("c", 0, SETTINGS, site(columns()), Release(wrong, 1.0, 1.0, Scripted()))
    for clips in ({"clip_z": 0.0}, {"clip_gradient": np.inf}):
        with pytest.raises(ValueError, match="clips must be positive and finite"):
            client("c", 0, SETTINGS, site(columns()), release(Scripted(), **clips))


def test_events_of_another_round_are_refused():
    state = client("c", 0, SETTINGS, site(columns()), release(Scripted()))
    with pytest.raises(RemoteFault, match="Residual of round 0, expected Begin of round 0"):
        client_receive(state, Residual(0, np.zeros((1, N))))
    state, _ = client_receive(state, Begin(0))
    with pytest.raises(RemoteFault):
        client_receive(state, Begin(0))
    state, _ = client_receive(state, Charged(1))
    with pytest.raises(RemoteFault, match="Residual of round 2, expected Residual of round 0"):
        client_receive(state, Residual(2, np.zeros((1, N))))
    with pytest.raises(RemoteFault, match="PredictorSum"):
        client_receive(state, PredictorSum(0, np.zeros((1, N)), np.zeros(1), np.zeros((1, 0))))


def test_noise_that_drives_theta_away_is_named():
    settings = replace(SETTINGS, optimiser="sgd", learning_rate=1e308)
    with pytest.raises(NumericalError, match="round 0: q\\(theta\\) left the finite numbers"), np.errstate(all="ignore"):
        play(client("c", 0, settings, site(columns()), release(SecureSource())), residuals())


def test_the_budget_of_a_job_counts_two_releases_a_round():
    m = mechanism(1000, 10, 60.0)
    allowed = accountant.max_steps(m, 3.0, 1e-5)
    assert m.epsilon(allowed, 1e-5) <= 3.0 < m.epsilon(allowed + 1, 1e-5)
    assert private_split.releases(allowed // 2) <= allowed
