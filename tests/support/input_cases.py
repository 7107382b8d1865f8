"""Small federations of every method, and what may be wrong with their files: for tests of what is said then.

A fault is a change of the bytes of the first client's file. What it must end in is either words that the one line on stderr has
(exit code 2), or None: the right answer, which is the one of the untouched files.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support import sigma_artifacts as artifacts

Bytes = Callable[[bytes], bytes]
FAST = "[output]\ndraws = 4\nchains = 1\n"
TERMS = 'epsilon = 50.0\ndelta = 1e-3\nclip = 1.0\nnoise_multiplier = 3.0\nnoise_source = "keyed"\n'


@dataclass(frozen=True)
class Federation:
    """A method's job file, the file of its first client, and what in its rows is a category, a number and the response."""

    job: str
    first: str
    level: str
    number: str
    header: str


def _rows(n: int, seed: int, *, ids: bool = False) -> Iterator[str]:
    random = np.random.default_rng(seed)
    for i in range(n):
        x, job = random.normal(), ("Müller", "Möller", "smith")[i % 3]
        begin = f"r{i}," if ids else ""
        yield f"{begin}{x:.3f},{job},{int(x + random.normal() > 0)}"


def _pvi(folder: Path, more: str = "", data: str = "", rows: int = 36) -> Federation:
    (folder / "rows").mkdir()
    for k, name in enumerate("ab"):
        (folder / "rows" / f"{name}.csv").write_text("\n".join(["size,job,y", *_rows(rows, k)]) + "\n", "utf-8")
    text = f'[job]\nrounds = 1\n[data]\nclients = ["rows/a.csv", "rows/b.csv"]\nresponse = "y"\n{data}{more}\n{FAST}'
    (folder / "job.toml").write_text(text, "utf-8")
    return Federation("job.toml", "rows/a.csv", "Müller", "", "size")


def _private(folder: Path) -> Federation:
    columns = '[data.columns]\nsize = {center = 0.0, scale = 1.0}\njob = {levels = ["Müller", "Möller", "smith"]}\n'
    return _pvi(folder, f"{columns}[algorithm]\nlocal_steps = 2\n[privacy]\n{TERMS}sampling_rate = 0.5\n")


def _sparse(folder: Path) -> Federation:
    _pvi(folder)
    text = (folder / "job.toml").read_text("utf-8").replace("rounds = 1", 'rounds = 4\nmethod = "sparse"').replace(FAST, "")
    (folder / "job.toml").write_text(text + "[algorithm]\nburn_in = 1\nchains = 2\n", "utf-8")
    return Federation("job.toml", "rows/a.csv", "Müller", "", "size")


def _describe(folder: Path) -> Federation:
    _pvi(folder)
    (folder / "job.toml").write_text('[job]\nmethod = "describe"\n[data]\nclients = ["rows/a.csv", "rows/b.csv"]\n', "utf-8")
    return Federation("job.toml", "rows/a.csv", "Müller", "", "size")


def _likelihood(folder: Path) -> Federation:
    _pvi(folder, rows=150)
    text = (folder / "job.toml").read_text("utf-8").replace("rounds = 1", 'rounds = 2\nmethod = "likelihood"')
    (folder / "job.toml").write_text(text + "[algorithm]\npoints = 256\neffective = 100\n", "utf-8")
    return Federation("job.toml", "rows/a.csv", "Müller", "", "size")


def _vertical(folder: Path) -> Federation:
    (folder / "rows").mkdir()
    lines = [*_rows(24, 0, ids=True)]
    cells = [line.split(",") for line in lines]
    for name, at, head in (("a", (0, 1, 2), "id,size,job"), ("b", (0, 1), "id,weight"), ("server", (0, 3), "id,y")):
        text = "\n".join([head, *(",".join(line[j] for j in at) for line in cells)])
        (folder / "rows" / f"{name}.csv").write_text(text + "\n", "utf-8")
    (folder / "job.toml").write_text(
        '[job]\nmethod = "vertical"\nrounds = 2\n[data]\nclients = ["rows/a.csv", "rows/b.csv"]\nid = "id"\nresponse = "y"\n'
        f'server = "rows/server.csv"\n[data.columns.job]\nlevels = ["Müller", "Möller", "smith"]\n{FAST}',
        "utf-8",
    )
    return Federation("job.toml", "rows/a.csv", "Müller", "", "size")


