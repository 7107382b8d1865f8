"""New rows of a finished vertical run: each party's part, and the server's sum, are what the run itself has predicted."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError
from support.refusal import refusal

NAMES = ("client-01", "client-02", "client-03")
FAST: dict[str, Any] = {"job": {"rounds": 20}}
KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "offset": {"model": {"family": "poisson"}, "data": {"offset": "o"}},
    "plug-in": {"output": {"rule": "plug-in"}, "algorithm": {"covariance": "diagonal"}},
    "gaussian": {"model": {"family": "gaussian"}},
    "multilevel": {"model": {"kind": "multilevel", "rho": 0.5}, "data": {"group": "ward"}},
    "bayes-network": {"model": {"kind": "bayes-network", "rho": 1.0}},
    "network": {"model": {"kind": "network"}},
    "soul": {"algorithm": {"inference": "soul", "auxiliary": "mean-field"}},
}


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)


def made(tmp_path: Path, kind: str) -> tuple[fedkern.Result, Path]:
    """A run with test rows, and its folder of files; clients have a text column, and one says the rows' ward."""
    path = simulate("vertical", tmp_path / "job", Settings(clients=3, rows=120, columns=2, seed=2))
    folder = path.parent
    for k, name in enumerate(NAMES):
        rows = read(folder / "clients" / f"{name}.csv")
        for row in rows:
            at = int(row["id"])
            row |= {f"sex{k}": "fm"[at % 7 < 3]} | ({"ward": f"w{at % 3}"} if kind == "multilevel" else {})
        write(folder / "clients" / f"{name}.csv", rows)
    server = read(folder / "server.csv")
    write(folder / "server.csv", [row | {"o": f"{int(row['id']) % 5 / 10}"} for row in server])
    return fedkern.run(path, out=tmp_path / "out", **(FAST | KINDS[kind])), folder


def rows_of(folder: Path) -> dict[str, Path]:
    return {name: folder / "clients" / f"{name}.csv" for name in NAMES} | {"server": folder / "server.csv"}


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_are_predicted_as_the_run_predicts_its_own(tmp_path: Path, kind: str) -> None:
    result, folder = made(tmp_path, kind)
    told = {row["id"]: row for row in read(tmp_path / "out" / "predictions.csv")}
    assert len(told) == 24
    for name, file in rows_of(folder).items():
        write(tmp_path / f"{name}.csv", [row for row in read(file) if row["id"] in told])
    found = result.prediction({name: tmp_path / f"{name}.csv" for name in rows_of(folder)})
    assert [*found.ids["id"]] == [row["id"] for row in read(tmp_path / "server.csv")]
    wanted = np.array([[float(told[one][name]) for name in ("predicted", "predictor_mean")] for one in found.ids["id"]])
    np.testing.assert_allclose(np.column_stack([found.mean, found.linear_mean]), wanted, rtol=1e-11, atol=1e-12)
    if kind != "plug-in":  # whose table has no spread
        sd = [float(told[one]["predictor_sd"]) for one in found.ids["id"]]
        np.testing.assert_allclose(found.linear_sd, sd, rtol=1e-11, atol=1e-12)
    assert found.scores == pytest.approx(result.metrics, rel=1e-11)
    if kind == "plug-in":
        with pytest.raises(JobError, match="no draws"):
            found.draws  # noqa: B018
        return
    assert found.draws.shape == found.responses.shape == (1000, 24)
    likelihood = fedkern.kernels.families.FAMILIES[str(result.job["model"]["family"])]
    error = found.draws.std(axis=0) / 1000**0.5
    assert (np.abs(found.draws.mean(axis=0) - found.mean) < 5 * error + 0.02).all()
    if likelihood.linear:  # draws of a row are its predictor's; of two rows, they are of one draw of the coefficients
        np.testing.assert_allclose(found.draws.std(axis=0), found.linear_sd, rtol=0.15)
        assert np.abs(np.corrcoef(found.draws.T) - np.eye(24)).max() > 0.5


