"""Descriptions: numbers of all clients are those of pooled rows, at every place and with sums that are masked, and once."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.datasets import fair, heart
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import HolderError, JobError
from fedkern.results import described
from support.command import mpirun
from support.parties import write_parties
from support.refusal import refusal
from support.seven_places import over_threads

APART = {"level": "standard"}
Columns = dict[str, np.ndarray]


def dealt(columns: Columns, clients: int = 3) -> dict[str, Columns]:
    """Rows, dealt to clients in turn."""
    return {f"site{k}": {name: values[k::clients] for name, values in columns.items()} for k in range(clients)}


def affairs() -> Columns:
    """Statsmodels' 6,366 answers to a survey, some of whose cells are emptied; two columns have more than ten values."""
    data = fair.load_pandas().data
    columns = {name: data[name].to_numpy(float) for name in ("rate_marriage", "age", "yrs_married", "affairs")}
    random = np.random.default_rng(1)
    columns["score"] = columns["age"] + random.normal(size=len(columns["age"])).round(2)
    columns["score"][random.random(len(columns["age"])) < 0.05] = np.nan
    columns["belief"] = np.array([f"b{int(value)}" for value in data["religious"]])
    return columns


def one(result: Any, column: str, level: str = "", client: str = "", group: str = "") -> dict[str, Any]:
    """A row of the table."""
    rows = [
        row
        for row in result.rows()
        if (row["column"], row["level"], row["client"], row["group"]) == (column, level, client, group)
    ]
    return rows[0]


def test_in_one_process_all_is_that_of_pooled_rows() -> None:
    columns = affairs()
    result = fedkern.describe(dealt(columns), group="belief")
    for group, rows in {"": slice(None), "b1": columns["belief"] == "b1"}.items():
        values = columns["score"][rows]
        values, row = values[~np.isnan(values)], one(result, "score", group=group)
        assert (row["n"], row["n"] + row["missing"]) == (len(values), len(columns["score"][rows]))
        np.testing.assert_allclose([row["mean"], row["sd"]], [values.mean(), values.std(ddof=1)], rtol=1e-10)
        width = np.ptp(columns["score"][~np.isnan(columns["score"])]) / 1000  # of more values than are told it is an end of a bin
        np.testing.assert_allclose(
            [row[key] for key in ("q25", "median", "q75")], np.quantile(values, [0.25, 0.5, 0.75]), atol=width
        )
        few = one(result, "age", group=group)
        np.testing.assert_allclose(
            [few[key] for key in ("q25", "median", "q75")], np.quantile(columns["age"][rows], [0.25, 0.5, 0.75])
        )
        level = one(result, "age", "32", group=group)
        assert level["count"] == (columns["age"][rows] == 32).sum()
    there = ~np.isnan(columns["score"])
    (r,) = (
        row["r"]
        for row in result.summary["describe"]["correlations"]
        if (row["first"], row["second"], row["client"]) == ("age", "score", "")
    )
    assert r == pytest.approx(np.corrcoef(columns["age"][there], columns["score"][there])[0, 1], abs=1e-12)
    assert one(result, "score", client="site1")["n"] == (~np.isnan(columns["score"][1::3])).sum()


@pytest.mark.parametrize("level", ["standard", "strict"])
def test_apart_numbers_are_near_those_of_pooled_rows(level: str) -> None:
    columns = affairs()
    result = fedkern.describe(dealt(columns, 5), group="belief", disclosure={"level": level})
    values = columns["score"][~np.isnan(columns["score"])]
    row, error = one(result, "score"), values.std(ddof=1) / len(values) ** 0.5
    assert abs(row["mean"] - values.mean()) < 0.1 * error
    assert abs(row["sd"] - values.std(ddof=1)) < 0.1 * error
    bins = [one for one in result.rows() if one["column"] == "score" and one["level"] and not one["client"] and not one["group"]]
    for key, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        inside = next(one for one in bins if one["level"].removesuffix(" or missing") == row[f"{key}_in"])
        assert inside["from"] <= np.quantile(values, share) < inside["to"]
    assert sum(one["count"] for one in bins) == len(values)
    least = {"standard": 5, "strict": 10}[level]
    assert all(row["count"] >= least for row in result.rows() if row["count"])
    assert one(result, "affairs")["mean"] is not None