def _sigma(folder: Path) -> Federation:
    artifacts.written(folder / "prior")
    artifacts.counts(folder / "rows")
    (folder / "job.toml").write_text(
        '[job]\nmethod = "sigma"\nrounds = 4\n[data]\nclients = "rows/*.csv"\narea = "district"\nresponse = "cases"\n'
        'exposure = "expected"\n[model]\nprior = "prior"\n[output]\ndraws = 4\n',
        "utf-8",
    )
    return Federation("job.toml", "rows/east.csv", "", "", "poverty")


METHODS: dict[str, Callable[[Path], Federation]] = {
    "pvi": _pvi,
    "private": _private,
    "likelihood": _likelihood,
    "sparse": _sparse,
    "vertical": _vertical,
    "sigma": _sigma,
    "describe": _describe,
}


def _text(change: Callable[[str], str]) -> Bytes:
    return lambda content: change(content.decode()).encode()


def _cell(value: str, row: int = 3, column: int = -1) -> Bytes:
    """A number's cell replaced: the last numeric column but the response, which all federations have somewhere."""

    def change(text: str) -> str:
        rows = text.split("\n")
        names = rows[0].split(",")
        at = next(j for j, name in enumerate(names) if name in ("size", "poverty")) if column < 0 else column
        cells = rows[row].split(",")
        cells[at] = value
        return "\n".join([*rows[:row], ",".join(cells), *rows[row + 1 :]])

    return _text(change)


def _line(value: str, row: int = 3) -> Bytes:
    return _text(lambda text: "\n".join([*text.split("\n")[:row], value, *text.split("\n")[row + 1 :]]))


def _delimited(separator: str, *, decimal: bool = False) -> Bytes:
    def change(text: str) -> str:
        return (text.replace(",", separator).replace(".", ",")) if decimal else text.replace(",", separator)

    return _text(change)


