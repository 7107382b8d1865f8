"""Fits by steps whose clients do not wait for one another, under simulated clocks: where they arrive, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core import kept
from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.split import machine as split
from fedkern.errors import LostPeer
from support import asynchronous_fits as fits
from support import chosen, clocks, hierarchical

S = chosen.sfvi(rounds=40, learning_rate=0.02, lead=3)


def of_maps(s: Any = S) -> tuple[Any, dict[int, Any]]:
    return hierarchical.machines(fits.linear(0), s)


def of_columns(**changes: Any) -> tuple[Any, dict[int, Any]]:
    return fits.columns(0, chosen.split(**{"rounds": 40, "n_rows": 60, "n_clients": 3, "seed": 1, "lead": 3, **changes}))


STARTED = {
    "sfvi": (sfvi, of_maps),
    "sfvi-avg": (sfvi, lambda: of_maps(replace(S, local_steps=2))),
    "vertical": (split, of_columns),
    "vertical, batches": (split, lambda: of_columns(batch=14, average="half")),
    "until": (sfvi, lambda: of_maps(replace(S, most=200))),
}


@pytest.mark.parametrize("seed", range(10))
def test_a_fit_that_has_settled_is_at_the_optimum(seed: int) -> None:
    away = fits.sfvi(seed, beside=False)
    assert away.settled
    assert away.mean < 0.05
    assert away.sd < 0.02


@pytest.mark.parametrize("seed", range(4))
def test_columns_are_as_near_as_in_synchronous_rounds(seed: int) -> None:
    away = fits.vertical(seed, 1500, 4500)
    assert away.mean < max(0.05, 2.5 * away.other_mean)
    assert away.sd < max(0.02, 2.5 * away.other_sd)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(8))
def test_fits_are_at_the_synchronous_optimum(seed: int) -> None:
    for of_seed in (fits.averaged, fits.vertical):
        away = of_seed(seed)
        assert away.mean < max(0.05, 2 * away.other_mean)
        assert away.sd < 0.02


@pytest.mark.parametrize("law", [clocks.exponential, clocks.pareto])
@pytest.mark.parametrize("name", STARTED)
def test_nobody_is_further_ahead_than_the_lead_and_all_have_as_many_rounds(name: str, law: Any) -> None:
    machine, started = STARTED[name]
    first, clients = started()
    for _, server in clocks.play(first, clients, law([9.0, 1.0, 1.0, 1.0, 1.0], 1), machine=machine, works=fits.QUESTIONS):
        courses = [server.schedule.course(k) for k in range(len(clients))]
        counts = [course.answers for course in courses]
        assert max(counts) - min(counts) <= 3
    assert set(counts) == {server.settings.rounds} == {server.round}
    assert sum(course.waits for course in courses) > 0
    assert max(course.oldest for course in courses) > len(clients)


def test_a_model_with_its_clients_alike_moves_as_synchronous_rounds_do() -> None:
    """On equal clocks answers come round by round; nothing but when the steps are taken differs."""
    models = [fits.linear(0)[0]] * 3
    s = chosen.sfvi(rounds=1500, learning_rate=0.02)
    one = sfvi.posterior_moments(hierarchical.run(models, s)[0])
    first, clients = hierarchical.machines(models, replace(s, lead=1))
    *_, (_, server) = clocks.play(first, clients, clocks.constant([1.0] * 3, 0), machine=sfvi, works=fits.QUESTIONS)
    other = sfvi.posterior_moments(server)
    sd = np.sqrt(np.diag(one[1]))
    np.testing.assert_allclose(other[0], one[0], atol=0.02 * sd.min())
    np.testing.assert_allclose(np.sqrt(np.diag(other[1])), sd, rtol=0.04)


def test_negative_control_slots_without_their_linear_part_leave_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = fits.sfvi(0, beside=False)
    monkeypatch.setattr(sfvi, "LEARNING", 0.0)
    without = fits.sfvi(0, beside=False)
    assert with_it.sd < 0.1 * without.sd


@pytest.mark.parametrize("name", [name for name in STARTED if name != "until"])
def test_a_saved_state_goes_on_to_the_same_bits(name: str) -> None:
    """Where no question is open, as at a checkpoint: its messages have not left."""
    machine, started = STARTED[name]
    first, clients = started()
    ends = []
    for saves in (False, True):
        (server, effects), clients = started()
        pending = list(effects)
        for step in range(120):
            if saves and step == 50:
                fresh, others = started()
                server = kept.load(fresh[0], kept.save(server))
                clients = {k: kept.load(others[k], kept.save(client)) for k, client in clients.items()}
            k, message = pending.pop(0)
            clients[k], answers = machine.client_receive(clients[k], message)
            for answer in answers:
                server, more = machine.server_receive(server, k, answer)
                pending += more
        ends.append(server.parameters)
    assert np.array_equal(*ends)
    assert first[0].round == 0


@pytest.mark.parametrize("name", ["sfvi", "sfvi-avg", "vertical"])
def test_a_lost_client_ends_the_job_by_name(name: str) -> None:
    machine, started = STARTED[name]
    (server, _), _ = started()
    with pytest.raises(LostPeer, match="c1"):
        machine.server_receive(server, 1, ClientLost(1))


@pytest.mark.parametrize("name", ["sfvi", "sfvi-avg", "vertical"])
def test_an_answer_twice_or_to_another_question_is_refused(name: str) -> None:
    machine, started = STARTED[name]
    (server, effects), clients = started()
    k, message = effects[0]
    clients[k], (answer,) = machine.client_receive(clients[k], message)
    if hasattr(answer, "round"):
        with pytest.raises(RemoteFault, match="round"):
            machine.server_receive(server, k, replace(answer, round=7))
    server, more = machine.server_receive(server, k, answer)
    if name == "vertical":  # nobody is answered before every row has the z of all
        assert not more
        with pytest.raises(RemoteFault):
            machine.server_receive(server, k, replace(answer, round=1))
        return
    assert [to for to, _ in more] == [k]
    clients[k], (second,) = machine.client_receive(clients[k], more[0][1])
    server, _ = machine.server_receive(server, k, second)
    # Three ahead of the slowest it waits, and owes nothing.
    clients[k], (third,) = machine.client_receive(clients[k], replace_round(more[0][1], 2))
    server, none = machine.server_receive(server, k, third)
    assert not none
    with pytest.raises(RemoteFault, match="was not asked of it"):
        machine.server_receive(server, k, third)


def replace_round(message: Any, round: int) -> Any:
    return replace(message, round=round)


def test_a_power_likelihood_has_no_asynchronous_form() -> None:
    with pytest.raises(ValueError, match="slopes of one joint draw of all"):
        of_columns(model="power")
