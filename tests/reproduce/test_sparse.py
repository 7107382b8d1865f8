"""Reproductions of the sparse models: scores, tables, the printed slips, and what is made of a run's summary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import papers
from fedkern.data import table
from fedkern.data.sets import sachs
from fedkern.errors import JobError
from papers import common, printed, sparse, sparse_sem, sparse_simulation
from papers.sparse_simulation import Design, Outcome, Setting
from support.refusal import refusal

SUMMARY: dict[str, Any] = {"sampler": {"chains": 2, "kept": 5, "rhat": 1.01, "ess": 50.0, "slowest": "eta"}}


def test_files_of_sites_are_read_back_with_their_gaps(tmp_path: Path) -> None:
    sites = {"b": {"x": np.array([0.1, np.nan]), "y": np.array([1.0, 2.0])}, "a": {"x": np.array([1e-17]), "y": np.array([3.0])}}
    paths = sparse.write_sites(tmp_path / "data", sites)
    assert [Path(path).stem for path in paths] == ["b", "a"]
    for path, columns in zip(paths, sites.values()):
        found = table.load(path)
        assert found.names == ("x", "y")
        values = found.columns["x"]
        np.testing.assert_array_equal(values.numbers() if isinstance(values, table.Text) else values, columns["x"])


def test_a_run_that_is_there_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run_job(job: Any, out: Path) -> None:
        ran.append(job)
        (out / "summary.json").write_text(json.dumps(SUMMARY))

    monkeypatch.setattr(common, "run_job", run_job)
    asked = sparse.job("mrf", {"clients": ["a.csv"]}, 1000, output={"fdr": 0.1})
    for _ in range(2):
        assert sparse.run_once(tmp_path / "one", asked) == SUMMARY
    assert len(ran) == 1
    sparse.run_once(tmp_path / "one", sparse.job("mrf", {"clients": ["a.csv"]}, 1001))
    assert len(ran) == 2
    assert asked["algorithm"] == {"chains": 4, "burn_in": 200, "random_source": "keyed"}
    assert sparse.converged(SUMMARY) == "2 chains of 5 kept draws, R-hat at most 1.010, ESS at least 50 (eta)"


def test_numbers_of_either_kind_on_the_standardised_scale() -> None:
    row = {"mean": 1.0}
    names = ["theta[a]", "theta[b]", "theta_std[a]", "theta_std[a]@x", "average[a]", "average[b]", "average_std[a]", "tau[a]"]
    parameters = dict.fromkeys(names, row)
    assert list(sparse.standardised(parameters, "theta")) == ["b", "a"]
    assert list(sparse.standardised(parameters, "average")) == ["b", "a"]


def federation(seed: int = 3) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    theta, sites = np.array([0.8, 0.0, -0.4]), []
    for _ in range(4):
        x = random.normal(size=(80, 3)) + 3
        sites.append((x, 5 + x @ (theta + 0.05 * random.normal(size=3)) + random.normal(size=80)))
    return sites


def test_the_printed_lines_lose_evidence_and_the_right_ones_find_the_truth() -> None:
    sites, names = federation(), ("a", "b", "c")
    right, slips = (printed.sample(sites, names, rounds=700, burn_in=200, printed=p).parameters() for p in (False, True))
    for name, truth in zip(names, (0.8, 0.0, -0.4)):
        assert abs(right[f"average[{name}]"]["mean"] - truth) < 4 * right[f"average[{name}]"]["sd"]
    assert right["theta[a]"]["pip"] > 0.9
    assert slips["theta[a]"]["pip"] < right["theta[a]"]["pip"] - 0.1
    assert slips["eta"]["q50"] > 1.3 * right["eta"]["q50"]
    assert slips["tau[b]"]["q50"] > 1.2 * right["tau[b]"]["q50"]
    assert all(row["rhat"] < 1.1 for name, row in right.items() if name.startswith("theta"))


def test_the_printed_sampler_keeps_what_it_says() -> None:
    found = printed.sample(federation(), ("a", "b", "c"), rounds=12, burn_in=2, printed=False, chains=3)
    assert {name: draws.shape for name, draws in found.arrays.items()} == {
        **dict.fromkeys(("theta", "tau_sq", "inclusion", "average"), (3, 10, 3)),
        **dict.fromkeys(("eta", "rho"), (3, 10, 1)),
    }


def test_only_the_regression_has_slips_to_show(tmp_path: Path) -> None:
    with refusal(JobError, "--printed"):
        papers.run("sparse-mrf", fast=True, out=tmp_path, printed=True)


def test_scores_of_a_perfect_graph_and_of_a_reversed_one() -> None:
    pip = sachs.adjacency(sachs.LEARNED) * 0.9 + 0.05
    pairs = np.maximum(pip, pip.T)
    assert set(sparse_sem.scores(pip, pairs, sachs.LEARNED).values()) == {1.0}
    turned = sparse_sem.scores(pip.T, pairs, sachs.LEARNED)
    assert turned["AUROC, pairs"] == turned["AUPRC, pairs"] == 1.0
    assert turned["AUROC"] < 0.5
    assert turned["AUPRC"] < 0.3


def test_pairs_of_a_symmetric_graph_are_counted_once() -> None:
    pip = np.array([[0.0, 0.97, 0.2], [0.97, 0.0, 0.93], [0.2, 0.93, 0.0]])
    inside = sparse.pairs_at(pip, 0.1)
    assert inside.tolist() == [[False, True, False], [True, False, True], [False, True, False]]


def test_a_simulated_data_set_has_its_design() -> None:
    design = Design("one client off", rows=4000, apart=True)
    rows, own = sparse_simulation.data_set(design, 7)
    np.testing.assert_array_equal(own[1:], np.tile(design.theta, (3, 1)))
    assert (own[0, 0], own[0, -1]) == (0.4, 0.6)
    for (x, y), theta in zip(rows, own):
        fit, *_ = np.linalg.lstsq(x, y, rcond=None)
        assert abs(fit - theta).max() < 4.5 / np.sqrt(4000)
    spread = sparse_simulation.data_set(replace(design, spread=0.3, apart=False, clients=200, rows=1), 1)[1]
    assert (spread - design.theta).std() == pytest.approx(0.3, rel=0.05)
    again = sparse_simulation.data_set(design, 7)[0]
    np.testing.assert_array_equal(rows[0][0], again[0][0])
    assert not np.isin(sparse_simulation.data_set(design, 8)[0][0][0], rows[0][0]).any()


def outcome(design: Design, seed: int, pips: list[float], members: list[int]) -> Outcome:
    return Outcome(design, seed, pips, members, 0.1, 0.2, 0.3, 0.9, 500.0, 1.01, [0.9, 0.8, 0.1] if design.apart else [])


def test_a_setting_s_power_and_false_discoveries_by_hand(tmp_path: Path) -> None:
    design = Design("clients", columns=4, effects=(1.0, 0.3))
    both = [outcome(design, 0, [0.9, 0.2, 0.1, 0.0], [0]), outcome(design, 1, [0.8, 0.6, 0.7, 0.1], [0, 2])]
    found = Setting.of(both)
    assert found.power.tolist() == [1.0, 0.5]
    assert found.pip.tolist() == pytest.approx([0.85, 0.4])
    assert (found.false, found.detected) == (0.25, 0.5)
    others = [outcome(d, 0, [0.5] * d.columns, []) for d, _ in sparse_simulation.designs()]
    text = sparse_simulation._text([*both, *others])
    assert "| clients: 4 x 60, p 4 | 2 | 0.750 | 1: 1.00, 0.3: 0.50 |" in text
    assert text.count("\n| ") == 2 * (len(others) + 3)  # with a head and a rule
    sparse_simulation._figure(others, tmp_path / "power.png")
    assert (tmp_path / "power.png").stat().st_size > 10_000


def test_designs_differ_and_hold_the_figure_to_reach() -> None:
    designs = [design for design, _ in sparse_simulation.designs()]
    assert len(set(designs)) == len(designs)
    assert (Design("five effects of 0.5", columns=50, rows=150, effects=(0.5,) * 5), 200) in sparse_simulation.designs()
