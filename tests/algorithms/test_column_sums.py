"""Centres and scales from sums over all clients alone: the bits of the agreement without masks, and its errors by client."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkern.algorithms.core import masked, once
from fedkern.algorithms.core.masked import Hider
from fedkern.algorithms.core.messages import Message, RemoteFault
from fedkern.algorithms.exchanges import column_sums, level
from fedkern.algorithms.exchanges import columns as agreement
from fedkern.algorithms.exchanges.columns import Summary
from fedkern.algorithms.exchanges.sums import FitSums, LooSums
from fedkern.errors import FedkernError, JobError, OwnFault
from fedkern.jobs.stage import Stage, column_sums_stage
from fedkern.models.encoding import Column, Spec
from fedkern.models.spatial.site import Rows
from fedkern.privacy.masks import ONCE, Pairs, holds, public_key
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol

NAMES = tuple("abcdefg")


def hiders(n: int) -> list[Hider]:
    secrets = [hashlib.sha256(bytes([k])).digest() for k in range(n)]
    keys = [public_key(secret) for secret in secrets]
    return [Hider(Pairs.agree(k, secret, NAMES[:n], keys, b"job"), NAMES[k]) for k, secret in enumerate(secrets)]


def hidden(stage: Stage, start: Any, clients: dict[int, Any], order: int = 0) -> tuple[Any, dict[int, Any]]:
    """The last states of a masked exchange's machines."""
    sums, n = stage.sums, len(clients)
    assert sums is not None
    states = {k: masked.Client(client, hider) for (k, client), hider in zip(clients.items(), hiders(n), strict=True)}
    codec, began = Codec(stage.dims, n), sums.start(start, NAMES[:n])
    server, ended = run_protocol(stage.protocol, began, states, codec, order=random.Random(order))
    return server.inner, {k: client.inner for k, client in ended.items()}


def found(spec: Spec, summaries: list[Summary]) -> dict[str, Column]:
    """The columns of a job with secure sums, which all parties hold."""
    n, names = len(summaries), tuple(name for name in summaries[0].names if not spec.complete(name))
    clients = {k: column_sums.Client(NAMES[k], spec, n, names, one) for k, one in enumerate(summaries)}
    server, ended = hidden(column_sums_stage(), column_sums.start(names, n), clients)
    columns = tuple(spec.columns.get(name, Column(name)) for name in summaries[0].names)
    every = [column_sums.with_constants(columns, one) for one in (server, *ended.values())]
    assert all(one == every[0] for one in every)
    return {column.name: column for column in every[0]}


def agreed(spec: Spec, summaries: list[Summary]) -> dict[str, Column]:
    """The columns of a job without."""
    n = len(summaries)
    clients = {k: agreement.Client(spec, one) for k, one in enumerate(summaries)}
    started = agreement.start(spec, NAMES[:n])
    server, _ = run_protocol(agreement.PROTOCOL, started, clients, Codec(agreement.DIMS, n))
    assert server.encoding is not None
    return {column.name: column for column in server.encoding.columns}


def summaries_of(seed: int, n: int, p: int, mean: float, spread: float, *, weighed: bool = False) -> list[Summary]:
    rng, names = np.random.default_rng(seed), tuple(f"x{j}" for j in range(p))
    out = []
    for k in range(n):
        x = mean + spread * rng.standard_normal((5 + 3 * k, p)) * 2.0 ** (np.arange(p) % 9)
        x[:, -1] = mean  # a constant column
        order = rng.permutation(p) if k else np.arange(p)  # files may have another order of columns
        counts = rng.integers(1, 9, len(x)).astype(np.float64) if weighed else None
        own = np.ascontiguousarray(x[:, order])
        out.append(Summary(tuple(names[j] for j in order), ("numeric",) * p, {}, (), own, counts))
    return out


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.sampled_from([3, 4, 7]),
    p=st.sampled_from([2, 5, 64, 65]),
    mean=st.sampled_from([0.0, 0.1, -1e6, 1e9]),
    spread=st.sampled_from([1e-12, 1.0, 1e25]),
    weighed=st.booleans(),
)
def test_constants_have_the_bits_of_an_agreement_without_masks(
    seed: int, n: int, p: int, mean: float, spread: float, weighed: bool
) -> None:
    summaries = summaries_of(seed, n, p, mean, spread, weighed=weighed)
    assert found(Spec("y"), summaries) == agreed(Spec("y"), summaries)


