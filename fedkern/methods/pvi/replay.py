"""Computes the posterior of an asynchronous run again, from the answers that its server has kept (`jobs/answers.py`)."""

from __future__ import annotations

from dataclasses import replace

from ...algorithms.pvi import machine as pvi
from ...errors import JobError
from ...jobs import logged
from ...jobs.opened import Opened
from ...jobs.stage import Stage
from ...models.encoding import Encoding
from ...models.spatial.units import Units
from ...plain import Record
from ...results.summary import digest
from . import publish, response, stages
from .keys import Config
from .model import Model, Server
from .stages import trained


def refuse_rows(run: Opened) -> None:
    """Raises JobError where the answers of a run may not be computed again from rows."""
    logged.refuse_rows(run)
    if stages.has_secret_batches(run.config):
        why = "only clients know which rows were in their batches"
        raise JobError(f'{run.path}: {why} (algorithm.random_source = "secure"), and draw others now. Leave out --rows')


def replay(run: Opened) -> tuple[str, str]:
    """Returns the digest of the posterior that follows from the answers, and that of the run's own."""
    config, models = run.config, list[Model]()
    if not isinstance(config, Config):
        raise JobError(f'{run.path}: this is no run of method = "pvi"')

    def begun(first: Record) -> tuple[Stage, Server]:
        known = response.Response(Units(first["level"], first["scale"]))
        model = replace(Model(config, run.names, Encoding.from_dict(first["encoding"])), response=known)
        models.append(model)
        return trained(model), model.start()[0]

    state = logged.last_state(run, begun)
    (model,) = models
    ended = response.in_data_units(state, model) if model.given.measured else state
    return digest(publish.arrays(model, ended, pvi.released(ended))), str((run.summary or {})["digest"])
