"""One line from a formula and tables in memory to a result: the job that it makes, and what it refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

import fedkern as package
from fedkern import front
from fedkern.errors import JobError
from support import built_priors
from support import sigma_artifacts as artifacts

rng = np.random.default_rng(3)
N = 240
X = rng.normal(size=N)
LABELS = np.array(["a", "b", "c"])[rng.integers(0, 3, N)]
ROWS = pd.DataFrame(
    {
        "x": X,
        "site": np.array(["north", "south"])[rng.integers(0, 2, N)],
        "two": (rng.random(N) < 1 / (1 + np.exp(-X))).astype(int),
        "word": np.where(rng.random(N) < 0.5, "yes", "no"),
        "measured": 3 + 2 * X + rng.normal(size=N),
        "count": rng.poisson(np.exp(0.5 + 0.3 * X)),
        "several": LABELS,
        "grade": pd.Categorical(LABELS, ["b", "a", "c"], ordered=True),
        "time": rng.exponential(np.exp(-0.5 * X)).round(3) + 0.001,
        "event": (rng.random(N) < 0.8).astype(int),
        "hits": rng.binomial(8, 0.4, N),
        "tries": 8,
    }
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The jobs that are run."""
    jobs: list[dict[str, Any]] = []

    def run(job: dict[str, Any], /, **options: Any) -> str:
        jobs.append({**job, "options": options})
        return "a result"

    monkeypatch.setattr(front.api, "run", run)
    return jobs


@pytest.mark.parametrize(
    ("left", "family"),
    [
        ("two", "bernoulli"),
        ("word", "bernoulli"),
        ("measured", "gaussian"),
        ("count", "auto"),
        ("several", "multinomial"),
        ("grade", "ordinal"),
        ("Surv(time, event)", "cox"),
        ("cbind(hits, tries - hits)", "binomial"),
    ],
)
def test_the_family_is_the_plain_one_of_the_response(left: str, family: str, asked: list[dict[str, Any]]) -> None:
    assert package.fit(f"{left} ~ x", ROWS, by="site") == "a result"
    assert asked[0]["model"] == {"formula": f"{left} ~ x", "family": family}
    assert asked[0]["job"] == {"method": "likelihood"}


@pytest.mark.parametrize("table", [ROWS, pl.from_pandas(ROWS.drop(columns="grade")), ROWS.to_dict("list")])
def test_one_table_is_divided_by_its_column_of_clients(table: Any, asked: list[dict[str, Any]]) -> None:
    package.fit("two ~ x", table, by="site")
    clients = asked[0]["options"]["data"]
    assert list(clients) == ["north", "south"]
    for name, rows in clients.items():
        assert "site" not in (rows if isinstance(rows, dict) else rows.columns)
        np.testing.assert_array_equal(np.asarray(rows["x"]), ROWS.x[ROWS.site == name])


def test_a_table_for_each_client_is_taken_as_it_is(asked: list[dict[str, Any]]) -> None:
    data = {"north": ROWS[:100].to_dict("list"), "south": ROWS[100:]}
    package.fit("two ~ x", data, "bernoulli", priors={"prior_sd": 1.0}, output={"loo": True}, out="folder")
    assert asked[0]["options"] == {"data": data, "out": "folder"}
    assert asked[0]["model"]["prior_sd"] == 1.0
    assert asked[0]["output"] == {"loo": True}


def test_a_time_between_two_columns_is_taken() -> None:
    rows = ROWS.assign(start=pd.Timestamp("2001-01-01") + pd.to_timedelta(np.arange(N) % 97, "D"))
    rows["end"] = rows.start + pd.to_timedelta(np.ceil(100 * rows.time), "D")
    rows = rows.assign(days=np.ceil(100 * rows.time), since=rows.start)
    found, plain = (package.fit(f"Surv({time}, event) ~ x + since", rows, by="site") for time in ("end - start", "days"))
    for name in ("theta[x]", "theta[since]"):
        own, wanted = found.parameters[name], plain.parameters[name]
        assert own["mean"] == pytest.approx(wanted["mean"], abs=0.05 * wanted["sd"])
        assert own["sd"] == pytest.approx(wanted["sd"], rel=0.03)
    with pytest.raises(JobError, match=r'"start" stands among the terms, and is data\.time too; name .* a copy'):
        package.fit("Surv(end - start, event) ~ x + start", rows, by="site")
    with pytest.raises(JobError, match="'finish' of the formula is no column"):
        package.fit("Surv(finish - start, event) ~ x", rows, by="site")


