"""Asynchronous partitioned inference under simulated clocks: who waits, when it ends, and what nobody loses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core import kept
from fedkern.algorithms.core.kept import PersistentMap, PersistentSet
from fedkern.algorithms.core.messages import Charge, Charged, ChargeFailed, ClientLost, RemoteFault
from fedkern.algorithms.exchanges.arrival import AskSlope, answer
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.messages import QUpdate, SiteApplied, SiteDelta
from fedkern.models.glm import Rows, prior
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource
from support import clocks
from support.federations import deal, make_rows, run, settings

CLOCKS = [clocks.exponential, clocks.pareto]
SLOW = np.array([12.0, 1, 1, 1, 1, 1, 1, 1])  # seconds of an update; the slow client has the most rows


def unequal(family: str = "bernoulli", seed: int = 0) -> list[Rows]:
    """Eight clients, of whom the first has half of the rows, and the last very few."""
    rows, rng = make_rows(family, n=800, seed=seed), np.random.default_rng(seed)
    edges = [400, 460, 520, 580, 640, 700, 796]
    return [rows.take(part) for part in np.split(rng.permutation(800), edges)]


def started(parts: list[Rows], s: Any, *, private: bool = False, **local: Any) -> tuple[Any, dict[int, Any]]:
    p = prior(parts[0].X.shape[1], 1.0, s.covariance)
    made = {k: Local(part, s, k, **({name: make(k) for name, make in local.items()})) for k, part in enumerate(parts)}
    clients = {k: pvi.client(f"c{k}", one, p) for k, one in made.items()}
    return pvi.start(s, p, len(parts), private=private), clients


def away(q: Any, other: Any) -> float:
    return float((np.abs(q.mean - other.mean) / other.sd).max())


@pytest.mark.parametrize("delays", CLOCKS)
@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_every_client_has_its_rounds_however_slow(family: str, delays: Any) -> None:
    parts = unequal(family)
    optimum = run(parts, settings(family=family, covariance="full", rounds=30))[0].q
    s = settings(family=family, covariance="full", schedule="asynchronous", rounds=4)
    first, clients = started(parts, s)
    *_, (_, server) = clocks.play(first, clients, delays(SLOW, 1))
    assert server.updates[0] == 4  # the slowest ends it
    assert np.median(server.updates) > 20
    assert server.stop == "rounds"
    assert away(server.q, optimum) < 0.02
    np.testing.assert_allclose(server.q.sd, optimum.sd, rtol=0.01)
    for k, client in clients.items():
        np.testing.assert_allclose(client.site_h, server.site_h[k], atol=1e-12)


@pytest.mark.parametrize("delays", CLOCKS)
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_where_the_posterior_of_all_rows_is_and_q_stood_still_for_that(seed: int, delays: Any) -> None:
    parts = unequal(seed=seed)
    optimum = run(parts, settings(covariance="full", rounds=30))[0].q
    s = settings(covariance="full", schedule="asynchronous", rounds=12, until=True)
    first, clients = started(parts, s, tells=lambda k: True)
    asked, server = 0, first[0]
    for _, server in clocks.play(first, clients, delays(SLOW, seed)):
        assert not (server.schedule.owing and server.schedule.waiting)
        asked += bool(server.schedule.owing)
    assert server.stop == "settled"
    assert asked
    assert server.round < 12
    assert away(server.q, optimum) < 0.02


def test_rounds_are_those_of_the_slowest_client_that_is_there() -> None:
    parts = unequal()
    first, clients = started(parts, settings(covariance="full", schedule="asynchronous", rounds=6))
    said = set[int]()
    for _, server in clocks.play(first, clients, clocks.constant(SLOW, 0)):
        assert server.round == min(server.schedule.course(k).answers for k in server.schedule.active)
        said.update(server.behind)
        every = [server.schedule.course(k).answers for k in range(8)]
        assert not server.behind or 3 * (every[0] + 1) <= np.median(every)
    assert said == {0}
    server, _ = pvi.server_receive(started(parts, settings(schedule="asynchronous", rounds=6))[0][0], 0, ClientLost(0))
    assert server.round == 0
    for k in range(1, 8):
        server, _ = pvi.server_receive(server, k, SiteDelta(0, 0, 0, np.zeros(4), np.zeros(4)))
    assert server.round == 1  # of those that are left


def test_an_answer_counts_however_old_it_is() -> None:
    """The first client's answer comes after some 80 updates of the others."""
    parts = unequal()
    first, clients = started(parts, settings(covariance="full", schedule="asynchronous", rounds=1))
    *_, (_, server) = clocks.play(first, clients, clocks.constant(SLOW, 0))
    assert server.schedule.courses[0].oldest > 70
    assert not server.dropped
    assert np.abs(server.site_P[0]).max() > 1