def test_a_row_that_is_left_out_is_seen() -> None:
    """The control of the test above: it compares numbers that depend on every row."""
    summaries = summaries_of(1, 3, 3, 5.0, 1.0)
    numeric = summaries[0].numeric
    assert numeric is not None
    assert found(Spec("y"), [replace(summaries[0], numeric=numeric[1:]), *summaries[1:]]) != agreed(Spec("y"), summaries)


def test_constants_of_the_job_file_stay_and_are_not_asked_for() -> None:
    spec = Spec("y", columns={"x1": Column("x1", center=40.0, scale=10.0)})
    summaries = summaries_of(2, 3, 3, 5.0, 1.0)
    columns = found(spec, summaries)
    assert columns == agreed(spec, summaries)
    assert columns["x1"].constants == (40.0, 10.0)


@pytest.mark.parametrize("factor", [1e-80, 1e60])
def test_a_column_whose_digits_would_be_lost_ends_the_job_with_its_client_s_name(factor: float) -> None:
    summaries = summaries_of(3, 3, 3, 5.0, 1.0)
    numeric = summaries[1].numeric
    assert numeric is not None
    at = summaries[1].names.index("x1")
    numeric[:, at] *= factor
    with pytest.raises(OwnFault, match=f"client 'b': covariate no. {at + 1}: its values are too large, or too small") as fault:
        found(Spec("y"), summaries)
    assert "column 'x1'" in fault.value.own


def test_a_server_that_asks_for_another_leg_or_tells_a_scale_of_0_is_refused() -> None:
    (one, *_) = summaries_of(3, 3, 3, 5.0, 1.0)
    client = column_sums.Client("a", Spec("y"), 3, ("x0", "x1", "x2"), one)
    zeros = np.zeros(column_sums.WIDTH)
    for wrong in (column_sums.AskColumnSums(3, zeros), column_sums.ColumnScales(1, 9.0, zeros, zeros)):
        with pytest.raises(RemoteFault):
            column_sums.client_receive(client, wrong)


def asked(client: column_sums.Client, *questions: Message) -> list[str]:
    """What a client says to questions: what it sends, or how it ends."""
    said = []
    for question in questions:
        try:
            client, (told,) = column_sums.client_receive(client, question)
            said.append("words" if holds(told.numbers(), ONCE, 3).all() else "no words")  # type: ignore[attr-defined]
        except (FedkernError, RemoteFault) as fault:
            return [*said, str(fault)]
    return said


@pytest.mark.parametrize("mean", [1e-70, 0.1, 1e30, 1e32, 1e60, np.inf, np.nan])
def test_no_number_that_the_server_tells_ends_the_job_at_one_client(mean: float) -> None:
    """One with cells that are all 0, one with small and one with large ones."""
    each, zeros = list[list[str]](), np.zeros(column_sums.WIDTH)
    for size in (0.0, 1e-20, 1e25):
        summary = Summary(("x0",), ("numeric",), numeric=size * np.array([[1.0], [-2.0], [3.5]]))
        client = column_sums.Client("a", Spec("y"), 3, ("x0",), summary)
        each.append(asked(client, column_sums.AskColumnSums(0, zeros), column_sums.AskColumnSums(1, zeros + mean)))
    assert each[0] == each[1] == each[2]
    assert each[0][0] == "words"
    assert each[0][1] == ("words" if mean < 8e31 else "server: AskColumnSums was not expected, or has a number that cannot be")


# Units --------------------


def compared(factor: float, n: int, shift: float = 0.0, two: int = 0) -> tuple[column_sums.Server, dict[int, column_sums.Client]]:
    """All states where a column (of mean 100, sd 10) is `factor` times as large at the second client, and `shift` more."""
    rng, names = np.random.default_rng(8), ("x", "other")
    summaries = []
    for k in range(n):
        x = 100 + 10 * rng.standard_normal((80 + 10 * k, 2))
        if k == 1:
            x[:, 0] = factor * x[:, 0] + shift
        if two and k == 2:
            x[:, 0] -= two
        summaries.append(Summary(names, ("numeric",) * 2, {}, (), x))
    clients = {k: column_sums.Client(NAMES[k], Spec("y"), n, names, one) for k, one in enumerate(summaries)}
    return hidden(column_sums_stage(), column_sums.start(names, n), clients)


@pytest.mark.parametrize("n", [3, 7])
@pytest.mark.parametrize(("factor", "shift"), [(18.0, 0.0), (1.0, 500.0)], ids=["large", "far"])
def test_another_unit_at_one_client_is_a_doubt_and_its_holder_is_told(factor: float, shift: float, n: int) -> None:
    server, ended = compared(factor, n, shift)
    (doubt,) = server.doubts
    assert doubt.startswith("column 'x' is in another unit at one client")
    assert not any(repr(name) in doubt for name in NAMES)
    (said,) = ended[1].notes
    assert "of column 'x'" in said
    assert not any("'other'" in note for one in ended.values() for note in one.notes)


