"""The shear of the global unknowns along a bent ridge: its algebra, what it leaves as it is, and what is kept."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.sfvi.families import Shear
from fedkern.models.variational import Block
from oracles.differences import four_point
from support import chosen
from support import hierarchical as h
from support.federations import play

P = 6
SETTINGS = [chosen.sfvi(rounds=47, covariance=c, sheared=True, learning_rate=0.05) for c in ("full", "diagonal")]


class Bent:
    """b = b' - 0.7 e^x z, as of a level and a scale; the last of three unknowns or more, with x the first and z the second."""

    def __init__(self, size=P):
        self.row, self.numbers = size - 1, np.array([0.7, 1.0])

    def beside(self, xi):
        return -0.7 * np.exp(xi[:, 0]) * xi[:, 1]

    def slopes(self, xi):
        out = np.zeros(len(xi))
        out[:2] = -0.7 * np.exp(xi[0]) * np.array([xi[1], 1.0])
        return out


SHEAR = Shear(Bent())


def block_at(*, full, seed=0):
    block = Block(P, full)
    rng = np.random.default_rng(seed)
    return block, block.initial(rng.normal(size=P), 0.4) + 0.3 * rng.normal(size=block.n_parameters)


def dense(block, parameters):
    mean, spread = block.moments(parameters)
    return mean, spread if spread.ndim == 2 else np.diag(spread**2)


def out(x):
    return SHEAR.out(x[None])[0]


def log_target(xi):
    """Something that is no Gaussian, and its gradient."""
    value = -0.25 * float((xi**4).sum()) + float(np.sin(xi[:-1] * xi[1:]).sum())
    gradient = -(xi**3)
    gradient[:-1] += xi[1:] * np.cos(xi[:-1] * xi[1:])
    gradient[1:] += xi[:-1] * np.cos(xi[:-1] * xi[1:])
    return value, gradient


def test_it_is_what_is_said_and_has_jacobian_1():
    x = np.random.default_rng(1).normal(size=P)
    want = x.copy()
    want[-1] -= 0.7 * np.exp(x[0]) * x[1]
    np.testing.assert_allclose(out(x), want, rtol=1e-15)
    J = np.array([four_point(lambda v, k=k: out(v)[k], x) for k in range(P)])
    assert np.linalg.det(J) == pytest.approx(1, abs=1e-8)
    np.testing.assert_array_equal(Shear().out(x[None])[0], x)
    np.testing.assert_array_equal(Shear().pulled(x, want), want)


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_four_point_gradients_of_the_sheared_bound(full, path):
    """Of E log p(xi(xi')) - log q(xi') at frozen noise; and with the gradient in xi itself they are wrong."""
    block, parameters = block_at(full=full)
    e = np.random.default_rng(2).normal(size=P)

    def objective(flat):
        inner = block.sample(flat, e)
        own = -stats.multivariate_normal.logpdf(inner, *dense(block, parameters)) if path else block.entropy(flat)
        return log_target(out(inner))[0] + own

    inner = block.sample(parameters, e)
    slope = log_target(out(inner))[1]
    want = four_point(objective, parameters)
    found = block.gradient(parameters, e, SHEAR.pulled(inner, slope), path=path)
    np.testing.assert_allclose(found, want, atol=1e-6 * np.abs(want).max())
    wrong = block.gradient(parameters, e, slope, path=path)
    assert np.abs(wrong - want).max() > 1e-2 * np.abs(want).max()


@pytest.mark.parametrize("full", [True, False])
def test_moments_are_those_of_the_tangent(full):
    block, parameters = block_at(full=full)
    mean, covariance = dense(block, parameters)
    J = np.array([four_point(lambda v, k=k: out(v)[k], mean) for k in range(P)])
    found = SHEAR.moments(block, parameters)
    np.testing.assert_allclose(found[0], out(mean), rtol=1e-13)
    np.testing.assert_allclose(found[1], J @ covariance @ J.T, rtol=1e-7, atol=1e-9)
    for one, other in zip(SHEAR.mean_sd(block, parameters), (found[0], np.sqrt(np.diag(found[1])))):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_array_equal(Shear().moments(block, parameters)[1], block.moments(parameters)[1])


# Whole machines --------------------


def machines(settings, ridge=None):
    models = h.linear([2, 3])
    _, clients = h.machines(models, settings)
    names = tuple(c.name for c in clients.values())
    return sfvi.start(settings, h.prior_of(models[0]), names, ridge=Bent(3) if ridge is None else ridge), clients


def kept(state):
    return {name: np.asarray(value) for name, value in sfvi.save(state).items()}


@pytest.mark.parametrize("settings", SETTINGS)
def test_clients_are_told_q_and_the_ridge(settings):
    (server, effects), clients = machines(settings)
    server, clients = play(sfvi, (server, effects), clients)
    assert len(server.parameters) == settings.sizes(3, 2)["k"]
    for client in clients.values():
        np.testing.assert_array_equal(client.fitted, server.parameters)
        np.testing.assert_array_equal(client.ridge, Bent(3).numbers)
        with pytest.raises(ValueError, match="is sheared, and so not normal"):
            sfvi.local_posterior(client)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("stop", [1, 31])
def test_a_resumed_run_has_the_same_bits(settings, stop):
    want, their = play(sfvi, *machines(settings))
    started, clients = machines(settings)
    server, clients, inbox = play(sfvi, started, clients, pause=lambda s: s.round == stop)
    (fresh, _), again = machines(settings)
    server = sfvi.load(fresh, sfvi.save(server))
    again = {k: sfvi.load(c, sfvi.save(clients[k])) for k, c in again.items()}
    server, again = play(sfvi, (server, inbox), again)
    for a, b in ((server, want), *((again[k], their[k]) for k in again)):
        left, right = kept(a), kept(b)
        assert left.keys() == right.keys()
        for name, value in left.items():
            np.testing.assert_array_equal(value, right[name], err_msg=name)


def test_windows_watch_q_of_xi():
    """What they have added up of the last round of a stretch are the moments of xi at the tangent."""
    settings = replace(SETTINGS[1], rounds=200, decay=0.0)
    seen = []

    def pause(server):
        if server.round == 131:
            seen.append(server)
        return server.round == 131

    started, clients = machines(settings)
    play(sfvi, started, clients, pause=pause)
    (server,) = seen
    assert server.windows.counts.sum() == 1
    mean, spread = sfvi.posterior_moments(server)
    np.testing.assert_allclose(server.windows.sums[0, 0], np.concatenate([mean, np.sqrt(np.diag(spread))]), rtol=1e-13)
    assert abs(np.sqrt(spread[2, 2]) / server.block.sd(server.parameters)[2] - 1) > 0.05


def test_without_a_ridge_a_run_has_the_bits_of_one_without_the_setting():
    settings, models = chosen.sfvi(rounds=40, learning_rate=0.05), h.linear([2, 3])
    want, _ = h.run(models, settings)
    started, clients = h.machines(models, replace(settings, sheared=True))
    server, _ = play(sfvi, started, clients)
    np.testing.assert_array_equal(server.q[1], want.q[1])


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="sheared must be False"):
        chosen.sfvi(sheared=True, local_steps=2)
    with pytest.raises(ValueError, match="sheared = True"):
        machines(chosen.sfvi())
