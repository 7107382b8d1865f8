"""Finds the parties of a sparse job, and the public knowledge of their columns."""

from __future__ import annotations

from pathlib import Path

from ...errors import JobError
from ...jobs import parties as jobs
from ...jobs.parties import Parties
from .keys import Config


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`. Intercepts belong to clients, and have no column. Raises
    JobError: no file matches, two clients have one name, or the built-in data have no response."""
    data, model = config.data, config.model
    declared = jobs.declared(data.columns)
    known = jobs.Known(model.family, data.response, data.positive, declared, intercept=False, missing=model.missing == "impute")
    if not data.builtin:
        spec = jobs.rows_spec(config, data, known)
        return jobs.from_files(config, folder, spec, spec.texts)
    dealt, graph = jobs.dealt(data), model.kind != "regression"
    if not graph:
        if not (dealt.response or data.response):
            without = f'data.builtin = "{data.builtin}" has no response; give data.response, or another kind'
            raise JobError(f'model.kind = "regression": {without}')
        jobs.fits(model.family, dealt)
    response = None if graph else data.response or dealt.response or None
    known = known._replace(response=response, positive=dealt.positive)
    return jobs.of_dealt(config, dealt, jobs.rows_spec(config, data, known))
