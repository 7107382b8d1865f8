"""Two jobs on one holder's data that differ by few rows: found by the holder's own sketch, said to it alone, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import fedkern as package
from fedkern.data.cells import floats
from fedkern.data.table import Table, load
from fedkern.disclosure.rules import NEAR_ROWS
from fedkern.jobs import hooks
from fedkern.jobs.load import config_of
from fedkern.jobs.sketched import rows_of
from fedkern.methods.likelihood import keys
from fedkern.models.encoding import Spec
from support import interrupted

KEY = bytes(range(32))
WORDS = f"were those of this one but for fewer than {NEAR_ROWS}: what was told once in both tells, subtracted"
ROWS = 60
CONFIG = config_of(keys, {"job": {"method": "likelihood"}, "data": {"clients": ["a.csv"], "response": "y"}})


def write(root: Path, name: str, n: int = ROWS, more: tuple[str, ...] = ()) -> Path:
    """A client's file: of row i the covariate z is i, `site` has 3 in every second row, u is empty in row 17, and v in half."""
    random = np.random.default_rng(sum(name.encode()))
    cells = random.normal(size=(n, 2)).round(3)
    lines = [f"{a},{i},{i % 2},{3 + i % 2},{b if i != 17 else ''},{b if i % 2 else ''}" for i, (a, b) in enumerate(cells)]
    path = root / f"{name}.csv"
    path.write_text("\n".join(["x,z,y,site,u,v", *lines, *more]) + "\n")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "home" / ".fedkern"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def job(tmp_path: Path, home: Path) -> Path:
    for name in "ab":
        write(tmp_path, name)
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\nrounds = 2\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\nignore = ["site", "u", "v"]\n'
        'least_rows = 1\n[model]\nmissing = "drop"\n'
    )
    return path


def policy(home: Path, differencing: str, *names: str) -> None:
    tables = "\n".join(f"[data.{name}]" for name in names or "b")
    (home / "policy.toml").write_text(f'open = true\n[disclosure]\ndifferencing = "{differencing}"\n{tables}\n')


def noted(home: Path) -> list[dict[str, Any]]:
    budget = home / "budget.jsonl"
    return [json.loads(line) for line in budget.read_text().splitlines()] if budget.exists() else []


def apart(one: Table, other: Table, **said: Any) -> int:
    spec = Spec(response="y", family="bernoulli", **said)
    first, second = (rows_of(CONFIG, *rows, KEY) for rows in ((one, Spec(response="y", family="bernoulli")), (other, spec)))
    found = first.sketch.apart(second.sketch)
    assert found is not None
    return found


def test_rows_that_differ_are_counted_up_to_the_number_that_is_asked(tmp_path: Path) -> None:
    whole = load(write(tmp_path, "a", 400))
    for n in (0, 1, 2, 5, NEAR_ROWS - 1):
        assert 0 < apart(whole, whole.select(np.arange(n, 400))) <= n if n else apart(whole, whole) == 0
    for n in (40, 200, 399):
        assert apart(whole, whole.select(np.arange(n, 400))) >= NEAR_ROWS
    again = write(tmp_path, "again", 5)
    again.write_text("\n".join([(lines := (tmp_path / "a.csv").read_text().splitlines())[0], *lines[:0:-1]]) + "\n")
    assert apart(whole, load(again)) == 0, "in another order"
    again.write_text("\n".join([*lines, lines[5], lines[5]]) + "\n")
    assert apart(whole, load(again)) == 1, "two copies of a row do not cancel"


def test_a_row_that_weighs_nothing_or_something_else_is_another(tmp_path: Path) -> None:
    path = write(tmp_path, "a")
    lines = path.read_text().splitlines()
    for name, of in (("none", "0,1"), ("other", "1,2"), ("all but one", "1,2")):
        one, rest = of.split(",")
        path.write_text("\n".join([f"{lines[0]},w", f"{lines[1]},{one}", *(f"{line},{rest}" for line in lines[2:])]) + "\n")
        assert apart(load(path), load(path), weight="w") == 1, name
    assert apart(load(path), load(path)) == 0


def test_cells_are_the_same_however_they_are_held(tmp_path: Path) -> None:
    table = load(write(tmp_path, "a"))
    columns = {name: floats(column) for name, column in reversed(table.columns.items())}
    memory = Table("memory", tuple(columns), columns, table.n_rows)
    texts = Table("memory", table.names, {**columns, "z": load(tmp_path / "a.csv", text=["z"]).columns["z"]}, table.n_rows)
    assert apart(memory, texts) == 0
    assert apart(memory, memory.select(np.arange(1, ROWS))) == 1
    assert apart(table, memory) >= NEAR_ROWS, "lines of a file, and cells, are not compared"


