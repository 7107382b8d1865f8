"""The loop around the machines: arrivals, losses, deadlines, charges, checkpoints, and what is refused."""

import os
import random
import signal
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkern.algorithms.core import messages
from fedkern.algorithms.core.messages import SERVER, Charge, Charged, ChargeFailed, ClientBack, ClientLost, RemoteFault
from fedkern.errors import BudgetSpent, FedkernError, JobError, LostPeer, NumericalError
from fedkern.results.summary import digest
from fedkern.transports import inprocess
from fedkern.transports.codec import pack
from fedkern.transports.driver import ClientSide, Ended, Hooks, Keep, Kept, Received, ServerSide, Signals, Timeouts, exit_code
from support import toy
from support.refusal import refusal

N, ROUNDS = 4, 3
CODEC = toy.codec(N)


def clients(**options):
    return {k: toy.client(k, **options) for k in range(N)}


def run(hooks=None, order=None, protocol=toy.PROTOCOL, signals=None):
    return inprocess.run_protocol(protocol, toy.start(N, ROUNDS), clients(), CODEC, hooks, order, signals)


def result(server):
    return digest(dict(zip("hP", server.q)))


@settings(deadline=None)  # a busy machine is no fault
@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_no_bit(order):
    assert result(run(order=order)[0]) == result(run()[0])


def test_orders_differ():
    """Negative control of the test above."""

    def arrivals(seed):
        seen = []

        class Watch(Hooks):
            def delivered(self, direction, client, n_bytes):
                seen.append((direction, client))

        run(Watch(), random.Random(seed))
        return tuple(seen)

    assert len({arrivals(seed) for seed in range(5)}) > 1


def test_every_message_is_seen_before_it_leaves_and_when_it_arrives():
    log = []

    class Watch(Hooks):
        def sending(self, client, message, n_bytes, charged):
            log.append(("leaves", client, n_bytes, charged))

        def delivered(self, direction, client, n_bytes):
            log.append((direction, client, n_bytes))

    run(Watch())
    answer, question = (CODEC.layout(kind).total for kind in (toy.Answer, toy.Question))
    for k in range(N):
        assert [entry for entry in log if entry[1] == k] == [
            ("to_client", k, question),
            ("leaves", k, answer, 3),
            ("to_server", k, answer),
        ] * ROUNDS


def test_a_machine_that_has_finished_takes_no_more_answers():
    """A transport need not wait for the answers to its last words."""
    with refusal(FedkernError, "Answer"):
        run(protocol=replace(toy.PROTOCOL, finished=lambda state: True))


class Poor(Hooks):
    """A budget of 6 steps for each client."""

    def __init__(self):
        self.spent = dict.fromkeys(range(N), 0)

    def charge(self, client, charge):
        if self.spent[client] + charge.steps > 6:
            return ChargeFailed(charge.steps, self.spent[client], 6)
        self.spent[client] += charge.steps
        return Charged(charge.steps)


def test_charges_are_answered_before_rows_are_read():
    hooks = Poor()
    _, after = run(hooks)
    assert hooks.spent == dict.fromkeys(range(N), 6)
    assert [client.steps for client in after.values()] == [6] * N


def test_the_servers_charges_come_back_as_events():
    asked = []

    def server_receive(state, sender, event):
        if sender == SERVER:
            asked.append(event)
            return state, []
        state, effects = toy.server_receive(state, sender, event)
        return state, [(SERVER, Charge(1, state.round)), *effects] if effects else []

    run(protocol=replace(toy.PROTOCOL, server_receive=server_receive))
    assert asked == [Charged(1)] * (ROUNDS - 1)


def side(server_receive=toy.server_receive, rounds=ROUNDS, hooks=None, readmits=None):
    """A server that has asked everybody its first question."""
    protocol = replace(toy.PROTOCOL, server_receive=server_receive, readmits=readmits)
    server = ServerSide(protocol, toy.start(N, rounds), CODEC, hooks or Hooks())
    assert [client for client, _ in server.outgoing()] == list(range(N))
    return server


def answer(client, round=0, last=True, **change):
    fields = {"note": b"", "dh": np.ones(toy.D), "dP": np.ones(toy.D)} | change
    return CODEC.encode(client, toy.Answer(round, **fields), last)


