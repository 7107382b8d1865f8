"""Goes through the rounds of an own model's asynchronous fit again, from the answers that its server has kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...algorithms.sfvi import machine as sfvi
from ...errors import JobError
from ...jobs import logged
from ...jobs.logged import refuse_rows as refuse_rows
from ...jobs.opened import Opened
from ...jobs.stage import Stage
from ...plain import Record
from . import own_parties, own_variational
from .keys import Config
from .own_model import OwnModel


def replay(run: Opened) -> tuple[str, str]:
    """Returns the digest of the server's last state, by the answers and of the run; a factory's own prior is asked again."""
    config = run.config
    if not isinstance(config, Config):
        raise JobError(f'{run.path}: this is no run of method = "likelihood"')

    def begun(first: Record) -> tuple[Stage, sfvi.Server]:
        model = OwnModel(config, run.names, tuple(first["parameters"]))
        if (server := own_parties.of_server(model.terms, Path.cwd())) is not None:
            model = replace(model, given=server.prior)
        return own_variational.fitted(model), own_variational.start(model)[0]

    return logged.digests(run, begun)
