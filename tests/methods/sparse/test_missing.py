"""Sparse jobs whose files lack values: what is found, what is said of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.errors import JobError
from support.found import said
from support.refusal import refusal
from support.wires import checked_and_run

SLOPES = np.array([0.5, 0.7])


def sites(n: int, seed: int, m: int = 3) -> list[Any]:
    """Columns a, b, y; sites have centres of their own."""
    random, out = np.random.default_rng(seed), []
    for k in range(m):
        x = random.multivariate_normal([k, -k], [[1, 0.6], [0.6, 1]], n)
        out.append(np.column_stack([x, x @ SLOPES + k + random.standard_normal(n)]))
    return out


def lacking(parts: list[Any], how: str, seed: int = 9) -> list[Any]:
    random, out = np.random.default_rng(seed), [p.copy() for p in parts]
    for k, (p, whole) in enumerate(zip(out, parts)):
        about = whole - whole.mean(axis=0)
        chance = {
            "completely at random": np.full(len(p), 0.25),
            "by the other column": 1 / (1 + np.exp(-3 * about[:, 1])),
            "by the response": 1 / (1 + np.exp(-2 * about[:, 2])),
            "a column at one site": np.full(len(p), 1.0 * (k == 1)),
        }[how]
        p[random.random(len(p)) < chance, 0] = np.nan
    return out


HOW = ("completely at random", "by the other column", "by the response", "a column at one site")


def job(folder: Path, parts: list[Any], rounds: int = 120, **model: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    for k, p in enumerate(parts):
        lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in p]
        (folder / f"site-{k}.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    return {
        "job": {"method": "sparse", "rounds": rounds},
        "data": {"clients": [str(folder / "*.csv")], "response": "y"},
        "model": model,
        "algorithm": {"chains": 2, "burn_in": rounds // 6},
    }


def averages(result: Any) -> Any:
    """(2, columns): means and standard deviations of the site averages, on the data's scale."""
    rows = [result.parameters[f"average[{name}]"] for name in "ab"]
    return np.array([[row["mean"] for row in rows], [row["sd"] for row in rows]])


@pytest.mark.parametrize("how", ["by the other column", "by the response"])
def test_what_is_missing_at_random_leaves_no_bias(tmp_path: Path, how: str) -> None:
    """Centres and variances of what is there would give .91 and .51, or so: 10 standard deviations off."""
    found = averages(fedkern.run(job(tmp_path, lacking(sites(600, 1), how), missing="impute")))
    assert (abs(found[0] - SLOPES) < 4 * found[1]).all(), found


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", HOW)
def test_means_are_those_of_the_whole_data(tmp_path: Path, how: str) -> None:
    """Over 40 federations: one alone differs, for less is known of it.

    Of 1,200 rows a site, for the prior draws slopes to zero by more where less is known (of 150 by a quarter of a standard
    deviation), and a bias of the imputation would grow with the rows; but the slope of a column that a site lacks is the prior's
    there, however many rows it has.
    """
    off, n = [], 150 if how == "a column at one site" else 1200
    for seed in range(40):
        whole = sites(n, seed)
        full = averages(fedkern.run(job(tmp_path / f"full-{seed}", whole, 400)))
        part = averages(fedkern.run(job(tmp_path / f"part-{seed}", lacking(whole, how, 1000 + seed), 400, missing="impute")))
        off.append((part[0] - full[0]) / full[1])
    mean, error = np.mean(off, axis=0), np.std(off, axis=0) / np.sqrt(len(off))
    print(f"{how}: {mean.round(3)} +- {error.round(3)} standard deviations of the whole data's posterior")
    assert (abs(mean) < 0.1 + 2 * error).all(), mean


def yes_or_no(parts: list[Any], seed: int = 3) -> list[Any]:
    """The same columns a, b with a response of 0 and 1 whose log-odds are 2 (.5 a + .7 b), at each site about its centre."""
    random, out = np.random.default_rng(seed), []
    for p in parts:
        eta = 2 * (p[:, :2] - p[:, :2].mean(axis=0)) @ SLOPES
        out.append(np.column_stack([p[:, :2], random.random(len(p)) < 1 / (1 + np.exp(-eta))]))
    return out


def test_a_yes_or_no_response_is_no_obstacle(tmp_path: Path) -> None:
    """Gaps of a by the response and by b: rows without one would have other slopes."""
    parts = yes_or_no(sites(500, 1))
    random = np.random.default_rng(4)
    for p in parts:
        chance = 0.1 + 0.6 * (p[:, 2] == (p[:, 1] > np.median(p[:, 1])))
        p[random.random(len(p)) < chance, 0] = np.nan
    tables = job(tmp_path / "data", parts, 200, missing="impute", family="bernoulli")
    result = checked_and_run(tables, tmp_path / "out")
    found = averages(result)
    assert (abs(found[0] - 2 * SLOPES) < 3.5 * found[1]).all(), found
    assert (found[1] < 0.3).all()
    assert result.summary["imputed"]["site-0"]["cells_imputed"]["a"] == np.isnan(parts[0][:, 0]).sum()
    own = json.loads((tmp_path / "out" / "client-site-0" / "posterior.json").read_text())["parameters"]
    assert {"theta[a]", "intercept"} <= own.keys()
    assert "sigma" not in own


