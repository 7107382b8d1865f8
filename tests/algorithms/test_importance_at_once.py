"""Several questions of importance sampling in one trip: draws with the last step to the mode, and rounds of draws together."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core import masked
from fedkern.algorithms.core.box import Box
from fedkern.algorithms.core.masked import Hider, Sums
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.importance import draws, newton
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import AskCurvature, AskValues, Curvature, Values
from fedkern.models.saturated import Saturated
from fedkern.privacy.masks import Pairs, public_key
from fedkern.transports.codec import Codec, pack, unpack
from fedkern.transports.inprocess import run_protocol
from support import chosen
from support.likelihoods import Function, Normal, counts, machines, run
from support.refusal import refusal

NAMES = ("c0", "c1", "c2")
POISSON = [counts(np.array(y)) for y in ([[3.0, 5.0]], [[4.0, 1.0]], [[2.0]])]
VAGUE = Normal.prior(10.0, 1)


def trips(models: list[Any], prior: Any, **settings: Any) -> tuple[list[list[str]], Any]:
    """Returns the kinds of questions that the first client is asked in each trip, and the server's last state."""
    (state, effects), clients = machines(models, prior, **settings)
    asked = []
    while effects:
        asked.append([type(message).__name__ for k, message in effects if k == 0])
        answers = []
        for k, message in effects:
            clients[k], said = importance.client_receive(clients[k], message)
            answers += [(k, answer) for answer in said]
        effects = []
        for k, answer in answers:
            state, more = importance.server_receive(state, k, answer)
            effects += more
    assert importance.finished(state)
    return asked, state


def test_the_first_draws_are_asked_with_the_step_that_ends_at_the_mode() -> None:
    asked, state = trips(POISSON, VAGUE)
    *before, both, told = asked
    assert both == ["AskCurvature", "AskValues"]
    assert set(map(tuple, before)) == {("AskCurvature",)}
    assert told == ["Posterior"]
    result = importance.read_result(state)
    assert result.converged
    # Five counts that add to 15: the posterior of their mean is a Gamma(15, 5), and the mode of its logarithm is log 3.
    assert result.mode[0] == pytest.approx(np.log(3.0), abs=5e-3)
    assert np.exp(result.posterior.draws[:, 0]) @ result.posterior.weights == pytest.approx(3.0, rel=0.01)