def test_one_table_the_parties_files_and_parts_made_at_home_say_the_same(tmp_path: Path) -> None:
    result, folder = made(tmp_path, "linear")
    files, out = rows_of(folder), tmp_path / "out"
    joined: dict[str, dict[str, str]] = {}
    for file in files.values():
        for row in read(file):
            joined.setdefault(row["id"], {}).update(row)
    write(tmp_path / "all.csv", [*joined.values()])
    assert main(["predict", str(out), str(tmp_path / "all.csv"), "--out", str(tmp_path / "whole.csv")]) == 0
    party = [f"--party={name}={file}" for name, file in files.items()]
    assert main(["predict", str(out), *party, "--out", str(tmp_path / "apart.csv")]) == 0
    for name in NAMES:  # at its own place a client has its own folder alone
        own = out / f"client-{name}"
        assert main(["predict", str(own), str(files[name]), "--client", name, "--out", str(tmp_path / f"{name}.csv")]) == 0
    for name in NAMES:
        (out / f"client-{name}").rename(tmp_path / f"away-{name}")
    parts = [f"--party={name}={tmp_path / name}.csv" for name in NAMES] + [f"--party=server={files['server']}"]
    assert main(["predict", str(out), *parts, "--out", str(tmp_path / "parts.csv")]) == 0
    whole, apart, added = ({row["id"]: row for row in read(tmp_path / f"{one}.csv")} for one in ("whole", "apart", "parts"))
    assert len(whole) == 120
    assert whole == apart == added
    # by the published coefficients alone
    eta = dict.fromkeys(joined, result.parameters["intercept"]["mean"])
    for name in NAMES:
        content = json.loads((tmp_path / f"away-{name}" / "posterior.json").read_text())
        for column in content["encoding"]["columns"]:
            for one, row in joined.items():
                if "levels" in column:
                    eta[one] += content["parameters"][f"theta[{column['name']}={row[column['name']]}]"]["mean"]
                else:
                    slope = content["parameters"][f"theta[{column['name']}]"]["mean"]
                    eta[one] += slope * (float(row[column["name"]]) - column["center"])
    np.testing.assert_allclose([float(row["linear_mean"]) for row in whole.values()], [eta[one] for one in whole], rtol=1e-9)


def test_who_or_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, folder = made(tmp_path, "linear")
    files, out = rows_of(folder), tmp_path / "out"

    def refused(text: str, **changes: Path | None) -> None:
        given = {name: file for name, file in (files | changes).items() if file is not None}
        with pytest.raises(JobError, match=text):
            result.predict(given)

    whole = read(files["client-02"])
    write(tmp_path / "less.csv", whole[1:])
    write(tmp_path / "other.csv", [whole[0] | {"id": "nobody"}, *whole[1:]])
    write(tmp_path / "twice.csv", [*whole, whole[0]])
    write(tmp_path / "text.csv", [whole[0] | {"x2_1": "tall"}, *whole[1:]])
    first = whole[0]["id"]
    refused("no rows of 'client-02': the predictor is the sum of the parts", **{"client-02": None})
    refused("'elsewhere' took no part", elsewhere=files["server"])
    refused(f"client-02 has no row '{first}', which server has", **{"client-02": tmp_path / "less.csv"})
    refused(f"client-02 has no row '{first}', which server has", **{"client-02": tmp_path / "other.csv"})
    refused(f"client-02: id '{first}' stands in more than one row", **{"client-02": tmp_path / "twice.csv"})
    refused("line 2, column 'x2_1'", **{"client-02": tmp_path / "text.csv"})
    with pytest.raises(JobError, match="column 'x2_1' is missing"):
        result.predict(files["client-01"])

    part = ["predict", str(out), str(files["client-02"]), "--client", "client-02", "--out", str(tmp_path / "part.csv")]
    assert main(part) == 0
    assert "it tells its reader client-02's part of each row's predictor" in capsys.readouterr().out
    refused("is the part of 'client-02', not of 'client-01'", **{"client-01": tmp_path / "part.csv"})
    lines = read(tmp_path / "part.csv")
    write(tmp_path / "part.csv", [row | {"run": "0" * 32} for row in lines])
    refused("the part of 'client-02' was made from another run", **{"client-02": tmp_path / "part.csv"})
    (out / "client-client-02").rename(tmp_path / "away")
    refused("has no posterior of client 'client-02'; let the client make a file of its part")
    assert main([*part[:-2], "--out", ""][:-2]) == 2
    assert main(["predict", str(out)]) == 2
    with pytest.raises(JobError, match=r"run the job with out=DIR"):
        fedkern.run(folder / "job.toml", **FAST).predict(files)


