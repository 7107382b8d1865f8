"""Small jobs of all methods do what they always did: what leaves each party, what is said of it, and what is written.

A change that means to alter some of it writes its files anew, in a commit of its own: python tests/golden/record.py --write
"""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)  # all jobs run for the first test: 19 s of one core, more where many share it
HERE = Path(__file__).parent
REMEDY = (
    "\nWhat digests hold, line by line beside another commit's: make golden BASE=COMMIT"
    "\nIf this is meant: python tests/golden/record.py --write, and commit what it changed in tests/golden alone with the reason"
)


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"golden_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


record, jobs = loaded("record"), loaded("jobs")
STORED: dict[str, Any] = record.read()


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    """What the golden jobs do today, in a process of their own: kernels of the baseline level, no home, no settings."""
    done = record.recorded()
    return {**record.kept(done), "numbers": done["numbers"]}


def same(was: Any, found: Any, name: str) -> None:
    changed = list(record.differences(was, found, name))
    if changed:
        pytest.fail("\n".join(changed[:30]) + REMEDY, pytrace=False)


def test_the_stored_jobs_are_those_of_the_list() -> None:
    assert len(jobs.JOBS) == 51
    assert STORED["jobs"].keys() == jobs.JOBS.keys()
    assert {name for name, job in STORED["jobs"].items() if "digest" in job} == set(jobs.PORTABLE)
    assert len(record.WHOLE) == 6
    assert {name for name, job in STORED["jobs"].items() if isinstance(job["check"], list)} == set(record.WHOLE)


@pytest.mark.parametrize("name", STORED["jobs"])
def test_a_job_sends_says_and_writes_what_it_always_did(now: dict[str, Any], name: str) -> None:
    same(STORED["jobs"][name], now["jobs"][name], name)


@pytest.mark.parametrize("what", ["messages", "streams"])
def test_numbers_of_messages_and_streams_keep_their_meaning(now: dict[str, Any], what: str) -> None:
    same(STORED[what], now[what], what)


def test_an_interrupted_job_ends_with_the_same_bits(now: dict[str, Any]) -> None:
    """But for its checkpoints' interval it is the job `sigma-sfvi`, which is not interrupted."""
    assert now["numbers"]["sigma-resumed"]["digest"] == now["numbers"]["sigma-sfvi"]["digest"]
    assert now["numbers"]["sigma-resumed"]["draws"] == now["numbers"]["sigma-sfvi"]["draws"]


def test_negative_control_a_difference_names_the_job_and_the_key() -> None:
    name = "pvi-sequential"
    job = copy.deepcopy(STORED["jobs"][name])
    clients = next(iter(job["ledgers"]))
    kind = job["ledgers"][clients]["kinds"]["agreement/SchemaReply"]
    kind["n"] += 1
    job["check"].append("one line more")
    del job["rounds"]
    assert list(record.differences(STORED["jobs"][name], job, name)) == [
        f"{name}: check:\n    + one line more",
        f"{name}: rounds: is gone (was {STORED['jobs'][name]['rounds']})",
        f"{name}: ledgers: {clients}: kinds: agreement/SchemaReply: n: was {kind['n'] - 1}, is {kind['n']}",
    ]


def test_negative_control_one_message_more_is_another_digest_of_the_same_part() -> None:
    job = copy.deepcopy(STORED["jobs"]["pvi-sequential"])
    before = record.digested(job)
    assert all(len(json.dumps(part)) <= record.LONGEST for part in before.values())
    next(iter(job["ledgers"].values()))["kinds"]["agreement/SchemaReply"]["n"] += 1
    job["check"][-1] += "."
    after = record.digested(job)
    assert {name for name in before if before[name] != after[name]} == {"ledgers", "check"}


def test_a_changed_job_changes_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "STORED", tmp_path / "stored")
    monkeypatch.setattr(record, "MESSAGES", tmp_path / "messages.json")
    record.write({**STORED, "jobs": {**STORED["jobs"], "gone": {"rounds": 1}}})
    changed = {**STORED, "jobs": {**STORED["jobs"], "sparse-mrf": {**STORED["jobs"]["sparse-mrf"], "rounds": 99}}}
    record.write(changed)
    assert record.read() == changed
    assert (tmp_path / "messages.json").read_bytes() == (HERE / "messages.json").read_bytes()
    theirs = {path.name: path.read_bytes() for path in (HERE / "stored").iterdir()}
    ours = {path.name: path.read_bytes() for path in (tmp_path / "stored").iterdir()}
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if ours[name] != theirs[name]] == ["sparse-mrf.json"]
