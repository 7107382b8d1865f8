"""Which row ids all parties have: against a plain join, what travels, and parties that send what cannot be."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import intersection as psi
from fedkern.errors import JobError
from support.federations import play

Ids = list[tuple[str, ...]]
MOST = 16


def drawn(seed: int, most: int = MOST) -> Ids:
    """Ids of three parties, of different numbers and in any order, at least one of which all have."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(3, most, 3)
    return [tuple(str(i) for i in rng.permutation([0, *(1 + rng.permutation(most)[:n])])) for n in counts - 1]


def found(ids: Ids, *, server: bool, least: tuple[int, ...] = (1, 1, 1), most: int = MOST) -> tuple[list[set[str]], list[Any]]:
    """The common ids of each party, and every message with its receiver, or sender."""
    members = [psi.Member(f"p{k}", one, 7, most, least[k]) for k, one in enumerate(ids)]
    n = len(ids) - server
    seen: list[Any] = []

    def at_client(state: Any, event: Any) -> Any:
        state, answers = psi.client_receive(state, event)
        seen.extend([event, *answers])
        return state, answers

    machine = SimpleNamespace(
        server_receive=psi.PROTOCOL.server_receive, finished=psi.PROTOCOL.finished, client_receive=at_client
    )
    started = psi.start([f"p{k}" for k in range(n)], most, 1, members[-1] if server else None)
    last, clients = play(machine, started, dict(enumerate(members[:n])))
    ended = [clients[k] for k in range(n)] + ([last.own] if server else [])
    return [{one.ids[row] for row in one.kept} for one in ended], seen


def cut(points: bytes) -> list[bytes]:
    return [points[begin : begin + psi.POINT] for begin in range(0, len(points), psi.POINT)]


def test_a_hundred_cases_of_three_parties_equal_the_plain_join() -> None:
    for seed in range(100):
        ids = drawn(seed)
        wanted = set.intersection(*map(set, ids))
        assert found(ids, server=seed % 2 == 0)[0] == [wanted] * 3


@pytest.mark.parametrize("server", [False, True])
def test_what_a_party_reads_has_the_same_lengths_whatever_ids_others_have(server: bool) -> None:
    ids = drawn(1)
    others = [ids[0], ("0", *(f"other {i}" for i in range(9))), ("0", "neither")]

    def lengths(seen: list[Any]) -> list[Any]:
        return [(type(one), *(len(v) if isinstance(v, bytes) else name for name, v in vars(one).items())) for one in seen]

    assert lengths(found(ids, server=server)[1]) == lengths(found(others, server=server)[1])


def test_lists_have_nothing_in_common_before_they_have_passed_all_keys_and_are_sorted() -> None:
    ids = [("0", "1", "2"), ("2", "1", "0"), ("1", "0", "2")]
    _, seen = found(ids, server=False)
    by_leg = [[cut(one.points) for one in seen if isinstance(one, psi.Blinded) and one.round == leg] for leg in range(3)]
    for leg, lists in enumerate(by_leg):
        assert all(points == sorted(points) for points in lists)
        together = len(set.intersection(*map(set, lists)))
        assert together == (3 if leg == 2 else 0)
    assert not {point for points in by_leg[0] for point in points} & {point for points in by_leg[1] for point in points}


def test_the_same_ids_are_other_points_in_another_run_and_in_another_job() -> None:
    member = psi.Member("a", ("0",), 7, 1)
    same, other = (psi.Member("a", ("0",), seed, 1, key=member.key) for seed in (7, 8))
    assert member.blinded()[1] == same.blinded()[1]
    assert member.blinded()[1] not in (psi.Member("a", ("0",), 7, 1).blinded()[1], other.blinded()[1])


@pytest.mark.parametrize(("least", "refused"), [((3, 1, 1), False), ((1, 1, 4), True)])
def test_fewer_rows_than_some_party_needs_are_told_to_nobody(least: tuple[int, int, int], refused: bool) -> None:
    ids = [("0", "1", "2"), ("2", "1", "0"), ("1", "0", "2")]
    if not refused:
        assert found(ids, server=True, least=least)[0] == [{"0", "1", "2"}] * 3
        return
    with pytest.raises(JobError, match="fewer rows are in all parties' files") as fault:
        found(ids, server=True, least=least)
    assert "3" not in str(fault.value)


@pytest.mark.parametrize("other", [("01",), ("1.0",), (" 1",), ()])
def test_an_id_that_is_written_otherwise_is_another(other: tuple[str, ...]) -> None:
    with pytest.raises(JobError, match="are the ids written the same"):
        found([("1",), other], server=False)


def test_a_party_puts_in_no_more_ids_than_the_job_allows() -> None:
    with pytest.raises(JobError, match=r"more row ids than data\.most_ids = 3"):
        psi.Member("client 'a'", ("0", "1", "2", "3"), 7, 3)


def test_answers_that_cannot_be_end_it_by_name() -> None:
    state, _ = psi.start(("a", "b"), 4, 1)
    member, (honest,) = psi.client_receive(psi.Member("a", ("0", "1"), 7, 4), psi.AskPoints(0))
    assert isinstance(honest, psi.Blinded)
    first = honest.points[: psi.POINT]
    for changed in ({"points": first * 4}, {"points": honest.points[:-1]}, {"least": 0}, {"least": 5}):
        with pytest.raises(RemoteFault, match="Blinded must have 4 different points"):
            state.receive(1, replace(honest, **changed))  # type: ignore[arg-type]
    with pytest.raises(RemoteFault, match="Marked was not expected"):
        state.receive(1, psi.Marked(0, b"\xf0"))
    for points in (b"\xff" * 4 * psi.POINT, honest.points[: psi.POINT]):
        with pytest.raises(RemoteFault, match="a list must have 4 points of the curve"):
            psi.client_receive(member, psi.Points(1, points))
    with pytest.raises(RemoteFault, match="Points was not expected"):
        psi.client_receive(member, psi.Points(2, honest.points))
    member, _ = psi.client_receive(member, psi.Points(1, honest.points))
    for size, marks, said in ((2, b"\x80", "the number of marks"), (0, b"\0", "the number of marks"), (4, b"\xf0", "of no id")):
        with pytest.raises(RemoteFault, match=said):
            psi.client_receive(member, psi.Common(3, size, marks))
    with pytest.raises(RemoteFault, match="there must be 4 marks"):
        psi.client_receive(member, psi.Common(3, 1, b""))
    with pytest.raises(RemoteFault, match="Common was not expected"):
        psi.client_receive(member, psi.Common(4, 1, b"\x80"))
