"""Every method has the same doors: a newcomer who knows one knows where to look in all."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import fedkern.methods
from fedkern.errors import JobError
from fedkern.jobs import method as protocols
from fedkern.jobs.keys import Keys
from fedkern.jobs.model import JobModel
from fedkern.methods import load_method
from fedkern.results.report import Report
from support.refusal import refusal

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


def test_there_are_six() -> None:
    assert METHODS == ["describe", "likelihood", "pvi", "sigma", "sparse", "vertical"]
    assert sorted(fedkern.methods.METHODS) == METHODS
    assert (*DOORS, "replay") == protocols.Method._fields  # of methods that have asynchronous jobs


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", METHODS)
def test_a_door_has_what_the_engine_asks_for(name: str, door: str) -> None:
    module = getattr(load_method(name), door)
    for function, wanted in vars(DOORS[door]).items():
        if not function.startswith("_") and callable(wanted):
            own = list(inspect.signature(getattr(module, function)).parameters)
            assert own == list(inspect.signature(wanted).parameters)[1:], f"{name}.{door}.{function}"


def test_a_method_without_a_door_fails_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedkern.methods, "METHODS", (*fedkern.methods.METHODS, "none"))
    with pytest.raises(ModuleNotFoundError, match=r"fedkern\.methods\.none"):
        load_method("none")


def test_a_method_that_nobody_brings_is_named_with_those_that_are() -> None:
    with refusal(JobError, "job.method", "none", "pvi", "likelihood"):
        load_method("none")


@pytest.mark.parametrize("file", ["doors", "keys", "model", "run", "stages", "publish", "show", "report", "rows", "predict"])
@pytest.mark.parametrize("name", METHODS)
def test_the_same_question_has_the_same_file(name: str, file: str) -> None:
    assert (FOLDER / name / f"{file}.py").exists()


# Of a method: what a job may ask, what is read of files before there is a model, the model, and what is said of the job. All else
# takes plain values of the model. (Rows of some kinds have models in files of their own, and `kinds` chooses a job's steps.) The
# files of `sigma/prior` are of a command with a file of its own.
READERS = ("keys", "rows", "earlier", "common", "model", "models", "level_models", "time_models", "own_model", "kinds", "stages")
CONFIGS = ("Config", "JobConfig")


def reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each look into a job's config: an attribute of something that is called so; or another name for one, by
    which nobody would find it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_config(node.value):
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.arg) and node.arg != "config" and node.annotation is not None:
            yield from ((node.lineno, ast.unparse(node)) for kind in (ast.unparse(node.annotation),) if kind in CONFIGS)
        if isinstance(node, ast.Assign):
            yield from ((node.lineno, ast.unparse(node)) for target in node.targets if _renames(target, node.value))
        if isinstance(node, ast.NamedExpr) and _renames(node.target, node.value):
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars"):
            yield from ((node.lineno, ast.unparse(node)) for one in node.args[:1] if _is_config(one))


def _is_config(node: ast.AST) -> bool:
    return getattr(node, "id", getattr(node, "attr", "")) == "config"


def _renames(target: ast.AST, value: ast.AST) -> bool:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return any(map(_renames, target.elts, value.elts))
    return _is_config(value) and not _is_config(target)


def test_only_these_look_into_the_job() -> None:
    found = []
    for path in sorted(FOLDER.glob("*/*.py")):
        if path.stem not in READERS:
            found += [f"{path.relative_to(FOLDER)}:{line}: {text}" for line, text in reads(ast.parse(path.read_text("utf-8")))]
    assert not found


AGAIN = {("pvi", "declared")}  # its columns say more


@pytest.mark.parametrize("name", METHODS)
def test_what_every_model_knows_of_its_job_stands_once(name: str) -> None:
    module = import_module(f"fedkern.methods.{name}.model")
    models = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    found = [one for one in models if issubclass(one, JobModel)]
    assert len(found) == 1
    shared = {word for word, value in vars(JobModel).items() if isinstance(value, property)}
    assert {(name, word) for word in shared & set(vars(found[0]))} <= AGAIN


@pytest.mark.parametrize(
    "planted",
    [
        "seed = model.config.job.seed",
        "delta = config.output.delta",
        "x = run.config.private",
        "c = model.config",
        "a, c = 1, run.config",
        "f(c := run.config)",
        "def f(job: Config): ...",
        "kind = getattr(model.config, name)",
    ],
)
def test_a_look_is_seen(planted: str) -> None:
    assert list(reads(ast.parse(planted)))
    assert not list(reads(ast.parse("config, n = run.config, model.n\nf(model.config, config)\ndef f(config: Config): ...")))
