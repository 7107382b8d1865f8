"""Sparse jobs with Student errors: one wrong cell decides nothing, at the others nor at its own site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedkern
from fedkern.algorithms.exchanges.scales import student
from fedkern.errors import JobError
from fedkern.methods.sparse.own import student_density
from support import few
from support.refusal import refusal
from support.wires import checked_and_run

NAMES = ("s1", "s2", "s3", "s4")
SIGMA = 0.8


def sites(rows: int = 80) -> list[Any]:
    """Columns a, b, y = .5 a + e, e of Student's t with 4 degrees of freedom."""
    random, out = np.random.default_rng(21), []
    for k in range(4):
        X = random.normal(size=(rows + 10 * k, 2))
        out.append(np.column_stack([X, 3.0 + 0.5 * X[:, 0] + SIGMA * random.standard_t(4.0, size=len(X))]))
    return out


def job(folder: Path, parts: list[Any], **sections: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(NAMES, parts):
        lines = [",".join(repr(float(x)) for x in row) for row in part]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    tables: dict[str, Any] = {
        "job": {"method": "sparse", "rounds": 400, "seed": 3},
        "data": {"clients": [str(folder / "*.csv")], "response": "y", **few.ANY},
        "model": {},
        "algorithm": {"burn_in": 100, "chains": 2},
    }
    return {**tables, **{name: tables.get(name, {}) | keys for name, keys in sections.items()}}


def own(out: Path, client: str) -> Any:
    return json.loads((out / f"client-{client}" / "posterior.json").read_text())["parameters"]


def test_the_remedy_for_a_cell_that_is_far_away_ends_in_a_right_answer(tmp_path: Path) -> None:
    """What is noted at the server is followed: no site's answer is then moved by the cell, and its own sigma is right."""
    parts = sites()
    spoilt = [part.copy() for part in parts]
    spoilt[1][4, 2] = 10_000.0
    gaussian = fedkern.run(
        job(tmp_path / "gaussian", spoilt, job={"rounds": 20}, algorithm={"burn_in": 5}), out=tmp_path / "gaussian" / "out"
    )
    (found_one,) = (one for one in gaussian.findings if one.id == "column-in-another-unit")
    assert found_one.values["clients"] == ["s2"]
    assert 'model.errors = "student" gives cells that are far away next to no weight' in found_one
    found: dict[str, Any] = {}
    for which, data in (("clean", parts), ("spoilt", spoilt)):
        found[which] = checked_and_run(
            job(tmp_path / which, data, model={"errors": "student"}, algorithm={"share_local": True}), tmp_path / which / "out"
        )
    for name in ("average[a]", "average[b]", "theta[a]", *(f"theta[a]@{site}" for site in NAMES)):
        clean, with_cell = (found[which].parameters[name] for which in ("clean", "spoilt"))
        assert abs(with_cell["mean"] - clean["mean"]) < 0.35 * clean["sd"], name  # of two runs of a few hundred draws
        assert with_cell["sd"] == pytest.approx(clean["sd"], rel=0.3), name
    assert found["spoilt"].parameters["theta_std[a]"]["pip"] > found["clean"].parameters["theta_std[a]"]["pip"] - 0.1
    for site in NAMES:
        clean, with_cell = (own(tmp_path / which / "out", site) for which in ("clean", "spoilt"))
        assert with_cell["sigma"]["mean"] == pytest.approx(clean["sigma"]["mean"], rel=0.06), site
        assert abs(with_cell["sigma"]["mean"] - SIGMA) < 4 * with_cell["sigma"]["sd"], site
        assert abs(with_cell["intercept"]["mean"] - 3.0) < 4 * with_cell["intercept"]["sd"], site
    notes = found["spoilt"].summary["notes"]
    assert not [text for text in notes if "gives cells that are far away" in text]  # the remedy is taken
    assert "10000" not in (tmp_path / "spoilt" / "out" / "summary.json").read_text()


def test_wrong_cells_at_most_sites_decide_nothing_either(tmp_path: Path) -> None:
    """The unit of the response is Student's scale, not the variance, which is then that of the cells at the median site too."""
    parts = sites(40)
    spoilt = [part.copy() for part in parts]
    for site, cell in ((0, 1e5), (1, 10_000.0), (3, -4_000.0)):
        spoilt[site][7, 2] = cell
    short: dict[str, Any] = {"job": {"rounds": 250}, "algorithm": {"burn_in": 50, "chains": 2}, "model": {"errors": "student"}}
    clean, found = (fedkern.run(job(tmp_path / which, data, **short)) for which, data in (("clean", parts), ("spoilt", spoilt)))
    assert found.summary["encoding"]["scales"]["y"] == pytest.approx(clean.summary["encoding"]["scales"]["y"], rel=0.05)
    for name in ("average[a]", "average[b]"):
        one, other = clean.parameters[name], found.parameters[name]
        assert abs(other["mean"] - one["mean"]) < 0.6 * one["sd"], name
        assert other["sd"] == pytest.approx(one["sd"], rel=0.4), name
    assert not [text for text in found.summary["notes"] if "standard deviation" in text]


SHORT: dict[str, Any] = {"job": {"rounds": 12}, "algorithm": {"burn_in": 2, "chains": 2}}


@pytest.mark.parametrize(
    ("column", "where", "factor", "words"),
    [
        (2, (1, 2), 8.0, "column 'y' is in another unit at s2, s3 or at s1, s4, or has a wrong cell there"),
        (0, (1,), 1 / 38.7, "column 'a' is in another unit at s2, or has a wrong cell there"),
        (0, (1, 2), 18.0, "column 'a' is in another unit at s2, s3 or at s1, s4, or has a wrong cell there"),
        (0, (), 1.0, ""),
    ],
)
def test_no_result_stands_where_a_column_is_in_another_unit(
    tmp_path: Path, column: int, where: tuple[int, ...], factor: float, words: str
) -> None:
    """Chains agree about it. In one unit again nothing is said."""
    parts = sites()
    for site in where:
        parts[site][:, column] *= factor
    found = fedkern.run(job(tmp_path, parts, **SHORT, model={"errors": "student"})).summary
    assert found["converged"] is False
    assert (words in found["verdict"]) if words else ("another unit" not in found["verdict"])


@pytest.mark.parametrize("degrees", [1.0, 4.0, 30.0])
def test_the_scale_is_that_of_largest_likelihood(degrees: float) -> None:
    y = np.random.default_rng(4).standard_t(3.0, size=200) * 7.0 + 1e3
    y[3] = 1e7
    _, _, scale = stats.t.fit(y, fdf=degrees, loc=1e3, scale=7.0)
    assert student(y, degrees)[1] == pytest.approx(scale**2, rel=1e-3)
    assert student(1e3 * y, degrees) == pytest.approx(np.multiply([1e3, 1e6], student(y, degrees)), rel=1e-9)
    assert student(np.repeat([0.0, 1.0], [300, 3]), degrees)[1] == 0.0  # of which its variance is taken instead


def test_what_is_sent_is_what_a_gaussian_job_sends(tmp_path: Path) -> None:
    """Weights of rows never leave."""
    kinds = {}
    for errors in ("gaussian", "student"):
        checked_and_run(
            job(tmp_path / errors, sites(), job={"rounds": 8}, algorithm={"burn_in": 2}, model={"errors": errors}),
            tmp_path / errors / "out",
        )
        lines = (tmp_path / errors / "out" / "ledger" / "s1.jsonl").read_text().splitlines()
        kinds[errors] = [(line["kind"], line.get("bytes")) for line in map(json.loads, lines)]
    assert kinds["student"] == kinds["gaussian"]


def test_an_error_key_that_says_the_default_changes_no_number(tmp_path: Path) -> None:
    short: dict[str, Any] = {"job": {"rounds": 8}, "algorithm": {"burn_in": 2}}
    plain, said = (
        fedkern.run(job(tmp_path, sites(), **short, model=model)) for model in ({}, {"errors": "gaussian"})
    )  # fmt: skip
    assert plain.parameters == said.parameters


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"algorithm": {"statistics": "pooled"}}, r'does not exist with algorithm\.statistics = "pooled"'),
        ({"algorithm": {"moves": ["interweave"]}}, r"does not exist with algorithm\.moves"),
        ({"algorithm": {"moves": "auto"}}, r"does not exist with algorithm\.moves"),
        ({"model": {"missing": "impute"}}, r'does not exist with model\.missing = "impute"'),
        ({"model": {"family": "bernoulli"}}, r'is for kind = "regression" with family = "gaussian"'),
        ({"model": {"errors": "gaussian", "degrees": 4.0}}, r"model\.degrees is of Student errors"),
    ],
)
def test_what_needs_rows_without_weights_is_refused(tmp_path: Path, sections: dict[str, Any], words: str) -> None:
    wanted = {"model": {"errors": "student"} | sections.get("model", {})}
    with pytest.raises(JobError, match=words):
        fedkern.run(job(tmp_path, sites(), **(sections | wanted)))