def test_a_column_of_two_values_has_no_mean_and_a_rare_one_no_count() -> None:
    columns = {
        "died": np.tile([0.0, 1.0], 60),
        "rare": (np.arange(120) % 60 < 1).astype(float),
        "x": np.random.default_rng(3).normal(size=120),
    }
    result = fedkern.describe(dealt(columns, 2), disclosure=APART)
    assert one(result, "died")["mean"] is None
    assert one(result, "died", "1")["count"] == 60
    assert not [row for row in result.rows() if row["column"] == "rare" and row["level"] == "1"]
    assert not [row for row in result.summary["describe"]["correlations"] if "died" in (row["first"], row["second"])]


@pytest.fixture(scope="module")
def transplants() -> Columns:
    """Statsmodels' heart transplants, ten times, moved by fractions of a day."""
    data = heart.load_pandas().data
    days = np.concatenate([data["survival"].to_numpy(float) + k / 10 for k in range(10)])
    old = np.where(np.tile(data["age"].to_numpy(float), 10) > 48, "old", "young")
    return {"days": days, "dead": np.tile(data["censors"].to_numpy(float), 10), "age": old}


@pytest.mark.parametrize("late", [False, True])
def test_curves_are_those_of_pooled_rows(transplants: Columns, late: bool) -> None:
    columns = {**transplants, "since": (transplants["days"] * (np.arange(len(transplants["days"])) % 3) / 4).round(1)}
    columns["days"] = columns["days"] + 0.1  # all rows end after they enter
    result = fedkern.describe(dealt(columns), group="age", time="days", event="dead", **({"entry": "since"} if late else {}))
    rows = [row for row in result.summary["describe"]["survival"] if not row["client"] and row["group"] == "old"]
    old, entry = columns["age"] == "old", columns["since"] if late else None
    right = SurvfuncRight(columns["days"][old], columns["dead"][old], entry=None if entry is None else entry[old])
    told = dict(zip([row["time"] for row in rows], [row["survival"] for row in rows]))
    np.testing.assert_allclose([told[time] for time in right.surv_times], right.surv_prob, atol=1e-12)
    chi2, _ = survdiff(columns["days"], columns["dead"], columns["age"], entry=entry)
    assert result.summary["describe"]["log_rank"]["chi2"] == pytest.approx(chi2, rel=1e-9)
    assert one(result, "dead", "1", group="old")["count"] == columns["dead"][old].sum()
    lines = {line[0]: line[1] for line in described.table_one(result.summary["describe"])}
    n, share = columns["dead"].sum(), columns["dead"].mean()
    assert lines["dead = 1, n (%)"] == f"{n:,.0f} ({100 * share:.1f})"


def followed(since: Any, mean: float, dying: float, random: np.random.Generator) -> Columns:
    """Rows that enter at times, and are followed for exponential ones; such a share of them dies then."""
    n = len(since)
    days = (since + 0.1 + random.exponential(mean, n)).round(1)
    return {"since": since, "days": days, "dead": (random.random(n) < dying).astype(float), "x": random.normal(size=n)}


def entering(columns: Columns) -> tuple[Any, list[dict[str, Any]], Any]:
    """The description of rows that enter late at clients apart, its curve of all, and that of the pooled rows."""
    result = fedkern.describe(dealt(columns), time="days", event="dead", entry="since", disclosure=APART)
    rows = [row for row in result.summary["describe"]["survival"] if not row["client"]]
    return result, rows, SurvfuncRight(columns["days"], columns["dead"], entry=columns["since"])


