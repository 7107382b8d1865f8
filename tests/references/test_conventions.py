"""fedkern's numbers beside those of the real programs: stored ones on every push, the programs themselves at night."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from references.ours import OURS
from references.record import FOLDER, STORED, Numbers, interpreters, numbers_of

ROWS: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "conventions.toml").read_text(encoding="utf-8"))
NUMBERS: Numbers = json.loads(STORED.read_text(encoding="utf-8"))


def near(number: float, other: float, within: float) -> bool:
    return abs(number - other) <= within * abs(other)


@pytest.mark.parametrize("name", ROWS)
def test_fedkern_has_the_numbers_of_the_programs_that_a_row_names_and_of_no_other(name: str) -> None:
    row, number = ROWS[name], OURS[name]()
    within = row.get("within", 1e-6)
    assert number == pytest.approx(NUMBERS[name]["fedkern"]["number"], rel=1e-6)
    programs = {program: content["number"] for program, content in NUMBERS[name].items() if program != "fedkern"}
    assert programs
    assert {program for program, other in programs.items() if near(other, number, within)} == set(row["same"])


def test_each_number_has_a_row() -> None:
    assert set(OURS) == set(NUMBERS) == set(ROWS)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("language", ["R", "Python"])
def test_the_programs_still_print_what_is_stored(language: str) -> None:
    interpreter = interpreters().get(language)
    if interpreter is None:
        pytest.skip(f"{language} is not installed")
    found = numbers_of(language, interpreter)
    if not found:
        pytest.skip(f"none of the programs of {language} is installed: FEDKERN_PEERS names an interpreter that has them")
    moved = {}
    for name, programs in found.items():
        for program, content in programs.items():
            kept = NUMBERS[name].get(program)
            if kept is None or not near(content["number"], kept["number"], ROWS[name].get("within", 1e-6)):
                moved[name, program] = (kept, content)
    assert not moved
