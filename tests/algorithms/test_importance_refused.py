"""Clients that answer no question about few of their rows: what the server does then, and when a client answers no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedkern.algorithms.importance import client as of_client
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import LOST, REFUSED, AskCurvature, AskNormal, Curvature
from fedkern.arrays import Array
from fedkern.errors import NumericalError, OwnFault
from fedkern.models.expfam import packed
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.weighing import Least
from support import chosen
from support.federations import play
from support.refusal import refusal

LAYOUT = Layout(("intercept", "a", "b"), "bernoulli")
PRIOR = Prior.usual(LAYOUT)
FAR = np.array([0.0, 80.0, 0.0])  # where the rows beside a threshold have all weight


def rows(seed: int, n: int = 80) -> Rows:
    random = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), random.normal(size=(n, 2))])
    return Rows(LAYOUT, X, (random.random(n) < expit(X @ [-0.3, 0.6, -0.4])).astype(float), np.array([0, n]))


USUAL = Least(10, 0.9)


def client(k: int = 0, least: Least | None = USUAL, **settings: Any) -> importance.Client:
    return importance.client(f"c{k}", k, chosen.importance(**settings), rows(k), PRIOR, least)


def asked(state: importance.Client, point: Array) -> tuple[importance.Client, Curvature]:
    state, (answer,) = importance.client_receive(state, AskCurvature(state.round, 1, point[np.newaxis]))
    assert isinstance(answer, Curvature)
    return state, answer


def test_a_question_about_few_rows_has_no_answer() -> None:
    state, answer = asked(client(), FAR)
    assert answer.value[0] == REFUSED <= LOST
    assert not answer.gradient.any()
    assert not answer.hessian.any()
    assert not answer.rule.any()
    assert (state.round, state.refused) == (1, 1)
    state, answer = asked(state, np.zeros(3))
    assert answer.value[0] > LOST
    assert state.refused == 1


def test_after_the_second_one_a_client_answers_no_more() -> None:
    state, _ = asked(client(), FAR)
    with refusal(OwnFault, "c0", "2") as caught:
        asked(state, 2 * FAR)
    assert "round 1" in caught.value.own


def test_nothing_is_refused_where_nothing_is_asked_of_rows() -> None:
    state = client(least=None)
    for _ in range(3):
        state, answer = asked(state, FAR)
        assert answer.value[0] > LOST


def test_a_normal_about_few_rows_has_no_answer() -> None:
    covariance = packed(0.01 * np.eye(3)[np.newaxis])[0]
    state, _ = asked(client(summaries=(0,)), np.zeros(3))
    state, (answer,) = importance.client_receive(state, AskNormal(1, 1, FAR, covariance))
    assert isinstance(answer, Curvature)
    assert answer.value[0] == REFUSED


def played(monkeypatch: pytest.MonkeyPatch, which: int, **settings: Any) -> importance.Server:
    """A job of three clients, of which the first refuses its `which`-th question; -1: none."""
    monkeypatch.setattr(of_client, "few_rows", lambda state, point: state.index == 0 and state.round == which)
    s, names = chosen.importance(**settings), ("c0", "c1", "c2")
    started = importance.start(s, PRIOR, names, importance.Coordinates(LAYOUT.names), np.zeros((1, 3)))
    return play(importance, started, {k: client(k, **settings) for k in range(3)})[0]


def test_the_way_to_the_mode_goes_on_with_a_shorter_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found, usual = (importance.read_result(played(monkeypatch, which)) for which in (1, -1))
    np.testing.assert_allclose(found.mode, usual.mode, atol=0.01)
    assert found.newton > usual.newton
    assert found.converged


def test_without_a_first_point_the_job_ends_with_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NumericalError, match=r"client 'c0' answers no question .*disclosure\.rows, .*leverage"):
        played(monkeypatch, 0)


def test_without_a_summary_the_job_ends_with_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NumericalError, match=r"client 'c0' answers no question .*leverage"):
        played(monkeypatch, 1, summaries=(0,))
