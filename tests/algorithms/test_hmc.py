"""Federated Hamiltonian Monte Carlo without any transport: the leapfrog, what travels, and what is kept."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import SERVER, RemoteFault
from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.hmc.moves import ACCEPT, JITTER, LOST, SHRINK, Settings, Step, Walk, evaluate
from fedkern.errors import NumericalError
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec
from support import chosen
from support import hamiltonian as ham
from support import hierarchical as h
from support.federations import play
from support.mixed_model import MixedModel
from support.refusal import refusal

SHORT = ham.SHORT


# One trajectory --------------------


@dataclass(frozen=True)
class OneParty:
    """All unknowns in one place: log p(xi) + sum_j log p(y_j, u_j | xi) as a function of q = (xi, u_1, .., u_J)."""

    models: list

    def parts(self, q):
        ends = np.cumsum([self.models[0].n_global, *(m.size for m in self.models)])
        return np.split(q, ends[:-1])

    def value_grad(self, q):
        xi, *us = self.parts(q)
        value, g = h.prior_of(self.models[0]).log_prior_grad(xi)
        slopes = []
        for model, u in zip(self.models, us):
            own, g_xi, g_u = model.log_joint_grad(xi, u)
            value, g, slopes = value + own, g + g_xi, [*slopes, g_u]
        return value, np.concatenate([g, *slopes])


def plain_leapfrog(target, q, p, step, n_steps):
    """The textbook's, with unit masses."""
    g = target.value_grad(q)[1]
    for _ in range(n_steps):
        p = p + 0.5 * step * g
        q = q + step * p
        g = target.value_grad(q)[1]
        p = p + 0.5 * step * g
    return q, p