def test_a_result_is_that_of_the_job(tmp_path: Any) -> None:
    fitted = package.fit("measured ~ x", ROWS, by="site")
    clients = {name: rows.drop(columns="site") for name, rows in ROWS.groupby("site")}
    job = {"job": {"method": "likelihood"}, "model": {"formula": "measured ~ x", "family": "gaussian"}}
    assert fitted.parameters == package.run(job, data=clients).parameters


def test_a_column_that_the_formula_does_not_name_may_hold_anything(asked: list[dict[str, Any]]) -> None:
    package.fit("two ~ x", ROWS.assign(lists=[[1]] * N), by="site")
    assert asked[0]["model"]["family"] == "bernoulli"


PRIVATE = {"epsilon": 4.0, "delta": 1e-4}


def test_privacy_takes_pvi_with_public_numbers(asked: list[dict[str, Any]]) -> None:
    package.fit("two ~ x", ROWS, "bernoulli", by="site", privacy=PRIVATE, columns={"x": {"center": 0, "scale": 1}})
    assert asked[0]["job"] == {"method": "pvi", "rounds": "budget"}
    assert asked[0]["privacy"] == {**front.STARTS, **PRIVATE}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"data": ROWS}, ["by ="]),
        ({"data": ROWS, "by": "city"}, ["'city'"]),
        ({"data": {"a": ROWS, "b": ROWS}, "by": "site"}, ["by = 'site'"]),
        ({"data": ROWS, "by": "site", "formula": "gone ~ x"}, ["'gone'"]),
        ({"data": ROWS, "by": "site", "formula": "two ~ gone + x + other"}, ["'gone', 'other' of the formula", "there are x, "]),
        ({"data": ROWS, "by": "site", "formula": "two ~ x + (1 | ward)", "family": "bernoulli"}, ["'ward'"]),
        ({"data": {}, "by": "site"}, ["data"]),
        ({"data": ROWS[:0], "by": "site"}, ["no rows"]),
        ({"data": {"a": ROWS.x.to_numpy(), "b": ROWS.two.to_numpy()}}, ["one table", "{client: rows}"]),
        ({"data": {"a": ROWS[["x"]].to_numpy(), "b": ROWS[["x"]].to_numpy()}}, ["'two', 'x'", "there are x1"]),
        ({"data": ROWS, "by": "site", "output": 3}, ["output"]),
        ({"data": ROWS, "by": "site", "privacy": PRIVATE}, ["poisson"]),
        ({"data": ROWS, "by": "site", "family": "bernoulli", "privacy": {"epsilon": 1.0}}, ["delta", '"x"', "center"]),
        (
            {"data": ROWS, "by": "site", "family": "bernoulli", "privacy": PRIVATE, "formula": "two ~ x + (1 | word)"},
            ["likelihood"],
        ),
    ],
)
def test_what_is_missing_is_named(arguments: dict[str, Any], named: list[str], asked: list[dict[str, Any]]) -> None:
    with pytest.raises(JobError) as fault:
        package.fit(**{"formula": "two ~ x", **arguments})
    assert all(name in str(fault.value) for name in named)
    assert not asked


def test_a_mapping_of_empty_frames_is_refused_by_client() -> None:
    with pytest.raises(JobError, match=r"client 'a'.*no rows"):
        package.fit("two ~ x", {"a": ROWS[:0], "b": ROWS[:0]})


def test_one_site_is_one_client() -> None:
    assert list(package.fit("measured ~ x", ROWS.assign(site="a"), by="site").summary["clients"]) == ["a"]


def test_two_families_that_fit_are_decided_by_evidence_and_said() -> None:
    assert "nats of evidence" in str(package.fit("count ~ x", ROWS, by="site")).splitlines()[0]


