"""Files to columns: every type gives the same table, and a fault of the file names the file and the remedy."""

import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from fedkern.data import table
from fedkern.data.cells import as_text, floats
from fedkern.data.formula import with_calculated
from fedkern.errors import JobError, OwnFault
from fedkern.models.encoding import Spec
from support.refusal import refusal

AGE, JOB, Y = [31.5, 40.0, 27.25], ["clerk", "smith", "clerk"], [1.0, 0.0, 1.0]


def write(path, kind):
    if kind == "csv":
        path.write_text("age,job,y\n" + "".join(f"{a},{j},{y}\n" for a, j, y in zip(AGE, JOB, Y)))
    elif kind == "tsv":
        path.write_text("age\tjob\ty\n" + "".join(f"{a}\t{j}\t{y}\n" for a, j, y in zip(AGE, JOB, Y)))
    elif kind == "parquet":
        parquet.write_table(pa.table({"age": AGE, "job": JOB, "y": Y}), path)
    else:
        np.savez(path, age=np.array(AGE), job=np.array(JOB), y=np.array(Y))


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "npz"])
def test_every_type_gives_the_same_columns(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    write(path, kind)
    assert table.header(path) == ("age", "job", "y")
    read = table.load(path)
    assert (read.names, read.n_rows) == (("age", "job", "y"), 3)
    np.testing.assert_array_equal(read.columns["age"], AGE)
    np.testing.assert_array_equal(read.columns["y"], Y)
    assert read.columns["job"].levels == ("clerk", "smith")
    assert [read.text("job", i) for i in range(3)] == JOB


def test_csv_as_people_write_it(csv):
    lines = [
        "\ufeff age , job,zip,note",
        '30, "clerk, senior",01001,"say ""hi"""',
        "",
        " 1e3 ,smith,1_2,x\r",
        '-.5,"clerk, senior",7,',
    ]
    read = table.load(csv("a", *lines), text=["zip"])
    assert read.names == ("age", "job", "zip", "note")
    np.testing.assert_array_equal(read.columns["age"], [30.0, 1000.0, -0.5])
    assert read.columns["job"].levels == ("clerk, senior", "smith")
    assert read.columns["zip"].levels == ("01001", "1_2", "7")
    assert read.columns["note"].levels == ('say "hi"', "x", "")
    assert [read.place(i) for i in range(3)] == ["line 2", "line 4", "line 5"]


def test_a_cell_with_an_underscore_is_no_number(csv):
    read = table.load(csv("a", "area,y", "1_2,0", "12,1")).columns["area"]
    assert read.levels == ("1_2", "12")
    np.testing.assert_array_equal(read.numbers(), [np.nan, 12.0])


def test_a_stray_quote_spoils_its_own_line_only(csv):
    read = table.load(csv("a", "age,job,y", "30,clerk,1", '31,"clerk,0', "32,smith,1", "33,1", "34,a,b,1"))
    assert read.n_rows == 5
    assert read.broken == {
        1: "can't be read (unexpected end of data)",
        3: "has 2 cells, the header 3",
        4: "has 4 cells, the header 3",
    }
    assert read.text("job", 2) == "smith"


def test_an_enormous_cell_is_a_broken_row_and_not_an_exception(csv):
    read = table.load(csv("a", "age,y", f'"{"9" * 200_000}",1', "31,0"))
    assert "field larger than field limit" in read.broken[0]
    assert read.text("age", 1) == "31"


def test_bytes_that_are_not_utf8_spoil_their_own_line_and_are_no_level(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"age,job\n30,M\xfcller\n31,clerk\n32,M\xf6ller\n33,a\0b\n34,\xef\xbb\xbfclerk\n")
    read = table.load(path)
    assert {row: why.split(";")[0] for row, why in read.broken.items()} == {
        0: "can't be read (has bytes that are not UTF-8",
        2: "can't be read (has bytes that are not UTF-8",
        3: "can't be read (has zero bytes",
    }
    assert read.columns["job"].levels == ("", "clerk")


def test_one_letter_that_can_be_written_in_two_ways_is_one_level_and_half_a_letter_is_its_own(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("o\u0308rt,y\nK\u00f6ln,1\nKo\u0308ln,2\nKoln,3\nК\u043eln,4\n", "utf-8")
    read = table.load(path)
    assert read.names == ("\u00f6rt", "y")
    assert read.columns["\u00f6rt"].levels == ("K\u00f6ln", "Koln", "К\u043eln")  # other alphabets are other letters
    assert len(as_text(["a\ud800", "a\ud801", "a"]).levels) == 3


def test_text_after_a_closing_quote_is_no_part_of_the_cell(csv):
    read = table.load(csv("a", "job,y", '"A"B,1', "AB,2", '5" pipe,3'))
    assert read.broken == {0: "can't be read (',' expected after '\"')"}
    assert read.columns["job"].levels == ("", "AB", '5" pipe')


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2", "x"], "numeric"),  # a mistake among numbers
        (["1", "NA", ""], "numeric"),
        (["", "", ""], "numeric"),
        (["1", "x", "y"], "categorical"),
        (["a", "", "NA"], "categorical"),
        (["0", "1", "2", "3+"] * 3, "categorical"),  # few values
        (["0", "1", "2", "2", "2", "2", "2", "3+"], "numeric"),  # each in fewer than three rows
        (["0", "1", "?"] * 9, "numeric"),  # no word
        (["0", "1", "NA"] * 9, "numeric"),
        (["1,5", "2", "1"] * 9, "numeric"),
        ([*map(str, range(50))] * 10 + ["12a"], "numeric"),  # a mistake among many values
        ([*map(str, range(20))] * 10 + ["12a"], "numeric"),
        ([*map(str, range(19))] * 10 + ["12a"], "categorical"),
    ],
)
def test_a_column_with_a_word_is_of_categories_if_it_has_few_values(cells, kind):
    assert as_text(cells).kind() == kind
    assert as_text(cells).mixed == (kind == "categorical" and "0" in cells + ["0"] * ("1" in cells))


