"""Answers that can be nobody's, of all declared exchanges and agreements: each field of an honest one is changed.

A frame of such an answer ends the job by the name of its client, or the answer is dropped and the others stand. What is taken has
numbers of which no sum overflows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.exchange import LEAST, Added, Ask, Exchange
from fedkern.algorithms.core.legs import Leg
from fedkern.algorithms.core.messages import ClientLost, RemoteFault, schema
from fedkern.algorithms.core.pieces import Piece
from fedkern.algorithms.exchanges import (
    column_notes,
    column_sums,
    columns,
    intersection,
    level,
    level_sums,
    odd_response,
    predictions,
    prior,
    rare_levels,
    response,
    rows,
    scales,
    sum_keys,
    survey,
)
from fedkern.algorithms.exchanges.answers import (
    Certificate,
    CumulativeHazards,
    FamilyHeard,
    LogTerms,
    OwnModel,
    Settled,
    SiteFit,
    SiteMode,
)
from fedkern.algorithms.exchanges.arrival import Slope
from fedkern.algorithms.exchanges.described import Cells, FewValues, Moments, OwnParts
from fedkern.algorithms.exchanges.level_sums import LevelNumbers
from fedkern.algorithms.exchanges.scales import ColumnMeans, ColumnMoments, ColumnValues
from fedkern.algorithms.exchanges.sums import (
    Counts,
    ErrorShape,
    FitSums,
    Incomplete,
    LifetimeSums,
    LooSums,
    MarginalSums,
    PearsonSums,
    Replicated,
    SumEnd,
    SurvivalSums,
)
from fedkern.algorithms.exchanges.verdicts import VerdictHeard
from fedkern.errors import LostPeer
from fedkern.models.encoding import Spec
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.certificate import certificate
from fedkern.transports.codec import Codec
from support.declared import QUESTIONS

SPENT = certificate(
    Mechanism(sampling="full", clip=1.0, dimension=4, noise_multiplier=20.0), steps=20, epsilon_cap=9.0, delta=1e-5, policy=True
)
ONES = np.ones((2, 2))
HONEST: dict[type[Exchange], Exchange] = {
    type(one): one
    for one in (
        Incomplete(0, 9, 2),
        LooSums(0, 6, -3.0, 3.0, 0.5, np.array([4.0, 0, 1, 1])),
        FitSums(0, 6, -3.0, 3.0, 0.5, -3.1, 0.6, 1),
        PearsonSums(0, 9, 1.0, 12.0, 8.5, 20.0, 11.0),
        Replicated(0, np.array([9.0, 5.0, 7.0, 2.0]), ONES, ONES, ONES),
        MarginalSums(0, 9, np.array([0.0, 1.0]), ONES),
        SurvivalSums(0, 6, 9.0, 5.0, np.array([0.5, -1.0]), np.ones(2)),
        LifetimeSums(0, 9, 6, 5, 9.0, 5.0, np.full(10, 0.9), np.ones(5), np.array([4.0, 2.0])),
        ErrorShape(0, 9, np.array([0.7, 0.8])),
        survey.ClusterScores(0, 9, np.array([0.7, -0.8]), np.ones(3), np.ones(3)),
        LevelNumbers(0, np.array([[4.0, 1.5], [3.0, -2.0]]), np.array([[[5.0, 1.0], [2.0, 3.0]]])),
        CumulativeHazards(0, 9, np.array([[0.1, 0.2], [0.3, 0.3]])),
        SiteMode(0, ONES, ONES),
        SiteFit(0, np.ones(2), np.ones(2)),
        Counts(0, 1, 2, 3),
        ColumnValues(0, np.array([0.0, 3.0])),
        ColumnMeans(0, np.array([1.0, -3.0])),
        Settled(0, 1),
        FewValues(0, np.array([2.0, 0.0]), np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[0.0, 0.0, 0.0], [-1.0, 2.0, 0.5]])),
        OwnParts(0, np.array([0.0, 0.0, 2.0, -1.0]), np.array([1.0, 0.0, -1.0])),
        Cells(0, np.array([4.0, 0.0, 3.0])),
        Moments(0, np.ones((1, 2, 3)), np.ones((1, 6))),
        LogTerms(0, np.array([-9.0, -7.5])),
        Slope(0, 1, np.ones(2), np.array([2.0, 0.5, 1.0])),
        OwnModel.of("package", "1.0", editable=False),
        Certificate.of(SPENT),
        VerdictHeard(0),
        FamilyHeard(0),
        SumEnd(0, 0.0),
    )
}
ANY = {(None, "round"), (SumEnd, "zero")}  # fields of which a server does nothing
# Those whose numbers have both signs; `told` below 1 says that there is nothing to tell.
SIGNED = {
    (survey.ClusterScores, "total"),
    (survey.ClusterScores, "curvature"),
    (LooSums, "density"), (LooSums, "effective"), (FitSums, "density"), (FitSums, "effective"), (FitSums, "waic"),
    (FitSums, "waic_effective"), (Replicated, "replicated"), (Replicated, "tenths"), (Replicated, "misfits"),
    (MarginalSums, "sums"), (SurvivalSums, "score"), (LifetimeSums, "scores"), (SiteMode, "mode"), (SiteFit, "estimate"),
    (LogTerms, "values"), (Slope, "gradient"), (Slope, "told"), (ColumnMeans, "steps"),
    (FewValues, "n"), (FewValues, "values"), (FewValues, "scale"), (OwnParts, "sums"), (Cells, "counts"),
}  # fmt: skip
NEVER = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e250)


def dims(answer: Any) -> dict[str, int]:
    """The sizes of the answer's messages, by its own arrays."""
    found = {**type(answer).dims}
    for name, field in schema(type(answer)).items():
        if field.type is np.ndarray:
            found |= dict(zip(field.shape, getattr(answer, name).shape))
    return found


