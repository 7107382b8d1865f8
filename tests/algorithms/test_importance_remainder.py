"""Jobs that end after one net of draws, where the log-likelihood is a quadratic but for a little that the net knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.importance import draws, remainder
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import FIRST, OF_DRAWS, net_of
from fedkern.models.mixed import Layout
from support import chosen
from support.likelihoods import Function, Logistic, Normal, run

ONE_NET: dict[str, Any] = {"net": 128, "effective": 2000.0, "points": 4096, "rounds": 8}
PRIOR = Normal.prior(3.0, 2)


def clients(n: int, level: float, seed: int = 0) -> list[Logistic]:
    """Two clients of binary responses with an intercept and a slope."""
    random = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), random.standard_normal(n)])
    y = (random.random(n) < 1 / (1 + np.exp(-level - 0.5 * X[:, 1]))).astype(float)
    return [Logistic(X[::2], y[::2]), Logistic(X[1::2], y[1::2])]


def test_many_balanced_rows_are_known_by_one_net_as_by_thousands_of_draws() -> None:
    """Also where the quadratic alone is not good enough for what is claimed: third derivatives move means."""
    models = clients(4000, 0.3)
    one, many = (importance.read_result(run(models, PRIOR, **{**ONE_NET, "net": net})[0]) for net in (128, FIRST))
    assert one.converged
    assert one.posterior is not None
    assert many.posterior is not None
    sd = many.posterior.sd
    assert (np.abs(one.posterior.mean - many.posterior.mean) < 0.02 * sd).all()
    np.testing.assert_allclose(one.posterior.sd, sd, rtol=0.02)
    assert one.log_evidence is not None
    assert many.log_evidence is not None
    assert abs(one.log_evidence[0] - many.log_evidence[0]) < 0.02
    assert len(one.values) == remainder.ANSWER
    assert max(one.error) < 0.03


def test_one_question_about_draws_is_asked() -> None:
    state, _ = run(clients(4000, 0.3), PRIOR, **ONE_NET)
    assert (state.drawn, state.unsure > 0) == (1, True)
    state, _ = run(clients(100, -2.0), PRIOR, **ONE_NET)
    assert (state.unsure, state.drawn % 8) == (0, 0)
    assert [len(draw.xi) for draw in state.draws][:2] == [FIRST, FIRST]


@pytest.mark.parametrize(("n", "level"), [(4000, -5.0), pytest.param(30_000, -7.0, marks=pytest.mark.nightly), (40, -1.5)])
def test_rare_events_and_few_rows_are_never_known_by_one_net(n: int, level: float) -> None:
    for seed in range(5):
        state, _ = run(clients(n, level, seed), PRIOR, **ONE_NET)
        assert state.unsure == 0


def test_a_remainder_is_small_in_all_of_the_posterior_and_not_where_its_mode_is() -> None:
    """A step beside the mode, which no derivative there knows."""
    steep = Function(2, lambda x: -50 * (x**2).sum(axis=1) + 0.3 * np.tanh(40 * (x[:, 0] - 0.1)))
    state, _ = run([steep], PRIOR, **ONE_NET)
    assert state.unsure == 0


def test_what_the_quadratic_leaves_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: by the plain quadratic the mean is off."""

    def cubic(x: Any) -> Any:
        return -50 * (x**2).sum(axis=1) + 8 * x[:, 0] ** 3

    models = [Function(2, cubic), Normal(np.zeros(2), 1e-3 * np.eye(2))]
    state, _ = run(models, PRIOR, **ONE_NET)
    assert state.unsure > 0
    grid = np.linspace(-0.7, 0.7, 20_001)
    log_p = -50.0 * grid**2 + 8 * grid**3 - 0.5 * grid**2 * (1e-3 + 1 / 9)
    p = np.exp(log_p) / np.exp(log_p).sum()
    mean, sd = p @ grid, np.sqrt(p @ grid**2 - (p @ grid) ** 2)
    assert mean > 0.02 * sd
    found = importance.read_result(state).posterior
    assert found is not None
    assert abs(found.mean[0] - mean) < 0.01 * sd
    real = remainder.corrected

    def plain(*given: Any) -> Any:
        one = real(*given)
        assert one is not None
        return one._replace(gradient=0 * one.gradient)

    monkeypatch.setattr(draws, "corrected", plain)
    found = importance.read_result(run(models, PRIOR, **ONE_NET)[0]).posterior
    assert found is not None
    assert abs(found.mean[0] - mean) > 0.01 * sd


def test_who_wants_to_know_more_gets_more_draws() -> None:
    state, _ = run(clients(4000, 0.3), PRIOR, **{**ONE_NET, "effective": 50_000.0})
    assert state.unsure == 0
    assert sum(len(draw.xi) for draw in state.draws) >= 16 * FIRST


def test_the_first_net_tells_half_of_what_draws_may() -> None:
    """By numbers over their squared units, in which what all of them say of rows goes."""
    settings = chosen.importance(points=4096, rounds=8, net=128, clients=3, rounds_messages=True)
    net, others = settings.needed_at_draws(0), settings.needed_at_draws(1)
    assert 128 / net**2 == pytest.approx(32_768 / others**2)
    assert 128 / net**2 + 32_768 / others**2 == pytest.approx(4096 / (OF_DRAWS * settings.needed()) ** 2)
    assert settings.needed_at_draws(2) == others


def test_a_net_is_asked_alone_where_a_client_sees_which_of_its_points_are_far() -> None:
    assert (net_of(2), net_of(21), net_of(22)) == (128, 128, FIRST)
    assert Layout(("intercept", "x"), "bernoulli").most_nodes == 1
