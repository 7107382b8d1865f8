"""The agreement on columns: federated = pooled, one result for any order and partition, and every mismatch named."""

import dataclasses
import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkern.algorithms.core import pieces
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import columns as agreement
from fedkern.algorithms.exchanges.columns import PROTOCOL, AskSchema, Client, SchemaReply, Summary, start
from fedkern.data.design import describe
from fedkern.data.table import Table
from fedkern.errors import JobError, OwnFault
from fedkern.models.encoding import Column, Encoding, Spec
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec
from fedkern.transports.driver import Hooks
from support.refusal import refusal

SPEC = Spec("y")
PUBLIC = {"age": Column("age", center=40.0, scale=10.0), "job": Column("job", "categorical", ("clerk", "smith"))}
PRIVATE = Spec("y", standardise="public", private=True, columns=PUBLIC)
NAMES, KINDS = ("age", "job"), ("numeric", "categorical")


def summary(ages=(30.0, 50.0), jobs=("clerk",), **changes):
    return dataclasses.replace(Summary(NAMES, KINDS, {"job": tuple(jobs)}, (), np.array(ages)[:, None]), **changes)


def agree(spec, summaries, order=None, hooks=None):
    """The server's encoding, which every client must hold too."""
    names = tuple("abcdefghijklmnop"[: len(summaries)])
    clients = {k: Client(spec, s) for k, s in enumerate(summaries)}
    server, clients = inprocess.run_protocol(
        PROTOCOL, start(spec, names), clients, Codec(agreement.DIMS, len(names)), hooks, order
    )
    assert all(client.encoding == server.encoding for client in clients.values())
    assert all(client.summary.numeric is None for client in clients.values())
    return server.encoding


def test_levels_are_joined_and_sorted():
    encoding = agree(SPEC, [summary(jobs=["smith", "clerk"]), summary(jobs=["farmer"]), summary(jobs=[])])
    assert encoding.columns[1].levels == ("clerk", "farmer", "smith")
    assert encoding.names == ("intercept", "age", "job=clerk", "job=farmer", "job=smith")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n_clients=st.sampled_from([1, 2, 3, 7, 16]),
    p=st.integers(1, 5),
    mean=st.sampled_from([0.0, 1.0, -1e6, 1e9]),
    spread=st.sampled_from([1e-3, 1.0, 1e5]),
)
def test_federated_standardising_is_pooled_standardising(seed, n_clients, p, mean, spread):
    rng = np.random.default_rng(seed)
    x = mean + spread * rng.standard_normal((40, p)) * 2.0 ** np.arange(p)
    parts = np.split(x, np.sort(rng.choice(39, n_clients - 1, replace=False) + 1))
    names, kinds = tuple(f"x{j}" for j in range(p)), ("numeric",) * p
    encoding = agree(SPEC, [Summary(names, kinds, {}, (), part) for part in parts], random.Random(seed))
    center, scale = x.mean(axis=0), (x - x.mean(axis=0)).std(axis=0)
    rounding = 4e-16 * np.abs(mean) / spread  # of the values themselves
    np.testing.assert_allclose([c.center for c in encoding.columns], center, rtol=1e-12, atol=1e-12 * spread)
    np.testing.assert_allclose([c.scale for c in encoding.columns], scale, rtol=1e-12 + rounding)


def test_one_pass_sums_of_squares_would_have_failed():
    x = 1e9 + np.random.default_rng(0).standard_normal(40)
    naive = np.sqrt(max(np.mean(x * x) - np.mean(x) ** 2, 0.0))
    exchanged = agree(SPEC, [Summary(("x",), ("numeric",), {}, (), part[:, None]) for part in (x[:9], x[9:])]).columns[0].scale
    assert abs(naive - x.std()) > 0.5
    assert abs(exchanged - x.std()) < 1e-6