@pytest.mark.parametrize(("leapfrog", "step"), [(1, 0.2), (2, 0.15), (7, 0.1)])
@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_trajectories_are_the_textbooks(kind, leapfrog, step):
    models, step = (h.linear([2, 0, 3]), step) if kind == "linear" else (h.mixed("poisson"), 0.4 * step)
    s = chosen.hmc(draws=12, warmup=0, chains=3, leapfrog=leapfrog, step=step, jitter=0.3, seed=4)
    server, clients = ham.run(models, s)
    target, sizes = OneParty(models), {SERVER: models[0].n_global} | {k: m.size for k, m in enumerate(models)}
    want, rate, moves = np.empty(ham.together(server, clients).shape), np.zeros(3), 0
    for c in range(s.chains):
        q = np.concatenate([s.starts(k, d, sd=0.5)[c] for k, d in sizes.items()])
        for round in range(s.rounds):
            p = np.concatenate([s.normals(k, round, d)[c] for k, d in sizes.items()])
            h_ = step * (1 + 0.3 * (2 * s.uniforms(round, JITTER)[c] - 1))
            end, last = plain_leapfrog(target, q, p, h_, leapfrog)
            change = target.value_grad(end)[0] - 0.5 * last @ last - target.value_grad(q)[0] + 0.5 * p @ p
            if np.log(s.uniforms(round, ACCEPT)[c]) < change:
                q, moves = end, moves + 1
            rate[c] += min(1.0, np.exp(change))
            want[c, round] = q
    np.testing.assert_allclose(ham.together(server, clients), want, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(server.rate, rate, rtol=1e-7)
    assert 6 < moves < 36  # some are rejected


def test_negative_control_the_gradient_of_a_place_that_was_rejected(monkeypatch):
    real = Walk.settled
    monkeypatch.setattr(Walk, "settled", lambda self, accepted: replace(real(self, accepted), slope=self.trial_slope))
    with pytest.raises(AssertionError, match="Not equal"):
        test_trajectories_are_the_textbooks("poisson", 2, 0.15)


def test_a_trajectory_runs_back_and_the_energy_error_falls_as_the_square_of_the_step():
    """In scaled coordinates as well: velocities turned round lead to where it began."""
    model, rng = h.linear([4])[0], np.random.default_rng(0)
    xi, at = rng.standard_normal((3, 3)), rng.standard_normal((3, 4))
    scale = np.exp(rng.standard_normal((3, 4)))

    def trajectory(at, v, step, n):
        def see(u):
            value, _, slope = evaluate(model, xi, u)
            return value, slope

        walk = replace(Walk.begin(at, *see(at)), scale=scale).launched(v, step)
        for i in range(n):
            walk = walk.visited(*see(walk.trial))
            walk = walk.moved(step) if i < n - 1 else walk
        return walk.landed(step)

    v, errors = rng.standard_normal((3, 4)), []
    for n in (50, 100):
        step = np.array([0.4, 0.3, 0.2]) / n
        walk, change = trajectory(at, v, step, n)
        back, change_back = trajectory(walk.trial, -walk.velocity, step, n)
        np.testing.assert_allclose(back.trial, at, atol=1e-10)
        np.testing.assert_allclose(change_back, -change, atol=1e-10)
        errors.append(np.abs(change))
    np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=0.05)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_three_clients_are_one_pooled_client(family, monkeypatch):
    """With the momenta of the three, one client that holds all their rows takes the same trajectories up to rounding."""
    models, s = h.mixed(family), replace(SHORT, draws=3, warmup=0, step=0.05)
    server, clients = ham.run(models, s)
    real = Settings.normals

    def concatenated(self, party, round, size, draw=0, seed=None):
        if party == SERVER:
            return real(self, party, round, size, draw)
        return np.concatenate([real(self, k, round, m.size, draw) for k, m in enumerate(models)], axis=1)

    monkeypatch.setattr(Settings, "normals", concatenated)
    one, alone = ham.run([h.pooled(models)], s)
    np.testing.assert_allclose(ham.together(one, alone), ham.together(server, clients), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(one.rate, server.rate, rtol=1e-9)
    assert 0 < server.rate.min()


def test_chains_do_not_depend_on_each_other():
    models = h.mixed("bernoulli")
    few, many = (ham.run(models, replace(SHORT, chains=c)) for c in (1, 3))
    np.testing.assert_array_equal(ham.together(*few)[0], ham.together(*many)[0])
    assert np.abs(ham.together(*many)[0] - ham.together(*many)[1]).min() > 0


def test_a_model_that_takes_all_chains_at_once_is_asked_once():
    @dataclass(frozen=True)
    class Together(h.Linear):
        def log_joint_grads(self, xi, u):
            parts = [super(Together, self).log_joint_grad(a, b) for a, b in zip(xi, u)]
            return tuple(np.array(part) for part in zip(*parts))

        def log_joint_grad(self, xi, u):
            raise AssertionError("one by one")

    models = h.linear([2, 1])
    want, got = ham.run(models, SHORT), ham.run([Together(**vars(m)) for m in models], SHORT)
    np.testing.assert_array_equal(ham.together(*got), ham.together(*want))


# Warm-up --------------------


def test_windows_are_stans():
    assert chosen.hmc(warmup=1000).windows() == (75, (99, 149, 249, 449, 949))
    assert chosen.hmc(warmup=150).windows() == (75, (99,))
    assert chosen.hmc(warmup=100).windows() == (15, (89,))
    assert chosen.hmc(warmup=19).windows() == (19, ())
    for warmup in range(20, 400, 7):
        first, ends = chosen.hmc(warmup=warmup).windows()
        assert 0 < first <= ends[0]
        assert list(ends) == sorted(set(ends))
        assert ends[-1] < warmup


def test_standard_deviations_are_those_of_the_draws_of_a_window():
    s, rng = chosen.hmc(warmup=100), np.random.default_rng(0)
    draws = 3 + np.array([0.1, 10.0]) * rng.standard_normal((100, 4, 2))
    walk = Walk.begin(draws[0], np.zeros(4), np.zeros((4, 2)))
    for round in range(100):
        walk = replace(walk, at=draws[round]).learned(s, round)
        assert (walk.scale == 1).all() == (round < 89)
    n = 75
    variance = (n * draws[15:90].var(axis=0, ddof=1) + SHRINK * 1e-3) / (n + SHRINK)
    np.testing.assert_allclose(walk.scale, np.sqrt(variance), rtol=1e-12)


def test_dual_averaging_finds_the_step_of_the_wanted_rate():
    step = Step.at(np.log(np.array([1e-3, 10.0])))
    for _ in range(2000):
        step = step.learned(np.exp(-np.exp(step.log_step)), 0.8)
    np.testing.assert_allclose(np.exp(-np.exp(step.log_mean)), 0.8, atol=0.01)


@pytest.mark.parametrize(("leapfrog", "wanted"), [(1, 0.57), (5, 0.8)])
def test_acceptance_is_near_its_target_and_frozen_after_the_warmup(leapfrog, wanted):
    models = h.linear([2, 1])
    s = chosen.hmc(warmup=400, draws=150, chains=4, leapfrog=leapfrog)
    seen = []

    class Watched:
        client_receive, finished = hmc.client_receive, hmc.finished

        @staticmethod
        def server_receive(state, sender, event):
            state, effects = hmc.server_receive(state, sender, event)
            if state.round >= s.warmup:
                seen.append((state.step.log_step.tolist(), state.walk.scale.tolist()))
            return state, effects

    started, clients = ham.machines(models, s)
    server, clients = play(Watched, started, clients)
    assert all(one == seen[0] for one in seen)
    np.testing.assert_allclose(server.acceptance.mean(), wanted, atol=0.15)
    sd = np.sqrt(np.diag(h.exact(models)[1]))
    np.testing.assert_allclose(
        np.concatenate([server.walk.scale, *(c.walk.scale for c in clients.values())], axis=1) / sd, 1, atol=0.6
    )
    assert server.divergences.sum() == 0


# What leaves the finite numbers --------------------


class Cliff(h.Linear):
    """Beyond xi_0 = 0 nothing can be computed."""

    def log_joint_grad(self, xi, u):
        if xi[0] > 0:
            raise NumericalError("row 3")
        return super().log_joint_grad(xi, u)


@pytest.mark.parametrize("kind", [Cliff, None])
def test_a_trajectory_that_leaves_the_finite_numbers_is_rejected_and_counted(kind):
    class Infinite(h.Linear):
        def log_joint_grad(self, xi, u):
            value, g_xi, g_u = super().log_joint_grad(xi, u)
            return (value, g_xi, g_u) if xi[0] <= 0 else (np.nan, g_xi * np.inf, g_u)

    models = h.linear([2, 1])
    models[1] = (kind or Infinite)(**vars(models[1]))
    s = chosen.hmc(draws=60, warmup=30, chains=2, leapfrog=4)
    codec = Codec(s.sizes(3), 2)
    started, clients = ham.machines(models, s, xi=np.array([-0.5, 0.0, 0.0]))
    server, clients = inprocess.run_protocol(hmc.protocol(s), started, clients, codec)  # the wire takes finite numbers only
    assert hmc.draws(server)[:, :, 0].max() <= 0
    assert (server.divergences > 0).all()
    assert (server.warmup_divergences > 0).any()
    assert len(np.unique(hmc.draws(server)[:, :, 0])) > 10


def test_a_step_that_is_far_too_long_ends_in_rejections():
    models = h.mixed("poisson")
    server, clients = ham.run(models, chosen.hmc(draws=3, warmup=0, chains=2, leapfrog=20, step=1e3))
    s = server.settings
    np.testing.assert_array_equal(hmc.draws(server), np.repeat(s.starts(SERVER, 3, sd=0.5)[:, None], 3, axis=1))
    assert server.divergences.tolist() == [3, 3]
    assert server.rate.tolist() == [0, 0]
    assert all((c.walk.at == s.starts(k, 4, sd=0.5)).all() for k, c in clients.items())


def test_start_values_are_checked():
    models = h.linear([2, 1])
    with refusal(NumericalError, "c1", "0"):
        ham.run([models[0], Cliff(**vars(models[1]))], SHORT, xi=1.0)
    with pytest.raises(ValueError, match=r"start values of xi must have the shape \(3,\) or \(2, 3\), got \(4,\)"):
        ham.machines(models, SHORT, xi=np.zeros(4))
    with refusal(ValueError, "c0", "2"):
        ham.machines(models, SHORT, u=[np.zeros((3, 2)), 0.0])
    with pytest.raises(NumericalError, match="log p\\(xi\\) at the start values"):
        ham.machines(models, SHORT, xi=np.inf)


# Runs --------------------


def equal(a, b):
    left, right = hmc.save(a), hmc.save(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name])