def hostile(honest: Any) -> Iterator[tuple[str, Any]]:
    """Answers with one field that is not the client's, each with what is done to it."""
    kind = type(honest)
    for one in fields(honest):
        name, value = one.name, getattr(honest, one.name)
        if not {(None, name), (kind, name)}.isdisjoint(ANY):
            continue
        changed: list[Any] = []
        if isinstance(value, int):
            changed = [2**62] + ([] if (kind, name) in SIGNED else [-1, -(2**62)])
            changed += [LEAST - 1] if issubclass(kind, Added) and kind.least and name == kind.number else []
        elif isinstance(value, float):
            changed = [*NEVER] + ([] if (kind, name) in SIGNED else [-1.0])
        elif isinstance(value, bytes):
            (symbol,) = schema(kind)[name].shape
            changed = [b"", b"[", b"\xff", b"[" * min(dims(honest)[symbol], 4000), b"{}", b"[1, 2]", b'"x"']
        else:
            for x in NEVER:
                single = value.copy()
                single.flat[-1] = x
                changed += [np.full_like(value, x), single]
            changed += [np.full_like(value, 0.5)] if name in kind.every or (kind, name) == (ColumnMeans, "steps") else []
            changed += [] if (kind, name) in SIGNED else [-value - (value == 0)]
        yield from ((f"{name} {x}", replace(honest, **{name: x})) for x in changed)


def test_each_declared_exchange_has_an_honest_answer_here() -> None:
    assert {*HONEST} == {*QUESTIONS}
    for honest in HONEST.values():
        assert not honest.wrong(), honest


@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.__name__)
def test_an_answer_with_a_field_that_cannot_be_is_dropped_or_ends_the_job_by_name(kind: type[Exchange]) -> None:
    honest, question = HONEST[kind], kind.question
    codec = Codec(dims(honest), 2)

    def received(server: Any, client: int, frame: Any) -> Any:
        sender, message = codec.decode(frame, kind.protocol.to_server)
        return question.server_receive(server, sender, message)[0]

    first = received(question.start(2, Ask(0))[0], 0, codec.encode(0, honest))
    assert not first.dropped
    assert not question.finished(first)
    for what, answer in hostile(honest):
        said = None
        try:
            with np.errstate(all="raise", under="ignore"):
                server = received(first, 1, codec.encode(1, answer))
        except RemoteFault as fault:
            said, server = fault, first
        if said is None:
            assert question.drops, f"{what} is taken"
            assert question.finished(server), what
            assert server.dropped.get(1, "").startswith("its "), f"{what} is taken"
            with pytest.raises(RemoteFault, match="came twice"):
                question.server_receive(server, 1, honest)
        else:
            assert said.client == 1, what
            assert said.text.startswith(f"{kind.__name__}." if "is not finite" in said.text else "its "), what
            assert not question.drops or "is not finite" in said.text, what
        assert list(server.replies) == [0], what


@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.__name__)
def test_a_frame_of_another_size_or_kind_or_a_second_one_ends_it_by_name(kind: type[Exchange]) -> None:
    honest, question = HONEST[kind], kind.question
    sizes = dims(honest)
    codec, up = Codec(sizes, 2), kind.protocol.to_server
    for symbol in {symbol for field in schema(kind).values() for symbol in field.shape}:
        larger = {**sizes, symbol: sizes[symbol] + 8}
        resized = {
            name: np.resize(getattr(honest, name), tuple(larger[s] for s in field.shape))
            for name, field in schema(kind).items()
            if symbol in field.shape and field.type is np.ndarray
        }
        with pytest.raises(RemoteFault, match=f"{kind.__name__} of .* bytes, .*needs") as fault:
            codec.decode(Codec(larger, 2).encode(1, replace(honest, **resized)), up)
        assert fault.value.client == 1
    other = next(one for one in HONEST.values() if type(one) is not kind)
    with pytest.raises(RemoteFault, match=rf"{type(other).__name__}, expected {kind.__name__}"):
        codec.decode(Codec(dims(other), 2).encode(1, other), up)
    server, _ = question.server_receive(question.start(2, Ask(0))[0], 0, honest)
    for message, words in ((honest, "came twice"), (Ask(0), "was not expected")):
        with pytest.raises(RemoteFault, match=f"client 0: {type(message).__name__} {words}"):
            question.server_receive(server, 0, message)


