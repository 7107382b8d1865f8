"""`fedkern.run(job, data=..)`: rows that lie in memory give what files with the same cells give."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fedkern
from fedkern.data.simulate import federations
from fedkern.errors import JobError
from fedkern.jobs import progress
from fedkern.jobs.holding.budget import Holder
from fedkern.jobs.run import Output
from fedkern.kernels import families
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import load
from support import few
from support.outside import threads
from support.refusal import refusal

FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


class Elsewhere:
    """An array of another library: nothing but its bytes, by the protocol."""

    def __init__(self, values: Any, device: int = 1) -> None:
        self.values, self.device = np.asarray(values), device

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


ARRAYS: dict[str, Callable[[Any], Any]] = {"NumPy": lambda array: array, "dlpack": Elsewhere}
SHORT = {"pvi": {"rounds": 3}, "sparse": {"rounds": 30}, "vertical": {"rounds": 40}, "sigma": {"rounds": 12}}
KINDS = ("logistic", "poisson", "regression", "sparse", "mrf", "sem", "vertical", "sigma")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind -> a job file."""
    jobs = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        jobs[kind] = federations.simulate(kind, folder, federations.Settings(clients=3, rows=36, columns=3))
        if kind == "sigma":
            build.perform(*load(folder / "prior.toml"), Output(folder / "prior", quiet=True))
    return jobs


def short(job: Path) -> dict[str, Any]:
    """Sections that make a job short."""
    said = tomllib.loads(job.read_text())
    keyed = {"algorithm": {"random_source": "keyed"}} if said.get("model", {}).get("kind") == "sem" else {}
    return {"job": SHORT[said["job"]["method"]], **keyed}


@pytest.fixture(scope="module")
def of_files(simulated: dict[str, Path]) -> Callable[[str], Any]:
    """What a job of this kind gives from its files, once for all forms of memory."""
    return cache(lambda kind: fedkern.run(simulated[kind], **short(simulated[kind])))


def held(job: Path, of: Callable[[pd.DataFrame], Any] = lambda frame: frame) -> dict[str, Any]:
    """What the job's files hold, in memory; clients in another order than their names'."""

    def frame(path: Path) -> Any:
        return of(pd.read_csv(path, dtype={"id": str, "area": str}))

    clients = {path.stem: frame(path) for path in sorted((job.parent / "clients").glob("*.csv"), reverse=True)}
    own = {name: frame(path) for name in ("test", "server") if (path := job.parent / f"{name}.csv").exists()}
    return {"data": clients, **own}


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_frames_give_the_digest_of_their_files(
    simulated: dict[str, Path], of_files: Callable[[str], Any], kind: str, form: str
) -> None:
    """Also of test rows and of the server's own."""
    job, files = simulated[kind], of_files(kind)
    memory = fedkern.run(job, **held(job, FRAMES[form]), **short(job))
    assert memory.digest == files.digest
    assert memory.metrics == files.metrics
    assert [*memory.summary["clients"]] == [*files.summary["clients"]]


@pytest.mark.parametrize("form", ARRAYS)
@pytest.mark.parametrize("kind", ["logistic", "poisson", "regression", "sparse"])
def test_arrays_with_a_response(simulated: dict[str, Path], of_files: Callable[[str], Any], kind: str, form: str) -> None:
    job, of = simulated[kind], ARRAYS[form]

    def arrays(frame: pd.DataFrame) -> Any:
        y = frame["y"].to_numpy(float)
        return of(frame.drop(columns="y").to_numpy(float)), of(y)

    assert fedkern.run(job, **held(job, arrays), **short(job)).digest == of_files(kind).digest


@pytest.mark.parametrize("part", ["X", "y"])
def test_what_is_masked_is_missing(part: str) -> None:
    random = np.random.default_rng(1)
    X, y = random.normal(size=(30, 2)), random.normal(size=30)
    job = {"job": {"method": "sparse", "rounds": 20}, "algorithm": {"burn_in": 5}, "data": {"response": "y", **few.ANY}}
    whole = {"a": (X[:15], y[:15]), "b": (X[15:], y[15:])}
    nothing = {name: (np.ma.masked_array(X, np.zeros(X.shape, bool)), np.ma.masked_array(y)) for name, (X, y) in whole.items()}
    assert fedkern.run(job, data=nothing).digest == fedkern.run(job, data=whole).digest
    hidden = {"X": X, "y": y}[part][:15].copy()
    hidden[3] = 1e6
    masked = np.ma.masked_array(hidden, hidden == 1e6)
    with refusal(JobError, "4", "nan") as caught:
        fedkern.run(job, data=whole | {"a": (masked, y[:15]) if part == "X" else (X[:15], masked)})
    assert "1000000" not in str(caught.value)
    with pytest.raises(JobError, match="a masked array of texts"):
        fedkern.run(job, data={"a": (np.ma.masked_array(X.astype(str)), y)})