def test_late_rows_apart_are_at_risk_once_they_have_entered() -> None:
    random, n = np.random.default_rng(18), 3000
    since = np.where(random.random(n) < 0.5, 0.0, random.uniform(0, 60, n)).round(1)
    columns = followed(since, 40, 0.7, random)
    days = columns["days"]
    result, rows, right = entering(columns)
    assert len(rows) > 5
    for row in rows:
        assert abs(row["survival"] - np.interp(row["time"], right.surv_times, right.surv_prob)) < 0.03
    ends = [0.0, *(row["time"] for row in rows)]
    for begin, row in zip(ends[1:], rows[1:]):
        assert row["at_risk"] == pytest.approx(((since < begin) & (days > begin)).sum(), rel=0.03)
    assert one(result, "dead", "1")["count"] == columns["dead"].sum()
    assert one(result, "dead", "1", client="site1")["count"] == columns["dead"][1::3].sum()


def test_a_curve_of_ages_is_of_those_without_an_event_until_its_first_end() -> None:
    """A factor of its first interval, in which nobody is there from the beginning, stayed in all of it: .44 for R's .57."""
    random = np.random.default_rng(4)
    _, rows, right = entering(followed(50 + random.gamma(4, 5, 1500).round(1), 12, 0.6, random))
    assert len(rows) > 3
    assert rows[0]["survival"] == 1
    at_ends = np.interp([row["time"] for row in rows], right.surv_times, right.surv_prob)
    np.testing.assert_allclose([row["survival"] for row in rows], at_ends / at_ends[0], atol=0.04)


def test_curves_apart_are_within_an_interval(transplants: Columns) -> None:
    result = fedkern.describe(dealt(transplants, 2), time="days", event="dead", disclosure=APART)
    rows = [row for row in result.summary["describe"]["survival"] if not row["client"]]
    right = SurvfuncRight(transplants["days"], transplants["dead"])
    assert len(rows) > 1
    for before, row in zip([{"time": 0.0}, *rows], rows):
        high, low = (np.interp(time, [0, *right.surv_times], [1, *right.surv_prob]) for time in (before["time"], row["time"]))
        assert low - 0.02 <= row["survival"] <= high + 0.02
        assert row["events"] == 0 or row["events"] >= 5
        assert row["censored"] == 0 or row["censored"] >= 5
    risk = [(transplants["days"] > before["time"]).sum() for before in [{"time": 0.0}, *rows[:-1]]]
    assert all(told["at_risk"] >= there for told, there in zip(rows, risk))  # censored rows are told once they are enough
    assert rows[0]["at_risk"] == risk[0]


# Everywhere ----------


def written(folder: Path, columns: Columns, head: str = "", *, clients: int = 3) -> Path:
    """A job file with files of the clients."""
    (folder / "rows").mkdir(exist_ok=True)
    for name, rows in dealt(columns, clients).items():
        with (folder / "rows" / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows)
            writer.writerows([["" if value != value else value for value in row] for row in zip(*rows.values())])
    paths = [f"rows/site{k}.csv" for k in range(clients)]
    path = folder / "job.toml"
    path.write_text(f'[job]\nmethod = "describe"\n[data]\nclients = {json.dumps(paths)}\n{head}')
    return path


MODEL = '[model]\ngroup = "age"\ntime = "days"\nevent = "dead"\n'
PRIVATE = """[data.columns]
days = {lower = 0, upper = 2000}
dead = {levels = ["0", "1"]}
age = {levels = ["old", "young"]}
"""


def test_over_mpi_and_again_it_is_the_same(tmp_path: Path, transplants: Columns) -> None:
    path = written(tmp_path, transplants, MODEL.replace('group = "age"\n', "") + '[disclosure]\nlevel = "standard"\n')
    assert main(["describe", str(path), "--out", str(tmp_path / "one"), "--quiet"]) == 0
    ended = mpirun(3, "run", path, "--out", tmp_path / "mpi", "--quiet")
    assert ended.code == 0, ended.err
    digest = fedkern.load(tmp_path / "one").digest
    (tmp_path / "one" / "summary.json").unlink()  # as if it had ended before
    assert main(["run", str(path), "--out", str(tmp_path / "one"), "--resume", "--quiet"]) == 0
    assert {fedkern.load(tmp_path / name).digest for name in ("one", "mpi")} == {digest}
    assert main(["report", str(tmp_path / "one")]) == 0
    page = (tmp_path / "one" / "report.html").read_text()
    assert "Table 1" in page
    assert "<svg" in page