def test_rows_that_weigh_nothing_are_in_no_sum():
    """Whoever was left out by a weight of 0 is not told: 0 in all rows but one is this one's cell."""
    spec, weight = Spec("y", family="gaussian", weight="w"), np.array([1.0, 0, 2, 3, 0])
    columns = {"x": np.array([1.0, 70, 2, 4, np.pi]), "dialysis": np.array([0.0, 7, 0, 0, 0]), "w": weight, "y": np.arange(5.0)}
    told = []
    for rows in (np.arange(5), weight > 0):
        table = Table("a.csv", tuple(columns), {name: x[rows] for name, x in columns.items()}, len(weight[rows]))
        told.append(json.dumps(agree(spec, [describe(table, spec)] * 2).to_dict()))
    assert told[0] == told[1]
    every = Table("a.csv", tuple(columns), columns | {"w": np.ones(5)}, 5)
    assert describe(every, spec).counts is None
    nobody = Table("a.csv", tuple(columns), columns | {"w": np.zeros(5)}, 5)
    assert agree(spec, [describe(nobody, spec)]).columns[0].center == pytest.approx((77 + np.pi) / 5)


def test_the_order_of_arrival_changes_no_bit():
    rng = np.random.default_rng(2)
    summaries = [summary(rng.normal(50, 9, 5 + k), jobs=rng.choice(["u", "v", "w"], 2, replace=False)) for k in range(6)]
    texts = {agree(SPEC, summaries, random.Random(seed)).to_json() for seed in range(20)}
    assert len(texts) == 1


def test_a_constant_column_is_centred_and_not_divided():
    encoding = agree(SPEC, [summary([0.1] * 3), summary([0.1] * 7)])
    assert encoding.columns[0].scale == 1.0
    assert encoding.columns[0].center == pytest.approx(0.1, rel=1e-15)


def test_constants_of_the_job_file_win_over_exchanged_ones():
    columns = {"x": Column("x", center=1.0, scale=2.0)}
    both = Summary(("x", "z"), ("numeric", "numeric"), {}, (), np.array([[5.0, 1.0], [6.0, 3.0]]))
    assert agree(Spec("y", columns=columns), [both]).columns == (columns["x"], Column("z", center=2.0, scale=1.0))


def test_standardise_none_and_public():
    assert agree(Spec("y", standardise="none"), [summary(numeric=None)]).columns[0] == Column("age", center=0.0, scale=1.0)
    assert agree(Spec("y", standardise="public", columns=PUBLIC), [summary(numeric=None)]).columns == tuple(PUBLIC.values())


class Wire(Hooks):
    def __init__(self):
        self.sent = []

    def sending(self, client, message, n_bytes, charged):
        self.sent.append((client, message, n_bytes))


def test_a_private_client_sends_names_and_kinds_and_nothing_else():
    wire = Wire()
    rows = [summary(numeric=None, levels={}), summary(numeric=None, levels={}), summary()]  # the last one knows too much
    encoding = agree(PRIVATE, rows, hooks=wire)
    assert encoding == Encoding(tuple(PUBLIC.values()), "y")
    sent = [(client, json.loads(message.text)) for client, message, _ in wire.sent if isinstance(message, SchemaReply)]
    assert sorted(sent, key=lambda pair: pair[0]) == [(k, {"names": [*NAMES], "kinds": [*KINDS]}) for k in range(3)]
    assert len({n_bytes for _, message, n_bytes in wire.sent if isinstance(message, SchemaReply)}) == 1


def test_what_leaves_a_client_of_an_open_job():
    wire = Wire()
    agree(SPEC, [summary([30.0, 50.0, 52.0])], hooks=wire)
    first, second, third = (json.loads(message.text) for _, message, _ in wire.sent if isinstance(message, SchemaReply))
    assert first == {"names": [*NAMES], "kinds": [*KINDS]}
    assert second == {"levels": {"job": ["clerk"]}, "labels": [], "rows": 3, "sums": [132.0]}
    assert third == {"sums": [0.0], "squares": [296.0]}


