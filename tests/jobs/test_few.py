"""Clients with few rows: refused or left out where they live, and what leaves then says nothing of how many rows there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedkern as package
from fedkern.data.table import Table
from fedkern.disclosure import few
from fedkern.disclosure.combinations import combinations
from fedkern.disclosure.refusals import Broken
from fedkern.disclosure.rules import LEAST_ROWS, LEVELS
from fedkern.errors import JobError
from fedkern.jobs import admitted
from fedkern.methods import parse
from fedkern.models.encoding import Column, Spec
from support.command import mpirun_jobs

ROWS = 'response = "y"\nignore = ["id"]\n'
METHODS = {
    "pvi": f'[job]\nmethod = "pvi"\nrounds = 2\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\n{ROWS}',
    "sparse": f'[job]\nmethod = "sparse"\nrounds = 40\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\n{ROWS}',
    "vertical": '[job]\nmethod = "vertical"\nrounds = 2\n[data]\n'
    'clients = ["a.csv", "b.csv", "c.csv"]\nid = "id"\nresponse = "y"\n',
}
ANY_ROWS = "rows_per_coefficient = 0\nrows_per_value = 0\ncombinations = 0\nleverage = 1.0\n"
STRICT = '[disclosure]\nlevel = "strict"\n'
AT_STRICT = {"disclosure": {"level": "strict"}}
PRIVATE = (
    "[data.columns]\nx = {center = 0, scale = 1}\nz = {center = 0, scale = 1}\n[algorithm]\nlocal_steps = 2\n[privacy]\n"
    "epsilon = 8.0\ndelta = 1e-3\nclip = 2.5\nnoise_multiplier = 3.0\nsampling_rate = 0.2\n"
)


class Federation:
    """Clients a, b and c, of which b has as many rows as a test wants."""

    def __init__(self, root: Path, method: str = "pvi", more: str = "", asks: str = "") -> None:
        self.root, self.method = root, method
        self.job = root / "job.toml"
        self.job.write_text(METHODS[method] + more + ("" if more == PRIVATE else f"{STRICT}{asks}"))
        for k, name in enumerate("abc"):
            self.rows(name, 40, k)

    def bind(self) -> None:
        """A policy binds the rows of all: who runs the job reads no more than others do."""
        (self.root / "fedkern-policy.toml").write_text("open = true\n[data.a]\n[data.b]\n[data.c]\n")

    def rows(self, name: str, n: int, seed: int = 1, empty: int = 0) -> None:
        """Of which the last `empty` lack a covariate."""
        random = np.random.default_rng(seed)
        columns = (
            f"x{name},y" if self.method == "vertical" and name == "a" else f"x{name}" if self.method == "vertical" else "x,z,y"
        )
        lines = [f"id,{columns}"]
        for i in range(n):
            cells = [f"{value:.3f}" for value in random.normal(size=columns.count(",") + 1)]
            cells = [*cells[:-1], str(i % 2)] if columns.endswith("y") else cells
            lines.append(",".join([f"r{i}", *([""] * (i >= n - empty) + cells)[: len(cells)]]))
        (self.root / f"{name}.csv").write_text("\n".join(lines) + "\n")

    def small(self, n: int, **more: Any) -> None:
        """b, and in a vertical job all, have so many rows."""
        for name in "abc" if self.method == "vertical" else "b":
            self.rows(name, n, **more)


def left(folder: Path) -> dict[str, bytes]:
    """What others than b can read of a run: all files but those of b's own folder, without times and ids."""
    said = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "client-b" not in path.parts:
            text = re.sub(rb"[0-9a-f]{32,}|\d{4}-\d\d-\d\dT[\d:+.]+", b"", path.read_bytes())
            said[str(path.relative_to(folder))] = text
    return said


@pytest.mark.parametrize("method", METHODS)
def test_what_leaves_a_refused_client_does_not_depend_on_its_rows(fedkern: Any, tmp_path: Path, method: str) -> None:
    federation, seen = Federation(tmp_path, method), []
    federation.bind()
    for n in (0, 1, 3, 9, LEAST_ROWS - 1):
        federation.small(n)
        out = tmp_path / f"out-{n}"
        run, check = fedkern("run", federation.job, "--out", out), fedkern("check", federation.job)
        named = "a" if method == "vertical" else "b"  # all have the same rows: the first is told
        assert run.code == check.code == 2
        assert f"client '{named}': refused by a disclosure rule" in run.err
        own = (out / f"client-{named}" / "holder.txt").read_text()
        assert f" {n} rows that count; {LEAST_ROWS} are asked for" in own
        if method == "vertical":  # each reads it of its own rows
            (out / "client-a" / "holder.txt").unlink()
            (out / "client-c" / "holder.txt").unlink()
        seen.append((run.err.replace(str(out), "OUT"), run.out, check.err, check.out, left(out)))
        assert not [*out.rglob("*.jsonl")], "nothing has left anybody"
    assert all(one == seen[0] for one in seen[1:])
    federation.small(LEAST_ROWS)
    assert fedkern("run", federation.job, "--out", tmp_path / "enough", "--quiet").code == 0


def test_the_others_messages_are_the_same_whatever_a_left_out_client_has(fedkern: Any, tmp_path: Path) -> None:
    federation, seen = Federation(tmp_path, asks='small = "leave-out"\n'), []
    for n in (0, 3, 9):
        federation.small(n)
        out = tmp_path / f"out-{n}"
        ended = fedkern("run", federation.job, "--out", out, "--quiet")
        assert ended.code == 0, ended.err
        summary = json.loads((out / "summary.json").read_text())
        assert [*summary["clients"]] == ["a", "c"]
        assert any("client 'b' is left out: " in note for note in summary["notes"])
        own = (out / "client-b" / "holder.txt").read_text()
        assert f" {n} rows that count" in own
        assert "disclosure.small" not in own, "what the job does already is no remedy"
        assert [path.name for path in (out / "client-b").iterdir()] == ["holder.txt"], "as what a run may find there"
        assert f" {n} rows that count" in ended.err, "alone with its terminal the holder reads it there"
        ledgers = {path.name: path.read_bytes() for path in (out / "ledger").iterdir()}
        seen.append((summary["digest"], summary["notes"], ledgers, fedkern("check", "--verbose", federation.job).out))
    assert all(one == seen[0] for one in seen[1:])
    (tmp_path / "b.csv").unlink()
    text = federation.job.read_text().replace('"b.csv", ', "")
    federation.job.write_text(text)
    assert fedkern("run", federation.job, "--out", tmp_path / "without", "--quiet").code == 0
    assert json.loads((tmp_path / "without" / "summary.json").read_text())["digest"] == seen[0][0], "as if it had not been named"