SETTINGS = [SHORT, replace(SHORT, leapfrog=1), replace(SHORT, warmup=0, chains=1)]


@pytest.mark.parametrize("settings", SETTINGS)
def test_orders_of_arrival_and_transports_give_the_same_bits(settings):
    models = h.mixed("bernoulli")
    server, clients = ham.run(models, settings)
    assert hmc.draws(server).shape == (settings.chains, settings.draws, 3)
    assert hmc.local_draws(clients[0]).shape == (settings.chains, settings.draws, 4)
    other, others = ham.run(models, settings, random.Random(0))
    equal(server, other)
    for k in clients:
        equal(clients[k], others[k])
    started, fresh = ham.machines(models, settings)
    codec = Codec(settings.sizes(models[0].n_global), len(models))
    other, others = inprocess.run_protocol(hmc.protocol(settings), started, fresh, codec, order=random.Random(9))
    equal(server, other)
    for k in clients:
        equal(clients[k], others[k])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("stop", [1, 8, 29, 100, 131])
def test_a_resumed_run_has_the_same_bits(settings, stop):
    """Stopped between trajectories, within one, in the warm-up and after it."""
    models = h.mixed("poisson")
    want, their = ham.run(models, settings)
    stop, answered = min(stop, settings.rounds * settings.leapfrog), 0

    def pause(server):
        nonlocal answered
        answered += not server.answers
        return answered == stop

    started, clients = ham.machines(models, settings)
    server, clients, inbox = play(hmc, started, clients, pause=pause)
    (fresh, _), again = ham.machines(models, settings)
    server = hmc.load(fresh, unpacked(hmc.save(server)))
    again = {k: hmc.load(c, unpacked(hmc.save(clients[k]))) for k, c in again.items()}
    server, again = play(hmc, (server, inbox), again)
    equal(server, want)
    for k in again:
        equal(again[k], their[k])


