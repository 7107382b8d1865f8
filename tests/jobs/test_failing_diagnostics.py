"""No diagnostic ends a finished job: each of them is made to raise, in a small job of each method, and the result is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern.algorithms import exchanges
from fedkern.algorithms.core import once
from fedkern.cli import show
from fedkern.cli.report import write as write_report
from fedkern.methods import load_method
from fedkern.results import guard
from support.declared import QUESTIONS
from support.input_cases import METHODS

MORE: dict[str, dict[str, Any]] = {  # a federation -> what is asked for beside its job file
    "pvi": {},
    "private": {},
    "likelihood": {"output": {"loo": True, "marginal": True}},
    "sparse": {"output": {"loo": True}},
    "vertical": {},
    "sigma": {"output": {"fit": True}},
    "describe": {},
}
ESSENTIAL = {"stop", "rounds", "clients", "parameters", "encoding", "digest"}  # keys of summary.json
KNOWN = ("rhat", "ess", "pip_rhat", "pip_ess", "pip_mcse")
EVERY = "all of them"
METHOD_NAMES = ("likelihood", "pvi", "sparse", "vertical", "sigma")
BY_FIT = METHOD_NAMES[1:]
TEXTS = ("str", "list[str]")  # what a function of the page returns


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[guard.Diagnostic]]:
    """Makes the diagnostics of one name raise; returns those that are attempted from then on."""
    compute = guard.Diagnostic.attempt

    def inject(name: str) -> list[guard.Diagnostic]:
        seen: list[guard.Diagnostic] = []

        def attempt(self: guard.Diagnostic, *arguments: Any, **options: Any) -> Any:
            seen.append(self)
            if name in (self.name, EVERY):
                raise ZeroDivisionError("of a cell, 61.5")
            return compute(self, *arguments, **options)

        monkeypatch.setattr(guard.Diagnostic, "attempt", attempt)
        return seen

    return inject


def essential(summary: dict[str, Any]) -> dict[str, Any]:
    """The answer: all numbers of the posterior, without those that say how well they are known."""
    numbers = {name: {key: one[key] for key in one if key not in KNOWN} for name, one in summary["parameters"].items()}
    return {key: summary[key] for key in ESSENTIAL} | {"parameters": numbers}


@pytest.mark.parametrize("name", MORE)
def test_all_diagnostics_may_fail(tmp_path: Path, attempts: Callable[[str], list[guard.Diagnostic]], name: str) -> None:
    """The answer is what it was, without a word of any of them; the page is there, too."""
    path = tmp_path / METHODS[name](tmp_path).job
    whole = fedkern.run(path, out=tmp_path / "whole", **MORE[name]).summary
    seen = attempts(EVERY)
    said = fedkern.run(path, out=tmp_path / "out", **MORE[name]).summary
    assert len(seen) > 1
    assert essential(said) == essential(whole)
    assert said["verdict"].startswith("convergence not judged: ")
    assert "the judging of the result" in said["verdict"]
    assert "61.5" not in json.dumps(said)
    (note,) = [note for note in said["notes"] if note.startswith("failed, and left out: ")]
    assert "the judging of the result" in note
    page = write_report(tmp_path / "out").read_text()
    assert "failed, and left out of this page: " in page
    assert said["verdict"] in show.describe_result(fedkern.load(tmp_path / "out"))


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MORE)
def test_each_diagnostic_may_fail(tmp_path: Path, attempts: Callable[[str], list[guard.Diagnostic]], name: str) -> None:
    path = tmp_path / METHODS[name](tmp_path).job
    called = attempts("")
    whole = fedkern.run(path, out=tmp_path / "whole", **MORE[name]).summary
    names = list(dict.fromkeys(one.name for one in called))
    assert len(names) > 3
    for number, failing in enumerate(names):
        seen = attempts(failing)
        out = tmp_path / f"out-{number}"
        said = fedkern.run(path, out=out, **MORE[name]).summary
        assert essential(said) == essential(whole), failing
        faults = [file for file in out.rglob("holder.txt") if f"{failing} failed:" in file.read_text()]
        assert faults, failing
        judges = any(one.judges for one in seen if one.name == failing)
        at_server = out / "holder.txt" in faults
        assert any(failing in note for note in said["notes"]) == at_server, failing
        assert "61.5" not in (out / "summary.json").read_text()
        assert not at_server or "61.5" not in (out / "holder.txt").read_text()
        if judges:
            assert said["converged"] in ("not judged", False), failing
            assert not at_server or failing in said["verdict"], failing


def questions() -> list[once.Question[Any, Any]]:
    """All questions of `exchanges` whose answers a job can do without."""
    found: dict[str, once.Question[Any, Any]] = {}
    for module in pkgutil.iter_modules(exchanges.__path__):
        for value in vars(importlib.import_module(f"{exchanges.__name__}.{module.name}")).values():
            if isinstance(value, once.Question) and value.drops:
                found[value.reply.__name__] = value
    return [*found.values(), *(kind.question for kind in QUESTIONS if kind.question.drops)]


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.reply.__name__)
def test_an_answer_that_stands_for_none_is_dropped(question: once.Question[Any, Any]) -> None:
    dims: dict[str, int] = defaultdict(lambda: 6) | {"t": 21}
    assert question.wrong(once.impossible(question.reply, dims))


def test_what_makes_a_result_is_guarded() -> None:
    """Whatever else is added to a result fails inside of one of these, so that it cannot be forgotten."""
    makers = ("likelihood.publish.make_fit", "likelihood.own_publish.make_fit", *(f"{m}.publish.fit" for m in BY_FIT))
    for name in METHOD_NAMES:
        load_method(name)
    for maker in makers:
        assert guard.DIAGNOSTICS[f"fedkern.methods.{maker}"].judges


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_each_section_of_a_page_is_guarded(name: str) -> None:
    report = importlib.import_module(f"fedkern.methods.{name}.report")
    called = {node.id for node in ast.walk(ast.parse(inspect.getsource(report.sections))) if isinstance(node, ast.Name)}
    for each in called:
        function = vars(report).get(each)
        if (
            inspect.isfunction(function)
            and function.__module__ == report.__name__
            and function.__annotations__["return"] in TEXTS
        ):
            assert f"{report.__name__}.{each}" in guard.DIAGNOSTICS, each