@pytest.mark.parametrize("form", ARRAYS)
@pytest.mark.parametrize("kind", ["mrf", "sem"])
def test_arrays_without_one(simulated: dict[str, Path], of_files: Callable[[str], Any], kind: str, form: str) -> None:
    job = simulated[kind]
    arrays = held(job, lambda frame: ARRAYS[form](frame.to_numpy(float)))
    assert fedkern.run(job, **arrays, **short(job)).digest == of_files(kind).digest


def mixed(n: int, seed: int) -> pd.DataFrame:
    """Columns of many types, without a missing cell."""
    random = np.random.default_rng(seed)
    sex = np.where(random.random(n) < 0.5, "W", "M")
    return pd.DataFrame(
        {
            "age": random.integers(20, 90, n),
            "sex": pd.Categorical(sex),
            "größe": random.normal(170, 9, n),
            "smokes": random.random(n) < 0.3,
            "y": (random.random(n) < 0.4).astype(int),
        }
    )


JOB = {"job": {"rounds": 3}, "data": {"response": "y", **few.ANY}}
FEW = {"draws": 4, "chains": 1}


@pytest.mark.parametrize("form", FRAMES)
def test_texts_truth_values_and_other_types(tmp_path: Path, form: str) -> None:
    frames = {name: mixed(40, k) for k, name in enumerate(("nord", "süd.1"))}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = fedkern.run(JOB, data={"clients": [str(tmp_path / "*.csv")], "response": "y"})
    memory = fedkern.run(JOB, data={name: FRAMES[form](frame) for name, frame in frames.items()})
    assert memory.digest == files.digest
    assert [*memory.summary["clients"]] == ["nord", "süd.1"]
    assert any("sex" in name for name in memory.parameters)


def test_pandas_own_types_for_what_may_be_missing() -> None:
    plain = mixed(40, 1)
    nullable = plain.convert_dtypes()
    assert str(nullable["age"].dtype) == "Int64"
    objects = plain.astype({"age": object, "sex": object})
    digests = {fedkern.run(JOB, data={"a": frame}).digest for frame in (plain, nullable, objects)}
    assert len(digests) == 1


def test_check_says_what_it_says_of_files(simulated: dict[str, Path]) -> None:
    job = simulated["logistic"]
    files = fedkern.check(job, verbose=True)
    assert fedkern.check(job, **held(job), verbose=True) == files
    assert any("clients" in line for line in files)


def test_keys_of_the_section_still_go_through_data(simulated: dict[str, Path]) -> None:
    job = simulated["logistic"]
    one = {"clients": ["clients/client-01.csv"]}
    assert [*fedkern.run(job, data=one, **short(job)).summary["clients"]] == ["client-01"]


def test_a_private_job_spends_what_it_would_with_files(simulated: dict[str, Path], tmp_path: Path) -> None:
    job = simulated["logistic"]
    columns = {f"x{j}": {"center": 0.0, "scale": 2.0} for j in (1, 2, 3)}
    privacy = {"epsilon": 2.0, "delta": 1e-5, "clip": 2.0, "noise_multiplier": 4.0, "sampling_rate": 0.2, "noise_source": "keyed"}
    private = {"privacy": privacy, "data": {"columns": columns, "standardise": "public"}, "algorithm": {"local_steps": 2}}
    tables = {"job": {"rounds": 2}, **private, "data": {**private["data"], "response": "y"}}
    frames = held(job)["data"]
    files = fedkern.run(tables, data={**tables["data"], "clients": [str(job.parent / "clients" / "*.csv")]})
    memory = fedkern.run(tables, data=frames)
    assert memory.digest == files.digest
    assert memory.privacy == files.privacy