def test_graphs_have_no_student_errors(tmp_path: Path) -> None:
    tables = job(tmp_path, sites(), model={"errors": "student", "kind": "mrf"})
    del tables["data"]["response"]
    with refusal(JobError, "model.errors", "student", "regression"):
        fedkern.run(tables)


@pytest.mark.parametrize("degrees", [1.0, 4.0, 30.0])
def test_the_density_is_students(degrees: float) -> None:
    random = np.random.default_rng(2)
    y, mean, scale = random.normal(size=9) * 5, random.normal(size=(7, 9)), random.uniform(0.3, 2.0, size=(7, 1))
    np.testing.assert_allclose(
        student_density(y, mean, scale, degrees), stats.t(degrees, loc=mean, scale=scale).logpdf(y), rtol=1e-12, atol=1e-13
    )


def test_leave_one_out_prefers_the_errors_that_are_there(tmp_path: Path) -> None:
    """Hundreds of rows, some of whose errors are far: the density of each row is that of the model that was fitted."""
    short: dict[str, Any] = {"output": {"loo": True}, "job": {"rounds": 120}, "algorithm": {"burn_in": 30}}
    elpd = {}
    for errors in ("gaussian", "student"):
        result = fedkern.run(job(tmp_path, sites(100), **short, model={"errors": errors}))
        elpd[errors] = result.summary["loo"]["elpd"]
    e = np.concatenate([part[:, 2] - 3.0 - 0.5 * part[:, 0] for part in sites(100)])
    true = float(stats.t(4.0, scale=SIGMA).logpdf(e).sum())
    assert elpd["student"] > elpd["gaussian"]
    assert abs(elpd["student"] - true) < 16.0, (elpd, true)  # about one a parameter below
