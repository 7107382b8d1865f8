"""Whatever stands in a file or on a command line: the right answer, or exit code 2 and one line that names the thing.

Never a traceback, a job that hangs, or two levels that have become one. On push every fault meets the first method and
some of them another one; every method at night.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from fedkern import methods
from fedkern.cli.__main__ import main
from fedkern.methods.sigma.prior.keys import PriorConfig
from support import input_cases as cases
from support.command import Ended, mpirun
from support.mpirun import launcher_removed

COUNT = {"cases": 0, "wrong": 0}


@pytest.fixture(scope="module", autouse=True)
def _count() -> Iterator[None]:
    yield
    print(f"\n{COUNT['cases']} input cases, {COUNT['wrong']} ended otherwise than in the right answer or one clear line")


class Place:
    """A folder with one federation, made anew for every case, and the digest of its untouched files."""

    def __init__(self, folder: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.method, self.capsys, self.n = method, capsys, 0
        self.base = folder / "base"
        self.base.mkdir()
        monkeypatch.setenv("HOME", str(folder / "home"))
        monkeypatch.delenv("FEDKERN_CLIENT_HOME", raising=False)
        monkeypatch.setattr("fedkern.jobs.holding.binding.SYSTEM", folder / "etc")
        self.federation = cases.METHODS[method](self.base)
        self.folder, self.chdir = folder, monkeypatch.chdir
        self.digest: str | None = None

    def fresh(self) -> Path:
        self.n += 1
        at = self.folder / str(self.n)
        shutil.copytree(self.base, at)
        self.chdir(at)
        return at

    def command(self, *arguments: str) -> Ended:
        code = 2
        try:
            code = main(list(arguments))
        except SystemExit as error:
            code = int(error.code or 0)
        said = self.capsys.readouterr()
        return Ended(code, said.out, said.err)

    def run(self, job: str = "job.toml", *more: str) -> Ended:
        return self.command("run", job, "--quiet", "--out", "out", *more)

    def right(self) -> str | None:
        """The answer of the untouched files. Keyed noise is the same in every run of it."""
        if self.digest is None:
            self.fresh()
            ended = self.run()
            assert (ended.code, ended.err) == (0, ""), ended.err
            self.digest = digest()
        return self.digest


def digest() -> str:
    return str(json.loads(Path("out/summary.json").read_text("utf-8"))["digest"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Place]:
    def make(method: str) -> Place:
        folder = tmp_path / method
        folder.mkdir()
        return Place(folder, method, monkeypatch, capsys)

    return make


def clear(ended: Ended, words: str = "") -> str | None:
    """What is wrong with how a command ended that had to be refused: exit code 2, and one line that has these words."""
    if ended.code != 2:
        return f"code {ended.code}: {ended.err[-600:] or ended.out[-200:]}"
    wanted = ended.err.rstrip("\n").split("\n")
    if "Traceback" in ended.err or not wanted[-1].strip():
        return f"no clear line: {ended.err[-600:]}"
    if len(wanted) > 1 and not wanted[0].startswith("usage:"):
        return f"{len(wanted)} lines: {ended.err[:600]}"
    if words and not re.search(words, ended.err):
        return f"wanted {words!r}: {ended.err[:400]}"
    return None


def judged(name: str, problem: str | None) -> list[str]:
    COUNT["cases"] += 1
    COUNT["wrong"] += problem is not None
    return [] if problem is None else [f"{name}: {problem}"]


def share(items: list[str], method: str) -> list[str]:
    """On push: the first method all, the others every eighth."""
    others = [m for m in cases.METHODS if m != "pvi"]
    return items if method == "pvi" else items[others.index(method) :: 2 * len(others)]


METHODS = [*cases.METHODS]
NIGHT = [pytest.param(method, True, marks=pytest.mark.nightly) for method in METHODS if method != "pvi"]


@pytest.mark.parametrize(("method", "whole"), [*((method, False) for method in METHODS), *NIGHT])
def test_files(place: Any, method: str, whole: bool) -> None:
    at, found = place(method), []
    want = at.right()
    for name in cases.FILES if whole else share([*cases.FILES], method):
        change, words = cases.FILES[name]
        path = at.fresh() / at.federation.first
        path.write_bytes(change(path.read_bytes()))
        ended = at.run()
        if words is None:
            good = ended.code == 0 and digest() == want
            found += judged(name, None if good else f"not the right answer: {ended.code} {ended.err[-500:]}")
        elif ended.code == 0 and (words.startswith("?") or method in ("private", "sigma")):
            found += judged(name, None)
        else:
            found += judged(name, clear(ended, words.lstrip("?") if method == "pvi" else ""))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("method", "whole"), [*((method, False) for method in METHODS), *NIGHT])
def test_rows(place: Any, method: str, whole: bool) -> None:
    """An open job ends and names the line or the client; in a private one the row counts as nothing."""
    at, found = place(method), []
    for name in cases.ROWS if whole else share([*cases.ROWS], method):
        path = at.fresh() / at.federation.first
        path.write_bytes(cases.ROWS[name](path.read_bytes()))
        ended = at.run()
        words = {"Latin-1": "not UTF-8; if the file is Latin-1", "a zero byte": "has zero bytes"}.get(name)
        if method == "private":
            faults = list(Path("out").glob("client-a/rows.json"))
            told = bool(faults) and json.loads(faults[0].read_text("utf-8"))["faults"]["rows"] > 0
            bad = None if (ended.code, ended.err) == (0, "") and told else f"{ended.code} {ended.err[-500:]}, told {told}"
            found += judged(name, bad)
        elif method == "likelihood" and ended.code == 0:  # a cell that is missing, whose row is left out
            content = json.loads(Path("out/summary.json").read_text("utf-8"))
            found += judged(name, None if content.get("incomplete") else "a row counts that cannot")
        else:
            found += judged(name, clear(ended, words if words and method != "vertical" else rf"'{path.stem}'|{path.name}"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("method", "whole"), [*((method, False) for method in METHODS), *NIGHT])
def test_types_of_files(place: Any, method: str, whole: bool) -> None:
    at, found = place(method), []
    want = at.right()
    table = cases.typed((at.base / at.federation.first).read_bytes())
    for name in table if whole else share([*table], method):
        suffix, content, words = table[name]
        path = at.fresh() / at.federation.first
        path.unlink()
        other = path.with_name(path.stem + suffix)
        other.write_bytes(content)
        job = Path("job.toml").read_text("utf-8")
        old = '"rows/*.csv"' if method == "sigma" else f'"{at.federation.first}"'
        rest = ', "rows/north.csv", "rows/west.csv"' if method == "sigma" else ""
        listed = f'"rows/{other.name}"{rest}'
        Path("job.toml").write_text(job.replace(old, f"[{listed}]" if method == "sigma" else listed), "utf-8")
        ended = at.run()
        if words is None:
            good = ended.code == 0 and digest() == want
            found += judged(name, None if good else f"not the right answer: {ended.code} {ended.err[-500:]}")
        elif ended.code == 0 and (words == "?" or method in ("private", "sigma")):
            found += judged(name, None)
        else:
            found += judged(name, clear(ended, words if method == "pvi" and words != "?" else ""))
    assert not found, "\n".join(found)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere.csv")


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda p: None, "no such file"),
    "a folder": (lambda p: p.mkdir(), "X.npy: no such file"),
    "a pipe": (lambda p: os.mkfifo(p), "is a pipe or a device"),
    "a loop of links": (loop, "Too many levels"),
    "a link to nothing": (dangling, "no such file"),
    "a device": (lambda p: p.symlink_to("/dev/zero"), "is a pipe or a device"),
    "a link to a folder": (lambda p: p.symlink_to("/"), "X.npy: no such file"),
}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_file(place: Any, method: str) -> None:
    at, found = place(method), []
    for name, (make, words) in PLACES.items():
        path = at.fresh() / at.federation.first
        path.unlink()
        if method == "sigma":
            job = Path("job.toml").read_text("utf-8")
            listed = '["rows/east.csv", "rows/north.csv", "rows/west.csv"]'
            Path("job.toml").write_text(job.replace('"rows/*.csv"', listed), "utf-8")
        make(path)
        for command in (("run", "job.toml", "--quiet", "--out", "out"), ("check", "job.toml")):
            found += judged(f"{name}, {command[0]}", clear(at.command(*command), words))
    assert not found, "\n".join(found)


def test_a_file_that_may_not_be_read(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at = place("pvi")
    path = at.fresh() / at.federation.first
    path.chmod(0)
    real = os.access
    monkeypatch.setattr(os, "access", lambda p, mode, **more: Path(p).name != path.name and real(p, mode, **more))
    assert not judged("permission", clear(at.run(), "Permission denied.*make it readable"))


@pytest.mark.parametrize("method", ["pvi", "sparse"])
def test_levels_are_not_merged(place: Any, method: str) -> None:
    """Each of these differs from another by letters alone: as many levels as there are texts."""
    levels = ["Müller", "Möller", "Muller", "МУЛЛЕР", "müller", "Mu\u200dller", "Mu ller", "Mu  ller", "Mueller"]
    levels += ["M\u00fc\u0301ller", "№1", "1", "01", "1.0"]
    at = place(method)
    path = at.fresh() / at.federation.first
    names = path.read_text("utf-8").split("\n")[0]
    many = [f"{i / 7 % 1:.3f},{levels[i % len(levels)]},{i % 2}" for i in range(10 * len(levels))]
    path.write_text("\n".join([names, *many]) + "\n", "utf-8")
    other = path.with_name("b.csv")
    other.write_text("\n".join([names, *many]) + "\n", "utf-8")
    ended = at.run()
    assert ended.code == 0, ended.err
    encoded = json.loads(Path("out/summary.json").read_text("utf-8"))["encoding"]["columns"]
    found = next(column["levels"] for column in encoded if column["name"] == "job")
    assert sorted(found) == sorted({cases.canonical(level) for level in levels})
    COUNT["cases"] += 1


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a job file: its path and its type."""
    for name, field in model.model_fields.items():
        types = (field.annotation, *typing.get_args(field.annotation))
        tables = [one for one in types if isinstance(one, type) and issubclass(one, BaseModel)]
        if tables and not str(field.annotation).startswith("dict"):
            yield (*path, name), dict
            yield from keys(tables[0], (*path, name))
        else:
            yield (*path, name), field.annotation


