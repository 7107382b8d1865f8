"""A server of partitioned inference that gets sums: it does what it would with each client's answer, and refuses no less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core import masked
from fedkern.algorithms.core.masked import Hider
from fedkern.algorithms.core.messages import ClientLost, RemoteFault, ServerEffects
from fedkern.algorithms.exchanges import answers, arrival
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.messages import LARGEST, Gradient, MaskedSiteDelta, ScaledSiteDelta, SiteApplied, SiteDelta
from fedkern.errors import LostPeer
from fedkern.models.expfam import pack
from fedkern.models.glm import Rows, prior
from fedkern.privacy.masks import ROUND, Pairs, public_key
from support import federations
from support.refusal import refusal

D, M = 3, 4
P = D * (D + 1) // 2
DIMS = {"d": D, "p": P, "t": P, "draws": 5}
EACH = ROUND.each(M)


def added(answers: list[Any]) -> Any:
    """What the server's machine gets of these answers."""
    parts = [one.numbers() for one in answers]
    assert all(len(numbers) == type(answers[0]).count(DIMS) for numbers in parts)
    return type(answers[0]).of_sum(answers[0].round, np.sum(parts, axis=0), DIMS)


def delta(rng: np.random.Generator, round: int, version: int, size: float) -> SiteDelta:
    A = rng.normal(size=(D, D))
    return SiteDelta(round, version, 0, rng.normal(size=D), pack(size * (A @ A.T)))