# name -> (change, words of the line on stderr; None: the right answer). A row's fault is no error in a private job.
FILES: dict[str, tuple[Bytes, str | None]] = {
    "byte-order mark": (lambda c: b"\xef\xbb\xbf" + c, None),
    "CR LF": (_text(lambda t: t.replace("\n", "\r\n")), None),
    "no last line end": (lambda c: c.rstrip(b"\n"), None),
    "empty lines": (_text(lambda t: t.replace("\n", "\n\n") + "\n \n\t\n"), None),
    "blanks around cells": (_text(lambda t: t.replace(",", " , ")), None),
    "no-break blanks": (_text(lambda t: t.replace(",", "\u00a0,\u00a0")), None),
    "quotes": (_text(lambda t: "\n".join(",".join(f'"{c}"' for c in r.split(",")) if r else "" for r in t.split("\n"))), None),
    "NFD": (_text(lambda t: unicodedata.normalize("NFD", t)), None),
    "mixed ends of lines": (_text(lambda t: t.replace("\n", "\r\n", 3)), None),
    "exponents": (_cell("+12.5E-1"), "?"),
    "semicolons": (_delimited(";"), "separated by semicolons; set "),
    "semicolons, decimal commas": (_delimited(";", decimal=True), "separated by semicolons"),
    "tabs": (_delimited("\t"), "separated by tabs"),
    "bars": (_delimited("|"), "separated by bars"),
    "two blanks": (_delimited("  "), "is missing|no covariate"),
    "UTF-16": (lambda c: c.decode().encode("utf-16"), "UTF-16"),
    "UTF-16 LE": (lambda c: c.decode().encode("utf-16-le"), "UTF-16"),
    "UTF-16 BE": (lambda c: c.decode().encode("utf-16-be"), "UTF-16"),
    "UTF-32": (lambda c: c.decode().encode("utf-32"), "UTF-16"),
    "empty": (lambda c: b"", "no header"),
    "blank": (lambda c: b"\n\n\n", "no header"),
    "a mark alone": (lambda c: b"\xef\xbb\xbf", "no header|has no name"),
    "no rows": (lambda c: c.split(b"\n")[0] + b"\n", "fewer rows|no rows|no row|same ids|other rows|lacks|are at"),
    "header twice": (_text(lambda t: t.split("\n")[0] + "\n" + t), "?row"),
    "a column twice": (_text(lambda t: f"{t.split(',')[1]},{t.split(',', 1)[1]}"), "two columns"),
    "a column without a name": (_text(lambda t: t.replace("size", "", 1).replace("district", "", 1)), "has no name|no name"),
    "a name in other letters": (_text(lambda t: t.replace("y", "Y", 1).replace("id", "ID", 1)), "missing|not at client"),
    "a Greek letter": (_text(lambda t: t.replace("i", "\u03b9", 1)), "missing|not at client|'s\u03b9ze'|has no constants|known"),
    "no header": (lambda c: c.split(b"\n", 1)[1], "missing|two columns|constants"),
    "a comma more in the header": (_text(lambda t: t.replace("\n", ",\n", 1)), "has no name|no name"),
    "a page of HTML": (lambda c: b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "missing"),
    "zip": (lambda c: b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(range(256)), "UTF-16 or no text|not UTF-8"),
    "gzip": (lambda c: b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xfe\n" + bytes(range(256)), "UTF-16 or no text|not UTF-8"),
    "random bytes": (lambda c: np.random.default_rng(0).bytes(4096), "UTF-16 or no text|not UTF-8"),
    "zeros": (lambda c: bytes(4096), "UTF-16 or no text"),
    "Latin-1 header": (lambda c: c.replace(b"s", b"\xdf", 1), "the header has bytes that are not UTF-8"),
}
# Faults of a row: an error in an open job, a row that counts as nothing in a private one.
ROWS: dict[str, Bytes] = {
    "Latin-1": lambda c: (c.decode() if b"\xc3" in c else c.decode().replace("t", "\u00ef")).encode("latin-1"),
    "Windows-1250": lambda c: c.replace(b"\n", b"\x9a\n", 3).replace(b"\x9a\n", b"\n", 1),
    "UTF-8 cut inside a letter": lambda c: c.rstrip(b"\n") + b"\xc3\n",
    "a short row": _line("1"),
    "a long row": _line("1,2,3,4,5,6,7,8,9"),
    "a stray quote": _line('"1,2,3'),
    "text after a quote": _cell('"1"2'),
    "a line end in a cell": _line('1,"a\nb",1'),
    "a zero byte": _cell("1\0"),
    "an enormous cell": _cell("9" * 200_000),
    "thousands": _cell('"1,234"'),
    "thousands with points": _cell("1.234.567"),
    "thousands with blanks": _cell("1 234"),
    "thousands with narrow blanks": _cell("1\u202f234"),
    "thousands with underscores": _cell("1_234"),
    "a decimal comma": _cell('"1,5"'),
    "hexadecimal": _cell("0x1F"),
    "hexadecimal float": _cell("0x1p3"),
    "a complex number": _cell("1+2j"),
    "Fortran": _cell("1d5"),
    "inf": _cell("inf"),
    "Infinity": _cell("-Infinity"),
    "1e400": _cell("1e400"),
    "-1e400": _cell("-1e400"),
    "nan": _cell("nan"),
    "NA": _cell("NA"),
    "nothing": _cell(""),
    "null": _cell("null"),
    "a dot": _cell("."),
    "a dash": _cell("-"),
    "a minus sign of typesetters": _cell("\u22121"),
    "a date": _cell("2024-02-30"),
    "an American date": _cell("2/30/2024"),
    "a time": _cell("12:30"),
    "true": _cell("true"),
    "a currency": _cell("$5"),
    "per cent": _cell("5%"),
    "a unit": _cell("5 kg"),
    "less than": _cell("<5"),
    "a half": _cell("\u00bd"),
    "a Roman number": _cell("\u2163"),
    "an error of a spreadsheet": _cell("#DIV/0!"),
    "a formula": _cell("=1+1"),
    "a star": _cell("5*"),
    "two points": _cell("1.2.3"),
    "a half exponent": _cell("1e"),
    "two signs": _cell("--5"),
    "an emoji": _cell("\U0001f600"),
    "right to left": _cell("\u202e12"),
    "a surrogate": lambda c: c.rstrip(b"\n") + b"\n\xed\xa0\x80,\xed\xa0\x80,1\n",
}


@dataclass(frozen=True)
class Extreme:
    """Enormous or tiny values in a federation of one method and family.

    `column`: whose cells get the value, in the first row or in all of them; or `key`: the one of the job file. `words` are in
    the one line that must come; None: the right answer, whatever it is, with finite numbers and nothing on stderr.
    """

    value: str
    column: str = ""
    key: str = ""
    whole: bool = False
    words: str | None = None


LARGE = "is too large"
EXTREMES: dict[str, Extreme] = {
    "a count of 1e9": Extreme("1000000000", "y", words="?client 'a'"),  # an open client's other rows are as nothing beside it
    "counts of 1e9": Extreme("1000000000", "y", whole=True, words="?client 'a'|client 'server'"),
    "a count of 1e15": Extreme("1000000000000000", "y", words="?client 'a'|client 'server'"),
    "a response of 1e300": Extreme("1e300", "y", words=LARGE),
    "responses of 1e300": Extreme("1e300", "y", whole=True, words=LARGE),
    "a response of 1.7e308": Extreme("1.7e308", "y", words=LARGE),
    "a cell of 1e300": Extreme("1e300", "x", words=LARGE),
    "a cell of -1e300": Extreme("-1e300", "x", words=LARGE),
    "cells of 1e300": Extreme("1e300", "x", whole=True, words=LARGE),
    "a cell of 1e100": Extreme("1e100", "x", words="?client 'a'"),  # sparse: too far from the others' for its chains
    "a cell of 1e-300": Extreme("1e-300", "x"),
}
PRECISIONS = {
    name: Extreme(name, key="model.prior_sd", words=r"model\.prior_sd = .*: wanted a number of at")
    for name in ("1e-300", "5e-324", "1e-30", "1e300")
} | {name: Extreme(name, key="model.prior_sd", words="?client 'a'") for name in ("1e-5", "1e5")}
KINDS_OF_RESPONSE = {
    "pvi": ("poisson", "gaussian"),
    "private": ("poisson", "gaussian"),
    "sparse": ("gaussian",),
    "vertical": ("poisson", "gaussian"),
    "sigma": ("poisson", "gaussian"),
}


def with_family(folder: Path, method: str, family: str) -> None:
    """Another response for a federation of `METHODS`."""
    path, random = folder / "job.toml", np.random.default_rng(3)
    text = path.read_text("utf-8")
    if method == "sigma":
        text = text.replace('exposure = "expected"', 'ignore = ["expected"]') if family == "gaussian" else text
        text = text.replace('prior = "prior"', f'prior = "prior"\nfamily = "{family}"')
    elif method != "sparse":
        text = f'{text}[model]\nfamily = "{family}"\n'
    path.write_text(text, "utf-8")
    for name in {"sigma": (), "vertical": ("server",)}.get(method, ("a", "b")):
        file = folder / "rows" / f"{name}.csv"
        head, *rows = file.read_text("utf-8").strip().split("\n")
        y = random.poisson(3.0, len(rows)) if family == "poisson" else random.normal(size=len(rows)).round(3)
        file.write_text("\n".join([head, *(f"{row.rpartition(',')[0]},{v}" for row, v in zip(rows, y))]) + "\n", "utf-8")


def plant(folder: Path, method: str, extreme: Extreme) -> str:
    """Puts the value into the first client's file (the server's, if it holds the response); the name of who has it."""
    first = "east" if method == "sigma" else "server" if method == "vertical" and extreme.column == "y" else "a"
    path = folder / "rows" / f"{first}.csv"
    rows = [line.split(",") for line in path.read_text("utf-8").strip().split("\n")]
    wanted = {"x": "poverty" if method == "sigma" else "size", "y": "cases" if method == "sigma" else "y"}[extreme.column]
    at = rows[0].index(wanted)
    for row in rows[1:] if extreme.whole else rows[1:2]:
        row[at] = extreme.value
    path.write_text("\n".join(map(",".join, rows)) + "\n", "utf-8")
    return first


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def parquet(table: Any) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def columns(content: bytes) -> dict[str, list[Any]]:
    """A file's columns, numbers as numbers."""
    names, *rows = (line.split(",") for line in content.decode().strip().split("\n"))
    out: dict[str, list[Any]] = {}
    for j, name in enumerate(names):
        cells = [row[j] for row in rows]
        try:
            out[name] = [float(cell) if cell else None for cell in cells]
        except ValueError:
            out[name] = cells
    return out


def typed(content: bytes) -> dict[str, tuple[str, bytes, str | None]]:
    """Other types of the first client's file: name -> (suffix, content, words on stderr or None)."""
    import pyarrow as pa

    table = columns(content)
    number = next(name for name in ("size", "poverty") if name in table)
    n = len(table[number])
    arrays = {name: np.array([np.nan if v is None else v for v in cells]) for name, cells in table.items()}
    good, arrow = npz(**arrays), pa.table(table)
    whole = parquet(arrow)

    def other(values: Any) -> bytes:
        return npz(**{**arrays, number: values})

    def arrow_other(values: Any) -> bytes:
        return parquet(arrow.set_column(arrow.column_names.index(number), number, values))

    objects = np.array([{"a": 1}] * n, dtype=object)
    return {
        "tsv": (".tsv", content.replace(b",", b"\t"), None),
        "tsv with commas": (".tsv", content, "separated by commas; name it .csv"),
        "csv in capitals": (".CSV", content, None),
        "npz": (".npz", good, None),
        "parquet": (".parquet", whole, None),
        "xlsx": (".xlsx", b"PK\x03\x04", "unknown type"),
        "txt": (".txt", content, "unknown type"),
        "gz": (".csv.gz", b"\x1f\x8b\x08", "can't be read"),
        "no suffix": ("", content, "unknown type"),
        "npy as npz": (".npz", npy(arrays[number]), "not a npz file"),
        "csv as npz": (".npz", content, "not a npz file"),
        "csv as parquet": (".parquet", content, "not a parquet file"),
        "csv as npy": (".npy", content, "X.npy"),
        "csv as X.npy": (".X.npy", content, "not a npy file|X.npy and y.npy belong together"),
        "npz as parquet": (".parquet", good, "not a parquet file"),
        "parquet as npz": (".npz", whole, "not a npz file"),
        "npz, nothing": (".npz", b"", "not a npz file"),
        "parquet, nothing": (".parquet", b"", "not a parquet file"),
        "npz, half": (".npz", good[: len(good) // 2], "not a npz file"),
        "parquet, half": (".parquet", whole[: len(whole) // 2], "not a parquet file"),
        "parquet, the head lost": (".parquet", b"\0" * 64 + whole[64:], "parquet"),
        "parquet, bytes flipped": (".parquet", whole[:40] + bytes(b ^ 255 for b in whole[40:-400]) + whole[-400:], "parquet"),
        "npz, bytes flipped": (".npz", good[:200] + bytes(b ^ 255 for b in good[200:400]) + good[400:], "not a npz file"),
        "npz of objects": (".npz", other(objects), "not a npz file of plain arrays"),
        "npz, complex": (".npz", other(np.ones(n, dtype=complex)), "type"),
        "npz of bytes": (".npz", other(np.array([b"a"] * n)), "type"),
        "npz of dates": (".npz", other(np.array(["2024-01-01"] * n, dtype="M8[D]")), "type"),
        "npz of records": (".npz", other(np.zeros(n, dtype=[("a", float)])), "type"),
        "npz, a matrix": (".npz", other(np.zeros((n, 2))), "shape"),
        "npz, a number": (".npz", other(np.float64(1)), "shape"),
        "npz, another length": (".npz", other(np.zeros(n + 1)), "different lengths"),
        "npz without arrays": (".npz", npz(), "no header|not a npz"),
        "npz, X of one dimension": (".npz", npz(X=np.zeros(n), **arrays), "missing|not at client|kind|constants|X|too few rows"),
        "npz, X of three": (".npz", npz(X=np.zeros((n, 2, 2)), **arrays), "shape|missing"),
        "npz, too few names": (".npz", npz(X=np.zeros((n, 2)), columns=np.array(["u"]), **arrays), "column names|names"),
        "npz, names of numbers": (".npz", npz(X=np.zeros((n, 2)), columns=np.zeros(2), **arrays), "two columns"),
        "parquet of lists": (".parquet", arrow_other(pa.array([[1.0]] * n)), "?"),
        "parquet of records": (".parquet", arrow_other(pa.array([{"a": 1}] * n)), "?"),
        "parquet of bytes": (".parquet", arrow_other(pa.array([b"\xff"] * n)), "?"),
        "parquet of times": (".parquet", arrow_other(pa.array([0] * n, pa.timestamp("ns"))), "?"),
        "parquet of decimals": (".parquet", arrow_other(pa.array([1] * n, pa.decimal128(9, 2))), "?"),
        "parquet of nothing": (".parquet", arrow_other(pa.nulls(n)), "?"),
        "parquet of dictionaries": (".parquet", arrow_other(pa.array(["a"] * n).dictionary_encode()), "?"),
        "parquet of whole numbers": (".parquet", arrow_other(pa.array([2**62] * n)), "?"),
        "parquet without rows": (".parquet", parquet(arrow.slice(0, 0)), "fewer rows|no rows|no row|ids|same"),
        "parquet, a column twice": (".parquet", parquet(pa.Table.from_arrays([arrow.column(0)] * 2, ["a", "a"])), "two columns"),
    }


def canonical(text: str) -> str:
    return unicodedata.normalize("NFC", text)
