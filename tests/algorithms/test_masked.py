"""A server that only adds gets the sum of all clients' answers, and nothing of one client's."""

from __future__ import annotations

import hashlib
import hmac
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkern.algorithms.core import masked, once
from fedkern.algorithms.core.masked import Hider, Sums
from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.core.until import AskMoving, Moving
from fedkern.algorithms.exchanges import sum_keys
from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import (
    LOST,
    OF_WORDS,
    AskCurvature,
    Curvature,
    MaskedValues,
    SummedCurvature,
    SummedValues,
    Values,
)
from fedkern.errors import JobError, LostPeer
from fedkern.privacy import masks
from fedkern.privacy.masks import Group, Pairs, public_key
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol
from support.refusal import refusal

NAMES = ("ada", "bo", "cy")
C, P = 2, 3
DIMS = {"c": C, "xi": P, "tri": 6, "drops": 4 * 8, "steps": 4 * 8 * P}
SECRETS = [hashlib.sha256(bytes([k])).digest() for k in range(3)]


def pairs() -> list[Pairs]:
    keys = [public_key(secret) for secret in SECRETS]
    return [Pairs.agree(k, secret, NAMES, keys, b"job") for k, secret in enumerate(SECRETS)]


def curvature(rng: np.random.Generator) -> SummedCurvature:
    hessian, rule = 1e4 * rng.normal(size=(C, 6)), 1e-5 * rng.random(C)
    return SummedCurvature(0, -1e3 * rng.random(C), rng.normal(size=(C, P)), hessian, rule, np.zeros(C))


ASKED = once.Question("curvatures", AskCurvature, Curvature)
ONCE = Sums(
    replace(ASKED.protocol, to_server=(SummedCurvature,)),  # type: ignore[arg-type]
    importance.SUMS,
    DIMS,
)
QUESTION = AskCurvature(0, 3, np.ones((C, P)))


def parties(answers: list[SummedCurvature]) -> tuple[Any, dict[int, Any]]:
    """The server's start and the clients, of one question."""
    start = ONCE.start(ASKED.start(1, QUESTION), NAMES)
    return start, {k: masked.Client(once.ready_client(a), Hider(p)) for k, (a, p) in enumerate(zip(answers, pairs()))}


def ended(answers: list[SummedCurvature], order: int = 0) -> Curvature:
    """What the server's machine got."""
    start, clients = parties(answers)
    server, _ = run_protocol(ONCE.masked, start, clients, Codec(ONCE.masked_dims, 3), order=random.Random(order))
    reply: Curvature = server.inner.replies[0]
    return reply


@pytest.mark.parametrize("order", range(4))
def test_the_machine_gets_the_sum_once_all_have_answered(order: int) -> None:
    rng = np.random.default_rng(4)
    answers = [curvature(rng) for _ in NAMES]
    got = ended(answers, order)
    for name in ("value", "gradient", "hessian", "rule"):
        np.testing.assert_allclose(getattr(got, name), sum(getattr(one, name) for one in answers), rtol=1e-14, atol=1e-14)
    assert got.round == 0


def test_a_point_at_which_a_row_is_cut_off_is_none_for_all_and_nothing_says_for_whom() -> None:
    rng = np.random.default_rng(5)
    answers = [curvature(rng) for _ in NAMES]
    answers[1] = replace(answers[1], cut=np.array([3.0, 0.0]), rule=np.array([0.0, -0.25]))
    answers[2] = replace(answers[2], hessian=np.array([[1.0] * 6, [1e25] * 6]))
    got = ended(answers)
    assert got.value[0] == LOST
    np.testing.assert_allclose(got.value[1], sum(one.value[1] for one in answers), rtol=1e-14)
    np.testing.assert_allclose(got.hessian[1], 1e25, rtol=1e-14)  # there is room for it
    assert got.rule[1] == pytest.approx(abs(sum(one.rule[1] for one in answers)))


