"""The shear of the global unknowns: its algebra, what it leaves as it is, and what is kept."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.sfvi.shear import Shear
from fedkern.models.variational import Block
from oracles.differences import four_point
from support import chosen
from support import hierarchical as h
from support.federations import play

P, ROW, Z = 6, 4, slice(1, 4)
SLOPES = np.array([0.7, -1.3, 0.4])
SHEAR = Shear(ROW, Z, SLOPES)
T = np.eye(P)
T[ROW, Z] = SLOPES
SETTINGS = [chosen.sfvi(rounds=47, covariance=c, sheared=True, learning_rate=0.05) for c in ("full", "diagonal")]


class Moving:
    """A ridge whose slopes follow where xi is."""

    row, columns = 2, slice(0, 2)

    def slopes(self, xi):
        return np.array([0.5, -1.0]) + xi[:2]


def block_at(*, full, seed=0):
    block = Block(P, full)
    rng = np.random.default_rng(seed)
    return block, block.initial(rng.normal(size=P), 0.4) + 0.3 * rng.normal(size=block.n_parameters)


def dense(block, parameters):
    mean, spread = block.moments(parameters)
    return mean, spread if spread.ndim == 2 else np.diag(spread**2)


def log_target(xi):
    """Something that is no Gaussian, and its gradient."""
    value = -0.25 * float((xi**4).sum()) + float(np.sin(xi[:-1] * xi[1:]).sum())
    gradient = -(xi**3)
    gradient[:-1] += xi[1:] * np.cos(xi[:-1] * xi[1:])
    gradient[1:] += xi[:-1] * np.cos(xi[:-1] * xi[1:])
    return value, gradient


def test_it_is_the_matrix_that_is_said():
    x = np.random.default_rng(1).normal(size=P)
    np.testing.assert_allclose(SHEAR.out(x), T @ x, rtol=1e-15)
    np.testing.assert_allclose(SHEAR.pulled(x), T.T @ x, rtol=1e-15)
    assert not SHEAR.still
    assert Shear.along(Moving()).still
    np.testing.assert_array_equal(Shear.along(None).out(x), x)


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_four_point_gradients_of_the_sheared_bound(full, path):
    """Of E log p(T xi') - log q(xi') at frozen noise; and without T' they are wrong."""
    block, parameters = block_at(full=full)
    e = np.random.default_rng(2).normal(size=P)

    def objective(flat):
        inner = block.sample(flat, e)
        own = -stats.multivariate_normal.logpdf(inner, *dense(block, parameters)) if path else block.entropy(flat)
        return log_target(T @ inner)[0] + own

    slope = log_target(SHEAR.out(block.sample(parameters, e)))[1]
    want = four_point(objective, parameters)
    found = block.gradient(parameters, e, SHEAR.pulled(slope), path=path)
    np.testing.assert_allclose(found, want, atol=5e-6 * np.abs(want).max())
    wrong = block.gradient(parameters, e, slope, path=path)
    assert np.abs(wrong - want).max() > 1e-2 * np.abs(want).max()


def test_the_bound_and_its_gradient_are_those_of_q_by_the_chain_rule():
    """A full q(xi') under T is the full q(xi) of `released`: one bound, and gradients that the Jacobian of that map ties."""
    block, parameters = block_at(full=True)
    e = np.random.default_rng(3).normal(size=P)
    plain = SHEAR.released(block, parameters)
    xi = block.sample(plain, e)
    np.testing.assert_allclose(xi, SHEAR.out(block.sample(parameters, e)), rtol=1e-13)
    assert block.log_density(plain, e) == pytest.approx(block.log_density(parameters, e), rel=1e-13)
    assert block.entropy(plain) == pytest.approx(block.entropy(parameters), rel=1e-13)
    slope = log_target(xi)[1]
    unsheared = block.gradient(plain, e, slope, path=False)
    by_entry = [four_point(lambda x, k=k: SHEAR.released(block, x)[k], parameters) for k in range(len(plain))]
    pulled = np.array(by_entry).T @ unsheared
    found = block.gradient(parameters, e, SHEAR.pulled(slope), path=False)
    np.testing.assert_allclose(found, pulled, atol=5e-6 * np.abs(pulled).max())