READ = ("--set", 'data.ignore=["site", "v"]')  # so u's empty cell counts
HALF = ("--set", 'data.ignore=["site", "u"]')


@pytest.mark.parametrize("differencing", ["say", "refuse"])
def test_another_reading_of_a_file(fedkern: Any, job: Path, home: Path, differencing: str) -> None:
    """The job file says which columns are used, and by their empty cells which patient does not count."""
    policy(home, differencing)
    assert fedkern("run", job, "--out", "one", "--quiet").err == ""
    other = ("--set", 'data.ignore=["site", "u", "v", "x"]')
    assert fedkern("run", job, "--out", "again", "--quiet", *other).err == "", "other columns"
    assert fedkern("run", job, "--out", "many", "--quiet", *HALF).err == "", "half of the rows"
    ended, checked = fedkern("run", job, "--out", "two", "--quiet", *READ), fedkern("check", job, *READ)
    own = Path("two") / "client-b"
    if differencing == "say":
        assert (ended.code, checked.code, checked.err) == (0, 0, "")
        assert ended.err.count(WORDS) == ended.err.count("\n") > 0, "each once"
        assert WORDS in (own / "account.json").read_text()
    else:
        assert (ended.code, checked.code) == (2, 2)
        assert ended.err == checked.err
        assert "client 'b': refused by the holder's policy: the clients are those of an earlier job on its data but" in ended.err
        assert "or the rows that count are the same but for a few" in ended.err
        assert WORDS in (own / "holder.txt").read_text()
        assert not [*Path("two").rglob("*.jsonl")], "nothing has left"
    for path in Path("two").rglob("*"):
        assert not path.is_file() or path.is_relative_to(own) or b"rows that counted" not in path.read_bytes()
    said = [line["unaccounted"] for line in noted(home)]
    assert said == (["open"] * 4 if differencing == "say" else ["asked", "open"] * 3)