HERE = range(N)
REFUSED = {
    "from another rank": (answer(1), [0, 2], "client 1: Answer came from a rank where it does not live"),
    "a stale round": (answer(1, 7), HERE, r"client 1: Answer\.round is 7"),
    "negative precision": (answer(1, dP=-np.ones(toy.D)), HERE, r"client 1: Answer\.dP makes .* negative in round 0"),
    "kept, unasked": (CODEC.encode(1, Kept(1)), HERE, r"client 1: Kept\.number is 1, asked for 0"),
    "the other direction": (CODEC.encode(1, Keep(1)), HERE, "client 1: Keep, expected Answer or Received or Kept"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_message_is_named_and_changes_nothing(name):
    frame, here, says = REFUSED[name]
    server = side()
    before = pack(toy.save(server.state))
    with pytest.raises(RemoteFault, match=says):
        server.arrive(frame, here)
    assert pack(toy.save(server.state)) == before


def test_an_answer_counts_once():
    server = side()
    server.arrive(answer(1), HERE)
    before = pack(toy.save(server.state))
    with refusal(RemoteFault, "1", "Answer"):
        server.arrive(answer(1), HERE)
    assert pack(toy.save(server.state)) == before


def test_a_question_for_a_client_that_lives_elsewhere_is_refused():
    party = ClientSide(toy.PROTOCOL, {0: toy.client(0)}, CODEC, Hooks())
    question = CODEC.encode(1, toy.Question(0, 1.0, np.ones(toy.D), np.ones(toy.D)))
    with refusal(RemoteFault, "1", "Question"):
        party.receive(question)


def test_a_client_that_fails_keeps_its_state():
    def client_receive(state, event):
        raise ZeroDivisionError

    party = ClientSide(replace(toy.PROTOCOL, client_receive=client_receive), clients(), CODEC, Hooks())
    before = dict(party.clients)
    with pytest.raises(ZeroDivisionError):
        party.receive(CODEC.encode(1, toy.Question(0, 1.0, np.ones(toy.D), np.ones(toy.D))))
    assert party.clients == before


def test_numbers_of_a_peer_without_a_solution_are_a_clear_error():
    def unsolved(state, *about):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    party = ClientSide(replace(toy.PROTOCOL, client_receive=unsolved), clients(), CODEC, Hooks())
    with refusal(NumericalError, "Question", "Eigenvalues"):
        party.receive(CODEC.encode(1, toy.Question(0, 1.0, np.ones(toy.D), np.ones(toy.D))))
    with refusal(NumericalError, "Answer"):
        run(protocol=replace(toy.PROTOCOL, server_receive=unsolved))


def test_a_client_with_nothing_to_say_says_so():
    party = ClientSide(replace(toy.PROTOCOL, client_receive=lambda state, event: (state, [])), clients(), CODEC, Hooks())
    _, frames = party.receive(CODEC.encode(1, toy.Question(0, 1.0, np.ones(toy.D), np.ones(toy.D))))
    assert [CODEC.decode(frame, (Received,)) for frame in frames] == [(1, Received())]


def test_an_answer_may_have_parts():
    def client_receive(state, event):
        state, effects = toy.client_receive(state, event)
        return state, effects * 2 if effects and isinstance(effects[0], toy.Answer) else effects

    def server_receive(state, sender, event):
        parts.append(sender)
        return toy.server_receive(state, sender, event) if parts.count(sender) % 2 else (state, [])

    parts = []
    protocol = replace(toy.PROTOCOL, client_receive=client_receive, server_receive=server_receive)
    server, _ = run(protocol=protocol, order=random.Random(3))
    assert result(server) == result(run()[0])
    assert len(parts) == 2 * N * ROUNDS


def test_a_lost_client_is_an_event_and_nothing_is_expected_from_it():
    events = []

    def server_receive(state, sender, event):
        events.append((sender, type(event)))
        return toy.server_receive(state, sender, event)

    server = side(server_receive)
    for k in (0, 2, 3):
        server.arrive(answer(k), HERE)
    assert server.outgoing() == []
    assert server.waiting == [1]
    server.lose({1: "rank 2 has died"})
    assert events[-1] == (1, ClientLost)
    assert [client for client, _ in server.outgoing()] == [0, 2, 3]
    before = server.state
    server.arrive(answer(1), HERE)  # it was only late: what it says now is not heard
    assert server.state is before


def test_lost_clients_come_back_when_they_have_answered_what_they_owed():
    """Two of one rank: a frame shows that the rank is there, and who owes nothing more may be asked again."""
    events = []

    def server_receive(state, sender, event):
        if isinstance(event, ClientBack):
            events.append(sender)
            return replace(state, lost=state.lost - {sender}), []
        return toy.server_receive(state, sender, event)

    server = side(server_receive, rounds=5, readmits=toy.Question)
    for k in (0, 3):
        server.arrive(answer(k), HERE)
    server.lose(dict.fromkeys((1, 2), "rank 2 has been silent for 1 s"))
    assert [client for client, _ in server.outgoing()] == [0, 3]
    server.arrive(answer(1), {1, 2})
    for k in (0, 3):
        server.arrive(answer(k, 1), HERE)
    server.outgoing()
    assert (events, set(server.lost)) == ([1], {2})
    server.arrive(answer(2), {1, 2})
    server.lose({2: "rank 2 has died"})
    for k in (0, 3):
        server.arrive(answer(k, 2), HERE)
    assert [client for client, _ in server.outgoing()] == [0, 1, 3]
    assert (events, set(server.lost)) == ([1], {2})  # it was heard, and has died since


def test_what_was_held_back_for_a_client_that_was_lost_is_not_sent_when_it_is_back():
    """It is lost in a checkpoint, before which the next question was made."""

    class Once(Hooks):
        keeps = True

        def checkpoint_due(self):
            return not self.checkpoint_number and bool(answers)

    answers = []
    server = side(rounds=5, hooks=Once(), readmits=toy.Question)
    for k in range(N):
        server.arrive(answer(k), HERE)
        answers.append(k)
    assert [client for client, _ in server.outgoing()] == list(range(N))  # to keep
    server.lose({1: "rank 2 has been silent for 1 s"})
    for k in range(N):
        server.arrive(CODEC.encode(k, Kept(1), True), HERE)
    server.protocol = replace(server.protocol, server_receive=lambda state, sender, event: (state, []))
    assert [client for client, _ in server.outgoing()] == [0, 2, 3]
    assert not server.lost


def test_each_time_out_has_one_meaning():
    """Silence has one consequence, ClientLost; and it comes after one time, the job file's `deadline`."""
    assert [field.name for field in fields(Timeouts)] == ["start", "lost", "grace"]
    assert not hasattr(messages, "Deadline")


def test_when_all_are_lost_the_run_stops():
    """A machine that could finish without any client would have a result of nobody's rows."""
    text = "rank 1 has died, rank 2 has died, and with it client 0, client 1, client 2, client 3: no client is left"
    with pytest.raises(LostPeer, match=text):
        side().lose({k: f"rank {1 + k % 2} has died" for k in range(N)})
    server = side()
    server.lose({k: f"rank {1 + k % 2} has died" for k in range(N - 1)})
    with pytest.raises(LostPeer, match="no client is left"):
        server.lose({N - 1: "rank 3 has died"})


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("this method needs all", "rank 3 has died, and with it client 2: this method needs all"),
        ("client 2 is gone, and this method needs all", "rank 3 has died: client 2 is gone, and this method needs all"),
    ],
)
def test_who_is_lost_and_where_is_said_once(said, text):
    def server_receive(state, sender, event):
        raise LostPeer(said)

    with pytest.raises(LostPeer) as caught:
        side(server_receive).lose({2: "rank 3 has died"})
    assert str(caught.value) == text


