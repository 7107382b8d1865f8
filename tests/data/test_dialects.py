"""Files as hospitals export them: each is read, with the key that it needs, or refused with that key's name."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.exchanges.compare import spellings
from fedkern.data import mark, table
from fedkern.data.cells import Text
from fedkern.data.dialect import Dialect
from fedkern.errors import JobError
from support import few

METHODS: dict[str, dict[str, Any]] = {
    "pvi": {"job": {"rounds": 2}, "data": {"response": "y"}},
    "sparse": {"job": {"method": "sparse", "rounds": 20}, "data": {"response": "y"}, "algorithm": {"chains": 2}},
}


def plain(seed: int, *, only: str = "") -> str:
    """A file with a number, a category with umlauts and a response."""
    random = np.random.default_rng(seed)
    wards = ["Köln", "Münster", "Ärzte"] + ([only] if only else [])
    lines = [f"{random.normal(60, 9):.2f},{wards[k % len(wards)]},{int(random.random() < 0.5)}" for k in range(12 * len(wards))]
    return "\n".join(["größe,ward,y", *lines]) + "\n"


def written(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def semicolons(text: str) -> str:
    return text.replace(",", ";")


def german(text: str) -> str:
    return text.replace(",", ";").replace(".", ",")


# name -> the file's name, what it holds, the keys that it needs, what is said without them
ODD: dict[str, tuple[str, Callable[[str], bytes], dict[str, Any], str]] = {
    "semicolons": ("b.csv", lambda t: semicolons(t).encode(), {"delimiter": ";"}, r'set \[data.dialect\] delimiter = ";"'),
    "decimal commas": (
        "b.csv",
        lambda t: german(t).encode(),
        {"delimiter": ";", "decimal": ","},
        r'delimiter = ";" \(and decimal = ","',
    ),
    "Latin-1": ("b.csv", lambda t: t.encode("latin-1"), {"encoding": "latin-1"}, r'set \[data.dialect\] encoding = "latin-1"'),
    "UTF-16": ("b.csv", lambda t: t.encode("utf-16"), {"encoding": "utf-16"}, r'set \[data.dialect\] encoding = "utf-16"'),
    "CR": ("b.csv", lambda t: t.replace("\n", "\r").encode(), {}, ""),
    "gz": ("b.csv.gz", lambda t: gzip.compress(t.encode()), {}, ""),
    "byte-order mark": ("b.csv", lambda t: t.encode("utf-8-sig"), {}, ""),
}


def both(folder: Path, odd: str) -> list[str]:
    """One plain file and one odd one."""
    name, of, _, _ = ODD[odd]
    written(folder, name, of(plain(2)))
    return [str(folder / "b.csv*")]


@pytest.fixture(scope="module", params=METHODS)
def wanted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """A job, and its digest on plain files."""
    folder = tmp_path_factory.mktemp("plain")
    written(folder, "b.csv", plain(2).encode())
    job = METHODS[request.param]
    return job, run(job, [str(folder / "b.csv")]).digest


def run(job: dict[str, Any], clients: list[str], **dialect: Any) -> Any:
    data = job["data"] | {"clients": clients} | ({"dialect": dialect} if dialect else {})
    return fedkern.run({**job, "data": data})


@pytest.mark.parametrize("odd", ODD)
def test_it_runs_with_its_key_and_says_so_without(wanted: tuple[dict[str, Any], str], tmp_path: Path, odd: str) -> None:
    job, digest = wanted
    clients, keys = both(tmp_path, odd), ODD[odd][2]
    result = run(job, clients, **keys)
    assert result.digest == digest
    assert [*result.summary["clients"]] == ["b"]
    if keys:
        with pytest.raises(JobError, match=ODD[odd][3]) as fault:
            run(job, clients)
        assert "Köln" not in str(fault.value)


def split(folder: Path, odd: str) -> dict[str, Any]:
    """A vertical job on the same rows: a client's columns and the server's, both files written alike."""
    name, of, keys, _ = ODD[odd] if odd else ("b.csv", str.encode, {}, "")
    lines = [line.split(",") for line in plain(2).splitlines()]
    ids = ["id", *(f"r{k}" for k in range(1, len(lines)))]
    for stem, kept in (("b", slice(0, 2)), ("server", slice(2, 3))):
        text = "\n".join(",".join([one, *line[kept]]) for one, line in zip(ids, lines)) + "\n"
        written(folder, name.replace("b", stem, 1), of(text))
    files = {"clients": [str(folder / name)], "server": str(folder / name.replace("b", "server", 1))}
    data = {"id": "id", "response": "y", "dialect": keys, **files}
    return {"job": {"method": "vertical", "rounds": 5}, "data": data}


@pytest.mark.parametrize("odd", ODD)
def test_a_vertical_job_reads_them_too(tmp_path: Path, odd: str) -> None:
    assert fedkern.run(split(tmp_path / "odd", odd)).digest == fedkern.run(split(tmp_path / "plain", "")).digest


@pytest.mark.parametrize("job", METHODS.values(), ids=METHODS)
def test_one_empty_cell_is_refused_with_the_key_to_set(tmp_path: Path, job: dict[str, Any]) -> None:
    lines = plain(2).splitlines()
    lines[5] = "," + lines[5].partition(",")[2]
    written(tmp_path, "b.csv", "\n".join(lines).encode())
    with pytest.raises(JobError, match=r"rows cannot be used \(.* is missing\).*missing = "):
        run(job, [str(tmp_path / "b.csv")])


def test_a_level_at_one_site_only(tmp_path: Path) -> None:
    written(tmp_path, "a.csv", plain(1).encode())
    written(tmp_path, "b.csv", plain(2, only="Süd").encode())
    names = run(METHODS["pvi"], [str(tmp_path / "*.csv")]).parameters
    assert "theta[ward=Süd]" in names


def test_numbers_with_decimal_commas_are_never_levels(tmp_path: Path) -> None:
    """Also where half of them are whole numbers, or the file has but a few."""
    rows = [f"{k}{f',{7 * k}513' if k % 2 else ''};{k // 2 % 2}" for k in range(20)]
    written(tmp_path, "b.csv", "\n".join(["x;y", *rows]).encode())
    with pytest.raises(JobError, match=r'if numbers have decimal commas set \[data.dialect\] decimal = ","'):
        run(METHODS["pvi"], [str(tmp_path / "b.csv")], delimiter=";")
    found = run(METHODS["pvi"], [str(tmp_path / "b.csv")], delimiter=";", decimal=",")
    assert {name for name in found.parameters if "x" in name} == {"theta[x]", "theta_std[x]"}


def test_a_point_among_decimal_commas_may_be_of_thousands(tmp_path: Path) -> None:
    rows = [f"{k},5;{k % 2}" for k in range(20)]
    written(tmp_path, "b.csv", "\n".join(["x;y", *rows, "1.234;1", "1.234,5;0"]).encode())
    with pytest.raises(JobError, match="rows cannot be used"):
        run(METHODS["pvi"], [str(tmp_path / "b.csv")], delimiter=";", decimal=",")
    read = table.load(tmp_path / "b.csv", dialect=Dialect(";", ","))
    assert np.isnan(read.columns["x"].numbers()[-2:]).all()  # type: ignore[union-attr]


def test_texts_keep_their_commas(tmp_path: Path) -> None:
    written(tmp_path, "b.csv", b"code;x\n1,5;1,5\n2,5;2,5\n")
    read = table.load(tmp_path / "b.csv", text=["code"], dialect=Dialect(";", ","))
    assert read.cells("code") == ["1,5", "2,5"]
    assert read.columns["x"].tolist() == [1.5, 2.5]  # type: ignore[union-attr]


def test_words_for_what_is_missing(tmp_path: Path) -> None:
    written(tmp_path, "b.csv", b"x,g,y\n1,a,0\n-9,b,1\n3,unknown,1\n")
    read = table.load(tmp_path / "b.csv", dialect=Dialect(missing=("-9", "unknown")))
    assert read.cells("g") == ["a", "b", ""]
    assert np.isnan(read.columns["x"].numbers()[1])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("decimal", "cells"), [(".", ["-9.0", "-9", "-9.00", "-9.5", "-90.0"]), (",", ["-9,0", "-9", "-9,", "-9,5", "-90,0"])]
)
def test_a_code_that_is_written_with_zeros_is_the_same_code(decimal: str, cells: list[str], tmp_path: Path) -> None:
    """As programs write a column that also has decimals, or an empty cell; a level 09 is no 9."""
    codes = [*cells, "1", "2"]
    rows = [f"{cell};{level}" for cell, level in zip(codes, ["09", "9", "9" + decimal + "0", "a", "b", "c", "d"])]
    written(tmp_path, "b.csv", "\n".join(["x;g", *rows, ""]).encode())
    read = table.load(tmp_path / "b.csv", dialect=Dialect(delimiter=";", decimal=decimal, missing=("-9", "9.0")))
    assert [cell == "" for cell in read.cells("x")] == [True, True, True, False, False, False, False]
    assert read.cells("g")[:2] == ["09", "" if decimal == "." else "9"]


def test_no_lost_letter_enters_a_level(tmp_path: Path) -> None:
    """Neither from a file that has lost them already, nor from one that is read in another encoding than its own."""
    text = plain(2).replace("Köln", "K�ln")
    written(tmp_path, "lost.csv", text.encode())
    with pytest.raises(JobError, match=r"rows cannot be used \(the row has the character U\+FFFD"):
        run(METHODS["pvi"], [str(tmp_path / "lost.csv")])
    written(tmp_path, "other.csv", plain(2).replace("größe", "h").encode("latin-1"))
    with pytest.raises(JobError, match=r"rows cannot be used"):
        run(METHODS["pvi"], [str(tmp_path / "other.csv")], encoding="utf-8")
    written(tmp_path, "head.csv", plain(2).encode("latin-1"))
    with pytest.raises(JobError, match=r"the header has the character U\+FFFD"):
        run(METHODS["pvi"], [str(tmp_path / "head.csv")], encoding="utf-8")


def test_in_a_private_job_lost_letters_spoil_their_rows_alone(tmp_path: Path) -> None:
    written(tmp_path, "b.csv", plain(2).replace("größe", "h").replace("Köln", "K�ln").encode())
    columns = {"h": {"center": 60.0, "scale": 9.0}, "ward": {"levels": ["Köln", "Münster", "Ärzte"]}}
    job: dict[str, Any] = {
        "job": {"rounds": 1},
        "data": {"response": "y", "columns": columns, "standardise": "public"},
        "privacy": {"epsilon": 3.0, "delta": 1e-5, "clip": 2.0, "noise_multiplier": 4.0, "sampling_rate": 0.2},
    }
    assert run(job, [str(tmp_path / "b.csv")]).summary["rounds"] == 1


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        ({"delimiter": ";;"}, 'data.dialect.delimiter = ";;": wanted one character'),
        ({"delimiter": "a"}, "wanted one character"),
        ({"encoding": "latin-99"}, 'data.dialect.encoding = "latin-99": wanted an encoding that Python knows'),
        ({"encoding": "rot13"}, "wanted an encoding that Python knows"),
        ({"delimiter": ",", "decimal": ","}, "wanted a delimiter that is not the decimal sign, too"),
        ({"decimal": ";"}, 'data.dialect.decimal = ";": wanted "." or ","'),
        ({"delimitter": ";"}, "did you mean data.dialect.delimiter"),
    ],
)
def test_a_dialect_that_is_none(tmp_path: Path, dialect: dict[str, Any], said: str) -> None:
    written(tmp_path, "b.csv", plain(2).encode())
    with pytest.raises(JobError) as fault:
        run(METHODS["pvi"], [str(tmp_path / "b.csv")], **dialect)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        ({"delimiter": ";"}, r'its cells are separated by commas; set \[data.dialect\] delimiter = ","'),
        ({"encoding": "utf-16"}, r"the header has the character U\+FFFD, .* or correct \[data.dialect\] encoding"),
        ({"decimal": ",", "delimiter": "|"}, r'set \[data.dialect\] delimiter = ","'),
    ],
)
def test_a_dialect_that_does_not_fit(tmp_path: Path, dialect: dict[str, Any], said: str) -> None:
    written(tmp_path, "b.csv", plain(2).encode())
    with pytest.raises(JobError, match=said):
        run(METHODS["pvi"], [str(tmp_path / "b.csv")], **dialect)


def test_a_gz_that_is_none(tmp_path: Path) -> None:
    written(tmp_path, "b.csv.gz", plain(2).encode())
    with pytest.raises(JobError, match="can't be read"):
        run(METHODS["pvi"], [str(tmp_path / "b.csv.gz")])


def test_codes_with_points_are_the_levels_that_stand_in_the_file(tmp_path: Path) -> None:
    """Procedure codes, versions, German dates: one site's numbers have commas, the other's points, and codes are the same."""
    codes = ("none", "5.511.1", "5.470.0", "01.02.2021")
    for name, delimiter, decimal in (("a", ",", "."), ("b", ";", ",")):
        rows = [f"{k}{decimal}5{delimiter}{codes[k % 4]}{delimiter}{k // 2 % 2}" for k in range(24)]
        written(tmp_path, f"{name}.csv", "\n".join([delimiter.join(("x", "code", "y")), *rows]).encode())
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "b.toml").write_text('path = "../b.csv"\n[dialect]\ndelimiter = ";"\ndecimal = ","\n')
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "pvi"\nrounds = 2\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\n'
    )
    found = fedkern.run(tmp_path / "job.toml").parameters
    # the last is the reference
    assert {name for name in found if name.startswith("theta[code")} == {f"theta[code={code}]" for code in codes[:3]}


def test_numbers_among_texts_keep_their_comma_as_a_level_and_their_value(tmp_path: Path) -> None:
    written(tmp_path, "b.csv", b"x;g\n1,5;<1\n1.234;<2\n;1,5\n2,5;neg\n")
    read = table.load(tmp_path / "b.csv", dialect=Dialect(";", ","))
    assert read.cells("g") == ["<1", "<2", "1,5", "neg"]
    x, g = read.columns["x"], read.columns["g"]
    assert isinstance(x, Text)
    assert isinstance(g, Text)
    np.testing.assert_array_equal(x.numbers(), [1.5, np.nan, np.nan, 2.5])
    np.testing.assert_array_equal(g.numbers(), [np.nan, np.nan, 1.5, np.nan])
    assert (x.kind(), g.kind()) == ("numeric", "categorical")
    assert [read.text("x", row) for row in range(4)] == ["1,5", "1.234 (a point, where decimals have commas)", "", "2,5"]
    picked = read.select(np.array([3, 1])).columns["x"]
    assert isinstance(picked, Text)
    np.testing.assert_array_equal(picked.numbers(), [2.5, np.nan])


def test_the_same_rows_have_one_mark_whatever_their_decimals(tmp_path: Path) -> None:
    written(tmp_path, "a.csv", b"x,g\n1.5,<1\n2.5,3.5\n3.5,5.511.1\n")
    written(tmp_path, "b.csv", b"x;g\n1,5;<1\n2,5;3,5\n3,5;5.511.1\n")
    a, b = table.load(tmp_path / "a.csv"), table.load(tmp_path / "b.csv", dialect=Dialect(";", ","))
    assert mark.of_rows(a) == mark.of_rows(b)


def test_one_number_with_a_comma_and_with_a_point_is_no_two_levels() -> None:
    assert spellings(["1,5", "1.5", "neg", "1,2,3"]) == [["1,5", "1.5"]]


def test_what_is_filled_in_has_the_files_decimals(tmp_path: Path) -> None:
    found = []
    for delimiter, decimal in ((",", "."), (";", ",")):
        rows = [f"{f'{k}{decimal}25' if k % 5 else ''}{delimiter}{k // 2 % 2}" for k in range(1, 25)]
        written(tmp_path / decimal, "b.csv", "\n".join([f"x{delimiter}y", *rows]).encode())
        data: dict[str, Any] = {"clients": [str(tmp_path / decimal / "b.csv")], "response": "y", **few.ANY}
        data |= {"columns": {"x": {"center": 12.5, "scale": 7.25}}, "dialect": {"delimiter": delimiter, "decimal": decimal}}
        job = {"job": {"method": "pvi", "rounds": 2}, "data": data, "model": {"missing": "indicator"}}
        found.append(fedkern.run(job).digest)
    assert found[0] == found[1]