@pytest.mark.parametrize("n", [3, 7])
def test_alike_clients_have_no_note(n: int) -> None:
    server, ended = compared(1.0, n)
    assert (server.notes, server.doubts) == ((), ())
    assert not any(one.notes for one in ended.values())


def test_patients_who_differ_are_a_note() -> None:
    """A hospital for children among three: the others find that all others together vary more."""
    server, _ = compared(0.7, 3, -62.0)
    assert server.doubts == ()
    (note,) = server.notes
    assert "clients its mean, standard deviation or codes are not those of all others together" in note


def test_a_unit_that_makes_numbers_small_is_a_doubt() -> None:
    """Mean and standard deviation are the same small part of all others', as mmol/l for mg/dl makes them."""
    server, _ = compared(1 / 18.0, 3, 0.0)
    (doubt,) = server.doubts
    assert "column 'x'" in doubt


# The response --------------------


def responses(seed: int, factor: float = 1.0) -> dict[int, Rows]:
    rng = np.random.default_rng(seed)
    out = {}
    for k, n in enumerate((4, 9, 6)):
        y = factor * rng.normal(3.0, 2.0, n)
        out[k] = Rows(y, np.zeros(n, np.int64), np.zeros((n, 0)), np.zeros(n), None)
    return out


@pytest.mark.parametrize("family", ["gaussian", "poisson", "student"])
def test_the_response_s_units_are_those_without_masks(family: str) -> None:
    asked = level.Settings(family)
    rows = responses(5)
    if family == "poisson":
        rows = {k: replace(one, y=np.floor(np.abs(one.y)), offset=np.full(len(one.y), -0.3)) for k, one in rows.items()}
    stage = Stage(level.PROTOCOL, level.DIMS, times=asked.times).with_sums(level.SUMS)

    def clients() -> dict[int, level.Client]:
        return {k: level.Client(NAMES[k], asked, one) for k, one in rows.items()}

    server, ended = hidden(stage, level.start(asked, (masked.ALL,)), clients())
    plain, _ = run_protocol(level.PROTOCOL, level.start(asked, NAMES[:3]), clients(), Codec(level.DIMS, 3))
    assert plain.units is not None
    assert ended[0].units == ended[2].units
    for name in ("level", "scale", "pooled"):
        assert getattr(server.units, name) == pytest.approx(getattr(plain.units, name), rel=1e-14)
    assert server.rows == plain.rows
    assert (server.note, server.doubt) == ("", "")


def test_responses_whose_digits_would_be_lost_end_the_job_with_the_client_s_name() -> None:
    asked, rows = level.Settings("gaussian"), responses(5)
    rows[2] = replace(rows[2], y=rows[2].y * 1e50)
    stage = Stage(level.PROTOCOL, level.DIMS, times=asked.times).with_sums(level.SUMS)
    clients = {k: level.Client(NAMES[k], asked, one) for k, one in rows.items()}
    with pytest.raises(JobError, match=r"client '.': sums of the response, or of exposures, are too large, or too small"):
        hidden(stage, level.start(asked, (masked.ALL,)), clients)


# After the rounds --------------------


@pytest.mark.parametrize(
    ("one", "impossible"),
    [
        (LooSums(0, 7, -12.345, 40.5, 1.25, np.array([4.0, 2.0, 1.0, 0.0])), LooSums(0, 7, -1e100, 1e200, 0.0, np.zeros(4))),
        (FitSums(0, 7, -12.345, 40.5, 1.25, -11.5, 0.75, 2), FitSums(0, 7, -1e100, 1e200, 0.0, -1e100, 0.0, 0)),
    ],
    ids=["rows", "areas"],
)
def test_sums_of_rows_and_areas_are_added_field_by_field(one: Any, impossible: Any) -> None:
    stage = Stage.asking(type(one), secure=True)

    def of(*answers: Any) -> Any:
        server, _ = hidden(stage, one.question.start(1, one.ask(0)), dict(enumerate(map(once.ready_client, answers))))
        return server

    (total,) = of(one, one, one).replies.values()
    for name, value in vars(one).items():
        np.testing.assert_array_equal(getattr(total, name), 3 * np.asarray(value), name)
    assert of(one, impossible, one).dropped  # a model that cannot be: no overflow passes for a small number