WRONG = {"a list of lists": "[[1]]", "a date": "2024-02-29", "a table of tables": "{a = {b = 1}}", "a negative infinity": "-inf"}


@pytest.mark.parametrize("method", [*methods.METHODS, "prior"])
def test_values_of_another_type(place: Any, method: str) -> None:
    """Every key of every section, with values that no key has; the line names the key."""
    at, found = place("pvi"), []
    at.fresh()
    model = PriorConfig if method == "prior" else methods.load_method(method).keys.Config
    first = "" if method in ("pvi", "prior") else f'[job]\nmethod = "{method}"\n'
    Path("odd.toml").write_text(first)
    command = ("sigma", "train", "odd.toml", "--quiet") if method == "prior" else ("check", "odd.toml")
    for n, (path, _) in enumerate(keys(model)):
        if path == ("job", "method"):
            continue
        key = ".".join(path)
        what, value = [*WRONG.items()][n % len(WRONG)]
        section = key if len(path) > 1 else f"{key}.zzz"
        words = rf"{re.escape(key)}\b|method = \"{method}\" has no private form"
        found += judged(f"{key} = {what}", clear(at.command(*command, "--set", f"{section}={value}"), words))
        if len(path) > 1:
            unknown = at.command(*command, "--set", f"{path[0]}.{path[-1]}zz=1")
            found += judged(f"{key}zz", clear(unknown, "unknown key"))
    assert not found, "\n".join(found)