def test_the_draws_do_not_depend_on_when_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a step that ends at the mode to the last bits: of a quadratic, from which the last step is none."""
    models, prior = [Normal(np.array([0.05]), np.eye(1))] * 2, Normal.prior(1e6, 1)
    asked, ahead = trips(models, prior)
    assert asked[-2] == ["AskCurvature", "AskValues"]
    monkeypatch.setattr(newton, "ARRIVING", 0.0)
    later, alone = trips(models, prior)
    assert later == [*asked[:-2], ["AskCurvature"], ["AskValues"], asked[-1]]
    np.testing.assert_allclose(ahead.draws[0].xi, alone.draws[0].xi, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ahead.draws[0].values, alone.draws[0].values, atol=2e-3)


def test_draws_around_a_point_that_is_no_mode_are_given_up_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARRIVING", "SETTLED"):  # at every step that is not cut the mode is expected
        monkeypatch.setattr(newton, name, 50.0)
    asked, state = trips(POISSON, VAGUE, rounds=4)
    ahead = [kinds for kinds in asked if kinds == ["AskCurvature", "AskValues"]]
    assert len(ahead) == 1  # no second time
    assert asked.index(ahead[0]) < len(asked) - 3
    assert asked[-2] == ["AskValues"]
    assert (state.drawn, len(state.draws), len(state.proposals)) == (2, 1, 1)
    result = importance.read_result(state)
    assert np.exp(result.posterior.draws[:, 0]) @ result.posterior.weights == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("net", [128, 1024])
@pytest.mark.parametrize(("points", "rounds"), [(256, 1), (256, 2), (256, 3), (256, 6), (256, 8), (1024, 2)])
def test_draws_that_are_given_up_count_among_those_that_the_job_allows(
    points: int, rounds: int, net: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ARRIVING", "SETTLED"):
        monkeypatch.setattr(newton, name, 50.0)
    asked, state = trips(POISSON, VAGUE, points=points, rounds=rounds, effective=1e6, net=net)
    assert sum(kinds.count("AskValues") for kinds in asked) == state.drawn == state.settings.most_questions
    assert sum(len(one.xi) for one in state.draws) > 0


def test_nodes_that_are_too_few_at_the_mode_give_up_draws_too() -> None:
    """The rule is small on the way and large at the mode: the quadrature is asked anew, and draws after it."""
    rough = Function(1, lambda x: -0.5 * x[:, 0] ** 2, lambda x, nodes: 1e-2 * 0.5**nodes / (1e-4 + (x[:, 0] - 0.5) ** 2))
    asked, state = trips([rough, Normal(np.array([1.0]), np.eye(1))], Normal.prior(1e6, 1), nodes=2, most_nodes=64)
    assert state.nodes > 2
    assert len(state.draws) == len(state.proposals)
    assert np.isfinite(importance.read_result(state).posterior.mean).all()
    assert asked[-1] == ["Posterior"]


@pytest.mark.parametrize("settings", [{}, {"rounds": 1}, {"rounds": 0, "told": 0}])
def test_a_job_of_chains_asks_for_no_draws_before_its_mode(settings: dict[str, int]) -> None:
    asked, _ = trips(POISSON, VAGUE, **settings)
    assert any(len(kinds) > 1 for kinds in asked) == (not settings)


def test_each_round_has_as_many_draws_as_all_before_it_together() -> None:
    models, prior = [Normal(np.zeros(3), np.eye(3))] * 2, Normal.prior(1.0, 3)
    asked, state = trips(models, prior, points=256, effective=10_000, rounds=64)
    of_draws = [kinds.count("AskValues") for kinds in asked if "AskValues" in kinds]
    assert of_draws == [4, 4, 8, 16, 32][: len(of_draws)]
    assert sum(of_draws) == state.drawn > 8
    result = importance.read_result(state)
    assert result.converged
    assert result.posterior.effective >= 6000
    assert result.rounds == len(of_draws)
    xi = np.concatenate([one.xi for one in state.draws])
    assert len(np.unique(xi, axis=0)) == len(xi) == 256 * state.drawn  # each round has points of its own
    assert max(draws.errors(state, result.posterior)) <= state.settings.error


def test_each_question_of_a_round_has_points_of_every_component() -> None:
    """A client rounds a draw by how far it is from the others of its question."""
    models, prior = [Normal(np.zeros(3), np.eye(3))] * 2, Normal.prior(1.0, 3)
    _, state = trips(models, prior, points=256, effective=10_000, rounds=64)
    for source in state.sources:
        assert sorted(source.order_of_questions) == list(range(len(source.nets)))
        wide = (source.order_of_questions >= source.counts[0]).reshape(-1, 256)
        np.testing.assert_allclose(wide.mean(axis=1), 0.2, atol=0.02)
        assert (np.diff(source.nets[source.order_of_questions]) >= 0).all()


@pytest.mark.parametrize(("points", "rounds"), [(256, 5), (256, 7), (2048, 3)])
def test_no_more_draws_are_asked_than_the_job_allows(points: int, rounds: int) -> None:
    models, prior = [Normal(np.zeros(3), np.eye(3))] * 2, Normal.prior(1.0, 3)
    asked, state = trips(models, prior, points=points, effective=1e6, rounds=rounds)
    assert state.drawn == state.settings.most_questions == sum(kinds.count("AskValues") for kinds in asked)
    assert sum(len(one.xi) for one in state.draws) == points * rounds


def test_draws_begin_anew_with_few_where_nodes_were_too_few_for_many() -> None:
    """A rule that is off at a far draw alone, which the first round may miss."""
    far = Function(1, lambda x: -0.5 * x[:, 0] ** 2, lambda x, nodes: np.where(np.abs(x[:, 0]) > 7.0, 10.0 * 0.5**nodes, 0.0))
    asked, state = trips([far], Normal.prior(1e6, 1), nodes=2, most_nodes=64, effective=20_000, rounds=32)
    assert state.nodes > 2
    assert sum(len(one.xi) for one in state.draws) < 1024 * state.drawn <= 1024 * state.settings.most_questions
    assert state.drawn + 5 >= sum(kinds.count("AskValues") for kinds in asked)


def test_answers_come_in_the_order_of_their_questions() -> None:
    (state, effects), clients = machines(POISSON, VAGUE)
    while len({type(message) for _, message in effects}) == 1:
        told = [(k, answer) for k, message in effects for answer in answered(clients, k, message)]
        effects = []
        for k, answer in told:
            state, more = importance.server_receive(state, k, answer)
            effects += more
    mine = [message for k, message in effects if k == 0]
    assert [type(message) for message in mine] == [AskCurvature, AskValues]
    (first,), (then,) = answered(clients, 0, mine[0]), answered(clients, 0, mine[1])
    assert (type(first), type(then)) == (Curvature, Values)
    with refusal(RemoteFault, "0", "Values"):
        importance.server_receive(state, 0, then)
    state, _ = importance.server_receive(state, 0, first)
    with refusal(RemoteFault, "0", "Curvature"):
        importance.server_receive(state, 0, first)
    state, _ = importance.server_receive(state, 0, then)
    with refusal(RemoteFault, "0", "Values"):
        importance.server_receive(state, 0, then)


def answered(clients: dict[int, Any], k: int, message: Any) -> list[Any]:
    clients[k], said = importance.client_receive(clients[k], message)
    return said


def test_a_run_that_stopped_before_both_questions_left_goes_on_to_the_same_bits() -> None:
    whole = importance.save(run(POISSON, VAGUE)[0])
    (state, effects), clients = machines(POISSON, VAGUE)
    while True:
        told = [(k, answer) for k, message in effects for answer in answered(clients, k, message)]
        effects = []
        for k, answer in told:
            state, more = importance.server_receive(state, k, answer)
            effects += more
        if len({type(message) for _, message in effects}) == 2:
            break
    (fresh, _), again = machines(POISSON, VAGUE)
    state = importance.load(fresh, unpack(pack(importance.save(state))))
    clients = {k: importance.load(one, unpack(pack(importance.save(clients[k])))) for k, one in again.items()}
    while effects:
        told = [(k, answer) for k, message in effects for answer in answered(clients, k, message)]
        effects = []
        for k, answer in told:
            state, more = importance.server_receive(state, k, answer)
            effects += more
    assert pack(importance.save(state)) == pack(whole)


# Masked --------------------


def hidden(order: Any = None) -> Any:
    """The last state of the server's machine, where clients mask their answers."""
    s = chosen.importance(box=Box((-100.0,), (100.0,)))
    start, _ = machines([sum_of_both()], VAGUE)
    own = {k: importance.client(name, k, s, Saturated(model)) for k, (name, model) in enumerate(zip(NAMES, POISSON))}
    protocol = importance.protocol(s)
    sums = Sums(protocol, importance.SUMS, s.sizes(1), dict.fromkeys(protocol.to_client, 99))
    secrets = [hashlib.sha256(name.encode()).digest() for name in NAMES]
    keys = [public_key(secret) for secret in secrets]
    pairs = [Pairs.agree(k, secret, NAMES, keys, b"job") for k, secret in enumerate(secrets)]
    parties = {k: masked.Client(one, Hider(pairs[k])) for k, one in own.items()}
    end, _ = run_protocol(sums.masked, sums.start(start, NAMES), parties, Codec(sums.masked_dims, 3), order=order)
    return end.inner


def sum_of_both() -> Function:
    return counts(np.array([[3.0, 5.0, 4.0, 1.0, 2.0]]))


@pytest.mark.parametrize("seed", range(4))
def test_masked_answers_to_several_questions_are_added_question_by_question(seed: int) -> None:
    """Whichever client is faster: a second answer may come before another client's first."""
    state = hidden(random.Random(seed))
    assert len(state.draws) == 1
    plain, _ = run([sum_of_both()], VAGUE)
    np.testing.assert_allclose(state.climb.at, plain.climb.at, rtol=1e-9)
    np.testing.assert_allclose(state.draws[0].values.sum(axis=1), plain.draws[0].values.sum(axis=1), atol=2.6e-3)
