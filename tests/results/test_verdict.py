"""One verdict for all methods, and the mark of what must not be read as if its chains agreed."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.windows import Movement
from fedkern.results import report, verdict
from fedkern.results.verdict import STOPS, Verdict

SOURCES = Path(fedkern.__file__).parent


@pytest.mark.parametrize(
    ("rhat", "ess", "converged"),
    [(1.01, 400.0, True), (1.0101, 5000.0, False), (1.0, 399.0, False), (np.inf, 1.0, False), (1.5, 2.0, False)],
)
def test_chains_have_converged_where_r_hat_and_ess_are_good(rhat: float, ess: float, converged: bool) -> None:
    found = verdict.of_chains((rhat, ess, "log_tau[age]"), 4)
    assert found.converged is converged
    assert found.worst == "log_tau[age]"
    assert found.text.startswith("converged: " if converged else "not converged: ")
    assert "wanted 1.01" in found.text
    assert "wanted 400; log_tau[age]" in found.text


def test_limits_of_the_job_stand_for_the_usual_ones() -> None:
    assert verdict.of_chains((1.04, 120.0, "rho"), 4, rhat=1.05, ess=100.0).converged is True
    assert verdict.of_chains((1.0, 900.0, "rho"), 4, rhat=1.05, ess=1000.0).converged is False


def test_what_has_settled_beyond_its_limit_says_why_that_is_allowed() -> None:
    def said(sd: float) -> str:
        moved = Movement(1000, np.zeros(1), np.array([sd]), np.array([0.01]), np.array([0.007]), np.zeros(1))
        return verdict.of_movement(moved, ["log_sigma"]).text

    assert said(0.061).startswith("settled: ")
    assert "what is more is no more than 2 of its standard errors" in said(0.061)
    assert "what is more" not in said(0.03) + said(0.2)


def test_what_is_not_judged_says_why() -> None:
    assert verdict.of_chains(None, 4).converged == "not judged"
    assert verdict.not_judged("variational").text == "convergence not judged: variational"
    assert Verdict("settled", "the bound has risen by less than 0.1").text.startswith("settled: ")


def test_marks() -> None:
    names = ("a", "b", "c", "d")
    assert verdict.doubtful(names, np.array([1.05, 1.0501, np.nan, np.inf])) == ["b", "d"]
    assert verdict.doubtful(names, None) == []
    assert [verdict.marked(name, ["b"]) for name in ("a", "b")] == ["a", "b*"]
    assert [verdict.is_doubtful(value) for value in (None, 1.0, 1.06)] == [False, False, True]


@pytest.mark.parametrize("stop", STOPS)
def test_report_and_terminal_say_the_same_of_a_stop(stop: str) -> None:
    page = report.page(report.RunFiles("run", {"stop": stop, "rounds": 3, "verdict": "settled: so", "converged": "settled"}))
    assert f"<i class={'bad' if stop == 'lost' else 'good'}>{STOPS[stop].label}</i>" in page


def test_a_run_that_did_not_finish_or_ended_in_an_unknown_way_is_marked() -> None:
    assert "<i class=bad>interrupted</i>" in report.page(report.RunFiles("run"))
    assert "<i class=bad>asleep</i>" in report.page(report.RunFiles("run", {"stop": "asleep"}))


def test_words_of_stops_and_verdicts_are_listed_in_one_place() -> None:
    """Every dictionary of the package that gives texts to two of these words; one that did would go its own way."""
    words, found = {*STOPS, *verdict.HEADS} - {True, False}, []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            pairs = zip(node.keys, node.values) if isinstance(node, ast.Dict) else ()
            said = [key.value for key, value in pairs if isinstance(key, ast.Constant) and "'" in ast.unparse(value)]
            if sum(isinstance(word, str) and word in words for word in said) > 1:
                found.append(path.relative_to(SOURCES).as_posix())
    assert found == ["results/verdict.py"] * 2