def test_over_mpi(fedkern: Any, tmp_path: Path) -> None:
    """A rank whose only client is left out listens until the end, one that refuses says the same whatever its client has."""
    federation, commands = Federation(tmp_path), dict[str, list[str | Path]]()
    for n in (3, 9):
        folder = tmp_path / f"of-{n}"
        folder.mkdir()
        federation.small(n)
        for name in "abc":
            (folder / f"{name}.csv").write_bytes((tmp_path / f"{name}.csv").read_bytes())
        for method in ("pvi", "sparse"):
            (folder / f"{method}.toml").write_text(METHODS[method] + STRICT)
        commands[f"refused-{n}"] = ["run", folder / "pvi.toml", "--out", tmp_path / f"refused-{n}", "--quiet"]
    leave = ["--set", "disclosure.small=leave-out", "--quiet"]
    commands["left"] = ["run", tmp_path / "of-9" / "pvi.toml", "--out", tmp_path / "left", *leave]
    commands["drawn"] = ["run", tmp_path / "of-9" / "sparse.toml", "--out", tmp_path / "drawn", *leave]
    commands["checked"] = ["check", tmp_path / "of-9" / "pvi.toml", *leave[:2]]
    codes, err = mpirun_jobs(4, tmp_path / "commands", commands)
    assert codes == {"refused-3": 2, "refused-9": 2, "left": 0, "drawn": 0, "checked": 0}, err
    refusals = [line for line in err.splitlines() if "refused by a" in line]
    assert len(refusals) == 2
    assert refusals[0] == refusals[1]
    assert refusals[0].startswith("fedkern: rank 2: client 'b': refused by a disclosure rule")
    assert not [*tmp_path.glob("refused-*/ledger/b.jsonl")], "nothing of its rows has left"
    for name, method in (("left", "pvi"), ("drawn", "sparse")):
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert [*summary["clients"]] == ["a", "c"]
        assert not (tmp_path / name / "ledger" / "b.jsonl").exists()
        assert " 9 rows that count" in (tmp_path / name / "client-b" / "holder.txt").read_text()
        here = tmp_path / f"{name}-here"
        assert fedkern("run", tmp_path / "of-9" / f"{method}.toml", "--out", here, *leave).code == 0
        assert json.loads((here / "summary.json").read_text())["digest"] == summary["digest"]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "left" / "ledger" / "rank-2.jsonl").read_text().splitlines()]
    assert kinds == ["hello", "run"], "that it is left out is all that has left this rank"


def test_a_resumed_run_has_the_same_clients(fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path, asks='small = "leave-out"\n')
    federation.small(4)
    whole = fedkern("run", federation.job, "--out", tmp_path / "whole", "--quiet")
    assert whole.code == 0
    run = ("run", federation.job, "--out", tmp_path / "out", "--quiet")
    assert fedkern(*run).code == 0
    (tmp_path / "out" / "summary.json").unlink()
    assert fedkern(*run, "--resume").code == 0
    digests = {json.loads((tmp_path / name / "summary.json").read_text())["digest"] for name in ("whole", "out")}
    assert len(digests) == 1
    (tmp_path / "out" / "summary.json").unlink()
    federation.small(40)
    ended = fedkern(*run, "--resume")
    assert ended.code == 2
    assert 'the clients were ["a", "c"] and are now ["a", "b", "c"]' in ended.err


def test_nobody_is_left(fedkern: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path, asks='small = "leave-out"\nrows = 1000\n')
    for command in ("run", "check"):
        ended = fedkern(command, federation.job)
        assert ended.code == 2
        assert "no client is left: each is refused by a disclosure rule, or by its holder's policy" in ended.err
    for name in "abc":
        own = tmp_path / "runs" / "job" / f"client-{name}" / "holder.txt"
        assert " 40 rows that count; 1000 are asked for" in own.read_text()
    assert fedkern("run", federation.job, "--set", 'disclosure.small="refuse"').code == 2


def test_a_folder_in_which_a_client_was_left_out_is_taken_again(fedkern: Any, tmp_path: Path) -> None:
    """Of a job that ended before it had begun: b's folder holds nothing but why it was left out."""
    federation = Federation(tmp_path, asks='small = "leave-out"\n')
    federation.small(4)
    federation.rows("c", 40, empty=1)
    assert fedkern("run", federation.job, "--out", "out", "--quiet").code == 2
    federation.rows("c", 40)
    ended = fedkern("run", federation.job, "--out", "out", "--quiet")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", ["-1", "2.5", '"many"', "true"])
def test_numbers_that_cannot_be(fedkern: Any, tmp_path: Path, method: str, value: str) -> None:
    for job in (
        Federation(tmp_path, method, asks=f"rows = {value}\n").job,
        Federation(tmp_path, method, f"least_rows = {value}\n").job,
    ):
        ended = fedkern("check", job)
        assert ended.code == 2
        assert "disclosure.rows = " in ended.err
        assert "wanted a" in ended.err


def test_vertical_clients_cannot_be_left_out(fedkern: Any, tmp_path: Path) -> None:
    ended = fedkern("check", Federation(tmp_path, "vertical", asks='small = "leave-out"\n').job)
    assert ended.code == 2
    assert 'disclosure.small = "leave-out" is not for method = "vertical"' in ended.err


def test_rows_are_counted_once_those_that_lack_a_cell_are_left_out(fedkern: Any, tmp_path: Path) -> None:
    federation, seen = Federation(tmp_path, more='[model]\nmissing = "drop"\n'), []
    federation.bind()
    for n, empty in ((LEAST_ROWS + 1, 2), (60, 60)):
        federation.small(n, empty=empty)
        ended = fedkern("run", federation.job, "--out", tmp_path / f"{empty}")
        assert ended.code == 2
        own = (tmp_path / f"{empty}" / "client-b" / "holder.txt").read_text()
        assert f" {n - empty} rows that count; {LEAST_ROWS} are asked for" in own
        assert f"(once {empty} that lack a cell are left out)" in own
        seen.append(ended.err)
    assert seen[0] == seen[1], "no row at all is told from too few by nobody"
    federation.small(LEAST_ROWS + 2, empty=2)
    assert fedkern("run", federation.job, "--out", tmp_path / "enough", "--quiet").code == 0


