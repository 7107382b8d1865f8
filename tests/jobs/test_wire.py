"""`fedkern check` says exactly what leaves: its list against the ledgers and the wire of a run, both ways, messages and sizes.

The variants of each method are compared where they are tested; here are the example jobs, the simulated ones, those of the
methods' pages, and what a job sends only sometimes.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import check_job, perform
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts as artifacts
from support.command import mpirun
from support.published import needs
from support.wires import Wire, checked_and_run, compare, ledgers, listed, totals

ROOT = Path(__file__).parents[2]
FEW: dict[str, dict[str, Any]] = {
    "breast-cancer": {"job": {"rounds": 10}},
    "adult-dp": {"job": {"rounds": 1}, "algorithm": {"local_steps": 1}},
    "heart-disease": {"job": {"rounds": 20}, "algorithm": {"burn_in": 4, "until": {"max_rounds": 20}}},
    "heart-failure": {"job": {"rounds": 3}},
}


@pytest.mark.parametrize(
    "name",
    [
        "breast-cancer",
        pytest.param("adult-dp", marks=needs("uci-adult")),
        pytest.param("heart-disease", marks=needs("uci-heart-disease")),
        pytest.param("heart-failure", marks=needs("heart-failure-prediction")),
    ],
)
def test_the_example_jobs(tmp_path: Path, name: str) -> None:
    checked_and_run(ROOT / "mpi" / f"{name}.toml", tmp_path / "out", **FEW[name])


def test_every_example_job_is_compared() -> None:
    examples = {path.stem for path in (ROOT / "mpi").glob("*.toml") if not path.stem.startswith("reference")}
    assert examples == FEW.keys()


@pytest.mark.parametrize("kind", ["logistic", "poisson", "regression", "mrf", "sem", "sparse", "vertical"])
def test_the_simulated_jobs(tmp_path: Path, kind: str) -> None:
    path = simulate(kind, tmp_path / kind, Settings(clients=2, rows=40, columns=3))
    graph = kind in ("mrf", "sem", "sparse")
    checked_and_run(path, tmp_path / "out", job={"rounds": 10}, **({"algorithm": {"burn_in": 2}} if graph else {}))


def test_the_simulated_map(tmp_path: Path) -> None:
    """Its prior is not trained here: networks with random weights have messages of the same size."""
    path = simulate("sigma", tmp_path / "sigma", Settings(clients=2, rows=6, columns=1))
    files = sorted((path.parent / "clients").glob("*.csv"))
    sizes = []
    for file in files:  # the areas' names are those of the random prior
        head, *rows = [line.partition(",") for line in file.read_text().splitlines()]
        known = {area: f"{file.stem}-{i}" for i, area in enumerate(dict.fromkeys(area for area, *_ in rows))}
        file.write_text("\n".join("".join(row) for row in [head, *((known[area], *rest) for area, *rest in rows)]) + "\n")
        sizes.append(len(known))
    artifacts.written(path.parent / "prior", names=[file.stem for file in files], sizes=sizes)
    without_map = {"polygons": None}  # its areas have the simulated names
    checked_and_run(path, tmp_path / "out", job={"rounds": 5}, data=without_map)


def table(path: Path, names: str, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]) + "\n")


def documented(folder: Path) -> dict[str, Path]:
    """The first job of each method's page, with data for it: method -> job file."""
    random, ids = np.random.default_rng(0), range(40)
    for name in "ab":
        rows = [(random.normal(), random.normal()) for _ in ids]
        table(folder / "clients" / f"{name}.csv", "age,income", [(40 + 9 * a, "yes" if a + b > 0 else "no") for a, b in rows])
        table(folder / "hospitals" / f"{name}.csv", "age,sex,dose,heart rate", random.normal(size=(40, 4)).tolist())
        wards = [(*random.normal(size=2), f"w{i % 8}", int(random.normal() > 0)) for i in range(300)]
        table(folder / "wards" / f"{name}.csv", "age,time,ward,died", wards)
        table(folder / f"{name}.csv", f"patient,{name}1,{name}2", [(f"p{i}", *random.normal(size=2)) for i in ids])
        artifacts.counts(folder / "states", ("a", "b"), (4, 5))
    table(folder / "test.csv", "age,income", [(40, "yes"), (30, "no")])
    table(folder / "outcome.csv", "patient,disease", [(f"p{i}", i % 2) for i in ids])
    for path in (folder / "states").iterdir():
        path.write_text(path.read_text().replace("district,cases", "county,deaths"))
    artifacts.written(folder / "prior", names=("a", "b"), sizes=(4, 5))
    jobs = {}
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "methods").glob("*.md"))
    for text in re.findall(r"```toml\n(.*?)```", pages, flags=re.DOTALL):
        if "job" in (tables := tomllib.loads(text)) and (method := tables["job"]["method"]) not in jobs:
            jobs[method] = folder / f"{method}.toml"
            jobs[method].write_text(text)
    return jobs


