"""`fedkern check` ends as the run would where an account, a policy or the least number refuses: with the same code and words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.two_clients import TwoClients


class Place(TwoClients):
    """One client of which has a policy."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.own, self.home = root / "data" / "a.csv", root / "home" / ".fedkern"
        self.home.mkdir(parents=True)

    def policy(self, head: str = "", table: str = "", client_level: bool = True) -> None:
        more = f"open = true\nclient_level = {str(client_level).lower()}\n{table}"
        text = f"{head}\n[data.a]\nepsilon = 50.0\ndelta = 1e-4\npaths = [{str(self.own)!r}]\n{more}\n"
        (self.home / "policy.toml").write_text(text)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDKERN_CLIENT_HOME", raising=False)
    return Place(tmp_path)


def same(fedkern: Any, place: Place, job: Path, words: str) -> None:
    """Both ways of checking end as the run does."""
    run, check = fedkern("run", job, "--out", "refused", "--quiet"), fedkern("check", job)
    assert (run.code, check.code) == (2, 2), (run.err, check.err)
    assert words in run.err
    said = [re.sub(r"20[\d:+T-]+", "", err).rstrip() for err in (check.err, run.err)]  # without the time
    assert said[1].startswith(said[0])  # a run adds where its folder has more
    local = fedkern("check", job, "--local", place.own)
    (verdict,) = re.findall(r"this job, as client 'a', is (.*)", local.out)
    assert (local.code, verdict.startswith("refused: ")) == (2, True), verdict
    assert "is allowed" not in local.out


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (kind, damage)
        if (kind, damage) in (("pvi, private", "restored"), ("pvi, open", "cut"))
        else pytest.param(kind, damage, marks=pytest.mark.nightly)
        for kind in ("pvi, private", "pvi, open", "pvi, client-level", "vertical, private")
        for damage in ("cut", "restored", "deleted", "altered")
    ],
)
def test_an_account_that_was_damaged(fedkern: Any, place: Place, kind: str, damage: str) -> None:
    place.policy()
    job, budget = place.job(kind), place.home / "budget.jsonl"
    assert fedkern("run", job, "--out", "one", "--quiet").code == 0
    before = budget.read_bytes()
    assert fedkern("run", job, "--out", "two", "--quiet").code == 0
    assert fedkern("check", job).code == 0
    assert fedkern("check", job, "--local", place.own).code == 0
    if damage == "deleted":
        budget.unlink()
    else:
        content = budget.read_bytes()
        cut = b"".join(content.splitlines(keepends=True)[:-1])
        altered = content.replace(b'"data": "a"', b'"data": "b"', 1)
        budget.write_bytes({"cut": cut, "restored": before, "altered": altered}[damage])
    same(fedkern, place, job, "client 'a': the account of its data cannot be used")


def test_noise_that_a_policy_does_not_allow(fedkern: Any, place: Place) -> None:
    place.policy(head="least_noise_multiplier = 73.12")
    same(fedkern, place, place.job("pvi, private"), "(least_noise_multiplier)")


@pytest.mark.parametrize("table", ["[data.a.disclosure]\nlower = false", "[data.a.disclosure]\nleast_rows = 5000"])
def test_few_rows(fedkern: Any, place: Place, table: str) -> None:
    place.policy(table=table)
    job = place.job("pvi, open")
    job.write_text(re.sub(r"least_rows = \d+\n", "", job.read_text()).replace("[data]\n", "[data]\nleast_rows = 3\n", 1))
    same(fedkern, place, job, "client 'a'")


def test_a_policy_that_does_not_allow_the_kind_of_job(fedkern: Any, place: Place) -> None:
    place.policy(client_level=False)
    same(fedkern, place, place.job("pvi, client-level"), "client_level = true")
    (place.home / "policy.toml").write_text("[data.a")
    job = place.job("pvi, open")
    ended = fedkern("check", job, "--local", place.own)
    assert (ended.code, "every job is refused" in ended.out) == (2, True)


def test_faulty_rows_are_the_verdict(fedkern: Any, place: Place) -> None:
    job = place.job("pvi, open")
    assert fedkern("check", job, "--local", place.own).code == 0
    lines = place.own.read_text().splitlines()
    place.own.write_text("\n".join([*lines, lines[-1].partition(",")[0]]) + "\n")
    ended = fedkern("check", job, "--local", place.own)
    assert (ended.code, "is refused: 1 rows have faults" in ended.out) == (2, True)
    assert ended.out.count("this job, as client") == 1