def test_numbers_without_room_are_clipped_and_one_that_is_none_spoils_the_sum() -> None:
    rng = np.random.default_rng(5)
    answers = [curvature(rng) for _ in NAMES]
    answers[0] = replace(answers[0], value=np.array([-1e300, -1.0]))
    got = ended(answers)
    assert got.value[0] == pytest.approx(-(2.0**126) / 3, rel=1e-9)
    np.testing.assert_allclose(got.gradient, sum(one.gradient for one in answers), rtol=1e-13)
    answers[0] = replace(answers[0], value=np.array([np.nan, -1.0]))
    with pytest.raises(RemoteFault, match="masks do not cancel"):
        ended(answers)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(-1e6, 1e3), min_size=8, max_size=8), min_size=3, max_size=3))
def test_sums_of_values_are_rounded_once(told: list[list[float]]) -> None:
    rule = np.linspace(-0.25, 0.125, 32)
    answers = [SummedValues(3, np.array(one), np.array([0.0] * 7 + [1.0 * (k == 1)]), rule) for k, one in enumerate(told)]
    numbers = sum(one.numbers() for one in answers)
    assert len(numbers) == SummedValues.count(DIMS)
    got = SummedValues.of_sum(3, numbers, DIMS)
    assert isinstance(got, Values)
    np.testing.assert_array_equal(got.values <= LOST, [False] * 7 + [True])
    np.testing.assert_array_equal(got.values[:7] / OF_WORDS, np.rint(np.sum(told, axis=0)[:7] / OF_WORDS))
    assert got.rule == 0.75


def test_forces_and_changes_of_chains_are_added() -> None:
    s, dims = 2, {"s": 2, "xi": 3}
    slopes = [np.array([[1.0, -2.0, 1e30], [0.5, 0.25, 0.0]]), np.full((s, 3), 0.1), np.zeros((s, 3))]
    changes = [np.array([1.5, -0.5]), np.array([-1.0, -1e9]), np.array([0.25, 3.0])]
    told = [hmc.LikelihoodChange(slope, change) for slope, change in zip(slopes, changes)]
    assert all(len(one.numbers()) == hmc.LikelihoodChange.count(dims) for one in told)
    got = hmc.LikelihoodChange.of_sum(0, sum(one.numbers() for one in told), dims)
    assert isinstance(got, hmc.LikelihoodChange)
    np.testing.assert_allclose(got.change, [0.75, -1e9 + 2.5])
    np.testing.assert_allclose(got.gradient, sum(slopes))
    slope = hmc.LikelihoodSlope(slopes[1])
    np.testing.assert_array_equal(hmc.LikelihoodSlope.of_sum(0, slope.numbers(), dims).gradient, slopes[1])


def test_nothing_that_travels_is_a_clients_number() -> None:
    """The words of the same answer are others for every message, and those of zeros are no zeros."""
    zero = SummedCurvature(0, np.zeros(C), np.zeros((C, P)), np.zeros((C, 6)), np.zeros(C), np.zeros(C))
    _, clients = parties([zero] * 3)
    state, (first,) = ONCE.masked.client_receive(clients[0], QUESTION)
    _, (second,) = ONCE.masked.client_receive(state, QUESTION)
    assert isinstance(first, importance.MaskedCurvature)
    assert isinstance(second, importance.MaskedCurvature)
    a, b = (np.frombuffer(one.words, "<u8") for one in (first, second))
    assert (a != b).all()
    assert (a != 0).all()


def test_clients_that_were_asked_different_things_give_no_sum() -> None:
    rng = np.random.default_rng(6)
    start, clients = parties([curvature(rng) for _ in NAMES])
    state, last = start[0], None
    for k, client in clients.items():
        asked = replace(QUESTION, points=np.full((C, P), 1.0 + 1e-15 * (k == 1)))
        _, (last,) = ONCE.masked.client_receive(client, asked)
        if k < 2:
            state, _ = ONCE.masked.server_receive(state, k, last)
    with pytest.raises(RemoteFault, match="masks do not cancel: clients were told different things"):
        ONCE.masked.server_receive(state, 2, last)


