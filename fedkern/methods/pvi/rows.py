"""Finds the parties of a partitioned job, and the public knowledge of their columns."""

from __future__ import annotations

from pathlib import Path

from ...jobs import incomplete
from ...jobs import parties as jobs
from ...jobs.parties import Parties
from .keys import Config, check_terms


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`. Raises JobError: no file matches, two clients have one
    name, or the job file names clients that do not exist, or lacks terms of some."""
    data, model = config.data, config.model
    declared = jobs.declared(data.columns) | incomplete.marks(config)
    known = jobs.Known(model.family, data.response, data.positive, declared, model.intercept)
    if data.builtin:
        dealt = jobs.dealt(data)
        jobs.fits(model.family, dealt)
        columns, response = {**dealt.columns, **declared}, data.response or dealt.response or None
        known = known._replace(response=response, positive=dealt.positive, columns=columns)
        spec = jobs.rows_spec(config, data, known)
        taking_part = jobs.of_dealt(config, dealt, spec)
    else:
        spec = jobs.rows_spec(config, data, known)
        taking_part = jobs.from_files(config, folder, spec, spec.texts)
    terms = config.privacy.clients if config.privacy is not None else ()
    taking_part = jobs.there(taking_part, algorithm__client_weights=config.algorithm.client_weights, privacy__clients=terms)
    check_terms(config.privacy, taking_part.names)
    return taking_part