def test_nothing_of_rows_leaves_that_the_job_file_says():
    wire = Wire()
    declared = Spec("y", positive="yes", columns={**PUBLIC, "y": Column("y", "categorical", ("no", "yes"))})
    agree(declared, [summary(labels=("no",))], hooks=wire)
    (only,) = (json.loads(message.text) for _, message, _ in wire.sent if isinstance(message, SchemaReply))
    assert only == {"names": [*NAMES], "kinds": [*KINDS]}
    wire = Wire()
    agree(Spec("y", positive="yes", standardise="none", columns=PUBLIC), [summary(labels=("no", "yes"))], hooks=wire)
    _, second = (json.loads(message.text) for _, message, _ in wire.sent if isinstance(message, SchemaReply))
    assert second == {"labels": ["no", "yes"]}


def test_long_descriptions_travel_in_pieces():
    names = tuple(f"a_rather_long_column_name_{j}" for j in range(3000))
    numeric = np.random.default_rng(0).standard_normal((4, 3000))
    wire = Wire()
    encoding = agree(SPEC, [Summary(names, ("numeric",) * 3000, {}, (), numeric)] * 2, random.Random(0), wire)
    assert len(encoding.names) == 3001
    replies = [message for client, message, _ in wire.sent if client == 0 and isinstance(message, SchemaReply)]
    assert len(replies) > 10
    assert max(len(message.text) for message in replies) <= pieces.PIECE
    np.testing.assert_allclose([c.center for c in encoding.columns], numeric.mean(axis=0), rtol=1e-9, atol=1e-12)