@pytest.mark.parametrize("rounds", [(4, 4, 4), (4, 4, 5)])
def test_a_message_of_one_number_tells_too_whether_masks_cancel(rounds: tuple[int, ...]) -> None:
    moving = once.Question("moving", AskMoving, Moving)
    one = Sums(moving.protocol, (masked.MOVING,), {})
    state, _ = one.start(moving.start(1, AskMoving(4)), NAMES)
    answers = []
    for asked, own in zip(rounds, pairs()):
        _, (answer,) = one.masked.client_receive(masked.Client(once.ready_client(Moving(4, 1)), Hider(own)), AskMoving(asked))
        answers.append(answer)
    for k in range(2):
        state, _ = one.masked.server_receive(state, k, answers[k])
    if len(set(rounds)) == 1:
        state, _ = one.masked.server_receive(state, 2, answers[2])
        assert state.inner.replies[0] == Moving(4, 1)
    else:
        with pytest.raises(RemoteFault, match="masks do not cancel"):
            one.masked.server_receive(state, 2, answers[2])


def test_wrong_answers_are_refused_by_name() -> None:
    rng = np.random.default_rng(7)
    start, clients = parties([curvature(rng) for _ in NAMES])
    _, (answer,) = ONCE.masked.client_receive(clients[0], QUESTION)
    assert isinstance(answer, importance.MaskedCurvature)
    state, _ = ONCE.masked.server_receive(start[0], 0, answer)
    receive = ONCE.masked.server_receive
    with refusal(RemoteFault, "0", "MaskedCurvature"):
        receive(state, 0, answer)
    with pytest.raises(RemoteFault, match=r"client 1: MaskedCurvature.words of 8 bytes, needs 600"):
        receive(state, 1, replace(answer, words=bytes(8)))
    with refusal(RemoteFault, "1", "MaskedCurvature", "5"):
        receive(state, 1, replace(answer, round=5))
    with refusal(LostPeer, "bo", "0"):
        receive(state, 1, ClientLost(1))


def test_only_protocols_whose_answers_can_all_be_masked_are() -> None:
    with refusal(ValueError, "SumKey", "SumSignature"):
        _ = Sums(sum_keys.PROTOCOL, importance.SUMS, DIMS).masked
    assert MaskedValues not in ONCE.masked.to_server


# Keys --------------------


@dataclass(frozen=True)
class Signed:
    """Identities of a test: who knows a name's secret can sign for it."""

    name: str
    of: dict[str, bytes]

    def sign(self, content: bytes) -> bytes:
        return hmac.digest(self.of[self.name], content, "sha256")

    def fault(self, name: str, content: bytes, signature: bytes) -> str:
        same = hmac.compare_digest(hmac.digest(self.of[name], content, "sha256"), signature)
        return "" if same else "its signature is of other keys"


IDENTITIES = {name: name.encode() for name in NAMES}


Told = Callable[[int, Any], Any]  # what a server tells client k in the place of a message


def clients_of(signers: set[str], identities: Any = None) -> dict[int, sum_keys.Client]:
    of = identities or dict.fromkeys(NAMES, IDENTITIES)
    return {
        k: sum_keys.Client(k, NAMES, b"job", SECRETS[k], Signed(name, of[name]) if name in signers else None)
        for k, name in enumerate(NAMES)
    }


def agreed(
    clients: dict[int, sum_keys.Client], told: Told = lambda k, message: message, names: tuple[str, ...] = NAMES
) -> list[Pairs]:
    """The pairs of some clients, whose server is honest but for what it tells."""
    state, asked = sum_keys.start(names)
    while asked:
        ((k, question), *asked) = asked
        clients[k], answers = sum_keys.client_receive(clients[k], told(k, question))  # type: ignore[arg-type]
        for answer in answers:
            state, more = sum_keys.PROTOCOL.server_receive(state, k, answer)  # type: ignore[arg-type]  # no charge is among them
            asked = [*asked, *more]
    assert state.done
    return list(sum_keys.pairs_of(clients).values())


def with_key(of: int, key: bytes, at: int) -> Told:
    """Puts a key in the place of a client's, at another client."""

    def told(k: int, message: Any) -> Any:
        if not (isinstance(message, sum_keys.SumKeys) and k == at):
            return message
        keys = [message.keys[32 * i : 32 * i + 32] for i in range(3)]
        keys[of] = key
        return replace(message, keys=b"".join(keys))

    return told