def test_progress_is_shown_where_it_is_wanted(
    simulated: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = simulated["logistic"]
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    fedkern.run(job, **short(job))
    assert capsys.readouterr().err == ""
    fedkern.run(job, **short(job), progress=True)
    assert "round" in capsys.readouterr().err


def test_a_prior_by_its_folder(simulated: dict[str, Path], of_files: Callable[[str], Any], tmp_path: Path) -> None:
    job, want = simulated["sigma"], of_files("sigma")
    (job.parent / "prior").rename(tmp_path / "elsewhere")
    try:
        assert fedkern.run(job, prior=tmp_path / "elsewhere", **short(job)).digest == want.digest
        with pytest.raises(JobError, match="prior: a value of type object is no prior; give the folder"):
            fedkern.run(job, prior=object(), **short(job))
    finally:
        (tmp_path / "elsewhere").rename(job.parent / "prior")


SECRET = "Zappa"


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"name": [SECRET, "b", "c"], "y": [0, 1, 1], **columns})


ODD: dict[str, tuple[Any, str]] = {
    "list": ([[1, 2], [3, 4]], r"data\['a'\]: a value of type list is no table"),
    "object": (object(), r"data\['a'\]: a value of type object is no table"),
    "a frame and y": ((pd.DataFrame({"x": np.ones(3)}), np.ones(3)), r"data\['a'\]: X: .*DataFrame; give one data frame that"),
    "X and a column": ((np.ones((3, 2)), pd.Series(np.ones(3))), r"data\['a'\]: y: .*Series; .* or arrays: \(X.to_numpy\(\), y"),
    "none": (None, "a value of type NoneType is no table"),
    "lazy": (pl.LazyFrame({"y": [1]}), r"LazyFrame has not been computed yet; give what its .collect\(\)"),
    "vector": ((np.ones(3), np.ones(3)), r"X has shape \(3,\); it needs \(n, p\)"),
    "lengths": ((np.ones((3, 2)), np.ones(2)), r"y has shape \(2,\); it needs \(3,\)"),
    "three": ((np.ones((3, 2)), np.ones(3), 1), "a tuple of 3 is no table"),
    "complex": ((np.ones((3, 2), complex), np.ones(3)), "X: has type complex128; it needs numbers"),
    "no columns": ((np.ones((3, 0)), np.ones(3)), "X has no columns"),
    "elsewhere": ((Elsewhere(np.ones((3, 2)), 2), np.ones(3)), "lies on another device than the CPU; move it"),
    "twice": (pd.DataFrame(np.ones((2, 2)), columns=["y", "y"]), "two columns are called 'y'; rename one"),
    "twice but for blanks": (frame(**{"y ": 1}), "two columns are called 'y'"),
    "named by numbers": (pd.DataFrame({1.5: [1], "y": [1]}), "column 1 is named by a value of type float"),
    "objects": (frame(o=[object(), 1, "x"]), r"row \d, column 'o': .* among int and object and str; make it a column of numbers"),
    "nested": (pl.DataFrame({"y": [0, 1], "l": [[1], [2]]}), r"column 'l' has type List\(Int64\)"),
    "not a number": (frame(x=[1.0, np.nan, 2.0]), r"data\['a'\], row 2, column 'x': 'nan' is not finite"),
    "three labels": (frame().assign(y=["no", "yes", "ye"]), r"column 'y' has 3 different labels \(no, ye, yes\)"),
    "no response": (frame().rename(columns={"y": "z"}), "column 'y' is missing"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_table_is_named_by_its_type(odd: str) -> None:
    value, said = ODD[odd]
    with pytest.raises(JobError, match=said) as fault:
        fedkern.run(JOB, data={"a": value, "b": frame()})
    assert "'a'" in str(fault.value).splitlines()[0]
    assert SECRET not in str(fault.value)
    assert "--local" not in str(fault.value)


def test_a_private_job_tells_nothing_of_a_row_in_memory() -> None:
    terms = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 5.0, "sampling_rate": 0.5}
    private: Any = {**JOB, "privacy": terms, "data": {"response": "y", "columns": {"name": {"levels": ["b", "c"]}}}}
    with refusal(JobError, "a", "y", "name") as fault:
        fedkern.run(private, data={"a": frame().drop(columns="y"), "b": frame()})
    assert SECRET not in str(fault.value)


@pytest.mark.parametrize("family", [*families.MEANT])
def test_a_family_by_another_s_name_is_told_ours(family: str) -> None:
    meant = families.MEANT[family]
    job = JOB if meant in families.taken_by("pvi") else {**JOB, "job": {"method": "likelihood"}}
    name, *link = meant.split(" ", 1)
    with pytest.raises(JobError, match=" ".join(["did you mean", f'"{name}"', *link])):
        fedkern.run(job, data={"a": frame()}, model={"family": family})


def test_columns_in_any_order_and_named_by_numbers_and_pairs_without_a_name() -> None:
    random = np.random.default_rng(2)
    X, y = random.normal(size=(2, 60, 3)), random.integers(0, 2, size=(2, 60))
    arrays = fedkern.run({"job": {"rounds": 3}}, data={"a": (X[0], y[0]), "b": (X[1], y[1])}, output=FEW)
    frames = [pd.DataFrame(x, columns=["x1", "x2", "x3"]).assign(y=of) for x, of in zip(X, y)]
    other = fedkern.run(JOB, data={"a": frames[0], "b": frames[1][["y", "x3", "x1", "x2"]]}, output=FEW)
    assert other.parameters == arrays.parameters
    numbered = [one.set_axis([7, 0, -3, "y"], axis=1) for one in frames]
    last = fedkern.run(JOB, data=dict(zip("ab", numbered)), output=FEW)
    assert [*last.parameters.values()] == [*arrays.parameters.values()]
    assert "theta[-3]" in last.parameters


def test_names_that_are_none(simulated: dict[str, Path]) -> None:
    with pytest.raises(JobError, match=r"data: wanted a table for each client's name, .*, not a value of type .*DataFrame"):
        fedkern.run(JOB, data=frame())  # type: ignore[arg-type]
    with pytest.raises(JobError, match="data: a client is named by a value of type int"):
        fedkern.run(JOB, data={1: frame()})  # type: ignore[dict-item]
    with refusal(JobError, "data.response"):
        fedkern.run(JOB, data={"respones": "y"})


def test_narwhals_is_not_loaded_for_files(simulated: dict[str, Path]) -> None:
    program = "import sys, fedkern; fedkern.run(sys.argv[1], job={'rounds': 1}); assert 'narwhals' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", program, str(simulated["logistic"])], check=True)