def test_a_change_that_leaves_no_posterior_counts_as_an_answer_and_is_in_no_q() -> None:
    server, _ = pvi.start(settings(schedule="asynchronous", rounds=9), prior(1, 1.0, "diagonal"), 2)
    server, effects = pvi.server_receive(server, 0, SiteDelta(0, 0, 0, np.zeros(1), np.array([-9e9])))
    assert effects[0] == (0, SiteApplied(0, 0.0))
    assert (server.schedule.course(0).answers, server.dropped) == (1, {0: 1})
    server = kept.load(pvi.start(settings(schedule="asynchronous", rounds=9), prior(1, 1.0, "diagonal"), 2)[0], kept.save(server))
    server, effects = pvi.server_receive(server, 0, SiteDelta(0, 0, 1, np.zeros(1), np.ones(1)))
    assert effects[0] == (0, SiteApplied(1, 1.0))  # of a client's second delta, whose first is in no q


# Private --------------------

MECHANISM = Mechanism(sampling="poisson", sampling_rate=0.2, noise_multiplier=2.0, clip=1.0, dimension=8, secure=False)


def private(parts: list[Rows], s: Any) -> tuple[Any, dict[int, Any]]:
    return started(parts, s, private=True, mechanism=lambda k: MECHANISM, source=lambda k: KeyedSource(7, k))


@pytest.mark.parametrize("delays", CLOCKS)
def test_nothing_paid_for_is_lost_and_nobody_runs_ahead(delays: Any) -> None:
    paid, budget = dict.fromkeys(range(8), 0), 40

    def charge(k: int, asked: Charge) -> Charged | ChargeFailed:
        if paid[k] == budget * (k + 1):
            return ChargeFailed(asked.steps, 1, 1)
        paid[k] += 1
        return Charged(asked.steps)

    s = settings(schedule="asynchronous", rounds=None, lead=8, optimiser="adagrad", local_steps=1, average="half", damping=0.3)
    first, clients = private(unequal(), s)
    for _, server in clocks.play(first, clients, delays(SLOW, 2), charge):
        ahead = [server.schedule.course(k).answers - server.round for k in server.schedule.active]
        assert max(ahead, default=0) <= 8
    assert server.stop == "budget"
    assert {k: server.schedule.course(k).answers for k in range(8)} == paid == {k: budget * (k + 1) for k in range(8)}
    assert sum(course.waits for course in server.schedule.courses.values()) > 0


def test_sites_are_averaged_each_over_its_own_updates() -> None:
    s = settings(schedule="asynchronous", rounds=8, lead=8, optimiser="adagrad", local_steps=2, average="half", damping=0.3)
    first, clients = private(unequal(), s)
    sites: dict[int, list[np.ndarray]] = {k: [] for k in range(8)}
    before = np.zeros(8, int)
    for _, server in clocks.play(first, clients, clocks.exponential(SLOW, 3)):
        for k in np.flatnonzero(server.updates > before):
            sites[int(k)].append(np.concatenate([server.site_h[k], server.site_P[k]]))
        before = server.updates
    total = server.sites.prior + sum(np.mean(path[round(len(path) / 2) :], axis=0) for path in sites.values())
    q = pvi.released(server)
    np.testing.assert_allclose(np.concatenate([q.h, q.P]), total, rtol=1e-9)


def test_a_lost_client_of_an_open_job_is_back_where_the_run_goes_on() -> None:
    parts = deal(make_rows("bernoulli"), 3)
    s = settings(covariance="full", schedule="asynchronous", rounds=5)
    first, clients = started(parts, s)
    steps = clocks.play(first, clients, clocks.constant([1.0, 1.1, 1.2], 0))
    server = [next(steps) for _ in range(6)][-1][1]
    server, _ = pvi.server_receive(server, 1, ClientLost(1))
    back = kept.load(started(parts, s)[0][0], kept.save(server))
    assert 1 in back.schedule.active
    np.testing.assert_array_equal(back.site_P, server.site_P)
    assert back.schedule.in_round == sum(back.schedule.course(k).answers > back.round for k in range(3))


def test_clients_at_their_cap_have_had_their_rounds() -> None:
    s = settings(covariance="full", schedule="asynchronous", rounds=9, updates_per_client=2)
    first, clients = started(deal(make_rows("bernoulli"), 3), s)
    *_, (_, server) = clocks.play(first, clients, clocks.constant([1.0, 1.5, 9.0], 0))
    assert (server.round, server.stop) == (2, "budget")
    assert [int(n) for n in server.updates] == [2, 2, 2]


def test_questions_are_of_those_that_wait_for_nothing() -> None:
    parts = deal(make_rows("bernoulli"), 3)
    first, clients = started(parts, settings(schedule="asynchronous", rounds=3, lead=1))
    busy: set[int] = set()
    for _, server in clocks.play(first, clients, clocks.constant([1.0, 1.5, 9.0], 0)):
        busy = set(server.schedule.waiting)
        assert all(k in busy or server.schedule.course(k).answers > server.round for k in server.schedule.active) or server.stop
    assert isinstance(first[1][0][1], QUpdate)
    assert [int(n) for n in server.updates] == [3, 3, 3]  # a lead of one: nobody is ahead


