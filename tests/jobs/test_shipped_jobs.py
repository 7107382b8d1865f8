"""Every job that the package ships, writes or shows has the rows that it asks for, or names the key where it wants fewer."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedkern.data.simulate import federations
from fedkern.disclosure.rules import LEVELS, told_by_values, told_up_to
from fedkern.errors import OwnFault
from fedkern.finding import RuleRefusal
from fedkern.jobs import admitted, engine
from fedkern.jobs.holding.binding import Binding
from fedkern.jobs.holding.policy import DataSet
from fedkern.jobs.keys import JobConfig
from fedkern.jobs.run import Part
from fedkern.methods import load, load_method, parse
from fedkern.transports.inprocess import InProcess
from support.golden_jobs import golden_jobs

STANDARD = LEVELS["standard"]

ROOT = Path(__file__).parents[2]
FILES = sorted([ROOT / "fedkern" / "demo.toml", *(ROOT / "mpi").glob("*.toml")])
TEXTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SCRIPTS = sorted([*(ROOT / "docs" / "gallery").glob("*.py"), *(ROOT / "benchmarks" / "papers").glob("*.py")])


def counts(config: JobConfig, folder: Path) -> int:
    """Whether nobody is refused where parties are apart; the number of clients that counted."""
    place, method = InProcess(), load_method(config.job.method)
    parties = engine.there(method, Part(place, config, folder))
    if config.level == "none":
        return 0
    nobody = {k: Binding(name, DataSet(())) for k, name in enumerate(parties.names)}
    kept = admitted.kept(place, config, parties, nobody)
    assert len(kept.numbers) == parties.n_clients
    return parties.n_clients


def lowers(config: JobConfig) -> bool:
    """Whether a job asks for less than level "standard"."""
    return admitted.lowered(config) is not None


def rules(fault: Exception) -> Iterator[RuleRefusal]:
    """The refusals by a rule that an error holds."""
    if isinstance(fault, RuleRefusal):
        yield fault
    for one in getattr(fault, "errors", ()):
        yield from rules(one)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_job_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private ones, too, if their [privacy] is left out."""
    try:
        counts(*load(path))
        tables = {key: table for key, table in tomllib.loads(path.read_text()).items() if key not in ("privacy", "algorithm")}
        tables["job"] = {key: value for key, value in tables["job"].items() if key != "rounds"}
        assert counts(parse(tables), path.parent) > 0
    except OwnFault as fault:
        if {one.finding.id for one in rules(fault)} != {"rare-values"}:  # Adult has rare levels
            raise
    except Exception as fault:
        if "FEDKERN_DATA" not in str(fault):
            raise
        pytest.skip(str(fault))


@pytest.mark.parametrize("rows", [200, 20, 7])
@pytest.mark.parametrize("kind", [kind for kind in federations.KINDS if kind != "sigma"])
def test_what_is_simulated(kind: str, rows: int, tmp_path: Path) -> None:
    config, folder = load(federations.simulate(kind, tmp_path, federations.Settings(clients=3, rows=rows, columns=3)))
    assert counts(config, folder) >= 2
    assert lowers(config) == (rows < (150 if kind in federations.COUNTED else 20))


def test_simulated_jobs_ask_for_no_less_where_rows_are_enough() -> None:
    assert federations.ENOUGH >= max(STANDARD.rows, STANDARD.rows_of_one_column)
    for columns in range(1, 60):
        sites, levels = told_up_to(columns + 1, STANDARD, diagonal=False), told_by_values(columns + 4, STANDARD)
        events = 2 * told_by_values(columns, STANDARD)  # about half of the times end with one
        assert max(sites, levels, events) < federations.OF_EACH * (columns + 3)


def test_the_golden_jobs(tmp_path: Path) -> None:
    jobs = golden_jobs()
    jobs.write(tmp_path)
    counted = 0
    for name, (base, *sets) in jobs.JOBS.items():
        if not name.startswith("sigma"):
            counted += counts(*load(tmp_path / f"{base}.toml", sets)) > 0
    assert counted > 10


def shown() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in TEXTS:
        for block in re.findall(r"```toml\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL):
            tables = tomllib.loads(block)
            if "job" in tables:
                yield path, tables


def test_what_the_pages_show() -> None:
    """At the default, or with keys in the text. Tests of the pages run them."""
    jobs = [*shown()]
    assert len(jobs) > 5
    for path, tables in jobs:
        config = parse(tables)
        if not config.private:
            assert not config.old_keys, path
            assert not lowers(config) or "disclosure" in tables, path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_script_lowers_the_number_unsaid(path: Path) -> None:
    """They run in tests of their own, at the defaults; one that wants fewer rows says why."""
    for line in path.read_text(encoding="utf-8").splitlines():
        assert "disclosure" not in line or "#" in line, f"{path.name}: {line.strip()}: say in a comment why fewer rows are right"


def test_what_benchmarks_measure_is_refused_by_nobody(tmp_path: Path) -> None:
    """Of those that run jobs with small clients."""
    jobs = {name: runpy.run_path(str(ROOT / "benchmarks" / name)) for name in ("launch_load.py", "benchmarks/bench_scale.py")}
    (tmp_path / "job.toml").write_text(jobs["launch_load.py"]["JOB"].format(clients=31), encoding="utf-8")
    assert counts(*load(tmp_path / "job.toml")) == 31
    assert jobs["benchmarks/bench_scale.py"]["check"](tmp_path, 30, "")()


def test_what_init_drafts(fedkern: Any, tmp_path: Path) -> None:
    folder = federations.simulate("logistic", tmp_path / "made", federations.Settings(clients=2, rows=80, columns=3)).parent
    assert fedkern("init", *sorted(folder.glob("clients/*.csv")), "--response", "y").code == 0
    config, at = load(tmp_path / "job.toml")
    assert not lowers(config)
    assert counts(config, at) == 2