def test_npy_pairs_are_mapped_and_not_read(tmp_path):
    x, y = np.random.default_rng(1).standard_normal((6, 3)), np.array([0, 1, 0, 1, 1, 0])
    np.save(tmp_path / "a.X.npy", x)
    np.save(tmp_path / "a.y.npy", y)
    (tmp_path / "a.columns.txt").write_text("age\nheight\nweight\n")
    read = table.load(tmp_path / "a.X.npy", response="ill")
    assert read.names == table.header(tmp_path / "a.X.npy", response="ill") == ("age", "height", "weight", "ill")
    assert isinstance(read.matrix, np.memmap)
    assert all(np.shares_memory(read.columns[name], read.matrix) for name in read.matrix_names)
    np.testing.assert_array_equal(read.matrix, x)
    np.testing.assert_array_equal(read.columns["ill"], y)


def test_npy_folder_and_npz_matrix(tmp_path):
    x, y = np.arange(8.0).reshape(4, 2), np.array([0.0, 1.0, 1.0, 0.0])
    folder = tmp_path / "clinic"
    folder.mkdir()
    np.save(folder / "X.npy", x)
    np.save(folder / "y.npy", y)
    assert table.load(folder).names == table.header(folder) == ("x1", "x2", "y")
    np.savez(tmp_path / "a.npz", X=x, y=y, columns=np.array(["age", "dose"]))
    read = table.load(tmp_path / "a.npz")
    assert read.names == table.header(tmp_path / "a.npz") == ("age", "dose", "y")
    assert read.matrix_names == ("age", "dose")
    np.testing.assert_array_equal(read.matrix, x)


def test_types_of_a_parquet_file(tmp_path):
    columns = {
        "area": [3.0, 4.0, 3.0],
        "code": [7, 8, None],
        "flag": [True, False, None],
        "when": pa.array([1, 2, 3], pa.date32()),
    }
    columns |= {"dose": pa.array([1, 2**62 + 1, None], pa.int64()), "cost": pa.array([1, 2, 3]).cast(pa.decimal128(30, 2))}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    read = table.load(tmp_path / "a.parquet", text=["area", "code"])
    assert read.columns["area"].levels == ("3", "4")
    assert read.columns["code"].levels == ("7", "8", "")
    assert read.columns["when"].tolist() == [1, 2, 3]  # days since 1970, as R has dates
    assert table.load(tmp_path / "a.parquet", text=["when"]).columns["when"].levels[0] == "1970-01-02"
    assert read.columns["flag"].levels == ("True", "False", "")
    np.testing.assert_array_equal(read.columns["flag"].numbers(), [1, 0, np.nan])
    np.testing.assert_array_equal(read.columns["dose"], [1, 2.0**62, np.nan])
    np.testing.assert_array_equal(read.columns["cost"], [1, 2, 3])
    assert not read.texts


def test_rows_of_a_table(csv):
    read = table.load(csv("a", "age,job,y", "30,a,1", "31", "32,b,0", "33,c,0"))
    part = read.select(np.array([3, 1]), "a part")
    assert (part.source, part.n_rows, part.text("job", 0)) == ("a part", 2, "c")
    assert (part.broken, part.lines) == ({1: "has 1 cells, the header 3"}, [5, 3])