def test_rows_without_a_response_or_a_weight_do_not_count(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X, y, w = random.normal(size=(30, 2)), random.normal(size=30), np.ones(30)
    job = {"job": {"method": "sparse", "rounds": 40}, "data": {"response": "y"}, "model": {"missing": "impute"}, **AT_STRICT}
    frames = {name: {"u": X[:, 0], "v": X[:, 1], "y": y.copy()} for name in "ab"}
    frames["b"]["y"][LEAST_ROWS - 1 :] = np.nan
    pandas = pytest.importorskip("pandas")
    tables = {name: pandas.DataFrame(frame) for name, frame in frames.items()}
    with pytest.raises(JobError, match=rf"client 'b', .*: {LEAST_ROWS - 1} rows that count.*; {LEAST_ROWS} are asked for"):
        package.run(job, data=tables)
    weighed = {name: pandas.DataFrame({"u": X[:, 0], "y": y, "w": w.copy()}) for name in "ab"}
    weighed["a"].loc[LEAST_ROWS - 1 :, "w"] = 0.0
    pvi = {"job": {"rounds": 1}, "data": {"response": "y", "weight": "w"}, "model": {"family": "gaussian"}, **AT_STRICT}
    with pytest.raises(JobError, match=rf"client 'a', .*: {LEAST_ROWS - 1} rows that count"):
        package.run(pvi, data=weighed)


@pytest.mark.usefixtures("undrawn")
def test_a_job_that_lowers_the_number_says_so(fedkern: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path, asks="rows = 9\n")
    says = 'this job asks for less than level "standard" (disclosure.rows): '
    assert fedkern("check", federation.job).out.startswith(f"LOWERED  {says}")
    ended = fedkern("run", federation.job, "--out", "out")
    assert ended.err.startswith(f"fedkern: {says}")
    assert fedkern("report", "out").code == 0
    assert says.split('"')[0] in (Path("out") / "report.html").read_text()
    usual = fedkern("check", "--verbose", Federation(tmp_path).job).out
    assert "LOWERED" not in usual
    assert f"level    strict: {LEAST_ROWS} rows of each client; one whose rows break a rule ends the job" in usual


def test_a_job_that_tells_rows_by_its_choices_says_so_first(fedkern: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path, "sparse", '[model]\nkind = "sem"\n[algorithm]\ntempering = 2\n')
    federation.job.write_text(federation.job.read_text().replace('response = "y"\n', "").replace('["id"]', '["id", "y"]'))
    says = "algorithm.tempering has clients send the log-likelihood at each draw: "
    check = fedkern("check", "--verbose", federation.job).out
    assert check.startswith(f"ROWS     {says}")
    assert "tells this client's rows about their means, up to the sign of each" in check
    assert "of one such row, its cell" in check
    ended = fedkern("run", federation.job, "--out", "out")
    assert ended.err.startswith(f"fedkern: {says}")
    assert any(note.startswith(says) for note in json.loads(Path("out/summary.json").read_text())["notes"])
    usual = fedkern("check", "--verbose", federation.job, "--set", "algorithm.tempering=1").out
    assert "ROWS" not in usual
    assert "made with random numbers that no other party has" in usual
    keyed = fedkern(
        "check", "--verbose", federation.job, "--set", "algorithm.tempering=1", "--set", "algorithm.random_source=keyed"
    ).out
    assert "(job.seed): each is a function of its rows" in keyed
    regression = Federation(tmp_path, "sparse")
    assert "(job.seed): they tell X'X and X'y" in fedkern("check", "--verbose", regression.job).out


@pytest.mark.parametrize(
    ("model", "by"),
    [
        ({"missing": "impute"}, 'model.missing = "impute"'),
        ({"errors": "student"}, 'model.errors = "student"'),
        ({"family": "bernoulli"}, 'model.family = "bernoulli"'),
        ({"kind": "sem"}, 'model.kind = "sem"'),
        ({}, None),
    ],
)
def test_sparse_models_that_draw_for_rows_have_random_numbers_of_their_own(model: dict[str, Any], by: str | None) -> None:
    """Of those that follow from the seed, and of moves, the job says what they tell."""
    data = {"clients": ["a.csv"]} | ({} if "kind" in model else {"response": "y"})
    unmoved = "errors" in model or "kind" in model
    usual, keyed, moving = (
        parse({"job": {"method": "sparse"}, "data": data, "model": model, "algorithm": algorithm})
        for algorithm in ({}, {"random_source": "keyed"}, {"moves": [] if unmoved else ["translate"]})
    )
    assert usual.secret is (by is not None)
    assert usual.tells_rows == ()
    assert not keyed.secret
    if by is None:
        assert keyed.tells_rows == ()
        return
    assert keyed.tells_rows[0] == (
        f'algorithm.random_source = "keyed" with {by} has clients draw by random numbers that follow from job.seed: the draws '
        "of a few rounds tell a server rows, or every cell of a row that lacks one, at any number of rows; remove the key"
    )
    assert ("moves-tell-rows" in [found.id for found in moving.tells_rows]) is not unmoved


def test_a_splined_column_is_said_to_be_told() -> None:
    model = {"splines": {"week": [30, 36, 40]}}
    job = parse({"job": {"method": "sparse"}, "data": {"clients": ["a.csv"], "response": "y"}, "model": model})
    assert job.tells_rows[0].startswith("model.splines ('week') has clients send cross-products of functions of one column")


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [({}, None), ({"batch": 0.5}, "algorithm.batch makes"), ({"batch": 0.5, "random_source": "keyed"}, "algorithm.random")],
)
def test_batches_are_said_to_tell_rows(algorithm: dict[str, Any], says: str | None) -> None:
    job = {"data": {"clients": ["a.csv"], "response": "y"}, "algorithm": {"optimiser": "adam"} | algorithm}
    told = parse(job).tells_rows
    assert [found.startswith(str(says)) for found in told] == [True] * (says is not None)


@pytest.mark.parametrize(
    ("model", "algorithm", "says"),
    [
        ({"family": "bernoulli", "prior_sd": 0.00316228}, {}, "model.prior_sd = 0.00316228: the prior holds q"),
        ({"family": "bernoulli", "prior_sd": 0.01}, {}, "model.prior_sd = 0.01: the prior holds q"),
        ({"family": "poisson", "intercept_sd": 1e-5}, {}, "model.intercept_sd = 1e-05: the prior holds q"),
        ({"family": "bernoulli", "prior_sd": 100.0}, {}, "model.prior_sd = 100 lets a slope grow"),
        ({"family": "poisson"}, {"variant": "global-vi"}, 'algorithm.variant = "global-vi" takes single steps from the prior'),
        ({"family": "poisson"}, {"optimiser": "adam"}, 'algorithm.optimiser = "adam" takes single steps from the prior'),
        ({"family": "bernoulli"}, {"variant": "global-vi"}, None),
        ({"family": "gaussian", "prior_sd": 0.00316228}, {}, None),
        ({"family": "poisson", "prior_sd": 100.0}, {}, None),
    ],
)
def test_a_q_of_the_jobs_own_choice_is_said_to_tell_rows(
    model: dict[str, Any], algorithm: dict[str, Any], says: str | None
) -> None:
    """Rows weigh what q makes of them."""
    config = parse({"data": {"clients": ["a.csv"], "response": "y"}, "model": model, "algorithm": algorithm})
    said = [text for word, text in admitted.first(config) if word == "ROWS"]
    assert [text.startswith(str(says)) for text in said] == [True] * (says is not None)


def test_fits_of_complete_rows_beside_moments_of_all_are_spoken_of() -> None:
    job = {"job": {"method": "sparse"}, "data": {"clients": ["a.csv"], "response": "y"}, "output": {"site_fits": True}}
    assert parse(job).tells_rows == ()
    told = parse(job | {"model": {"missing": "impute"}}).tells_rows
    assert told[0].startswith('output.site_fits with model.missing = "impute": least squares are of complete rows')