@pytest.mark.parametrize("form", ["pandas", "pandas of texts", "polars", "pyarrow"])
def test_categories_that_look_like_numbers_are_no_slope(form: str) -> None:
    """Levels 1, 2 and 3 of a ward would otherwise be fitted as a line."""
    random = np.random.default_rng(1)
    ward, y = random.integers(1, 4, 200), random.integers(0, 2, 200)
    frame = pd.DataFrame({"ward": pd.Categorical(ward.astype(str) if form == "pandas of texts" else ward), "y": y})
    if form == "polars":
        frame = pl.DataFrame({"ward": pl.Series(ward.astype(str)).cast(pl.Categorical), "y": y})
    elif form == "pyarrow":
        frame = pa.table({"ward": pa.array(ward.astype(str)).dictionary_encode(), "y": y})
    tables = {"job": {"method": "pvi", "rounds": 2}, "data": {"response": "y"}}
    assert {"theta[ward=2]", "theta[ward=3]"} <= set(fedkern.run(tables, data={"a": frame}).parameters)
    numbers = pd.DataFrame({"ward": ward, "y": y})  # as another client's csv has them
    assert {"theta[ward=2]", "theta[ward=3]"} <= set(fedkern.run(tables, data={"a": frame, "b": numbers}).parameters)


def test_a_dictionary_of_parquet_is_no_slope(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    ward, y = random.integers(1, 4, 200), random.integers(0, 2, 200)
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"ward": pa.array(ward.astype(str)).dictionary_encode(), "y": y}), tmp_path / "a.parquet")
    tables = {"job": {"method": "pvi", "rounds": 2}, "data": {"response": "y", "clients": [str(tmp_path / "*.parquet")]}}
    assert {"theta[ward=2]", "theta[ward=3]"} <= set(fedkern.run(tables).parameters)


TERMS = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 5.0, "sampling_rate": 0.5}


def blind(n: int = 40) -> tuple[dict[str, Any], dict[str, Any]]:
    """A private job, and its clients' rows: the first has no age in any row."""
    random = np.random.default_rng(5)
    frames = {name: pd.DataFrame({"age": random.normal(50, 9, n), "y": random.integers(0, 2, n)}) for name in ("a", "b")}
    frames["a"]["age"] = np.nan
    columns = {"age": {"center": 50, "scale": 9}}
    job = {"method": "pvi", "rounds": 1}
    return {"job": job, "privacy": TERMS, "algorithm": {"local_steps": 2}, "data": {"response": "y", "columns": columns}}, frames