DATA = b'[data]\nclients = ["rows/a.csv"]\nresponse = "y"\n'
JOBS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "data"),
    "a comment": (b"# nothing\n", "data"),
    "blank": (b"\n\n \n", "data"),
    "UTF-16": ("[job]\n".encode("utf-16"), "is no UTF-8 text"),
    "Latin-1": ("[data]\nresponse = 'größe'\n".encode("latin-1"), "is no UTF-8 text"),
    "zeros": (bytes(64), "is no TOML"),
    "JSON": (b'{"job": {"rounds": 1}}', "is no TOML"),
    "YAML": (b"job:\n  rounds: 1\n", "is no TOML"),
    "INI": (b"[job]\nrounds: 1\n", "is no TOML"),
    "a shell script": (b"#!/bin/sh\nmpirun -n 3 fedkern run\n", "is no TOML"),
    "CR": (b"[job]\rrounds = 1\r", "data: wanted"),
    "a key twice": (b"[job]\nrounds = 1\nrounds = 2\n", "is no TOML"),
    "a section twice": (b"[job]\nrounds = 1\n[job]\nseed = 2\n", "is no TOML"),
    "not closed": (b"[job\nrounds = 1\n", "is no TOML"),
    "no value": (b"[job]\nrounds =\n", "is no TOML"),
    "a word": (b"[job]\nmethod = pvi\n", "is no TOML"),
    "a number of 5000 digits": (b"[job]\nseed = " + b"9" * 5000, "is no TOML"),
    "5000 brackets": (b"x = " + b"[" * 5000, "is no TOML"),
    "5000 tables": (b"x = " + b"{a = " * 5000, "is no TOML"),
    "a list of sections": (b"[[job]]\nrounds = 1\n", "job = .*: wanted a table"),
    "a section that is a number": (b"job = 3\n", "job = 3: wanted a table"),
    "a section that is a text": (b'data = "a.csv"\n', 'data = "a.csv": wanted a table'),
    "a section that is a list": (b"model = []\n", r"model = \[\]: wanted a table"),
    "keys without a section": (b"rounds = 3\n", r"unknown section \[rounds\]"),
    "an unknown section": (b"[jobs]\nrounds = 3\n", r"unknown section \[jobs\]; did you mean \[job\]"),
    "a section in other letters": (b"[Job]\nrounds = 3\n", r"unknown section \[Job\]"),
    "a method that is a list": (b'[job]\nmethod = ["pvi"]\n', "job.method"),
    "a method that is a number": (b"[job]\nmethod = 1\n", "job.method = 1"),
    "a method in capitals": (b'[job]\nmethod = "PVI"\n', "job.method"),
    "an unknown method": (b'[job]\nmethod = "sparze"\n', 'did you mean "sparse"'),
    "NUL in a path": (b'[data]\nclients = ["a\\u0000.csv"]\nresponse = "y"\n', "data|is no path|printed"),
    "no clients": (b'[data]\nclients = []\nresponse = "y"\n', "data.clients"),
    "a client twice": (b'[data]\nclients = ["a.csv", "a.csv"]\nresponse = "y"\n', "would both be client 'a'|different"),
    "an empty path": (b'[data]\nclients = [""]\nresponse = "y"\n', "client"),
    "the folder itself": (b'[data]\nclients = ["."]\nresponse = "y"\n', "client"),
    "a pattern without files": (b'[data]\nclients = ["*.nothing"]\nresponse = "y"\n', "no file matches"),
    "a bad pattern": (b'[data]\nclients = ["**a/[/*.csv"]\nresponse = "y"\n', "pattern|no file matches|no such file"),
    "a pattern of the whole disk": (b'[data]\nclients = ["/nowhere-at-all/*"]\nresponse = "y"\n', "no file matches"),
    "a name with a line break": (b'[data]\nclients = ["a\\nb.csv"]\nresponse = "y"\n', "not printed"),
    "a name of 3000 letters": (b'[data]\nclients = ["' + b"a" * 3000 + b'.csv"]\nresponse = "y"\n', "bytes|too long"),
    "the response as an offset": (DATA + b'offset = "y"\n', "different columns"),
    "rounds without end": (b"[job]\nrounds = inf\n" + DATA, "job.rounds"),
    "a seed of 65 bits": (b"[job]\nseed = 18446744073709551616\n" + DATA, "job.seed"),
    "levels twice": (DATA + b'[data.columns.job]\nlevels = ["a", " a"]\n', "levels"),
    "an empty level": (DATA + b'[data.columns.job]\nlevels = [""]\n', "levels"),
    "lower above upper": (DATA + b"[data.columns.size]\nlower = 1\nupper = 0\n", "lower"),
    "a center without a scale": (DATA + b"[data.columns.size]\ncenter = 1\n", "scale"),
    "a scale of 0": (DATA + b"[data.columns.size]\nscale = 0\ncenter = 1\n", "scale"),
    "an enormous scale": (DATA + b"[data.columns.size]\nscale = 1e400\ncenter = 1\n", "scale"),
    "keys that are one": ("[data.columns]\n'\u00e9' = {}\n'e\u0301' = {}\n".encode(), "two of the keys"),
}


