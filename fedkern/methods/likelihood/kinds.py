"""Lists the steps of each kind of rows. The kind is the job file's (`Config.row_kind`); its model stands in `models`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from . import (
    checks,
    level_checks,
    lifetimes,
    own_publish,
    own_run,
    own_variational,
    publish,
    regression,
    survey,
    survival,
)
from .keys import Config, RowKind
from .steps import Steps

LEVELS = Steps(
    partial(regression.agree, exchange_response=level_checks.exchange_shares),
    checks.complete,
    level_checks.exchange_checks,
    publish.make_fit,
)
STEPS: Mapping[RowKind, Steps] = {
    "responses": Steps(regression.agree, checks.complete, checks.exchange_checks, publish.make_fit),
    "ordered": LEVELS,
    "nominal": LEVELS,
    "cox": Steps(regression.agree, survival.complete, survival.exchange_checks, publish.make_fit),
    "lifetimes": Steps(regression.agree, lifetimes.complete, lifetimes.exchange_checks, publish.make_fit),
    "own": Steps(own_run.agree, own_run.complete, own_run.exchange_checks, own_publish.make_fit),
}
VARIATIONAL = STEPS["own"]._replace(fit=own_variational.fit)


def steps_of(config: Config) -> Steps:
    """Returns the steps of a job."""
    kind = config.row_kind
    if config.extends:  # few jobs do: no other has these modules
        from . import earlier, extended

        return STEPS[kind]._replace(agree=earlier.agree, fit=extended.fit)
    if config.survey:
        return survey.steps(STEPS[kind])
    return VARIATIONAL if kind == "own" and config.algorithm.sampler == "sfvi" else STEPS[kind]
