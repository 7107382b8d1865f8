"""Clients that take part by a summary: a quadratic in the place of each log-likelihood, by two questions that it answers once."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedkern.algorithms.core.box import Box
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import (
    ASKED_OF_ALL,
    LOST,
    AskCurvature,
    AskNormal,
    AskValues,
    Curvature,
    Values,
    of_derivatives,
)
from fedkern.algorithms.importance.summaries import allowed, average, told
from fedkern.arrays import Array
from fedkern.errors import NumericalError
from fedkern.models.expfam import packed
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.saturated import Saturated
from support import chosen
from support.likelihoods import Function, Logistic, Normal, machines, run
from support.refusal import refusal

PRIOR = Normal.prior(2.5, 3)


def logistic(seed: int, n: int) -> Logistic:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return Logistic(X, (rng.random(n) < expit(X @ [-0.5, 0.6, -0.4])).astype(float))


CLIENTS = [logistic(1, 49), logistic(2, 106), logistic(3, 216)]


def asked(models: list[Any], prior: Any, **settings: Any) -> tuple[importance.Server, dict[int, list[str]]]:
    """The server's last state, and the kinds of questions that each client was asked."""
    (state, effects), clients = machines(models, prior, **settings)
    questions: dict[int, list[str]] = {k: [] for k in clients}
    while effects:
        k, question = effects.pop(0)
        questions[k].append(type(question).__name__)
        clients[k], answers = importance.client_receive(clients[k], question)
        for answer in answers:
            state, more = importance.server_receive(state, k, answer)
            effects += more
    assert importance.finished(state)
    return state, questions


def moments(found: importance.Found) -> tuple[Array, Array]:
    assert found.posterior is not None
    return found.posterior.mean, found.posterior.sd


@pytest.mark.parametrize("summaries", [(0,), (1, 2), (0, 1, 2)])
def test_the_summary_of_a_quadratic_is_exact(summaries: tuple[int, ...]) -> None:
    rng, models = np.random.default_rng(0), []
    for _ in range(3):
        A = rng.normal(size=(5, 3))
        models.append(Normal(rng.normal(size=3), A.T @ A, -2.0))
    found = importance.read_result(asked(models, PRIOR, summaries=summaries)[0])
    H = PRIOR.precision + sum(one.precision for one in models)
    mode = np.linalg.solve(H, sum(one.precision @ one.mean for one in models))
    at = mode[np.newaxis]
    joint = float(PRIOR.values(at)[0] + sum(one.values(at)[0] for one in models))
    evidence = joint - 0.5 * np.linalg.slogdet(H)[1] + 1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found.mode, mode, atol=1e-6)
    np.testing.assert_allclose(found.precision, H, rtol=1e-6)
    assert found.log_evidence is not None
    assert found.log_evidence[0] == pytest.approx(evidence, abs=0.03)
    assert found.summed is not None
    # Averages over points and their mirror images are exact, and move nothing.
    assert found.summed[0] < 1e-6
    V = np.linalg.inv(H)
    share = np.trace(V @ sum(models[k].precision for k in summaries)) / 3
    assert found.summed[1] == pytest.approx(share, rel=1e-6)


