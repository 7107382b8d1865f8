"""What all machines share of a round: who has answered, client order, and what a lost client means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern import algorithms
from fedkern.algorithms.core import once, rounds
from fedkern.algorithms.core.messages import NO_PREDICTOR, ClientLost, RemoteFault
from fedkern.algorithms.hmc.machine import Decided, Launch, Slope
from fedkern.algorithms.sfvi.machine import Reached
from fedkern.errors import LostPeer
from support.refusal import refusal

FAMILIES = ("pvi", "gibbs", "split", "soul", "sfvi", "hmc")


@dataclass(frozen=True)
class State:
    names: tuple[str, ...] = ("a", "b", "c")
    round: int = 4
    waiting: frozenset[int] = frozenset()
    answers: Mapping[int, Any] = field(default_factory=dict)


def asked() -> State:
    return rounds.ask_all(State(answers={0: "of the round before"}), Decided(4, np.zeros(1)))[0]


def reached(round: int = 4) -> Reached:
    return Reached(round, np.zeros(2))


def test_a_round_is_complete_when_each_client_has_answered_once() -> None:
    state, questions = rounds.ask_all(State(), Decided(4, np.zeros(1)))
    assert [client for client, _ in questions] == [0, 1, 2]
    for left, client in ((2, 2), (1, 0), (0, 1)):
        state = rounds.with_answer(state, client, reached(), Reached)
        assert len(state.waiting) == left
    assert list(state.answers) == [2, 0, 1]
    assert len(rounds.in_order(state.answers)) == 3
    assert rounds.tell_all(state, Decided(4, np.zeros(1)))[0] == State()


def test_what_is_told_needs_no_answer() -> None:
    state, messages = rounds.tell_all(asked(), Decided(4, np.zeros(1)))
    assert (state.waiting, len(messages)) == (frozenset(), 3)


@pytest.mark.parametrize(
    ("sender", "event"),
    [
        (0, reached(3)),
        (0, reached(5)),
        (3, reached()),
        (0, Slope(np.zeros((1, 2)))),
        (0, Launch(4, np.zeros(1), np.zeros(1), np.zeros((1, 2)))),
    ],
    ids=["stale", "early", "nobody asked", "another message", "of the server"],
)
def test_what_is_no_answer_is_refused(sender: int, event: Any) -> None:
    with pytest.raises(RemoteFault, match=f"client {sender}: {type(event).__name__} is no answer to round 4"):
        rounds.with_answer(asked(), sender, event, Reached)


def test_an_answer_counts_once() -> None:
    state = rounds.with_answer(asked(), 1, reached(), Reached)
    with refusal(RemoteFault, "1", "Reached"):
        rounds.with_answer(state, 1, reached(), Reached)


def test_a_message_without_a_round_answers_the_open_question() -> None:
    assert rounds.with_answer(asked(), 1, Slope(np.zeros((1, 2))), Slope).waiting == {0, 2}


def test_a_lost_client_ends_what_needs_it() -> None:
    with refusal(LostPeer, "b", "4", "--resume"):
        rounds.with_answer(asked(), 1, ClientLost(1), Reached)
    with refusal(LostPeer, "c", "4"):
        rounds.needs_all(ClientLost(2), ("a", "b", "c"), 4, NO_PREDICTOR)
    with pytest.raises(LostPeer, match=r"^client 'a' is gone before the first round$"):
        rounds.needed(ClientLost(0), "client {client} is gone before the first round", ("a", "b"))
    with pytest.raises(LostPeer, match=r"^start {the} job again$"):
        rounds.needed(ClientLost(0), "start {the} job again")
    rounds.needs_all(reached(), (), 4)
    rounds.needed(reached(), "")


def test_answers_are_added_in_client_order() -> None:
    arrays = {2: np.array([1.0]), 0: np.array([1e16]), 1: np.array([-1e16])}
    assert rounds.summed(rounds.in_order(arrays)) == [1.0]
    assert rounds.summed(arrays.values()) == [0.0]  # as they have come
    assert arrays[0] == [1e16]  # nothing is written to


def test_sets_of_clients_survive_a_checkpoint() -> None:
    sets = (frozenset({1, 3}), frozenset(), frozenset(range(4)))
    assert tuple(rounds.members(rounds.flags(4, *sets))) == sets
    assert rounds.active(4, *sets[:2]) == [0, 2]


def test_nothing_is_kept_of_one_question() -> None:
    state = State()
    assert once.save(state) == {}
    assert once.load(state, {"round": 3}) is state
    protocol = once.protocol("name", (Decided,), (Reached,), lambda *_: None, lambda *_: None, lambda _: True)
    assert (protocol.save, protocol.load) == (once.save, once.load)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_a_machine(family: str) -> None:
    folder = import_module(f"{algorithms.__name__}.{family}")
    machine = import_module(f"{folder.__name__}.machine") if hasattr(folder, "__path__") else folder
    assert {"Settings", "Server", "Client", "start", "server_receive", "client_receive", "finished", "protocol"} <= {
        *vars(machine)
    }


def test_machines_that_go_on_without_a_client_are_these() -> None:
    """All others leave it to `rounds`, where it ends the job."""
    folder = Path(algorithms.__path__[0])
    here = {p.relative_to(folder).as_posix() for p in folder.rglob("*.py") if "isinstance(event, ClientLost)" in p.read_text()}
    going_on = {"pvi/machine.py", "pvi/global_vi.py", "pvi/client_level.py", "pvi/noise_aware.py", "gibbs/machine.py"}
    going_on |= {"core/once.py"}  # every question that names no `needs`
    assert here == {"core/rounds.py"} | going_on
