"""Faults between the keys of a sparse job: what breaks the target is refused. Source: docs/methods/sparse.md, section 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...jobs.naming import faults as faults_of_names
from ...kernels.families import FAMILIES, REAL

if TYPE_CHECKING:
    from ...jobs.load import SparseConfig


def conflicts(config: SparseConfig) -> Iterator[str]:
    """Every fault, each a sentence with its remedy."""
    yield from _data(config)
    yield from _model(config)
    yield from _sampler(config)


def _data(config: SparseConfig) -> Iterator[str]:
    data, kind = config.data, config.model.kind
    if config.privacy is not None:
        yield '[privacy]: method = "sparse" has no private form, and claims nothing; remove the section'
    if bool(data.clients) == bool(data.builtin):
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if kind == "regression" and data.clients and data.response is None:
        yield "data.response is missing: the column to be explained"
    if kind != "regression" and data.response is not None:
        yield f'data.response: model.kind = "{kind}" explains every column by the others; remove the key'
    for name in ("offset", "weight", "test", "row_id"):
        if getattr(data, name) is not None:
            yield f'data.{name} has no meaning with method = "sparse"; remove it'
    if data.standardise != "none":
        yield f'data.standardise = "{data.standardise}": a sparse model is scaled by model.scale; remove the key'
    yield from faults_of_names(data.names, "data.names")
    if config.model.scale == "given":
        for name, column in data.columns.items():
            if column.kind != "categorical" and column.levels is None and column.scale is None:
                yield f'data.columns.{name}.scale is missing: model.scale = "given" needs the scale of every column'


def _model(config: SparseConfig) -> Iterator[str]:
    model, a, real = config.model, config.algorithm, FAMILIES[config.model.family].domain is REAL
    if model.c0 is not None and model.negligible is not None:
        yield "model.c0 and model.negligible contradict each other; give one of them"
    if model.kind != "regression":
        for name in ("always", "splines"):
            if getattr(model, name):
                yield f'model.{name} is for kind = "regression"; remove it'
        if not real:
            yield f'model.family = "{model.family}" is for kind = "regression"; remove it'
        if model.missing == "impute":
            yield 'model.missing = "impute" is for kind = "regression"; remove rows with empty cells, or the columns'
        if not model.intercept:
            yield f'model.intercept = false is for kind = "regression": the columns of "{model.kind}" are centred'
    if model.kind != "sem" and (model.stable or a.update != "auto" or not a.swap):
        yield 'model.stable, algorithm.update and algorithm.swap are for kind = "sem"; remove them'
    if model.kind == "sem" and model.slab is not None:
        yield 'model.slab does not exist with kind = "sem"; remove it'
    if model.rho == "shared" and model.kind != "mrf":
        yield 'model.rho = "shared" is for kind = "mrf"; remove it'
    if not real and model.missing == "impute":
        yield 'model.missing = "impute" needs family = "gaussian"'
    if config.output.site_fits and (model.kind != "regression" or not real):
        yield 'output.site_fits are least-squares fits of kind = "regression" with family = "gaussian"; remove the key'
    if model.splines and model.missing == "impute":
        yield 'model.splines with model.missing = "impute" do not exist together; leave one out'
    for name, knots in model.splines.items():
        if len(knots) < 3 or sorted(set(knots)) != knots:
            yield f"model.splines.{name} = {knots}: wanted at least 3 knots in increasing order"
    if not real and (a.moves or a.statistics == "pooled"):
        yield 'algorithm.moves and algorithm.statistics = "pooled" need family = "gaussian": no factor of the rows suffices'


def _sampler(config: SparseConfig) -> Iterator[str]:
    model, a, rounds = config.model, config.algorithm, config.job.rounds
    if not isinstance(rounds, int):
        yield 'job.rounds = "budget" is for private jobs; give a number'
    elif a.burn_in + a.thin > rounds:
        yield f"algorithm.burn_in = {a.burn_in} leaves nothing of job.rounds = {rounds}; wanted fewer"
    if a.server_sweeps > 1 and (a.aggregate == "sums" or a.scales == "expanded"):
        yield 'algorithm.server_sweeps > 1 needs aggregate = "locals" and scales = "exact": the server must know every lambda'
    if a.block is not None and a.moves != ["interweave"]:
        yield 'algorithm.block is for moves = ["interweave"]; remove it'
    if a.moves and model.kind != "regression":
        yield f'algorithm.moves do not exist with kind = "{model.kind}"; remove them'
    if a.moves and model.missing == "impute":
        yield 'algorithm.moves do not exist with model.missing = "impute"; remove them'
    if a.moves and a.aggregate == "sums":
        yield 'algorithm.moves need aggregate = "locals"'
    if a.participation < 1:
        wrong = {
            'aggregate = "sums"': a.aggregate == "sums",  # the server could not keep the absent clients' terms
            "moves": bool(a.moves),  # the absent clients' coefficients would move without their likelihood
            'statistics = "pooled"': a.statistics == "pooled",
            'topology = "allgather"': a.topology == "allgather",
        }
        yield from (
            f"algorithm.participation < 1 with {name} samples another distribution; take 1" for name, bad in wrong.items() if bad
        )
    if a.share_local and a.aggregate == "sums":
        yield 'algorithm.share_local with aggregate = "sums" contradict each other: sums keep no coefficients'
    if a.statistics == "pooled":
        if model.kind == "sem" or model.missing == "impute":
            yield 'algorithm.statistics = "pooled" needs kind = "regression" or "mrf" without missing values'
        if a.topology == "allgather":
            yield 'algorithm.statistics = "pooled" needs topology = "server"'
    if a.tempering > 1 and (model.kind != "sem" or a.chains % a.tempering or a.participation < 1 or a.aggregate == "sums"):
        yield (
            f'algorithm.tempering = {a.tempering} is for kind = "sem" with algorithm.chains a multiple of it, participation 1 '
            'and aggregate = "locals"'
        )
    if a.topology == "allgather" and (a.moves or a.on_loss == "drop"):
        yield 'algorithm.topology = "allgather" has neither moves nor on_loss = "drop"'
