"""Chooses the model of a job by the kind of its rows."""

from __future__ import annotations

from collections.abc import Mapping

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


def model_of(config: Config, names: tuple[str, ...], encoding: Encoding, summaries: frozenset[int] = frozenset()) -> Model:
    """Returns the model of a job and the columns that its parties have agreed on; `summaries`: clients that take part by one.

    Columns are not centred where there is no intercept: the predictor of a row with covariates of 0 is then 0.
    """
    encoding = encoding.uncentred if config.without_intercept else encoding
    return MODELS[config.row_kind](config, names, encoding, summaries=summaries)
