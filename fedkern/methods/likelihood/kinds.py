"""Lists the steps of each kind of rows. The kind is the job file's (`Config.row_kind`); its model stands in `models`.

A kind's modules are imported by its own jobs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from . import checks, publish, regression
from .keys import Config, RowKind
from .steps import Steps


def _of_responses() -> Steps:
    return Steps(regression.agree, checks.complete, checks.exchange_checks, publish.make_fit)


def _of_levels() -> Steps:
    from . import level_checks

    agree = partial(regression.agree, exchange_response=level_checks.exchange_shares)
    return Steps(agree, checks.complete, level_checks.exchange_checks, publish.make_fit)


def _of_cox() -> Steps:
    from . import survival

    return Steps(regression.agree, survival.complete, survival.exchange_checks, publish.make_fit)


def _of_lifetimes() -> Steps:
    from . import lifetimes

    return Steps(regression.agree, lifetimes.complete, lifetimes.exchange_checks, publish.make_fit)


def _of_own() -> Steps:
    from . import own_publish, own_run

    return Steps(own_run.agree, own_run.complete, own_run.exchange_checks, own_publish.make_fit)


STEPS: Mapping[RowKind, Callable[[], Steps]] = {
    "responses": _of_responses,
    "ordered": _of_levels,
    "nominal": _of_levels,
    "cox": _of_cox,
    "lifetimes": _of_lifetimes,
    "own": _of_own,
}


def steps_of(config: Config) -> Steps:
    """Returns the steps of a job."""
    kind = config.row_kind
    steps = STEPS[kind]()
    if config.extends:
        from . import earlier, extended

        return steps._replace(agree=earlier.agree, fit=extended.fit)
    if config.survey:
        from . import survey

        return survey.steps(steps)
    if kind == "own" and config.algorithm.sampler == "sfvi":
        from . import own_variational

        return steps._replace(fit=own_variational.fit)
    return steps