def test_a_machine_that_waits_for_nobody_is_an_error():
    protocol = replace(toy.PROTOCOL, server_receive=lambda state, sender, event: (state, []))
    with pytest.raises(FedkernError, match="toy: the server has not finished and waits for nobody"):
        run(protocol=protocol)


class Keeping(Hooks):
    """Checkpoints in memory, after every event."""

    keeps = True

    def __init__(self, stop_after=10**9):
        self.kept, self.server, self.events, self.stop_after = {}, {}, 0, stop_after

    def observe(self, state, event):
        self.events += 1

    def checkpoint_due(self):
        return True

    def should_stop(self):
        return "SIGUSR1" if self.events >= self.stop_after else None

    def keep_client(self, client, number, saved):
        self.kept[client, number] = pack(saved)

    def keep_server(self, number, saved, frames, lost):
        assert {(k, number) for k in range(N)} <= set(self.kept), "the server keeps its state last"
        self.server[number] = pack(saved), [client for client, _ in frames]


@pytest.mark.parametrize("seed", range(3))
def test_checkpoints_change_no_bit_and_are_taken_between_rounds(seed):
    hooks = Keeping()
    server, _ = run(hooks, random.Random(seed))
    assert result(server) == result(run()[0])
    assert [frames for _, frames in hooks.server.values()] == [list(range(N))] * ROUNDS