# Peers that misbehave --------------------


def answered(server: Any, clients: dict[int, Any], k: int, question: Any) -> tuple[Any, Any, Any]:
    """The server after this client's answer, which is the second, and its next question."""
    clients[k], (delta,) = pvi.client_receive(clients[k], question)
    server, effects = pvi.server_receive(server, k, delta)
    said = [message for to, message in effects if to == k]
    clients[k], _ = pvi.client_receive(clients[k], said[0])
    return server, delta, said[-1]


def test_an_answer_twice_and_one_to_the_question_before_last_are_refused_and_change_nothing() -> None:
    first, clients = started(deal(make_rows("bernoulli"), 3), settings(covariance="full", schedule="asynchronous", rounds=9))
    server, questions = first[0], dict(first[1])
    server, once, question = answered(server, clients, 1, questions[1])
    before = kept.save(server)
    with pytest.raises(RemoteFault, match=r"client 1: SiteDelta.version is 0, asked was 1"):
        pvi.server_receive(server, 1, once)
    server, _, _ = answered(server, clients, 1, question)
    with pytest.raises(RemoteFault, match=r"client 1: SiteDelta.version is 0, asked was 2"):
        pvi.server_receive(server, 1, once)
    assert before["schedule.version"] == 1
    assert kept.save(server)["schedule.version"] == 2
    assert int(server.updates.sum()) == 2


def test_all_clients_lost_but_one() -> None:
    """It has its rounds, and the sites of the others stay in q as they were."""
    parts = deal(make_rows("bernoulli"), 3)
    first, clients = started(parts, settings(covariance="full", schedule="asynchronous", rounds=6))
    server, questions = first[0], dict(first[1])
    for k in range(3):
        server, _, questions[k] = answered(server, clients, k, questions[k])
    for k in (0, 2):
        server, _ = pvi.server_receive(server, k, ClientLost(k))
    before = server.site_h[[0, 2]]
    question = questions[1]
    while not pvi.finished(server):
        server, _, question = answered(server, clients, 1, question)
    assert (server.stop, server.round, list(server.updates)) == ("rounds", 6, [1, 6, 1])
    np.testing.assert_array_equal(server.site_h[[0, 2]], before)


@pytest.mark.parametrize("refusing", [{0}, {0, 1, 2}])
def test_clients_that_answer_with_refusals_alone(refusing: set[int]) -> None:
    s = settings(schedule="asynchronous", rounds=4, lead=2, optimiser="adagrad", local_steps=1, damping=0.3)
    first, clients = private(deal(make_rows("bernoulli"), 3), s)
    pay = lambda k, asked: ChargeFailed(asked.steps, 1, 1) if k in refusing else Charged(asked.steps)  # noqa: E731
    *_, (_, server) = clocks.play(first, clients, clocks.constant([1.0, 1.0, 3.0], 0), pay)
    assert server.refused == refusing
    assert server.stop == ("budget" if len(refusing) == 3 else "rounds")
    assert all(server.updates[k] == 0 if k in refusing else server.updates[k] >= 4 for k in range(3))
    if len(refusing) == 3:
        np.testing.assert_array_equal(server.q.P, server.prior.P)


def test_a_clock_that_jumps_changes_when_a_client_is_heard_and_not_what_is_found() -> None:
    parts = unequal()
    optimum = run(parts, settings(covariance="full", rounds=30))[0].q
    s = settings(covariance="full", schedule="asynchronous", rounds=12, until=True)
    first, clients = started(parts, s, tells=lambda k: True)
    rng = np.random.default_rng(5)
    jumps = lambda k: float(rng.choice([0.0, 1e-3, 1.0, 1e6]))  # noqa: E731
    *_, (_, server) = clocks.play(first, clients, jumps)
    assert server.stop == "settled"
    assert away(server.q, optimum) < 0.02


def test_a_q_whose_sds_have_not_settled_has_not_arrived() -> None:
    """Its mean is that of the posterior of all rows, and its sds are 3 % too wide."""
    parts = deal(make_rows("bernoulli"), 3)
    (server, _), _ = started(parts, s := settings(covariance="full", schedule="asynchronous", rounds=12, until=True))
    best = run(parts, settings(covariance="full", rounds=30))[0]
    for factor, settled in ((1.0, True), (1 / 1.03**2, False)):
        q = pvi.Gaussian(factor * best.q.h, factor * best.q.P)
        schedule = pvi.evolve(server.schedule, round=3, looked=3, owing=PersistentSet(range(3)), waiting=PersistentMap())
        state = pvi.evolve(server, q=q, schedule=schedule)
        question = AskSlope(3, q.h, pvi.pack(q.P))
        for k, part in enumerate(parts):
            told = answer(question, Local(part, s, k, tells=True).slope)
            state, _ = pvi.server_receive(state, k, told)
        assert (state.stop == "settled") is settled