@pytest.mark.parametrize("full", [True, False])
def test_what_is_released_has_the_moments_of_xi(full):
    block, parameters = block_at(full=full)
    mean, covariance = dense(block, parameters)
    found, spread = Block(P, True).moments(SHEAR.released(block, parameters))
    np.testing.assert_allclose(found, T @ mean, rtol=1e-13)
    np.testing.assert_allclose(spread, T @ covariance @ T.T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("full", [True, False])
def test_q_follows_where_the_shear_is_found_anew(full):
    """A full q(xi) stays as it is; of a diagonal one the means of xi, and the standard deviations of xi'."""
    block, parameters = block_at(full=full)
    new, moved = SHEAR.renewed(block, parameters, np.array([-0.2, 0.1, 2.0]))
    before, after = (dense(Block(P, True), shear.released(block, x)) for shear, x in ((SHEAR, parameters), (new, moved)))
    np.testing.assert_allclose(after[0], before[0], rtol=1e-12)
    if full:
        np.testing.assert_allclose(after[1], before[1], rtol=1e-11, atol=1e-13)
    else:
        np.testing.assert_array_equal(block.sd(moved), block.sd(parameters))
    np.testing.assert_array_equal(new.slopes, [-0.2, 0.1, 2.0])


# Whole machines --------------------


def machines(settings, ridge=None):
    models = h.linear([2, 3])
    _, clients = h.machines(models, settings)
    names = tuple(c.name for c in clients.values())
    return sfvi.start(settings, h.prior_of(models[0]), names, ridge=Moving() if ridge is None else ridge), clients


def kept(state):
    return {name: np.asarray(value) for name, value in sfvi.save(state).items()}


@pytest.mark.parametrize("settings", SETTINGS)
def test_clients_are_told_q_of_xi_itself(settings):
    (server, effects), clients = machines(settings)
    server, clients = play(sfvi, (server, effects), clients)
    block, parameters = server.q
    assert block == Block(3, True)
    assert not server.shear.still
    assert len(parameters) == settings.sizes(3)["k"]
    np.testing.assert_allclose(
        block.moments(parameters)[1], (lambda L, S: L @ S @ L.T)(shear_of(server), dense(server.block, server.parameters)[1])
    )
    for client in clients.values():
        np.testing.assert_array_equal(client.fitted, parameters)
        sfvi.local_posterior(client)
    np.testing.assert_array_equal(sfvi.posterior(server)[0], parameters[:3])


def shear_of(server):
    matrix = np.eye(server.block.size)
    matrix[server.shear.row, server.shear.columns] = server.shear.slopes
    return matrix


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("stop", [1, 3, 31])
def test_a_resumed_run_has_the_same_bits(settings, stop):
    """T is found anew after every second round."""
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
    """What they have added up of the last round of a stretch are the moments that a client would be told."""
    settings = replace(SETTINGS[1], rounds=200, decay=0.0)
    seen = []

    def pause(server):
        if server.round == 131:
            seen.append(server)
        return server.round == 131

    started, clients = machines(settings)
    play(sfvi, started, clients, pause=pause)
    (server,) = seen
    block, parameters = server.q
    assert server.windows.counts.sum() == 1
    np.testing.assert_allclose(server.windows.sums[0, 0], np.concatenate([parameters[:3], block.sd(parameters)]), rtol=1e-13)
    assert abs(block.sd(parameters)[2] / server.block.sd(server.parameters)[2] - 1) > 0.05


def test_without_a_ridge_a_full_run_has_the_bits_of_one_without_the_setting():
    settings, models = chosen.sfvi(rounds=40, learning_rate=0.05), h.linear([2, 3])
    want, _ = h.run(models, settings)
    started, clients = h.machines(models, replace(settings, sheared=True))
    server, _ = play(sfvi, started, clients)
    np.testing.assert_array_equal(server.q[1], want.q[1])


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="sfvi: sheared must be False with local_steps > 0"):
        chosen.sfvi(sheared=True, local_steps=2)
    with pytest.raises(ValueError, match="a ridge is for settings with sheared = True"):
        machines(chosen.sfvi())