@pytest.mark.parametrize("name", ["describe", "describe-secure"])
def test_over_a_relay_it_is_the_same(tmp_path: Path, name: str) -> None:
    parties = write_parties(tmp_path, name, name=name)
    digest, _ = parties.perform()
    code, said, _, out = over_threads(parties)
    assert code == 0, said
    assert fedkern.load(out).digest == digest


def test_secure_sums_have_pooled_numbers_alone(tmp_path: Path, transplants: Columns) -> None:
    path = written(tmp_path, transplants, MODEL + '[disclosure]\nlevel = "standard"\n')
    bare, masked = (fedkern.run(path, job={} if sums is None else {"sums": sums}) for sums in (None, "secure"))
    assert {row["client"] for row in masked.rows()} == {""}
    pooled = [row for row in bare.rows() if not row["client"]]
    assert [row["count"] for row in masked.rows()] == [row["count"] for row in pooled]
    assert [row["mean"] for row in masked.rows()] == pytest.approx([row["mean"] for row in pooled])


def test_noise_is_paid_for_once(tmp_path: Path, transplants: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "home"))
    path = written(tmp_path, transplants, PRIVATE + MODEL + "[privacy]\nepsilon = 4.0\n")
    lines = fedkern.check(path)
    assert any("epsilon 4" in line for line in lines)
    assert not (tmp_path / "home" / "site0" / "budget.jsonl").exists()
    first, again = (fedkern.run(path) for _ in range(2))
    assert [row["count"] for row in first.rows()] == [row["count"] for row in again.rows()]
    spent = (tmp_path / "home" / "site0" / "budget.jsonl").read_text()
    assert sum('"charge"' in line or '"steps"' in line for line in spent.splitlines()) == 1
    count = one(first, "age", "old")
    width = count["share_q95"] - count["share_q05"]  # of an interval that misses once in ten draws
    assert 0 < width
    assert abs(count["share"] - (transplants["age"] == "old").mean()) < 2 * width
    certificates = {certificate["epsilon"] for certificate in first.privacy.values()}
    assert max(certificates) <= 4
    # Another description is another table: it is charged for.
    fedkern.run(path, model={"group": None})
    assert len((tmp_path / "home" / "site0" / "budget.jsonl").read_text().splitlines()) > len(spent.splitlines())


def test_clients_under_one_name_of_data_have_noisy_counts_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy may name the files of several clients: each has noise of its own, paid for, and never another's counts."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "policy.toml").write_text(
        f'unit = "case"\n[data.wards]\npaths = ["{tmp_path / "rows"}"]\nepsilon = 40.0\ndelta = 1e-5\n'
    )
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    columns = {"age": np.where(np.arange(300) % 2, "old", "young")}  # dealt in turn: one client's are all young
    path = written(
        tmp_path,
        columns,
        PRIVATE.partition("days")[0] + 'age = {levels = ["old", "young"]}\n[privacy]\nepsilon = 8.0\n',
        clients=2,
    )
    first, again = (fedkern.run(path, out=tmp_path / name) for name in ("first", "again"))
    for result in (first, again):
        young = [one(result, "age", "young", client)["count"] for client in ("site0", "site1", "")]
        assert np.abs(np.subtract(young, [150, 0, 150])).max() < 5
    assert first.rows() == again.rows()
    assert len([*home.glob("noisy-*.json")]) == 2
    charged = [json.loads(line) for line in (home / "budget.jsonl").read_text().splitlines()]
    assert sum(line.get("steps", 0) for line in charged) == 2
    assert main(["audit", str(tmp_path / "again")]) == 0
    for certificate in first.privacy.values():
        said = " ".join(map(str, certificate.values())) + capsys.readouterr().out
        assert not [word for word in ("area", "exposure", "posterior ", "covariate") if word in said]
        assert "ends of bins" in said


POLICY = '[disclosure]\ndifferencing = "refuse"\n[data.{0}]\npaths = ["{1}"]\nopen = true\n'