def test_more_coefficients_than_rows_are_spoken_of(fedkern: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path, asks=f"{ANY_ROWS}rows = 3\n")
    federation.small(4)
    assert "at most 4 rows and 3 coefficients: X'X is these rows" in fedkern("check", "--verbose", federation.job).out
    full = fedkern("check", "--verbose", federation.job, "--set", "model.covariance=full").out
    assert "at most 4 rows and 3 coefficients: what is sent tells all these rows" in full
    own = fedkern("check", federation.job, "--local", tmp_path / "b.csv").out
    assert "4 rows and 3 coefficients: X'X is these rows up to a rotation" in own
    assert "rotation" not in fedkern("check", federation.job, "--set", "disclosure.rows=5").err
    federation.job.write_text(f"{METHODS['pvi']}{STRICT}{ANY_ROWS}rows = 5\n")
    federation.small(40)
    assert "rotation a client" not in fedkern("check", "--verbose", federation.job).out


def test_the_holder_looks_through_its_own_file(fedkern: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    federation.small(7)
    ended = fedkern("check", federation.job, "--local", tmp_path / "b.csv")
    assert ended.code == 2
    assert f"7 rows that count; {LEAST_ROWS} are asked for" in ended.out
    assert fedkern("check", federation.job, "--local", tmp_path / "a.csv").code == 0


def test_nothing_of_a_private_job_shows_how_many_rows_there_are(fedkern: Any, tmp_path: Path) -> None:
    federation, seen = Federation(tmp_path, more=PRIVATE), []
    least = LEVELS["standard"].rows
    for n in (1, least - 1, least, 40):
        federation.small(n)
        out = tmp_path / f"out-{n}"
        ended = fedkern("run", federation.job, "--out", out, "--quiet")
        assert ended.code == 0, ended.err
        check = fedkern("check", "--verbose", federation.job)
        note = f"{n} rows: an open job would ask for {least}"
        notes = "\n".join(json.loads((out / "client-b" / "rows.json").read_text())["notes"])
        assert (note in notes) == (n < least)
        ledger = [json.loads(line) for line in (out / "ledger" / "b.jsonl").read_text().splitlines()]
        summary = json.loads((out / "summary.json").read_text())
        files = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
        seen.append((ended.err, check.out, check.err, ledger, summary["wire"], summary["notes"], files))
    assert all(one == seen[0] for one in seen[1:])


BY_POLICY = "client 'b': refused by the holder's policy: "
POLICIES: dict[str, tuple[str, str, str]] = {  # name -> (a policy's table, keys of the job, what others read; empty: it runs)
    "more rows": ("rows = 50", "", "client 'b': refused by a disclosure rule"),
    "fewer rows": ("rows = 5", "", ""),
    "the job's are more": ("rows = 30", "rows = 41", "client 'a': refused by disclosure.rows;"),
    "lowered": ("lower = false", "rows = 5", f"{BY_POLICY}numbers of [disclosure] lower what a client must have"),
    "lowered, and allowed": ("lower = true", "rows = 5", ""),
    "lowered, and not below the policy's level": ('lower = false\nlevel = "standard"', "rows = 20", ""),  # of one column
    "lowered below the policy's level": ('lower = false\nlevel = "standard"', "rows = 19", BY_POLICY),
    "not lowered": ("lower = false\nrows = 50", "", "client 'b': refused by a disclosure rule"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".fedkern").mkdir(parents=True)
    return tmp_path / "home" / ".fedkern"


def policy(home: Path, text: str, more: str = "") -> None:
    (home / "policy.toml").write_text(f"open = true\n{text}\n[data.b]\n{more}\n")


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_raises_the_number_and_forbids_to_lower_it(fedkern: Any, tmp_path: Path, home: Path, name: str) -> None:
    table, keys, words = POLICIES[name]
    federation = Federation(tmp_path, asks=keys + "\n")
    for text, more in ((f"[disclosure]\n{table}", ""), ("", f"[data.b.disclosure]\n{table}")):
        policy(home, text, more)
        for command in (("check", federation.job), ("run", federation.job, "--out", f"{len(text)}", "--quiet")):
            ended = fedkern(*command)
            assert ended.code == (2 if words else 0), ended.err
            assert words in ended.err
            assert "50" not in ended.out + ended.err, "what the policy says is the holder's"


@pytest.mark.parametrize(("more", "names"), [("", True), ("secure", False), ("another", False)])
def test_a_policy_has_the_names_of_the_rules_told_and_nothing_else(
    fedkern: Any, tmp_path: Path, home: Path, more: str, names: bool
) -> None:
    federation, seen = Federation(tmp_path), []
    policy(home, '[disclosure]\ntell = "rules"\nrows_per_value = 41')
    if more == "another":
        (tmp_path / "fedkern-policy.toml").write_text("open = true\n[data.a]\n[data.b]\n[data.c]\n")
    if more == "secure":
        federation.job.write_text(METHODS["pvi"].replace("rounds = 2", 'rounds = 2\nsums = "secure"') + STRICT)
    for n in (40, 12, 13):
        federation.small(n)
        ended = fedkern("run", federation.job, "--out", f"{n}", "--quiet")
        own = (Path(f"{n}") / "client-b" / "holder.txt").read_text()
        assert "; 41 are asked for" in own
        assert (f"{n} rows that count; 20 are asked for" in own) is (n < 20)
        seen.append(ended.err.replace(str(tmp_path), ""))
    rules = ["disclosure.rows_per_value", "disclosure.rows", "disclosure.rows"] if names else ["a disclosure rule"] * 3
    assert [one.partition(";")[0] for one in seen] == [f"fedkern: client 'b': refused by {rule}" for rule in rules]
    assert seen[1] == seen[2], "of few rows nobody reads which other rules they break"


def test_names_of_rules_are_not_told_where_all_refusals_read_the_same(fedkern: Any, tmp_path: Path, home: Path) -> None:
    policy(home, '[disclosure]\ndifferencing = "refuse"', '[data.b.disclosure]\ntell = "rules"')
    own = fedkern("check", Federation(tmp_path).job, "--local", tmp_path / "b.csv").out
    assert 'data.b: disclosure.tell = "rules" is not for differencing = "refuse"' in own


def test_of_two_policies_the_stricter_holds(fedkern: Any, tmp_path: Path, home: Path) -> None:
    federation = Federation(tmp_path)
    policy(home, "[disclosure]\nrows = 30")
    assert fedkern("check", federation.job).code == 0
    (tmp_path / "fedkern-policy.toml").write_text("open = true\n[disclosure]\nrows = 45\n[data.b]\n[data.a]\n[data.c]\n")
    ended = fedkern("check", federation.job)
    assert ended.code == 2
    assert "refused by a disclosure rule" in ended.err
    own = fedkern("check", federation.job, "--local", tmp_path / "b.csv").out
    assert "45 are asked for" in own
    assert "lower rows in [disclosure] of its policy to 40" in own


@pytest.mark.parametrize(
    "table",
    ["rows = -1", 'tell = "all"', "least_rows = -3", 'level = "strong"', 'lower = "no"', 'differencing = "never"', "least = 3"],
)
def test_a_policy_with_a_wrong_key_allows_nothing(fedkern: Any, tmp_path: Path, home: Path, table: str) -> None:
    policy(home, f"[disclosure]\n{table}")
    ended = fedkern("check", Federation(tmp_path).job)
    assert ended.code == 2
    assert "one of its policy files cannot be used" in ended.err


def without(job: Path, *names: str) -> Path:
    """The job without some clients."""
    text = job.read_text()
    for name in names:
        text = text.replace(f', "{name}.csv"', "")
    path = job.with_name(f"without-{'-'.join(names)}.toml")
    path.write_text(text)
    return path


@pytest.mark.parametrize("bound", [True, False])
def test_two_jobs_that_differ_by_a_client_are_told_to_the_holder(
    fedkern: Any, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, bound: bool
) -> None:
    """By a policy's account, or in the home of a client without one."""
    federation = Federation(tmp_path)
    if bound:
        policy(home, "")
    else:
        monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
    first = fedkern("run", without(federation.job, "c"), "--out", "one", "--quiet")
    assert first.code == 0
    assert "earlier job" not in first.err.replace("no earlier job", "")
    again = fedkern("run", without(federation.job, "c"), "--out", "again", "--quiet")
    assert "of this one but for" not in again.err, "the same clients tell nothing more"
    said = fedkern("run", federation.job, "--out", "two", "--quiet")
    assert said.code == 0
    words = "those of this one but for 'c': what was told once in both tells, subtracted, what is theirs alone"
    assert "fedkern: client 'b': the clients of 2 earlier jobs on these data (20" in said.err, "one line, with a count"
    assert words in said.err
    assert words in (Path("two") / "client-b" / "account.json").read_text()
    assert words not in (Path("two") / "summary.json").read_text()
    budget = home / "budget.jsonl" if bound else tmp_path / "homes" / "b" / "budget.jsonl"
    assert budget.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["others"] for line in budget.read_text().splitlines()] == [["a"], ["a"], ["a", "c"]]


def test_a_policy_refuses_such_a_job(fedkern: Any, tmp_path: Path, home: Path) -> None:
    federation = Federation(tmp_path)
    policy(home, '[disclosure]\ndifferencing = "refuse"')
    assert fedkern("run", without(federation.job, "c"), "--out", "one", "--quiet").code == 0
    seen = []
    for n in (25, 40):
        federation.rows("b", n)
        for command in (("run", federation.job, "--out", f"two-{n}", "--quiet"), ("check", federation.job)):
            ended = fedkern(*command)
            assert ended.code == 2
            assert "client 'b': refused by the holder's policy: the clients are those of an earlier job" in ended.err
            seen.append(ended.err)
        assert not [*Path(f"two-{n}").rglob("*.jsonl")], "nothing has left anybody"
    assert "but for 'c'" in (Path("two-40") / "client-b" / "holder.txt").read_text()
    assert set(seen[:2]) == set(seen[2:])
    assert fedkern("run", without(federation.job, "c"), "--out", "again", "--quiet").code == 0


def test_clients_that_differ_by_more_than_two_tell_nothing(tmp_path: Path) -> None:
    from fedkern.jobs.holding.binding import Account
    from fedkern.jobs.holding.budget import Books

    def noted(job: str, others: str) -> list[set[str]]:
        found: list[set[str]] = []
        books = Books(Account(tmp_path, "b"))
        books.note(job, "open", list(others), allow=lambda near: found.extend({*one.clients} for one in near))
        return found

    assert noted("1", "acd") == []
    assert noted("1", "ace") == [], "itself, resumed"
    assert noted("2", "acefgh") == []
    assert noted("3", "ac") == [{"d"}]
    assert sorted(map(sorted, noted("4", "ace"))) == [["d", "e"], ["e"]]


class TestValuesThatFewRowsShare:
    """Sums over all rows single them out, however many others there are; others are not told how many they are."""

    def run(self, fedkern: Any, federation: Federation, cells: list[str], *more: str) -> Any:
        for name in "abc":
            path = federation.root / f"{name}.csv"
            federation.rows(name, len(cells))
            head, *rows = path.read_text().splitlines()
            path.write_text("\n".join([f"{head},job", *(f"{row},{cell}" for row, cell in zip(rows, cells))]) + "\n")
        return fedkern("run", federation.job, "--out", f"out-{len(list(federation.root.glob('out-*')))}", "--quiet", *more)

    @pytest.mark.parametrize("value", ["rare", "1", "2.5"])
    def test_one_rule_for_levels_and_numbers(self, fedkern: Any, tmp_path: Path, value: str) -> None:
        federation, seen = Federation(tmp_path), []
        federation.bind()
        for rare in (1, 9, 10):
            others = ["left", "right"] * 20 if value == "rare" else ["0"] * 40
            ended = self.run(fedkern, federation, [value] * rare + others)
            assert ended.code == (0 if rare == 10 else 2), ended.err
            seen.append(ended.err)
        assert seen[0] == seen[1]
        assert "client 'a': refused by a disclosure rule" in seen[0]
        own = (Path("out-0") / "client-a" / "holder.txt").read_text()
        assert "rows that values of 'job' have to themselves: 1; 10 are asked for" in own

    def test_every_remedy_ends_well(self, fedkern: Any, tmp_path: Path) -> None:
        federation, cells = Federation(tmp_path), ["rare"] * 9 + ["left", "right"] * 20
        assert "refused by disclosure.rows_per_value" in self.run(fedkern, federation, cells).err
        own = (Path("out-0") / "client-a" / "holder.txt").read_text()
        assert "pool its rows with another site's; take a model without the column; where all holders agree" in own
        assert "lower disclosure.rows_per_value to 9 (other files may need less)" in own
        assert self.run(fedkern, federation, cells, "--set", "disclosure.rare=join").code == 0
        assert self.run(fedkern, federation, cells, "--set", 'data.ignore=["id", "job"]').code == 0
        assert self.run(fedkern, federation, ["left"] * 9 + ["left", "right"] * 20).code == 0
        assert self.run(fedkern, federation, 2 * cells).code == 0
        assert self.run(fedkern, federation, cells, "--set", "disclosure.rows_per_value=9").code == 0

    def test_a_response_of_one_row_is_that_row(self, fedkern: Any, tmp_path: Path) -> None:
        federation = Federation(tmp_path)
        for events in (0, 1, 2, 3):
            path = tmp_path / "b.csv"
            federation.rows("b", 40)
            head, *rows = path.read_text().splitlines()
            path.write_text("\n".join([head, *(f"{row[:-1]}{int(i < events)}" for i, row in enumerate(rows))]) + "\n")
            ended = fedkern("run", federation.job, "--quiet")
            assert ended.code == (2 if events in (1, 2) else 0), ended.err
            if events == 1:
                assert "client 'b': refused by disclosure.rows_per_value" in ended.err

    def test_a_client_can_be_left_out(self, fedkern: Any, tmp_path: Path) -> None:
        federation = Federation(tmp_path, asks='small = "leave-out"\n')
        for name in "abc":
            path = tmp_path / f"{name}.csv"
            head, *rows = path.read_text().splitlines()
            ones = 3 if name == "b" else 12
            path.write_text("\n".join([f"{head},job", *(f"{row},{int(i < ones)}" for i, row in enumerate(rows))]))
        ended = fedkern("run", federation.job, "--out", "out")
        assert ended.code == 0, ended.err
        assert "client 'b' is left out: " in ended.out


# --- covariates of few values: what is sent tells how often each combination of them occurs

RANDOM = np.random.default_rng(0)
AGE = np.round(RANDOM.normal(60, 12, 3000)).clip(18, 90)
YES = (RANDOM.random((3000, 12)) < 0.4).astype(float)
NORMAL = RANDOM.normal(size=(3000, 2))
OF_FEW = "rare-combinations"
COVARIATES: dict[str, tuple[NDArray[np.float64], bool]] = {  # of client a, and whether it takes part
    "age": (AGE[:500, None], False),
    "age in steps of a tenth": (AGE[:500, None] / 10 + 3, False),
    "age as a z-score": ((AGE[:500, None] - 62) / 11, False),
    "age as a z-score of four digits": (((AGE[:500, None] - 62) / 11).round(4), False),
    "age but for one cell": (np.append(AGE[:60], [61.37])[:, None], False),
    "age as a z-score but for one cell": ((np.append(AGE[:60], [61.37])[:, None] - 62) / 11, False),
    "logarithm of age": (np.log(AGE[:200, None]).round(4), False),
    "pounds in kilograms": ((np.round(80 * np.exp(NORMAL[:200, :1] / 8)) * 2).round() * 0.45359237, False),
    "of age and its square": (np.column_stack([AGE[:200], AGE[:200] ** 2]), False),
    "of a square of age, and age": (np.column_stack([AGE[:200] ** 2, AGE[:200]]), False),
    "of age, sex and their product": (np.column_stack([AGE[:300], YES[:300, 0], AGE[:300] * YES[:300, 0]]), False),
    "months over twelve": ((AGE[:60, None] * 12 + np.arange(60)[:, None] % 5) / 12, False),
    "age and sex": (np.column_stack([AGE, YES[:, 0]])[:1000], False),
    "age and sex, rows enough": (np.column_stack([AGE, YES[:, 0]])[:2000], True),
    "age and sex, rows enough but one": (np.column_stack([AGE, YES[:, 0]])[:1999], False),
    "age in bands": (10 * np.round(AGE[:300, None].clip(40, 80) / 10), True),
    "yes or no": (YES[:300, :6], False),
    "yes or no, more numbers than combinations": (YES[:2500, :8], False),
    "yes or no, three of each": (np.repeat(YES[:11, :3], 3, axis=0), True),
    "yes or no, two of one": (np.repeat(np.eye(4), [12, 12, 12, 2], axis=0), False),
    "two values that are no whole numbers": (np.where(YES[:30, :2] > 0, np.pi, np.sqrt(2)), True),
    "the same, of one alone": (np.where(np.arange(30)[:, None] == [3, 4], np.pi, np.sqrt(2)), False),
    "age and a measurement": (np.column_stack([AGE[:40], NORMAL[:40, 0]]), True),
    "measurements of three digits": (NORMAL[:40, :1].round(3) * 10, True),
    "many columns": (YES[:90], True),
}


def broken(found: few.Few | None) -> dict[str, Broken]:
    """The rules that rows break, by their ids."""
    return {} if found is None else {one.id: one for one in found.broken}


def taken(X: NDArray[np.float64], **sections: Any) -> dict[str, Broken]:
    """What a client with these covariates is told of a job."""
    y, names = np.arange(len(X)) % 2.0, tuple(f"x{j}" for j in range(X.shape[1]))
    table = Table("a.csv", (*names, "y"), dict(zip((*names, "y"), (*X.T, y))), len(X))
    config = parse({"data": {"clients": ["a.csv"], "response": "y"}, **AT_STRICT, **sections})
    return broken(few.find_few(config.requirement, table, Spec("y", family=config.model.family), "a"))


@pytest.mark.parametrize("name", COVARIATES)
def test_covariates_of_few_values_have_three_rows_of_each_combination(name: str) -> None:
    X, takes_part = COVARIATES[name]
    found = taken(X)
    assert (not found) is takes_part
    if found:
        assert found[OF_FEW].values["wanted"] == 3
        assert ("not-of-many-rows" in found[OF_FEW].facts) is (not name.startswith(("yes", "the same", "of ")))
    assert OF_FEW not in taken(X, disclosure={})
    for sections in ({"model": {"family": "gaussian"}}, {"job": {"method": "sparse"}}):  # of two columns at once
        assert OF_FEW not in taken(X, **sections)


def test_rows_that_weigh_next_to_nothing_are_no_company() -> None:
    x = np.repeat([0.0, 1.0], [30, 3])
    spec, one = Spec("y", weight="w"), Table("a.csv", ("x", "w", "y"), {"x": x, "w": np.ones(33), "y": x}, 33)
    for light, rows in ((1.0, 3.0), (1e-6, 1.0), (1e-300, 1.0)):
        weight = np.where(np.arange(33) > 30, light, 1.0)
        found = combinations(one, spec, weight)
        assert found is not None
        np.testing.assert_allclose(found.rows, [30, rows], rtol=1e-5)


def alone(
    family: str, spec: dict[str, Any], sections: dict[str, Any] | None = None, /, **columns: NDArray[np.float64]
) -> list[tuple[object, ...]]:
    """The rules on its values that a client breaks: id, columns, rows."""
    names = tuple(columns)
    table = Table("a.csv", names, columns, len(columns["y"]))
    model = {"family": family, **(sections or {}).get("model", {})}
    config = parse({"data": {"clients": ["a.csv"], "response": "y", **spec}, "model": model, **AT_STRICT})
    found = few.find_few(config.requirement, table, Spec("y", family=family, **spec), "a")
    return [(id, one.values.get("columns", one.values.get("column")), one.values["rows"]) for id, one in broken(found).items()]


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_rows_of_another_weight_are_few_rows(family: str) -> None:
    """What is told with weights, less what is told without, is theirs."""
    random = np.random.default_rng(1)
    x, y, w = random.normal(size=200), np.arange(200) % 2.0, np.ones(200)
    assert alone(family, {"weight": "w"}, x=x, y=y, w=w) == []
    w[7] = 2
    assert ("rare-values", ("w",), 1) in alone(family, {"weight": "w"}, x=x, y=y, w=w)
    assert alone(family, {"weight": "w"}, x=x, y=y, w=random.uniform(0.5, 2, 200)) == []
    w[:] = random.uniform(0.9, 1.1, 200)
    w[7] = 30  # nearly all of its sum of squares
    assert ("far-cells", ("w",), 1) in alone(family, {"weight": "w"}, x=x, y=y, w=w)


@pytest.mark.parametrize("family", ["poisson", "gaussian"])
def test_a_wrong_cell_of_the_response_is_shown_to_its_holder_and_to_be_mended_first(family: str) -> None:
    random = np.random.default_rng(1)
    x, y = random.normal(size=200), 1.0 + random.poisson(9, 200)
    assert alone(family, {}, x=x, y=y) == []
    y[7] = 10_000
    table = Table("a.csv", ("x", "y"), {"x": x, "y": y}, 200)
    config = parse({"data": {"clients": ["a.csv"], "response": "y"}, "model": {"family": family}, **AT_STRICT})
    found = few.find_few(config.requirement, table, Spec("y", family=family), "a")
    assert found is not None
    mend = "mend the cell if it is wrong; cap it" if family == "gaussian" else "mend the cells if they are wrong; pool"
    assert f"(row 8: 10000): {mend}" in found.own


def test_a_row_that_weighs_nothing_is_counted_without_weights() -> None:
    """Who was left out by a weight of 0 is the difference of the sums with and without weights."""
    random = np.random.default_rng(1)
    x, y, w = random.normal(size=200), np.arange(200) % 2.0, np.ones(200)
    w[7] = 0
    assert ("rare-values", ("w",), 1) in alone("gaussian", {"weight": "w"}, x=x, y=y, w=w)


@pytest.mark.parametrize("beyond", [0, 1, 3])
def test_one_row_beyond_a_splines_knots_is_few_rows(beyond: int) -> None:
    """A sum of spline columns is 0 for all others; knots that have more rows beyond the outer ones are the remedy."""
    random = np.random.default_rng(5)
    age = random.uniform(25, 83, 300).round()
    age[:beyond] = [91, 90, 92][:beyond]
    table = Table("a.csv", ("age", "y"), {"age": age, "y": random.normal(size=300)}, 300)
    narrow, wide = {"age": [45.0, 60, 84, 88, 93]}, {"age": [35.0, 50, 60, 70]}

    def looked(knots: dict[str, list[float]]) -> Any:
        tables = {"data": {"clients": ["a.csv"], "response": "y"}, "model": {"splines": knots}, **AT_STRICT}
        asked = parse({"job": {"method": "sparse"}, **tables}).requirement
        return few.find_few(asked, table, Spec("y", family="gaussian"), "a")

    assert looked(wide) is None
    found = looked(narrow if beyond else wide)
    assert (found is None) is (beyond != 1)
    if found is not None:
        (one,) = found.broken
        assert (one.id, one.values["columns"], one.values["rows"], one.remedies[0]) == ("rare-values", ("age",), 1, "wider-knots")


def test_a_row_of_nearly_all_exposure_is_few_rows() -> None:
    random = np.random.default_rng(2)
    x, y, years = random.normal(size=300), np.arange(300) % 2.0, random.uniform(0.3, 2, 300)
    offset = {"offset": "e"}
    for family in ("poisson", "bernoulli", "gaussian"):
        assert alone(family, offset, x=x, y=y, e=np.log(years)) == []
    days = np.where(np.arange(300) == 7, 365 * years, years)
    assert ("rows-by-offset", "e") in [one[:2] for one in alone("poisson", offset, x=x, y=y, e=np.log(days))]
    assert ("far-cells", ("e",), 1) in alone("gaussian", offset, x=x, y=y, e=days)


def test_filled_cells_are_no_third_value() -> None:
    """One patient has both, and some cells of the one column are missing."""
    ill, other = np.where(np.arange(300) < 40, 1.0, 0.0), np.where(np.arange(300) > 268, 1.0, 0.0)
    random = np.random.default_rng(3)
    table = {"x": random.normal(size=300), "z": random.normal(size=300), "ill": ill, "other": other, "y": np.arange(300) % 2.0}
    assert alone("bernoulli", {}, **table) == []
    ill[290] = 1
    assert ("rare-values", ("ill", "other"), 1) in alone("bernoulli", {}, **table)
    missing = np.where(np.arange(300) % 11 == 5, 1.0, 0.0)
    table |= {"ill": np.where(missing == 1, 0.3, ill), "ill[missing]": missing}
    assert ("rare-values", ("ill", "other"), 1) in alone("bernoulli", {}, **table)


OTHER = np.random.default_rng(1)
YEARS = OTHER.uniform(0.1, 30, 60).round(1)
OFFSETS: dict[str, tuple[str, NDArray[np.float64], bool]] = {
    "the logarithms of years": ("poisson", np.log(YEARS), True),
    "years": ("poisson", YEARS, False),
    "years, of counts that vary more": ("negative-binomial", YEARS, False),
    "populations of areas": ("poisson", 9 + 1.1 * OTHER.normal(size=50), True),
    "one in another unit": ("poisson", np.where(np.arange(60) == 7, 12.0, np.log(YEARS)), False),
    "log odds": ("bernoulli", 1.5 * OTHER.normal(size=40) - 2, True),
    "age": ("bernoulli", OTHER.uniform(18, 90, 40).round(), False),
    "of a linear model": ("gaussian", 100 * OTHER.normal(size=40), True),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_an_offset_leaves_ten_rows_their_weight(name: str) -> None:
    """What a row weighs in X'WX is what its offset makes of it."""
    family, offset, takes_part = OFFSETS[name]
    n = len(offset)
    columns = {"x": NORMAL[:n, 0], "z": NORMAL[:n, 1], "crea": offset, "y": np.arange(n) % 2.0}
    model = {"family": family} | ({"scale": 0.1} if family == "negative-binomial" else {})
    config = parse({"data": {"clients": ["a.csv"], "response": "y", "offset": "crea"}, "model": model, **AT_STRICT})
    found = few.find_few(
        config.requirement, Table("a.csv", (*columns,), columns, n), Spec("y", offset="crea", family=family), "a"
    )
    assert (found is None) is takes_part
    if found is not None:
        assert (found.broken[0].id, found.broken[0].values["column"]) == ("rows-by-offset", "crea")


def test_rows_count_as_a_batch_has_them() -> None:
    """In each of the three rules."""
    batch = {"optimiser": "adam", "batch": 0.5}
    full = {"model": {"covariance": "full"}, "algorithm": batch}
    for X, few_rows, enough in ((NORMAL, 39, 40), (RANDOM.normal(size=(300, 20)), 132, 134)):
        assert all("in-a-batch" in one.facts for one in taken(X[:few_rows], **full).values())
        assert (taken(X[:few_rows], **full) != {}, taken(X[:enough], **full)) == (True, {})
    X = np.repeat(YES[:10, :3], 5, axis=0)
    assert taken(X) == {}
    assert OF_FEW in taken(X, algorithm=batch)


def test_a_client_with_few_values_is_small_as_others_are(fedkern: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    for name, n in (("a", 40), ("b", 60), ("c", 40)):
        random = np.random.default_rng(3)
        z = random.integers(2, size=n) if name == "b" else random.normal(size=n).round(3)
        lines = [f"r{i},{random.integers(18, 90)},{z[i]},{i % 2}" for i in range(n)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,x,z,y", *lines]) + "\n")
    for command in ("check", "run"):
        ended = fedkern(command, federation.job)
        assert ended.code == 2
        assert "client 'b': refused by disclosure.combinations" in ended.err
    own = fedkern("check", federation.job, "--local", tmp_path / "b.csv")
    assert own.code == 2
    assert "combinations of values, and " in own.out
    without = ("--set", 'disclosure.small="leave-out"')
    assert (
        "combination of covariates' values, where few can occur: 3" in fedkern("check", "--verbose", federation.job, *without).out
    )
    ended = fedkern("run", federation.job, *without, "--out", "out")
    assert ended.code == 0
    assert any("client 'b' is left out: " in note for note in json.loads(Path("out/summary.json").read_text())["notes"])


def ward(n: int = 300, ill: int = 25) -> dict[str, NDArray[np.float64]]:
    """Patients of whom `ill` are in intensive care and 60 smoke, ten of those who are there among them."""
    random = np.random.default_rng(4)
    icu, smokes = (np.arange(n) < ill) * 1.0, ((np.arange(n) >= ill - 10) & (np.arange(n) < ill + 50)) * 1.0
    return {"age": random.normal(66, 13, n), "icu": icu, "smokes": smokes, "y": (np.arange(n) % 3 == 0) * 1.0}


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_a_weight_makes_products_of_three(family: str) -> None:
    """With ages as weights, X'WX tells the age of the one smoker in intensive care, X'Wy that of the one who died there."""
    columns = {**ward(), "w": np.random.default_rng(6).uniform(20, 90, 300).round()}
    assert alone(family, {"weight": "w"}, **columns) == []
    one = {**columns, "smokes": ((np.arange(300) >= 24) & (np.arange(300) < 75)) * 1.0}
    assert ("rare-values", ("icu", "smokes"), 1) in alone(family, {"weight": "w"}, **one)
    assert (alone(family, {}, **{name: one[name] for name in one if name != "w"}) == []) is (family == "gaussian")
    one = {**columns, "y": np.where(np.arange(300) < 25, np.arange(300) == 7, columns["y"]) * 1.0}
    assert ("rare-values", ("icu", "y"), 1) in alone(family, {"weight": "w"}, **one)


def test_an_exposure_leaves_rows_of_each_value_their_weight() -> None:
    """Of 25 on dialysis one was followed for years, and the others for days."""
    days = np.where(np.arange(300) == 7, 3400.0, np.where(np.arange(300) < 25, 10.0, 2000.0))
    spread = np.random.default_rng(9).normal(0, 0.3, 300)
    columns = {**ward(), "e": np.log(days) + spread}
    assert ("rare-values", ("icu",), 2) in alone("poisson", {"offset": "e"}, **columns)
    counts = {**columns, "y": np.random.default_rng(2).poisson(np.exp(columns["e"] - 4)) * 1.0}
    assert ("rare-values", ("icu",), 2) in alone("poisson", {}, **counts), "as a column too"
    columns["e"] = np.log(np.where(np.arange(300) < 25, 10.0, 2000.0)) + spread
    assert alone("poisson", {"offset": "e"}, **columns) == []


def test_an_offset_beside_an_intercept_of_the_jobs_own_choice() -> None:
    """Of a logistic model the intercept says which offsets are near the middle, where rows weigh most."""
    columns = {**ward(), "e": np.exp(np.random.default_rng(8).normal(1.6, 0.8, 300)).round(1)}
    assert alone("bernoulli", {"offset": "e"}, **columns) == []
    own = {"model": {"intercept_centre": -float(columns["e"].max())}}
    assert ("rows-by-offset", "e") in [one[:2] for one in alone("bernoulli", {"offset": "e"}, own, **columns)]


def test_without_an_intercept_an_offset_stands_alone() -> None:
    """With e^-bmi as weights the lowest has them all."""
    columns = {**ward(), "e": np.random.default_rng(8).normal(27, 4, 300).round(1)}
    columns["e"][7] = 10.4
    assert alone("bernoulli", {"offset": "e"}, **columns) == []
    own = {"model": {"intercept": False}}
    assert ("rows-by-offset", "e") in [one[:2] for one in alone("bernoulli", {"offset": "e"}, own, **columns)]


def test_a_scale_of_the_jobs_own_choice_lets_a_slope_grow() -> None:
    """Where a column decides the response, only the rows beside the threshold have weight."""
    random = np.random.default_rng(3)
    hb, z = random.normal(13, 1.5, 300).round(2), random.normal(size=300)
    columns = {"hb": hb, "z": z, "y": (hb < 12) * 1.0}
    table = Table("a.csv", (*columns,), columns, 300)
    for scale, few_rows in ((1.5, False), (0.001, True)):
        config = parse({"data": {"clients": ["a.csv"], "response": "y"}, **AT_STRICT})
        spec = Spec("y", columns={"hb": Column("hb", "numeric", None, 12.0, scale)})
        assert ("rows-by-fit" in broken(few.find_few(config.requirement, table, spec, "a"))) is few_rows


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_an_offset_is_a_column(family: str) -> None:
    """A job with it and one without tell the sum of products of it and of each column."""
    columns = {**ward(), "e": np.where(np.arange(300) < 2, 1.5, 0.0)}
    assert ("rare-values", ("e",), 2) in alone(family, {"offset": "e"}, **columns)


def test_counts_leave_rows_of_each_value_their_weight() -> None:
    """The curvature of a negative binomial has (r + y): of 25 in intensive care one had nearly all visits."""
    y = np.where(np.arange(300) < 25, np.arange(300) % 4, np.random.default_rng(3).poisson(9, 300)) * 1.0
    columns, r = {**ward(), "y": y}, {"model": {"scale": 0.1}}
    assert alone("negative-binomial", {}, r, **columns) == []
    columns["y"] = np.where(np.arange(300) == 7, 90.0, y)
    assert alone("poisson", {}, **columns) == []
    assert ("rare-values", ("icu",), 2) in alone("negative-binomial", {}, r, **columns)
    columns["y"] = np.where(np.arange(300) < 25, np.arange(300) == 7, y) * 3.0
    assert ("rare-values", ("icu", "y"), 1) in alone("negative-binomial", {}, r, **columns)