def _lacking(values: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"x": range(len(values)), "two": [k % 2 for k in range(len(values))], "site": values})


@pytest.mark.parametrize(
    "table",
    [
        _lacking(["a", None, "b", "a", np.nan]),
        _lacking([1, pd.NA, 2, 1, pd.NA]).convert_dtypes(),
        _lacking([1.0, np.nan, 2.0, 1.0, np.nan]),
        _lacking([1.0, np.nan, 2.0, 1.0, np.nan]).to_dict("list"),
        _lacking(["a", "", "b", "a", " "]),
        pl.DataFrame({"x": range(5), "two": [0, 1, 0, 1, 0], "site": ["a", None, "b", "a", None]}),
        {"x": np.arange(5.0), "two": [0, 1, 0, 1, 0], "site": ["a", None, "b", "a", None]},
    ],
)
def test_rows_of_no_client_are_named(table: Any, asked: list[dict[str, Any]]) -> None:
    """They were a client called None or nan, of no rows."""
    with pytest.raises(JobError, match=r"'site'.*row 2, 5"):
        package.fit("two ~ x", table, by="site")
    assert not asked


# What comes after: the job file, files on the command line, and maps

MIXED = ROWS.assign(sex=np.where(X + rng.normal(size=N) > 0, "m", "f"))


def test_a_job_file_of_a_result_is_checked_and_gives_the_same_result(tmp_path: Path, fedkern: Any) -> None:
    formula = "word ~ x * sex"
    result = package.fit(formula, MIXED, by="site", priors={"prior_sd": 1.0}, output={"loo": True})
    path = result.to_job(tmp_path / "job.toml")
    assert tomllib.loads(path.read_text()) == {
        "job": {"method": "likelihood"},
        "data": {"clients": ["FILES"]},
        "model": {"formula": formula, "family": "bernoulli", "prior_sd": 1.0},
        "output": {"loo": True},
        "disclosure": {"level": "standard"},
    }
    with pytest.raises(JobError):
        result.to_job(path)
    for name, rows in MIXED.groupby("site"):
        rows.drop(columns="site").to_csv(tmp_path / f"{name}.csv", index=False)
    path.write_text(path.read_text().replace("FILES", "*.csv"))
    assert fedkern("check", path).code == 0
    assert fedkern("run", path, "--quiet", "--out", tmp_path / "run").code == 0
    again = package.load(tmp_path / "run")
    assert again.digest == result.digest
    with pytest.raises(JobError):  # which knows no longer what was given
        again.to_job(tmp_path / "other.toml")


def test_levels_that_rows_have_told_and_arrays_stand_in_the_job_file(tmp_path: Path) -> None:
    ordered = package.fit("grade ~ x", ROWS, by="site").to_job(tmp_path / "ordered.toml")
    assert tomllib.loads(ordered.read_text())["data"] == {"clients": ["FILES"], "levels": ["b", "a", "c"]}
    arrays = {"a": (X[:100, None], ROWS.measured[:100].to_numpy())}
    job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
    written = package.run(job, data=arrays, test=arrays["a"]).to_job(tmp_path / "arrays.toml")
    assert tomllib.loads(written.read_text())["data"] == {"clients": ["FILES"], "response": "y"}


def test_a_private_job_file_has_no_level_of_disclosure(tmp_path: Path) -> None:
    columns = {"x": {"center": 0, "scale": 1}}
    result = package.fit("two ~ x", ROWS, "bernoulli", by="site", privacy=PRIVATE, columns=columns)
    tables = tomllib.loads(result.to_job(tmp_path / "job.toml").read_text())
    assert "disclosure" not in tables
    assert tables["privacy"]["epsilon"] == PRIVATE["epsilon"]
    assert str(result).startswith("pvi: bernoulli (logit): two ~ x")


def test_files_are_clients_and_the_command_is_the_function(tmp_path: Path, fedkern: Any) -> None:
    files = [tmp_path / f"{name}.csv" for name in ("north", "south")]
    for file in files:
        ROWS[ROWS.site == file.stem].to_csv(file, index=False)
    result = package.fit("word ~ x", files)
    told = fedkern("fit", "word ~ x", *files, "--job", tmp_path / "job.toml")
    assert (told.code, told.out) == (0, f"{result}\n{tmp_path / 'job.toml'}\n")
    assert tomllib.loads((tmp_path / "job.toml").read_text())["data"] == {"clients": ["FILES"]}
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "north.csv").write_bytes(files[0].read_bytes())
    with pytest.raises(JobError):
        package.fit("word ~ x", [files[0], tmp_path / "more" / "north.csv"])