def test_job_files_of_odd_shape(place: Any) -> None:
    at, found = place("pvi"), []
    at.fresh()
    for name, (content, words) in JOBS.items():
        Path("odd.toml").write_bytes(content)
        for command in ("check", "run"):
            found += judged(f"{name}, {command}", clear(at.command(command, "odd.toml"), words))
    assert not found, "\n".join(found)


def test_job_files_that_are_none(place: Any) -> None:
    at, found = place("pvi"), []
    at.fresh()
    for name, (make, _) in PLACES.items():
        path = Path(name.replace(" ", "-"))
        make(path)
        for command in (("check",), ("run",), ("sigma", "train")):
            found += judged(f"{name}, {command[0]}", clear(at.command(*command, str(path)), str(path)))
    for path in ("", "x\0y", "x" * 5000, "rows/a.csv/job.toml", "~nobody/job.toml"):
        found += judged(path[:20], clear(at.command("check", path)))
    assert not found, "\n".join(found)


def test_a_job_file_that_is_written_otherwise_is_the_same(place: Any) -> None:
    at = place("pvi")
    want = at.right()
    for change in (lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: "\ufeff\n\n" + t.replace(" = ", "=")):
        path = at.fresh() / "job.toml"
        path.write_bytes(change(path.read_text("utf-8")).encode())
        assert (at.run().code, digest()) == (0, want)
        COUNT["cases"] += 1


