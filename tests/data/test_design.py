"""Tables to the arrays of the kernels; every kind of bad row in jobs that are private and jobs that are not."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkern.data import design, table
from fedkern.data.design import Column, Encoding, Spec, describe, encode
from fedkern.data.faults import LISTED
from fedkern.errors import JobError, OwnFault
from fedkern.kernels import privacy
from support.refusal import refusal

AGE, JOB = Column("age", center=40.0, scale=10.0), Column("job", "categorical", ("clerk", "farmer", "smith"))
ENCODING = Encoding((AGE, JOB), "y", offset="o", weight="w", row_id="id")
HEADER = "age,job,o,w,id,y"
GOOD = "30,smith,0.5,2,p7,1"
SPEC = Spec("y", offset="o", weight="w", row_id="id")


def read(path, encoding=ENCODING):
    return table.load(path, text=encoding.texts, response=encoding.response)


def test_columns_become_coefficients_in_order(csv):
    made = encode(read(csv("a", HEADER, GOOD, "55,clerk,0,1,p9,0")), ENCODING)
    assert ENCODING.names == ("intercept", "age", "job=clerk", "job=farmer", "job=smith")
    np.testing.assert_array_equal(made.X, [[1, -1.0, 0, 0, 1], [1, 1.5, 1, 0, 0]])
    assert made.X.flags.c_contiguous
    assert made.X.dtype == np.float64
    np.testing.assert_array_equal(made.y, [1, 0])
    np.testing.assert_array_equal(made.offset, [0.5, 0.0])
    np.testing.assert_array_equal(made.weights, [2.0, 1.0])
    assert made.row_ids.dtype == np.uint64
    assert made.faults == design.Faults()


def test_what_others_read_of_faults_is_of_each_column_alone(csv):
    """Whoever writes the job says which levels there are: the one row of age 83 may be a smith or a clerk."""
    known = Encoding((Column("job", "categorical", ("clerk", "farmer")), Column("age", "categorical", ("30", "55"))), "y")
    said = set()
    for one, other in (("smith", "clerk"), ("clerk", "smith")):
        path = csv("a", HEADER.replace("age,job", "job,age"), f"{one},83,0,1,p1,1", f"{other},30,0,1,p2,0", "farmer,55,0,1,p3,0")
        with refusal(OwnFault, "age", "job") as fault:
            encode(read(path, known), known)
        said.add(str(fault.value))
        rows = [line for line in fault.value.own.splitlines() if line.startswith("  ")]
        assert len(rows) == (0 if one == "smith" else 2), "its holder reads a row once"
    assert len(said) == 1


def test_row_ids_are_hashes_of_their_texts_and_nothing_else(csv):
    one = encode(read(csv("a", HEADER, GOOD, "55,clerk,0,1,p9,0")), ENCODING).row_ids
    other = encode(read(csv("b", HEADER, "1,clerk,0,1,p9,0", "1,clerk,0,1,p1,0", "2,clerk,0,1,p7,1")), ENCODING).row_ids
    assert one[0] == other[2]
    assert one[1] == other[0]
    assert len({*one, *other}) == 3


def test_the_affine_map_undoes_the_standardising(csv):
    rng = np.random.default_rng(3)
    lines = [
        f"{a},{j},0,1,{i},0" for i, (a, j) in enumerate(zip(rng.normal(50, 9, 8), np.array(JOB.levels)[rng.integers(3, size=8)]))
    ]
    path = csv("a", HEADER, *lines)
    raw = Encoding((Column("age", center=0.0, scale=1.0), JOB), "y", offset="o", weight="w", row_id="id")
    theta_std = rng.standard_normal(5)
    standardised, plain = encode(read(path), ENCODING).X, encode(read(path), raw).X
    np.testing.assert_allclose(plain @ (ENCODING.affine() @ theta_std), standardised @ theta_std, rtol=1e-12)
    assert not np.allclose(plain @ theta_std, standardised @ theta_std)  # the two scales do differ
    assert (ENCODING.standardised, raw.standardised) == (True, False)
    np.testing.assert_array_equal(raw.affine(), np.eye(5))


def test_the_affine_map_without_an_intercept_scales_the_slopes():
    np.testing.assert_array_equal(Encoding((AGE, JOB), "y", intercept=False).affine(), np.diag([0.1, 1, 1, 1]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mapped_matrix_is_used_as_it_is(tmp_path, dtype):
    x = np.random.default_rng(0).standard_normal((50, 4)).astype(dtype)
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", np.arange(50) % 2)
    mapped = table.load(tmp_path)
    columns = tuple(Column(f"x{j + 1}", center=0.0, scale=1.0) for j in range(4))
    made = encode(mapped, Encoding(columns, "y", intercept=False))
    assert made.X is mapped.matrix
    assert isinstance(made.X, np.memmap)
    np.testing.assert_array_equal(encode(mapped, Encoding(columns, "y")).X, np.column_stack([np.ones(50), x]))
    swapped = encode(mapped, Encoding(columns[::-1], "y", intercept=False))
    np.testing.assert_array_equal(swapped.X, x[:, ::-1])


def test_a_bad_row_of_a_mapped_matrix(tmp_path):
    x = np.ones((40_000, 2))
    x[[7, 39_999], [1, 0]] = np.nan, np.inf
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", np.r_[5, np.zeros(39_999)])
    mapped, encoding = (
        table.load(tmp_path),
        Encoding((Column("x1", center=0.0, scale=1.0), Column("x2", center=0.0, scale=1.0)), "y", intercept=False),
    )
    with refusal(OwnFault, "x1", "x2", "y") as fault:
        encode(mapped, encoding)
    assert re.search(r"row 1, column 'y': '5' is not 0 or 1; correct", fault.value.own)
    made = encode(mapped, encoding, private=True)
    assert made.X is mapped.matrix
    assert np.flatnonzero(np.isnan(made.y)).tolist() == [0, 7, 39_999]
    assert [fault.place for fault in made.faults.first] == ["row 1", "row 8", "row 40000"]


# Row faults: what is wrong, and what the error of a job that is not private says.
BAD_ROWS = {
    "nan": ("nan,smith,0,1,p,1", "column 'age': 'nan' is not finite"),
    "inf": ("-inf,smith,0,1,p,1", "column 'age': '-inf' is not finite; correct or remove the row"),
    "overflow": ("1e999,smith,0,1,p,1", "column 'age': .* is not finite"),
    "unparsable": ("thirty,smith,0,1,p,1", "column 'age': 'thirty' is not a number; correct or remove the row"),
    "empty number": (",smith,0,1,p,1", r"column 'age': '' is missing; fill in .* model\.missing = \"impute\""),
    "no number": ("NA,smith,0,1,p,1", "column 'age': 'NA' is missing; fill in the value or remove the row"),
    "unknown level": ("30,sailor,0,1,p,1", r"column 'job': 'sailor' is an unknown level; the levels are clerk, farmer, smith"),
    "empty level": (
        "30,,0,1,p,1",
        r"column 'job': '' is empty; remove the row, or give missing cells a name \(\"\?\"\) \(or set .*\"drop\"",
    ),
    "label": ("30,smith,0,1,p,2", r"column 'y': '2' is not 0 or 1; .*positive"),
    "text label": ("30,smith,0,1,p,yes", "column 'y': 'yes' is not 0 or 1"),
    "no label": (
        "30,smith,0,1,p,",
        r"column 'y': '' is missing; fill in the value or remove the row \(or set model.missing = \"drop\"",
    ),
    "offset": ("30,smith,x,1,p,1", "column 'o': 'x' is not a number"),
    "weight": ("30,smith,0,-1,p,1", "column 'w': '-1' is below zero; weights must be >= 0"),
    "short row": ("30,smith,0", "has 3 cells, the header 6; correct or remove the line"),
    "long row": ("30,smith,0,1,p,1,1", "has 7 cells, the header 6"),
    "stray quote": ('30,"smith,0,1,p,1', "can't be read \\(unexpected end of data\\)"),
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_bad_row_ends_a_job_that_is_not_private(csv, bad):
    line, message = BAD_ROWS[bad]
    path = csv("clinic", HEADER, GOOD, line, GOOD)
    with pytest.raises(OwnFault) as fault:
        encode(read(path), ENCODING, client="b")
    assert re.search(rf"client 'b', .*clinic\.csv, line 3.*{message}", fault.value.own)
    assert fault.value.exit_code == 2
    only_counted(fault.value, line)


def only_counted(fault, line):
    """What other parties read: the client, columns of the job file, how many rows; no line, no path, no cell."""
    text = str(fault)
    assert re.match(r"client 'b', clinic\.csv: rows cannot be used \((column '\w+'|column no\. [12]|the row) .*\); ", text)
    assert not re.search(r"line|\d\d|sailor|thirty|yes|/", text.replace("what is wrong", ""))
    assert all(f"'{cell}'" not in text for cell in line.split(","))


# Without agreement every level is known, and every label where there are two.
@pytest.mark.parametrize("bad", [name for name in BAD_ROWS if name not in ("unknown level", "label")])
def test_a_bad_row_is_found_before_anything_is_sent(csv, bad):
    path = csv("clinic", HEADER, GOOD, BAD_ROWS[bad][0], GOOD, GOOD)
    with pytest.raises(OwnFault) as fault:
        describe(read(path), SPEC, "b")
    assert re.search(r"client 'b', .*clinic\.csv, line 3", fault.value.own)
    only_counted(fault.value, BAD_ROWS[bad][0])
    assert "'age'" not in str(fault.value)
    assert "'job'" not in str(fault.value), "the job file does not name it"


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_bad_row_counts_as_nothing_in_a_private_job(csv, bad):
    line, _ = BAD_ROWS[bad]
    rows = [GOOD, "44,clerk,0,1,q,0", "21,farmer,1,3,r,0"]
    spoilt = encode(read(csv("a", HEADER, rows[0], line, *rows[1:])), ENCODING, private=True)
    without = encode(read(csv("b", HEADER, *rows)), ENCODING, private=True)
    assert spoilt.faults.rows == 1
    assert sum(count for _, count in spoilt.faults.counts) == 1
    assert str(spoilt.faults.first[0]).startswith("line 3")
    assert np.isnan(spoilt.X[1]).all()
    assert np.isnan(spoilt.y[1])
    np.testing.assert_array_equal(np.delete(spoilt.X, 1, axis=0), without.X)
    np.testing.assert_array_equal(np.delete(spoilt.y, 1), without.y)
    np.testing.assert_array_equal(privacy.clip_sum(spoilt.X, 1.0), privacy.clip_sum(without.X, 1.0))


CELLS = st.one_of(
    st.sampled_from(
        [
            "",
            "nan",
            "inf",
            "-inf",
            "1e308",
            "-1e308",
            "1e999",
            "0",
            "1",
            "2",
            "-1",
            "clerk",
            "smith",
            '"',
            "\x00",
            "\ufeff",
            "'",
            "é",
        ]
    ),
    st.text(max_size=12).filter(lambda cell: "\n" not in cell),
    st.floats().map(repr),
)


@settings(max_examples=300, deadline=None)
@given(cells=st.lists(CELLS, min_size=0, max_size=8), rows=st.integers(0, 3))
def test_a_private_encode_never_raises_and_shows_nothing(tmp_path_factory, cells, rows):
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    path.write_text("\n".join([HEADER, *[GOOD] * rows, ",".join(cells)]) + "\n", "utf-8", errors="replace")
    spec = Spec("y", offset="o", weight="w", row_id="id", standardise="public", private=True, columns={"age": AGE, "job": JOB})
    read_table = read(path)
    assert describe(read_table, spec) == design.Summary(("age", "job"), ("numeric", "categorical"))
    made = encode(read_table, ENCODING, private=True)
    n = read_table.n_rows
    assert n - rows in (0, 1)
    assert (made.X.shape, made.y.shape, made.offset.shape, made.weights.shape, made.row_ids.shape) == (
        (n, 5),
        (n,),
        (n,),
        (n,),
        (n,),
    )
    assert {a.dtype for a in (made.X, made.y, made.offset, made.weights)} == {np.dtype(np.float64)}
    whole = np.isfinite(made.y)
    assert whole[:rows].all()
    assert np.isfinite(made.X[whole]).all()
    assert np.isin(made.y[whole], [0, 1]).all()
    assert np.isnan(made.X[~whole]).all()
    assert np.isfinite(np.r_[made.offset, made.weights]).all()
    assert made.faults.rows == (~whole).sum()


@settings(max_examples=200, deadline=None)
@given(cells=st.lists(CELLS, min_size=0, max_size=3), rows=st.integers(0, 3))
def test_a_private_encode_of_numbers_alone_never_raises(tmp_path_factory, cells, rows):
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    path.write_text("\n".join(["age,y", *["30,1"] * rows, ",".join(cells)]) + "\n", "utf-8", errors="replace")
    encoding = Encoding((AGE,), "y")
    made = encode(read(path, encoding), encoding, private=True)
    assert made.X.shape == (len(made.y), 2)
    assert np.isfinite(made.X[np.isfinite(made.y)]).all()
    np.testing.assert_array_equal(made.X[:rows], [[1.0, -1.0]] * rows if rows else np.empty((0, 2)))


@pytest.mark.parametrize(
    ("family", "labels", "bad"),
    [("poisson", ["0", "3", "12"], ["-1", "0.5", "inf", "many"]), ("gaussian", ["-1.5", "3", "1e9"], ["nan", "inf", "many"])],
)
def test_domains_of_other_responses(csv, family, labels, bad):
    encoding = Encoding((AGE,), "y", family=family)
    good = encode(read(csv("a", "age,y", *(f"30,{label}" for label in labels)), encoding), encoding)
    np.testing.assert_array_equal(good.y, [float(label) for label in labels])
    for label in bad:
        path = csv("b", "age,y", f"30,{labels[0]}", f"30,{labels[1]}", f"30,{label}")
        what = "is missing" if label == "nan" else "is not a"
        with pytest.raises(OwnFault, match=rf"rows cannot be used \(column 'y' {what}") as fault:
            encode(read(path, encoding), encoding)
        assert f"line 4, column 'y': '{label}' {what}" in fault.value.own
        assert np.isnan(encode(read(path, encoding), encoding, private=True).y[2])


def test_a_positive_label(csv):
    path = csv("a", "age,y", "30,yes", "31,no", "32,maybe")
    any_label = Encoding((AGE,), "y", positive="yes")
    np.testing.assert_array_equal(encode(read(path, any_label), any_label).y, [1, 0, 0])
    two_labels = Encoding((AGE,), "y", positive="yes", labels=("no", "yes"))
    with pytest.raises(OwnFault) as fault:
        encode(read(path, two_labels), two_labels)
    assert "line 4, column 'y': 'maybe' is not a label; the labels are no, yes" in fault.value.own
    assert not re.search(r"maybe|\bno\b|yes", str(fault.value))
    digits = Encoding((AGE,), "y", positive="2")
    np.testing.assert_array_equal(encode(read(csv("b", "age,y", "30,2", "31,1"), digits), digits).y, [1, 0])


def test_no_rows(csv):
    path = csv("a", HEADER)
    for call in (lambda: encode(read(path), ENCODING, client="a"), lambda: describe(read(path), SPEC, "a")):
        with refusal(JobError, "a", "a.csv"):
            call()
    made = encode(read(path), ENCODING, private=True)
    assert (made.X.shape, made.y.shape, made.row_ids.shape) == ((0, 5), (0,), (0,))
    assert made.notes == ("no usable rows: this client adds nothing",)


@pytest.mark.parametrize("private", [False, True])
def test_what_is_legitimate_is_a_note(csv, private):
    one = encode(read(csv("a", HEADER, GOOD)), ENCODING, private=private)
    assert one.notes == ("one usable row", "fewer usable rows (1) than coefficients (5): the prior decides the rest")
    same = encode(read(csv("b", HEADER, *[GOOD] * 5)), ENCODING, private=private)
    assert same.notes == ("one class only: every y is 1",)
    both = encode(read(csv("c", HEADER, *[GOOD] * 5, "44,clerk,0,1,q,0")), ENCODING, private=private)
    assert (both.notes, both.faults.rows) == ((), 0)


def test_many_faults_are_counted_and_the_first_are_listed(csv):
    path = csv("a", HEADER, *["x,smith,0,1,p,1"] * 1500, *["30,sailor,0,1,p,1"] * 3, GOOD)
    with pytest.raises(OwnFault, match=r"rows cannot be used \(column 'age' is not a number, .* level\)") as fault:
        encode(read(path), ENCODING)
    assert sum(line.startswith("  ") for line in fault.value.own.splitlines()) == LISTED
    assert "'x' is not a number" in fault.value.own.splitlines()[0]
    assert "(1500 rows: line 2, line 3, line 4, line 5, line 6, line 7, ...)" in fault.value.own.splitlines()[0]
    assert "'sailor' is an unknown level" in fault.value.own.splitlines()[1]
    faults = encode(read(path), ENCODING, private=True).faults
    assert (faults.rows, len(faults.first)) == (1503, LISTED)
    assert faults.counts == (("age: is not a number", 1500), ("job: is an unknown level", 3))


def test_missing_columns(csv):
    path = csv("a", "age,job,y", "30,clerk,1")
    for call in (lambda: encode(read(path), ENCODING, client="c"), lambda: describe(read(path), SPEC, "c")):
        with refusal(OwnFault, "c", "a.csv", "o", "3") as fault:
            call()
        assert re.search(
            r"client 'c', /.*a\.csv: column 'o' is missing; there are age, job, y; correct the file, or \[data\]", fault.value.own
        )
    with pytest.raises(JobError, match="no covariate is left beside y; add columns, or an intercept"):
        design.check_header(("y", "age"), Spec("y", ignore=("age",), intercept=False), "a.csv")
    design.check_header(("y",), Spec("y"), "a.csv")


PRIVATE = Spec("y", offset="o", standardise="public", private=True, columns={"age": AGE, "job": JOB})


def test_of_a_private_job_s_file_nothing_is_said_but_the_job_file_s_own_words(csv):
    """A file without its header: its first row must not be read by anybody else, nor how many cells it has."""
    texts = set()
    for k, header in enumerate(["7731.5,zebra,0,0.5", "7731.5,zebra", "age,job,y", "y", "7731.5," * 900 + "1"]):
        with pytest.raises(OwnFault) as fault:
            design.check_header(tuple(header.split(",")), PRIVATE, f"/data/{k}.csv", "c")
        texts.add(str(fault.value))
        assert header.split(",")[0] in fault.value.own
    (text,) = texts
    assert text.startswith("client 'c': the file is not what [data] describes, a table whose header names 'y', 'o', 'age', 'job'")


def test_a_private_job_declares_every_covariate(csv):
    with pytest.raises(OwnFault) as fault:
        design.check_header(("age", "job", "o", "zip", "ward", "y"), PRIVATE, "/data/a.csv", "c")
    for words in ('kind = "categorical", levels = [..]', 'kind = "numeric", with center and scale', "it does for 'age', 'job'"):
        assert words in str(fault.value)
        assert words in fault.value.own
    for name in ("zip", "ward"):
        assert name not in str(fault.value)
        assert f"{name!r} = {{kind" in fault.value.own, "all at once"
    half = {"age": Column("age"), "job": Column("job", "categorical"), "bmi": Column("bmi", center=0.0, scale=1.0)}
    with refusal(JobError, "bmi", "age", "job"):
        Spec("y", standardise="public", private=True, columns=half)
    with refusal(JobError, "age", "bmi", "job"):
        Spec("y", standardise="none", private=True, columns=half)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("ages", [[], ["x"], ["x", "z"], ["x", "30"], ["30"], [None, None]], ids=str)
def test_what_a_column_holds_is_said_to_the_holder_alone(tmp_path, kind, ages):
    """One good row more or less, an empty client, a type that one cell decides: others see the same."""
    if None in ages and kind == "npz":
        pytest.skip("an array of objects is no file that is read")
    path = tmp_path / f"a.{kind}"
    columns = {"age": ages, "job": ["clerk"] * len(ages), "o": [0.0] * len(ages), "y": [1] * len(ages)}
    if kind == "csv":
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*columns.values())]
        path.write_text("\n".join(["age,job,o,y", *lines]) + "\n")
    elif kind == "parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        np.savez(path, **{name: np.array(cells) for name, cells in columns.items()})
    file = table.load(path, text=PRIVATE.texts)
    assert describe(file, PRIVATE, "c") == design.Summary(("age", "job"), ("numeric", "categorical"))
    made = encode(file, PRIVATE.encoding(tuple(PRIVATE.columns.values())), private=True)
    assert np.isfinite(made.y).sum() == ages.count("30")
    none = f"column 'age': none of its {len(ages)} cells is a number: every row counts as nothing"
    assert (none in made.notes) is (bool(ages) and "30" not in ages)


def wards(n, each):
    return [f"ward-{k % n}" for k in range(n * each)]


@pytest.mark.parametrize(
    ("cells", "levels"),
    [
        (wards(60, 1), 60),
        (wards(40, 2), 40),
        (wards(51, 3), 51),
        ([*wards(3, 5), "p1", "p2", "p3", "p4"], 7),
        ([*wards(3, 5), "p1", "p1"], 4),
        (["clerk"], 1),
    ],
)
def test_a_column_that_names_its_rows_is_refused_unless_declared(csv, cells, levels):
    path = csv("a", "ward,age,y", *(f"{cell},{k},{k % 2}" for k, cell in enumerate(cells)))
    with pytest.raises(OwnFault) as fault:
        describe(table.load(path), Spec("y"), "c")
    assert str(fault.value).startswith("client 'c': refused by a disclosure rule; ")
    assert f"may say who the rows are: 'ward' ({levels} levels)" in fault.value.own
    declared = Spec("y", columns={"ward": Column("ward", "categorical")})
    assert describe(table.load(path, text=declared.texts), declared, "c").levels["ward"] == tuple(sorted(set(cells)))
    assert describe(table.load(path), Spec("y", ignore=("ward",)), "c").levels == {}


@pytest.mark.parametrize("cells", [wards(50, 3), [*wards(3, 5), "p1", "p1", "p1"], ["f"] * 9])
def test_ordinary_levels_are_not_refused(csv, cells):
    path = csv("a", "ward,y", *(f"{cell},{k % 2}" for k, cell in enumerate(cells)))
    assert describe(table.load(path), Spec("y"), "c").levels["ward"] == tuple(sorted(set(cells)))


def test_labels_that_cannot_be_do_not_leave(csv):
    for labels in (["ann", "bob", "yes"], ["ann", "bob"]):
        path = csv("a", "age,y", *(f"{k},{label}" for k, label in enumerate(labels * 3)))
        spec = Spec("y", positive="yes")
        with refusal(OwnFault, "y", "yes") as fault:
            describe(table.load(path, text=spec.texts), spec, "c")
        assert not re.search(r"ann|bob|\d", str(fault.value)), "no count of them either"
        assert f"{len(labels)} different labels (ann, bob" in fault.value.own


def test_public_constants_are_asked_for_all_at_once(csv):
    path = csv("a", "age,bmi,zip,job,y", *(f"30,1,7,{job},0" for job in ["clerk", "smith"] * 3))
    spec = Spec("y", standardise="public", columns={"age": AGE, "bmi": Column("bmi")})
    with refusal(OwnFault, "bmi", "3") as fault:
        describe(table.load(path), spec, "c")
    assert "zip" not in str(fault.value)
    assert "'bmi', 'zip'" in fault.value.own


def test_a_graph_s_file_that_begins_with_a_row(csv):
    path = csv("a", "7731.5,0.25,zebra", "1,2,3")
    with pytest.raises(OwnFault, match="2 of the 3 names in the header are numbers, as if it were a row") as fault:
        describe(table.load(path), Spec(None, standardise="none"), "c")
    assert not re.search("7731|zebra", str(fault.value))
    assert "7731.5, 0.25" in fault.value.own
    named = Spec(None, standardise="none", columns={name: Column(name) for name in ("7731.5", "0.25", "zebra")})
    assert describe(table.load(path), named, "c").names == ("7731.5", "0.25", "zebra")


def test_a_summary_of_a_job_that_is_not_private(csv):
    path = csv("a", "age,job,zip,skip,y", *["30,smith,7,1,no", "31,clerk,07,2,yes"] * 3)
    spec = Spec("y", positive="yes", ignore=("skip",), columns={"zip": Column("zip", "categorical")})
    summary = describe(table.load(path, text=spec.texts), spec)
    assert (summary.names, summary.kinds) == (("age", "job", "zip"), ("numeric", "categorical", "categorical"))
    assert summary.levels == {"job": ("clerk", "smith"), "zip": ("07", "7")}
    assert summary.labels == ("no", "yes")
    np.testing.assert_array_equal(summary.numeric, [[30.0], [31.0]] * 3)


def test_a_summary_of_a_mapped_matrix_is_the_map(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((5, 3)))
    np.save(tmp_path / "y.npy", np.zeros(5))
    mapped = table.load(tmp_path)
    assert describe(mapped, Spec("y")).numeric is mapped.matrix
    assert describe(mapped, Spec("y", standardise="none")).numeric is None


def test_a_stored_type_is_a_fault_of_the_file_unless_the_job_is_private(tmp_path):
    parquet.write_table(pa.table({"age": ["30", "x"], "y": [0, 1]}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", age=np.array(["30", "x"]), y=np.array([0, 1]))
    for path in (tmp_path / "a.parquet", tmp_path / "a.npz"):
        with refusal(JobError, "b", "age"):
            describe(table.load(path), Spec("y", columns={"age": AGE}), "b")
        assert describe(table.load(path), Spec("y", ignore=("age",), standardise="none")).names == ()
        private = Spec("y", private=True, standardise="none", columns={"age": AGE})
        assert describe(table.load(path), private).names == ("age",)
        made = encode(table.load(path), Encoding((AGE,), "y"), private=True)
        np.testing.assert_array_equal(np.isnan(made.y), [False, True])