def test_the_caller_reads_that_a_client_of_a_private_job_pays_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the rows. It reads so before anything is paid, and what others read is what they read of usable rows."""
    said = list[str]()
    monkeypatch.setattr(Holder, "charge", lambda *a, charge=Holder.charge: said.append(capsys.readouterr().err) or charge(*a))
    job, frames = blind()
    fedkern.run(job, data=frames, out=tmp_path / "blind")
    assert said[0].startswith("fedkern: client 'a': no row can be used (age: is not finite); a private job goes on")
    assert "spends the budget" in said[0]
    assert "client 'b'" not in said[0]
    assert "nan" not in said[0]
    frames["a"]["age"] = 50.0
    fedkern.run(job, data=frames, out=tmp_path / "seen")
    assert capsys.readouterr().err == ""
    ledgers = [(tmp_path / run / "ledger" / "a.jsonl").read_text() for run in ("blind", "seen")]
    assert ledgers[0] == ledgers[1]
    notes = [json.loads((tmp_path / run / "summary.json").read_text())["notes"] for run in ("blind", "seen")]
    assert notes[0] == notes[1]


def test_where_others_are_in_the_job_nobody_s_screen_says_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Screens of several places may come together at one of them; the client's own folder has it there."""
    job, frames = blind()
    results = list[Any]()

    def main(place: Any) -> int:
        out = tmp_path / ("server" if place.is_server else "site")
        results.append(fedkern.run(job, data=frames, place=place, out=out))
        return 0

    said = list[str]()
    assert set(threads.over(main, ("a", "b"), said)) == {0}
    assert "can be used" not in "".join([*said, *capfd.readouterr()])
    assert json.loads((tmp_path / "site" / "client-a" / "rows.json").read_text())["faults"]["rows"] == 40


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"a": 1}, "if 'a' should be a client: a value of type int is no table; give a data frame"),
        (
            {"a": "a.csv", "b": "b.csv"},
            "if 'a' and 'b' should be a client: a value of type str is no table; files go by data={\"clients\"",
        ),
        ({"response": "y", "a": True}, "if 'a' should be a client: a value of type bool is no table"),
        ({"respnse": "y"}, "unknown key data.respnse; did you mean data.response?"),
    ],
)
def test_a_value_that_is_neither_rows_nor_a_key_is_told_what_is_wanted(data: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=re.escape(said)):
        fedkern.run({"job": {"method": "pvi"}}, data=data)


def test_a_wrong_value_of_a_known_key_is_no_client() -> None:
    with pytest.raises(JobError) as fault:
        fedkern.run(JOB, data={"response": 3})
    assert "client:" not in str(fault.value)


def test_numbers_with_a_percent_sign_are_no_labels() -> None:
    """In one process each would silently be a level of its own; where a file declares labels, or a word stands among them, they
    are."""
    random = np.random.default_rng(1)
    share = [f"{one:.0f}.5%" for one in random.integers(1, 9, 200)]
    frame = pd.DataFrame({"share": share, "y": random.integers(0, 2, 200)})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}}
    with pytest.raises(JobError, match=r"column .share. has numbers with a unit or % behind them.*write plain numbers"):
        fedkern.run(job, data={"a": frame})
    labels = {"columns": {"share": {"kind": "categorical"}}}
    assert "theta[share=2.5%]" in fedkern.run({**job, "data": {"response": "y", **labels}}, data={"a": frame}).parameters
    with pytest.raises(JobError, match=r"column .share. has numbers with a unit or % behind them"):
        fedkern.run(job, data={"a": frame.assign(share=[f"{k}.{k % 7} mg/dl" for k in range(200)])})
    for mark in ("{:,}.5", "({})", "\u2212{}", "$ {}"):
        with pytest.raises(JobError, match=r"column .share. has numbers with a unit or % behind them, or other marks"):
            fedkern.run(job, data={"a": frame.assign(share=[mark.format(1000 + k) for k in range(200)])})
    for label in ("{:05}", "({}, 1000]", "2024-{}"):  # codes, intervals, and parts of dates are labels
        fedkern.run(job, data={"a": frame.assign(share=[label.format(10 + k % 25) for k in range(200)])})
    few = fedkern.run(job, data={"a": frame.assign(share=[f"{k % 3} mg" for k in range(200)])})
    assert "theta[share=1 mg]" in few.parameters
    frame.loc[0:20, "share"] = "none of it"
    assert "theta[share=none of it]" in fedkern.run(job, data={"a": frame}).parameters
