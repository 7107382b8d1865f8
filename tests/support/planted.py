"""Input faults of every method with planted cells: what a client's file may hold wrongly, and where its cells then are."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from support import few
from support import sigma_artifacts as artifacts

P, T = "7731.40625", "zqxplanted"  # a number and a text that stand nowhere else
PLANTED = re.compile(rb"(?<![0-9a-f.])7731(\.4|[^0-9a-f.])|zqxplanted|" + re.escape(struct.pack("<d", float(P))))
FAULTY = "a"


@dataclass(frozen=True)
class Method:
    """A small job with two clients."""

    job: str  # the job file; client a is the one with the fault
    header: str  # of client a's file
    rows: Callable[[int], list[str]]  # client -> good lines
    planted: str  # a line of planted cells that are right
    cells: Mapping[str, Mapping[str, str]]  # fault -> column -> wrong cell of that line
    headers: str = ""  # of the other clients
    more: Callable[[Path], None] = lambda folder: None  # writes the server's own files
    private: bool = False  # whether the job claims privacy: bad rows then do not end it
    names: tuple[str, ...] = ("a", "b")  # of the clients


def numbers(k: int, columns: int, rows: int = 30) -> list[list[str]]:
    return [[f"{x:.3f}" for x in row] for row in np.random.default_rng(k).normal(size=(rows, columns))]


# --- partitioned variational inference


def people(k: int) -> list[str]:
    return [f"p{k}-{i},{20 + (7 * i + k) % 50},{'fm'[i % 2]},0.5,1,{['no', 'yes'][(i + k) % 3 == 0]}" for i in range(30)]


DATA = """
[job]
rounds = 1
[data]
clients = ["clients/*"]
response = "income"
positive = "yes"
row_id = "id"
offset = "o"
weight = "w"
[output]
draws = 10
[data.columns]
sex = {levels = ["f", "m"]}
income = {levels = ["no", "yes"]}
"""
PUBLIC = DATA + "age = {center = 40, scale = 14}\n[algorithm]\nlocal_steps = 2\n"
PUBLIC += "[privacy]\nepsilon = 8.0\ndelta = 1e-4\nclip = 2.5\n"
CELLS = {
    "text for a number": {"age": T},
    "number with a unit": {"age": f"{P} cm"},
    "underscore": {"age": "7731_40625"},
    "inf": {"age": "-inf"},
    "nan": {"age": "nan"},
    "overflow": {"age": "1e999"},
    "empty number": {"age": ""},
    "unknown level": {"sex": T},
    "empty level": {"sex": ""},
    "third label": {"income": T},
    "number for a label": {"income": P},
    "empty label": {"income": ""},
    "bad offset": {"o": T},
    "infinite offset": {"o": "inf"},
    "bad weight": {"w": T},
    "weight below zero": {"w": f"-{P}"},
}
PVI = {"header": "id,age,sex,o,w,income", "rows": people, "planted": f"{T},{P},f,{P},{P},no", "cells": CELLS}

# --- sparse models


def sites(k: int) -> list[str]:
    return [",".join(row) for row in numbers(k, 4)]


SPARSE = """
[job]
method = "sparse"
rounds = 4
[data]
clients = ["clients/*"]
{response}
[model]
kind = "{kind}"
[algorithm]
burn_in = 1
"""
SITES = {"text": {"x1": T}, "empty": {"x2": ""}, "inf": {"x3": "inf"}, "unit": {"y": f"{P} cm"}, "nan": {"y": "nan"}}


# --- columns


def columns_of(k: int) -> list[str]:
    return [f"p{i},{','.join(row)}" for i, row in enumerate(numbers(k, 2, 30 + k))]  # the first client's last row is planted


def outcome(folder: Path) -> None:
    lines = ["id,y", *(f"p{i},{i % 2}" for i in range(31))]
    (folder / "server.csv").write_text("\n".join(lines) + "\n")


VERTICAL = """
[job]
method = "vertical"
rounds = 2
[data]
clients = ["clients/*"]
id = "id"
response = "y"
server = "server.csv"
"""
COLUMNS = {
    "text": {"x1": T},
    "empty": {"x1": ""},
    "inf": {"x2": "inf"},
    "unit": {"x2": f"{P} cm"},
    "empty id": {"id": ""},
    "id twice": {"id": "p3"},
    "id that others lack": {"id": f"{T}-2"},
}

# --- areas


def counted(folder: Path) -> None:
    artifacts.written(folder / "prior", names=("a", "b"), sizes=(5, 7))


def areas(k: int) -> list[str]:
    return [f"{'ab'[k]}-{i},{3 + i},{2.5 + i},{x:.2f}" for i, x in enumerate(np.random.default_rng(k).normal(size=5 + 2 * k))]


SIGMA = """
[job]
method = "sigma"
rounds = 3
[data]
clients = ["clients/*"]
area = "district"
response = "cases"
exposure = "expected"
[model]
prior = "prior"
"""
AREAS = {
    "unknown area": {"district": T},
    "empty area": {"district": ""},
    "text": {"cases": T},
    "below zero": {"cases": "-7731"},
    "no count": {"cases": P},
    "no exposure": {"expected": "0"},
    "negative exposure": {"expected": f"-{P}"},
    "empty exposure": {"expected": ""},
    "text exposure": {"expected": T},
    "text covariate": {"poverty": T},
    "infinite covariate": {"poverty": "inf"},
    "empty covariate": {"poverty": ""},
}

METHODS = {
    "pvi": Method(few.lowered(DATA), **PVI),  # ages and sexes alone
    "pvi, rows": Method(PUBLIC + "noise_multiplier = 3.0\nsampling_rate = 0.2\n", **PVI, private=True),
    "pvi, clients": Method(PUBLIC.replace("1e-4", "1e-2") + 'unit = "client"\nnoise_multiplier = 3.0\n', **PVI, private=True),
    "sparse": Method(
        SPARSE.format(response='response = "y"', kind="regression"), "x1,x2,x3,y", sites, f"{P},{P},{P},{P}", SITES
    ),
    "graph": Method(SPARSE.format(response="", kind="mrf"), "x1,x2,x3,y", sites, f"{P},{P},{P},{P}", SITES),
    "vertical": Method(VERTICAL, "id,x1,x2", columns_of, f"p30,{P},{P}", COLUMNS, "id,z1,z2", outcome),
    "vertical, private": Method(
        VERTICAL
        + 'standardise = "none"\n[data.columns]\n'
        + "".join(f'{name} = {{kind = "numeric"}}\n' for name in ("x1", "x2", "z1", "z2"))
        + "[privacy]\nepsilon = 8.0\ndelta = 1e-3\n",
        "id,x1,x2", columns_of, f"p30,{P},{P}", COLUMNS, "id,z1,z2", outcome, private=True,
    ),
    "sigma": Method(SIGMA, "district,cases,expected,poverty", areas, f"a-2,5,{P},{P}", AREAS, more=counted),
}  # fmt: skip


# --- faults of a file


@dataclass(frozen=True)
class Fault:
    """A fault of client a's file: `write` makes it from the folder, the method and the good lines with the planted one first.

    `row`: it is about a row, so that a private job goes on. `named`: a planted name of a column, which an open job's protocol
    tells the server, but no text.
    """

    write: Callable[[Path, Method, list[str]], None]
    row: bool = False
    named: bool = False


def text(change: Callable[[str, list[str]], str], suffix: str = ".csv") -> Fault:
    return Fault(lambda folder, m, rows: _bytes(folder / f"a{suffix}", change(m.header, rows).encode()))


def raw(change: Callable[[str, list[str]], bytes], suffix: str = ".csv") -> Fault:
    return Fault(lambda folder, m, rows: _bytes(folder / f"a{suffix}", change(m.header, rows)))


def _bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def joined(*lines: str, end: str = "\n") -> str:
    return end.join([*lines, ""])


def arrays(folder: Path, **members: object) -> None:
    np.savez(folder / "a.npz", **members)  # type: ignore[arg-type]


def cells_of(rows: list[str]) -> list[list[str]]:
    return [list(column) for column in zip(*(row.split(",") for row in rows))]


def table_of(folder: Path, m: Method, rows: list[str], change: Callable[[dict[str, object]], None]) -> None:
    content: dict[str, object] = dict(zip(m.header.split(","), cells_of(rows)))
    change(content)
    parquet.write_table(pa.table(content), folder / "a.parquet")


def _nothing(content: dict[str, object]) -> None:
    pass


def _nested(content: dict[str, object]) -> None:
    name = list(content)[1]
    content[name] = [[T]] * len(content[name])  # type: ignore[arg-type]


def _dated(content: dict[str, object]) -> None:
    name = list(content)[1]
    content[name] = pa.array([7731] * len(content[name]), pa.date32())  # type: ignore[arg-type]


def _pair(folder: Path, x: object, y: object, names: str | None = None) -> None:
    np.save(folder / "a.X.npy", x)  # type: ignore[arg-type]
    np.save(folder / "a.y.npy", y)  # type: ignore[arg-type]
    if names is not None:
        (folder / "a.columns.txt").write_text(names)


FILES: dict[str, Fault] = {
    "no header": text(lambda head, rows: joined(*rows)),
    "no header, CR": text(lambda head, rows: joined(*rows, end="\r")),
    "no header, a cell twice": text(lambda head, rows: joined(",".join([P] * (head.count(",") + 1)), *rows)),
    "no header, an empty cell": text(lambda head, rows: joined(f",{P},{T}", *rows)),
    "no header, one cell": text(lambda head, rows: joined(P, *rows)),
    "no header, not UTF-8": raw(lambda head, rows: f"{T}\xe9,{P}\n".encode("latin-1") + joined(*rows).encode()),
    "no header, texts": text(lambda head, rows: joined(",".join(f"{T}{j}" for j in range(head.count(",") + 1)), *rows)),
    "a comment first": text(lambda head, rows: joined(f"# {T} {P}", head, *rows)),
    "a title first": text(lambda head, rows: joined(f"{T},,,,,", head, *rows)),
    "CR": text(lambda head, rows: joined(head, *rows[1:], end="\r")),
    "CR CR LF": text(lambda head, rows: joined(head, *rows[1:], end="\r\r\n")),
    "form feeds": text(lambda head, rows: joined(head, *rows, end="\f")),
    "line separators": text(lambda head, rows: joined(head, *rows, end="\u2028")),
    "one line": text(lambda head, rows: " ".join([head, *rows])),
    "semicolons": text(lambda head, rows: joined(head, *rows).replace(",", ";")),
    "tabs": text(lambda head, rows: joined(head, *rows).replace(",", "\t")),
    "commas for tabs": text(lambda head, rows: joined(head, *rows), ".tsv"),
    "bars": text(lambda head, rows: joined(head, *rows).replace(",", "|")),
    "UTF-16": raw(lambda head, rows: joined(head, *rows).encode("utf-16")),
    "UTF-16 without its mark": raw(lambda head, rows: joined(head, *rows).encode("utf-16-le")),
    "zeros in the header": raw(lambda head, rows: joined(f"{T}\0,{head}", *rows).encode()),
    "a quote that does not end": text(lambda head, rows: joined(f'"{head}', *rows)),
    "a name twice": text(lambda head, rows: joined(f"{head},{T},{T}", *(f"{row},1,1" for row in rows))),
    "a name is empty": text(lambda head, rows: joined(f"{head},", *(f"{row},{P}" for row in rows))),
    "another response": text(lambda head, rows: joined(re.sub("cases|income|y$", T, head), *rows)),
    "the last column is missing": text(lambda head, rows: joined(*(line.rpartition(",")[0] for line in [head, *rows]))),
    "the first column is missing": text(lambda head, rows: joined(*(line.partition(",")[2] for line in [head, *rows]))),
    "another case": text(lambda head, rows: joined(head.upper(), *rows)),
    "another order": text(lambda head, rows: joined(*(",".join(line.split(",")[::-1]) for line in [head, *rows]))),
    "nothing": raw(lambda head, rows: b""),
    "blank lines": raw(lambda head, rows: b"\n\n\n"),
    "a picture": raw(lambda head, rows: bytes(range(256)) * 40 + T.encode()),
    "a workbook": raw(lambda head, rows: f"PK{T}".encode(), ".xlsx"),
    "JSON": text(lambda head, rows: f'{{"{T}": [{P}]}}'),
    "no parquet": raw(lambda head, rows: f"{T} {P}".encode(), ".parquet"),
    "no npz": raw(lambda head, rows: f"PK{T} {P}".encode(), ".npz"),
    "no npy": raw(lambda head, rows: f"{T} {P}".encode(), ".X.npy"),
    "parquet, texts": Fault(lambda folder, m, rows: table_of(folder, m, rows, _nothing), row=True),
    "parquet, lists": Fault(lambda folder, m, rows: table_of(folder, m, rows, _nested), row=True),
    "parquet, dates": Fault(lambda folder, m, rows: table_of(folder, m, rows, _dated), row=True),
    "npz, lengths": Fault(lambda folder, m, rows: arrays(folder, **{T: np.zeros(7731), f"{T}2": np.zeros(77310)})),
    "npz, a matrix": Fault(lambda folder, m, rows: arrays(folder, **{T: np.zeros((3, 2))})),
    "npz, complex": Fault(lambda folder, m, rows: arrays(folder, **{T: np.full(3, 1j * float(P))})),
    "npz, objects": Fault(lambda folder, m, rows: arrays(folder, **{T: np.array([T, None], dtype=object)})),
    "npz, names": Fault(lambda folder, m, rows: arrays(folder, X=np.zeros((3, 2)), columns=np.array([T]))),
    "npz, a name twice": Fault(lambda folder, m, rows: arrays(folder, X=np.zeros((3, 2)), columns=np.array([T, T]))),
    "npy, lengths": Fault(lambda folder, m, rows: _pair(folder, np.zeros((7731, 2)), np.zeros(3))),
    "npy, texts": Fault(lambda folder, m, rows: _pair(folder, np.array([[T]]), np.zeros(1))),
    "npy, names": Fault(lambda folder, m, rows: _pair(folder, np.zeros((3, 2)), np.zeros(3), f"{T}\n{P}\n{T}2\n")),
    "npy, a name twice": Fault(lambda folder, m, rows: _pair(folder, np.zeros((3, 2)), np.zeros(3), f"{T}\n{T}\n")),
    "a column more": Fault(
        lambda folder, m, rows: _bytes(folder / "a.csv", joined(f"{m.header},{T}", *(f"{row},1" for row in rows[1:])).encode()),
        named=True,
    ),
    "identifiers": Fault(
        lambda folder, m, rows: _bytes(
            folder / "a.csv", joined(f"{m.header},more", *(f"{row},{T}{i}" for i, row in enumerate(rows))).encode()
        )
    ),
}
LINES: dict[str, Callable[[str], str]] = {
    "short row": lambda row: row.rpartition(",")[0],
    "long row": lambda row: f"{row},{T}",
    "stray quote": lambda row: f'"{row}',
    "stray quote at the end": lambda row: f'{row}"{T}',
    "enormous cell": lambda row: f'"{T * 20_000}"{row}',
    "no row": lambda row: f"{T} {P}",
    "zero bytes": lambda row: row.replace(",", "\0,"),
    "CR in a row": lambda row: row.replace(",", "\r,", 1),
}


def faults(m: Method) -> Iterator[tuple[str, Fault]]:
    """All faults of a method."""
    named = "response =" in m.job  # a graph has no column of a known name: any line of texts may be its header
    yield from ((name, fault) for name, fault in FILES.items() if named or name not in ("no header, texts", "another response"))
    names = m.header.split(",")

    def replaced(line: Callable[[str], str]) -> Fault:
        def write(folder: Path, m: Method, rows: list[str]) -> None:
            _bytes(folder / "a.csv", joined(m.header, *rows[1:3], line(rows[0]), *rows[3:]).encode())

        return Fault(write, row=True)

    for name, line in LINES.items():
        yield name, replaced(line)
    for name, wrong in m.cells.items():

        def changed(row: str, wrong: Mapping[str, str] = wrong) -> str:
            return ",".join(wrong.get(column, cell) for column, cell in zip(names, row.split(",")))

        yield name, replaced(changed)

    def latin(folder: Path, m: Method, rows: list[str]) -> None:
        line = rows[0].replace(P, f"{T}\xe9", 1)
        _bytes(folder / "a.csv", joined(m.header, line, *rows[1:]).encode("latin-1"))

    yield "not UTF-8 in a row", Fault(latin, row=True)

    def worded(folder: Path, m: Method, rows: list[str]) -> None:
        parts = [row.split(",") for row in rows]
        lines = [",".join([first, f"{T}{i % 3}", *rest]) for i, (first, _, *rest) in enumerate(parts)]
        _bytes(folder / "a.csv", joined(m.header, *lines).encode())

    yield "every cell of a column is a text", Fault(worded, row=True)
    if m.private:
        yield "one row", Fault(lambda folder, m, rows: _bytes(folder / "a.csv", joined(m.header, rows[0]).encode()), row=True)
        yield "no rows", Fault(lambda folder, m, rows: _bytes(folder / "a.csv", joined(m.header).encode()), row=True)


def federation(folder: Path, m: Method, fault: Fault) -> Path:
    """The files of a job whose client a has the fault; the job file."""
    clients = folder / "clients"
    clients.mkdir(parents=True)
    for k, name in enumerate(m.names):
        header = m.header if k == 0 or not m.headers else m.headers
        (clients / f"{name}.csv").write_text(joined(header, *m.rows(k)))
    (clients / "a.csv").unlink()
    fault.write(clients, m, [m.planted, *m.rows(0)])
    m.more(folder)
    (folder / "job.toml").write_text(m.job)
    return folder / "job.toml"


@dataclass
class Found:
    """Where planted cells were found."""

    places: list[str] = field(default_factory=list)

    def look(self, where: str, content: str | bytes) -> None:
        data = content.encode("utf-8", "replace") if isinstance(content, str) else content
        if match := PLANTED.search(data):
            near = data[max(match.start() - 60, 0) : match.end() + 20]
            self.places.append(f"{where}: {near!r}")

    def look_in(self, folder: Path, own: tuple[str, ...] = (f"client-{FAULTY}",)) -> None:
        """All files below a folder but those of the client itself."""
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if path.is_file() and not set(own) & set(parts):
                self.look(str(path.relative_to(folder)), path.read_bytes())
