"""Chooses the model of a job by the kind of its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...errors import JobError
from ...models.encoding import Encoding
from .keys import Config, RowKind
from .level_models import NominalModel, OrderedModel
from .model import Model
from .time_models import CoxModel, LifetimeModel

MODELS: Mapping[RowKind, type[Model]] = {
    "responses": Model,
    "ordered": OrderedModel,
    "nominal": NominalModel,
    "cox": CoxModel,
    "lifetimes": LifetimeModel,
}


def check_summaries(config: Config, names: Sequence[str], summaries: Collection[int]) -> None:
    """Refuses a job whose small clients cannot take part by a summary, or whose every client would, with a JobError."""
    if not summaries:
        return
    several = [repr(names[k]) for k in sorted(summaries)]
    begin = f"client {several[0]} has" if len(several) == 1 else f"clients {' and '.join(several)} have"
    begin += " too few rows for values of the likelihood at draws"
    if config.without_summaries is not None:
        remedy = "go on without (data.clients), or pool these rows with another site's"
        raise JobError(f"{begin}, and no client takes part by a summary in a job with {config.without_summaries}: {remedy}")
    if len(summaries) == len(names) and not (config.approximate or config.secure):
        remedy = "remove algorithm.approximate = false for a result near the posterior, take fewer columns, or pool sites' rows"
        raise JobError(f"{begin}, and there is no other client: {remedy}")


def model_of(
    config: Config, names: tuple[str, ...], encoding: Encoding, summaries: Mapping[int, int] = MappingProxyType({})
) -> Model:
    """Returns the model of a job and the columns that its parties have agreed on; `summaries`: clients that take part by one, and
    how many numbers each may tell."""
    if config.model.sigma is not None:  # holders' rows are looked at as those of no linear model
        encoding = replace(encoding, family=config.family)
    return MODELS[config.row_kind](config, names, encoding, summaries=summaries)
