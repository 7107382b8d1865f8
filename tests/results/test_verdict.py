"""One verdict for all methods, and the mark of what must not be read as if its chains agreed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.windows import Movement
from fedkern.results import report, verdict
from fedkern.results.verdict import STOPS, Check, Verdict


@pytest.mark.parametrize(
    ("rhat", "ess", "converged"),
    [(1.01, 400.0, True), (1.0101, 5000.0, False), (1.0, 399.0, False), (np.inf, 1.0, False), (1.5, 2.0, False)],
)
def test_chains_have_converged_where_r_hat_and_ess_are_good(rhat: float, ess: float, converged: bool) -> None:
    found = verdict.of_chains((rhat, ess, "log_tau[age]"), 4)
    assert found.converged is converged
    assert found.worst == "log_tau[age]"
    assert found.text.startswith("converged: " if converged else "not converged: ")
    assert {check.found.id: check.word for check in found.checks} == {"rhat": rhat <= 1.01, "ess": ess >= 400}
    assert [check.found.values["wanted"] for check in found.checks] == [1.01, 400.0]


def test_limits_of_the_job_stand_for_the_usual_ones() -> None:
    assert verdict.of_chains((1.04, 120.0, "rho"), 4, rhat=1.05, ess=100.0).converged is True
    assert verdict.of_chains((1.0, 900.0, "rho"), 4, rhat=1.05, ess=1000.0).converged is False


@pytest.mark.parametrize(
    ("rounds", "moved", "blind", "error", "ids"),
    [
        (10, [0.0], 0.0, 0.01, ["few-rounds-to-settle"]),
        (1000, [], 0.0, 0.01, ["nothing-moves"]),
        (1000, [0.0], 3.0, 0.01, ["movement-unseen"]),
        (1000, [0.0], 0.0, 0.9, ["movement", "movement-too-noisy"]),
        (1000, [0.5], 0.0, 0.01, ["movement"]),
    ],
)
def test_movement_is_judged_by_how_far_and_how_well_it_is_seen(
    rounds: int, moved: list[float], blind: float, error: float, ids: list[str]
) -> None:
    d = len(moved)
    movement = Movement(rounds, np.array(moved), np.zeros(d), np.full(d, error), np.full(d, 0.001), np.full(d, blind))
    found = verdict.of_movement(movement, ["a"][:d])
    assert [check.found.id for check in found.checks] == ids
    assert found.converged == ("settled" if ids == ["nothing-moves"] else False)


def test_clients_that_have_not_settled_or_were_lost() -> None:
    own = Verdict.of("settled", "nothing moves")
    assert verdict.with_clients(own, {"a": True, "b": True}) is own
    moving, lost = (verdict.with_clients(own, {"a": True, "b": bit, "c": None}) for bit in (False, True))
    assert (moving.converged, moving.worst, moving.checks[-1].found.id) == (False, "client b", "clients-not-settled")
    assert (lost.converged, lost.checks[-1].found.id) == ("not judged", "lost-before-settled")


@pytest.mark.parametrize(
    ("k_hat", "effective", "words"), [(0.2, 900, [True, True]), (0.8, 900, [False, True]), (0.2, 9, [True, False])]
)
def test_weighted_draws_are_judged_by_their_tail_and_their_number(k_hat: float, effective: float, words: list[bool]) -> None:
    weights: Any = SimpleNamespace(k_hat=k_hat, reliable=k_hat < 0.7, effective=effective, draws=np.zeros((1000, 1)))
    found = verdict.of_weights(weights, 400)
    assert [(check.found.id, check.word) for check in found.checks] == [*zip(("k-hat", "draws-that-count"), words)]


def test_what_has_settled_beyond_its_limit_says_why_that_is_allowed() -> None:
    def checks(sd: float) -> list[str]:
        moved = Movement(1000, np.zeros(1), np.array([sd]), np.array([0.01]), np.array([0.007]), np.zeros(1))
        judged = verdict.of_movement(moved, ["log_sigma"])
        assert judged.converged == ("settled" if sd < 0.1 else False)
        return [check.found.id for check in judged.checks]

    assert checks(0.061) == ["movement", "movement-within-errors"]
    assert checks(0.03) == checks(0.2) == ["movement"]


def test_what_is_not_judged_says_why() -> None:
    (check,) = verdict.of_chains(None, 4).checks
    assert (check.found.id, check.word) == ("no-rhat", "not judged")
    assert verdict.not_judged("variational").text == "convergence not judged: variational"
    assert Verdict.of("settled", "the bound has risen by less than 0.1").text.startswith("settled: ")


def test_the_worst_check_decides_and_of_a_failure_its_reasons_stand_alone() -> None:
    checks = [Check("a", True, "x"), Check("b", "settled"), Check("c", "approximate", "y")]
    checks += [Check("d", "not judged"), Check("e", False)]
    words = [Verdict(tuple(checks[: n + 1])).converged for n in range(5)]
    assert words == [True, "settled", "approximate", "not judged", False]
    assert [Verdict(tuple(checks[:n])).why for n in range(1, 6)] == ["a", "b; a", "c; b; a", "d", "e; d"]
    assert [Verdict(tuple(checks[:n])).worst for n in range(1, 6)] == ["x", "", "y", "", ""]
    assert Verdict(tuple(checks[:2])).content["checks"] == [{"is": True, "text": "a"}, {"is": "settled", "text": "b"}]


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