def unpacked(saved):
    """What comes back from a checkpoint."""
    from fedkern.transports.codec import pack, unpack

    return unpack(pack(saved))


def test_what_nobody_asked_for_is_refused():
    models = h.linear([1, 1])
    (server, effects), clients = ham.machines(models, SHORT)
    state, (answer,) = hmc.client_receive(clients[0], effects[0][1])
    server = hmc.server_receive(server, 0, answer)[0]
    with refusal(RemoteFault, "0", "Slope"):
        hmc.server_receive(server, 0, answer)
    with refusal(RemoteFault, "1", "SlopeChange"):
        hmc.server_receive(server, 1, hmc.SlopeChange(answer.gradient, np.zeros(2)))
    with refusal(RemoteFault, "Move"):
        hmc.client_receive(state, hmc.Move(answer.gradient))
    with refusal(RemoteFault, "Launch"):
        hmc.client_receive(state, hmc.Launch(1, np.zeros(2), np.ones(2), answer.gradient))


def test_a_client_without_rows_and_one_without_local_unknowns_take_part():
    rows = h.mixed("bernoulli", 1)[0]
    none = MixedModel(np.zeros((0, 2)), np.zeros(0), np.zeros(0, np.int64), 0, rows.likelihood, np.zeros(0))
    server, clients = ham.run([rows, none], SHORT)
    assert hmc.local_draws(clients[1]).shape == (2, 5, 0)
    alone, _ = ham.run([rows], SHORT)
    np.testing.assert_array_equal(hmc.draws(alone), hmc.draws(server))
    assert LOST < server.rate.min()