def test_the_jobs_of_the_pages(tmp_path: Path) -> None:
    jobs = documented(tmp_path)
    assert jobs.keys() == {"likelihood", "pvi", "sparse", "vertical", "sigma"}
    for method, path in jobs.items():
        few: dict[str, Any] = {"job": {"rounds": 4}}
        few |= {"algorithm": {"points": 256, "effective": 50.0}} if method == "likelihood" else {}
        few |= {"algorithm": {"burn_in": 1, "until": {"max_rounds": 4}}} if method == "sparse" else {}
        checked_and_run(path, tmp_path / "out" / method, **few)


def test_a_list_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """Negative control: a message too many, one too few, another size, in either direction."""
    path = small(tmp_path)
    said = "\n".join(check_job(InProcess(), *load(path)) or [])
    checked_and_run(path, tmp_path / "out")
    sent = ledgers(tmp_path / "out")
    compare(said, sent)
    for old, new in (
        (r"\n  Received .*", ""),
        (r"(\n  Received .*)32", r"\g<1>40"),
        (r"(\n  Received .*)", r"\1\n  Refused  round  56"),
        (r"\n  SiteDelta .*", ""),
    ):
        wrong = re.sub(old, new, said)
        assert wrong != said
        with pytest.raises(AssertionError):
            compare(wrong, sent)


# --- what a job sends only sometimes

JOB = "[job]\nrounds = 3\n[data]\nclients = ['c*.csv']\nresponse = 'y'\n"


def small(folder: Path, text: str = JOB, cells: str = "") -> Path:
    """Two clients with a number and, if asked, a column of texts."""
    random = np.random.default_rng(1)
    for k in range(2):
        words = [[cells[i % len(cells)]] if cells else [] for i in range(36)]
        rows = [(x, *word, int(x > i / 36 - 0.5)) for i, (x, word) in enumerate(zip(random.normal(size=36), words))]
        table(folder / f"c{k}.csv", "x,ward,y" if cells else "x,y", rows)
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def test_checkpoints_and_the_answer_to_them(tmp_path: Path) -> None:
    path = small(tmp_path)
    checked_and_run(path, tmp_path / "out", algorithm={"checkpoint_every": 1e-6}, wanted=("Keep", "Kept"))


def test_a_refusal_is_listed_where_there_is_a_budget_and_only_there(tmp_path: Path) -> None:
    privacy = {"epsilon": 8.0, "delta": 1e-3, "clip": 2.0, "noise_multiplier": 2.0, "sampling_rate": 0.5}
    path = small(tmp_path)
    for variant in ("pvi", "global-vi"):
        data = {"standardise": "none", "columns": {"x": {"kind": "numeric"}}}
        private = {"privacy": privacy, "data": data, "algorithm": {"variant": variant, "local_steps": 1}}
        spent = {"job": {"rounds": 400}, "privacy": privacy | {"epsilon": 2.0}}
        checked_and_run(path, tmp_path / variant, **(private | spent), wanted=("Refused",))
        checked_and_run(path, tmp_path / f"{variant}-open", algorithm={"variant": variant})


def test_that_rows_are_too_few_is_listed_where_the_server_reads_it(tmp_path: Path) -> None:
    path, few = small(tmp_path), "numbers of its clients that have too few rows, or take part by a summary"

    def control(**sections: Any) -> str:
        return str(fedkern.check(path, **sections, verbose=True))

    assert few not in control(disclosure={"level": "strict"})
    assert few not in control(disclosure={"level": "none", "small": "leave-out"})
    assert few in control(disclosure={"level": "strict", "small": "leave-out"})
    asked = {"level": "standard", "rows_per_coefficient": 1}
    assert few in control(job={"method": "likelihood"}, model={"family": "bernoulli"}, disclosure=asked)


@pytest.mark.parametrize("method", ["pvi", "sparse"])
def test_a_column_of_texts_makes_messages_longer_and_check_says_so(tmp_path: Path, method: str) -> None:
    """Until the job file declares its levels: then the list is right again."""
    text = JOB.replace("[data]", f"method = '{method}'\n[data]")
    path = small(tmp_path, text, "abc")
    said = "\n".join(check_job(InProcess(), *load(path)) or [])
    assert "sizes are those of numeric columns (x, ward); a column of texts counts by its levels" in said
    with pytest.raises(AssertionError, match=r"sent, and listed: .*(SiteDelta|Locals)"):
        checked_and_run(path, tmp_path / "out")
    declared = {"columns": {"x": {"kind": "numeric"}, "ward": {"levels": ["a", "b", "c"]}}}
    said = "\n".join(check_job(InProcess(), *load(path, sections={"data": declared})) or [])
    assert "sizes are those" not in said
    checked_and_run(path, tmp_path / "declared", data=declared)


