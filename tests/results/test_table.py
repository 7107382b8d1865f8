"""A result as a table: contrasts, ratios, the result again from its folder, and what it says of new rows."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from scipy.special import expit

import fedkern as package
from fedkern.cli import tables
from fedkern.errors import JobError
from fedkern.results import shown
from fedkern.results.result import Result
from support import few
from support.command import PRIVATE

N, CLIENTS = 24_000, 3


def rows(seed: int = 5) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age, sex = random.normal(50, 10, N), random.choice(["F", "M"], N)
    site = random.choice(["low", "mid", "high"], N)
    eta = -0.4 + 0.05 * (age - 50) + 0.5 * (sex == "M") + np.select([site == "mid", site == "high"], [-0.3, 0.4])
    return pd.DataFrame({"age": age, "sex": sex, "site": site, "y": (random.random(N) < expit(eta)).astype(int)})


def dealt(folder: Path, frame: pd.DataFrame, clients: int = CLIENTS) -> list[str]:
    paths = [folder / f"client-{k}.csv" for k in range(clients)]
    for k, path in enumerate(paths):
        frame.iloc[k::clients].to_csv(path, index=False)
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, pd.DataFrame, Path]:
    folder = tmp_path_factory.mktemp("pvi")
    frame = rows()
    train, test = frame.iloc[:-400], frame.iloc[-400:]
    test.to_csv(folder / "test.csv", index=False)
    job = {
        "job": {"method": "pvi", "rounds": 6},
        "data": {"clients": dealt(folder, train), "response": "y", "test": str(folder / "test.csv")},
        "model": {"covariance": "full", "prior_sd": 100.0},
        "algorithm": {"local_steps": 6},
        "output": {"draws": 200},
    }
    return package.run(job, out=folder / "out"), train, folder


def maximum_likelihood(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (intercept, age, M, mid, low; bases F and high) and their covariance, by Newton's method."""
    site = frame["site"]
    X = np.column_stack([np.ones(len(frame)), frame["age"] - 50, frame["sex"] == "M", site == "mid", site == "low"]).astype(float)
    y, theta = frame["y"].to_numpy(float), np.zeros(5)
    for _ in range(20):
        p = expit(X @ theta)
        information = X.T @ (X * (p * (1 - p))[:, None])
        theta = theta + np.linalg.solve(information, X.T @ (y - p))
    return theta, np.linalg.inv(information)


def named(result: Result, parameter: str, **asked: Any) -> dict[str, Any]:
    return next(row for row in result.rows(**asked) if row["parameter"] == parameter)


