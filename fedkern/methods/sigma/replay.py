"""Goes through the rounds of an asynchronous run again, from the answers that its server has kept."""

from __future__ import annotations

from pathlib import Path

from ...algorithms.sfvi import machine as sfvi
from ...data.artifact import read_server
from ...errors import JobError
from ...jobs import logged
from ...jobs.logged import refuse_rows as refuse_rows
from ...jobs.opened import Opened
from ...jobs.stage import Stage
from ...models.encoding import Encoding
from ...models.spatial.units import Units
from ...plain import Record
from . import stages
from .keys import Config
from .model import SigmaModel
from .rows import prior_of


def replay(run: Opened) -> tuple[str, str]:
    """Returns the digest of the server's last state, by the answers and of the run; the prior must be where the job had it."""
    config = run.config
    if not isinstance(config, Config):
        raise JobError(f'{run.path}: this is no run of method = "sigma"')

    def begun(first: Record) -> tuple[Stage, sfvi.Server]:
        path = prior_of(config, Path.cwd())
        prior = read_server(path)
        if prior.common.id != first["prior"]:
            raise JobError(f"{path}: this prior is not the one of the run; put that one there")
        model = SigmaModel(config, run.names, Encoding.from_dict(first["encoding"]), prior.common, Units(*first["units"]))
        server, _ = sfvi.start(model.sfvi, model.prior, model.telling, ridge=model.ridge(prior.mean_loadings))
        return stages.fitted(model), server

    return logged.digests(run, begun)