MISMATCHES = {
    "missing": (Summary(("age",), ("numeric",), {}, (), np.ones((1, 1))), "covariate no. 2 of client 'a' is missing; add it"),
    "extra": (
        Summary((*NAMES, "z"), (*KINDS, "numeric"), {"job": ()}, (), np.ones((1, 2))),
        "covariate no. 3 is not at client 'a'; remove it, or ignore it in [data]",
    ),
    "kind": (
        Summary(NAMES, ("categorical", "categorical"), {"age": ("x",), "job": ()}, (), np.ones((1, 0))),
        "covariate no. 1 is categorical, at client 'a' it is numeric; write it alike in all files",
    ),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_the_client_that_differs_from_most_is_named(mismatch, place):
    other, message = MISMATCHES[mismatch]
    summaries = [summary(), summary(), summary()]
    summaries[place] = other
    message = f"client {'abc'[place]!r}: " + message.replace("'a'", "'b'" if place == 0 else "'a'")
    wire = Wire()
    with pytest.raises(JobError) as fault:
        agree(SPEC, summaries, random.Random(place), wire)
    assert str(fault.value).startswith(message)
    told = [json.loads(message.text).keys() for _, message, _ in wire.sent if isinstance(message, SchemaReply)]
    assert told == [{"names", "kinds"}] * 3, "nothing of the rows has left"
    assert not any(f"'{name}'" in str(fault.value).partition(": ")[2].replace("client 'a'", "") for name in (*NAMES, "z"))
    with pytest.raises(JobError) as fault:  # what the job file names may be named
        agree(dataclasses.replace(SPEC, columns={name: Column(name) for name in (*NAMES, "z")}), summaries)
    assert re.search(r"column '\w+'", str(fault.value))


def test_columns_are_matched_by_name_in_any_order():
    """The order is that of most clients, and pooled constants are the pooled ones."""
    random_numbers = np.random.default_rng(5)
    every, names = random_numbers.normal([3, 1e6, -20], [1, 30, 5], size=(90, 3)), ("a", "b", "c")
    orders = [(2, 0, 1), (0, 1, 2), (1, 2, 0), (0, 1, 2)]
    parts = np.split(every, [10, 40, 70])
    clients = [Summary(tuple(names[j] for j in o), ("numeric",) * 3, {}, (), x[:, list(o)]) for o, x in zip(orders, parts)]
    encoding = agree(SPEC, clients, random.Random(3))
    assert tuple(column.name for column in encoding.columns) == names
    np.testing.assert_allclose([c.center for c in encoding.columns], every.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose([c.scale for c in encoding.columns], every.std(axis=0), rtol=1e-12)
    same = agree(SPEC, [Summary(names, ("numeric",) * 3, {}, (), x) for x in parts], random.Random(3))
    assert encoding == same


def test_labels_of_a_positive_response():
    spec = Spec("y", positive="yes")
    assert agree(spec, [summary(labels=("no",)), summary(labels=("no", "yes"))]).labels == ("no", "yes")
    assert agree(spec, [summary(labels=("no",))]).labels == ()  # one class only is legitimate
    with refusal(JobError, "c", "y", "3", "yes"):
        agree(spec, [summary(labels=("no", "yes")), summary(labels=("no", "yes")), summary(labels=("no", "yess"))])
    with refusal(JobError, "a", "y", "2"):
        agree(spec, [summary(labels=("f", "m"))])
    declared = Spec("y", positive="yes", columns={"y": Column("y", "categorical", ("maybe", "no", "yes"))})
    assert agree(declared, [summary(labels=("no", "yes"))]).labels == ("maybe", "no", "yes")


def test_what_a_private_job_must_have_in_its_file():
    for name in NAMES:  # a client that has not seen to it itself
        with pytest.raises(JobError, match=r"a private job asks no row what a column is|a covariate has no constants"):
            agree(dataclasses.replace(PRIVATE, columns={name: PUBLIC[name]}), [summary()])
    with pytest.raises(
        JobError, match='standardise = "exchange": in a private job sums of rows would leave the clients uncharged; set'
    ):
        Spec("y", private=True, standardise="exchange")


def test_values_too_large_to_be_summed():
    for ages in ([1e308, 1e308], [1e200, -1e200]):
        with pytest.raises(OwnFault, match=r"covariate no\. 1: its values are too large to be summed; give them") as fault:
            agree(SPEC, [summary(ages)])
        assert "column 'age'" in fault.value.own


# What a peer may not send. The state stays as it was.


LABELLED = Spec("y", positive="yes")


def good(leg=0):
    rows = {"levels": {"job": ["u"]}, "labels": ["no", "yes"], "rows": 2, "sums": [3.0]}
    return rows if leg else {"names": ["age", "job"], "kinds": ["numeric", "categorical"]}


def server_at(leg, names=("a", "b")):
    """A server that waits for the answers of this leg."""
    server, _ = start(LABELLED, names)
    for k in range(len(names) if leg else 0):
        server, _ = PROTOCOL.server_receive(server, k, reply(0, good()))
    assert server.leg == leg
    return server


def reply(leg, content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return SchemaReply(leg, 0, 1, text)


BAD_REPLIES = {
    "not JSON": (reply(0, b"{"), "text is not JSON"),
    "not UTF-8": (reply(0, b"\xff"), "text is not JSON"),
    "deeply nested": (reply(0, b"[" * 100_000), "text is not JSON"),
    "no object": (reply(0, b"[]"), "text must be a JSON object, got list"),
    "missing field": (reply(0, {"names": ["age"]}), "has the fields names; needs kinds, names"),
    "extra field": (reply(0, good() | {"rows": 3}), "has the fields"),
    "missing field of rows": (
        reply(1, {k: v for k, v in good(1).items() if k != "rows"}),
        "has the fields labels, levels, sums; needs",
    ),
    "extra field of rows": (reply(1, good(1) | {"rows_themselves": [1.0]}), "has the fields"),
    "names": (reply(0, good() | {"names": ["age", 3]}), "names must be a list of different texts"),
    "names twice": (reply(0, good() | {"names": ["age", "age"]}), "names must be a list of different texts"),
    "kinds": (reply(0, good() | {"kinds": ["numeric"]}), "kinds must be numeric, categorical, mixed, one for each name"),
    "kind": (reply(0, good() | {"kinds": ["numeric", "magic"]}), "kinds must be numeric, categorical, mixed"),
    "levels": (reply(1, good(1) | {"levels": {"age": []}}), "levels must be those of the categorical columns"),
    "level": (reply(1, good(1) | {"levels": {"job": [1]}}), "levels of job must be a list of different texts"),
    "labels": (reply(1, good(1) | {"labels": "yes"}), "labels must be a list of different texts"),
    "rows": (reply(1, good(1) | {"rows": 0}), "rows must be a count > 0"),
    "rows true": (reply(1, good(1) | {"rows": True}), "rows must be a count > 0"),
    "sums short": (reply(1, good(1) | {"sums": []}), "sums must be a list of 1 numbers"),
    "sums nan": (reply(1, json.dumps(good(1) | {"sums": [float("nan")]}).encode()), "sums must be finite numbers"),
    "part": (SchemaReply(0, 1, 2, b"{}"), "part is 1 of 2, expected 0 of at most 4096"),
    "negative part": (SchemaReply(0, -1, 2, b"{}"), "part is -1 of 2"),
    "too many parts": (SchemaReply(0, 0, 10**9, b"{}"), "part is 0 of 1000000000"),
}


@pytest.mark.parametrize("bad", BAD_REPLIES)
def test_bad_replies_are_refused_by_name_and_change_nothing(bad):
    message, text = BAD_REPLIES[bad]
    server = server_at(message.round)
    before = repr(server)
    with pytest.raises(RemoteFault, match="client 1: SchemaReply") as fault:
        PROTOCOL.server_receive(server, 1, message)
    assert text in str(fault.value)
    assert repr(server) == before


def test_negative_squares_are_refused():
    server, (_, *_) = PROTOCOL.server_receive(server_at(1, ("a",)), 0, reply(1, good(1)))
    with pytest.raises(RemoteFault, match="squares must be >= 0"):
        PROTOCOL.server_receive(server, 0, reply(2, {"sums": [0.0], "squares": [-1.0]}))


def test_a_client_does_not_answer_what_its_job_does_not_ask():
    for leg in (1, 2, 7):
        with pytest.raises(RemoteFault, match=rf"AskSchema\.round is {leg}, of which this client's job file says nothing"):
            PROTOCOL.client_receive(Client(PRIVATE, summary()), AskSchema(leg, 0, 1, b'{"means":[0.0]}'))
    constants = dataclasses.replace(SPEC, columns={"age": PUBLIC["age"]})
    with refusal(RemoteFault, "AskSchema", "2"):
        PROTOCOL.client_receive(Client(constants, summary()), AskSchema(2, 0, 1, b'{"means":[0.0]}'))
    with pytest.raises(RemoteFault, match="means must be a list of 1 numbers"):
        PROTOCOL.client_receive(Client(SPEC, summary()), AskSchema(2, 0, 1, b"{}"))
    with refusal(RemoteFault, "Agreed"):
        PROTOCOL.client_receive(Client(SPEC, summary()), agreement.Agreed(2, 0, 1, b'{"columns":[{"name":"x"}]}'))


# What a server may not say: anything that this client's own job file and columns do not lead to.

OPEN = Spec("y", positive="yes", columns={"age": Column("age", center=40.0, scale=10.0)})
THREE = ("age", "job", "bmi")
ABOUT = Summary(THREE, ("numeric", "categorical", "numeric"), {"job": ("clerk",)}, ("no", "yes"), np.ones((2, 2)))
TOLD = {
    "columns": [
        {"name": "age", "center": 40.0, "scale": 10.0},
        {"name": "job", "levels": ["clerk", "smith"]},
        {"name": "bmi", "center": 1.0, "scale": 2.0},
    ],
    "labels": ["no", "yes"],
    "response": "y", "family": "bernoulli", "positive": "yes", "offset": None, "weight": None, "row_id": None, "intercept": True,
}  # fmt: skip


def told(spec=OPEN, about=ABOUT, **changes):
    text = json.dumps(TOLD | changes).encode()
    return PROTOCOL.client_receive(Client(spec, about), agreement.Agreed(2, 0, 1, text))[0]


def test_a_client_takes_what_its_own_job_file_leads_to():
    assert told().encoding.names == ("intercept", "age", "job=clerk", "job=smith", "bmi")
    assert told(labels=["maybe", "yes"], about=dataclasses.replace(ABOUT, labels=("maybe",))).encoding is not None
    assert told(labels=[], about=dataclasses.replace(ABOUT, labels=("no",))).encoding is not None


FALSE = {
    "response": {"response": "z"},
    "family": {"family": "poisson"},
    "positive": {"positive": "no"},
    "offset": {"offset": "bmi"},
    "weight": {"weight": "bmi"},
    "row_id": {"row_id": "bmi"},
    "intercept": {"intercept": False},
    "labels": {"labels": ["maybe", "yes"]},
    "no labels": {"labels": []},
    "a column ignored": {"columns": TOLD["columns"][:2]},
    "a column more": {"columns": [*TOLD["columns"], {"name": "zip", "center": 0.0, "scale": 1.0}]},
    "another kind": {"columns": [TOLD["columns"][0], {"name": "job", "center": 0.0, "scale": 1.0}, TOLD["columns"][2]]},
    "declared center": {"columns": [{"name": "age", "center": 41.0, "scale": 10.0}, *TOLD["columns"][1:]]},
    "declared scale": {"columns": [{"name": "age", "center": 40.0, "scale": 1e-9}, *TOLD["columns"][1:]]},
    "own level": {"columns": [TOLD["columns"][0], {"name": "job", "levels": ["smith"]}, TOLD["columns"][2]]},
}


@pytest.mark.parametrize("false", FALSE)
def test_a_client_refuses_what_its_own_job_file_does_not_say(false):
    with pytest.raises(RemoteFault, match=r"server: Agreed\.") as fault:
        told(**FALSE[false])
    assert "clerk" not in str(fault.value)


@pytest.mark.parametrize("spec", [PRIVATE, dataclasses.replace(PRIVATE, standardise="none")])
def test_a_private_client_takes_the_constants_and_levels_of_its_job_file_alone(spec):
    about = Summary(NAMES, KINDS)
    constants = {"center": 40.0, "scale": 10.0} if spec.standardise == "public" else {"center": 0.0, "scale": 1.0}
    job = {"name": "job", "levels": ["clerk", "smith"]}
    good = {"labels": [], "positive": None, "columns": [{"name": "age", **constants}, job]}
    assert told(spec, about, **good).encoding is not None
    for wrong in (
        {"columns": [{"name": "age", "center": 39.0, "scale": 10.0}, job]},
        {"columns": [{"name": "age", **constants}, {"name": "job", "levels": ["clerk", "smith", "x"]}]},
        {"labels": ["0", "1"]},
    ):
        with pytest.raises(RemoteFault, match=r"server: Agreed\."):
            told(spec, about, **(good | wrong))


def test_a_second_encoding_is_refused():
    with refusal(RemoteFault, "Agreed"):
        PROTOCOL.client_receive(told(), agreement.Agreed(2, 0, 1, json.dumps(TOLD).encode()))


OPEN_LABELS = [("no", "yes"), ("no",), ("yes",)]


def test_labels_of_all_decide_which_one_counts_as_1():
    encoding = agree(SPEC, [summary(labels=own) for own in OPEN_LABELS])
    assert (encoding.positive, encoding.labels) == ("yes", ("no", "yes"))
    encoding = agree(SPEC, [summary(labels=()) for _ in OPEN_LABELS])
    assert (encoding.positive, encoding.labels) == (None, ())


@pytest.mark.parametrize("other", [{"positive": "no"}, {"positive": None, "labels": []}, {"labels": ["never", "yes"]}])
def test_a_client_takes_no_other_event_than_its_labels_give(other):
    state = Client(SPEC, summary(labels=("no", "yes")))
    encoding = SPEC.encoding((Column("age", "numeric", None, 40.0, 10.0), Column("job", "categorical", ("clerk",)))).to_dict()
    encoding |= {"positive": "yes", "labels": ["no", "yes"]}
    taken, _ = PROTOCOL.client_receive(state, agreement.Agreed(3, *pieces.cut(encoding)[0]))
    assert taken.encoding.positive == "yes"
    with pytest.raises(RemoteFault, match=r"Agreed\.(positive|labels)"):
        PROTOCOL.client_receive(state, agreement.Agreed(3, *pieces.cut(encoding | other)[0]))
