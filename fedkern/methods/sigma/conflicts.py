"""What a job file with method = "sigma" may not combine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...jobs.naming import faults as faults_of_names
from ...kernels.families import BINARY, FAMILIES, quoted, taken_by

if TYPE_CHECKING:
    from ...jobs.load import SigmaConfig


def conflicts(config: SigmaConfig) -> Iterator[str]:
    """Every contradiction, as a sentence with its remedy."""
    if config.privacy is not None:
        yield (
            '[privacy]: method = "sigma" has no private form: a gradient of a local likelihood has no noise in it; remove the '
            'section, or choose method = "pvi"'
        )
    yield from _data(config)
    yield from _algorithm(config)


def _data(config: SigmaConfig) -> Iterator[str]:
    data, model = config.data, config.model
    family = FAMILIES[model.family]
    if not data.clients:
        yield "data.clients: wanted the clients' files"
    if config.job.rounds == "budget":
        yield 'job.rounds = "budget" does not exist with method = "sigma"; give a number'
    if (data.area is None) == (not data.location):
        yield "data: wanted either area (the column with the area's name) or location (columns of coordinates); give one"
    if data.location and data.rows_per_area != "one":
        yield f'data.rows_per_area = "{data.rows_per_area}": only areas are counted, locations may have any rows; remove it'
    if data.exposure is not None and family.link != "log":
        log = quoted(taken_by("sigma", where=lambda f: f.link == "log"))
        yield f'data.exposure: only family = {log} has one, not "{model.family}"; remove it'
    if (data.trials is not None) != family.trials:
        tried = quoted(taken_by("sigma", where=lambda f: f.trials))
        yield f"data.trials and model.family = {tried} go together; give both, or neither"
    if data.positive is not None and family.domain is not BINARY:
        binary = quoted(taken_by("sigma", where=lambda f: f.domain is BINARY))
        yield f'data.positive: only family = {binary} has a positive label, not "{model.family}"; remove it'
    if family.lacks_scale(model.scale):
        yield family.scale_is_missing
    roles = [data.area, *data.location, data.response, data.exposure, data.offset, data.trials]
    given = [name for name in roles if name is not None]
    if len(set(given)) < len(given):
        yield f"data: area, location, response, exposure, offset and trials must be different columns, got {', '.join(given)}"
    yield from faults_of_names(data.names, "data.names")
    if data.standardise == "public":
        for name, column in data.columns.items():
            if column.kind != "categorical" and column.levels is None and column.scale is None and column.lower is None:
                yield f'data.columns.{name}: standardise = "public" needs its center and scale, or lower and upper'


def _algorithm(config: SigmaConfig) -> Iterator[str]:
    a, rounds = config.algorithm, config.job.rounds
    if a.inference == "nuts":
        yield (
            'algorithm.inference = "nuts": the stopping rule of a trajectory asks all parties, 2^depth exchanges for one draw: '
            'for pooled data only; take "hmc", whose number of steps is fixed'
        )
    if a.inference in ("hmc", "mala") and isinstance(rounds, int) and (rounds - a.burn_in) // a.thin < 1:
        yield f"algorithm.burn_in = {a.burn_in} of {rounds} rounds leaves no draw; lower it, or raise job.rounds"
    if config.output.bound and a.inference != "sfvi":
        yield f'output.bound is for algorithm.inference = "sfvi", not "{a.inference}"; remove it'