def keeping(due):
    """A server that has asked everybody to keep its state, with its second question unsent."""
    hooks = Keeping()
    hooks.checkpoint_due = lambda: due[0]
    hooks.keep_server = lambda number, saved, frames, lost: hooks.server.update({number: ([k for k, _ in frames], lost)})
    server = side(hooks=hooks)
    due[0] = True
    for client in range(N):
        server.arrive(answer(client), HERE)
    assert [client for client, _ in server.outgoing()] == list(range(N))
    assert server.keeping == set(range(N))
    return server, hooks


def test_an_answer_to_no_question_before_a_client_has_kept_its_state_reaches_no_machine():
    server, _ = keeping([False])
    before = pack(toy.save(server.state))
    with refusal(RemoteFault, "2", "Answer"):
        server.arrive(answer(2, 1), HERE)
    assert pack(toy.save(server.state)) == before


def test_a_checkpoint_keeps_no_question_to_a_client_that_was_lost_meanwhile():
    """A resumed run, in which it may be back, would ask it what the machine takes from nobody."""
    due = [False]
    server, hooks = keeping(due)
    server.lose({3: "rank 4 has died"})
    for client in range(3):
        server.arrive(CODEC.encode(client, Kept(1)), HERE)
    due[0] = False
    assert [client for client, _ in server.outgoing()] == [0, 1, 2]
    assert hooks.server == {1: ([0, 1, 2], frozenset({3}))}


def test_a_stop_waits_for_open_questions_and_a_checkpoint():
    hooks = Keeping(stop_after=N + 1)  # in the middle of the second round
    with refusal(LostPeer, "--resume"):
        run(hooks)
    assert hooks.events == 2 * N


def test_a_stop_without_checkpoints_says_so():
    hooks = Keeping(stop_after=2)
    hooks.keeps, hooks.checkpoint_due = False, lambda: False
    with pytest.raises(LostPeer, match="stopped by SIGUSR1; this run keeps no checkpoints"):
        run(hooks)


def test_a_place_has_the_hooks_of_its_latest_protocol():
    place, hooks = inprocess.InProcess(), Hooks()
    place.run_protocol(toy.PROTOCOL, toy.start(N, ROUNDS), clients(), CODEC, hooks)
    assert place.hooks is hooks
    place.run_protocol(toy.PROTOCOL, toy.start(N, ROUNDS), clients(), CODEC)
    assert place.hooks is not hooks


def test_signals_are_remembered_and_end_a_run():
    before = [signal.getsignal(getattr(signal, name)) for name in Signals.NAMES]
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(LostPeer, match="stopped by SIGUSR1"):
            run(signals=signals)
    assert [signal.getsignal(getattr(signal, name)) for name in Signals.NAMES] == before


def test_a_second_interrupt_is_not_remembered():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner in the background ignores it
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.pending == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError(), 1),
        (FedkernError("x"), 1),
        (JobError("x"), 2),
        (RemoteFault("x"), 2),
        (LostPeer("x"), 3),
        (KeyboardInterrupt(), 3),
        (BudgetSpent("x"), 5),
        (Ended(4, "x"), 4),
    ],
)
def test_exit_codes(error, code):
    assert exit_code(error) == code


def test_others_read_the_text_of_a_foreseen_fault_and_the_trace_of_another():
    assert Hooks().public(JobError("no column 'age'")) == "no column 'age'"
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert "internal error\nTraceback" in Hooks().public(caught.value)


def test_a_loss_after_the_end_is_not_told():
    server = side(rounds=1)
    for k in range(N):
        server.arrive(answer(k), HERE)
    assert server.done
    before = server.state
    server.lose({0: "rank 1 has died"})
    assert server.state is before


def test_memory_that_is_not_enough_is_no_internal_error() -> None:
    error = MemoryError("Unable to allocate 9 TiB")
    assert exit_code(error) == JobError.exit_code
    assert Hooks().public(error).startswith("Unable to allocate 9 TiB; `fedkern check` says what a job needs: ")