@pytest.mark.parametrize("signers", [set(), {*NAMES}, {"bo"}])
def test_both_ends_of_a_pair_have_the_same_secret(signers: set[str]) -> None:
    if signers == {"bo"}:  # who signs wants all others to
        with refusal(JobError, "bo", "ada"):
            agreed(clients_of(signers))
        return
    own = agreed(clients_of(signers))
    for a in range(3):
        assert a not in own[a].shared
        assert all(own[a].shared[b] == own[b].shared[a] for b in range(3) if b != a)
    assert len({key for one in own for key in one.shared.values()}) == 3


STRANGER = public_key(bytes([9]) * 32)


def test_a_key_in_anothers_place_is_refused_where_keys_are_signed() -> None:
    wrong = "client 'ada': the key of client 'bo' is not signed by it: its signature is of other keys"
    with pytest.raises(JobError, match=wrong):
        agreed(clients_of({*NAMES}), with_key(2, STRANGER, at=0))
    others = {name: IDENTITIES | ({"bo": b"another"} if name == "bo" else {}) for name in NAMES}
    with refusal(JobError, "ada", "bo"):
        agreed(clients_of({*NAMES}, others))
    # Without signatures clients do not see it: what one has with a stranger, no other has.
    own = agreed(clients_of(set()), with_key(2, STRANGER, at=0))
    assert own[0].shared[2] != own[2].shared[0]
    assert own[0].shared[1] != own[1].shared[0]  # nor with anybody else, since all keys are part of all secrets


def test_a_server_that_asks_nobody_to_sign_is_refused() -> None:
    def told(k: int, message: Any) -> Any:
        return replace(message, signed=0) if isinstance(message, sum_keys.SumKeys) else message

    with pytest.raises(JobError, match="client 'ada': it signs its key, and the server asks nobody to sign"):
        agreed(clients_of({*NAMES}), told)
    # Nor does an exchange that ends before signatures are told give anybody a secret.
    clients = clients_of({*NAMES})
    for k in clients:
        clients[k], _ = sum_keys.client_receive(clients[k], sum_keys.AskSumKey(0))
        keys = sum_keys.SumKeys(b"".join(map(public_key, SECRETS)), 1)
        clients[k], _ = sum_keys.client_receive(clients[k], keys)
    with pytest.raises(RemoteFault, match="ends the exchange of keys before they are checked"):
        sum_keys.pairs_of(clients)


def test_a_signature_of_an_earlier_run_is_refused() -> None:
    """An old key of bo, with what bo had signed then, is told again to clients with new keys."""
    old: dict[type, Any] = {}

    def seen(k: int, message: Any) -> Any:
        old[type(message)] = message
        return message

    agreed(clients_of({*NAMES}), seen)
    clients = clients_of({*NAMES})
    clients[0] = replace(clients[0], secret=bytes([7]) * 32)  # new, as every client's at every start
    again = with_key(1, old[sum_keys.SumKeys].keys[32:64], at=0)

    def told(k: int, message: Any) -> Any:
        return old[sum_keys.SumSignatures] if isinstance(message, sum_keys.SumSignatures) else again(k, message)

    with refusal(JobError, "ada", "bo"):
        agreed(clients, told)


# Keys that decide who is whose neighbour --------------------

MANY = tuple(f"client-{k}" for k in range(14))
OF_MANY = [hashlib.sha256(b"many" + bytes([k])).digest() for k in range(14)]


def many(*, signs: bool = False) -> dict[int, sum_keys.Client]:
    of = {name: name.encode() for name in MANY}
    return {k: sum_keys.Client(k, MANY, b"job", OF_MANY[k], Signed(name, of) if signs else None) for k, name in enumerate(MANY)}


@pytest.mark.parametrize("signs", [False, True])
def test_of_many_clients_each_has_a_secret_with_its_neighbours(signs: bool) -> None:
    own = agreed(many(signs=signs), names=MANY)
    keys = [public_key(secret) for secret in OF_MANY]
    assert [tuple(one.shared) for one in own] == [*Group.of(b"job", MANY, keys).neighbours]
    assert all(len(one.shared) == 10 < one.n_clients - 1 for one in own)
    assert all(own[a].shared[b] == own[b].shared[a] for a in range(14) for b in own[a].shared)