def test_contrasts_are_those_of_pooled_maximum_likelihood(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, train, _ = federated
    theta, covariance = maximum_likelihood(train)
    wanted = {"sex[M vs F]": 2, "site[mid vs high]": 3, "site[low vs high]": 4}
    for name, j in wanted.items():
        row, sd = named(result, name), np.sqrt(covariance[j, j])
        assert row["mean"] == pytest.approx(theta[j], abs=1e-3), name
        assert row["sd"] == pytest.approx(sd, abs=1e-3), name
        assert [row["q025"], row["q975"]] == pytest.approx([theta[j] - 1.96 * sd, theta[j] + 1.96 * sd], abs=3e-3)
    other = named(result, "site[mid vs low]", reference={"site": "low", "sex": "M"})
    assert other["mean"] == pytest.approx(theta[3] - theta[4], abs=1e-3)
    sd = np.sqrt(covariance[3, 3] + covariance[4, 4] - 2 * covariance[3, 4])
    assert other["sd"] == pytest.approx(sd, abs=1e-3)
    at_zero = theta[0] - 50 * theta[1]
    assert named(result, "intercept")["mean"] == pytest.approx(at_zero, abs=2e-3), "of women at high, as the bases are"
    assert named(result, "intercept")["sd"] < 0.1, "which rows tell, and not the prior"
    assert named(result, "sex[F vs M]", reference={"sex": "M"})["mean"] == -named(result, "sex[M vs F]")["mean"]


def test_the_table_has_the_summary_s_numbers_and_wider_intervals(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, _, _ = federated
    table = result.table()
    assert list(table.columns) == ["parameter", "site", "mean", "sd", "q025", "q05", "q95", "q975"]
    data = [name for name in result.parameters if "_std" not in name]
    assert data == ["intercept", "theta[age]", "theta[sex=M]", "theta[site=low]", "theta[site=mid]"]
    assert list(table["parameter"]) == [*data[:2], "sex[M vs F]", "site[low vs high]", "site[mid vs high]"]
    for name in data[:2]:
        row = named(result, name)
        assert {key: row[key] for key in ("mean", "sd", "q05", "q95")} == result.parameters[name]
        assert row["q025"] == pytest.approx(row["mean"] - 1.959964 * row["sd"])
        assert row["q975"] == pytest.approx(row["mean"] + 1.959964 * row["sd"])


def test_exp_gives_odds_ratios_of_slopes_and_contrasts_alone(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, _, _ = federated
    table = result.table(exp=True)
    assert list(table.columns) == ["parameter", "site", "odds_ratio", "q025", "q05", "q95", "q975"]
    assert list(table["parameter"]) == ["theta[age]", "sex[M vs F]", "site[low vs high]", "site[mid vs high]"]
    for name in table["parameter"]:
        plain, ratio = named(result, name), named(result, name, exp=True)
        assert ratio["odds_ratio"] == pytest.approx(np.exp(plain["mean"]))
        assert ratio["q95"] == pytest.approx(np.exp(plain["q95"]))


def test_a_level_that_is_none_is_refused(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, _, folder = federated
    with pytest.raises(JobError, match=r"reference sex=X: no such level of this result; its levels are F, M"):
        result.table(reference={"sex": "X"})
    with pytest.raises(JobError, match=r"reference age=F: .* categorical columns are sex, site"):
        result.table(reference={"age": "F"})
    data = {"clients": result.job["data"]["clients"], "response": "y"}
    job = {"job": {"method": "pvi", "rounds": 1}, "data": data | {"columns": {"sex": {"reference": "X"}}}}
    with pytest.raises(JobError, match=r"data.columns.sex.reference = 'X': none of the 2 levels"):
        package.run(job)
    job["data"]["columns"] = {"sex": {"reference": "M"}}
    assert [row["parameter"] for row in package.run(job).rows() if "sex[" in row["parameter"]] == ["sex[F vs M]"]
    assert (folder / "out").exists()


def test_a_few_lines_say_what_it_is_and_the_verdict_in_words(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, _, _ = federated
    lines = repr(result).splitlines()
    scores = {name.replace("_", "-"): value for name, value in result.metrics.items()}
    assert lines[:5] == [
        "pvi: bernoulli (logit): y ~ age + sex + site",
        '3 clients, federated, method = "likelihood" has the exact posterior',
        "priors: coefficients N(0, 100^2) per sd, intercept N(pooled level, 5^2)",
        f"test rows: {', '.join(f'{name} {value:.4f}' for name, value in scores.items())}",
        "settled",
    ]
    assert lines[5].split("   ")[-1] == "odds ratio (2.5 %, 97.5 %)"
    named = [line.split("  ")[0] for line in lines[6:11]]
    assert named == ["intercept", "theta[age]", "sex[M vs F]", "site[low vs high]", "site[mid vs high]"]
    beside = [*lines[:5], *lines[11:]]
    assert sum(map(len, beside)) <= 400
    page = result._repr_html_()
    assert page.startswith("<p><b>settled</b><br>pvi: bernoulli")
    assert "sex[M vs F]" in page


def test_a_ratio_has_the_digits_that_its_interval_needs() -> None:
    rows = [{"parameter": "theta[income]", "site": "", "mean": 3e-5, "sd": 2e-6, "q025": 2.6e-5, "q975": 3.4e-5}]
    for ratio, wanted in (
        ((1.00003, 1.000026, 1.000034), "1.0000300 (1.0000260, 1.0000340)"),
        ((0.001, 0.00099, 0.00101), "1.0000e-03 (9.9000e-04, 1.0100e-03)"),
        ((2.5, 1.5, 4.0), "2.500 (1.500, 4.000)"),
    ):
        line = shown.table_lines(rows, {("theta[income]", ""): ratio}, "odds ratio")[1]
        assert line.endswith(f"   {wanted}"), line


def test_what_is_loaded_is_what_was_run(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, _, folder = federated
    loaded = package.load(folder / "out")
    assert loaded.summary == result.summary
    assert repr(loaded) == repr(result)
    assert loaded.rows() == result.rows()
    assert (loaded.seed, loaded.chains, loaded.n_draws, loaded.job) == (result.seed, result.chains, result.n_draws, result.job)
    one, two = loaded.to_arviz(), result.to_arviz()
    for group in ("posterior", "sample_stats", "constant_data"):
        assert set(one[group].data_vars) == set(two[group].data_vars)
        for name in two[group].data_vars:
            np.testing.assert_array_equal(one[group][name].values, two[group][name].values, err_msg=name)
        assert one[group].attrs == two[group].attrs
    np.testing.assert_array_equal(*(one.prediction(folder / "test.csv").mean for one in (result, loaded)))


def test_groups_say_how_and_when_they_were_made(
    federated: tuple[Result, pd.DataFrame, Path], sparse: tuple[Result, Path], fedkern: Any, job: Any
) -> None:
    about = federated[0].to_arviz()["posterior"].attrs
    assert about["inference"] == "variational"
    assert about["draws"].startswith("independent")
    assert datetime.now(UTC) - timedelta(hours=1) < datetime.fromisoformat(about["created_at"]) < datetime.now(UTC)
    assert 0 < about["sampling_time"] < 600
    chains = sparse[0].to_arviz()["posterior"].attrs
    assert chains["inference"] == "mcmc"
    assert "draws" not in chains
    assert package.load(sparse[1] / "out").posterior.sampled
    assert "rhat" not in federated[0].table().columns
    assert "rhat" in sparse[0].table().columns
    assert fedkern("run", job(PRIVATE), "--out", "private", "--quiet").code == 0
    private = package.load("private").to_arviz()["posterior"].attrs
    assert "sampling_time" not in private, "how long clients compute is not covered by epsilon"
    assert "created_at" in private


def test_a_folder_without_a_finished_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"holds no finished run of fedkern \(no job.json\)"):
        package.load(tmp_path)
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(JobError, match=r"holds no finished run of fedkern \(no summary.json\)"):
        package.load(tmp_path)


def test_without_pandas_the_table_is_rows(federated: tuple[Result, pd.DataFrame, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    result, _, _ = federated
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert result.table() == result.rows()
    assert "settled" in repr(result).splitlines()


def test_predictions_score_as_the_server_s_test_rows(federated: tuple[Result, pd.DataFrame, Path]) -> None:
    result, _, folder = federated
    frame = pd.read_csv(folder / "test.csv")
    forms = [folder / "test.csv", frame, polars.from_dict({name: frame[name].tolist() for name in frame})]
    for form in forms:
        assert result.scores(form) == pytest.approx(result.metrics, rel=1e-12, abs=1e-12)
        p = result.predict(form)["mean"].to_numpy()
        y = frame["y"].to_numpy()
        assert ((p > 0.5) == (y > 0.5)).mean() == result.metrics["accuracy"]
        log_likelihood = np.mean(np.log(np.where(y == 1, p, 1 - p) + 1e-10))
        assert log_likelihood == pytest.approx(result.metrics["log_likelihood"], abs=1e-12)
    found = result.predict(frame.drop(columns="y"))
    np.testing.assert_array_equal(found["mean"], result.predict(frame)["mean"])
    some = frame.assign(y=frame["y"].where(np.arange(len(frame)) % 3 > 0))  # an export of patients to be predicted
    np.testing.assert_array_equal(result.predict(some)["mean"], found["mean"])
    assert result.prediction(some).scored == some["y"].notna().sum()
    assert result.scores(some) == pytest.approx(result.scores(frame[some["y"].notna()]), rel=1e-12)
    some.assign(y="").to_csv(folder / "none.csv", index=False)
    np.testing.assert_allclose(result.predict(folder / "none.csv")["mean"], found["mean"], rtol=1e-12)
    with pytest.raises(JobError, match="or it is empty in all of them"):
        result.scores(folder / "none.csv")
    assert (found["q025"] < found["q05"]).all()
    assert (found["q95"] < found["q975"]).all()
    with pytest.raises(JobError, match="the rows have no column 'y'"):
        result.scores(frame.drop(columns="y"))
    with pytest.raises(JobError, match="'sex' is missing"):
        result.predict(frame.drop(columns="sex"))
    with pytest.raises(JobError, match="give a data frame"):
        result.predict(7)
    with pytest.raises(JobError, match="no rows; give it rows"):
        result.predict(frame.drop(columns="y")[:0])
    numeric = next(name for name in frame.columns if name != "y" and frame[name].dtype.kind == "f")
    third = np.arange(len(frame)) == 2
    with pytest.warns(UserWarning, match="1 of 400 rows lack a cell that the model needs, and have no prediction"):
        lacking = result.predict(frame.drop(columns="y").assign(**{numeric: frame[numeric].where(~third)}))
    np.testing.assert_array_equal(lacking["mean"], found["mean"].where(~third))
    with pytest.raises(JobError, match=rf"row 3, column '{numeric}': 'inf' is .*remove the row") as refused:
        result.predict(frame.drop(columns="y").assign(**{numeric: frame[numeric].mask(third, np.inf)}))
    assert "model.missing" not in str(refused.value)
    assert "check --local" not in str(refused.value)


def test_the_command_line_prints_both_tables(federated: tuple[Result, pd.DataFrame, Path], fedkern: Any) -> None:
    result, _, folder = federated
    ended = fedkern("report", folder / "out", "--table", "csv")
    assert (ended.code, ended.err) == (0, "")
    printed = list(csv.DictReader(io.StringIO(ended.out)))
    for row, wanted in zip(printed, result.rows(), strict=True):
        assert (row["parameter"], row["site"]) == (wanted["parameter"], wanted["site"])
        assert [float(row[key]) for key in ("mean", "q025")] == [wanted[key] for key in ("mean", "q025")]
    ended = fedkern("report", folder / "out", "--table", "text", "--exp", "--level", "sex=M")
    assert ended.out.splitlines()[0].split() == ["parameter", "site", "odds_ratio", "q025", "q05", "q95", "q975"]
    assert "sex[F vs M]" in ended.out
    assert fedkern("report", folder / "out", "--table", "csv", "--level", "sex").code == 2
    ended = fedkern("report", folder / "out", "--exp")
    assert (ended.code, "add --table text" in ended.err) == (2, True)
    ended = fedkern("predict", folder / "out", folder / "test.csv", "--out", "p.csv")
    assert ended.code == 0
    assert f"accuracy {result.metrics['accuracy']:.4f}" in ended.out
    written = pd.DataFrame(list(csv.DictReader(io.StringIO(Path("p.csv").read_text())))).astype(float)
    pd.testing.assert_frame_equal(written, result.predict(folder / "test.csv"), rtol=0, atol=0)
    Path("link.csv").symlink_to("elsewhere.csv")
    assert fedkern("predict", folder / "out", folder / "test.csv", "--out", "link.csv").code == 0
    assert Path("link.csv").is_symlink()
    assert Path("elsewhere.csv").read_text() == Path("p.csv").read_text()
    ours, theirs = os.pipe()  # what is no file is written to, and not replaced
    with open(ours) as pipe:
        assert fedkern("predict", folder / "out", folder / "client-0.csv", "--out", "/dev/null").code == 0
        with ThreadPoolExecutor(1) as reader:
            read = reader.submit(pipe.read)
            assert fedkern("predict", folder / "out", folder / "test.csv", "--out", f"/dev/fd/{theirs}").code == 0
            os.close(theirs)
        assert read.result() == Path("p.csv").read_text()
    assert Path("/dev/null").is_char_device()
    ended = fedkern("predict", folder / "out", folder / "test.csv")
    assert ended.out.splitlines()[0] == "mean,q025,q05,q95,q975,linear_mean,linear_sd"
    assert "accuracy" in ended.err
    assert fedkern("predict", folder / "out", "nothing.csv").code == 2


BEGINS = ("=1+1", "+x", "-x", "@x")


@pytest.fixture(scope="module")
def named_as_formulas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose levels are contrasted under a column's name that is a formula, and its test rows."""
    folder = tmp_path_factory.mktemp("formulas")
    random = np.random.default_rng(1)
    frame = pd.DataFrame({name: random.choice(["a", "b\x1b[2J"], 60) for name in BEGINS} | {"y": random.integers(0, 2, 60)})
    frame.to_csv(folder / "test.csv", index=False)
    job = {
        "job": {"method": "pvi", "rounds": 2},
        "data": {"clients": dealt(folder, frame, 2), "response": "y", **few.ANY},
        "model": {"covariance": "full"},
        "output": {"draws": 20},
    }
    package.run(job, out=folder / "out")
    return folder


def parameters_of(text: str) -> list[str]:
    return [row["parameter"] for row in csv.DictReader(io.StringIO(text, newline=""))]


def test_no_text_of_a_csv_is_a_formula_unless_it_is_asked_for(named_as_formulas: Path, fedkern: Any) -> None:
    out = named_as_formulas / "out"
    wanted = [str(row["parameter"]) for row in package.load(out).rows()]
    assert {name[0] for name in wanted} >= {name[0] for name in BEGINS}
    printed = fedkern("report", out, "--table", "csv").out
    assert parameters_of(printed) == [f"'{name}" if name[0] in "=+-@" else name for name in wanted]
    assert parameters_of(fedkern("report", out, "--table", "csv", "--raw").out) == wanted
    numbers = [value for row in csv.DictReader(io.StringIO(printed)) for key, value in row.items() if key in ("mean", "q025")]
    assert all(map(float, numbers))
    assert any(value.startswith("-") for value in numbers)


def test_a_terminal_is_shown_control_characters_as_escapes(named_as_formulas: Path) -> None:
    command = [sys.executable, "-P", "-m", "fedkern", "report", str(named_as_formulas / "out"), "--table", "csv"]
    ours, theirs = os.openpty()
    try:
        subprocess.run(command, stdout=theirs, check=True, timeout=120)
    finally:
        os.close(theirs)
    shown = b""
    with suppress(OSError):  # the terminal is closed
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    assert b"\\x1b[2J" in shown
    assert not set(shown) & (set(range(32)) - set(b"\r\n"))
    assert shown.replace(b"\r\n", b"").count(b"\r") == 0
    piped = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120, text=True).stdout
    assert "\x1b" in piped


def test_a_number_of_a_text_is_no_formula() -> None:
    texts = ["-5", "+1.5e-3", "-5-5", "-.5", "+", "a=b", "\t=1", "\r=1", "\n=1"]
    text = tables._csv(["=id", "x"], [[text, -0.5] for text in texts], raw=False)
    read = [*csv.reader(io.StringIO(text, newline=""))]
    assert [row[0] for row in read] == ["'=id", "-5", "+1.5e-3", "'-5-5", "-.5", "'+", "a=b", "'\t=1", "'\r=1", "'\n=1"]
    assert {row[1] for row in read[1:]} == {"-0.5"}


def test_a_linear_model_has_no_ratios_and_predicts_all_the_same(tmp_path: Path) -> None:
    frame = rows().iloc[:300].assign(y=lambda f: 0.1 * f["age"] + np.random.default_rng(0).normal(size=300))
    frame.to_csv(tmp_path / "test.csv", index=False)
    data = {"clients": dealt(tmp_path, frame), "response": "y", "test": str(tmp_path / "test.csv")}
    result = package.run({"job": {"rounds": 4}, "data": data, "model": {"family": "gaussian", "scale": 1.2}})
    assert result.scores(frame) == pytest.approx(result.metrics, rel=1e-12)
    with pytest.raises(JobError, match="coefficients of a gaussian response are differences"):
        result.table(exp=True)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("sparse")
    frame = rows().iloc[:360]
    job = {
        "job": {"method": "sparse", "rounds": 150},
        "data": {"clients": dealt(folder, frame), "response": "y"},
        "model": {"family": "bernoulli"},
        "algorithm": {"burn_in": 50, "chains": 2, "share_local": True},
    }
    return package.run(job, out=folder / "out"), folder


def test_sites_and_inclusion_probabilities_have_their_place(sparse: tuple[Result, Path]) -> None:
    result, folder = sparse
    found = result.rows()
    for site in ("client-0", "client-1", "client-2"):
        row = next(r for r in found if (r["parameter"], r["site"]) == ("theta[age]", site))
        assert row["mean"] == result.parameters[f"theta[age]@{site}"]["mean"]
        assert row["q025"] <= row["q05"] <= row["q95"] <= row["q975"]
        contrast = next(r for r in found if (r["parameter"], r["site"]) == ("sex[M vs F]", site))
        assert contrast["mean"] == pytest.approx(result.parameters[f"theta[sex=M]@{site}"]["mean"]), "F has no coefficient"
    everywhere = [r for r in found if not r["site"]]
    pips = {r["parameter"]: r["pip"] for r in everywhere if r["parameter"].startswith("theta[")}
    assert pips == {name: result.parameters[name.replace("theta", "theta_std")]["pip"] for name in pips}
    low, mid = (np.asarray(result.posterior.marginal(f"theta[site={level}]").draws) for level in ("low", "mid"))  # type: ignore
    row = next(r for r in result.rows(reference={"site": "mid"}) if r["parameter"] == "site[low vs mid]" and not r["site"])
    assert row["mean"] == pytest.approx((low - mid).mean())
    assert row["q975"] == pytest.approx(np.quantile(low - mid, 0.975))
    high = next(r for r in result.rows(reference={"site": "mid"}) if r["parameter"] == "site[high vs mid]" and not r["site"])
    assert high["mean"] == pytest.approx(-mid.mean())
    loaded = package.load(folder / "out")
    pd.testing.assert_frame_equal(loaded.table(), result.table(), rtol=0, atol=0)
    np.testing.assert_array_equal(loaded.to_arviz()["posterior"]["theta_std_at"], result.to_arviz()["posterior"]["theta_std_at"])
    assert (loaded.chains, loaded.n_draws) == (result.chains, result.n_draws)
    with pytest.raises(JobError, match="a sparse job cannot predict at the server: each site's intercept"):
        loaded.predict(folder / "client-0.csv")


def test_a_vertical_client_has_its_contrasts_in_its_own_folder(tmp_path: Path) -> None:
    random, n = np.random.default_rng(3), 400
    sex, x = random.choice(["F", "M"], n), random.normal(size=n)
    y = 0.5 * x + 0.8 * (sex == "M") + 0.3 * random.normal(size=n)
    ids = [f"r{k}" for k in range(n)]
    pd.DataFrame({"id": ids, "sex": sex}).to_csv(tmp_path / "one.csv", index=False)
    pd.DataFrame({"id": ids, "x": x}).to_csv(tmp_path / "two.csv", index=False)
    pd.DataFrame({"id": ids, "y": y}).to_csv(tmp_path / "server.csv", index=False)
    job = {
        "job": {"method": "vertical", "rounds": 1500},
        "data": {"clients": [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")], "server": str(tmp_path / "server.csv")},
        "model": {"family": "gaussian"},
    }
    job["data"] |= {"id": "id", "response": "y"}
    result = package.run(job, out=tmp_path / "out")
    own = json.loads((tmp_path / "out" / "client-one" / "posterior.json").read_text())
    row = own["contrasts"]["sex[M vs F]"]
    assert row["mean"] == pytest.approx(own["parameters"]["theta[sex=M]"]["mean"] - own["parameters"]["theta[sex=F]"]["mean"])
    assert row["mean"] == pytest.approx(0.8, abs=0.15)
    one, two = (own["parameters"][f"theta[sex={level}]"]["sd"] for level in "MF")
    assert abs(one - two) < row["sd"] <= (one + two) * (1 + 1e-12), "whatever their correlation"
    assert row["q95"] - row["mean"] == pytest.approx(1.644854 * row["sd"])
    assert "contrasts" not in json.loads((tmp_path / "out" / "client-two" / "posterior.json").read_text())
    loaded = package.load(tmp_path / "out")
    assert repr(loaded) == repr(result)
    with pytest.raises(JobError, match=r"client 'two'.*column .* is missing"):
        loaded.predict(tmp_path / "one.csv")


def test_a_spatial_result_is_loaded_and_has_rate_ratios(fedkern: Any) -> None:
    assert fedkern("simulate", "sigma", "--out", "map", "--clients", "3", "--rows", "12", "--columns", "2").code == 0
    assert fedkern("sigma", "build", "map/prior.toml", "--out", "map/prior", "--quiet").code == 0
    result = package.run("map/job.toml", out="out", job={"rounds": 150})
    loaded = package.load("out")
    pd.testing.assert_frame_equal(loaded.table(), result.table(), rtol=0, atol=0)
    name = next(name for name in result.parameters if name.startswith("theta["))
    draws = np.asarray(result.to_arviz()["posterior"][name])
    row = next(r for r in loaded.rows(exp=True) if r["parameter"] == name)
    ratio = "rate_ratio" if "rate_ratio" in row else "odds_ratio"
    assert row[ratio] == pytest.approx(np.exp(np.median(draws)))
    assert row["q025"] == pytest.approx(np.exp(np.quantile(draws, 0.025)))
    with pytest.raises(JobError, match="a spatial job cannot predict at the server"):
        loaded.predict("map/client-1.csv")


def test_new_rows_are_filled_and_marked_and_need_no_weight(tmp_path: Path) -> None:
    random = np.random.default_rng(3)

    def rows(n: int) -> pd.DataFrame:
        x = random.standard_normal(n)
        y = (random.random(n) < 1 / (1 + np.exp(-x))).astype(int)
        x[random.random(n) < 0.2] = np.nan
        return pd.DataFrame({"x": x, "y": y, "w": random.uniform(0.5, 2, n)})

    tables = {
        "job": {"method": "pvi", "rounds": 10},
        "data": {"response": "y", "weight": "w", "columns": {"x": {"center": 0.5, "scale": 1.0}}},
        "model": {"missing": "indicator", "covariance": "full"},
    }
    test = rows(100)
    result = package.run(tables, data={"a": rows(200)}, test=test, out=tmp_path / "run")
    assert result.scores(test)["log_likelihood"] == pytest.approx(result.metrics["log_likelihood"], abs=1e-12)
    again = package.load(tmp_path / "run").predict(test.drop(columns=["w", "y"]))
    p = {name: one["mean"] for name, one in result.parameters.items()}
    marked, filled = test["x"].isna().to_numpy(), test["x"].fillna(0.5).to_numpy()
    linear = p["intercept"] + p["theta[x]"] * filled + p["theta[x[missing]]"] * marked
    assert again["linear_mean"].to_numpy() == pytest.approx(linear, abs=1e-9)


def test_a_result_without_ratios_says_where_its_coefficients_are(fedkern: Any) -> None:
    assert fedkern("simulate", "vertical", "--out", "made").code == 0
    assert fedkern("run", "made/job.toml", "--set", "job.rounds=30", "--out", "out", "--quiet").code == 0
    ended = fedkern("report", "out", "--table", "text", "--exp")
    assert (ended.code, ended.out) == (2, "")
    assert "no table of ratios; its coefficients are at the clients" in ended.err