def with_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives each of three sites a policy, and so an account."""
    home = tmp_path / "home"
    home.mkdir()
    texts = [POLICY.format(name, tmp_path / "rows" / f"{name}.csv") for name in ("site0", "site1", "site2")]
    first, *others = texts
    (home / "policy.toml").write_text(first + "".join(text.partition("\n")[2].partition("\n")[2] for text in others))
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_row_less_is_refused_and_other_bins_tell_nothing_finer(
    tmp_path: Path, transplants: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    columns = {"x": random.normal(50, 10, 300).round(1), "age": np.where(random.random(300) < 0.5, "old", "young")}
    path = written(tmp_path, columns)
    with_accounts(tmp_path, monkeypatch)

    def bins(**data: Any) -> dict[float | None, int]:
        result = fedkern.run(path, **data)
        return {row["from"]: row["count"] for row in result.rows() if row["column"] == "x" and row["level"] and not row["client"]}

    told = bins()
    assert len(told) > 3
    assert bins() == told
    moved = bins(data={"columns": {"x": {"lower": 41.0, "upper": 57.0}}})  # round numbers of which most are new
    assert moved.keys() < told.keys()
    assert bins() == told
    file = tmp_path / "rows" / "site0.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with refusal(HolderError, "site0"):
        fedkern.run(path)


@pytest.mark.parametrize("few", [False, True])
def test_a_table_of_two_columns_is_told_again_only_where_enough_rows_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """Of 160 rows that site0 has got since then 2 are in one cell: the table without them and with them would tell these."""
    random = np.random.default_rng(6)
    arms, sexes = (np.where(random.random(600) < 0.5, *both) for both in (("a", "b"), ("f", "m")))
    columns = {"arm": arms, "sex": sexes, "x": random.normal(size=600).round(3)}
    path = written(tmp_path, columns, '[model]\ncross = [["arm", "sex"]]\n')
    with_accounts(tmp_path, monkeypatch)

    def cells(client: str) -> dict[tuple[str, str], int]:
        rows = [row for row in fedkern.run(path).rows() if row["column"] == "arm" and row["by"] == "sex" and row["level"]]
        return {(row["level"], row["group"]): row["count"] for row in rows if row["client"] == client and row["count"]}

    first = cells("site0")
    assert len(first) == 4
    assert cells("site0") == first
    new = ["a,f"] * (78 if few else 40) + ["a,m"] * (2 if few else 40) + ["b,m", "b,f"] * 40
    with (tmp_path / "rows" / "site0.csv").open("a", newline="") as file:
        file.writelines(f"{row},{random.normal():.3f}\r\n" for row in new)
    again = cells("site0")
    assert len(again) == (0 if few else 4)
    assert len(cells("site1")) == (0 if few else 4)  # else the pooled table would be of the others alone


@pytest.mark.parametrize("described_first", [True, False])
def test_a_job_that_would_tell_joined_values_apart_is_refused_and_after_it_they_stay_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, described_first: bool
) -> None:
    """Three rows of a client have grade 3, which its description joins with 2: sums of grades would tell them."""
    random = np.random.default_rng(7)
    grade = np.repeat([0.0, 1, 2, 3], [180, 90, 21, 9])
    path = written(tmp_path, {"grade": grade, "y": random.normal(size=300).round(3), "x": random.normal(size=300).round(3)})
    with_accounts(tmp_path, monkeypatch)
    files = [str(tmp_path / "rows" / f"site{k}.csv") for k in range(3)]

    def levels() -> set[str]:
        return {row["level"] for row in fedkern.run(path).rows() if row["column"] == "grade" and row["level"]}

    def fitted() -> None:
        model = {"model": {"family": "gaussian"}, "data": {"clients": files, "response": "y"}}
        fedkern.run({"job": {"method": "likelihood"}, **model})

    if described_first:
        assert len(levels()) == 3
        with refusal(HolderError, "site0"):
            fitted()
    else:
        fitted()
        assert not levels()


def test_three_tables_of_three_columns_are_refused_apart(transplants: Columns) -> None:
    random, n = np.random.default_rng(2), len(transplants["age"])
    data = dealt({**transplants, "sex": random.choice(["f", "m"], n), "arm": random.choice(["a", "b", "c"], n)})
    with refusal(JobError, "model.group", "sex", "arm"):
        fedkern.describe(data, group="age", cross=[("sex", "arm")], ignore=["days", "dead"], disclosure=APART)
    result = fedkern.describe(data, cross=[("sex", "arm")], ignore=["days", "dead", "age"], disclosure=APART)
    counts = {
        (row["level"], row["group"]): row["count"]
        for row in result.rows()
        if row["by"] == "arm" and row["level"] and not row["client"]
    }
    assert sum(counts.values()) == len(transplants["age"])


def test_a_quartile_is_told_by_its_bin() -> None:
    """No row may have the value of an end."""
    random = np.random.default_rng(8)
    rows = {
        f"site{k}": {"x": random.normal(0, 1, 40).round(2), "score": random.choice([0.0, 1.0, 2.0, 3.0], 40)} for k in range(4)
    }
    result = fedkern.describe(rows, disclosure=APART)
    row = next(row for row in result.rows() if row["column"] == "x" and not row["level"] and not row["client"])
    bins = [row for row in result.rows() if row["column"] == "x" and row["level"] and not row["client"]]
    until = np.cumsum([own["count"] for own in bins])
    for key, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        own = bins[int(np.searchsorted(until, share * until[-1]))]
        assert row[f"{key}_in"] == own["level"].removesuffix(" or missing")
        assert row[key] is None


SUMS = pytest.mark.parametrize("sums", [None, "secure"])


@SUMS
def test_what_one_client_may_not_tell_is_not_pooled(tmp_path: Path, sums: str | None) -> None:
    """Two of three sites have too few rows with "yes" in arm b for a table, and one a number far from all others."""
    random = np.random.default_rng(9)
    columns = {"arm": np.repeat(["a", "b"], 150), "x": random.normal(size=300).round(3), "y": random.normal(size=300).round(3)}
    columns["old"] = np.tile(np.repeat(["no", "yes"], 3), 50)
    columns["old"][(columns["arm"] == "b") & (np.arange(300) % 3 > 0)] = "no"
    columns["y"][1] = 1e4
    path = written(tmp_path, columns, '[model]\ngroup = "arm"\n[disclosure]\nlevel = "standard"\n')
    result = fedkern.run(path, job={"sums": sums})
    assert not [row for row in result.rows() if row["column"] == "old" and row["by"] == "arm"]
    assert one(result, "old", "yes")["count"] == (columns["old"] == "yes").sum()
    assert one(result, "y")["mean"] is None
    assert abs(one(result, "x")["mean"] - columns["x"].mean()) < 0.01
    assert {group: one(result, "x", group=group)["mean"] is None for group in ("a", "b")} == {"a": False, "b": False}
    assert not result.summary["describe"]["correlations"]
    assert not [row for row in result.rows() if row["column"] == "y" and row["mean"] is not None]  # of whatever client or group


def test_a_client_without_a_column_hides_no_table(tmp_path: Path) -> None:
    """All clients with rows in a table tell it; and one whose rows are all in one group tells that group's."""
    random = np.random.default_rng(10)
    columns = {"arm": random.choice(["a", "b"], 300), "grade": random.choice([0.0, 1.0, 2.0], 300)}
    columns["arm"][0::3] = "a"
    columns["grade"][1::3] = np.nan
    result = fedkern.run(written(tmp_path, columns, '[model]\ngroup = "arm"\n[disclosure]\nlevel = "standard"\n'))
    for level, group in [("1", "a"), ("2", "b")]:
        count = ((columns["grade"] == float(level)) & (columns["arm"] == group)).sum()
        assert one(result, "grade", level, group=group)["count"] == count


