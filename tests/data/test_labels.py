"""A label is one, whatever program wrote the table: truth values, whole numbers written as floats, and the order of levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import fedkern
from fedkern.algorithms.exchanges.columns import join_levels
from fedkern.data import incomplete, memory, table
from fedkern.data.cells import Text, as_text, floats, labels
from fedkern.data.design import encode
from fedkern.data.faults import Marks
from fedkern.data.reading import read_numbers
from fedkern.errors import JobError
from fedkern.labels import label
from fedkern.models.encoding import Column, Spec
from support.found import said

FLAGS = [True, False, None, True]


@pytest.mark.parametrize(
    ("cell", "one"),
    [
        *((same, "True") for same in ("True", "TRUE", "true")),
        ("FALSE", "False"),
        ("1.0", "1"),
        ("-3.000", "-3"),
        # as.character of R 4.2.2 has 15 digits, too; 1e+05 stays 100000, and a code that looks like a power of ten a code
        *((one, "119000") for one in ("119000", "1.19e+05", "1.19E5", "119000.00", "119000.00000000001", "+119000")),
        *((one, "1.9") for one in ("1.9", "1.90", "1.9000000000000001", "1.9000000000000004", "19.0e-1")),
        *((one, "0.3") for one in ("0.3", "0.30000000000000004", ".3", "3e-01", "3E-1")),
        *((one, "0") for one in (".0", "-0", "0e+00", "-0.0")),
        *((one, "100000") for one in ("100000", "1e+05", "1.0e5")),
        ("0.00001", "1e-05"),
        *(
            (same, same)
            for same in ("01", "01.5", "1.5", "0.0001", "1e3", "12E4", "t", "yes", "", "1.0.0", "1_0.5", "inf", "nan")
        ),
        *((same, same) for same in ("12345678901234567", "12345678901234568", "1.5e+999")),  # whole numbers keep their digits
    ],
)
def test_a_cell_is_its_label(cell: str, one: str) -> None:
    assert label(cell) == one
    assert label(one) == one


def test_with_decimal_commas() -> None:
    assert (label("3,0", ","), label("3.0", ",")) == ("3", "3.0")
    assert (label("0,30000000000000004", ","), label("1,19e+05", ","), label("3.5", ",")) == ("0,3", "119000", "3.5")


def of_file(columns: Any, path: Path) -> Text:
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        np.savez(path, **columns)
    return table.load(path).columns["flag"]


READERS: dict[str, Any] = {
    "pandas, nullable": lambda path: pd.DataFrame({"flag": pd.array(FLAGS, dtype="boolean")}),
    "pandas, objects": lambda path: pd.DataFrame({"flag": np.array(FLAGS, object)}),
    "pandas, of pyarrow": lambda path: pd.DataFrame({"flag": pd.array(FLAGS, dtype="bool[pyarrow]")}),
    "polars": lambda path: pl.DataFrame({"flag": FLAGS}),
    "pyarrow": lambda path: pa.table({"flag": FLAGS}),
    "a dictionary": lambda path: {"flag": np.array(FLAGS, object)},
    "Parquet": lambda path: of_file({"flag": FLAGS}, path / "a.parquet"),
}


@pytest.mark.parametrize("reader", READERS)
def test_truth_values_are_two_labels_and_numbers_where_numbers_are_wanted(reader: str, tmp_path: Path) -> None:
    made = READERS[reader](tmp_path)
    cells = made if isinstance(made, Text) else memory.table(made, "rows").columns["flag"]
    assert isinstance(cells, Text)
    assert (cells.levels, cells.kind()) == (("True", "False", ""), "categorical")
    np.testing.assert_array_equal(floats(cells), [1, 0, np.nan, 1])


def test_truth_values_of_arrays(tmp_path: Path) -> None:
    flag = np.array([True, False])
    for cells in (
        memory.table({"flag": flag}, "rows").columns["flag"],
        memory.table(pd.DataFrame({"flag": flag}), "rows").columns["flag"],
        of_file({"flag": flag}, tmp_path / "a.npz"),
    ):
        assert isinstance(cells, Text)
        assert cells.levels == ("True", "False")
    np.savez(tmp_path / "X.npz", X=np.array([[True, False], [True, True]]))  # a matrix is of numbers
    np.testing.assert_array_equal(table.load(tmp_path / "X.npz").columns["x2"], [0, 1])


def test_labels_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ward,flag\n1.0,TRUE\n1,True\n01,false\n2.50,x\n")
    read = table.load(tmp_path / "a.csv", text=["ward"])
    assert labels(read.columns["ward"]).levels == ("1", "01", "2.5")
    assert read.cells("ward") == ["1", "1", "01", "2.5"]
    assert read.cells("flag") == ["True", "True", "False", "x"]
    assert labels(np.array([2.0, 1.0, np.nan])).levels == ("1", "2", "")
    halves = labels(np.array([0.3, np.nan, 0.1 + 0.2, 2.0]))
    assert (halves.levels, halves.codes.tolist()) == (("0.3", "2", ""), [0, 2, 0, 1])


CODES: dict[str, Any] = {
    "csv": lambda cells, path: (
        (path / "a.csv").write_text("ward,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)))
        and table.load(path / "a.csv")
    ),
    "pandas": lambda cells, path: memory.table(pd.DataFrame({"ward": cells}), "rows"),
    "polars": lambda cells, path: memory.table(pl.DataFrame({"ward": cells}), "rows"),
    "Parquet": lambda cells, path: (
        parquet.write_table(pa.table({"ward": cells}), path / "a.parquet") or table.load(path / "a.parquet")
    ),
    "npz": lambda cells, path: np.savez(path / "a.npz", ward=np.array(cells)) or table.load(path / "a.npz"),
}


@pytest.mark.parametrize("reader", CODES)
@pytest.mark.parametrize(
    ("cells", "coded"),
    [
        ([f"{k:05d}" for k in range(998, 1040)], True),  # more of them than a column of words may have
        ([f"{1 + k % 12:02d}" for k in range(24)], True),
        (["01", "02", "-9", "01", "NA", "02"] * 4, True),  # what stands for a missing cell is no measurement
        ([*map(str, range(98, 122)), "05"], False),  # ages, one of them padded
        ([f"{k:04.1f}" for k in range(24)], False),
        ([f"{k / 7:.2g}" for k in range(24)], False),
        ([f"{k}e-05" for k in range(1, 24)], False),
        (["00", "0", "10"] * 8, False),
    ],
)
def test_whole_numbers_with_zeros_before_them_are_labels(cells: list[str], coded: bool, reader: str, tmp_path: Path) -> None:
    read = CODES[reader](cells, tmp_path).columns["ward"]
    if coded:
        assert read.kind() == "categorical"
        assert {*cells} == {*labels(read).levels}
    elif reader == "csv":  # a column of texts with few values is of labels whatever they are
        np.testing.assert_array_equal(read, [float(cell) for cell in cells])


def test_codes_are_labels_at_all_clients_or_numbers_by_the_job(tmp_path: Path) -> None:
    """One of them has no cell that begins with 0."""
    i = np.arange(120)
    ward = {"a": 8 + i % 5, "b": 8 + i % 5, "c": 10 + i % 3}
    frames = {
        name: pd.DataFrame({"ward": [f"{one:02d}" for one in own], "x": np.cos(i), "y": np.sin(own) + 0.1 * np.cos(3 * i)})
        for name, own in ward.items()
    }
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files: Any = {"clients": [str(tmp_path / "*.csv")]}
    found = fedkern.run(gaussian("y ~ x + ward"), data=files)
    assert [name for name in found.parameters if "ward" in name] == [f"theta[ward[T.{k:02d}]]" for k in range(9, 13)]
    assert found.parameters["theta[ward[T.10]]"]["mean"] == pytest.approx(np.sin(10) - np.sin(8), abs=0.05)
    assert fedkern.run(gaussian("y ~ x + ward"), data=frames).digest == found.digest
    declared = {**files, "columns": {"ward": {"kind": "numeric"}}}
    slopes = [fedkern.run(gaussian("y ~ x + ward"), data=declared), fedkern.run(gaussian("y ~ x + log(ward)"), data=files)]
    for name, own in ward.items():
        frames[name].assign(ward=own).to_csv(tmp_path / f"{name}.csv", index=False)
    for formula, found in zip(("y ~ x + ward", "y ~ x + log(ward)"), slopes):
        assert fedkern.run(gaussian(formula), data=files).parameters == found.parameters


DOSE = frozenset({"dose"})
SINGLE: dict[str, Any] = {
    "pandas": lambda cells, path: memory.table(pd.DataFrame({"dose": cells}), "rows", text=DOSE),
    "polars": lambda cells, path: memory.table(pl.DataFrame({"dose": cells}), "rows", text=DOSE),
    "arrays": lambda cells, path: memory.table({"dose": cells}, "rows", text=DOSE),
    "Parquet": lambda cells, path: (
        parquet.write_table(pa.table({"dose": cells}), path / "a.parquet") or table.load(path / "a.parquet", text=["dose"])
    ),
    "npz": lambda cells, path: np.savez(path / "a.npz", dose=cells) or table.load(path / "a.npz", text=["dose"]),
    "npz, as numbers": lambda cells, path: np.savez(path / "a.npz", dose=cells) or table.load(path / "a.npz"),
}


@pytest.mark.parametrize("reader", SINGLE)
def test_floats_of_32_bits_have_the_labels_of_the_numbers_that_were_written(reader: str, tmp_path: Path) -> None:
    single = SINGLE[reader](np.array([0.2, 119000.0, 3.0, 0.1, 4.75], np.float32), tmp_path)
    assert single.cells("dose") == ["0.2", "119000", "3", "0.1", "4.75"]


ORDER = ["low", "mid", "high", "never"]
ORDERED: dict[str, Any] = {
    "pandas": lambda cells: pd.DataFrame({"dose": pd.Categorical(cells, ORDER, ordered=True)}),
    "polars": lambda cells: pl.DataFrame({"dose": pl.Series(cells, dtype=pl.Enum(ORDER))}),
    "pyarrow": lambda cells: pa.Table.from_pandas(pd.DataFrame({"dose": pd.Categorical(cells, ORDER, ordered=True)})),
}


@pytest.mark.parametrize("reader", ORDERED)
def test_an_ordered_category_keeps_its_order(reader: str, tmp_path: Path) -> None:
    cells = ["high", "low", None, "mid", "low"]
    frame = ORDERED[reader](cells)
    kept = [memory.table(frame, "rows").columns["dose"]]
    if reader == "pyarrow":
        parquet.write_table(frame, tmp_path / "a.parquet")
        kept.append(table.load(tmp_path / "a.parquet").columns["dose"])
    for own in kept:
        assert isinstance(own, Text)
        assert own.ordered
        assert [level for level in own.levels if level] == ["low", "mid", "high"]
        assert [own.levels[code] for code in own.codes] == ["high", "low", "", "mid", "low"]
    assert not memory.table(pd.DataFrame({"dose": pd.Categorical(["b", "a"])}), "rows").columns["dose"].ordered  # type: ignore[union-attr]


def test_orders_of_clients_are_joined() -> None:
    order, without, unordered = ("low", "mid", "high"), ("low", "high"), ("high", "low", "mid")
    assert join_levels([order, unordered]) == order
    assert join_levels([without, order]) == order
    assert join_levels([unordered, unordered]) == unordered  # sorted
    assert join_levels([order, ("mid", "low")]) == unordered  # they do not agree
    assert join_levels([order, ("low", "never")]) == ("high", "low", "mid", "never")  # nobody says where "never" stands


def trial(client: int, n: int = 150) -> pd.DataFrame:
    i = np.arange(n) + n * client
    x, flag = np.cos(i), i % 3 == 0
    dose = np.array(["low", "mid", "high"])[i % 3]
    y = 1 + x * np.where(flag, 0.8, -0.3) + 0.1 * np.sin(i * 17)
    return pd.DataFrame({"x": x, "flag": flag, "dose": pd.Categorical(dose, ["low", "mid", "high"], ordered=True), "y": y})


def gaussian(formula: str) -> dict[str, Any]:
    return {
        "job": {"method": "likelihood", "seed": 2},
        "model": {"family": "gaussian", "formula": formula},
        "algorithm": {"points": 512, "effective": 200.0},
        "output": {"draws": 100, "chains": 2},
    }


def test_a_slope_for_each_truth_value_from_all_readers(tmp_path: Path) -> None:
    job = gaussian("y ~ x:flag")
    frames = {name: trial(k).drop(columns="dose") for k, name in enumerate("ab")}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.assign(flag=frame["flag"].map({True: "TRUE", False: "FALSE"})).to_csv(tmp_path / f"{name}.r.csv", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet")
    found = {
        "memory": fedkern.run(job, data=frames),
        "nullable": fedkern.run(job, data={name: frame.convert_dtypes() for name, frame in frames.items()}),
        "arrays": fedkern.run(job, data={name: {c: frame[c].to_numpy() for c in frame} for name, frame in frames.items()}),
        "csv": fedkern.run(job, data={"clients": [str(tmp_path / "[ab].csv")]}),
        "Parquet": fedkern.run(job, data={"clients": [str(tmp_path / "*.parquet")]}),
        "both": fedkern.run(job, data={"clients": [str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")]}),
    }
    of_r = fedkern.run(job, data={"clients": [str(tmp_path / "*.r.csv")]})
    assert len({one.digest for one in found.values()}) == 1
    assert of_r.summary["log_evidence"] == found["csv"].summary["log_evidence"]
    mean = [found["memory"].parameters[name]["mean"] for name in ("intercept", "theta[x:flag[False]]", "theta[x:flag[True]]")]
    assert mean == pytest.approx(OF_R, abs=1e-3)


OF_R = (0.99998113, -0.30090993, 0.79967435)  # R 4.2.2: coef(lm(y ~ x:flag))


def test_the_first_level_of_an_order_is_what_others_are_compared_with(tmp_path: Path) -> None:
    frames = {name: trial(k).drop(columns="flag") for k, name in enumerate("ab")}
    names = ["theta[dose[T.mid]]", "theta[dose[T.high]]"]
    assert [
        name for name in fedkern.run(gaussian("y ~ dose"), data=frames).parameters if "dose" in name and "std" not in name
    ] == names
    frames["a"].to_parquet(tmp_path / "a.parquet")
    frames["b"].to_csv(tmp_path / "b.csv", index=False)
    both = fedkern.run(gaussian("y ~ dose"), data={"clients": [str(tmp_path / "a.parquet"), str(tmp_path / "b.csv")]})
    assert [name for name in both.parameters if "dose" in name and "std" not in name] == names
    other = {"a": frames["a"], "b": frames["b"].assign(dose=frames["b"]["dose"].cat.reorder_categories(["mid", "low", "high"]))}
    lost = fedkern.run(gaussian("y ~ dose"), data=other)
    assert "theta[dose[T.low]]" in lost.parameters
    assert said(lost, "levels-in-other-orders") == [{"column": "dose"}]


def test_numbers_of_rows_of_pandas_are_no_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]})[lambda one: one["x"] > 1]
    frame.to_parquet(tmp_path / "a.parquet")
    assert table.header(tmp_path / "a.parquet") == ("x",)
    assert table.load(tmp_path / "a.parquet").names == ("x",)


def test_a_dictionary_that_is_no_table_is_refused() -> None:
    for held, words in (
        ({"x": np.ones(3), "y": np.ones(2)}, "columns have different lengths"),
        ({"x": np.ones((3, 2))}, "column 'x' has 2 dimensions"),
        ({"x": np.ones(3, complex)}, "has type complex128"),
        ({}, "has no columns"),
        ({"x": "text"}, "is no table"),
    ):
        with pytest.raises(JobError, match=words):
            memory.table(held, "rows")


def test_an_order_that_the_job_has_not_is_noted_to_its_holder() -> None:
    spec = Spec("y", "gaussian", columns={"dose": Column("dose", "categorical", ("high", "low", "mid"))}, standardise="none")
    encoding = spec.encoding((spec.columns["dose"],))
    frame = trial(0)[["dose", "y"]]
    assert any(
        "its order here (low, mid, high) is not that of the job" in note
        for note in encode(memory.table(frame, "rows"), encoding).notes
    )
    plain = frame.astype({"dose": str})
    assert not encode(memory.table(plain, "rows"), encoding).notes


def test_a_positive_label_is_one_however_the_job_writes_it() -> None:
    spec = Spec("y", "bernoulli", positive="TRUE", standardise="none")
    read = memory.table({"y": np.array([True, False, True]), "x": np.arange(3.0)}, "rows", text=spec.texts)
    encoding = replace(spec.encoding((Column("x", "numeric", None, 0.0, 1.0),)), labels=("FALSE", "TRUE"))
    assert encode(read, encoding).y.tolist() == [1, 0, 1]


def test_numbers_beside_a_word_are_labels_as_they_are_written() -> None:
    """As in R, whose read.csv makes texts of them: 250.0 and 250.00 were one level."""
    codes = ["250.0", "250.00", "401.9", "V58.1", "3", "3.0", "+1"]
    assert labels(as_text(codes)).levels == tuple(codes)
    assert labels(as_text([*codes, "TRUE", "True"])).levels == (*codes, "True")
    assert labels(as_text(["1,1", "1,10", "x"], ",")).levels == ("1,1", "1,10", "x")
    assert labels(replace(as_text(codes[:3]), texts=True)).levels == tuple(codes[:3])
    assert labels(as_text([*codes[:3], "NA"])).levels == ("250", "401.9", "NA"), "a missing cell is no word"
    assert labels(as_text(["1.0", "x"]), ("1", "x")).levels == ("1", "x"), "known labels are found as numbers, too"
    assert Column.declared("code", {"levels": codes[:4]}).levels == tuple(codes[:4])


def test_a_column_of_numbers_at_one_client_cannot_tell_labels_of_another(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name, levels in (("a", ("1.1", "1.10", "1.2")), ("b", ("1.1", "1.10", "1.2", "unknown"))):
        lines = [f"{level},{rng.normal():.3f}" for level in levels * 20]
        (tmp_path / f"{name}.csv").write_text("\n".join(["code,y", *lines]))
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(JobError, match=r"here, and at other clients 1\.1 and 1\.10 are two labels; declare its levels"):
        fedkern.fit("y ~ code", files)
    declared = fedkern.fit("y ~ code", files, columns={"code": {"levels": ["1.1", "1.10", "1.2", "unknown"]}})
    assert {"theta[code[T.1.10]]", "theta[code[T.unknown]]"} <= {*declared.parameters}


def test_declared_levels_that_are_one_label_are_refused() -> None:
    with pytest.raises(JobError, match="none twice"):
        Column.declared("ward", {"levels": ["1", "true", "TRUE"]})
    assert Column.declared("ward", {"levels": ["1", "1.0"]}).levels == ("1", "1.0")
    assert Column.declared("flag", {"levels": ["TRUE", "FALSE"]}).levels == ("False", "True")


def test_truth_values_are_numbers_where_a_job_wants_numbers(tmp_path: Path) -> None:
    """As where another client has 0 and 1; one word beside them is none."""
    (tmp_path / "a.csv").write_text("x,z\nTRUE,TRUE\nfalse,1\n,FALSE\n")
    read = table.load(tmp_path / "a.csv")
    np.testing.assert_array_equal(read_numbers(read, "x", Marks(read), missing=True), [1, 0, np.nan])
    np.testing.assert_array_equal(read_numbers(read, "z", Marks(read), missing=True), [np.nan, 1, np.nan])


def test_an_order_stays_where_rows_lack_another_cell() -> None:
    kinds = ["low", "mid", "high"]
    frame = pd.DataFrame({"dose": pd.Categorical(["high", "mid", "low"] * 4, kinds, ordered=True), "x": [1.0, None] + [2.0] * 10})
    frame["y"] = 0.0
    spec = Spec("y", "gaussian", standardise="none")
    kept = incomplete.without(memory.table(frame, "rows"), spec)
    assert labels(kept.columns["dose"]).levels == ("low", "mid", "high")


@pytest.mark.parametrize("dtype", ["string", "Int64", object])
def test_what_pandas_lacks_is_an_empty_cell(dtype: Any) -> None:
    cells = pd.array([1, 2, pd.NA] if dtype == "Int64" else ["a", "b", pd.NA], dtype=dtype)
    read = memory.table({"g": pd.Series(cells), "y": np.zeros(3)}, "rows", text=["g"])
    assert read.cells("g") == (["1", "2", ""] if dtype == "Int64" else ["a", "b", ""])
