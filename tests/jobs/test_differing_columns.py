"""Two jobs on one holder's rows whose columns differ in few of them: found by the holder's own sketches, said, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.errors import JobError
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Books
from fedkern.jobs.holding.columns import Columns
from fedkern.jobs.load import config_of
from fedkern.methods.likelihood import keys
from support.refusal import refusal

ROWS = 120
KEY = bytes(range(32))
SAYS = "but in fewer than 20 rows: what was told once in both tells, subtracted, what is theirs alone"


def write(path: Path, seed: int, n: int = ROWS) -> None:
    """A client's file; at `n = ROWS` one patient is older than 61.5 and not older than 62.5."""
    random = np.random.default_rng(seed)
    age = random.uniform(40, 80, n).round(2)
    age[(age > 61.5) & (age < 62.5)] = 66
    age[7] = 62
    dose, y = random.gamma(2.0, size=n).round(3), random.integers(0, 2, n)
    lines = [f"{a},{d},{b}" for a, d, b in zip(age, dose, y)]
    path.write_text("\n".join(["age,dose,y", *lines]) + "\n")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "home" / ".fedkern"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def job(tmp_path: Path, home: Path) -> Path:
    for seed, name in enumerate("ab"):
        write(tmp_path / f"{name}.csv", seed)
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv"]\n[model]\nfamily = "bernoulli"\n'
        "[algorithm]\npoints = 256\neffective = 10\n"
    )
    return path


def policy(home: Path, differencing: str, more: str = "") -> None:
    (home / "policy.toml").write_text(f'open = true\n[disclosure]\ndifferencing = "{differencing}"\n{more}\n[data.b]\n')


def step(age: float) -> str:
    """A formula that is 0 up to an age and 1 above it."""
    return f"exp(-exp(-1000 * (age - {age})))"


def formula(right: str) -> tuple[str, str]:
    return "--set", f'model.formula="y ~ {right}"'


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "budget.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("differencing", ["say", "refuse"])
def test_a_step_that_moves_over_one_patient(fedkern: Any, job: Path, home: Path, differencing: str) -> None:
    policy(home, differencing)
    first = fedkern("run", job, "--out", "one", "--quiet", *formula(f"dose + {step(61.5)}"))
    assert (first.code, SAYS in first.err) == (0, False), first.err
    again = fedkern("run", job, "--out", "again", "--quiet", "--set", "job.seed=5", *formula(f"{step(61.5)} + dose"))
    assert (again.code, SAYS in again.err) == (0, False), "the same columns"
    other = fedkern("run", job, "--out", "other", "--quiet", *formula("age"))
    assert (other.code, SAYS in other.err) == (0, False), other.err
    moved = formula(f"dose + I(4 - 3 * {step(62.5)})")
    ended, checked = fedkern("run", job, "--out", "two", "--quiet", *moved), fedkern("check", job, *moved)
    local = fedkern("check", job, "--local", "b.csv", *moved)
    if differencing == "say":
        assert (ended.code, checked.code, local.code) == (0, 0, 0)
        assert ended.err.count(SAYS) == ended.err.count("fedkern:") == 1, ended.err
        assert "(age - 62.5))))' is column 'exp(" in ended.err
        assert SAYS in local.out
        assert SAYS in Path("two/client-b/account.json").read_text()
    else:
        assert (ended.code, checked.code, local.code) == (2, 2, 2)
        assert "client 'b': refused by the holder's policy: the clients are those of an earlier job" in ended.err
        assert SAYS in Path("two/client-b/holder.txt").read_text()
        assert SAYS in local.out
        assert not [*Path("two").rglob("*.jsonl")], "nothing has left"