def test_averages_are_those_of_the_normal_distribution() -> None:
    """Beside quadrature over each row's predictor, which is normal."""
    own, covariance = CLIENTS[0], np.array([[0.3, 0.1, 0.0], [0.1, 0.2, -0.05], [0.0, -0.05, 0.4]])
    mean = np.array([-0.3, 0.8, -0.2])
    value, gradient, hessian, remains = average(
        lambda xi: own.curvature(xi, 1), AskNormal(1, 1, mean, packed(covariance[np.newaxis])[0]), seed=5
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    eta = own.X @ mean + nodes[:, np.newaxis] * np.sqrt(np.einsum("ij,jk,ik->i", own.X, covariance, own.X))
    chance, weights = expit(eta), weights / weights.sum()
    exact = own.X.T @ (own.y - weights @ chance), (own.X.T * (weights @ (chance * (1 - chance)))) @ own.X
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((gradient[0] - exact[0]) * sd).max() < 2e-3
    np.testing.assert_allclose(hessian[0], exact[1], rtol=5e-3, atol=5e-3)
    level = weights @ (own.y * eta - np.logaddexp(0, eta))
    assert value[0] - (hessian[0] * covariance).sum() / 2 == pytest.approx(level.sum(), abs=5e-3)
    away = np.random.default_rng(1).multivariate_normal(np.zeros(3), covariance, 20_000)
    quadratic = away @ gradient[0] - np.einsum("si,ij,sj->s", away, hessian[0], away) / 2
    assert remains[0] == pytest.approx(np.std(own.values(mean + away, 1) - quadratic), rel=0.2)


@pytest.mark.parametrize("summaries", [(0,), (0, 1), (0, 1, 2)])
def test_a_client_answers_one_point_and_one_normal(summaries: tuple[int, ...]) -> None:
    _, questions = asked(CLIENTS, PRIOR, summaries=summaries)
    for k, kinds in questions.items():
        if k in summaries:
            assert kinds == ["AskCurvature", "AskNormal", "Posterior"]
        else:
            assert "AskNormal" not in kinds
            assert "AskValues" in kinds


def test_the_posterior_is_that_of_all_rows() -> None:
    exact = moments(importance.read_result(asked(CLIENTS, PRIOR, points=8192)[0]))
    for summaries, near in (((0,), 0.01), ((0, 1), 0.05)):
        found = importance.read_result(asked(CLIENTS, PRIOR, points=8192, summaries=summaries)[0])
        mean, sd = moments(found)
        assert np.abs((mean - exact[0]) / exact[1]).max() < near
        assert np.abs(sd / exact[1] - 1).max() < 0.02
        assert found.summed is not None
        # Of so many rows the share of the information is about the share of the rows.
        rows = sum(len(CLIENTS[k].y) for k in summaries) / 371
        assert rows / 1.6 < found.summed[1] < 1.6 * rows


def test_the_order_of_answers_changes_no_bit() -> None:
    orders = (None, random.Random(3))
    one, other = (importance.read_result(run(CLIENTS, PRIOR, summaries=(0, 1), order=order)[0]) for order in orders)
    np.testing.assert_array_equal(one.mode, other.mode)
    np.testing.assert_array_equal(one.values, other.values)


def test_a_separated_summary_has_a_posterior_by_its_prior() -> None:
    """All its responses are 1: alone it has no mode, and with the others it has."""
    apart = replace(CLIENTS[0], y=np.ones(49))
    found = importance.read_result(asked([apart, *CLIENTS[1:]], PRIOR, summaries=(0,))[0])
    exact = importance.read_result(asked([apart, *CLIENTS[1:]], PRIOR)[0])
    assert found.converged
    mean, sd = moments(exact)
    assert np.abs((moments(found)[0] - mean) / sd).max() < 0.1


def test_a_long_job_of_summaries_alone_ends() -> None:
    """One after another, each from the mode by those before it: more steps than a climb with questions may have."""
    models = [logistic(seed, 30) for seed in range(24)]
    found = importance.read_result(asked(models, PRIOR, summaries=tuple(range(24)), newton=5)[0])
    assert found.converged
    exact = importance.read_result(asked(models, PRIOR)[0])
    assert np.abs((moments(found)[0] - moments(exact)[0]) / moments(exact)[1]).max() < 0.1


def test_a_state_that_is_kept_between_both_questions_goes_on() -> None:
    (state, effects), clients = machines(CLIENTS, PRIOR, summaries=(0,))
    fresh = machines(CLIENTS, PRIOR, summaries=(0,))
    whole = importance.read_result(asked(CLIENTS, PRIOR, summaries=(0,))[0])
    while effects:
        answers = []
        for k, question in effects:
            clients[k], said = importance.client_receive(clients[k], question)
            answers += [(k, answer) for answer in said]
        effects = []
        for k, answer in answers:
            state, more = importance.server_receive(state, k, answer)
            effects += more
        state = importance.load(fresh[0][0], importance.save(state)) if not state.answers else state
        clients = {k: importance.load(fresh[1][k], importance.save(one)) for k, one in clients.items()}
        state = replace(state, waiting=type(state.waiting)([k for k, _ in effects]))
    found = importance.read_result(state)
    np.testing.assert_array_equal(found.values, whole.values)
    assert found.summed == whole.summed


# Questions that a client refuses --------------------

POINT, OTHER = (AskCurvature(0, 1, np.full((1, 3), x)) for x in (0.0, 1.0))
NORMAL = AskNormal(1, 1, np.zeros(3), packed(np.eye(3)[np.newaxis])[0])
DRAWS = AskValues.of(0, 1, np.zeros(3), np.zeros((1024, 3)))


def client(index: int = 0) -> importance.Client:
    return importance.client("c", index, chosen.importance(summaries=(0,)), CLIENTS[0])


@pytest.mark.parametrize(
    "questions",
    [
        [POINT, replace(OTHER, round=1)],  # a second point
        [NORMAL],
        [replace(NORMAL, round=0)],
        [DRAWS],
        [POINT, replace(DRAWS, round=1)],
        [POINT, NORMAL, replace(NORMAL, round=2)],
        [POINT, NORMAL, replace(OTHER, round=2)],
    ],
)
def test_no_other_question_is_answered(questions: list[Any]) -> None:
    state = client()
    for question in questions[:-1]:
        state, answers = importance.client_receive(state, question)
        assert len(answers) == 1
    with pytest.raises(RemoteFault, match="one point and one normal distribution, each once"):
        importance.client_receive(state, questions[-1])


# Sums of all clients --------------------


def one_of_all(seed: int, n: int) -> importance.Client:
    """A client whose answers are added: all take part by one summary."""
    own = logistic(seed, n)
    layout = Layout(("intercept", "a", "b"), "bernoulli")
    settings = chosen.importance(
        summaries=(0,), questions=ASKED_OF_ALL, clients=3, box=Box((-50.0,) * 3, (50.0,) * 3), rounds_messages=True
    )
    rows = Rows(layout, own.X, own.y, np.array([0, n]))
    return importance.client("c", 2, settings, Saturated(rows), Prior.usual(layout))


def test_of_sums_so_many_normals_are_answered_and_no_draws() -> None:
    state, _ = importance.client_receive(one_of_all(0, 30), POINT)
    with refusal(RemoteFault, "AskValues"):
        importance.client_receive(state, replace(DRAWS, round=1))
    for round in range(1, ASKED_OF_ALL):
        state, _ = importance.client_receive(state, replace(NORMAL, round=round))
    with pytest.raises(RemoteFault, match=f"at most {ASKED_OF_ALL - 1} normal distributions"):
        importance.client_receive(state, replace(NORMAL, round=ASKED_OF_ALL))
    with pytest.raises(RemoteFault, match="asks where no client with secure sums answers"):
        importance.client_receive(importance.client_receive(one_of_all(0, 30), POINT)[0], replace(NORMAL, mean=np.full(3, 60.0)))


def test_parts_of_a_sum_are_rounded_by_the_question_alone() -> None:
    """Whoever's they are: units of a client's own rows would say how rows are dealt. Their sum is that of all rows, about."""
    parts, V = [(seed, n) for seed, n in enumerate((8, 40, 400))], 0.01 * np.eye(3)
    asked_over = replace(NORMAL, covariance=packed(V[np.newaxis])[0])
    of_gradient, of_hessian = of_derivatives(np.zeros((3, 3)), np.linalg.inv(V), 3)
    total, exact = np.zeros(3), np.zeros(3)
    for one in parts:
        own = logistic(*one)
        state, _ = importance.client_receive(one_of_all(*one), POINT)
        _, (answer,) = importance.client_receive(state, asked_over)
        gradient, hessian = (getattr(answer, name)[0] for name in ("gradient", "hessian"))
        assert (gradient / of_gradient == np.rint(gradient / of_gradient)).all()
        assert (hessian / packed(of_hessian[np.newaxis])[0] == np.rint(hessian / packed(of_hessian[np.newaxis])[0])).all()
        total += gradient
        exact += average(partial(own.curvature, nodes=1), asked_over, 0)[1][0]
    assert np.abs(total - exact).max() < 3 * of_gradient.max()


NO_COVARIANCES = [-np.eye(3), np.zeros((3, 3)), np.full((3, 3), np.nan), np.array([[1, 2, 0], [2, 1, 0], [0, 0, 1.0]])]


@pytest.mark.parametrize("covariance", NO_COVARIANCES)
def test_a_normal_without_a_covariance_is_refused(covariance: Array) -> None:
    state, _ = importance.client_receive(client(), POINT)
    with refusal(RemoteFault, "AskNormal"):
        importance.client_receive(state, replace(NORMAL, covariance=packed(covariance[np.newaxis])[0]))


def test_others_answer_no_normal() -> None:
    with refusal(RemoteFault, "AskNormal"):
        importance.client_receive(client(1), replace(NORMAL, round=0))


# Answers that the server refuses --------------------


def at_the_summary() -> tuple[importance.Server, Curvature]:
    """The server when it waits for the first client's point, and the right answer."""
    (state, effects), clients = machines(CLIENTS, PRIOR, summaries=(0,))
    while True:
        k, question = effects.pop(0)
        clients[k], (answer,) = importance.client_receive(clients[k], question)
        if k == 0:
            assert isinstance(answer, Curvature)
            return state, answer
        state, more = importance.server_receive(state, k, answer)
        effects += more


def test_answers_that_are_none_are_refused() -> None:
    state, right = at_the_summary()
    with refusal(RemoteFault, "0", "Curvature"):
        importance.server_receive(state, 0, replace(right, round=1))
    with refusal(RemoteFault, "0", "Values"):
        importance.server_receive(state, 0, Values.of(0, np.zeros(1024), 0.0))
    with refusal(RemoteFault, "1", "Curvature"):  # who was not asked
        importance.server_receive(state, 1, right)
    with pytest.raises(NumericalError, match="of client 'c0', which takes part by a summary, is not finite"):
        importance.server_receive(state, 0, replace(right, value=np.array([LOST])))
    state, effects = importance.server_receive(state, 0, right)
    assert effects
    with refusal(RemoteFault, "0", "Curvature"):
        importance.server_receive(state, 0, right)


def test_a_log_likelihood_without_values_ends_the_job() -> None:
    none = Function(3, lambda x: np.full(len(x), np.nan))
    with pytest.raises(NumericalError, match="takes part by a summary, is not finite"):
        asked([none, *CLIENTS[1:]], PRIOR, summaries=(0,))


@pytest.mark.parametrize(("rows", "columns", "questions"), [(12, 3, 0), (13, 3, 2), (36, 3, 4), (400, 3, 5), (30, 1, 2)])
def test_more_questions_are_answered_where_rows_are_more(rows: int, columns: int, questions: int) -> None:
    P = columns + 1
    assert allowed(P, rows, columns) == questions
    assert not questions or told(P) + 1 <= 0.8 * rows * columns
    assert questions < 3 or told(P, questions) + questions - 1 <= 0.6 * rows * columns