def test_clients_are_found_and_named(tmp_path):
    for name in ("b.csv", "a.csv", "c.X.npy", "c.y.npy"):
        (tmp_path / name).write_text("x")
    assert list(table.find(["*.csv", "*.npy"], tmp_path)) == ["a", "b", "c"]
    assert table.find([str(tmp_path / "a.csv")])["a"] == tmp_path / "a.csv"
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.csv").write_text("x")
    with pytest.raises(JobError, match="would both be client 'a'; rename one"):
        table.find(["*.csv", "more/*.csv"], tmp_path)
    with pytest.raises(JobError, match=r"no file matches '\*\.parquet'.*check the pattern"):
        table.find(["*.parquet"], tmp_path)


@pytest.mark.parametrize("read", [table.load, table.header])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "no header; the first line must name the columns"),
        ("a.csv", b",age,y\n0,1,1\n", "column 1 has no name; name it in the header"),
        ("a.csv", b"age,y,age\n1,1,1\n", "two columns are called 'age'; rename one"),
        ("a.csv", b"ag\xe9,y\n1,1\n", "the header has bytes that are not UTF-8; .*save it as UTF-8"),
        ("a.csv", b"age;y\n1,5;1\n", r'semicolons; set .data.dialect. delimiter = ";" .and decimal = "," .*, or save it with c'),
        ("a.csv", b'"a,b";y\n1;1\n', "separated by semicolons"),
        ("a.csv", b"age\ty\n1\t1\n", "separated by tabs; set .data.dialect. delimiter = .* .or name it .tsv"),
        ("a.csv", b"age|y\n1|1\n", "separated by bars"),
        ("a.tsv", b"age,y\n1,1\n", 'separated by commas; name it .csv, or set .data.dialect. delimiter = ",", or save it with t'),
        ("a.csv", "age,y\n1,1\n".encode("utf-16"), "is UTF-16 or no text at all; save it as UTF-8"),
        ("a.csv", "age,y\n1,1\n".encode("utf-16-le"), "is UTF-16 or no text at all; save it as UTF-8"),
        ("a.csv", "age,y\n1,1\n".encode("utf-32"), "is UTF-16 or no text at all; save it as UTF-8"),
        ("a.xlsx", b"", "unknown type '.xlsx'; there are csv"),
        ("a.parquet", b"nonsense", "not a parquet file"),
        ("a.npz", b"nonsense", "not a npz file of plain arrays"),
        ("a.X.npy", b"nonsense", "not a npy file of a plain array"),
        ("a.npy", b"nonsense", "needs a name that ends in .X.npy"),
    ],
)
def test_faults_of_a_file(tmp_path, name, content, message, read):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(JobError) as fault:
        read(tmp_path / name)
    own = getattr(fault.value, "own", str(fault.value))
    assert re.search(message, own)
    assert own.startswith(str(tmp_path))
    assert fault.value.exit_code == 2


@pytest.mark.parametrize("read", [table.load, table.header])
@pytest.mark.parametrize("row", [b"7731.5,7731.5,0\n", b"7731.5,,zebra\n"])
def test_a_row_where_the_header_should_be_is_its_owner_s_alone(tmp_path, row, read):
    (tmp_path / "a.csv").write_bytes(row * 3)
    with pytest.raises(OwnFault) as fault:
        read(tmp_path / "a.csv")
    assert not re.search("7731|zeb", str(fault.value))
    assert re.search(r"7731|zeb|column 2|0xe9", fault.value.own)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
def test_lines_may_end_in_any_way(tmp_path, end):
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["age,job,y", "30,a\u2028b,1", "", "31,b,0", ""]).encode())
    read = table.load(path)
    assert table.header(path) == read.names == ("age", "job", "y")
    np.testing.assert_array_equal(read.columns["age"], [30.0, 31.0])
    assert read.columns["job"].levels == ("a\u2028b", "b")
    assert not read.broken


def test_a_carriage_return_in_a_cell_is_no_line_end(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"age,y\n30,1\n3\r1,0\n")
    read = table.load(tmp_path / "a.csv")
    assert (read.n_rows, read.columns["age"].levels) == (2, ("30", "3\r1"))


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
@pytest.mark.parametrize("length", range(16380, 16390))
def test_a_header_is_read_up_to_its_line_end_wherever_a_block_ends(tmp_path, end, length):
    name = b"a" * (length - 2)
    (tmp_path / "a.csv").write_bytes(name + b",y" + end + b"1,0" + end)
    assert table.header(tmp_path / "a.csv") == (name.decode(), "y") == table.load(tmp_path / "a.csv").names