@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.__name__)
def test_nobody_waits_for_a_client_that_is_lost_but_where_the_job_needs_it(kind: type[Exchange]) -> None:
    question, honest = kind.question, HONEST[kind]
    server, _ = question.server_receive(question.start(2, Ask(0))[0], 0, honest)
    if question.needs:
        with pytest.raises(LostPeer):
            question.server_receive(server, 1, ClientLost(1))
        return
    assert question.finished(question.server_receive(server, 1, ClientLost(1))[0])


# Agreements --------------------

AB = ("a", "b")
NO_NOTES = {"constant": [], "coarse": [], "judged": [1, 1], "collinear": {}}
BLOCK = np.zeros(column_sums.WIDTH)
NUMBERS = LevelNumbers(0, np.array([[4.0], [3.0]]), np.zeros((0, 2, 1)))


def whole(kind: type[Piece], content: dict[str, Any]) -> Piece:
    return kind(0, 0, 1, json.dumps(content).encode())


# An honest first answer of each.
AGREEMENTS: dict[type[Leg[Any]], tuple[tuple[Leg[Any], Any], Any]] = {
    type(started[0]): (started, answer)
    for started, answer in (
        (columns.start(Spec("y"), AB), whole(columns.SchemaReply, {"names": [], "kinds": []})),
        (column_notes.start(AB), whole(column_notes.ColumnNotes, NO_NOTES)),
        (column_sums.start(("x",), 2), column_sums.ColumnSums(0, 3.0, BLOCK, BLOCK)),
        (intersection.start(AB, 1, 1), intersection.Blinded(0, 1, bytes(32))),
        (level.start(level.Settings("poisson"), AB), level.LevelSums(0, 1.0, 2.0)),
        (level_sums.start(AB, 2), NUMBERS),
        (odd_response.start(("n", "d"), "y", 2, (1.0, 1.0, 1.0)), odd_response.Odd(0, *np.zeros((3, 1)))),
        (predictions.start(AB, with_z=False), predictions.Prediction(0, np.ones(2), np.ones(2))),
        (prior.start(AB, "artifact", ("d", "e")), prior.Holds(0)),
        (rare_levels.start(2, AB), rare_levels.RareLevels(0, np.zeros(rare_levels.WIDTH))),
        (response.start(0), response.Response(0, np.ones(2))),
        (rows.start(AB, 0, None), whole(rows.Ids, {"ids": "", "labels": "", "response": False})),
        (survey.start("w", AB), survey.WeightSums(0, 3.0, 5.0)),
        (scales.start(("x",), AB, second=False), ColumnMoments(0, np.ones(1), np.ones(1))),
        (sum_keys.start(AB), sum_keys.SumKey(bytes(32), 0)),
    )
}


def test_each_agreement_has_an_honest_answer_here() -> None:
    assert {*AGREEMENTS} == {kind for kind in Leg.__subclasses__() if kind.__module__.startswith("fedkern.")}


@pytest.mark.parametrize("kind", AGREEMENTS, ids=lambda kind: kind.__module__.rpartition(".")[2])
def test_an_agreement_takes_one_answer_of_each_client_in_its_leg_and_needs_all(kind: type[Leg[Any]]) -> None:
    (state, questions), honest = AGREEMENTS[kind]
    with pytest.raises(LostPeer):
        state.receive(0, ClientLost(0))
    wrong = [questions[0][1]]
    wrong += [replace(honest, round=9)] if hasattr(honest, "round") else []
    for message in wrong:
        with pytest.raises(RemoteFault, match=f"client 0: {type(message).__name__} was not expected"):
            state.receive(0, message)
    if isinstance(honest, Piece):
        for changed in ({"part": 1}, {"text": b"["}, {"text": b"[1]"}, {"text": b"{}"}, {"text": b'{"more": 1}'}):
            with pytest.raises(RemoteFault, match="client 0: "):
                state.receive(0, replace(honest, **changed))  # type: ignore[arg-type]
    state, _ = state.receive(0, honest)
    with pytest.raises(RemoteFault, match=f"client 0: {type(honest).__name__} was not expected"):
        state.receive(0, honest)
