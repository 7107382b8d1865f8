"""fedkern's jobs beside the programs that fit the same models: stored numbers on every push, the programs themselves at night."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from references.models import job_of, points_of
from references.record import MODELS, STORED_MODELS, interpreters, models_of

STORED: dict[str, dict[str, Any]] = json.loads(STORED_MODELS.read_text(encoding="utf-8"))
WITHIN, SDS = 1e-8, 1e-4  # of a log-likelihood, and of the posterior's standard deviation


@pytest.mark.parametrize("name", MODELS)
def test_a_job_has_the_log_likelihoods_and_the_mode_of_the_program_beside_it(name: str) -> None:
    row, job, programs = MODELS[name], job_of(name), STORED[name]
    values = [job.log_likelihood(point) for point in points_of(row)]
    mode = job.mode(row["at"]) if row.get("mode", "prior") != "none" else {}
    assert len(programs) == ("R" in row) + ("Python" in row)
    for program in programs.values():
        np.testing.assert_allclose(values, program["log_likelihoods"], rtol=row.get("within", WITHIN))
        for (name, (number, sd)), other in zip(mode.items(), program.get("mode", ())):
            assert abs(number - other) < row.get("sds", SDS) * sd, name


def test_each_model_has_numbers_and_each_kind_of_rows_a_model() -> None:
    assert set(STORED) == set(MODELS)
    assert len(MODELS) >= 45


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("language", ["R", "Python"])
def test_the_programs_still_print_what_is_stored(language: str) -> None:
    interpreter = interpreters().get(language)
    if interpreter is None:
        pytest.skip(f"{language} is not installed")
    found = models_of(language, interpreter)
    if not found:
        pytest.skip(f"none of the programs of {language} is installed: FEDKERN_PEERS names an interpreter that has them")
    assert set(found) == {name for name, row in MODELS.items() if language in row}
    for name, programs in found.items():
        for program, content in programs.items():
            for key, within in (("log_likelihoods", 1e-9), ("mode", 1e-4)):
                np.testing.assert_allclose(content.get(key, []), STORED[name][program].get(key, []), within, within, err_msg=name)