def test_a_key_that_was_chosen_after_the_others_is_refused() -> None:
    def told(k: int, message: Any) -> Any:
        """Has the last client try keys, by which client 3 gets other neighbours."""
        if not isinstance(message, sum_keys.SumKeys):
            return message
        keys = [message.keys[32 * i : 32 * i + 32] for i in range(14)]
        before = Group.of(b"job", MANY, keys).neighbours[3]
        for luck in range(100):
            keys[13] = public_key(bytes([luck]) * 32)
            if Group.of(b"job", MANY, keys).neighbours[3] != before:
                return replace(message, keys=b"".join(keys))
        raise AssertionError

    with refusal(JobError, "client-0", "client-13"):
        agreed(many(), told, MANY)


def test_no_key_is_told_before_all_are_committed() -> None:
    clients, (state, _) = many(), sum_keys.start(MANY)
    told = []
    for k in clients:
        clients[k], (first,) = sum_keys.client_receive(clients[k], sum_keys.AskSumKey(0))  # type: ignore[misc]
        assert first == sum_keys.SumCommitment(sum_keys.commitment(k, public_key(OF_MANY[k])))
        told.append(first)
    # A server that asks for keys at once, or again, gets none.
    for early in (sum_keys.AskSumKey(0), sum_keys.SumKeys(b"".join(map(public_key, OF_MANY)), 0)):
        if isinstance(early, sum_keys.SumKeys):
            with refusal(RemoteFault, "SumKeys"):
                sum_keys.client_receive(clients[0], early)
        else:
            assert sum_keys.client_receive(clients[0], early)[1] == [told[0]]
    with refusal(RemoteFault, "SumCommitments", "14"):
        sum_keys.client_receive(clients[0], sum_keys.SumCommitments(bytes(32)))
    with refusal(RemoteFault, "0", "SumKey"):
        sum_keys.PROTOCOL.server_receive(state, 0, sum_keys.SumKey(bytes(32), 0))
    with refusal(RemoteFault, "0", "SumCommitment", "8"):
        sum_keys.PROTOCOL.server_receive(state, 0, sum_keys.SumCommitment(bytes(8)))
    state, _ = sum_keys.PROTOCOL.server_receive(state, 0, told[0])
    with refusal(RemoteFault, "0", "SumCommitment"):
        sum_keys.PROTOCOL.server_receive(state, 0, told[0])
    # Commitments that differ from client to client, so that each has the key that suits it, leave no list of keys for both.
    with refusal(RemoteFault, "0", "SumCommitment"):
        sum_keys.PROTOCOL.server_receive(sum_keys.start(NAMES)[0], 0, told[0])  # of three, all are neighbours


def test_a_client_with_another_graph_is_refused_by_name_where_keys_are_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    signed = sum_keys.signed

    def another(state: sum_keys.Client, k: int, *more: bytes) -> bytes:
        with monkeypatch.context() as patched:
            if state.index == 4:
                patched.setattr(masks, "n_neighbours", lambda n: 12)
            return signed(state, k, *more)

    monkeypatch.setattr(sum_keys, "signed", another)
    with refusal(JobError, "client-0", "client-4"):
        agreed(many(signs=True), names=MANY)


def test_signatures_that_are_cut_are_refused() -> None:
    def told(k: int, message: Any) -> Any:
        return replace(message, lengths=b"\xff\xff" * 3) if isinstance(message, sum_keys.SumSignatures) else message

    with refusal(RemoteFault, "SumSignatures", "3"):
        agreed(clients_of({*NAMES}), told)


def test_no_secret_is_shown() -> None:
    client = sum_keys.Client(0, NAMES, b"job", SECRETS[0])
    assert not re.search(re.escape(repr(SECRETS[0])[2:-1]), repr(client))


@pytest.mark.parametrize("keys", [b"", bytes(96), bytes(64)])
def test_keys_that_are_none_are_refused(keys: bytes) -> None:
    client = sum_keys.Client(0, NAMES, b"job", SECRETS[0])
    client, _ = sum_keys.client_receive(client, sum_keys.AskSumKey(0))
    with pytest.raises((RemoteFault, JobError)):
        sum_keys.client_receive(client, sum_keys.SumKeys(keys, 0))