def test_a_log_rank_test_stands_where_intervals_hold_nearly_all_events() -> None:
    random, n = np.random.default_rng(11), 3000
    arm = np.where(np.arange(n) % 2, "a", "b")
    days = random.exponential(np.where(arm == "a", 30.0, 38.0)).round(1)
    found = {}
    for until in (30.0, 1e9):
        columns = {"arm": arm, "days": np.minimum(days, until), "dead": (days < until).astype(float)}
        result = fedkern.describe(dealt(columns), group="arm", time="days", event="dead", disclosure=APART)
        assert len(result.summary["describe"]["survival"]) > 2
        found[until] = result.summary["describe"]["log_rank"]
    assert found[30.0] is None
    chi2, _ = survdiff(days, np.ones(n), arm)
    assert found[1e9]["chi2"] == pytest.approx(chi2, rel=0.15)


def test_few_missing_cells_move_no_quartile() -> None:
    """They stand in the middle bin, where the quartile may be in that bin, or beside it."""
    random = np.random.default_rng(12)
    columns = {name: random.normal(50, 10, 240).round(1) for name in ("x", "y")}
    columns["x"][:9] = np.nan
    result = fedkern.describe(dealt(columns), disclosure=APART)
    row = one(result, "x")
    assert row["missing"] is None
    for key, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        assert row[key] is None
        words = row[f"{key}_in"].split()
        ends = dict(zip(words[::2], map(float, words[1::2])))
        assert ends.get("from", -np.inf) <= np.nanquantile(columns["x"], share) < ends.get("below", np.inf)
    assert {pair["n"] for pair in result.summary["describe"]["correlations"]} == {None}