def answered(server: Any, answers: list[SiteDelta]) -> tuple[Any, ServerEffects]:
    effects: ServerEffects = []
    for k, one in enumerate(answers):
        server, effects = pvi.server_receive(server, k, one)
    return server, effects


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_the_guard_on_q_takes_the_same_part_of_a_sum_as_of_its_parts(covariance: str) -> None:
    """Also where this part is none: the next round is asked at the same version, and the sum is told at it."""
    rng, s = np.random.default_rng(7), federations.settings(schedule="synchronous", rounds=6, covariance=covariance)
    own = prior(D, 1.0, covariance)
    (each, _), (whole, _) = pvi.start(s, own, M), pvi.start(s, own, 1, members=M)
    sizes, weights = [1.0, -0.5, -3.0, -1e4, 0.3], []
    for size in sizes:
        answers = [delta(rng, each.round, each.schedule.version, size) for _ in range(M)]
        if covariance == "diagonal":
            answers = [replace(one, dP=size * rng.random(D)) for one in answers]
        numbers = {} if covariance == "full" else {"p": D}
        total = SiteDelta.of_sum(
            each.round, np.sum([[1.0, whole.schedule.version, *one.dh, *one.dP] for one in answers], axis=0), DIMS | numbers
        )
        each, effects = answered(each, answers)
        whole, its = pvi.server_receive(whole, 0, total)
        applied = [[one.alpha for _, one in some if isinstance(one, SiteApplied)] for some in (effects, its)]
        assert applied[0] == applied[1] * M
        weights += applied[1]
        np.testing.assert_allclose(whole.q.h, each.q.h, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(whole.q.P, each.q.P, rtol=1e-13, atol=1e-13)
        assert (whole.round, whole.halvings) == (each.round, each.halvings)
    assert weights[0] == 1.0
    assert 0 < weights[2] < 1
    assert weights[3] == 0.0
    assert whole.schedule.version == sum(weight > 0 for weight in weights)


def test_a_version_is_none_where_clients_lie_and_the_fault_names_nobody() -> None:
    rng, s = np.random.default_rng(8), federations.settings(schedule="synchronous", covariance="full")
    answers = [delta(rng, 0, 0, 1.0) for _ in range(M)]
    answers[2] = replace(answers[2], version=3)
    total = added(answers)
    assert total.version == -1
    sums = masked.Sums(pvi.protocol(private=False), pvi.SUMS, DIMS)
    state, _ = sums.start(pvi.start(s, prior(D, 1.0, "full"), 1, members=M), tuple("abcd"))
    with pytest.raises(RemoteFault, match=r"^client 'all clients together': SiteDelta.version is -1, asked was 0"):
        sums._inner_receive(state, 0, total)
    large = replace(answers[0], dh=np.full(D, 0.9 * LARGEST))
    with pytest.raises(RemoteFault, match=r"^client 'all clients together': SiteDelta.dh has a number of size 3.6e"):
        sums._inner_receive(state, 0, added([large] * M))


def test_a_lost_client_ends_rounds_that_would_go_on_without_it() -> None:
    s, own = federations.settings(schedule="synchronous", covariance="full"), prior(D, 1.0, "full")
    pvi.server_receive(pvi.start(s, own, M)[0], 1, ClientLost(1))
    sums = masked.Sums(pvi.protocol(private=False), pvi.SUMS, DIMS)
    state, _ = sums.start(pvi.start(s, own, 1, members=M), tuple("abcd"))
    assert MaskedSiteDelta in sums.masked.to_server
    with refusal(LostPeer, "b", "0"):
        sums.masked.server_receive(state, 1, ClientLost(1))


def scaled(rng: np.random.Generator, *sums: float) -> ScaledSiteDelta:
    one = delta(rng, 2, 1, 1.0)
    return ScaledSiteDelta(one.round, one.version, one.delta_id, one.dh, one.dP, *sums)


def test_sums_by_which_a_scale_is_learnt_are_added() -> None:
    rng = np.random.default_rng(9)
    answers = [scaled(rng, 10.0 * k, 0.5, 20.0) for k in range(M)]
    got = added(answers)
    assert (got.misfit, got.used, got.weight) == (60.0, 2.0, 80.0)
    np.testing.assert_allclose(got.dP, np.sum([one.dP for one in answers], axis=0))


def test_a_slope_is_told_where_each_client_tells_one() -> None:
    rng = np.random.default_rng(10)
    A = [rng.normal(size=(D, D)) for _ in range(M)]
    told = [arrival.Slope(3, 1, rng.normal(size=D), pack(one @ one.T)) for one in A]
    got = added(told)
    assert got.told == 1
    np.testing.assert_allclose(got.gradient, np.sum([one.gradient for one in told], axis=0), rtol=1e-14)
    np.testing.assert_allclose(got.curvature, np.sum([one.curvature for one in told], axis=0), rtol=1e-14)
    for bad in (replace(told[0], gradient=np.full(D, np.nan)), replace(told[0], curvature=-told[0].curvature)):
        assert np.isnan(bad.numbers()).all()  # which no sum takes


def test_rows_that_would_add_more_than_they_may_are_counted_over_all_clients() -> None:
    s = federations.settings(family="poisson", schedule="synchronous", covariance="full", bounded=True)
    asked = arrival.AskSlope(0, np.zeros(D), pack(np.eye(D)))
    told, most = [], 2.0**40
    for k in range(M):
        y = np.ones(5)
        y[: k % 3] = 1e14
        told.append(arrival.answer(asked, Local(Rows(np.ones((5, D)), y), s, k, tells=True).slope))
    got = added(told)
    assert got.told == 1 - (1 + 2)
    assert got.gradient[0] == pytest.approx(3 * most, abs=500)


def test_log_likelihoods_of_draws_are_added_in_thousandths() -> None:
    rng = np.random.default_rng(11)
    told = [answers.LogTerms(0, -300 * rng.random(5)).leaving() for _ in range(M)]
    np.testing.assert_array_equal(
        np.rint(1000 * added(told).values), np.sum([np.rint(1000 * one.values) for one in told], axis=0)
    )


def test_gradients_of_one_posterior_are_added() -> None:
    rng = np.random.default_rng(12)
    told = [Gradient(1, rng.normal(size=D), rng.normal(size=D)) for _ in range(M)]
    got = added(told)
    np.testing.assert_allclose(got.mu, np.sum([one.mu for one in told], axis=0), rtol=1e-14)
    np.testing.assert_allclose(got.omega, np.sum([one.omega for one in told], axis=0), rtol=1e-14)
    assert [one.kind for one in masked.Sums(global_vi.protocol(private=False), pvi.SUMS, DIMS).used] == [Gradient]


# A server that tells clients different things --------------------

NAMES = ("ada", "bo", "cy")


def linear_clients() -> dict[int, masked.Client[pvi.Client]]:
    """Three clients with rows of a linear model, whose sites are exact."""
    s = federations.settings(family="gaussian", schedule="synchronous", covariance="full")
    parts, own = federations.deal(federations.make_rows("gaussian", n=90, d=D), 3), prior(D, 1.0, "full")
    secrets = [bytes([k]) * 32 for k in range(3)]
    keys = [public_key(secret) for secret in secrets]
    pairs = [Pairs.agree(k, secret, NAMES, keys, b"job") for k, secret in enumerate(secrets)]
    machines = [pvi.client(NAMES[k], Local(part, s, k), own) for k, part in enumerate(parts)]
    return {k: masked.Client(machine, Hider(pairs[k])) for k, machine in enumerate(machines)}


OF_LINEAR = masked.Sums(pvi.protocol(private=False), pvi.SUMS, DIMS)


def asked(clients: dict[int, Any], round: int) -> SiteDelta:
    """The sum of the clients' changes, at a q so narrow that it stays proper without any site."""
    question, answers = pvi.QUpdate(round, 0, np.zeros(D), pack(1e3 * np.eye(D))), {}
    for k in clients:
        clients[k], (answers[k],) = OF_LINEAR.masked.client_receive(clients[k], question)
    total = OF_LINEAR._total(answers, pvi.SUMS[0], round)
    assert isinstance(total, SiteDelta)
    return total


def told(clients: dict[int, Any], alphas: tuple[float, ...]) -> None:
    for k, alpha in enumerate(alphas):
        clients[k], _ = OF_LINEAR.masked.client_receive(clients[k], SiteApplied(clients[k].inner.updates - 1, alpha))


def test_a_server_that_applies_other_parts_to_one_client_gets_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read that client's site: the sum at the same q is less by what only that client has applied."""
    clients = linear_clients()
    asked(clients, 0)
    told(clients, (0.0, 0.0, 0.0))
    asked(clients, 1)  # the same to all: there is a sum
    told(clients, (0.0, 1.0, 0.0))
    with pytest.raises(RemoteFault, match="masks do not cancel: clients were told different things"):
        asked(clients, 2)
    # Without what was heard before, the question alone in the masks, it has the site.
    monkeypatch.setattr(masked, "_chained", lambda before, digest: digest)
    clients = linear_clients()
    first = asked(clients, 0)
    told(clients, (0.0, 1.0, 0.0))
    second = asked(clients, 1)
    np.testing.assert_allclose(first.dP - second.dP, clients[1].inner.site_P, rtol=1e-9, atol=1e-9)
    assert np.abs(clients[1].inner.site_P).max() > 1


def test_clients_that_know_different_columns_give_no_sum() -> None:
    clients = linear_clients()
    for k, client in clients.items():
        client.hider.know(b"scale 1" if k else b"scale 1e9")
    with pytest.raises(RemoteFault, match="do not cancel"):
        asked(clients, 0)


def test_a_checkpoint_keeps_what_a_client_has_heard() -> None:
    clients, fresh = linear_clients(), linear_clients()
    asked(clients, 0)
    told(clients, (1.0, 1.0, 1.0))
    assert len({client.heard for client in clients.values()}) == 1
    loaded = OF_LINEAR.masked.load(fresh[1], OF_LINEAR.masked.save(clients[1]))
    assert loaded.heard == clients[1].heard != fresh[1].heard
    np.testing.assert_array_equal(loaded.inner.site_P, clients[1].inner.site_P)