def test_a_yes_or_no_response_with_moves_and_a_site_without_a_column(tmp_path: Path) -> None:
    parts = yes_or_no(sites(60, 2))
    parts[1][:, 0] = np.nan
    parts[0][::3, 1] = np.nan
    tables = job(tmp_path / "data", parts, 30, missing="impute", family="bernoulli")
    tables["algorithm"]["moves"] = ["interweave"]
    assert np.isfinite(averages(checked_and_run(tables, tmp_path / "out"))).all()


def test_rows_and_cells_that_were_imputed_are_said(tmp_path: Path) -> None:
    parts = sites(40, 2)
    parts[0][:5, 0] = np.nan
    parts[0][4:7, 1] = np.nan
    parts[1][:, 1] = np.nan
    parts[2][:3, 2] = np.nan  # no response: the row is not used
    result = checked_and_run(job(tmp_path / "data", parts, 60, missing="impute"), tmp_path / "out")
    imputed = result.summary["imputed"]
    assert imputed["site-0"] == {"rows": 40, "rows_imputed": 7, "cells_imputed": {"a": 5, "b": 3}}
    assert imputed["site-1"] == {"rows": 40, "rows_imputed": 40, "cells_imputed": {"a": 0, "b": 40}}
    assert imputed["site-2"] == {"rows": 37, "rows_imputed": 0, "cells_imputed": {"a": 0, "b": 0}}
    notes = json.loads((tmp_path / "out" / "client-site-0" / "rows.json").read_text())["notes"]
    assert "7 of 40 rows lack a value; 8 cells are drawn by the model" in notes


@pytest.mark.parametrize("scale", ["none", "given"])
def test_with_known_scales_the_moments_are_sent_all_the_same(tmp_path: Path, scale: str) -> None:
    tables = job(tmp_path / "data", lacking(sites(80, 3), "by the response"), missing="impute", scale=scale)
    if scale == "given":
        tables["data"]["columns"] = {name: {"center": 0.0, "scale": 1.5} for name in "aby"}
    result = checked_and_run(tables, tmp_path / "out")
    kinds = {json.loads(line)["kind"] for line in (tmp_path / "out" / "ledger" / "site-0.jsonl").read_text().splitlines()}
    assert "CompletedMoments" in kinds
    assert "ColumnMoments" not in kinds
    found = averages(result)
    assert np.isfinite(found).all()
    assert (abs(found[0] - SLOPES) < 4 * found[1]).all(), found


def through_the_origin(n: int) -> list[Any]:
    """y = .5 a + .7 b + e, and columns whose means are far from 0."""
    random, out = np.random.default_rng(6), []
    for _ in range(2):
        x = random.multivariate_normal([8.0, -5.0], [[1, 0.6], [0.6, 1]], n)
        out.append(np.column_stack([x, x @ SLOPES + 0.5 * random.standard_normal(n)]))
    return out


def test_without_an_intercept_nothing_is_centred(tmp_path: Path) -> None:
    parts = lacking(through_the_origin(80), "completely at random")
    result = checked_and_run(job(tmp_path / "data", parts, missing="impute", intercept=False), tmp_path / "out")
    own = json.loads((tmp_path / "out" / "client-site-0" / "posterior.json").read_text())["parameters"]
    assert "intercept" not in own
    found = averages(result)
    assert (abs(found[0] - SLOPES) < 4 * found[1]).all(), found
    centred = averages(fedkern.run(job(tmp_path / "data", parts, missing="impute")))
    assert (found[1] < 0.7 * centred[1]).all()  # what the columns' means tell is used


def test_without_an_intercept_a_column_without_a_value_is_refused(tmp_path: Path) -> None:
    parts = through_the_origin(30)
    parts[1][:, 0] = np.nan
    with refusal(JobError, "site-1", "a", "model.intercept"):
        fedkern.run(job(tmp_path, parts, missing="impute", intercept=False))


def test_the_intercept_is_that_of_the_mean_by_em(tmp_path: Path) -> None:
    parts = lacking(sites(300, 4), "by the other column")
    fedkern.run(job(tmp_path / "data", parts, missing="impute"), out=tmp_path / "out")
    for k in range(3):
        own = json.loads((tmp_path / "out" / f"client-site-{k}" / "posterior.json").read_text())["parameters"]["intercept"]
        assert abs(own["mean"] - k) < 4 * own["sd"] + 0.2, own


# ---- Graphs.


def effects() -> dict[str, float]:
    """h -> j: the slope of j on h beside the other column, in rows of `sites`."""
    S = np.eye(3)
    S[0, 1] = S[1, 0] = 0.6
    S[:2, 2] = S[2, :2] = S[:2, :2] @ SLOPES
    S[2, 2] = SLOPES @ S[:2, :2] @ SLOPES + 1
    precision = np.linalg.inv(S)
    return {f"{'aby'[h]} -> {'aby'[j]}": -precision[j, h] / precision[j, j] for j in range(3) for h in range(3) if h != j}


