"""Goes through the rounds of an asynchronous run again, from the answers that its server has kept."""

from __future__ import annotations

from base64 import b64decode, b64encode

import numpy as np

from ...algorithms.split import machine as vertical
from ...arrays import Array
from ...errors import JobError
from ...jobs import logged
from ...jobs.logged import refuse_rows as refuse_rows
from ...jobs.opened import Opened
from ...jobs.stage import Stage
from ...plain import Record
from . import stages
from .keys import Config
from .model import VerticalModel


def agreed(model: VerticalModel, y: Array, offset: Array | None) -> Record:
    """Returns all that the server begins with beside the job, its response too: only the server keeps it."""
    begun: Record = {"rows": model.n_rows, "test": model.n_test, "rho": model.worked_out, "factor": model.factor, "y": _text(y)}
    return begun if offset is None else {**begun, "offset": _text(offset)}


def replay(run: Opened) -> tuple[str, str]:
    """Returns the digest of the server's last state, by the answers and of the run."""
    config = run.config
    if not isinstance(config, Config):
        raise JobError(f'{run.path}: this is no run of method = "vertical"')

    def begun(first: Record) -> tuple[Stage, vertical.Server]:
        model = VerticalModel(config, run.names, first["rows"], first["test"], first["rho"], first["factor"])
        y, offset = _numbers(first["y"]), _numbers(first["offset"]) if "offset" in first else None
        server, _ = vertical.start(model.settings, model.centred(y, offset), model.names, y, offset, model.start_sd)
        return stages.trained(model), server

    return logged.digests(run, begun)


def _text(numbers: Array) -> str:
    return b64encode(np.asarray(numbers, "<f8").tobytes()).decode()


def _numbers(text: str) -> Array:
    return np.frombuffer(b64decode(text), "<f8").astype(float)