def test_a_response_and_an_offset_are_columns_too(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    """A 0/1 column of the file that differs in one patient, taken for the response."""
    for name in "ab":
        path = tmp_path / f"{name}.csv"
        head, *rest = path.read_text().splitlines()
        later = [f"{line},{line[-1] if k != 9 else 1 - int(line[-1])}" for k, line in enumerate(rest)]
        path.write_text("\n".join([f"{head},later", *later]) + "\n")
    policy(home, "refuse")
    assert fedkern("run", job, "--out", "one", "--quiet", *formula("age")).code == 0
    ended = fedkern("run", job, "--out", "two", "--quiet", "--set", 'model.formula="later ~ age"')
    assert (ended.code, "'later' is column 'y'" in Path("two/client-b/holder.txt").read_text()) == (2, True)


def test_several_starts_another_order_and_new_rows(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    policy(home, "refuse")
    began = formula(f"dose + {step(61.5)}")
    assert fedkern("run", job, "--out", "one", "--quiet", *began).code == 0
    assert fedkern("run", job, "--out", "again", "--quiet", *began).code == 0
    head, *rest = (tmp_path / "b.csv").read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([head, *rest[::-1]]) + "\n")
    ended = fedkern("run", job, "--out", "two", "--quiet", *formula(f"dose + {step(62.5)}"))
    assert (ended.code, SAYS in Path("two/client-b/holder.txt").read_text()) == (2, True), "in another order"
    write(tmp_path / "b.csv", 1, ROWS + 300)
    ended = fedkern("run", job, "--out", "three", "--quiet", *formula(f"dose + {step(62.5)}"))
    assert (ended.code, ended.err) == (0, ""), "of many new rows"


def test_what_leads_round_it_is_counted(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    """A step mixed with another column, whose sum with that column is known, is near no other step."""
    policy(home, "refuse", "jobs = 3")
    mixed = [f"dose + I(3 * {step(61.5)} + 0.7 * dose)", f"dose + I(3 * {step(62.5)} + 0.8 * dose)", "dose + I(age ** 2)"]
    ended = [fedkern("run", job, "--out", f"out-{k}", "--quiet", *formula(one)) for k, one in enumerate(mixed)]
    assert [one.code for one in ended] == [0, 0, 0], ended
    assert ["jobs = 3" in one.err for one in ended] == [False, True, True], "told from half of them"
    again = fedkern("run", job, "--out", "again", "--quiet", *formula(mixed[0]))
    assert again.code == 0, "made before"
    ended = [fedkern("run", job, "--out", "four", "--quiet", *formula("dose"))]
    assert ended[0].code == 2
    why = Path("four/client-b/holder.txt").read_text()
    assert "with this one 4 open jobs make other columns of the same rows ([disclosure] jobs = 3)" in why
    policy(home, "say", "jobs = 3")
    ended = [fedkern("run", job, "--out", "five", "--quiet", *formula("dose"))]
    assert (ended[0].code, "with this one 4 open jobs" in ended[0].err) == (0, True)


def test_mixed_columns_and_sums_of_four_jobs_lead_round_it() -> None:
    """No two columns are nearly the same, and sums of what they tell are one patient's response: so jobs are counted."""
    random = np.random.default_rng(3)
    age, y, dose = random.uniform(40, 80, ROWS), random.normal(size=ROWS), random.gamma(2, size=ROWS)
    age[(age > 61.5) & (age < 62.5)] = 66
    age[7] = 62
    u, v, w = random.normal(size=(3, ROWS))
    one, other = (age > 61.5).astype(float), (age > 62.5).astype(float)
    mixed = [3 * one + 0.7 * dose, 3 * other + 0.8 * dose, dose]
    four = [one + u, other + v, u + w, v + w]
    for columns, weights in ((mixed, np.array([1, -1, 0.1]) / 3), (four, np.array([1, -1, -1, 1]))):
        sketches = [sketched({"x": column}) for column in columns]
        assert not [1 for k, mine in enumerate(sketches) for theirs in sketches[:k] if mine.near(theirs) or theirs.near(mine)]
        assert len({sketch.total for sketch in sketches}) == len(columns)
        np.testing.assert_allclose(weights @ [column @ y for column in columns], y[7])


def test_a_job_may_allow_fewer_and_not_more(fedkern: Any, job: Path, home: Path) -> None:
    policy(home, "refuse")
    assert fedkern("run", job, "--out", "one", "--quiet", *formula("age"), "--set", "disclosure.jobs=1").code == 0
    assert fedkern("run", job, "--out", "two", "--quiet", *formula("dose"), "--set", "disclosure.jobs=1").code == 2
    assert fedkern("run", job, "--out", "two", "--quiet", *formula("dose")).code == 0
    policy(home, "refuse", "jobs = 1")
    assert fedkern("run", job, "--out", "three", "--quiet", *formula("age + dose"), "--set", "disclosure.jobs=9").code == 2
    raw = {"job": {"method": "pvi"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "disclosure": {"jobs": 3}}
    from fedkern.methods.pvi import keys as private

    with refusal(JobError, "disclosure.jobs"):
        config_of(private, {**raw, "data": {"clients": ["a.csv"], "response": "y", "standardise": "none"}})
    assert config_of(keys, {"job": {"method": "likelihood"}, "data": {"clients": ["a.csv"]}, "model": {"formula": "y ~ x"}})


def sketched(columns: dict[str, np.ndarray[Any, Any]], seed: int = 0, order: Any = slice(None)) -> Columns:
    n = len(next(iter(columns.values())))
    members = np.random.default_rng(seed).integers(0, 2**63, n).astype(np.uint64) << np.uint64(1)
    return Columns.of(members[order], [(name, np.asarray(one, np.float64)[order]) for name, one in columns.items()])


@pytest.mark.parametrize("n", [60, 400, 20_000])
def test_columns_are_compared_up_to_sign_scale_constant_and_order(n: int) -> None:
    """Of 300 draws of the two rows that standardise them, and of columns of two, of few and of many values."""
    found = {"step": 0, "count": 0, "dose": 0}
    for seed in range(30):
        random = np.random.default_rng(seed)
        x = random.normal(size=n)
        columns = {"step": x > 0.3, "count": random.poisson(np.exp(0.3 * x)), "dose": np.where(x > 0, random.gamma(2, size=n), 0)}
        mine = sketched(columns, seed)
        assert mine.near(mine) == []
        assert sketched({k: 7 - 0.1 * v for k, v in columns.items()}, seed, slice(None, None, -1)).near(mine) == []
        for name, column in columns.items():
            changed = np.asarray(column, np.float64)
            rows = random.choice(n, 1 + seed % 5, replace=False)
            changed[rows] = np.where(changed[rows] == changed.max(), changed.min(), changed.max())
            found[name] += sketched({"other": -3 * changed + 0.2}, seed).near(mine) == [("other", name)]
    assert min(found.values()) >= 29, found


@pytest.mark.parametrize("n", [25, 200])
def test_other_columns_are_not_near(n: int) -> None:
    for seed in range(100):
        random = np.random.default_rng(seed)
        mine, others = (sketched(dict(enumerate(random.normal(size=(4, n)).round(2))), seed) for _ in range(2))
        assert not mine.near(others)
        if n == 200:
            mine, others = (sketched(dict(enumerate(random.random(size=(4, n)) < 0.3)), seed) for _ in range(2))
            assert not mine.near(others)


def test_nobody_reads_the_sketches_without_the_key(fedkern: Any, job: Path, home: Path) -> None:
    policy(home, "say")
    assert fedkern("run", job, "--out", "one", "--quiet", *formula(f"dose + {step(61.5)}")).code == 0
    assert fedkern("run", job, "--out", "two", "--quiet", *formula(f"dose + {step(61.5)}")).code == 0
    one, two = (line["columns"] for line in lines(home))
    assert one != two, "nor that two jobs had the same columns"
    key = (home / "secret").read_bytes()
    assert Columns.unsealed(one, key).total == Columns.unsealed(two, key).total
    with pytest.raises(ValueError):
        Columns.unsealed(one, KEY)
    assert len(one) < 8_000, "whatever the number of rows"


def test_accounts_without_columns_are_read(fedkern: Any, job: Path, home: Path) -> None:
    policy(home, "refuse")
    assert fedkern("run", job, "--out", "one", "--quiet", *formula(f"dose + {step(61.5)}")).code == 0
    before = [line for line in lines(home) if "columns" in line]
    (home / "budget.jsonl").unlink()
    for mark in home.parent.rglob("budgets/*.json"):
        mark.unlink()
    books = Books(Account(home, "b"))
    with books.ledger.locked() as file:
        for line in before:
            books.ledger.append(file, {key: line[key] for key in line if key not in ("columns", "time", "chain")})
    ended = fedkern("run", job, "--out", "two", "--quiet", *formula(f"dose + {step(62.5)}"))
    assert (len(before), ended.code, ended.err) == (1, 0, "")