def finite(ended: Ended) -> str | None:
    """What is wrong with an end that had to be a result: nothing on stderr, and finite numbers in the summary.

    Where one process runs a whole private job it may say there that no row of a client can be used.
    """
    lines = ended.err.splitlines()
    if ended.code or not all(
        re.fullmatch(r"fedkern: client '\w+': no row can be used \(.*; a private job goes on .*", one) for one in lines
    ):
        return f"{ended.code} {ended.err[-600:]}"
    found = json.loads(Path("out/summary.json").read_text("utf-8"))["parameters"]
    bad = [name for name, one in found.items() if not all(isinstance(one[key], float) for key in ("mean", "sd"))]
    return f"no finite numbers: {bad}" if bad else None


FAMILIES = [(method, family) for method, families in cases.KINDS_OF_RESPONSE.items() for family in families]
PUSHED = {("pvi", "poisson"), ("private", "gaussian"), ("sparse", "gaussian"), ("vertical", "gaussian"), ("sigma", "poisson")}


@pytest.mark.parametrize(
    ("method", "family"), [(pair if pair in PUSHED else pytest.param(*pair, marks=pytest.mark.nightly)) for pair in FAMILIES]
)
def test_extreme_numbers(place: Any, method: str, family: str) -> None:
    """In an open job one line that names the client, or a result; in a private one the row is no error."""
    at, found = place(method), []
    for name, extreme in (cases.EXTREMES | (cases.PRECISIONS if method in ("pvi", "private") else {})).items():
        if "count" in name and family != "poisson":
            continue
        folder = at.fresh()
        cases.with_family(folder, method, family)
        if extreme.key:
            first, ended = "job.toml", at.run("job.toml", "--set", f"{extreme.key}={extreme.value}")
        else:
            first = cases.plant(folder, method, extreme)
            ended = at.run()
        words = extreme.words or ""
        harmless = method == "private" and not extreme.key
        if harmless or not words or (words.startswith("?") and ended.code == 0):
            found += judged(name, finite(ended))
        else:
            at_fault = first if words == cases.LARGE else ""
            found += judged(name, clear(ended, words.lstrip("?")) or (None if at_fault in ended.err else ended.err))
    assert not found, "\n".join(found)


# What else a job file may ask that cannot be computed; the words are in the one line.
BEYOND: dict[str, dict[str, str]] = {
    "pvi": {
        "model.scale=1e300": r"model\.scale = 1e\+300: wanted a number of at most 1e\+50",
        "algorithm.learning_rate=1e300": r"learning_rate = 1e\+300: wanted a number of at most 1e\+50",
    },
    "sigma": {
        "model.scale=1e300": "model.scale = .*unknown",
        "model.spatial_scale=1e100": "model.spatial_scale = .*unknown",
        "model.coefficient_sd=1e300": "coefficient_sd = .*: wanted a number of at most",
        "model.coefficient_sd=1e-300": "left the finite numbers",
        "algorithm.start_sd=1e10": "client 'east': round 0: the gradient of G is not finite",
        "algorithm.learning_rate=1e10": "server: round 1: draws of xi left the finite numbers",
    },
    "vertical": {"model.rho=1e300": r"model\.rho", "model.rho=1e-300": r"model\.rho = 1e-300: wanted above"},
}