def test_a_map_takes_sigma_with_columns(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    rows = pd.DataFrame({"county": ["a", "b"], "deaths": [3, 0], "income": [1.0, 2.0], "expected": [2.0, 1.5], "other": [1, 2]})
    package.fit("deaths ~ income + offset(log(expected))", {"s": rows}, map={"prior": "prior", "area": "county"})
    assert asked[0]["job"] == {"method": "sigma"}
    assert asked[0]["data"] == {"area": "county", "response": "deaths", "exposure": "expected", "ignore": ["other"]}
    assert asked[0]["model"] == {"family": "poisson", "prior": "prior", "intercept": True}
    for formula in ("deaths ~ log(income)", "deaths ~ income * other", "deaths ~ income + (1 | other)"):
        with pytest.raises(JobError):
            package.fit(formula, {"s": rows}, map={"prior": "prior", "area": "county"})


def test_a_map_is_fitted(tmp_path: Path) -> None:
    built_priors.written(tmp_path)
    artifacts.counts(tmp_path / "rows")
    files = sorted((tmp_path / "rows").glob("*.csv"))
    where = {"prior": str(tmp_path / "prior"), "area": "district"}
    result = package.fit("cases ~ poverty + offset(log(expected))", files, map=where)
    assert str(result).startswith("sigma: poisson (log): cases ~ poverty")


def test_headers_and_the_family_are_read_in_the_dialect_of_the_files(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    (tmp_path / "a.csv").write_text("x;y\n0,5;0\n1,5;2\n2,5;9\n")
    written = {"delimiter": ";", "decimal": ","}
    front.fit("y ~ x", [tmp_path / "a.csv"], dialect=written)
    assert (asked[-1]["model"]["family"], asked[-1]["data"]["dialect"]) == ("auto", written)
    with pytest.raises(JobError, match="'z' of the formula is no column of any client; there are x, y"):
        front.fit("y ~ z", [tmp_path / "a.csv"], dialect=written)
    rows = {"x": [0.5, 1.5, 2.5, 3.5], "y": [0, 2, 4, -9]}
    front.fit("y ~ x", {"a": rows}, dialect={"missing": ["-9"]})
    assert asked[-1]["model"]["family"] == "auto", "a word for a missing cell is no measurement"


@pytest.mark.parametrize("code", [-9, 9, 999])
def test_a_code_for_a_missing_value_beside_a_binary_response_chooses_no_family(code: int) -> None:
    """It was gaussian with -9, and Poisson with 9, both "converged" and without a note."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    z = (rng.random(300) < 1 / (1 + np.exp(-x))).astype(int)
    z[:3] = code
    rows = pd.DataFrame({"x": x, "z": z, "site": np.arange(300) % 3})
    with pytest.raises(JobError, match=f"'z' has two values beside {code}: .* give dialect = {{'missing': \\['{code}'\\]}}"):
        package.fit("z ~ x", rows, by="site")
    result = package.fit("z ~ x", rows, by="site", dialect={"missing": [str(code)]})
    assert result.job["model"]["family"] == "bernoulli"
    wanted = package.fit("z ~ x", rows[3:], by="site")
    means = [found.summary["parameters"]["theta[x]"]["mean"] for found in (result, wanted)]
    assert means[0] == pytest.approx(means[1], abs=0.01)


def test_a_response_of_numbers_with_marks_is_no_category() -> None:
    """Its 90 labels were to be joined."""
    rows = pd.DataFrame({"x": np.arange(90.0) % 7, "y": [f"{2000 + 7 * k:,}" for k in range(90)], "site": np.arange(90) % 3})
    with pytest.raises(JobError, match=r"fit: 'y' has numbers with a unit .* write plain numbers into the files"):
        package.fit("y ~ x", rows, by="site")