def graph_job(folder: Path, parts: list[Any], rounds: int, **model: Any) -> dict[str, Any]:
    tables = job(folder, parts, rounds, kind="mrf", missing="impute", **model)
    del tables["data"]["response"]
    return tables


def test_a_graph_with_gaps_by_a_node_and_a_site_without_one(tmp_path: Path) -> None:
    """Gaps by the response would draw its slopes by .1 or more if rows with gaps were left out."""
    parts = lacking(sites(250, 1, m=4), "by the response")
    for k, p in enumerate(parts):
        p[np.random.default_rng(k).random(len(p)) < 0.1, 2] = np.nan
    tables = graph_job(tmp_path / "data", parts, 90, centre="sample")
    last = tmp_path / "data" / "site-3.csv"  # that site has no column a
    last.write_text("\n".join(line.partition(",")[2] for line in last.read_text().splitlines()) + "\n")
    result = checked_and_run(tables, tmp_path / "out")
    truth = effects()
    for name, value in truth.items():
        row = result.parameters[f"average[{name}]"]
        assert abs(row["mean"] - value) < 4 * row["sd"], (name, row, value)
        assert row["sd"] < 0.15
    assert result.parameters["average[b -> a]"]["sites"] == 3
    cells = {"a": 250, "b": 0, "y": int(np.isnan(parts[3][:, 2]).sum())}
    assert result.summary["imputed"]["site-3"] == {"rows": 250, "rows_imputed": 250, "cells_imputed": cells}
    assert any("drawn as Gaussian" in note for note in result.summary["notes"])
    kinds = {json.loads(line)["kind"] for line in (tmp_path / "out" / "ledger" / "site-0.jsonl").read_text().splitlines()}
    assert {"ColumnMoments", "CompletedMoments", "Locals"} <= kinds
    assert not kinds & {"SecondMoments", "MoveTerms", "Statistics", "Sums"}
    own = [json.loads((tmp_path / "out" / f"client-site-{k}" / "posterior.json").read_text())["parameters"] for k in (1, 3)]
    assert "intercept[y]" not in own[1]
    assert all(own[0][f"sigma[{name}]"]["mean"] < 1.2 for name in "aby")
    intercept = own[0]["intercept[y]"]
    assert abs(intercept["mean"] - 1.0) < 4 * intercept["sd"], intercept


def test_a_graph_with_gaps_and_moves_through_the_origin(tmp_path: Path) -> None:
    parts = lacking(through_the_origin(60), "completely at random")
    parts[1] = through_the_origin(60)[1]  # a site without a gap
    tables = graph_job(tmp_path / "data", parts, 40, intercept=False)
    tables["algorithm"]["moves"] = ["interweave"]
    result = checked_and_run(tables, tmp_path / "out")
    assert all(np.isfinite(row["mean"]) for name, row in result.parameters.items() if name.startswith("average["))


def test_gaps_of_structural_equations_are_refused_with_the_kinds_that_take_them(tmp_path: Path) -> None:
    tables = graph_job(tmp_path / "data", sites(30, 1), 40)
    tables["model"]["kind"] = "sem"
    with refusal(JobError, "regression", "mrf"):
        fedkern.run(tables)


def test_the_meta_analysis_leaves_out_the_slopes_of_a_site_that_lacks_a_column(tmp_path: Path) -> None:
    """The site without a gives b the effect of a too (.7 + .5 x .6 = 1): the average without it is .7."""
    tables = job(tmp_path / "data", lacking(sites(2000, 3), "a column at one site"), 12, missing="impute")
    tables["algorithm"]["burn_in"] = 4
    result = fedkern.run(tables, output={"site_fits": True})
    found = result.summary["meta"]
    assert found["sites"]["site-1"]["b"]["estimate"] == pytest.approx(1.0, abs=0.1)
    assert found["pooled"]["b"]["mean"] == pytest.approx(0.7, abs=0.06)
    assert found["pooled"]["b"]["sites"] == 2
    assert found["left_out"] == {"site-1": ["b"]}
    assert said(result, "slopes-left-out") == [{"client": "site-1", "columns": ["b"]}]


def test_the_check_of_ones_own_file_takes_the_cells_that_the_job_imputes(fedkern: Any, tmp_path: Path) -> None:
    job(tmp_path / "data", lacking(sites(80, 3), "by the response"))
    text = f'[job]\nmethod = "sparse"\n[data]\nclients = ["{tmp_path}/data/*.csv"]\nresponse = "y"\n'
    for model, code in (('[model]\nmissing = "impute"\n', 0), ("", 2)):
        (tmp_path / "job.toml").write_text(text + model)
        ended = fedkern("check", tmp_path / "job.toml", "--local", tmp_path / "data" / "site-0.csv")
        assert ended.code == code, ended.out