@pytest.mark.parametrize("method", BEYOND)
def test_settings_beyond_all_bounds(place: Any, method: str) -> None:
    at, found = place(method), []
    for text, words in BEYOND[method].items():
        at.fresh()
        found += judged(text, clear(at.run("job.toml", "--set", text), words))
    assert not found, "\n".join(found)


def test_an_optimiser_that_runs_away_names_its_client(place: Any) -> None:
    at = place("pvi")
    at.fresh()
    ended = at.run("job.toml", "--set", "algorithm.learning_rate=1e30", "--set", "algorithm.optimiser=adam")
    assert clear(ended, r"^fedkern: client 'a': round 0: .* the optimiser diverges \(lower algorithm\.learning_rate = ") is None


def test_counts_of_a_billion_have_the_right_posterior(place: Any) -> None:
    """Against Newton's method on the pooled rows."""
    at = place("pvi")
    folder = at.fresh()
    cases.with_family(folder, "pvi", "poisson")
    cases.plant(folder, "pvi", cases.EXTREMES["counts of 1e9"])
    shutil.copy(folder / "rows" / "a.csv", folder / "rows" / "b.csv")
    text = Path("job.toml").read_text("utf-8").replace('"y"\n', '"y"\nignore = ["job"]\n')
    Path("job.toml").write_text(text.replace("rounds = 1", "rounds = 20"), "utf-8")
    assert at.run().code == 0
    found = json.loads(Path("out/summary.json").read_text("utf-8"))["parameters"]
    assert found["intercept"]["mean"] == pytest.approx(np.log(1e9), abs=1e-4)
    assert found["theta[size]"]["mean"] == pytest.approx(0.0, abs=1e-4)
    assert found["intercept_std"]["sd"] == pytest.approx((72 * 1e9) ** -0.5, rel=1e-3)


MPI = [("pvi", "poisson", "a count of 1e15"), ("sparse", "gaussian", "a response of 1e300")]
MPI += [
    ("vertical", "gaussian", "a response of 1e300"),
    ("sigma", "poisson", "a cell of 1e300"),
    ("pvi", "gaussian", "a cell of 1e300"),
]
MPI += [("private", "gaussian", "a response of 1e300"), ("pvi", "poisson", "counts of 1e9")]


@pytest.mark.parametrize(
    ("method", "family", "name"), [MPI[0], MPI[1], *(pytest.param(*one, marks=pytest.mark.nightly) for one in MPI[2:])]
)
def test_extreme_numbers_end_alike_over_mpi(place: Any, method: str, family: str, name: str) -> None:
    at = place(method)
    folder = at.fresh()
    cases.with_family(folder, method, family)
    if method not in ("private", "sigma"):
        job = folder / "job.toml"
        job.write_text(f'{job.read_text("utf-8")}\n[disclosure]\nlevel = "standard"\n', "utf-8")
    first = cases.plant(folder, method, cases.EXTREMES[name])
    here = at.run()
    clients = 3 if method == "sigma" else 2
    there = mpirun(clients + 1, "run", "job.toml", "--quiet", "--out", "mpi")
    assert there.code == here.code
    if here.code == 0:
        assert json.loads(Path("mpi/summary.json").read_text("utf-8"))["digest"] == digest()
    else:
        said = launcher_removed(there.err)
        assert clear(Ended(there.code, "", said), first) is None
        # In one process all is said; others read that a rule refuses, and not which.
        here = replace(here, err=re.sub(r"refused by disclosure\.\w+", "refused by a disclosure rule", here.err))
        assert said.removeprefix("fedkern: ").partition(": ")[2].endswith(here.err.removeprefix("fedkern: ")) or here.err == said


