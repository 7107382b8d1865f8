"""Compares a newcomer's rows with what a run that has ended has published, as a job of all clients compares its clients.

The newcomer does so itself, before it answers anything, and is refused with what would be a doubt of a result. That a level is
far away, or an outcome as often 1 as it is 0 elsewhere, may be so: that is a note for its holder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...algorithms.exchanges import level
from ...algorithms.exchanges.compare import Facts, is_of_client, of_column, of_response, same_as_published
from ...algorithms.exchanges.odd_response import OTHERS, Compared
from ...algorithms.importance import machine as importance
from ...algorithms.importance.extension import Normal
from ...arrays import Array
from ...data.design import Design
from ...errors import OwnFault
from ...finding import Finding, Value
from ...models.encoding import Column
from ...models.mixed.rows import find_mode
from ...models.spatial.units import sums
from ...results import other_way
from ...results.other_way import Reversed
from . import differently
from .model import Model
from .response import responses_of

RUN = "the earlier run"


class Published(NamedTuple):
    """Holds what a run says of its clients' rows."""

    clients: tuple[str, ...]  # whose rows they are
    columns: Sequence[Mapping[str, Value]]  # the table "columns by client"
    total: float  # the first of the two sums of responses by which their level is known (`units.sums`); 0 where it is not known
    rows: int  # of all clients, of survival times; 0 where they are not known
    events: int  # the same
    normal: Normal  # the posterior


class AtMean(NamedTuple):
    """Holds gradients (2, P) and curvatures (2, P, P) of a run and of a newcomer."""

    mode: Array
    own_gradient: Array
    own_hessian: Array


def compare(
    model: Model, run: Published, name: str, design: Design, rows: Any, likelihood: importance.Model
) -> list[str]:  # rows: of any kind
    """Returns notes for a newcomer's holder; OwnFault where its rows cannot be meant so."""
    units = _of_units(model, name, design)
    if units:
        _refuse(name, "a column seems to be in another unit than the earlier run has it in", units, "write it in the run's unit")
    if twins := same_as_published(run.columns, _facts(model, name, design)):
        of = Finding.of("one-file-twice", clients=[*twins, name])
        _refuse(name, "its rows seem to be in the earlier run", [of], "leave the client out")
    notes = list[str]()
    if model.asks_level and model.has_multiples and run.total:
        compared = _of_level(model, run, name, design, rows)
        if compared.doubt:
            what = f"its response ({model.describe_response()}) seems to be in another unit than in the earlier run"
            _refuse(name, what, compared.notes, "write it in the run's unit")
        notes += compared.notes
    turned = _of_coding(model, run, name, design, likelihood)
    if turned is not None and turned.doubt:
        what = "its outcome seems to be coded the other way round than in the earlier run"
        _refuse(name, what, [turned.note], "code it as the run has it")
    return notes if turned is None else [*notes, turned.note]


def _refuse(name: str, why: str, found: Iterable[str], remedy: str) -> None:
    """Raises OwnFault, whose reason the holder alone reads."""
    begin, remedy = f"client {name!r}: {why}", f"{remedy}, or run all clients in one job"
    raise OwnFault(f"{begin}; {remedy}", f"{begin}: {'; '.join(found)}; {remedy}")


def _numbers(model: Model, design: Design) -> list[tuple[str, Column, Array]]:
    """Returns each numeric column of a name of its own, with its cells as the model has them."""
    columns = {column.name: column for column in model.encoding.columns if column.levels is None}
    return [(head, columns[head], cells) for head, cells in zip(model.encoding.names, design.X.T) if head in columns]


def _facts(model: Model, name: str, design: Design) -> Facts:
    """Returns a client's facts of its numeric columns, in the data's units."""
    numeric, n = _numbers(model, design), len(design.X)
    cells = np.array([column.constants[0] + column.constants[1] * x for _, column, x in numeric]).reshape(len(numeric), n)
    means = cells.mean(axis=1)
    squares = ((cells - means[:, np.newaxis]) ** 2).sum(axis=1)[np.newaxis]
    columns = tuple(column for _, column, _ in numeric)
    return Facts((name,), columns, np.array([float(n)]), means, np.zeros_like(squares), squares)


