"""The alignment of rows: what a client takes of the server's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import rows as a
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol as in_process

IDS = ("p1", "p2", "p3")
GOOD: dict[str, Any] = {"alone": "", "without": "", "holder": None, "new": []}


def told(**changes: Any) -> a.Client:
    content = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return a.client_receive(a.Client("c", IDS, 7), a.Aligned(0, 0, 1, json.dumps(content).encode()))[0]


def test_a_good_answer_is_taken() -> None:
    assert told(holder=1, new=[0, 2]).new == (0, 2)


def in_common(parties: list[tuple[str, ...]], own: tuple[str, ...], new: tuple[int, ...]) -> tuple[a.Server, list[a.Client]]:
    """Parties that leave out what others lack; ids in the order of their digests."""
    names = tuple(f"c{k}" for k in range(len(parties)))
    ordered = [tuple(sorted(ids, key=lambda one: a.digests([one], 7)[0])) for ids in (*parties, own)]
    clients = {k: a.Client(names[k], ids, 7, common=True) for k, ids in enumerate(ordered[:-1])}
    server, ended = in_process(a.PROTOCOL, a.start(names, 7, ordered[-1], new, common=True), clients, Codec(a.DIMS, len(parties)))
    return server, [ended[k] for k in range(len(parties))]


def test_rows_that_some_party_lacks_are_left_out_by_all() -> None:
    server, clients = in_common([("p1", "p2", "p4"), ("p2", "p3", "p4", "p5")], ("p1", "p2", "p3", "p4"), (0, 3))
    order = sorted(("p1", "p2", "p3", "p4"), key=lambda one: a.digests([one], 7)[0])
    common = [one for one in order if one in ("p2", "p4")]
    for client in clients:
        assert [client.ids[row] for row in client.kept] == common
    assert [order[row] for row in server.kept] == common
    assert server.n_rows == 2
    new = tuple(common.index(order[row]) for row in (0, 3) if order[row] in common)
    assert server.new == new
    assert all(client.new == new for client in clients)


def test_new_rows_are_numbers_of_those_that_stay() -> None:
    lacking = a.digests(IDS[:1], 7)[0]
    client = a.Client("c", IDS, 7, common=True)
    for new in ([1], [2]):
        told = a.Aligned(0, 0, 1, json.dumps(GOOD | {"alone": lacking, "new": new}).encode())
        if new == [1]:
            assert a.client_receive(client, told)[0].kept == (1, 2)
        else:
            with pytest.raises(RemoteFault, match=r"Aligned\.new"):
                a.client_receive(client, told)


BAD: dict[str, dict[str, Any]] = {
    "a field less": {"holder": ...},
    "a field more": {"rows": 3},
    "alone": {"alone": 3},
    "cut digest": {"alone": a.digests(IDS, 7)[0][:-1]},
    "digest of another": {"alone": a.digests(["p9"], 7)[0]},
    "without": {"without": ["b"]},
    "holder": {"holder": "b"},
    "holder true": {"holder": True},
    "holder below": {"holder": -1},
    "new": {"new": 1},
    "new text": {"new": ["0"]},
    "new true": {"new": [True]},
    "new beyond": {"new": [3]},
    "new twice": {"new": [1, 1]},
    "new unsorted": {"new": [2, 0]},
}


@pytest.mark.parametrize("bad", BAD)
def test_an_answer_that_cannot_be_is_refused(bad: str) -> None:
    with pytest.raises(RemoteFault, match="server: Aligned"):
        told(**BAD[bad])