SETS: dict[str, str] = {
    "": "wanted section.key=value",
    "=": "wanted section.key=value",
    "rounds=3": "wanted section.key=value",
    "job.rounds": "wanted section.key=value",
    "job..rounds=3": "wanted section.key=value",
    ".rounds=3": "wanted section.key=value",
    "job.=3": "wanted section.key=value",
    "job.rounds=": "job.rounds",
    "job.rounds==3": "job.rounds",
    "job.rounds=three": "job.rounds",
    "job.rounds=3 4": "job.rounds",
    "job.rounds=[": "job.rounds",
    'job.rounds="3"': "job.rounds",
    "job.rounds=1e3": "job.rounds",
    "job.rounds=1\njob.seed=2": "line break",
    "job.rounds=1\r\n[data]": "line break",
    "job.rounds=" + "9" * 5000: "job.rounds",
    "job.rounds=" + "[" * 5000: "job.rounds",
    "job.rounds.deep=3": "rounds is no section|job.rounds",
    "jobs.rounds=3": r"unknown section \[jobs\]",
    "job.ronds=3": "did you mean job.rounds",
    "job.seed=-1": "job.seed",
    "job.seed=1.0": "job.seed",
    "job.seed=true": "job.seed",
    "job.seed=nan": "job.seed",
    "job.method=gibbs": "job.method",
    "data.clients=rows/nothing.csv": "no such file",
    "data.clients=[1]": "data.clients",
    "data.response=nothing": "column 'nothing' is missing",
    "data.response=[y]": r"data.response|'\[y\]' is missing",
    "data.columns.size.center=x": "data.columns.size.center",
    "data.columns.nothing.levels=['a']": "column 'nothing' is missing",
    "model.family=binomial": "model.family",
    "model.prior_sd=1e400": "model.prior_sd",
    "model.prior_sd=-0.0": "model.prior_sd",
    "privacy.epsilon=1": "privacy",
    "algorithm.local_steps=0": "algorithm.local_steps",
    "output.client_folder=''": "output.client_folder",
    "output.draws=\u0665": "output.draws",
}


def test_overrides(place: Any) -> None:
    at, found = place("pvi"), []
    at.fresh()
    for text, words in SETS.items():
        found += judged(text[:60], clear(at.command("check", "job.toml", "--set", text), words))
    assert not found, "\n".join(found)


COMMANDS: list[tuple[tuple[str, ...], str]] = [
    ((), "usage"),
    (("rum",), "no such command; did you mean run"),
    (("run",), "required"),
    (("run", "job.toml", "--rounds", "3"), "unrecognized"),
    (("run", "job.toml", "--device", "tpu"), "invalid choice"),
    (("run", "job.toml", "--device", "cuda"), "needs CuPy"),
    (("run", "job.toml", "--resume"), "no run to resume"),
    (("run", "job.toml", "--out", "job.toml"), "job.toml"),
    (("run", "job.toml", "--out", "rows/a.csv/out"), "cannot write|rows/a.csv"),
    (("run", "job.toml", "--out", "x" * 300), "xxx"),
    (("check", "job.toml", "--local", "nothing.csv"), "nothing.csv"),
    (("check", "job.toml", "--local", "job.toml"), "unknown type"),
    (("check", "job.toml", "--local", "rows"), "X.npy"),
    (("report", "nothing"), "nothing"),
    (("report", "rows"), "rows"),
    (("report", "job.toml"), "job.toml"),
    (("reproduce", "nothing"), "no such reproduction"),
    (("simulate", "nothing", "--out", "s"), "nothing"),
    (("simulate", "logistic"), "required"),
    (("simulate", "logistic", "--out", "s", "--clients", "0"), "clients"),
    (("simulate", "logistic", "--out", "s", "--clients", "-3"), "clients"),
    (("simulate", "logistic", "--out", "s", "--rows", "0"), "rows"),
    (("simulate", "logistic", "--out", "s", "--columns", "0"), "columns"),
    (("simulate", "logistic", "--out", "s", "--seed", "-1"), "seed"),
    (("simulate", "logistic", "--out", "s", "--rows", "many"), "invalid int"),
    (("simulate", "logistic", "--out", "job.toml"), "job.toml"),
    (("sigma",), "required"),
    (("sigma", "train", "job.toml"), "job.toml|unknown"),
    (("info", "--all"), "unrecognized"),
]


def test_command_lines(place: Any) -> None:
    at, found = place("pvi"), []
    for arguments, words in COMMANDS:
        at.fresh()
        found += judged(" ".join(arguments)[:60], clear(at.command(*arguments), words))
    assert not found, "\n".join(found)
