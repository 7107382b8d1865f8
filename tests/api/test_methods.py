"""Every method has the same doors: a newcomer who knows one knows where to look in all."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import fedkern.methods
from fedkern.jobs import method as protocols
from fedkern.jobs.keys import Keys
from fedkern.methods import named
from fedkern.results.report import Report

FOLDER = Path(fedkern.methods.__file__).parent
METHODS = sorted(path.name for path in FOLDER.iterdir() if (path / "keys.py").exists() or (path / "run.py").exists())
DOORS = {
    "keys": Keys,
    "rows": protocols.Rows,
    "run": protocols.Running,
    "stages": protocols.Stages,
    "show": protocols.Show,
    "report": Report,
    "predict": protocols.Predict,
}


def test_there_are_four() -> None:
    assert METHODS == ["pvi", "sigma", "sparse", "vertical"]
    assert sorted(fedkern.methods.METHODS) == METHODS
    assert tuple(DOORS) == protocols.Method._fields


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", METHODS)
def test_a_door_has_what_the_engine_asks_for(name: str, door: str) -> None:
    module = getattr(named(name), door)
    for function, wanted in vars(DOORS[door]).items():
        if not function.startswith("_") and callable(wanted):
            own = list(inspect.signature(getattr(module, function)).parameters)
            assert own == list(inspect.signature(wanted).parameters)[1:], f"{name}.{door}.{function}"


def test_a_method_without_a_door_fails_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"fedkern\.methods\.none"):
        named("none")


@pytest.mark.parametrize("file", ["doors", "keys", "model", "run", "stages", "publish", "show", "report", "rows", "predict"])
@pytest.mark.parametrize("name", METHODS)
def test_the_same_question_has_the_same_file(name: str, file: str) -> None:
    assert (FOLDER / name / f"{file}.py").exists()
