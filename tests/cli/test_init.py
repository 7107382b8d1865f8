"""`fedkern init` and `fedkern schema`: what is drafted is valid, and shows no cell."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fedkern.cli.__main__ import main
from fedkern.data.simulate import federations
from fedkern.jobs.run import Output
from fedkern.methods import METHODS, draft
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import load
from fedkern.privacy import policy

KINDS = {"logistic": "pvi", "poisson": "pvi", "regression": "pvi", "sparse": "sparse", "mrf": "sparse", "sem": "sparse"}
KINDS |= {"vertical": "vertical", "sigma": "sigma"}


def simulated(kind: str, folder: Path) -> Path:
    federations.simulate(kind, folder, federations.Settings(clients=3, rows=40, columns=3))
    if kind == "sigma":
        build.perform(*load(folder / "prior.toml"), Output(folder / "prior", quiet=True))
    return folder


def drafted(kind: str, folder: Path, *options: str) -> Path:
    """The job file that is drafted for a federation."""
    files = [str(path) for path in sorted((folder / "clients").glob("*"))]
    own = [f"--{name}={path}" for name in ("test", "server") if (path := folder / f"{name}.csv").exists()]
    method = [] if kind in ("vertical", "sigma") else ["--method", KINDS[kind]]  # the headers say it
    assert main(["init", *files, *method, *own, *options, "--out", str(folder / "drafted.toml")]) == 0
    return folder / "drafted.toml"


@pytest.mark.parametrize("kind", KINDS)
def test_check_accepts_it_unchanged(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = drafted(kind, simulated(kind, tmp_path))
    assert main(["check", str(path)]) == 0, capsys.readouterr().err
    job = tomllib.loads(path.read_text())
    assert job["job"]["method"] == KINDS[kind]
    assert path.read_text().startswith(f"#:schema ./fedkern-{KINDS[kind]}.schema.json\n")
    schema = json.loads((tmp_path / f"fedkern-{KINDS[kind]}.schema.json").read_text())
    jsonschema.validate(job, schema)
    jsonschema.validate(tomllib.loads((tmp_path / "job.toml").read_text()), schema)


ODD = """\
Fall-Nr;Größe;Station;Geheim;gestorben
A-17;171,5;Köln;Zappa;0
A-18;160,0;Köln;Bowie;1
A-19;188,2;Münster;Cage;0
A-20;170,9;Münster;Zappa;1
"""


def odd(folder: Path, text: str = ODD) -> Path:
    path = folder / "nord.csv"
    path.write_bytes(text.encode("cp1252"))
    return path


def test_no_cell_is_written_or_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = odd(tmp_path)
    assert main(["init", str(path), "--out", str(tmp_path / "job.toml")]) == 2
    said = capsys.readouterr().err
    assert "which column is to be explained? give --response, one of Größe, Station" in said
    assert main(["init", str(path), "--response", "gestorben", "--out", str(tmp_path / "job.toml")]) == 0
    text = (tmp_path / "job.toml").read_text()
    job = tomllib.loads(text)
    assert job["data"]["dialect"] == {"delimiter": ";", "decimal": ",", "encoding": "cp1252"}
    assert job["data"]["ignore"] == ["Fall-Nr"]
    assert job["model"]["family"] == "bernoulli"
    for cell in ("Köln", "Zappa", "A-17", "171"):
        assert cell not in text + said
    assert main(["check", str(tmp_path / "job.toml")]) == 2  # rare levels: the next thing that a person must decide
    assert "may say who the rows are" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["logistic", "vertical"])
def test_a_private_jobs_constants_are_asked_for_all_at_once(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = drafted(kind, simulated(kind, tmp_path), "--private")
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    names = ["x1", "x2", "x3"] if kind == "logistic" else []
    for name in names:
        assert f"'{name}'" in said
    text = path.read_text()
    assert "# center = .., scale = .." in text or kind == "vertical"
    if kind == "logistic":
        filled = text.replace("# center = .., scale = ..   (or lower = .., upper = ..)", "center = 0.0\nscale = 2.0")
        path.write_text(filled)
        assert main(["check", str(path)]) == 0, capsys.readouterr().err


def test_a_holders_policy(tmp_path: Path) -> None:
    path = odd(tmp_path)
    assert main(["init", str(path), "--holder", "--out", str(tmp_path / "policy.toml")]) == 0
    text = (tmp_path / "policy.toml").read_text()
    assert tomllib.loads(text)["data"]["nord"]["paths"] == [str(path)]
    assert policy.read_policies(tmp_path / "policy.toml").require


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "pvy"], "init --method pvy: there are pvi, vertical, sigma, sparse"),
        (["--method", "sparse", "--private"], 'method = "sparse" makes no privacy claim'),
        (["--method", "sigma", "--response", "y"], "no column is called as areas are"),
        (["--response", "zz"], "init --response zz: there is no such column"),
        (["nowhere.csv"], "no such file"),
    ],
)
def test_what_cannot_be_drafted(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,y\n1,0\n2,1\n")
    assert main(["init", "a.csv", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not Path("job.toml").exists()


def test_files_with_other_columns_and_a_file_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,y\n1,0\n2,1\n")
    Path("b.csv").write_text("x,z,y\n1,0,1\n2,1,0\n")
    assert main(["init", "a.csv", "b.csv"]) == 2
    assert "b.csv has other columns than the rest" in capsys.readouterr().err
    Path("job.toml").write_text("mine")
    assert main(["init", "a.csv"]) == 2
    assert "job.toml is there already" in capsys.readouterr().err
    assert Path("job.toml").read_text() == "mine"


@pytest.mark.parametrize("method", METHODS)
def test_the_schema_knows_what_check_knows(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--method", method]) == 0
    schema: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.Draft7Validator.check_schema(schema)
    good = {"job": {"method": method, "rounds": "until"}, "data": {"clients": "a.csv"}}
    jsonschema.validate(good | {"data": {"clients": ["a.csv"]}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"job": {"metod": method}, "data": {}}, schema)
    assert schema == json.loads(draft.schema(method))


def test_an_unknown_method_of_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--method", "sparce"]) == 2
    assert 'did you mean "sparse"?' in capsys.readouterr().err


def test_completion(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", "bash"])
    assert "launch" in capsys.readouterr().out