# Sums of several clients ----------


def test_of_a_client_no_sum_leaves_and_of_two_clients_none_is_told(tmp_path: Path) -> None:
    """Counts alone are a client's own; what is masked the server has of all together."""
    random = np.random.default_rng(13)
    columns = {"x": random.normal(50, 10, 300).round(2), "y": random.normal(size=300).round(3)}
    columns["g"] = random.choice([0.0, 1.0, 2.0], 300)
    for clients in (2, 3):
        (folder := tmp_path / str(clients)).mkdir()
        path = written(folder, columns, '[disclosure]\nlevel = "standard"\n', clients=clients)
        result = fedkern.run(path, out=folder / "out")
        means = {row["client"] for row in result.rows() if row["column"] == "x" and row["mean"] is not None}
        assert means == ({""} if clients == 3 else set())
        assert {row["client"] for row in result.summary["describe"]["correlations"]} == means
        assert {row["client"] for row in result.rows()} == {"", *(f"site{k}" for k in range(clients))}
        ledger = (folder / "out" / "ledger" / "site0.jsonl").read_text()
        assert '"Cells"' in ledger
        assert '"Moments"' not in ledger
        assert ('"MaskedMoments"' in ledger) == (clients == 3)
        counts_alone = fedkern.run(path, job={"sums": "none"})
        assert not [row for row in counts_alone.rows() if row["column"] == "x" and row["mean"] is not None]
        assert [row["count"] for row in counts_alone.rows()] == [row["count"] for row in result.rows()]
        # Values of few are cells: their mean follows from counts.
        assert one(result, "g", client="site0")["mean"] == pytest.approx(columns["g"][0::clients].mean())


def test_a_group_has_a_mean_where_three_clients_have_rows_in_each() -> None:
    random = np.random.default_rng(14)
    columns = {"arm": random.choice(["a", "b"], 400), "x": random.normal(50, 10, 400).round(2)}
    columns["arm"][0::4] = "a"
    result = fedkern.describe(dealt(columns, 4), group="arm", disclosure=APART)
    for group in ("a", "b"):
        own = columns["x"][columns["arm"] == group]
        assert abs(one(result, "x", group=group)["mean"] - own.mean()) < 0.1 * own.std() / len(own) ** 0.5
    columns["arm"][1::4] = "a"  # so that two clients have rows in b
    result = fedkern.describe(dealt(columns, 4), group="arm", disclosure=APART)
    assert one(result, "x")["mean"] is not None
    assert {one(result, "x", group=group)["mean"] for group in ("a", "b")} == {None}