def _of_units(model: Model, name: str, design: Design) -> list[Finding]:
    """Returns doubts about columns, or a measured response, that seem to be in another unit than the run's.

    Their means and standard deviations there are the constants by which columns are standardised, and the response's units.
    """
    found, n = list[Finding](), float(len(design.X))
    rows, who = np.array([n, model.units.n or n]), (name, OTHERS)
    for head, column, cells in _numbers(model, design):
        if column.center is None or column.scale is None or (column.center, column.scale) == (0.0, 1.0):
            continue
        means = np.array([column.center + column.scale * cells.mean(), column.center])
        variances = np.array([column.scale * cells.std(), column.scale]) ** 2
        compared = of_column(f"column {head!r}", who, rows, means, variances, (), owner=head)
        found += _of_newcomer(compared, means, variances)
    if model.measured:
        y = design.y - (0.0 if design.offset is None else design.offset)
        means, variances = np.array([y.mean(), model.units.pooled]), np.array([y.std(), model.units.scale]) ** 2
        response = f"column {model.encoding.response!r}"
        found += _of_newcomer(of_response(response, who, rows, means, variances, linear=model.row.linear), means, variances)
    return found


def _of_newcomer(found: Iterable[Finding], means: Array, variances: Array) -> list[Finding]:
    """Returns doubts about the first of two, and not about all others together."""
    (mean, theirs), (variance, their_variance) = means.tolist(), variances.tolist()
    return [finding for finding in found if finding.doubt and is_of_client(mean, variance, theirs, their_variance)]


def _of_level(model: Model, run: Published, name: str, design: Design, rows: Any) -> Compared:
    """Returns the newcomer's counts, or times, beside those of all clients of the run together."""
    client = level.Client(name, model.asked_level, responses_of(design, model.exposure(rows)), weights=design.weights)
    first, second = sums(model.level_family, client.rows, weights=client.weights)
    totals = (run.total + first, run.total * math.exp(-model.units.pooled) + second, 0.0)
    return replace(model, names=(*run.clients, name)).compare_alone(client, totals)


def _of_coding(model: Model, run: Published, name: str, design: Design, likelihood: importance.Model) -> Reversed | None:
    """Returns the words on an outcome, or an event, that seems to be coded the other way round."""
    mean, names = run.normal.mean, (RUN, name)
    # At the posterior's mean the run's rows draw as much as its prior does the other way.
    _, slope, prior = model.prior.curvature(mean)
    theirs = -slope, run.normal.precision - prior
    if model.may_be_reversed and model.slopes_alone:
        # By its curvature at the run's mean rows that contradict the run would be a step away from their own mode.
        alone = find_mode(likelihood, model.prior, mean, model.settings.nodes)
        if alone is None:
            return None
        return differently.find_opposed(model, names, *_joined(model, (mean, alone[0]), likelihood, theirs))
    g, P = _joined(model, (mean, mean), likelihood, theirs)
    if run.events:
        counts = {0: {"rows": run.rows, "events": run.events}, 1: {"rows": len(design.y), "events": int((design.y > 0).sum())}}
        return differently.reversed_events(AtMean(np.zeros_like(mean), g, P), model, counts, names, right=1)
    if not model.may_be_reversed:
        return None
    places = model.compared[1]
    at_references = np.zeros(len(mean))
    at_references[list(model.coding.kept)] = model.coding.matrix @ mean[: model.layout.p]
    g = g - P @ at_references
    at_0 = other_way.where_slopes_are_0(at_references[places], g[:, places], P[:, places][:, :, places], range(1, len(places)))
    return other_way.find(at_0, names, model.encoding.response)


def _joined(
    model: Model, points: tuple[Array, Array], likelihood: importance.Model, theirs: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Returns h (2, P) and P (2, P, P) of a run and of a newcomer: likelihoods about N(P^-1 h, P^-1), each by its point.

    What the run's draws say of coefficients that follow from others is noise: all is at reference levels.
    """
    _, gradient, hessian = likelihood.curvature(points[1][np.newaxis], model.settings.nodes)
    P = np.stack([theirs[1], hessian[0]])
    h = np.einsum("kij,kj->ki", P, np.stack(points)) + np.stack([theirs[0], gradient[0]])
    kept = np.ones(len(points[0]), bool)
    kept[: model.layout.p] = np.isin(np.arange(model.layout.p), model.coding.kept)
    return h * kept, P * np.outer(kept, kept)