def test_files_that_are_not_there(tmp_path):
    with refusal(JobError, "nowhere.csv"):
        table.load("nowhere.csv")
    np.save(tmp_path / "X.npy", np.zeros((2, 2)))
    with refusal(JobError, "y.npy"):
        table.load(tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros(3), np.zeros(3), r"needs numbers of shape \(n, p\), got float64 \(3,\)"),
        (np.zeros((3, 2)), np.zeros(4), r"y\.npy: needs shape \(3,\) as X has 3 rows, got \(4,\)"),
        (np.array([["a"]]), np.zeros(1), r"needs numbers of shape \(n, p\), got <U1"),
        (np.array([[None]]), np.zeros(1), "not a npy file of a plain array"),
    ],
)
def test_arrays_of_the_wrong_shape_or_type(tmp_path, x, y, message):
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(OwnFault) as fault:
        table.load(tmp_path)
    assert re.search(message, fault.value.own)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, "columns of different lengths: a 3, b 4"),
        ({"a": np.zeros((3, 2))}, r"member 'a' has shape \(3, 2\); a column needs \(n,\)"),
        ({"a": np.zeros(3, complex)}, "column 'a' has type complex128; numbers, truth values and texts can be used"),
        ({"X": np.zeros((3, 2)), "columns": np.array(["u"])}, "1 column names for an X of 2 columns"),
    ],
)
def test_npz_members_of_the_wrong_shape_or_type(tmp_path, members, message):
    np.savez(tmp_path / "a.npz", **members)
    with pytest.raises(OwnFault) as fault:
        table.load(tmp_path / "a.npz")
    assert re.search(message, fault.value.own)
    assert not re.search(r"\d|'", str(fault.value)), "neither names nor numbers of rows"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(JobError, match=r"parquet files need pyarrow; pip install 'fedkern\[parquet\]'"):
        table.load(tmp_path / "a.parquet")


def test_both_csv_parsers_give_the_same_bits(csv):
    rng = np.random.default_rng(8)
    values = np.r_[
        rng.standard_normal(200) * 10.0 ** rng.integers(-300, 300, 200), 5e-324, 1.7976931348623157e308, -0.0, np.inf, np.nan
    ]
    lines = [f" {value!r},{j}\r" for j, value in enumerate(values.tolist())]
    fast, slow = table.load(csv("a", "x,k", *lines)), table.load(csv("b", "x,k", *lines), text=["k"])
    assert fast.columns["x"].tobytes() == slow.columns["x"].tobytes() == values.tobytes()
    assert isinstance(slow.columns["k"], table.Text)
    assert fast.lines == slow.lines


@pytest.mark.parametrize("read", [table.load, table.header])
def test_a_pipe_and_a_loop_of_links_do_not_hang(tmp_path, read):
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "b.csv").symlink_to("b.csv")
    for name, message in (
        ("a.csv", "is a pipe or a device, not a file"),
        ("b.csv", "cannot be read .Too many levels"),
        (f"{'x' * 300}.csv", "cannot be read .File name too long"),
        ("c\0.csv", "is no path"),
    ):
        with pytest.raises(JobError, match=message):
            read(tmp_path / name)


@pytest.mark.parametrize("typed", [False, True])
def test_an_event_before_the_first_visit_has_no_beginning(tmp_path, typed):
    """As R's interval2 has it: NA and the first visit."""
    rows = pa.table({"left": [None, 3.0, None], "right": [2.0, 5.0, None], "died": [1, 1, 0]})
    path = tmp_path / ("a.parquet" if typed else "a.csv")
    if typed:
        parquet.write_table(rows, path)
    else:
        path.write_text("left,right,died\n,2,1\n3,5,1\n,,0\n")
    spec = Spec("died", "bernoulli", standardise="none", times=("left",), upper="right")
    read = with_calculated(table.load(path), spec)
    np.testing.assert_array_equal(floats(read.columns["left"]), [0, 3, np.nan])


def test_texts_that_look_like_numbers_are_labels_where_they_are_few(tmp_path):
    columns = {"race": ["1", "2", "3"] * 4, "weight": [str(1.5 * k) for k in range(12)], "dose": ["1,5", "2,5", "3,5"] * 4}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    read = table.load(tmp_path / "a.parquet")
    assert {name: read.columns[name].kind() for name in columns} == {
        "race": "categorical",
        "weight": "numeric",
        "dose": "numeric",
    }