def test_limits_of_a_column_give_each_client_a_mean_between_bounds() -> None:
    random = np.random.default_rng(15)
    columns = {"x": np.clip(random.gamma(4, 10, 600), 0, 119).round(1)}
    job = {"job": {"method": "describe"}, "data": {"columns": {"x": {"lower": 0.0, "upper": 120.0}}}, "disclosure": APART}
    result = fedkern.run(job, data=dealt(columns, 2))
    for client, rows in {"": slice(None), "site0": slice(0, None, 2)}.items():
        row, values = one(result, "x", client=client), columns["x"][rows]
        assert row["mean_q05"] < row["mean_q95"] < row["mean_q05"] + 15
        assert row["mean_q05"] <= values.mean() <= row["mean_q95"]
        assert row["sd_q05"] <= values.std() <= row["sd_q95"]
        assert abs(row["mean"] - values.mean()) < 1.5


def test_clients_under_one_name_of_data_are_described_by_their_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told of one client's file says nothing of another's."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "policy.toml").write_text(f'[data.wards]\npaths = ["{tmp_path / "rows"}"]\nopen = true\n')
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    random = np.random.default_rng(16)
    path = written(tmp_path, {"x": random.normal(50, 10, 600).round(1), "s": random.choice(["f", "m"], 600)})
    first, again = (fedkern.run(path) for _ in range(2))
    assert first.rows() == again.rows()
    assert len([row for row in again.rows() if row["column"] == "x" and row["level"] and row["client"] == "site2"]) > 3
    assert len(json.loads((home / "told.json").read_text())) == 3


def test_a_table_one_has_limits_where_counts_have_noise(tmp_path: Path) -> None:
    columns = {"age": np.where(np.arange(300) % 2, "old", "young"), "days": 6.0 * np.arange(300.0)}
    head = PRIVATE.replace('dead = {levels = ["0", "1"]}\n', "") + "[privacy]\nepsilon = 4.0\n"
    result = fedkern.run(written(tmp_path, columns, head))
    lines = {line[0]: line[1] for line in described.table_one(result.summary["describe"])}
    row, mean = one(result, "age", "old"), one(result, "days")
    assert lines["age = old, n (%)"].endswith(f" [{100 * row['share_q05']:.1f} to {100 * row['share_q95']:.1f}]")
    assert lines["days, mean (sd)"].endswith(f" [{mean['mean_q05']:.4g} to {mean['mean_q95']:.4g}]")


def test_bins_of_numbers_that_are_not_below_0_begin_there_and_joined_values_are_named() -> None:
    random = np.random.default_rng(17)
    columns = {
        "nodes": random.negative_binomial(2, 0.3, 600).astype(float),
        "stage": random.choice([1.0, 2.0, 3.0, 4.0], 600, p=[0.05, 0.25, 0.6, 0.1]),
        "rare": (np.arange(600) % 200 < 1).astype(float),
        "sex": random.choice(["f", "m"], 600),
    }
    result = fedkern.describe(dealt(columns), group="sex", disclosure=APART)
    assert all(row["from"] is None or row["from"] > 0 for row in result.rows() if row["column"] == "nodes")
    assert "1 or 2" in {row["level"] for row in result.rows() if row["column"] == "stage" and row["by"]}
    assert not [line for line in described.table_one(result.summary["describe"]) if line[0].startswith("rare =")]


def test_a_cell_with_all_rows_is_not_shown_and_all_events_are_told_where_no_curve_is() -> None:
    random = np.random.default_rng(19)
    columns = {"race": random.choice([1.0, 2.0, 3.0], 90), "arm": np.tile(["a", "b"], 45), "ht": np.zeros(90)}
    columns["ht"][:2] = 1.0
    columns |= {"days": random.exponential(9, 90).round(1), "dead": (random.random(90) < 0.5).astype(float)}
    result = fedkern.describe(dealt(columns), group="arm", time="days", event="dead", disclosure={"level": "strict"})
    assert not [row for row in result.rows() if row["share"] == 1.0]
    assert not result.summary["describe"]["survival"]
    pooled = fedkern.describe(dealt(columns), time="days", event="dead", disclosure={"level": "strict"})
    assert not pooled.summary["describe"]["survival"]
    assert one(pooled, "dead", "1")["count"] == columns["dead"].sum()


def test_a_description_says_what_an_event_is(transplants: Columns) -> None:
    result = fedkern.describe(dealt(transplants), time="days", event="dead", positive=0)
    assert result.summary["describe"]["event"] == "dead = 0"
