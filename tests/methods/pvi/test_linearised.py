"""Noise-aware posteriors of logistic jobs whose columns or outcomes are not what they are made for: "not judged", and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.pvi.noise_aware import Estimate
from fedkern.cli.__main__ import main
from fedkern.data import memory
from fedkern.data.design import encode
from fedkern.errors import JobError
from fedkern.jobs import incomplete
from fedkern.methods import load
from fedkern.methods.pvi import linearised
from fedkern.methods.pvi.keys import Config
from fedkern.methods.pvi.model import Model
from fedkern.models.encoding import Column, Encoding
from fedkern.models.expfam import Gaussian
from support.refusal import refusal

Columns = dict[str, dict[str, Any]]
TERMS = {"epsilon": 4.0, "delta": 1e-4, "clip": 9.0, "noise_multiplier": 2.0, "sampling_rate": 0.2, "accountant": "rdp"}
TERMS |= {"noise_source": "keyed"}  # the same noise in each run of the tests
NORMAL = {"kind": "numeric", "center": 0.0, "scale": 1.0}


def tables(columns: Columns, **data: Any) -> dict[str, Any]:
    """A private job whose clip cuts next to no row."""
    return {
        "job": {"method": "pvi", "rounds": 12},
        "data": {"response": "y", "standardise": "public", "columns": {"x1": NORMAL, **columns}} | data,
        "privacy": TERMS,
        "algorithm": {"posterior": "noise-aware", "local_steps": 5},
    }


def rows(n: int, seed: int, column: Any, intercept: float) -> pd.DataFrame:
    """Two columns and outcomes."""
    random = np.random.default_rng(seed)
    x, z = random.standard_normal(n), column(random, n)
    slope = 0.5 if z.dtype.kind == "f" else 0.0
    chance = 1 / (1 + np.exp(-(intercept + x + slope * (z if slope else 0))))
    return pd.DataFrame({"x1": x, "x2": z, "y": (random.random(n) < chance).astype(float)})


def normal(random: np.random.Generator, n: int) -> Any:
    return random.standard_normal(n)


def ran(columns: Columns, column: Any = normal, intercept: float = 0.0, **changes: Any) -> Any:
    """The result of two clients."""
    job = tables(columns) | changes
    return fedkern.run(job, data={name: rows(1500, seed, column, intercept) for seed, name in enumerate("ab")})


def sexes(random: np.random.Generator, n: int) -> Any:
    return np.where(random.random(n) < 0.1, "f", "m")


DECLARED = {
    "categorical": ({"levels": ["f", "m"]}, sexes, "x2 (categorical)"),
    "skewed": (NORMAL | {"shape": "skewed"}, normal, 'x2 (shape = "skewed")'),
    "bounds": ({"lower": -3.0, "upper": 3.0}, normal, "x2 (by lower and upper"),
    "a rare 0/1 column": ({"center": 0.1, "scale": 0.3}, normal, "x2 (center and scale are those of a 0/1 column with 10%"),
    "a rare 0/1 column, from above": ({"center": 0.9, "scale": 0.3}, normal, "those of a 0/1 column with 10%"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_a_column_that_is_declared_as_far_from_normal_is_not_judged(what: str) -> None:
    said, column, why = DECLARED[what]
    result = ran({"x2": said}, column)
    assert result.converged == "not judged"
    assert why in result.summary["verdict"]
    assert "x1" not in result.summary["verdict"]


def test_normal_columns_and_common_outcomes_are_judged_and_so_is_a_balanced_binary_column() -> None:
    assert ran({"x2": NORMAL}).converged != "not judged"
    assert ran({"x2": {"center": 0.4, "scale": 0.49}}).converged != "not judged"


def test_a_linear_job_is_judged_whatever_its_columns_are() -> None:
    result = ran({"x2": NORMAL | {"shape": "skewed"}}, model={"family": "gaussian", "scale": 0.4})
    assert result.converged in ("settled", False)
    assert "near normal" not in result.summary["verdict"]


@pytest.mark.parametrize("intercept", [-4.5, 4.5])
def test_rare_outcomes_are_not_judged_on_either_side(intercept: float) -> None:
    result = ran({"x2": NORMAL}, intercept=intercept)
    assert result.converged == "not judged"
    assert "of the outcomes may be the rarer one (wanted" in result.summary["verdict"]


def test_the_shape_of_a_column_is_read_by_noise_aware_jobs_alone() -> None:
    job = tables({"x2": NORMAL | {"shape": "skewed"}})
    del job["algorithm"]["posterior"]
    with refusal(JobError, "data.columns.x2.shape", "algorithm.posterior"):
        fedkern.run(job, data={"a": rows(200, 0, normal, 0.0)})


def known(columns: Columns, **changes: Any) -> Model:
    """What all parties know of the job, before any row is read."""
    job = tables(columns, clients=["a.csv"]) | {name: table for name, table in changes.items() if name != "data"}
    job["data"] |= changes.get("data", {})
    config, _ = load(job)
    assert isinstance(config, Config)
    names = [*config.data.columns, *incomplete.marks(config)]
    return Model(config, ("a",), Encoding(tuple(Column(name, "numeric", None, 0.0, 1.0) for name in names), "y"))


def test_offsets_and_marks_of_missing_cells_are_not_judged() -> None:
    assert linearised.of_columns(known({"x2": NORMAL})) == ""
    assert "effort (an offset)" in linearised.of_columns(known({"x2": NORMAL}, data={"offset": "effort"}))
    marked = linearised.of_columns(known({"x2": NORMAL}, model={"missing": "indicator"}))
    assert "x1[missing] (it marks missing cells), x2[missing] (it marks missing cells)" in marked


@pytest.mark.parametrize(
    ("intercept", "sd", "judged"), [(-1.0, 0.1, True), (-3.0, 0.1, False), (3.0, 0.1, False), (-1.0, 1.5, False)]
)
def test_the_interval_of_the_intercept_says_whether_outcomes_may_be_rare(intercept: float, sd: float, judged: bool) -> None:
    q = Gaussian.from_moments(np.array([intercept, 0, 0]), np.diag([sd**2, 1, 1]))
    estimate = Estimate(q, np.zeros(3), np.zeros(3), 2.0, np.eye(3))
    assert (linearised.of_events(known({"x2": NORMAL}), estimate) == "") is judged


# Columns that are declared as binary ----

RARE = {"center": 0.1, "scale": 0.3}
BINARY = RARE | {"shape": "binary"}


def rare(random: np.random.Generator, n: int) -> Any:
    return (random.random(n) < 0.1).astype(float)


def test_a_binary_column_is_judged_once_its_shape_is_said_as_the_verdict_tells() -> None:
    before, after = ran({"x2": RARE}, rare), ran({"x2": BINARY}, rare)
    assert 'if it is one, say shape = "binary"' in before.summary["verdict"]
    assert after.converged in ("settled", False)
    sites = [one.summary["digest"] for one in (before, after)]
    assert sites[0] != sites[1]
    for name in ("intercept", "theta[x1]", "theta[x2]"):  # two estimates from the same noisy sums
        one, other = before.parameters[name], after.parameters[name]
        assert one["mean"] != other["mean"]
        assert abs(one["mean"] - other["mean"]) < 2 * other["sd"]


def test_a_clip_that_cuts_rows_of_the_rarer_value_is_named() -> None:
    """Rows with a 1 are 3.3 long, and others 1.5."""
    result = ran({"x2": BINARY}, rare, privacy=TERMS | {"clip": 3.0})
    assert result.converged == "not judged"
    assert "binary ones their rarer value" in result.summary["verdict"]
    assert "rarer value" not in ran({"x2": NORMAL}, normal, privacy=TERMS | {"clip": 1.0}).summary["verdict"]


def test_a_binary_column_needs_its_constants() -> None:
    for said in ({"center": 0.1, "scale": 0.5}, {"center": 40.0, "scale": 10.0}, {"lower": 0.0, "upper": 1.0}):
        with refusal(JobError, "data.columns.x2.shape", "binary") as e:
            known({"x2": said | {"shape": "binary"}})
        center, scale = (float(str(e.value).split(f"{name} = ")[-1].split()[0].rstrip(";")) for name in ("center", "scale"))
        known({"x2": {"center": center, "scale": scale, "shape": "binary"}})


def test_rarer_values_than_were_tried_and_too_many_columns_are_not_judged() -> None:
    rarer = {"center": 0.03, "scale": 0.1706, "shape": "binary"}
    assert "x2 (binary with 3.0% of one value; tried from" in linearised.of_columns(known({"x2": rarer}))
    many = {f"b{k}": BINARY for k in range(9)}
    assert "9 binary ones" in linearised.of_columns(known(many))
    assert known(many).design_of_sums("a").binary is None  # type: ignore[union-attr]


def test_a_column_that_is_not_as_declared_is_told_to_its_holder_alone() -> None:
    result = ran({"x2": BINARY}, normal)
    assert not any("declared" in note for note in result.summary["notes"])
    model = known({"x2": BINARY})
    design = encode(memory.table(rows(50, 0, normal, 0.0), "a", response="y"), model.encoding, private=True, client="a")
    (note,) = linearised.not_binary(model, design.X)
    assert "column 'x2' is declared with shape = \"binary\" and has other values in" in note


def test_columns_that_the_noise_does_not_tell_apart_are_not_judged() -> None:
    """A linear job too: its eigenvalues are lifted likewise."""

    def alike(random: np.random.Generator, n: int) -> Any:
        return random.standard_normal(n)

    def told(share: float, **changes: Any) -> Any:
        frames = {name: rows(1500, seed, alike, 0.0) for seed, name in enumerate("ab")}
        for frame in frames.values():
            frame["x2"] = share * frame["x1"] + np.sqrt(1 - share**2) * frame["x2"]
        return fedkern.run(tables({"x2": NORMAL}) | {"privacy": sharp} | changes, data=frames)

    sharp = TERMS | {"epsilon": 40.0, "clip": 4.0, "noise_multiplier": 0.7}
    for changes in ({}, {"model": {"family": "gaussian", "scale": 1.0}}):
        assert told(0.0, **changes).converged != "not judged"
        found = told(0.98, **changes)
        assert found.converged == "not judged"
        assert "columns are correlated (x1 and x2 most) by more than this noise lets be known" in found.summary["verdict"]
        assert "leave one of two such columns out, or combine them, or raise epsilon" in found.summary["verdict"]


def test_a_private_linear_job_says_that_it_takes_the_size_of_its_errors_for_granted() -> None:
    """Errors of standard deviation 2 or 3 gave 90 % intervals that covered half, and "settled"."""
    data = {name: rows(1500, seed, normal, 0.0) for seed, name in enumerate("ab")}
    frames = {name: frame.assign(y=3 * np.random.default_rng(1).standard_normal(len(frame))) for name, frame in data.items()}
    job = tables({"x2": NORMAL})
    for model, says in (({"family": "gaussian"}, True), ({"family": "gaussian", "scale": 3.0}, False)):
        result = fedkern.run(job | {"model": model}, data=frames)
        assert ("errors with a standard deviation of 1 in the response's unit" in result.summary["verdict"]) == says
        assert (result.converged == "not judged") == says
        said = str(fedkern.check(job | {"model": model}, data=frames, verbose=True))
        assert ("errors with a standard deviation of 1 in the response's unit" in said) == says
        assert "cuts a usual row where its response is more than " in said


def test_every_private_logistic_result_says_that_holders_alone_see_what_the_clip_cuts() -> None:
    data = {name: rows(300, seed, normal, 0.0) for seed, name in enumerate("ab")}
    usual = tables({"x2": NORMAL})
    for job in (usual, {**usual, "algorithm": {"local_steps": 5}}):
        for said in (fedkern.run(job, data=data).summary["notes"], fedkern.check(job, data=data, verbose=True)):
            (note,) = (line for line in said if "each holder alone can see" in line)
            assert "`fedkern check JOB --local FILE`" in note
            assert "rows.json" in note
            assert "from 2% of rows" in note


def test_wrong_constants_are_told_to_the_holder() -> None:
    X = np.random.default_rng(0).normal(size=(500, 4))
    assert not list(linearised.describe_long_rows(X, 2.2))
    assert not list(linearised.describe_long_rows(X, None))
    (line,) = linearised.describe_long_rows((X + 1) / 0.7, 2.2)
    assert "of the rows are over twice as long as clip = 2.2" in line


def test_a_holder_sees_rows_that_the_clip_cuts_before_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In another unit than center and scale, which are the job file's: rows.json says it once epsilon is spent."""
    x = np.random.default_rng(1).normal(size=60)
    for name, unit in (("a", 1.0), ("b", 10.0)):
        rows = [f"{50 * unit + 10 * unit * v:.2f},{int(v > 0)}" for v in x]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "pvi"\nrounds = 20\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\n'
        '[data.columns.x]\ncenter = 50\nscale = 10\n[algorithm]\nposterior = "noise-aware"\n'
        "[privacy]\nepsilon = 4.0\ndelta = 1e-5\nclip = 2.0\nsampling_rate = 0.1\ncalibrate = true\n"
    )
    said = {}
    for name in "ab":
        assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / f"{name}.csv")]) == 0
        said[name] = capsys.readouterr().out
    assert "note: the job's constants do not fit your data: 100% of the rows are over twice as long as clip = 2" in said["b"]
    assert "twice as long" not in said["a"]
