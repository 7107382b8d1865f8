"""The ten lines of `fedkern check`: of jobs of all methods, with what must be read first, and beside them the long forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern as package
from fedkern.jobs import memory
from fedkern.jobs.brief import WIDTH
from support.golden_jobs import golden_jobs

CHARACTERS, LINES = 1200, 10
LINK = {
    "likelihood-groups": "poisson (log): visits ~ x + z + s + (1 | ward) + (1 | client)",
    "likelihood-formula": "gaussian (identity): pressure ~ x * s + cs(z, df = 3) + (1 | ward)",
    "likelihood-cox": "cox (log hazard): Surv(months, died) ~ x + strata(s)",
    "pvi-sequential": "bernoulli (logit): sick ~ x + z + s; event: sick = yes",
    "pvi-breast-cancer": "bernoulli (logit): diagnosis ~ mean radius + mean texture + ",
    "pvi-private-poisson": "bernoulli (logit): sick ~ x + z + s; event: sick = yes",
    "sparse-sem": "sparse: cyclic structural equations",
    "vertical-amortised": "bernoulli (logit): y ~ columns of 2 clients",
    "vertical-private": "bernoulli (logit): y ~ columns of 2 clients",
    "sigma-nested": "poisson (log): cases ~ poverty",
}
WORDS = ["model", "clients", "leaves", "tells", "level", "privacy", "time", "bytes", "verdict"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("golden")
    golden_jobs().write(folder)
    return folder


@pytest.mark.parametrize("name", LINK)
def test_ten_lines_say_what_a_job_does(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, fedkern: Any) -> None:
    base, *sets = golden_jobs().JOBS[name]
    method, _, file = base.partition("/")
    monkeypatch.chdir(folder / method)
    if method == "sigma":
        assert fedkern("sigma", "build", "prior-built.toml", "--out", "built", "--quiet").code == 0
    given = [word for one in sets for word in ("--set", one)]
    ended = fedkern("check", f"{file}.toml", *given)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    begun = [line.split(" ", 1)[0] for line in lines if not line.startswith(" ")]
    warned = next(k for k, line in enumerate(lines) if line.startswith("model "))
    assert begun[-len(WORDS) :] == WORDS
    assert all(word.isupper() for word in begun[: -len(WORDS)])
    assert len(lines[warned:]) <= LINES
    assert len("\n".join(lines[warned:])) <= CHARACTERS
    assert max(map(len, lines)) <= WIDTH
    said = {line[:9].strip(): line[9:] for line in lines[warned:] if not line.startswith(" ")}
    assert said["model"].startswith(LINK[name])
    private = "private" in name
    assert said["clients"].startswith(f"{2 if method == 'vertical' else 3} by {name.partition('-')[0]}: ")
    assert (" rows)" in said["clients"]) is not private, "a private job reads no row for it"
    assert said["level"].startswith("none: ")
    assert said["privacy"].startswith("epsilon infinite (secure: " if private else "none is claimed")
    verbose = fedkern("check", "--verbose", f"{file}.toml", *given).out
    assert f"together: {said['bytes'].partition(' clients ')[2].split()[0]} bytes" in verbose
    table = fedkern("check", "--messages", f"{file}.toml", *given).out
    assert table.startswith(ended.out)
    assert table.removeprefix(ended.out).strip() in verbose


def rows(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, n))
    return pd.DataFrame({"a": a, "b": b, "one": 1.0, "y": (a + random.normal(size=n) > 0).astype(int)})


JOB = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
DATA = {name: rows(200, seed) for seed, name in enumerate("abc")}


def line(word: str, data: dict[str, pd.DataFrame] = DATA, **more: Any) -> str:
    (found,) = [line for line in package.check(JOB, data=data, **more) if line.startswith(f"{word:<9}")]
    return found[9:]


def test_a_notebook_shows_the_lines_that_the_terminal_prints(tmp_path: Path, fedkern: Any) -> None:
    for name, table in DATA.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    job = "".join(f'[{name}]\n{key} = "{value}"\n' for name, table in JOB.items() for key, value in table.items())
    (tmp_path / "job.toml").write_text(job.replace("[data]", '[data]\nclients = ["*.csv"]'))
    said = package.check(tmp_path / "job.toml")
    assert str(said) + "\n" == repr(said) + "\n" == fedkern("check", tmp_path / "job.toml").out
    assert "1 note: column &#x27;one&#x27; has one value" in said._repr_html_()
    assert len(package.check(tmp_path / "job.toml", verbose=True)) > 40


def test_rules_hold_or_what_would_be_refused_stands_first() -> None:
    assert line("level", apart=True).endswith("the rules hold for 3 of 3 clients")
    assert "few a coefficient: its rows and labels" in " ".join(str(package.check(JOB, data=DATA)).split())
    assert "few a coefficient" not in str(package.check(JOB, data=DATA, apart=True)), "clients have as many as the rules ask for"
    few = {**DATA, "d": rows(7, 9)}
    first = package.check(JOB, data=few)[0]
    assert first.startswith("APART    all rows are in this process; with parties apart, 'd' would be refused (rows = 7")
    assert line("level", few).endswith("1 of 4 would be refused")
    left = {"disclosure": {"small": "leave-out"}, "apart": True}
    assert line("LEFT OUT", few, **left).startswith("client 'd' is left out: ")
    assert line("level", few, **left).endswith("the rules hold for 3 of 4 clients")
    lowered = package.check(JOB, data=DATA, disclosure={"level": "standard", "rows": 5})
    assert lowered[0].startswith('LOWERED  this job asks for less than level "standard" (disclosure.rows)')


def test_a_machine_with_too_little_memory_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"job": {"method": "sparse"}, "data": {"response": "y"}}
    monkeypatch.setattr(memory, "SILENT", 0)
    assert not [said for said in package.check(job, data=DATA) if said.startswith("MEMORY")]
    monkeypatch.setattr(memory, "available", lambda: 1.0)
    assert memory.TOO_MUCH in package.check(job, data=DATA)[0]


def test_many_clients_and_long_names_fit() -> None:
    many = {f"hospital-{k:02}": rows(200, k) for k in range(30)}
    said = package.check(JOB, data=many)
    assert " and 2" in line("clients", many)
    assert line("clients", many).endswith(" more")
    assert max(map(len, said)) <= WIDTH
    long = {name: table.rename(columns={"a": "a" * 150}) for name, table in DATA.items()}
    assert max(map(len, package.check(JOB, data=long))) <= WIDTH