def test_ranks_send_what_is_listed(tmp_path: Path) -> None:
    path = simulate("sparse", tmp_path / "sparse", Settings(clients=3, rows=30, columns=2))
    sets = ["--set", "job.rounds=12", "--set", "algorithm.burn_in=2"]
    said = "\n".join(check_job(InProcess(), *load(path, sets[1::2])) or [])
    ended = mpirun(3, "run", path, "--out", tmp_path / "out", *sets)
    assert ended.code == 0, ended.err
    control = {("control", kind): sizes for (_, kind), sizes in ledgers(tmp_path / "out", "rank-*").items()}
    sizes, sometimes = listed(said)
    texts = {what for what, size in sizes.items() if not size}
    assert {what: size for what, size in control.items() if what not in texts} == {
        what: sizes[what] for what in sizes if what[0] == "control" and what not in sometimes
    }
    assert control.keys() <= sizes.keys()
    compare(said, ledgers(tmp_path / "out", "client*"))


# --- what the whole job sends


def said_of(path: Path, *sets: str) -> str:
    return "\n".join(check_job(InProcess(), *load(path, sets)) or [])


@pytest.mark.parametrize("kind", ["sfvi", "soul"])
def test_a_vertical_job_sends_what_is_said_to_the_byte(tmp_path: Path, kind: str) -> None:
    """All of it, in both directions, of each client."""
    path = simulate("vertical", tmp_path / "vertical", Settings(clients=3, rows=40, columns=2))
    own = ["algorithm.inference=soul", "algorithm.covariance=diagonal"] if kind == "soul" else []
    if kind == "soul":
        path.write_text(re.sub(r"(?m)^(auxiliary|missing_party|covariance).*\n", "", path.read_text()))
    config, folder = load(path, ["job.rounds=12", *own])
    said = "\n".join(check_job(InProcess(), config, folder) or [])
    wire = Wire()
    with wire:
        perform(InProcess(), config, folder, Output(None, quiet=True))
    for (way, _), sent in wire.totals.items():
        assert tuple(sent) == totals(said)[way]
    both = sum(n_bytes for _, n_bytes in totals(said).values())
    assert f"all 3 clients together: {3 * both:,} bytes" in said


def test_a_job_that_sends_gigabytes_says_so(tmp_path: Path) -> None:
    """Of rows and rounds; nothing is sent to find it."""
    path = simulate("vertical", tmp_path / "vertical", Settings(clients=2, rows=4000, columns=1))
    said = said_of(path, "job.rounds=50000")
    (line,) = [line for line in said.splitlines() if line.startswith("  sends")]
    messages, n_bytes = totals(said)["to_server"]
    assert messages > 50_000
    assert n_bytes > 50_000 * 4000 * 0.8 * 8
    assert line.endswith(f"{n_bytes / 1e9:.3g} GB")
    assert " GB)" in said.splitlines()[-1]


def test_statistics_leave_once_in_each_run(tmp_path: Path) -> None:
    path = simulate("sparse", tmp_path / "sparse", Settings(clients=3, rows=40, columns=3))
    sent, said = {}, {}
    for name, again in {"once": False, "again": True}.items():
        job = {"job": {"rounds": 10}, "algorithm": {"burn_in": 2, "statistics": "pooled"}}
        job |= {"output": {"leave_one_out": again, "sensitivity": again}}
        checked_and_run(path, tmp_path / name, **job)
        sets = [f"{section}.{key}={str(value).lower()}" for section, keys in job.items() for key, value in keys.items()]
        said[name] = totals(said_of(path, *sets))["to_server"][0]
        ledger = min((tmp_path / name / "ledger").glob("*.jsonl")).read_text()
        without_content = ledger.count('"kind": "Received"')
        sent[name] = ledger.count('"kind": "Statistics"'), ledger.count("\n") - without_content
    assert sent["once"][0] == 1 < sent["again"][0]
    assert said["again"] - said["once"] == sent["again"][1] - sent["once"][1]


def test_a_budget_bounds_what_is_sent(tmp_path: Path) -> None:
    path = small(tmp_path)
    privacy = {"epsilon": 8.0, "delta": 1e-3, "clip": 2.0, "noise_multiplier": 2.0, "sampling_rate": 0.5}
    data = {"standardise": "none", "columns": {"x": {"kind": "numeric"}}}
    checked_and_run(path, tmp_path / "out", privacy=privacy, data=data, job={"rounds": "budget"}, algorithm={"local_steps": 4})