def test_a_patient_more_in_a_file_that_is_read_otherwise_each_time(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    policy(home, "refuse")
    assert fedkern("run", job, "--out", "one", "--quiet").code == 0
    write(tmp_path, "b", more=("0.5,99,1,3,.1,.1",))
    ended = fedkern("run", job, "--out", "two", "--quiet", *READ)
    assert (ended.code, "refused by the holder's policy" in ended.err) == (2, True)
    write(tmp_path, "b", more=tuple(f"0.5,{99 + i},1,3,.1,.1" for i in range(60)))
    assert fedkern("run", job, "--out", "three", "--quiet").code == 0, "as many as a client must have"


def test_clients_of_one_run_that_share_an_account_are_no_earlier_jobs(fedkern: Any, job: Path, home: Path) -> None:
    policy(home, "refuse")
    twice = ("--set", 'data.clients=["a.csv", "b.csv", "b.csv"]', "--set", 'data.names=["a", "b", "again"]')
    for out in ("one", "two"):
        ended = fedkern("run", job, "--out", out, "--quiet", *twice)
        assert ended.code == 0, ended.err


def test_rows_in_memory(home: Path) -> None:
    policy(home, "refuse", "a", "b")
    random = np.random.default_rng(1)
    rows = {name: (random.normal(size=(40, 2)), np.arange(40) % 2) for name in "ab"}
    sections = {"job": {"rounds": 2}, "data": {"response": "y"}}
    package.run(sections, data=rows)
    package.run(sections, data=rows)
    X, y = rows["b"]
    with pytest.raises(package.errors.JobError, match="client 'b': refused by the holder's policy"):
        package.run(sections, data={**rows, "b": (X[1:], y[1:])})


def test_accounts_of_older_versions_are_read(fedkern: Any, job: Path, home: Path) -> None:
    """Their lines name the other clients, and say nothing of rows."""
    policy(home, "refuse")
    from fedkern.jobs.holding.binding import Account
    from fedkern.jobs.holding.budget import Books

    Books(Account(home, "b")).note("an old job", "open", ["a", "c"])
    assert list(noted(home)[0]) == ["job", "data", "unaccounted", "others", "time", "chain"]
    ended = fedkern("run", job, "--out", "one", "--quiet")
    assert (ended.code, "'c'" in (Path("one") / "client-b" / "holder.txt").read_text()) == (2, True)
    policy(home, "say")
    assert fedkern("run", job, "--out", "two", "--quiet").code == 0
    assert [set(line) >= {"rows", "others"} for line in noted(home)] == [False, False, True]
    assert len(noted(home)[-1]["rows"]["sums"]) == 1024, "whatever the number of rows"


def test_a_job_that_ends_before_anything_has_left_is_no_earlier_one(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    """b's account was asked before that of c, whose policy refuses the job: that it has asked is all that is noted."""
    write(tmp_path, "c")
    policy(home, "say")
    (home / "policy.toml").write_text('open = true\n[data.b]\n[data.c]\n[data.c.disclosure]\ndifferencing = "refuse"\n')
    clients = "--set", 'data.clients=["b.csv", "c.csv"]'
    assert fedkern("run", job, "--out", "one", "--quiet", *clients).code == 0
    before = noted(home)
    assert sorted((line["data"], line["unaccounted"]) for line in before) == [("b", "open"), ("c", "asked"), ("c", "open")]
    ended = fedkern("run", job, "--out", "two", "--quiet", "--set", 'data.clients=["a.csv", "b.csv", "c.csv"]')
    assert (ended.code, "client 'c': refused" in ended.err) == (2, True)
    assert [(line["data"], line["unaccounted"]) for line in noted(home)[len(before) :]] == [("c", "asked")]


def test_what_has_left_before_a_kill_stays_known(tmp_path: Path, job: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is on the disk before the first byte leaves; a run that goes on has no second one."""
    policy(home, "refuse", "a", "b")

    class Killed(BaseException):
        pass

    def sent(self: Any, *arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as here:
        here.setattr(hooks.Keeper, "sending", sent)
        with pytest.raises(Killed):
            interrupted.run(job, tmp_path / "out")
    lines = [line["unaccounted"] for line in noted(home)]
    assert lines == ["asked", "asked", "open"], "of the client that was about to send"
    interrupted.run(job, tmp_path / "out", resume=True)
    began = [line for line in noted(home) if line["unaccounted"] == "open"]
    assert [(line["data"], line["job"].rpartition("-")[2]) for line in began] == [("a", "0"), ("b", "1")]
    assert len(noted(home)) == 4


def test_a_job_with_secure_sums_is_noted_with_its_rows(fedkern: Any, home: Path, tmp_path: Path) -> None:
    """Its clients tell each other keys before they read rows: no job of which something has left is without its sketch."""
    for name in "abc":
        write(tmp_path, name)
    policy(home, "say", *"abc")
    data = {"clients": [str(tmp_path / f"{name}.csv") for name in "abc"], "response": "y"}
    data |= {"ignore": ["z", "site", "u", "v"], "least_rows": 1}
    job = {"job": {"method": "likelihood", "sums": "secure"}, "data": data, "algorithm": {"points": 256, "effective": 10}}
    package.run(job)
    assert sorted(line["data"] for line in noted(home)) == ["a", "b", "c"]
    assert all("rows" in line for line in noted(home)), noted(home)


def test_a_server_gives_a_run_the_id_of_an_earlier_one(
    fedkern: Any, tmp_path: Path, job: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account would take both for one run, and compare nothing. Only a run that the client's own folder has goes on."""
    policy(home, "refuse")
    monkeypatch.setattr("fedkern.jobs.identity.uuid4", lambda: UUID(int=7))
    assert fedkern("run", job, "--out", "one", "--quiet").code == 0
    before = noted(home)
    for out, more in (("two", READ), ("three", ("--set", "job.rounds=3")), ("four", ("--set", 'data.clients=["b.csv"]'))):
        ended = fedkern("run", job, "--out", out, "--quiet", *more)
        assert (ended.code, "Traceback" in ended.err) == (2, False)
        assert not [*Path(out).rglob("*.jsonl")], "nothing has left"
    assert "client 'b': the server gives this run the id of an earlier run on its data" in ended.err
    assert [line for line in noted(home) if line["unaccounted"] == "open"] == [before[1]]


@pytest.mark.parametrize("said", [b"", b"none", b"\xff" * 16, b"ab" * 15, b"ab" * 17, b"  " + b"ab" * 15, b"AB" * 16])
def test_a_run_id_that_is_none(fedkern: Any, job: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr("fedkern.jobs.identity._settled", lambda told, run: said)
    ended = fedkern("run", job, "--out", "one", "--quiet")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("fedkern: the server: the id of the run cannot be read (")