def test_a_row_with_an_empty_cell_has_no_prediction_and_the_others_have_theirs(tmp_path: Path) -> None:
    """A covariate, a label or an offset; together, apart and by parts made at home."""
    result, folder = made(tmp_path, "offset")
    files = rows_of(folder)
    whole = result.prediction(files)
    for place, (name, column, empty) in enumerate(
        [("client-01", None, ""), ("client-02", "sex1", "NA"), ("server", "o", "")], start=3
    ):
        rows = read(files[name])
        rows[place][column or next(own for own in rows[0] if own not in ("id", "sex0"))] = empty
        write(tmp_path / f"{name}.csv", rows)
        files[name] = tmp_path / f"{name}.csv"
    main(
        ["predict", str(tmp_path / "out"), str(files["client-01"]), "--client", "client-01", "--out", str(tmp_path / "part.csv")]
    )
    for given in (files, {**files, "client-01": tmp_path / "part.csv"}):
        found = result.prediction(given)
        gone = np.isnan(found.mean)
        assert gone.sum() == 3
        assert (np.isnan(found.linear_mean) == gone).all()
        np.testing.assert_allclose(found.mean[~gone], whole.mean[~gone], rtol=1e-12)
        assert all(np.isfinite(value) for value in found.scores.values())


def test_two_columns_of_one_name_do_not_fit_into_one_table(tmp_path: Path) -> None:
    path = simulate("vertical", tmp_path / "job", Settings(clients=2, rows=60, columns=1, seed=2))
    second = path.parent / "clients" / "client-02.csv"
    second.write_text(second.read_text().replace("x2_1", "x1_1"))
    result = fedkern.run(path, out=tmp_path / "out", **FAST)
    with refusal(JobError, "x1_1", "01", "02"):
        result.predict(second)


def test_a_private_job_keeps_no_parts(tmp_path: Path) -> None:
    path = simulate("vertical", tmp_path / "job", Settings(clients=2, rows=60, columns=1, seed=2))
    path.write_text(path.read_text().replace("holdout = 0.2\n", "").replace('auxiliary = "amortised"\n', ""))
    columns = {f"x{k}_1": {"kind": "numeric", "center": 0.0, "scale": 1.0} for k in (1, 2)}
    terms = {"epsilon": 100.0, "delta": 1e-3, "noise_source": "keyed", "accountant": "rdp", "noise_multiplier": 5.0}
    result = fedkern.run(path, out=tmp_path / "out", job={"rounds": 2}, privacy=terms, data={"columns": columns})
    with pytest.raises(JobError, match="parts of new rows would leave the clients of a private vertical job without noise"):
        result.predict(path.parent / "server.csv")
    assert "part" not in json.loads((tmp_path / "out" / "client-client-01" / "posterior.json").read_text())


def test_frames_with_labels_and_filled_cells(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    random, ids = np.random.default_rng(1), [f"p{k}" for k in range(60)]
    a = pd.DataFrame({"id": ids, "x": random.normal(size=60), "sex": random.choice(["f", "m"], 60)})
    b = pd.DataFrame({"id": ids, "z": random.normal(size=60)}).sample(frac=1, random_state=1)
    b.iloc[:3, 1] = np.nan
    server = pd.DataFrame({"id": ids, "y": random.choice(["yes", "no"], 60)})
    data = {"id": "id", "response": "y", "positive": "yes", "columns": {"z": {"center": 0.0, "scale": 1.0}}}
    job = {"job": {"method": "vertical", "rounds": 20}, "data": data, "model": {"missing": "indicator"}}
    result = fedkern.run(job, data={"a": a, "b": b}, server=server, out=tmp_path / "out")
    apart = result.prediction({"a": a, "b": b, "server": server})
    whole = fedkern.load(tmp_path / "out").predict(a.merge(b, on="id"))
    assert [*whole["id"]] == ids == [*apart.ids["id"]]
    np.testing.assert_array_equal(whole["mean"], apart.mean)
    y = (server["y"] == "yes").to_numpy()
    assert apart.scores["brier"] == pytest.approx(((apart.mean - y) ** 2).mean())
    with pytest.raises(JobError, match="the rows have no column 'y' to compare predictions with"):
        result.scores(a.merge(b, on="id"))
